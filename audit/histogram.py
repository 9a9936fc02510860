r"""How the outputs fell in both worlds: integer counts by cell, for a picture.

Data only, read off the runs after they were tested; it decides nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise, product
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from audit.event import Floats, Reading, are_integers, read, read_worlds
from audit.labels import distinct
from audit.outputs import Outputs
from dpcore.errors import InvalidParameter

__all__ = ["Bin", "Histogram", "histogram", "in_event"]

Bools: TypeAlias = NDArray[np.bool_]

_MOST_BINS: Final = 40
_MOST_LABELS: Final = 14
_LABEL: Final = 48
_TAIL: Final = 0.001

_NUMBER: Final = r"-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf)"
_INTERVAL: Final = re.compile(
    rf"(?:(?P<low>{_NUMBER}) (?P<above><=?) )?output(?: (?P<side>[<>]=?) (?P<end>{_NUMBER}))"
    r"(?: or |$)"
)
_VALUE: Final = re.compile(_NUMBER)
_SET: Final = "output in {"


def in_event(event: str, outputs: Outputs) -> Bools:
    r"""Which outputs lie in the event of a witness, read back from its words; one a run.

    >>> in_event("output <= -1 or output in {3, 'x'}", [-2, 0, 3, "x", "y"]).tolist()
    [True, False, True, True, False]

    Raises :class:`InvalidParameter` for words that no witness has.
    """
    return _inside(event, read(outputs))


def _inside(event: str, reading: Reading) -> Bools:
    numbers, is_number = reading.numbers, reading.codes < 0
    found = np.zeros(len(reading), dtype=np.bool_)
    rest = event
    while rest and not rest.startswith(_SET):
        match = _INTERVAL.match(rest)
        if match is None:
            raise InvalidParameter("event", event, "is not worded as a witness is")
        found |= is_number & _between(match, numbers)
        rest = rest[match.end() :]
    if rest:
        names: dict[str, list[int]] = {}
        for code, name in enumerate(reading.names):
            names.setdefault(repr(name), []).append(code)
        for token in _tokens(rest.removeprefix(_SET).removesuffix("}"), names):
            if token in names:
                found |= np.isin(reading.codes, names[token])
            else:
                found |= is_number & (numbers == float(token))
    return found


def _spans(event: str, reading: Reading, *, whole: bool) -> list[tuple[float, float]]:
    # The intervals of the event, for a picture: of whole numbers up to the next one.
    spans = []
    names = {repr(name): () for name in reading.names}
    intervals, _, values = event.partition(_SET)
    for match in _INTERVAL.finditer(intervals):
        ends = [(match["side"], float(match["end"]))]
        if match["low"] is not None:
            ends.append(({"<": ">", "<=": ">="}[match["above"]], float(match["low"])))
        low, high = -math.inf, math.inf
        for sign, end in ends:
            behind = end + (whole and sign in {">", "<="})
            low, high = (behind, high) if sign[0] == ">" else (low, behind)
        spans.append((low, high))
    numbers = [float(t) for t in _tokens(values.removesuffix("}"), names) if t not in names]
    return [*spans, *((number, number + whole) for number in numbers)]


def _covered(cell: Bin, spans: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    # Of an open bin only whether it lies in the event: how far it reaches is not said.
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


def _between(match: re.Match[str], numbers: Floats) -> Bools:
    inside = _compared(numbers, match["side"], float(match["end"]))
    if match["low"] is not None:
        above = {"<": ">", "<=": ">="}[match["above"]]
        inside = inside & _compared(numbers, above, float(match["low"]))
    return inside


def _compared(numbers: Floats, sign: str, end: float) -> Bools:
    compare = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}[sign]
    return np.asarray(compare(numbers, end), dtype=np.bool_)


def _tokens(text: str, names: Mapping[str, object]) -> Iterator[str]:
    # "a, b, c", where the words of a label may hold a comma: the longest known label first.
    start = 0
    while start < len(text):
        ends = [m.start() for m in re.finditer(", ", text) if m.start() > start] + [len(text)]
        known = [end for end in ends if text[start:end] in names]
        end = max(known, default=ends[0])
        if known or _VALUE.fullmatch(text[start:end]):
            yield text[start:end]
        start = end + len(", ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    r"""A cell of a histogram: the runs of each world in it, and how many of them the witness holds.

    A bin of numbers is ``[low, high)``, or the number ``low`` where both are equal; None is an
    open end. A label, and "all else", has neither. ``covered`` are the stretches of ``[low, high)``
    that lie in the event, as shares of it: (0, 0.5) is the lower half.
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
        r"""Runs in the bin, both worlds together."""
        return self.count_a + self.count_b

    @property
    def is_open(self) -> bool:
        r"""Whether it holds all numbers beyond an end."""
        return (self.low is None) != (self.high is None)

    @property
    def in_witness(self) -> Literal["all", "part", "none"]:
        r"""How much of what fell in the bin lies in the event of the witness."""
        inside = self.inside_a + self.inside_b
        if not inside:
            return "none"
        return "all" if inside == self.runs else "part"


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    r"""All runs of one pair, read through one feature, by cell; the counts sum to the runs.

    ``pair`` is the place of the pair in the audit's list, ``feature`` None for the outputs
    themselves. ``event`` is what ``inside_a`` and ``inside_b`` of the bins count. The witness's own
    counts are smaller: it is scored only on runs that had no part in choosing it.
    """

    bins: tuple[Bin, ...]
    runs_a: int
    runs_b: int
    event: str | None = None
    pair: int = 0
    feature: str | None = None

    def to_json(self) -> dict[str, Any]:
        r"""The fields by name, each bin with ``in_witness``: "all", "part" or "none"."""
        bins = [{**asdict(cell), "in_witness": cell.in_witness} for cell in self.bins]
        return {**asdict(self), "bins": bins}

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> Histogram:
        r"""Back from :meth:`to_json`."""
        bins = [dict(cell) for cell in document["bins"]]
        for cell in bins:
            cell.pop("in_witness", None)
            cell["covered"] = tuple((low, high) for low, high in cell.get("covered", ()))
        return cls(**{**document, "bins": tuple(Bin(**cell) for cell in bins)})


def histogram(
    outputs: Outputs,
    worlds: object,
    event: str | None = None,
    *,
    pair: int = 0,
    feature: str | None = None,
) -> Histogram:
    r"""Count outputs by cell: at most about 40, integers one each where there are few.

    Other numbers fall into intervals between round numbers, what lies beyond all but one in a
    thousand in two open ones. Labels stand by name: those of the event, then the most frequent,
    and "all else".

    >>> found = histogram([0, 2, 2, "stop"], np.array([False, False, True, True]), "output >= 1")
    >>> [(cell.label, cell.count_a, cell.count_b, cell.in_witness) for cell in found.bins]
    [('0', 1, 0, 'none'), ('1', 0, 0, 'none'), ('2', 1, 1, 'all'), ("'stop'", 0, 1, 'none')]
    """
    reading = read(outputs)
    truth = read_worlds(worlds, len(reading))
    inside = np.zeros(len(reading), np.bool_) if event is None else _inside(event, reading)
    is_number = reading.codes < 0
    most = _MOST_BINS if bool(is_number.all()) else _MOST_BINS - _MOST_LABELS - 2
    bins: list[Bin] = []
    if bool(is_number.any()):
        cells = _number_cells(reading.numbers[is_number], most)
        counted = _counted(cells, truth[is_number], inside[is_number])
        counted = [cell for cell in counted if cell.runs or not cell.is_open]
        if event is not None:
            whole = are_integers(reading.numbers[is_number])
            spans = _spans(event, reading, whole=whole)
            counted = [replace(cell, covered=_covered(cell, spans)) for cell in counted]
        bins += counted
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
    place, shown = cells
    flat = np.bincount(place * 4 + 2 * inside + truth, minlength=4 * len(shown)).reshape(-1, 4)
    return [
        Bin(
            **keys,
            count_a=int(row[0] + row[2]),
            count_b=int(row[1] + row[3]),
            inside_a=int(row[2]),
            inside_b=int(row[3]),
        )
        for keys, row in zip(shown, flat, strict=True)
    ]


def _number_cells(numbers: Floats, most: int) -> _Cells:
    values, place = np.unique(numbers, return_inverse=True)
    first, last = float(values[0]), float(values[-1])
    if are_integers(values) and last - first < most:
        # The empty ones between them, too: the axis is a line.
        span = [first + k for k in range(int(last - first) + 1)]
        return (numbers - first).astype(np.int64), [_point(value) for value in span]
    if len(values) <= most // 2:
        return place.astype(np.int64), [_point(float(value)) for value in values]
    edges = _edges(values, np.bincount(place), most - 2)
    cells = np.searchsorted(edges, numbers, side="right").astype(np.int64)
    return cells, _between_edges(edges, integral=are_integers(values))


def _edges(values: Floats, counts: NDArray[np.int64], most: int) -> Floats:
    below = np.cumsum(counts) / counts.sum()
    low = float(values[np.searchsorted(below, _TAIL)])
    high = float(values[min(int(np.searchsorted(below, 1 - _TAIL)), len(values) - 1)])
    span = high - low
    if not 0.0 < span < math.inf:
        return np.array([low, math.nextafter(low, math.inf)])  # one number is nearly all
    # The smallest step of 1, 2 or 5 times a power of ten with few enough intervals.
    least = math.floor(math.log10(span)) - 2
    digit, power = next(
        (digit, power)
        for power, digit in product(range(least, least + 4), (1, 2, 5))
        if span <= (most - 2) * float(f"{digit}e{power}")
    )
    step = float(f"{digit}e{power}")
    start, end = math.floor(low / step), math.floor(high / step) + 1
    return np.unique([float(f"{k * digit}e{power}") for k in range(start, end + 1)])


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


def _point(value: float) -> dict[str, Any]:
    return {"label": _short(value), "low": value, "high": value}


def _short(number: float) -> str:
    number += 0.0  # not "-0"
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else f"{number:.12g}"


def _label_cells(
    codes: NDArray[np.int64], names: tuple[Hashable, ...], inside: Bools, most: int
) -> _Cells:
    pooled = np.bincount(codes, minlength=len(names))
    marked = np.bincount(codes[inside], minlength=len(names)) > 0
    order = sorted(range(len(names)), key=lambda i: (not marked[i], -int(pooled[i])))
    seen = [code for code in order if pooled[code]]
    kept = sorted(seen if len(seen) <= most else seen[:most], key=lambda i: -int(pooled[i]))
    place = np.full(len(names), len(kept), dtype=np.int64)
    place[kept] = np.arange(len(kept))
    named = distinct([repr(names[code]) for code in kept], lambda text: len(text) <= _LABEL)
    shown: list[dict[str, Any]] = [{"label": label} for label in named]
    if len(kept) < len(seen):
        shown.append({"label": f"all else: {len(seen) - len(kept):,} other values"})
    return place[codes], shown
