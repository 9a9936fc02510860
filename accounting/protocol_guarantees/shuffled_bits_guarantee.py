r"""The privacy of shuffled bits, and the least binomial noise for a target.

The coordinates of X are independent binomial variables; neighbouring data move coordinate i by at
most d_i in either direction. As p(x)/p(x-d) decreases in x, every optimal test is a ray, and its
payoff increases with d, so the full shift dominates every smaller one of the same sign. It remains
to maximise over the signs of the coordinates; for p = 1/2 one choice suffices. The losses of the
coordinates add, like those of rounds.

Calibration: Binomial(b, p) plus an independent Binomial(1, p) is Binomial(b + 1, p), so more bits
are post-processing and delta is non-increasing in b: bisection finds the least b, and both b and b
- 1 are certified. For the probability no such monotonicity is proven, so two grid points are
certified. Proofs: docs/proofs/shuffle.md.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from accounting.derive_guarantee import serve
from accounting.errors import NotDerived
from accounting.guarantees.bound import Bound
from accounting.guarantees.guarantee import Guarantee, order_above_one, probability
from accounting.law_pairs.registry import pair_of
from accounting.privacy_curves.dominating_pairs import (
    ComposedLoss,
    DominatingPairs,
    Laws,
    over_totals,
)
from accounting.privacy_curves.release_curve import PrivacyCurve
from accounting.published_bounds import real_gaussian_ratio
from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.mechanism import Mechanism, Norm, Scope, Sensitivity
from dpcore.numbers.enclosure import Enclosure
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

# Measured: a total takes about the same time at every width down to 1e-4, and adjacent values in a
# search for the fewest bits differ by about that much. These widths only affect speed.
_WIDTHS: Final = tuple(Fraction(1, 10**digits) for digits in (4, 5, 6, 8))
_FINER: Final = (1, 16, 256)
_MOST_SIGNS: Final = 64
_WIDTH: Final = Fraction(1, 1000)
_APART: Final = "each dataset has outputs that are impossible under the other"


@dataclass(frozen=True, slots=True, kw_only=True)
class BinomialBox(Guarantee):
    r"""Binomial(trials, probability) noise on each coordinate; coordinate i changes by
    ``bounds[i]``.

    This is the noise of the shuffle protocols: Cheu, Joseph, Mao and Peng 2021; one coordinate with
    bound 1 is binary summation.

    >>> BinomialBox(trials=268, bounds=(1,)).delta("1/2")
    Bound([9.8800924953414566e-7, 9.8800924953414567e-7], 'direct')
    >>> BinomialBox(trials=268, bounds=(1,)).meets("1/2", "1e-6")
    True

    Raises :class:`InvalidParameter` for trials < 1, a probability outside (0, 1), no bounds or a
    bound < 1; :class:`NotDerived` if there are too many sign choices.
    """

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

    def delta(self, epsilon: RationalLike, relative: RationalLike | None = None) -> Bound:
        r"""The least delta at ``epsilon`` >= 0, to this relative width (default 1e-3) or less.

        Raises :class:`PrecisionExhausted` if the enclosure stays wider.
        """
        at, goal = at_least_zero("epsilon", epsilon), _width(relative)
        for finer in _FINER:
            found = self._delta(at, goal / finer)
            if found.lower is not None and found.upper - found.lower <= goal * found.lower:
                return found
        raise PrecisionExhausted(f"no enclosure of delta({at}) of relative width {goal}")

    def epsilon(self, delta: RationalLike, relative: RationalLike | None = None) -> Bound:
        r"""The least epsilon at ``delta`` in [0, 1], to about this relative width (default 1e-3).

        It is infinite at delta = 0: each dataset has outputs that are impossible under the other.
        """
        most, width = probability("delta", delta), _width(relative)
        if most == 0:
            return _infinite()
        return self._worst(lambda total, near: total.epsilon(most, near), width)

    def renyi(self, order: RationalLike, relative: RationalLike | None = None) -> Bound:
        r"""Infinite, since each dataset has outputs that are impossible under the other."""
        del relative
        order_above_one(order)
        return _infinite()

    def zcdp(self, relative: RationalLike | None = None) -> Bound:
        r"""Infinite, like every Renyi divergence."""
        del relative
        return _infinite()

    def meets(self, epsilon: RationalLike, delta: RationalLike) -> bool:
        r"""Whether the release is (epsilon, delta)-DP, decided by two-sided bounds."""
        at, most = at_least_zero("epsilon", epsilon), at_least_zero("delta", delta)
        if self._surely(at, most):
            return True
        for width in _WIDTHS:
            found = self._delta(at, width)
            if found.upper <= most:
                return True
            if found.lower is not None and found.lower > most:
                return False
        raise PrecisionExhausted(f"delta({at}) could not be compared with {most}")

    def enclose_delta(self, epsilon: RationalLike, relative: RationalLike = _WIDTH) -> Enclosure:
        r"""The enclosure of :meth:`delta`."""
        return _ends(self.delta(epsilon, relative))

    def enclose_epsilon(self, delta: RationalLike, relative: RationalLike = _WIDTH) -> Enclosure:
        r"""The enclosure of :meth:`epsilon`."""
        return _ends(self.epsilon(delta, relative))

    def to_json(self) -> dict[str, Any]:
        r"""Bits, their probability, the bounds and the scope, as JSON."""
        return {
            "claim": "binomial-box",
            "trials": self.trials,
            "probability": str(self.probability),
            "bounds": [*self.bounds],
            "scope": self.scope.to_json(),
        }

    # -- the losses of all coordinates ------------------------------------------------------------

    def _delta(self, epsilon: Fraction, relative: Fraction) -> Bound:
        return self._worst(lambda total, near: total.delta(epsilon, near), relative)

    def _worst(
        self, ask: Callable[[ComposedLoss, Fraction], Enclosure], relative: Fraction
    ) -> Bound:
        signs = self._signs()
        return over_totals([(DominatingPairs(above=signs, attained=signs), 1)], ask, relative)

    def _surely(self, epsilon: Fraction, delta: Fraction) -> bool:
        # Basic composition of equal shares of epsilon: a fast proof if there is far more noise than
        # needed, where a total would have to resolve a tiny delta.
        share, noise = epsilon / len(self.bounds), self._noise
        lost = [
            count * PrivacyCurve(noise=noise, sensitivity=step).delta(share).upper
            for step, count in Counter(self.bounds).items()
        ]
        return len(self.bounds) > 1 and sum(lost) <= delta

    def _signs(self) -> tuple[Laws, ...]:
        # Coordinates with equal bounds are exchangeable, so only the number of coordinates that
        # move down matters.
        noise, groups = self._noise, sorted(Counter(self.bounds).items())
        pairs = [(pair_of(noise, step), count) for step, count in groups]
        if all(pair.mirror() is pair for pair, _ in pairs):
            return (tuple(pairs),)
        if math.prod(count + 1 for _, count in groups) > _MOST_SIGNS:
            wanted = f"the worst directions of {len(self.bounds)} coordinates with asymmetric noise"
            reason = (
                "use probability 1/2, for which the direction of each coordinate's change does "
                "not matter"
            )
            raise NotDerived(wanted, reason)
        found = []
        for downs in itertools.product(*(range(count + 1) for _, count in groups)):
            both = (
                law
                for (pair, count), down in zip(pairs, downs, strict=True)
                for law in ((pair, count - down), (pair.mirror(), down))
            )
            found.append(tuple(law for law in both if law[1]))
        return tuple(found)

    @property
    def _noise(self) -> Binomial:
        return Binomial(trials=self.trials, probability=self.probability)


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


def _several(mechanism: Mechanism) -> BinomialBox | None:
    # A single coordinate has a full privacy curve.
    amount = Sensitivity.of(mechanism.sensitivity).amount
    return box_of(mechanism) if isinstance(amount, tuple) and len(amount) > 1 else None


serve(Binomial, _several)


def _infinite() -> Bound:
    return Bound.of(Enclosure.infinite(), "unbounded", _APART)


def _ends(found: Bound) -> Enclosure:
    return Enclosure(Fraction(0) if found.lower is None else found.lower, found.upper)


def _width(relative: RationalLike | None) -> Fraction:
    if relative is None:
        return _WIDTH
    return positive_rational("relative", relative, "an enclosure cannot have width 0")


def fewest_bits(
    *,
    epsilon: RationalLike,
    delta: RationalLike,
    bounds: tuple[int, ...] = (1,),
    users: int = 1,
    probability: RationalLike = Fraction(1, 2),
) -> BinomialBox:
    r"""The least number of noise bits per honest user that meets the target.

    The ``trials`` of the result are ``users`` times this number; one bit less per user does not
    meet the target. ``bounds[i]`` is the largest change of the sum of coordinate i by one user, in
    steps: (1,) for the sum of bits of TKMS, (g,) * s for a vector of s coordinates in g steps.
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
    r"""A probability j/``grid`` <= 1/2 of ``trials`` noise bits that meets the target, where
    (j - 1)/``grid`` does not, found by bisection.
    """
    e, d = _target(epsilon, delta)
    steps = integer("grid", grid, at_least=2)
    if steps % 2:
        raise InvalidParameter("grid", grid, "must be even, so that the grid contains 1/2")

    def box(step: int) -> BinomialBox:
        return BinomialBox(trials=trials, bounds=bounds, probability=Fraction(step, steps))

    low, high = 0, steps // 2
    if not box(high).meets(e, d):
        reason = f"fair bits do not satisfy (epsilon, delta) = ({e}, {d})"
        raise InvalidParameter("trials", trials, reason)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if box(middle).meets(e, d) else (middle, high)
    return box(high)


def _target(epsilon: RationalLike, delta: RationalLike) -> tuple[Fraction, Fraction]:
    e = positive_rational("epsilon", epsilon, "epsilon 0 needs infinite noise with delta < 1")
    return e, rational_in("delta", delta, "(0, 1)", "the loss is unbounded")
