r"""Exact calibration of binomial noise for shuffled bits: the least noise for a target.

Fewest bits: Binomial(b, p) plus an independent Binomial(1, p) is Binomial(b + 1, p), so more bits
are post-processing and delta is non-increasing in b: bisection finds the least b, and both b and b
- 1 are certified. Least probability: no such monotonicity is proven, so two grid points are
certified. Sources: Tenenbaum and others 2021, Algorithm 3, and Li, Zhou and Ji 2022, Algorithms 2
and 4 (both in ``paper_parameters``); Cheu, Joseph, Mao and Peng, "Shuffle Private Stochastic Convex
Optimization" (2021). Proofs: docs/proofs/shuffle.md.
"""

from __future__ import annotations

import math
from fractions import Fraction

from accounting.protocol_guarantees.shuffled_bits_guarantee import BinomialBox
from accounting.published_bounds import real_gaussian_ratio
from dpcore.errors import InvalidParameter
from dpcore.numbers.integer_search import least
from dpcore.numbers.parameter import RationalLike, integer, positive_rational, rational, rational_in


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
