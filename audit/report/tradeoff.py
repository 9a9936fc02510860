r"""A certified upper bound on the trade-off curve of a pair of datasets, from an audit's own runs.

The trade-off function f (Dong, Roth and Su 2022) gives the least type II error, "A" said of a run
on B, of any test whose type I error, "B" said of a run on A, is alpha. Every event E is a test, so
f(P_A(E)) <= P_B(not E). Events are learned from the first runs; on the runs after them both errors
are bounded by confidence sequences (Robbins 1970), all at once and at every number of runs. f is
convex, so it also lies below the hull of these points and of (0, 1) and (1, 0): everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, xlog1py, xlogy

from audit.claims.claim import Claim
from audit.claims.verdicts import level_upper
from audit.outputs.reading import Reading, read, read_worlds
from dpcore.numbers.enclosure import round_down
from dpcore.numbers.parameter import RationalLike, rational

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_CELLS: Final = 48
_EVENTS: Final = 16
_STEPS: Final = 60
_OUTWARDS: Final = 1e-9
_DRAWN: Final = 101

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TradeoffBand:
    r"""With probability at least 1 - ``alpha`` the trade-off curve lies below the drawn one.

    ``points`` are the corners of the drawn curve, (type I, type II error) from (0, 1) to (1, 0);
    ``claimed`` are points of the claimed one; ``runs`` are those that were counted. ``pair`` and
    ``feature`` say of what, as in the histogram.
    """

    alpha: float
    points: tuple[Point, ...]
    claimed: tuple[Point, ...]
    runs: int
    pair: int = 0
    feature: str | None = None


def tradeoff_band(
    outputs: object,
    worlds: object,
    *,
    learned: int,
    alpha: RationalLike = "0.05",
    claim: Sequence[Claim] = (),
) -> TradeoffBand | None:
    r"""Bound the trade-off curve from above: events from the first ``learned`` runs, fixed before.

    None if no run is left to count. ``worlds`` is True for B.
    """
    reading = read(outputs)
    truth = read_worlds(worlds, len(reading))
    if len(reading) <= learned or learned < 2:
        return None
    cells = _cells(reading, learned)
    events = _events(cells[:learned], truth[:learned])
    if not events:
        return None
    # A cell that the first runs did not reach is in no event.
    fresh, world = np.minimum(cells[learned:], len(events[0]) - 1), truth[learned:]
    sizes = [int(np.count_nonzero(world == side)) for side in (False, True)]
    # Each event has two bounds.
    level = rational("alpha", alpha) / (2 * len(events))
    points = []
    for event in events:
        inside = event[fresh]
        first = _upper(int(np.count_nonzero(inside & ~world)), sizes[0], level)
        second = _upper(int(np.count_nonzero(~inside & world)), sizes[1], level)
        points.append((first, second))
    return TradeoffBand(
        alpha=level_upper(alpha),
        points=tuple(_hull(points)),
        claimed=tuple(claimed_tradeoff(claim)),
        runs=len(fresh),
    )


def _cells(reading: Reading, learned: int) -> NDArray[np.int64]:
    # The cell of each run: numbers between quantiles of the first runs, labels by name.
    ranks = reading.numbers.unique()[2]
    is_number = reading.codes < 0
    first = ranks[:learned][is_number[:learned]]
    if len(first):
        ends = np.unique(np.quantile(first, np.linspace(0, 1, _CELLS), method="inverted_cdf"))
    else:
        ends = np.zeros(0)
    return np.where(is_number, np.searchsorted(ends, ranks), _CELLS + 1 + reading.codes)


def _events(cells: NDArray[np.int64], truth: Bools) -> list[Bools]:
    # The likeliest cells of B first: unions of them, cell by cell, are the tests. Cells that were
    # not seen are in none.
    most = int(cells.max()) + 2
    counts = [np.bincount(cells[truth == side], minlength=most) for side in (False, True)]
    seen = np.flatnonzero(counts[0] + counts[1])
    ratio = np.log((counts[1][seen] + 0.5) / (counts[0][seen] + 0.5))
    order = seen[np.argsort(-ratio, kind="stable")]
    places = np.unique(np.linspace(1, len(order), _EVENTS + 1).astype(int))[:-1]
    found = np.zeros((len(places), most), dtype=np.bool_)
    for row, place in zip(found, places, strict=True):
        row[order[:place]] = True
    return list(found)


def _upper(hits: int, runs: int, level: Fraction) -> float:
    # Above p at every number of runs at once, but with probability ``level``: where the mixture
    # over Beta(1/2, 1/2) of likelihoods, a martingale under p, is below 1/level.
    if not runs:
        return 1.0
    bar = -math.log(round_down(level))
    mixed = float(betaln(hits + 0.5, runs - hits + 0.5) - betaln(0.5, 0.5))
    low, high = hits / runs, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        wealth = mixed - float(xlogy(hits, middle) + xlog1py(runs - hits, -middle))
        low, high = (low, middle) if wealth >= bar else (middle, high)
    return min(1.0, high + _OUTWARDS)


def _hull(points: Sequence[Point]) -> list[Point]:
    # The lower convex hull of the points with (0, 1) and (1, 0).
    found: list[Point] = []
    for x, y in sorted([(0.0, 1.0), *points, (1.0, 0.0)]):
        if found and x == found[-1][0]:
            continue
        while len(found) > 1:
            (x0, y0), (x1, y1) = found[-2:]
            if (x1 - x0) * (y - y0) > (y1 - y0) * (x - x0):
                break
            found.pop()
        found.append((x, y))
    return found


def claimed_tradeoff(points: Sequence[Claim]) -> list[Point]:
    r"""Points of the largest trade-off function that all (epsilon, delta) of a claim promise.

    f(alpha) = max(0, 1 - delta - e^epsilon alpha, e^-epsilon (1 - delta - alpha)).

    >>> claimed_tradeoff([Claim(epsilon=0)])[:2]
    [(0.0, 1.0), (0.01, 0.99)]
    """
    if not points:
        return []
    found = []
    for x in np.linspace(0.0, 1.0, _DRAWN).tolist():
        lines = [0.0]
        for epsilon, delta in (map(float, point.exact) for point in points):
            up = math.exp(min(epsilon, 700.0))
            lines += [1 - delta - up * x, (1 - delta - x) / up]
        found.append((x, max(lines)))
    return found
