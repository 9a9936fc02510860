r"""Audit a mechanism from one run with many canaries: p-values from the number of right guesses.

Each of m canaries is included with probability 1/2, by an independent fair coin, and the mechanism
runs once. From its output, an observer guesses for some of the canaries whether they were included.
There are two bounds on the probability of at least the observed number of right guesses:

    :func:`one_run_p_value`    Steinke, Nasr and Jagielski 2023, Theorem 5.2: binomial tails. The
                               bound is proven for delta = 0; with delta > 0 it fails for small
                               numbers of right guesses
    :func:`curve_p_value`      Mahloujifar, Melis and Chaudhuri 2024: for a privacy curve, or a
                               point with delta > 0. The bound is proven

The number of guesses is fixed in advance. The choice of the canaries to guess, and the guesses, may
depend on the output in any way. Proofs and their assumptions: ``docs/proofs/audit_tests.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Final, NamedTuple

from flint import arb

from dpcore.numbers.enclosure import Enclosure, ball, precision, round_down, round_up
from dpcore.numbers.parameter import RationalLike, rational

LARGEST: Final = 64.0
r"""The largest lower bound that is reported."""

_BITS: Final = 128
_NEGLIGIBLE: Final = Fraction(1, 1 << 80)
_STEPS: Final = 26
_ROUNDING: Final = 2.0**-50
r"""A bound on the total relative rounding error of three floating-point operations."""


def one_run_p_value(
    canaries: int, guesses: int, right: int, *, epsilon: RationalLike, delta: RationalLike
) -> float:
    r"""The bound of Steinke et al. on the probability of at least v = ``right`` correct guesses.

    For m canaries and r guesses (fixed beforehand) of which v are right, the bound is

        P(W >= v) + 2 m delta max_{1 <= i <= v} P(v > W >= v - i)/i,
        where W ~ Bin(r, e^epsilon/(1 + e^epsilon)).

    The bound is computed in ball arithmetic and rounded up. With delta = 0 it is the exact
    probability for the worst mechanism. With delta > 0 it is too small for v below the mean of W
    (``docs/errata.md``); for larger v, no mechanism is known that exceeds it.

    Source: Steinke, Nasr and Jagielski 2023, "Privacy auditing with one (1) training run", Theorem
    5.2.
    """
    if right == 0:
        return 1.0
    exact = rational("delta", delta)
    with precision(_BITS):
        odds = ball(rational("epsilon", epsilon)).exp()
        mass = _mass(guesses, right, odds)
        total = _tail(guesses, right, odds, mass)
        if exact:
            total += 2 * canaries * ball(exact) * _densest(guesses, right, odds, mass)
        return min(1.0, round_up(Enclosure.of(total).upper))


def _mass(guesses: int, right: int, odds: arb) -> arb:
    # P(W = right).
    choices = (
        arb(guesses + 1).lgamma() - arb(right + 1).lgamma() - arb(guesses - right + 1).lgamma()
    )
    return (choices + right * odds.log() - guesses * (1 + odds).log()).exp()


def _tail(guesses: int, right: int, odds: arb, mass: arb) -> arb:
    # P(W >= right). The ratio of successive masses decreases, so a geometric series bounds the
    # remaining masses.
    total, k = mass, right
    while k < guesses:
        ratio = odds * (guesses - k) / (k + 1)
        mass, k = mass * ratio, k + 1
        if bool(ratio < 1) and bool(mass < (1 - ratio) * total * ball(_NEGLIGIBLE)):
            return total + mass / (1 - ratio)
        total += mass
    return total


def _densest(guesses: int, right: int, odds: arb, mass: arb) -> arb:
    # max_i P(v > W >= v - i)/i, the largest mean of the i masses below v. Going down from v, the
    # masses rise to the mode and then fall, so once the next mass is below the mean, the mean never
    # rises again.
    summed = arb(0)
    for i in range(1, right + 1):
        above = right - i + 1
        mass = mass * above / (odds * (guesses - above + 1))
        if i > 1 and bool(mass * (i - 1) <= summed):
            return summed / (i - 1)
        summed += mass
    return summed / right


def largest_rejected(rejected: Callable[[float], bool], *, most: float = LARGEST) -> float:
    r"""The largest rejected parameter in [0, ``most``], by bisection; 0.0 if 0 is not rejected.

    The result is rounded down by at most ``most``/2^26. All smaller parameters must be rejected.
    """
    if not rejected(0.0):
        return 0.0
    if rejected(most):
        return most
    low, high = 0.0, most
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low


# -- a whole curve ------------------------------------------------------------------------------


class LossLine(NamedTuple):
    r"""The inequality w >= slope R + offset between the probabilities of one event.

    R is the probability of the event if the canary is included, and w its probability if the canary
    is not included. Both coefficients are rounded such that the inequality remains true for all R
    in [0, 1].
    """

    slope: float
    offset: float


def lines_of(points: Iterable[tuple[RationalLike, RationalLike]]) -> tuple[LossLine, ...]:
    r"""The linear inequalities implied by the points (epsilon, delta) of a privacy curve.

    With R and w as in :class:`LossLine`, R <= e^epsilon w + delta gives w >= e^-epsilon (R -
    delta). For the complementary event, 1 - w <= e^epsilon (1 - R) + delta gives w >= 1 - delta -
    e^epsilon (1 - R). The result is sorted by slope.
    """
    found = []
    for epsilon, delta in points:
        with precision(_BITS):
            up, d = ball(rational("epsilon", epsilon)).exp(), ball(rational("delta", delta))
            found += [_line(1 / up, -d / up), _line(up, 1 - d - up)]
    return tuple(sorted(found, key=lambda line: line.slope))


def _line(slope: arb, offset: arb) -> LossLine:
    return LossLine(*(round_down(Enclosure.of(value).lower) for value in (slope, offset)))


def curve_refuted(
    canaries: int, guesses: int, right: int, lines: tuple[LossLine, ...], alpha: float
) -> bool:
    r"""Whether it is proven that P(at least v right guesses) = ``alpha`` is impossible.

    Let m = ``canaries``, r = ``guesses`` and v = ``right``. For a mechanism that satisfies the
    linear inequalities ``lines``, let p_j be the probability of exactly j right guesses. Then, for
    each k <= v and each line with its slope and offset,

        w_{k-1} >= slope R_k + offset,
        R_k = sum_{j >= k} j p_j / m,   w_k = sum_{j >= k} (r - j) p_j / m.

    Let T be the least value of sum_j p_j under these inequalities and sum_{j >= v} p_j = alpha. If
    T > 1, this is impossible, because the p_j sum to at most 1. The inequalities are added one by
    one, for k from v downwards. Each step rounds R down and w up, which makes T smaller.

    Source: Mahloujifar, Melis and Chaudhuri 2024, "Auditing f-differential privacy in one run".
    Proof: ``docs/proofs/audit_tests.md``.
    """
    held = alpha / canaries
    inside = held * right * (1 - _ROUNDING)
    outside = held * (guesses - right) * (1 + _ROUNDING)
    total, at = alpha, 0
    for k in range(right, 0, -1):
        while at + 1 < len(lines) and _at(lines[at + 1], inside) >= _at(lines[at], inside):
            at += 1
        line = lines[at]
        value = _at(line, inside)
        error = _ROUNDING * (line.slope * inside + abs(line.offset))
        missing = value - error - outside
        if missing <= 0:
            return False  # smaller k add no requirement
        missing *= 1 - _ROUNDING
        inside = (inside + missing * (k - 1) / (guesses - k + 1)) * (1 - _ROUNDING)
        total = (total + missing * canaries / (guesses - k + 1)) * (1 - _ROUNDING)
        outside = value + error
        if total > 1:
            return True
    return False


def _at(line: LossLine, inside: float) -> float:
    return line.slope * inside + line.offset


def curve_p_value(
    canaries: int, guesses: int, right: int, lines: tuple[LossLine, ...], *, least: float = 1e-12
) -> float:
    r"""An upper bound on the probability that at least v of r guesses are right.

    Here r = ``guesses`` and v = ``right``. The bound is valid for every mechanism that satisfies
    the linear inequalities ``lines`` (:func:`lines_of`). It is found by bisection, to within a
    factor e^0.001, and is never smaller than the number ``least``.
    """
    if not right or not curve_refuted(canaries, guesses, right, lines, 1.0 - _ROUNDING):
        return 1.0
    if curve_refuted(canaries, guesses, right, lines, least):
        return least
    low, high = math.log(least), 0.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        refuted = curve_refuted(canaries, guesses, right, lines, math.exp(middle))
        low, high = (low, middle) if refuted else (middle, high)
    return min(1.0, math.exp(high) * (1 + _ROUNDING))
