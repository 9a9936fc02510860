r"""A round as a table of cells: lower bounds on P and Q, and an enclosure of the loss log P/Q.

Masses are bounded from below only: they sum to 1, so the total missing mass bounds each of them
from above. From a table :func:`listing` computes a law of the loss on a grid, at least as large
(above) or at most as large (below) as the loss of the round. Proofs: docs/proofs/kernel.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

from accounting.kernel.convolution import Listing
from accounting.kernel.series import Fixed

Cell: TypeAlias = tuple[int, int, "int | None", "int | None"]
r"""Lower bounds on the P-mass and Q-mass, and bounds on the loss; None if it may be infinite."""


@dataclass(frozen=True)
class Pair:
    r"""Cells in order of increasing loss, the mass outside them, and the error of cell ends."""

    fixed: Fixed
    cells: list[Cell]
    p_missing: int
    q_missing: int
    slack: int


def of_masses(fixed: Fixed, masses: Iterable[tuple[int, int, bool]], least: int) -> Pair:
    r"""The pair of individual outcomes: lower bounds on P and Q, and whether Q is exactly 0.

    Outcomes of a P-mass below ``least`` are omitted.
    """
    listed = list(masses)
    p_missing = fixed.one - sum(p for p, _, _ in listed)
    q_missing = fixed.one - sum(q for _, q, _ in listed)
    cells: list[Cell] = []
    for p, q, never in listed:
        if p < least:
            continue
        if never:
            cells.append((p, 0, None, None))
            continue
        low = fixed.log((p << fixed.bits) // (q + q_missing))[0] if q + q_missing else None
        high = fixed.log(((p + p_missing << fixed.bits) // q) + 1)[1] if q else None
        cells.append((p, q, low, high))
    cells.sort(key=lambda cell: (cell[2] is None, cell[2]))
    return Pair(fixed, cells, p_missing, q_missing, fixed.one >> 72)


def combined(one: Pair, other: Pair) -> Pair:
    r"""The pair of two independent rounds: all products of cells."""
    fixed = one.fixed
    cells: list[Cell] = []
    for p, q, low, high in one.cells:
        for a, b, least, most in other.cells:
            bottom = None if low is None or least is None else low + least
            top = None if high is None or most is None else high + most
            cells.append((p * a >> fixed.bits, q * b >> fixed.bits, bottom, top))
    # (p + m)(a + n) <= p a + m + n, plus one unit for rounding.
    p_missing = one.p_missing + other.p_missing + 1
    q_missing = one.q_missing + other.q_missing + 1
    return Pair(fixed, cells, p_missing, q_missing, one.slack + other.slack)


def listing(pair: Pair, step: Fraction, start: Fraction, digits: int, *, above: bool) -> Listing:
    r"""The loss of one round on the grid start + j step, rounded up or rounded down."""
    fixed = pair.fixed
    make = _above if above else _below
    found: defaultdict[int, int] = defaultdict(int)
    infinite = 0
    for place, mass in make(pair, step, start):
        if place is None:
            infinite += mass
        else:
            found[place] += mass
    if not found:
        found[0] = 0
    first, last, unit = min(found), max(found), 10**digits
    # The remaining shift of the grid by the slack: up for above, down for below.
    shift = Fraction(pair.slack, fixed.one)
    return Listing(
        above=above,
        step=step,
        start=start + (shift if above else -shift),
        first=first,
        weights=[found[j] * unit >> fixed.bits for j in range(first, last + 1)],
        infinite=infinite * unit >> fixed.bits,
    )


def _above(pair: Pair, step: Fraction, start: Fraction) -> Iterator[tuple[int | None, int]]:
    # The P-mass of a cell is split between two grid points A <= B around its loss such that the
    # Q-mass is kept too: a share w at A, the rest at B, with w e^-A + (1 - w) e^-B = q/p.
    fixed, slack = pair.fixed, pair.slack
    one, bits = fixed.one, fixed.bits
    ratios: dict[int, tuple[int, int]] = {}
    for p, q, low, high in pair.cells:
        if low is None or high is None:
            continue
        j = _floor(low + slack, step, start, one)
        k = -_floor(slack - high, step, -start, one)
        if k <= j:
            yield j, p
            continue
        at = fixed.of(start + j * step)[0] - slack
        if k - j not in ratios:
            ratios[k - j] = fixed.exp(-(fixed.of((k - j) * step)[0] + 2 * slack))
        ratio = ratios[k - j]
        share = (q * fixed.exp(at)[0] >> bits) - ((p + pair.p_missing) * ratio[1] >> bits) - 1
        down = min(max((share << bits) // (one - ratio[0] + 1), 0), p)
        yield j, down
        yield k, p - down


def _below(pair: Pair, step: Fraction, start: Fraction) -> Iterator[tuple[int | None, int]]:
    # Cells merge from the lowest loss up until the merged loss is a grid point x: a cell whose loss
    # is below x has a deficit (want) e^x Q - P, a cell whose loss is above x an excess.
    fixed, slack = pair.fixed, pair.slack
    bits, one = fixed.bits, fixed.one

    @lru_cache(maxsize=1)
    def factor(j: int) -> int:
        return fixed.exp(fixed.of(start + j * step)[1] - slack)[1]

    place = mass = other = want = 0
    for cell in pair.cells:
        p, q, low = cell[0], cell[1] + pair.q_missing, cell[2]
        if low is None or not q:
            # There is no Q-mass: the loss is infinite.
            yield None, p
            continue
        loss = fixed.log((p << bits) // q)[0]
        while p:
            if not mass:
                place = _floor(loss + slack, step, start, one)
                if p << bits >= factor(place) * q and loss - slack <= _at(place, step, start, one):
                    yield place, p
                    break
                place += 1
                mass, other, want, p = p, q, (factor(place) * q >> bits) + 1 - p, 0
            elif (excess := p - (factor(place) * q >> bits) - 1) <= want:
                mass, other, want, p = mass + p, other + q, want - excess, 0
            else:
                part = min(-(-want * p // excess), p)
                yield place, mass + part
                mass, q, p = 0, -(-q * (p - part) // p), p - part
    if mass:
        yield _floor(fixed.log((mass << bits) // other)[0] + slack, step, start, one), mass


def _floor(loss: int, step: Fraction, start: Fraction, one: int) -> int:
    # The largest j with start + j step <= loss.
    return (
        (loss * start.denominator - start.numerator * one)
        * step.denominator
        // (start.denominator * step.numerator * one)
    )


def _at(place: int, step: Fraction, start: Fraction, one: int) -> int:
    at = start + place * step
    return -((-at.numerator * one) // at.denominator)
