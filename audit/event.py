r"""Outputs as cells: what a rule can be learned on, and how a person reads it back.

An output is a finite *number* or a *label* (anything else: a string, a tuple, None, a row of an
array; nan, inf and -inf are labels too, so each is a cell of its own). Numbers fall into intervals,
labels are told apart by value. Intervals and the known labels are learned from the runs a
:class:`Tally` has seen and from nothing else, so a rule built on them is fixed before the runs it
is tested on (``docs/proofs/confidence.md``).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import InvalidParameter

__all__ = [
    "Cells",
    "Floats",
    "Integers",
    "Reading",
    "Tally",
    "Witness",
    "read",
    "read_worlds",
    "wording",
]

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

_MOST_INTERVALS: Final = 2048
_NUMBER_TYPES: Final = frozenset({int, float})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    r"""Outputs in run order: ``numbers[i]`` when ``codes[i] < 0``, else label ``names[codes[i]]``.

    >>> reading = read([1, 2.5, None, math.inf])
    >>> reading.codes.tolist(), reading.names
    ([-1, -1, 0, 1], (None, inf))
    """

    numbers: Floats
    codes: Integers
    names: tuple[Hashable, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, part: slice) -> Reading:
        return Reading(numbers=self.numbers[part], codes=self.codes[part], names=self.names)


def read(outputs: object) -> Reading:
    r"""Read ``n`` outputs: an array (first axis the runs) or a sequence of anything.

    Each output is read by itself, never by its neighbours. Integers beyond 2^53 are read to 53
    bits; rows of a matrix, bools, strings and objects are labels (an unhashable object by its
    elements, else by its repr). Raises :class:`InvalidParameter` for what has no first axis.

    >>> read(np.array([[1, 2], [1, 2], [3, 4]])).names
    ((1, 2), (3, 4))
    """
    if isinstance(outputs, np.ndarray):
        if outputs.ndim == 0:
            raise InvalidParameter("outputs", outputs, "must hold one output a run")
        if outputs.ndim > 1 and outputs.shape[1:] == (1,) * (outputs.ndim - 1):
            outputs = outputs.reshape(len(outputs))
        if outputs.ndim == 1 and outputs.dtype.kind in "iuf":
            return _read_numbers(outputs)
        if outputs.ndim == 1 and outputs.dtype.kind == "b":
            codes = outputs.astype(np.int64)
            return Reading(numbers=np.zeros(len(codes)), codes=codes, names=(False, True))
        return _read_objects(outputs.tolist())
    if isinstance(outputs, (str, bytes)) or not isinstance(outputs, Sequence):
        raise InvalidParameter("outputs", outputs, "must be an array or a list, one output a run")
    return _read_objects(outputs)


def _read_numbers(array: NDArray[Any]) -> Reading:
    numbers = array.astype(np.float64)
    codes = np.full(len(numbers), -1, dtype=np.int64)
    if array.dtype.kind == "f":
        codes[np.isnan(numbers)] = 0
        codes[numbers == np.inf] = 1
        codes[numbers == -np.inf] = 2
    return Reading(numbers=numbers, codes=codes, names=(math.nan, math.inf, -math.inf))


def _read_objects(outputs: Sequence[object]) -> Reading:
    if set(map(type, outputs)) <= _NUMBER_TYPES:
        try:
            return _read_numbers(np.array(outputs, dtype=np.float64))
        except OverflowError:  # an integer beyond the floats: read one by one, it is a label
            pass
    numbers = np.zeros(len(outputs))
    codes = np.full(len(outputs), -1, dtype=np.int64)
    known: dict[Hashable, int] = {}
    for i, output in enumerate(outputs):
        number = _number(output)
        if number is None:
            codes[i] = known.setdefault(_label(output), len(known))
        else:
            numbers[i] = number
    return Reading(numbers=numbers, codes=codes, names=tuple(known))


def _number(output: object) -> float | None:
    if isinstance(output, bool) or not isinstance(output, (int, float, np.integer, np.floating)):
        return None
    try:
        number = float(output)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _label(value: object) -> Hashable:
    match value:
        case float() if math.isnan(value):
            return math.nan  # one object: nan is not equal to itself, only identical
        case list() | tuple():
            return tuple(_label(item) for item in value)
        case dict():
            return tuple((_label(key), _label(item)) for key, item in value.items())
        case set():
            return frozenset(value)
        case np.ndarray() | np.generic():
            return _label(value.tolist())
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def read_worlds(worlds: object, runs: int) -> NDArray[np.bool_]:
    r"""The worlds in run order, True for world B; refused unless one truth value a run.

    >>> read_worlds([False, True], 2).tolist()
    [False, True]
    """
    array = np.asarray(worlds)
    if array.ndim != 1 or (array.dtype != np.bool_ and array.size):
        raise InvalidParameter("worlds", worlds, "must be truth values: True for world B")
    if len(array) != runs:
        raise InvalidParameter("worlds", len(array), f"must have one entry a run: {runs}")
    return array.astype(np.bool_)


def are_integers(numbers: Floats) -> bool:
    r"""Whether every number is one.

    >>> are_integers(np.array([1.0, -3.0])), are_integers(np.array([0.5]))
    (True, False)
    """
    return bool((numbers == np.rint(numbers)).all())


def _counts(codes: Integers, worlds: NDArray[np.bool_], cells: int) -> Integers:
    # Row 0 counts world A, row 1 world B. One pass, integers throughout.
    flat = np.bincount(codes + cells * worlds, minlength=2 * cells)
    return flat.reshape(2, cells).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    r"""How often each output came up in each world, over all runs seen so far.

    ``numbers`` are the distinct numbers in order with ``number_counts`` of shape (2, distinct);
    ``labels`` gives the column of each label in ``label_counts``. Row 0 is world A, row 1 world B.

    >>> tally = Tally.empty().add(read([3, 3, "stop"]), np.array([False, True, True]))
    >>> tally.number_counts.tolist(), tally.label_counts.tolist()
    ([[1], [1]], [[0], [1]])
    """

    numbers: Floats
    number_counts: Integers
    labels: dict[Hashable, int]
    label_counts: Integers

    @classmethod
    def empty(cls) -> Tally:
        r"""No runs yet."""
        none = np.zeros((2, 0), dtype=np.int64)
        return cls(numbers=np.zeros(0), number_counts=none, labels={}, label_counts=none)

    @property
    def runs(self) -> int:
        r"""The number of runs seen, both worlds together."""
        return int(self.number_counts.sum() + self.label_counts.sum())

    @property
    def crowd(self) -> int:
        r"""How often a number must have come to be sure of its own cell; 1 while each has one."""
        runs = int(self.number_counts.sum())
        most = min(_MOST_INTERVALS, 8 + math.isqrt(16 * runs))
        return 1 if len(self.numbers) <= most else -(-runs // most)

    def add(self, reading: Reading, worlds: NDArray[np.bool_]) -> Tally:
        r"""This tally and the runs of ``reading``."""
        is_number = reading.codes < 0
        fresh, index = np.unique(reading.numbers[is_number], return_inverse=True)
        fresh_counts = _counts(index, worlds[is_number], len(fresh))
        numbers, index = np.unique(np.concatenate((self.numbers, fresh)), return_inverse=True)
        counts = np.zeros((2, len(numbers)), dtype=np.int64)
        counts[:, index[: len(self.numbers)]] += self.number_counts
        counts[:, index[len(self.numbers) :]] += fresh_counts

        named = _counts(reading.codes[~is_number], worlds[~is_number], len(reading.names))
        labels = dict(self.labels)
        seen = np.flatnonzero(named.sum(axis=0))
        column = [labels.setdefault(reading.names[code], len(labels)) for code in seen]
        label_counts = np.zeros((2, len(labels)), dtype=np.int64)
        label_counts[:, : len(self.labels)] += self.label_counts
        label_counts[:, column] += named[:, seen]
        return Tally(
            numbers=numbers, number_counts=counts, labels=labels, label_counts=label_counts
        )

    def cells(self) -> Cells:
        r"""The cells these runs teach, with their counts.

        At most about 4 sqrt(runs) intervals: every number alone while so few are distinct, else
        intervals of equal pooled count with each heavy number alone. A number never seen falls in
        the interval around it, a label never seen in a cell whose counts are those of the labels
        seen once (Good and Turing: they tell how new labels are spread over the worlds).
        """
        cuts, after, repeated = self._cuts()
        intervals = np.searchsorted(cuts, self.numbers, side="right")
        counts = np.zeros((2, len(cuts) + 1 + len(self.labels) + 1), dtype=np.int64)
        for world in (0, 1):
            counts[world, : len(cuts) + 1] = np.bincount(
                intervals, weights=self.number_counts[world], minlength=len(cuts) + 1
            )
        counts[:, len(cuts) + 1 : -1] = self.label_counts
        once = self.label_counts.sum(axis=0) == 1
        counts[:, -1] = self.label_counts[:, once].sum(axis=1)
        alone = np.zeros(len(cuts) + 1, dtype=np.bool_)
        alone[intervals[repeated]] = True
        return Cells(
            cuts=cuts,
            after=after,
            alone=alone,
            labels=self.labels,
            counts=counts,
            integral=are_integers(self.numbers),
        )

    def _cuts(self) -> tuple[Floats, NDArray[np.bool_], NDArray[np.bool_]]:
        pooled = self.number_counts.sum(axis=0)
        runs, share = int(pooled.sum()), self.crowd
        if share == 1:
            cuts, none = self.numbers[1:], np.zeros(len(pooled), dtype=np.bool_)
            return cuts, none[1:], none
        # Equal counts by the rank of a number's middle run; a number is heavy when it fills a cell
        # or is repeated far beyond the others (in continuous noise that is a finding by itself).
        cumulative = np.cumsum(pooled)
        rank = (2 * cumulative - pooled) // (2 * share)
        mean = runs / len(pooled)
        repeated = pooled >= min(3 + 10 * (mean - 1), 4 + 4 * mean)
        heavy = (pooled >= share) | repeated
        starts = np.flatnonzero(np.diff(rank) | heavy[1:]) + 1
        before = self.numbers[starts]
        behind = np.nextafter(self.numbers[heavy & (cumulative < runs)], math.inf)
        if are_integers(self.numbers):  # nothing lies between them
            behind = np.where(np.abs(behind) > 2.0**53, behind, np.floor(behind) + 1.0)
        cuts, first = np.unique(np.concatenate((before, behind)), return_index=True)
        return cuts, first >= len(before), repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    r"""A partition of all outputs: intervals ``[cuts[i-1], cuts[i])``, known labels, other labels.

    ``counts`` (2, cells) are the runs it was learned from; ``alone`` marks the intervals made of
    one number repeated far beyond its neighbours. Only the wording of an event needs ``after[i]``,
    that cut ``i`` lies just behind a heavy number, and ``integral``, that all numbers are integers.

    >>> cells = Tally.empty().add(read([0, 1, 1, 2]), np.array([False, True, True, True])).cells()
    >>> cells.locate(read([-5, 1, 9, "new"])).tolist()
    [0, 1, 2, 3]
    """

    cuts: Floats
    after: NDArray[np.bool_]
    alone: NDArray[np.bool_]
    labels: dict[Hashable, int]
    counts: Integers
    integral: bool

    @property
    def intervals(self) -> int:
        r"""How many of the cells are intervals; they come first, in order."""
        return len(self.cuts) + 1

    def locate(self, reading: Reading) -> Integers:
        r"""The cell of each output."""
        other = self.counts.shape[1] - 1
        cells = np.searchsorted(self.cuts, reading.numbers, side="right").astype(np.int64)
        if bool((reading.codes >= 0).any()):
            named = [
                other if (column := self.labels.get(name)) is None else self.intervals + column
                for name in reading.names
            ]
            cells = np.where(reading.codes < 0, cells, np.array(named)[reading.codes])
        return cells

    def count(self, reading: Reading, worlds: NDArray[np.bool_]) -> Integers:
        r"""Runs in each cell, shape (2, cells), row 0 world A."""
        return _counts(self.locate(reading), worlds, self.counts.shape[1])

    def pieces(self, chosen: NDArray[np.bool_], *, integral: bool) -> list[tuple[str, slice]]:
        r"""The chosen cells as wordings, one a stretch of intervals or a label, in order.

        A wording in braces is a single value. ``integral`` words intervals for outputs whose
        numbers are integers. The cell of unknown labels has no wording and is left out.
        """
        edges = np.flatnonzero(np.diff(chosen[: self.intervals], prepend=False, append=False))
        stretches = [slice(int(i), int(j)) for i, j in edges.reshape(-1, 2)]
        found = [(self._words(stretch, integral=integral), stretch) for stretch in stretches]
        for name, column in self.labels.items():
            cell = self.intervals + column
            if chosen[cell]:
                found.append((f"{{{name!r}}}", slice(cell, cell + 1)))
        return found

    def _words(self, stretch: slice, *, integral: bool) -> str:
        low = float(self.cuts[stretch.start - 1]) if stretch.start else -math.inf
        high = float(self.cuts[stretch.stop - 1]) if stretch.stop < self.intervals else math.inf
        above, below = ">=", "<"
        if integral and not 2.0**53 < abs(high) < math.inf:
            high, below = high - 1, "<="
        else:
            if stretch.start and self.after[stretch.start - 1]:
                low, above = math.nextafter(low, -math.inf), ">"
            if stretch.stop < self.intervals and self.after[stretch.stop - 1]:
                high, below = math.nextafter(high, -math.inf), "<="
        if low == high:
            return f"{{{_shown(low)}}}"
        if low == -math.inf:
            return "-inf < output < inf" if high == math.inf else f"output {below} {_shown(high)}"
        if high == math.inf:
            return f"output {above} {_shown(low)}"
        return f"{_shown(low)} {'<' if above == '>' else '<='} output {below} {_shown(high)}"


def _shown(number: float) -> str:
    return str(int(number)) if number == math.floor(number) and abs(number) < 1e15 else repr(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    r"""An event that separates the worlds, fixed before the runs it was counted on.

    ``inside_a`` of ``runs_a`` runs in world A and ``inside_b`` of ``runs_b`` in world B gave an
    output in ``event``; ``world`` is the one it points to. Integers, so nothing is rebuilt from a
    rate. The ratio of the two shares is no bound: the bound is ``epsilon_lower``.

    >>> print(
    ...     Witness(event="output <= -1", world="A", inside_a=41, runs_a=100, inside_b=3, runs_b=97)
    ... )
    output <= -1: 41 of 100 runs in world A, 3 of 97 in world B (points to A)
    """

    event: str
    world: Literal["A", "B"]
    inside_a: int
    runs_a: int
    inside_b: int
    runs_b: int

    def __str__(self) -> str:
        return (
            f"{self.event}: {self.inside_a} of {self.runs_a} runs in world A, "
            f"{self.inside_b} of {self.runs_b} in world B (points to {self.world})"
        )

    def to_json(self) -> dict[str, str | int]:
        r"""The fields by name."""
        return asdict(self)


def wording(pieces: Sequence[str]) -> str:
    r"""One sentence for a union of pieces: single values gathered, intervals joined by "or".

    >>> wording(["output <= -1", "{3}", "{4}"])
    'output <= -1 or output in {3, 4}'
    """
    intervals = [piece for piece in pieces if not piece.startswith("{")]
    values = [piece[1:-1] for piece in pieces if piece.startswith("{")]
    return " or ".join(intervals + ([f"output in {{{', '.join(values)}}}"] if values else []))
