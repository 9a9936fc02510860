r"""Renyi bounds of random allocation: moments of the mean of t lognormal variables.

A unit takes part in one uniformly random round of t rounds of Gaussian noise, v = sigma^2/D^2. The
density with the unit relative to that without it is W = (Y_1 + ... + Y_t)/t, Y_i = e^u_i
independent, u_i ~ Normal(-1/2v, 1/v):

    e^((a-1) D_a) = E[W^a] for (with, without) the unit, E[W^(1-a)] for the reverse direction.

Integer powers above 1 are coefficients of a power series. Powers -s come from E[e^(-mu W)]: E[W^-s]
= (1/Gamma(s)) int mu^(s-1) E[e^(-mu W)] dmu, bounded cell by cell, as the logarithm of the Laplace
transform is convex. Proofs: docs/proofs/subsampling.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Final

from flint import arb, arb_series, ctx

from accounting.pld.real_gaussian_loss import upper_tail
from dpcore.numbers.enclosure import Enclosure, End, ball, precision

MOST_ORDER: Final = 257
r"""The largest order that is computed."""

_BITS: Final = 128
_NATS: Final = 60.0
_FIRST: Final = 1e-3
_RATIO: Final = 1.03
_LAST: Final = 4.0
_CELLS: Final = 600
_STRIDE: Final = 4


@lru_cache(maxsize=4096)
def renyi_of_allocation(variance: Fraction, rounds: int, order: int) -> End:
    r"""An upper bound on D_a, a = ``order`` >= 2, over both directions.

    >>> float(renyi_of_allocation(Fraction(1), 1, 3))  # one round: a/2v
    1.5...
    >>> float(renyi_of_allocation(Fraction(1), 100, 3)) < 0.03
    True
    """
    with precision(_BITS):
        there = _rising(variance, rounds, order)
        gone = _falling(variance, rounds, order - 1)
        found = there.max(gone).log() / (order - 1)
        return Enclosure.of(found).upper


def _rising(variance: Fraction, rounds: int, power: int) -> arb:
    # E[(Y_1 + ... + Y_t)^a]/t^a: a! times the coefficient of z^a in (sum_j E[Y^j] z^j/j!)^t.
    before = ctx.cap
    ctx.cap = power + 1
    try:
        terms, factorial = [], arb(1)
        for j in range(power + 1):
            factorial *= max(j, 1)
            terms.append((ball(j * (j - 1) / (2 * variance))).exp() / factorial)
        whole = arb_series(terms, prec=power + 1) ** rounds
        return whole[power] * factorial / arb(rounds) ** power
    finally:
        ctx.cap = before


def _falling(variance: Fraction, rounds: int, power: int) -> arb:
    # An upper bound on E[W^-s]: on a cell [a, b] log E[e^(-mu W)] lies below its chord,
    # log A - beta mu. The integral beyond a cell has one bound, so the sum may stop at any cell.
    total, s, best = arb(0), arb(power), arb("inf")
    for i, ((a, at), (b, then)) in enumerate(pairwise(_transform(variance, rounds))):
        # The transform is non-increasing, so it is at most `at`.
        cell = at * (b**power - a**power) / power
        slope = ((at / then).log() / (b - a)).lower()
        if slope > 0:
            below, above = ((slope * end).gamma_upper(s) for end in (a, b))
            chord = at * (slope * a).exp() * (below - above) / slope**power
            cell = chord.upper() if chord < cell else cell.upper()
        total = (total + cell).upper()
        if i % _STRIDE == 0:
            stopped = (total + _rest(variance, rounds, power, b)).upper()
            best = min(best, stopped)
    return (best / s.gamma()).upper()


@lru_cache(maxsize=8)
def _transform(variance: Fraction, rounds: int) -> tuple[tuple[arb, arb], ...]:
    # Pairs (mu, an upper bound on E[e^(-mu W)]), for mu = 0 and a geometric sequence of mu.
    found = [(arb(0), arb(1))]
    mu = arb(_FIRST)
    nodes, error = _nodes(variance)
    for _ in range(_CELLS):
        scaled = -mu / rounds
        value = sum((weight * (scaled * growth).exp() for weight, growth in nodes), error)
        bound = (value**rounds).upper().min(found[-1][1])
        found.append((mu, bound))
        if float(mu) > _LAST * MOST_ORDER and float(bound.log()) < -_LAST * MOST_ORDER:
            break
        mu = (mu * arb(_RATIO)).mid()
    return tuple(found)


def _nodes(variance: Fraction) -> tuple[list[tuple[arb, arb]], arb]:
    # A trapezoid sum for E[f(e^u)], |f| <= 1 also near the real line, and a bound on its error.
    v = float(variance)
    angle = min(1.5, math.sqrt(2 * _NATS / v))
    step = math.tau * angle / (_NATS + angle * angle * v / 2 + 2)
    width = math.sqrt(2 * (_NATS + 8) / v)
    count = math.ceil(width / step)
    h, exact = arb(step), ball(variance)
    centre = -1 / (2 * exact)
    height = h * (exact / (2 * arb.pi())).sqrt()
    nodes = []
    for j in range(-count, count + 1):
        away = j * h
        nodes.append((height * (-exact * away * away / 2).exp(), (centre + away).exp()))
    a = arb(angle)
    aliases = 2 * (a * a * exact / 2).exp() / (2 * arb.pi() * a / h).expm1()
    # The terms beyond the last node decrease, so the integral from that node bounds them.
    tails = 2 * upper_tail(count * h * exact.sqrt())
    return nodes, (aliases + tails).upper()


def _rest(variance: Fraction, rounds: int, power: int, last: arb) -> arb:
    # E[e^(-mu W)] <= ((m t/(e mu))^m E[Y^-m])^t for any m > 0, integrated from `last` to infinity.
    v, best = ball(variance), arb("inf")
    for share in (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 8.0):
        m = arb(math.ceil(share * (power + 1) * 64 / rounds)) / 64
        excess = m * rounds - power
        if not excess > 0:
            continue
        log = m * ((m * rounds / last).log() - 1) + m * (m + 1) / (2 * v)
        found = (rounds * log).exp() * last**power / excess
        if found.is_finite() and found < best:
            best = found.upper()
    return best
