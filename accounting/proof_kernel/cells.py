r"""A round divided into cells, with bounds in integers on their masses and losses.

P and Q are the output laws of the round on two neighbouring datasets. A cell is a set of outcomes.
For each cell there are lower bounds on its P-mass and its Q-mass, and lower and upper bounds on the
loss log(P/Q). Upper bounds on the masses are not needed because all masses sum to 1, so that each
mass exceeds its lower bound by at most the total missing mass. :func:`listing` computes from the
cells a discretised loss on a grid, a bound on the loss of the round from above or from below.
Proofs: docs/proofs/kernel.md.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from typing import Final, TypeAlias

from accounting.proof_kernel.convolution import Listing
from accounting.proof_kernel.series import Fixed

_MOST_POINTS: Final = 1 << 22

Cell: TypeAlias = tuple[int, int, "int | None", "int | None"]
r"""Lower bounds on the P-mass and Q-mass, and two bounds on the loss; None if there is no bound."""


@dataclass(frozen=True)
class Pair:
    r"""The pair (P, Q) of a round as a list of cells, with masses in fixed-point integers.

    ``infinite`` is a lower bound on the P-mass of outcomes impossible under Q. The P-mass and the
    Q-mass of a cell exceed the lower bounds that its :data:`Cell` states by at most ``p_missing``
    and ``q_missing``. A loss within ``slack`` of a grid point counts as this grid point.
    """

    fixed: Fixed
    cells: list[Cell]
    infinite: int
    p_missing: int
    q_missing: int
    slack: int


def of_cells(
    fixed: Fixed, cells: Sequence[Cell], infinite: int = 0, *, least: int = 1, slack: int = 72
) -> Pair:
    r"""The pair with all ``cells`` of P-mass at least ``least``, and the slack 2^-``slack``."""
    p_missing = fixed.one - infinite - sum(cell[0] for cell in cells)
    q_missing = fixed.one - sum(cell[1] for cell in cells)
    kept = [cell for cell in cells if cell[0] >= least]
    return Pair(fixed, kept, infinite, p_missing, q_missing, fixed.one >> slack)


def of_masses(fixed: Fixed, masses: Sequence[tuple[int, int, bool]], least: int) -> Pair:
    r"""The pair with one cell for each outcome of P-mass at least ``least``.

    ``masses`` has lower bounds on the P- and Q-mass of each outcome, and whether its Q-mass is 0.
    """
    p_missing, q_missing = (fixed.one - sum(each[i] for each in masses) for i in (0, 1))
    cells, infinite = list[Cell](), 0
    for p, q, never in masses:
        low = high = None
        if never or not q + q_missing:
            infinite += p
            continue
        if p >= least:
            low = fixed.log((p << fixed.bits) // (q + q_missing))[0]
            high = fixed.log(((p + p_missing << fixed.bits) // q) + 1)[1] if q else None
        cells.append((p, q, low, high))
    return of_cells(fixed, cells, infinite, least=least)


def combined(one: Pair, other: Pair) -> Pair:
    r"""The pair of two independent rounds, whose cells are all products of a cell of each round."""
    bits, cells = one.fixed.bits, list[Cell]()
    for p, q, low, high in one.cells:
        for a, b, least, most in other.cells:
            bottom = None if low is None or least is None else low + least
            top = None if high is None or most is None else high + most
            cells.append((p * a >> bits, q * b >> bits, bottom, top))
    infinite = one.infinite + other.infinite - (one.infinite * other.infinite >> bits) - 1
    # (p + m)(a + n) <= p a + m + n, plus one unit for rounding.
    p_missing = one.p_missing + other.p_missing + 1
    q_missing = one.q_missing + other.q_missing + 1
    return Pair(one.fixed, cells, max(infinite, 0), p_missing, q_missing, one.slack)


def listing(pair: Pair, step: Fraction, start: Fraction, digits: int, *, above: bool) -> Listing:
    r"""The loss of one round discretised on the grid of the points ``start`` + j ``step``.

    If ``above`` is true, the discretised loss dominates the loss of the round; otherwise the loss
    of the round dominates the discretised loss.

    Raises OverflowError if more than 2^22 grid points are needed.
    """
    fixed, unit, found = pair.fixed, 10**digits, defaultdict[int, int](int)
    for place, mass in (_above if above else _below)(pair, step, start):
        found[place] += mass
    first, last = (min(found), max(found)) if found else (0, 0)
    if last - first >= _MOST_POINTS:
        raise OverflowError(
            f"{last - first + 1} grid points at step {step} exceed the limit of 2^22"
        )
    # The grid is shifted by the slack: up for above, down for below.
    slack = Fraction(pair.slack if above else -pair.slack, fixed.one)
    return Listing(
        above=above,
        step=step,
        start=start + slack,
        first=first,
        weights=[found[j] * unit >> fixed.bits for j in range(first, last + 1)],
        infinite=pair.infinite * unit >> fixed.bits,
    )


def _above(pair: Pair, step: Fraction, start: Fraction) -> Iterator[tuple[int, int]]:
    # The P-mass of a cell is split between two grid points A <= B around its loss so that the
    # Q-mass is unchanged: a share w at A, the rest at B, with w e^-A + (1 - w) e^-B = q/p.
    fixed, slack = pair.fixed, pair.slack

    @cache
    def ratio(gap: int) -> tuple[int, int]:
        return fixed.exp(-(fixed.of(gap * step)[0] + 2 * slack))

    for p, q, low, high in pair.cells:
        if low is None or high is None:
            continue
        j, k = _around(low + slack, high - slack, step, start, fixed)
        if k <= j:
            yield j, p
            continue
        at = fixed.exp(fixed.of(start + j * step)[0] - slack)[0]
        share = (q * at - (p + pair.p_missing) * ratio(k - j)[1] >> fixed.bits) - 1
        down = min(max((share << fixed.bits) // (fixed.one - ratio(k - j)[0] + 1), 0), p)
        yield j, down
        yield k, p - down


def _below(pair: Pair, step: Fraction, start: Fraction) -> Iterator[tuple[int, int]]:
    # Cells with losses log p/q, where q is an upper bound, are merged in increasing order at grid
    # points x: a cell with a loss below x has a deficit e^x q - p, which `want` adds up; a cell
    # with a loss above x has an excess.
    fixed, slack = pair.fixed, pair.slack

    @lru_cache(maxsize=1)
    def power(j: int) -> int:
        return fixed.exp(fixed.of(start + j * step)[1] - slack)[1]

    mass = want = place = 0
    both = ((cell[0], cell[1] + pair.q_missing) for cell in pair.cells)
    for loss, p, q in sorted((fixed.log((p << fixed.bits) // q)[0], p, q) for p, q in both):
        rest = p
        if mass:
            excess = p - (power(place) * q >> fixed.bits) - 1
            if excess <= want:
                mass, want = mass + p, want - excess
                continue
            part = min(-(-want * p // excess), p)
            yield place, mass + part
            rest, mass = p - part, 0
        j, k = _around(loss + slack, loss - slack, step, start, fixed)
        if k <= j:
            yield j, rest
        elif rest:
            place, mass, want = j + 1, rest, (power(j + 1) * -(-q * rest // p) >> fixed.bits) + 1
            want -= rest
    if mass:
        # A remainder moves down to the grid point below its loss, log P/Q = x - log(1 + want/P),
        # but not below the lowest loss of its cells.
        low = fixed.log((mass << fixed.bits) // (mass + want))[0]
        yield place + max(low // fixed.of(step)[1], -1), mass


def _around(low: int, high: int, step: Fraction, start: Fraction, fixed: Fixed) -> tuple[int, int]:
    # The last grid point at or below ``low``, and the first grid point at or above ``high``.
    shift, scale = start * fixed.one, step * fixed.one
    return math.floor((low - shift) / scale), math.ceil((high - shift) / scale)
