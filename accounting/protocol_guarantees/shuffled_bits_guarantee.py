r"""The privacy of shuffled bits, and the least binomial noise for a target.

The noise has independent binomial coordinates, and p(x) is the mass function of one of them. Let P
and Q be the output laws of two neighbours, where coordinate i changes by at most d_i in either
direction. As p(x)/p(x-d) decreases in x, every optimal event S in one coordinate is a half-line,
and P(S) - e^epsilon Q(S) increases with the shift d. So the largest shift dominates all smaller
shifts of the same sign. It remains to maximise over the signs of the coordinates; for fair bits one
choice suffices. The losses of the coordinates add, like those of rounds.

Binomial noise of b bits plus one independent bit is binomial noise of b + 1 bits. So adding a bit
is post-processing, and delta is non-increasing in b. Bisection therefore finds the least b, and
both b and b - 1 are certified. Delta is not proven to be monotone in the probability of a noise
bit, so there only two adjacent grid points are certified. Proofs: docs/proofs/shuffle.md.
"""

from __future__ import annotations

import math
from fractions import Fraction

from accounting.privacy_curves.release_curve import PrivacyCurve
from accounting.published_noise_bounds import real_gaussian_ratio
from dpcore.errors import InvalidParameter
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.mechanism import Scope, Sensitivity
from dpcore.numbers.integer_search import least
from dpcore.numbers.parameter import (
    RationalLike,
    integer,
    positive_rational,
    rational,
    rational_in,
)


def BinomialBox(  # noqa: N802  # a class in earlier versions
    *,
    trials: int,
    bounds: tuple[int, ...],
    probability: RationalLike = Fraction(1, 2),
    scope: Scope = Scope(),  # noqa: B008  # Scope is frozen
) -> PrivacyCurve:
    r"""The privacy curve of binomial noise, if coordinate i of a sum changes by ``bounds[i]``.

    The noise is Binomial(trials, probability), as in shuffle protocols (Cheu, Joseph, Mao and Peng
    2021); one coordinate with bound 1 is binary summation. The largest loss and all Renyi
    divergences are infinite, since each dataset has outputs that are impossible under the other.

    >>> BinomialBox(trials=268, bounds=(1,)).delta("1/2")
    Bound([9.8800924953414566e-7, 9.8800924953414567e-7], 'exact')

    Raises the errors of :class:`PrivacyCurve`.
    """
    noise = Binomial(trials=trials, probability=probability)
    single = isinstance(bounds, tuple) and len(bounds) == 1
    moves = bounds[0] if single else Sensitivity.box(bounds)
    return PrivacyCurve(noise=noise, sensitivity=moves, scope=scope)


def fewest_bits(
    *,
    epsilon: RationalLike,
    delta: RationalLike,
    bounds: tuple[int, ...] = (1,),
    users: int = 1,
    probability: RationalLike = Fraction(1, 2),
) -> int:
    r"""The least number of noise bits per honest user that meets the target (epsilon, delta).

    One bit less per user does not meet it. ``bounds[i]`` is the largest change, in encoding steps,
    that one user causes in the sum of coordinate i: (1,) for a sum of bits, and (g,) * s for a
    vector of s coordinates with g steps each.
    """
    e, d = _target(epsilon, delta)
    n, p = integer("users", users, at_least=1), rational("probability", probability)

    def box(bits: int) -> PrivacyCurve:
        return BinomialBox(trials=n * bits, bounds=bounds, probability=p)

    box(1)  # raises for invalid bounds and probabilities before the search starts
    # The search starts where real Gaussian noise of the same variance would suffice.
    variance = real_gaussian_ratio(e, d).upper ** 2 * sum(bound * bound for bound in bounds)
    near = math.ceil(Fraction(variance) / (p * (1 - p) * n))
    return least(lambda b: b >= 1 and box(b).meets(e, d), near)


def least_probability(
    *,
    trials: int,
    epsilon: RationalLike,
    delta: RationalLike,
    bounds: tuple[int, ...] = (1,),
    grid: int = 1 << 16,
) -> Fraction:
    r"""Find a probability j/``grid`` <= 1/2 at which noise bits meet the target (epsilon, delta).

    Each of the ``trials`` noise bits is 1 with this probability. The probability (j - 1)/``grid``
    does not meet the target. Raises :class:`InvalidParameter` if fair bits do not meet the target.
    """
    e, d = _target(epsilon, delta)
    steps = integer("grid", grid, at_least=2)
    if steps % 2:
        raise InvalidParameter("grid", grid, "must be even, so that the grid contains 1/2")

    def box(step: int) -> PrivacyCurve:
        return BinomialBox(trials=trials, bounds=bounds, probability=Fraction(step, steps))

    low, high = 0, steps // 2
    if not box(high).meets(e, d):
        reason = f"is too small: fair bits do not satisfy (epsilon, delta) = ({e}, {d})"
        raise InvalidParameter("trials", trials, reason)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if box(middle).meets(e, d) else (middle, high)
    return Fraction(high, steps)


def _target(epsilon: RationalLike, delta: RationalLike) -> tuple[Fraction, Fraction]:
    e = positive_rational("epsilon", epsilon, "epsilon 0 needs infinite noise with delta < 1")
    return e, rational_in("delta", delta, "(0, 1)", "the loss is unbounded")
