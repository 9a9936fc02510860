r"""The privacy of shuffled bits, and the least binomial noise for a target.

The coordinates of X are independent binomial variables; neighbouring data move coordinate i by at
most d_i in either direction. As p(x)/p(x-d) decreases in x, every optimal event S is a half-line,
and P(S) - e^epsilon Q(S) increases with d, so the full shift dominates every smaller shift of the
same sign. It remains to maximise over the signs of the coordinates; for p = 1/2 one choice
suffices. The losses of the coordinates add, like those of rounds.

Calibration: Binomial(b, p) plus an independent Binomial(1, p) is Binomial(b + 1, p), so adding a
bit is post-processing and delta is non-increasing in b: bisection finds the least b, and both b and
b - 1 are certified. For the probability no such monotonicity is proven, so two grid points are
certified. Proofs: docs/proofs/shuffle.md.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar, Final

from accounting.errors import NotDerived
from accounting.law_pairs.registry import Coordinates, candidates
from accounting.privacy_curves.dominating_pairs import DominatingPairs, of_noise
from accounting.privacy_curves.release_curve import PairCurve, PrivacyCurve
from accounting.published_noise_bounds import real_gaussian_ratio
from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.mechanism import Mechanism, Norm, Scope, Sensitivity
from dpcore.numbers.integer_search import least
from dpcore.numbers.parameter import (
    Exact,
    RationalLike,
    at_least_zero,
    integer,
    positive_rational,
    rational,
    rational_in,
)

# Measured: a composition takes about the same time at every width down to 1e-4, and the deltas of
# adjacent numbers of bits differ by about this width. The widths only affect speed.
_WIDTHS: Final = tuple(Fraction(1, 10**digits) for digits in (4, 5, 6, 8))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BinomialBox(PairCurve):
    r"""The curve of binomial noise on each coordinate, if coordinate i changes by ``bounds[i]``.

    The noise is Binomial(trials, probability), as in shuffle protocols (Cheu, Joseph, Mao and Peng
    2021); one coordinate with bound 1 is binary summation. The largest loss and all Renyi
    divergences are infinite, since each dataset has outputs that are impossible under the other.

    >>> BinomialBox(trials=268, bounds=(1,)).delta("1/2")
    Bound([9.8800924953414566e-7, 9.8800924953414567e-7], 'exact')
    >>> BinomialBox(trials=268, bounds=(1,)).meets("1/2", "1e-6")
    True

    Raises :class:`InvalidParameter` if trials < 1, the probability is outside (0, 1), or there are
    no bounds or a bound < 1; :class:`NotDerived` if there are too many choices of signs.
    """

    theorem: ClassVar[str] = "the curve of the noise"

    trials: int
    bounds: tuple[int, ...]
    probability: Exact = Exact("1/2")
    scope: Scope = field(default=Scope(), repr=False)

    def __post_init__(self) -> None:
        noise = Binomial(trials=self.trials, probability=self.probability)
        object.__setattr__(self, "trials", noise.trials)
        object.__setattr__(self, "probability", noise.probability)
        if not isinstance(self.bounds, tuple) or not self.bounds:
            raise InvalidParameter("bounds", self.bounds, "must be a tuple of at least one bound")
        for bound in self.bounds:
            integer("bounds", bound, at_least=1)

    @property
    def noise(self) -> Binomial:
        r"""The noise of each coordinate."""
        return Binomial(trials=self.trials, probability=self.probability)

    @property
    def sensitivity(self) -> Sensitivity:
        r"""The bounds of all coordinates."""
        return Sensitivity.box(self.bounds)

    def products(self) -> tuple[Coordinates, ...]:
        r"""The dominating pairs of the largest shift, for each choice of the coordinates' signs."""
        return candidates(self.noise, self.sensitivity)

    def dominating_pairs(self) -> DominatingPairs:
        r"""The dominating pairs of the noise."""
        return of_noise(self.noise, self.sensitivity)

    def meets(self, epsilon: RationalLike, delta: RationalLike) -> bool:
        r"""Whether the release is (epsilon, delta)-DP, decided with two-sided bounds."""
        at, most = at_least_zero("epsilon", epsilon), at_least_zero("delta", delta)
        if self._surely(at, most):
            return True
        for width in _WIDTHS:
            found = self.delta(at, width)
            if found.upper <= most:
                return True
            if found.lower is not None and found.lower > most:
                return False
        raise PrecisionExhausted(f"delta({at}) could not be compared with {most}")

    def _surely(self, epsilon: Fraction, delta: Fraction) -> bool:
        # Basic composition of equal shares of epsilon: a fast proof if there is far more noise than
        # needed, where the exact composition would have to resolve a tiny delta.
        share = epsilon / len(self.bounds)
        lost = [
            count * PrivacyCurve(noise=self.noise, sensitivity=step).delta(share).upper
            for step, count in Counter(self.bounds).items()
        ]
        return len(self.bounds) > 1 and sum(lost) <= delta


def box_of(mechanism: Mechanism) -> BinomialBox:
    r"""The guarantee of a release with binomial noise whose coordinates may all change together."""
    noise, moves = mechanism.noise, Sensitivity.of(mechanism.sensitivity)
    if not isinstance(noise, Binomial):
        raise InvalidParameter("mechanism", mechanism, "must have binomial noise")
    if moves.norm not in (Norm.ABSOLUTE, Norm.BOX):
        wanted = f"the worst shift of {noise!r} with {moves!r}"
        raise NotDerived(wanted, "use a bound per coordinate: Sensitivity.box")
    amount = moves.amount
    return BinomialBox(
        trials=noise.trials,
        probability=noise.probability,
        bounds=amount if isinstance(amount, tuple) else (amount,),
        scope=mechanism.scope,
    )


def fewest_bits(
    *,
    epsilon: RationalLike,
    delta: RationalLike,
    bounds: tuple[int, ...] = (1,),
    users: int = 1,
    probability: RationalLike = Fraction(1, 2),
) -> BinomialBox:
    r"""The binomial noise of the least number of bits per honest user that meets the target.

    The ``trials`` of the result are ``users`` times this number; one bit less per user does not
    meet the target. ``bounds[i]`` is the largest change, in steps, that one user causes in the sum
    of coordinate i: (1,) for the sum of bits of TKMS, (g,) * s for a vector of s coordinates in g
    steps.
    """
    e, d = _target(epsilon, delta)
    n, p = integer("users", users, at_least=1), rational("probability", probability)

    def box(bits: int) -> BinomialBox:
        return BinomialBox(trials=n * bits, bounds=bounds, probability=p)

    box(1)  # raises for invalid bounds and probabilities before the search starts
    # The search starts where real Gaussian noise of the same variance would suffice.
    variance = real_gaussian_ratio(e, d).upper ** 2 * sum(bound * bound for bound in bounds)
    near = math.ceil(Fraction(variance) / (p * (1 - p) * n))
    bits = least(lambda b: b >= 1 and box(b).meets(e, d), near)
    return box(bits)


def least_probability(
    *,
    trials: int,
    epsilon: RationalLike,
    delta: RationalLike,
    bounds: tuple[int, ...] = (1,),
    grid: int = 1 << 16,
) -> BinomialBox:
    r"""Find by bisection a probability j/``grid`` <= 1/2 of the noise bits that meets the target.

    The probability (j - 1)/``grid`` does not meet it. ``trials`` is the number of noise bits.
    """
    e, d = _target(epsilon, delta)
    steps = integer("grid", grid, at_least=2)
    if steps % 2:
        raise InvalidParameter("grid", grid, "must be even, so that the grid contains 1/2")

    def box(step: int) -> BinomialBox:
        return BinomialBox(trials=trials, bounds=bounds, probability=Fraction(step, steps))

    low, high = 0, steps // 2
    if not box(high).meets(e, d):
        reason = f"is too small: fair bits do not satisfy (epsilon, delta) = ({e}, {d})"
        raise InvalidParameter("trials", trials, reason)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if box(middle).meets(e, d) else (middle, high)
    return box(high)


def _target(epsilon: RationalLike, delta: RationalLike) -> tuple[Fraction, Fraction]:
    e = positive_rational("epsilon", epsilon, "epsilon 0 needs infinite noise with delta < 1")
    return e, rational_in("delta", delta, "(0, 1)", "the loss is unbounded")
