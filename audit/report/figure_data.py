r"""The data of figures: a histogram of the outputs, and a bound on the trade-off curve.

Both are computed when the test is complete, from its runs, and do not affect the verdict.

A test of dataset A against B makes a type I error if it attributes a run on A to B, and a type II
error if it attributes a run on B to A. The trade-off function f (Dong, Roth and Su 2022) maps alpha
to the least type II error of all tests with type I error alpha. Every event E is a test that
attributes outputs in E to B, so f(P_A(E)) <= P_B(not E). Events are learned from the first runs. On
later runs both errors are bounded by confidence sequences (Robbins 1970), simultaneously for all
events and numbers of runs. f is convex, so it lies below the lower convex hull of the bounds and of
(0, 1) and (1, 0).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise, product
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, xlog1py, xlogy

from audit.claims import Claim, level_upper
from audit.formats.result import computed
from audit.formats.shorten import distinct
from audit.outputs.identity import Name, display_name
from audit.outputs.output_parser import Outputs
from audit.outputs.reading import NumberLine, Reading, as_float, read, read_worlds
from audit.statistical_tests.event import Floats
from dpcore.numbers.enclosure import round_down
from dpcore.numbers.parameter import RationalLike, rational

Bools: TypeAlias = NDArray[np.bool_]

_MOST_BINS: Final = 40
_MOST_LABELS: Final = 14
_LABEL: Final = 48
_TAIL: Final = 0.001
_LARGEST: Final = float(np.finfo(np.float64).max)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    r"""A bin of a histogram, with the number of runs on each dataset whose outputs are in the bin.

    ``inside_a`` and ``inside_b`` count only the runs whose output is in the bin and in the event of
    the witness. A bin of numbers is the interval ``[low, high)``, or the number ``low`` if ``low``
    and ``high`` are equal; None means unbounded. The bin of a label, and the bin "all else", have
    no bounds. ``covered`` contains the parts of ``[low, high)`` in the event, as fractions of its
    width: (0, 0.5) is the lower half.
    """

    label: str
    count_a: int
    count_b: int
    inside_a: int = 0
    inside_b: int = 0
    low: float | None = None
    high: float | None = None
    covered: tuple[tuple[float, float], ...] = ()

    @property
    def runs(self) -> int:
        return self.count_a + self.count_b

    @property
    def is_open(self) -> bool:
        return (self.low is None) != (self.high is None)

    @computed("the fraction of the bin's runs in the event of the witness")
    def in_witness(self) -> Literal["all", "part", "none"]:
        inside = self.inside_a + self.inside_b
        if not inside:
            return "none"
        return "all" if inside == self.runs else "part"


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    r"""The numbers of runs by bin, for one pair of datasets and one feature.

    ``pair`` is the index of the pair among the audited pairs; ``feature`` is None for the outputs
    themselves. ``event`` is the event whose runs are counted in ``inside_a`` and ``inside_b`` of
    the bins. The counts of the witness are smaller, because runs that were used to choose the event
    are not counted there.
    """

    bins: tuple[Bin, ...]
    runs_a: int
    runs_b: int
    event: str | None = None
    pair: int = 0
    feature: str | None = None


def histogram(
    outputs: Outputs,
    worlds: object,
    event: str | None = None,
    inside: Bools | None = None,
    spans: Sequence[tuple[float, float]] = (),
    *,
    pair: int = 0,
    feature: str | None = None,
) -> Histogram:
    r"""Count outputs by bin, with at most about 40 bins.

    ``inside`` marks the runs in the ``event`` of the witness, and ``spans`` contains the intervals
    of numbers in the event: see :class:`audit.statistical_tests.event.Event`.

    Each number has a bin if there are few different numbers. Otherwise bins are intervals between
    round numbers; the smallest and the largest thousandth of the numbers are counted in two
    unbounded intervals. Labels have a bin each, as far as there is room: first the labels in the
    event, then the most frequent labels. All other labels are counted in the bin "all else".
    """
    reading = read(outputs)
    truth = read_worlds(worlds, len(reading))
    inside = np.zeros(len(reading), np.bool_) if inside is None else inside
    is_number = reading.codes < 0
    most = _MOST_BINS if bool(is_number.all()) else _MOST_BINS - _MOST_LABELS - 2
    bins: list[Bin] = []
    if bool(is_number.any()):
        cells = _number_cells(reading.numbers[is_number], most)
        counted = _counted(cells, truth[is_number], inside[is_number])
        bins += [
            replace(cell, covered=_covered(cell, spans))
            for cell in counted
            if cell.runs or not cell.is_open
        ]
    if not bool(is_number.all()):
        named = reading.codes[~is_number]
        room = _MOST_BINS - len(bins) if bins else 2 * _MOST_LABELS
        cells = _label_cells(
            named, reading.names, inside[~is_number], min(room, 2 * _MOST_LABELS) - 1
        )
        bins += _counted(cells, truth[~is_number], inside[~is_number])
    in_b = int(np.count_nonzero(truth))
    return Histogram(
        bins=tuple(bins),
        runs_a=len(truth) - in_b,
        runs_b=in_b,
        event=event,
        pair=pair,
        feature=feature,
    )


_Cells: TypeAlias = tuple[NDArray[np.int64], list[dict[str, Any]]]


def _counted(cells: _Cells, truth: Bools, inside: Bools) -> list[Bin]:
    place, named = cells
    flat = np.bincount(place * 4 + 2 * inside + truth, minlength=4 * len(named)).reshape(-1, 4)
    return [
        Bin(
            **keys,
            count_a=int(row[0] + row[2]),
            count_b=int(row[1] + row[3]),
            inside_a=int(row[2]),
            inside_b=int(row[3]),
        )
        for keys, row in zip(named, flat, strict=True)
    ]


def _number_cells(numbers: NumberLine, most: int) -> _Cells:
    distinct, _, place = numbers.unique()
    listed, integral = distinct.listed(), distinct.integral
    values = distinct.as_floats()
    first, span = listed[0].value, listed[-1].value - listed[0].value if integral else math.inf
    if span < most:
        # Empty cells are included, because the axis is a number line.
        offsets = np.array([int(each.value - first) for each in listed], dtype=np.int64)
        points = [_point(first + k) for k in range(int(span) + 1)]
        return offsets[place], points
    if len(values) <= most // 2:
        one_form = len({each.form for each in listed}) == 1
        return place, [_point(each.value, None if one_form else each.words) for each in listed]
    edges = _edges(values, np.bincount(place), most - 2)
    cells = np.searchsorted(edges, values, side="right").astype(np.int64)[place]
    return cells, _between_edges(edges, integral=integral)


def _edges(values: Floats, counts: NDArray[np.int64], most: int) -> Floats:
    below = np.cumsum(counts) / counts.sum()
    low = float(values[np.searchsorted(below, _TAIL)])
    high = float(values[min(int(np.searchsorted(below, 1 - _TAIL)), len(values) - 1)])
    span = high - low
    if not 0.0 < span < math.inf:
        return np.array([low, math.nextafter(low, math.inf)])  # nearly all outputs are one number
    # The smallest step of 1, 2 or 5 times a power of ten with few enough intervals.
    least = math.floor(math.log10(span)) - 2
    digit, power = next(
        (digit, power)
        for power, digit in product(range(least, least + 4), (1, 2, 5))
        if span <= (most - 2) * float(f"{digit}e{power}")
    )
    step = float(f"{digit}e{power}")
    start, end = math.floor(low / step), math.floor(high / step) + 1
    edges = [float(f"{k * digit}e{power}") for k in range(start, end + 1)]
    return np.unique(np.clip(edges, -_LARGEST, _LARGEST))  # clip to the finite floats


def _covered(cell: Bin, spans: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    # An unbounded bin has no width: only test whether all of it lies in the event.
    if cell.low == cell.high and cell.runs:
        return ((0.0, 1.0),) if cell.in_witness == "all" else ()
    low = -math.inf if cell.low is None else cell.low
    high = math.inf if cell.high is None else cell.high
    found = []
    for start, end in spans:
        if start <= low and (high <= end or low == high < end):
            return ((0.0, 1.0),)
        if low < high and -math.inf < low and high < math.inf and start < high and low < end:
            share = [(min(max(x, low), high) - low) / (high - low) for x in (start, end)]
            found.append((share[0], share[1]))
    return tuple(sorted(found))


def _between_edges(edges: Floats, *, integral: bool) -> list[dict[str, Any]]:
    first, last = float(edges[0]), float(edges[-1])
    single = last == math.nextafter(first, math.inf)
    cells: list[dict[str, Any]] = [{"label": f"< {_short(first)}", "low": None, "high": first}]
    for low, high in pairwise(edges.tolist()):
        if single or (integral and high == low + 1):
            cells.append(_point(low))
        else:
            words = f"{_short(low)} to {_short(high - 1 if integral else high)}"
            cells.append({"label": words, "low": low, "high": high})
    words = f"> {_short(first)}" if single else f">= {_short(last)}"
    return [*cells, {"label": words, "low": last, "high": None}]


def _point(value: Any, words: str | None = None) -> dict[str, Any]:
    at = as_float(value)
    return {"label": _short(value) if words is None else words, "low": at, "high": at}


def _short(number: Any) -> str:
    if not isinstance(number, float):
        return str(number)
    plain = number.is_integer() and abs(number) < 1e15 and repr(number) != "-0.0"
    return str(int(number)) if plain else f"{number:.12g}"


def _label_cells(
    codes: NDArray[np.int64], names: Sequence[str | Name], inside: Bools, most: int
) -> _Cells:
    pooled = np.bincount(codes, minlength=len(names))
    marked = np.bincount(codes[inside], minlength=len(names)) > 0
    order = sorted(range(len(names)), key=lambda i: (not marked[i], -int(pooled[i])))
    seen = [code for code in order if pooled[code]]
    kept = sorted(seen if len(seen) <= most else seen[:most], key=lambda i: -int(pooled[i]))
    place = np.full(len(names), len(kept), dtype=np.int64)
    place[kept] = np.arange(len(kept))
    texts = set(map(str, names))
    named = distinct([display_name(names[code], texts) for code in kept], _LABEL)
    cells = [{"label": label} for label in named]
    if len(kept) < len(seen):
        cells.append({"label": f"all else: {len(seen) - len(kept):,} other values"})
    return place[codes], cells


_CELLS: Final = 48
_EVENTS: Final = 16
_STEPS: Final = 60
_OUTWARDS: Final = 1e-9
_DRAWN: Final = 101

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TradeoffBand:
    r"""An upper bound on the trade-off curve, which holds with probability at least 1 - ``alpha``.

    ``points`` are the corners of the bound, pairs (type I error, type II error) from (0, 1) to (1,
    0). ``claimed`` are points of the claimed trade-off curve. ``runs`` is the number of runs from
    which the bound is computed. ``pair`` and ``feature`` are as in :class:`Histogram`.
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
    r"""Return an upper bound on the trade-off curve, or None if there are too few runs.

    The first ``learned`` >= 2 runs determine the events, and the later runs the bound. ``worlds``
    is True for runs on dataset B.
    """
    reading = read(outputs)
    truth = read_worlds(worlds, len(reading))
    if len(reading) <= learned or learned < 2:
        return None
    cells = _cells(reading, learned)
    events = _events(cells[:learned], truth[:learned])
    if not len(events):
        return None
    # Cells without any of the first runs are in no event.
    last = events.shape[1] - 1
    fresh, world = np.minimum(cells[learned:], last), truth[learned:]
    in_a, in_b = (np.bincount(fresh[world == side], minlength=last + 1) for side in (False, True))
    # Each event has two bounds.
    level = rational("alpha", alpha) / (2 * len(events))
    first = _upper(events @ in_a, int(in_a.sum()), level)
    second = _upper(~events @ in_b, int(in_b.sum()), level)
    return TradeoffBand(
        alpha=level_upper(alpha),
        points=tuple(_hull(list(zip(first.tolist(), second.tolist(), strict=True)))),
        claimed=tuple(claimed_tradeoff(claim)),
        runs=len(fresh),
    )


def _cells(reading: Reading, learned: int) -> NDArray[np.int64]:
    # The index of the cell of each run. Cells are the intervals between quantiles of the first
    # runs, and one cell per label.
    ranks = reading.numbers.unique()[2]
    is_number = reading.codes < 0
    first, ends = ranks[:learned][is_number[:learned]], np.zeros(0)
    if len(first):
        ends = np.unique(np.quantile(first, np.linspace(0, 1, _CELLS), method="inverted_cdf"))
    return np.where(is_number, np.searchsorted(ends, ranks), _CELLS + 1 + reading.codes)


def _events(cells: NDArray[np.int64], truth: Bools) -> Bools:
    # Cells in order of decreasing likelihood ratio of B; the tests are unions of the first cells,
    # one row per test. Cells without runs are in no test.
    most = int(cells.max()) + 2
    counts = [np.bincount(cells[truth == side], minlength=most) for side in (False, True)]
    seen = np.flatnonzero(counts[0] + counts[1])
    ratio = np.log((counts[1][seen] + 0.5) / (counts[0][seen] + 0.5))
    order = seen[np.argsort(-ratio, kind="stable")]
    places = np.unique(np.linspace(1, len(order), _EVENTS + 1).astype(int))[:-1]
    found = np.zeros((len(places), most), dtype=np.bool_)
    for row, place in zip(found, places, strict=True):
        row[order[:place]] = True
    return found


def _upper(hits: NDArray[np.int64], runs: int, level: Fraction) -> Floats:
    # Upper confidence bounds on p. Each bound is violated at some number of runs with probability
    # at most ``level``, because the mixture over Beta(1/2, 1/2) of likelihood ratios is a
    # martingale under p.
    high = np.ones(len(hits))
    if not runs:
        return high
    bar = -math.log(round_down(level))
    mixed = betaln(hits + 0.5, runs - hits + 0.5) - betaln(0.5, 0.5)
    low = hits / runs
    for _ in range(_STEPS):
        middle = (low + high) / 2
        above = mixed - (xlogy(hits, middle) + xlog1py(runs - hits, -middle)) >= bar
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.minimum(1.0, high + _OUTWARDS)


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
    r"""Pairs (alpha, f(alpha)) for the trade-off function f that the ``points`` of a claim imply.

    For each type I error alpha, f(alpha) is the maximum over the points (epsilon, delta) of

        max(0, 1 - delta - e^epsilon alpha, e^-epsilon (1 - delta - alpha)).
    """
    if not points:
        return []
    x = np.linspace(0.0, 1.0, _DRAWN)
    lines = [np.zeros(_DRAWN)]
    for epsilon, delta in (map(float, point.exact) for point in points):
        up = math.exp(min(epsilon, 700.0))
        lines += [1 - delta - up * x, (1 - delta - x) / up]
    return list(zip(x.tolist(), np.max(lines, axis=0).tolist(), strict=True))
