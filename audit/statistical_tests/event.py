r"""Events (sets of outputs) that distinguish two datasets, and their description in reports.

An event consists of *cells*. A cell is an interval of numbers, a single label (an output that is
not a number), or the set of all unknown labels. The intervals and the known labels are learned from
a :class:`Tally` of earlier runs. :mod:`audit.statistical_tests.choose_event` selects the cells that
form the event. So the event is fixed before the runs that test it (``docs/proofs/audit_tests.md``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from audit.formats.result import Facts, fact
from audit.formats.shorten import shortened
from audit.outputs.identity import Name, display_name
from audit.outputs.reading import Integers, NumberLine, Place, Reading
from audit.outputs.rows import display_path, path_of, structure_words, table_parts, table_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    r"""The distinct labels (outputs that are not numbers), numbered in order of first appearance.

    Label k is ``names[codes[k]]`` if ``known`` is None. Otherwise the labels come from several
    parsed arrays of outputs, and ``known`` maps each label to its number.
    """

    names: Sequence[str | Name] = ()
    codes: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    known: dict[str | Name, int] | None = None

    def __len__(self) -> int:
        return len(self.codes) if self.known is None else len(self.known)

    def __iter__(self) -> Iterator[str | Name]:
        if self.known is not None:
            return iter(self.known)
        return (self.names[code] for code in self.codes.tolist())

    def add(self, names: Sequence[str | Name], codes: Integers) -> tuple[Labels, Integers]:
        r"""The labels with the distinct ``names[codes]`` added, and the index of each of these."""
        if not len(codes):
            return self, codes
        if self.known is None and (names is self.names or not len(self)):
            columns = self.find(names, codes)
            fresh = columns < 0
            columns[fresh] = len(self) + np.arange(np.count_nonzero(fresh))
            return Labels(names=names, codes=np.concatenate((self.codes, codes[fresh]))), columns
        known = self._by_name()
        found = [known.setdefault(names[code], len(known)) for code in codes.tolist()]
        return Labels(known=known), np.array(found, dtype=np.int64)

    def find(self, names: Sequence[str | Name], codes: Integers) -> Integers:
        r"""The index of each of the labels ``names[codes]``, or -1 for an unknown label."""
        if not len(self):
            return np.full(len(codes), -1, dtype=np.int64)
        if self.known is None and names is self.names:
            column = np.full(len(names), -1, dtype=np.int64)
            column[self.codes] = np.arange(len(self.codes))
            return column[codes]
        # A slice of a reading has the names of the whole reading.
        distinct, place = np.unique(codes, return_inverse=True)
        known = self._by_name() if self.known is None else self.known
        found = [known.get(names[code], -1) for code in distinct.tolist()]
        return np.array(found, dtype=np.int64)[place]

    def _by_name(self) -> dict[str | Name, int]:
        if self.known is not None:
            return dict(self.known)
        return {name: column for column, name in enumerate(self)}


Floats: TypeAlias = NDArray[np.float64]

_MOST_INTERVALS: Final = 2048
_MOST_PIECES: Final = 12
_EXACT: Final = 2**53  # above this, n - 1 may be the same float as n


def _counts(codes: Integers, worlds: NDArray[np.bool_], cells: int) -> Integers:
    # Row 0 counts the runs on dataset A, row 1 those on dataset B.
    flat = np.bincount(codes + cells * worlds, minlength=2 * cells)
    return flat.reshape(2, cells).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    r"""How often each output occurred on each dataset, over all runs so far.

    ``numbers`` contains the distinct numbers in increasing order, and ``labels`` the other distinct
    outputs. ``number_counts`` and ``label_counts`` contain their counts: row 0 for dataset A, row 1
    for dataset B, and one column per number or label.
    """

    numbers: NumberLine
    number_counts: Integers
    labels: Labels
    label_counts: Integers

    @classmethod
    def empty(cls) -> Tally:
        none = np.zeros((2, 0), dtype=np.int64)
        return cls(
            numbers=NumberLine.empty(), number_counts=none, labels=Labels(), label_counts=none
        )

    @property
    def runs(self) -> int:
        return int(self.number_counts.sum() + self.label_counts.sum())

    @property
    def crowd(self) -> int:
        r"""A number that occurs at least this often gets its own cell; 1 if every number does."""
        runs = int(self.number_counts.sum())
        most = min(_MOST_INTERVALS, 8 + math.isqrt(16 * runs))
        return 1 if len(self.numbers) <= most else -(-runs // most)

    @property
    def constant(self) -> bool:
        return self.runs > 0 and len(self.numbers) + len(self.labels) == 1

    @property
    def once(self) -> int:
        r"""The number of labels (outputs that are not numbers) that occurred in exactly one run."""
        return int((self.label_counts.sum(axis=0) == 1).sum())

    def rare(self, least: float) -> float:
        r"""The fraction of runs whose output is a label that occurred fewer than ``least`` times.

        A label is an output that is not a number. Of the fractions on the two datasets, the larger
        one is returned.
        """
        few = self.label_counts.sum(axis=0) < least
        runs = self.number_counts.sum(axis=1) + self.label_counts.sum(axis=1)
        return float((self.label_counts[:, few].sum(axis=1) / np.maximum(runs, 1)).max())

    @property
    def looked_at(self) -> int:
        r"""The number of runs that can help to choose an event that distinguishes the datasets.

        Their output is a number, or a label that occurred before. The result is 0 if all outputs
        agree.
        """
        if len(self.numbers) + len(self.labels) < 2:
            return 0
        return self.runs - len(self.labels)

    def add(self, reading: Reading, worlds: NDArray[np.bool_]) -> Tally:
        is_number = reading.codes < 0
        fresh, _, index = reading.numbers[is_number].unique()
        fresh_counts = _counts(index, worlds[is_number], len(fresh))
        numbers, _, index = NumberLine.joined([self.numbers, fresh]).unique()
        counts = np.zeros((2, len(numbers)), dtype=np.int64)
        counts[:, index[: len(self.numbers)]] += self.number_counts
        counts[:, index[len(self.numbers) :]] += fresh_counts

        named = _counts(reading.codes[~is_number], worlds[~is_number], len(reading.names))
        seen = np.flatnonzero(named.sum(axis=0))
        labels, columns = self.labels.add(reading.names, seen)
        label_counts = np.zeros((2, len(labels)), dtype=np.int64)
        label_counts[:, : len(self.labels)] += self.label_counts
        label_counts[:, columns] += named[:, seen]
        return Tally(
            numbers=numbers, number_counts=counts, labels=labels, label_counts=label_counts
        )

    def cells(self) -> Cells:
        r"""Divide all outputs into cells, learned from these runs.

        Let n be about 4 sqrt(runs), but at most 2048. If there are at most n distinct numbers, each
        number has its own interval. Otherwise each frequent number has its own interval, and at
        most about n other intervals contain about equally many runs each. Each label also has its
        own cell. The last cell is for new labels. Its counts are those of the labels that occurred
        once (the Good-Turing estimate of how new labels are spread over the datasets).
        """
        integral = self.numbers.integral
        cuts, after, repeated = self._cuts(integral=integral)
        intervals = cuts.search(self.numbers)
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
            integral=integral,
            zeros=self.numbers.signed_zeros,
        )

    def _cuts(self, *, integral: bool) -> tuple[NumberLine, NDArray[np.bool_], NDArray[np.bool_]]:
        pooled = self.number_counts.sum(axis=0)
        runs, share = int(pooled.sum()), self.crowd
        if share == 1:
            none = np.zeros(len(pooled), dtype=np.bool_)
            return self.numbers[1:], none[1:], none
        # Intervals of equal count: a number belongs to the interval of its middle run. A number is
        # heavy if it fills an interval or is repeated far more often than the others (which is
        # suspicious by itself if noise is continuous).
        cumulative = np.cumsum(pooled)
        rank = (2 * cumulative - pooled) // (2 * share)
        mean = runs / len(pooled)
        repeated = pooled >= min(3 + 10 * (mean - 1), 4 + 4 * mean)
        heavy = (pooled >= share) | repeated
        starts = np.flatnonzero(np.diff(rank) | heavy[1:]) + 1
        before = self.numbers[starts]
        behind = self.numbers[heavy & (cumulative < runs)].behind(integral=integral)
        cuts, first, _ = NumberLine.joined([before, behind]).unique()
        return cuts, first >= len(before), repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    r"""A partition of all outputs into cells: intervals, then known labels, then other labels.

    The intervals are ``[cuts[i-1], cuts[i])``. ``counts``, of shape (2, cells), contains the number
    of earlier runs in each cell; row 0 is for dataset A. ``alone`` marks each interval that is a
    single, unusually frequent number. The fields ``after`` (whether a cut lies just above a
    frequent number), ``integral`` (whether all numbers are integers) and ``zeros`` (whether 0.0 and
    -0.0 occurred) only affect the description of events.
    """

    cuts: NumberLine
    after: NDArray[np.bool_]
    alone: NDArray[np.bool_]
    labels: Labels
    counts: Integers
    integral: bool
    zeros: bool = False

    @property
    def intervals(self) -> int:
        r"""The number of intervals; the first cells are the intervals, in increasing order."""
        return len(self.cuts) + 1

    def ends(self, *, integral: bool) -> list[float]:
        r"""The boundaries between intervals as floats, with integer values if ``integral``."""
        behind = self.cuts.listed() if self.cuts.form is None else ()
        shift = [float(integral and place.behind) for place in behind] or [0.0] * len(self.cuts)
        return [end + by for end, by in zip(self.cuts.as_floats().tolist(), shift, strict=True)]

    def locate(self, reading: Reading) -> Integers:
        other = self.counts.shape[1] - 1
        if not bool((is_label := reading.codes >= 0).any()):
            return self.cuts.search(reading.numbers)
        cells = np.zeros(len(reading), dtype=np.int64)
        cells[~is_label] = self.cuts.search(reading.numbers[~is_label])
        columns = self.labels.find(reading.names, reading.codes[is_label])
        cells[is_label] = np.where(columns < 0, other, self.intervals + columns)
        return cells

    def count(self, reading: Reading, worlds: NDArray[np.bool_]) -> Integers:
        return _counts(self.locate(reading), worlds, self.counts.shape[1])

    def pieces(
        self, chosen: NDArray[np.bool_], *, integral: bool, of: str = "output"
    ) -> list[tuple[str, slice]]:
        r"""Describe the chosen cells: one text per label, and one per block of adjacent intervals.

        Returns pairs of the text and the slice of cells that it describes. ``of`` is the name of
        the output in the texts. A single value is described in braces. If ``integral`` is true,
        intervals are described as intervals of integers. The cell of unknown labels is omitted.
        """
        stretches = _stretches(chosen[: self.intervals])
        found = [(self._words(stretch, of, integral=integral), stretch) for stretch in stretches]
        columns = np.flatnonzero(chosen[self.intervals : -1]).tolist()
        if not columns:
            return found
        names = list(self.labels)
        wrapped = any(display_name(names[column]) != str(names[column]) for column in columns)
        texts = set(map(str, names)) if wrapped else ()
        for column in columns:
            cell = self.intervals + column
            words = f"{{{shortened(display_name(names[column], texts))}}}"
            found.append((words, slice(cell, cell + 1)))
        return found

    def _words(self, stretch: slice, of: str, *, integral: bool) -> str:
        low = high = None
        if stretch.start:
            low = self._end(stretch.start - 1, upper=False, integral=integral)
        if stretch.stop < self.intervals:
            high = self._end(stretch.stop - 1, upper=True, integral=integral)
        if low == high is not None:
            return f"{{{low[1]}}}" if low else ""
        below = f" {'<=' if high[0] else '<'} {high[1]}" if high else ""
        if low is None:
            return f"{of}{below}" if high else f"-inf < {of} < inf"
        if high is None:
            return f"{of} {'>=' if low[0] else '>'} {low[1]}"
        return f"{low[1]} {'<=' if low[0] else '<'} {of}{below}"

    def _end(self, cut: int, *, upper: bool, integral: bool) -> tuple[bool, str]:
        # Describe the end of an interval at a cut with a number: return whether the interval
        # contains the number, and the number as text.
        line = self.cuts[cut : cut + 1]
        (place,) = line.listed()
        if place.behind:
            return upper, place.words
        if integral and upper and not (line.floats and abs(place.value) > _EXACT):
            return True, Place(place.value - 1, place.form).words
        if line.floats and not integral and self.after[cut]:
            return upper, line.before().listed()[0].words
        return not upper, place.words


def _stretches(chosen: NDArray[np.bool_]) -> list[slice]:
    edges = np.flatnonzero(np.diff(chosen, prepend=False, append=False))
    return [slice(int(i), int(j)) for i, j in edges.reshape(-1, 2)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    r"""An event: the set of all outputs that fall into the ``chosen`` cells."""

    cells: Cells
    chosen: NDArray[np.bool_]
    integral: bool

    def words(self, of: str = "output") -> str:
        r"""Describe the event in words, with ``of`` as the name of the output."""
        pieces = self.cells.pieces(self.chosen, integral=self.integral, of=of)
        found = wording([words for words, _ in pieces], of)
        zeros = self.cells.zeros and self.chosen[self.cells.cuts.search(self.cells.cuts.zeros)]
        return found if np.all(zeros) or not np.any(zeros) else f"{found} (where -0.0 < 0.0)"

    def spans(self) -> list[tuple[float, float]]:
        r"""The intervals low <= x < high of numbers in the event, as floats for a plot."""
        ends = [-math.inf, *self.cells.ends(integral=self.integral), math.inf]
        chosen = self.chosen[: self.cells.intervals]
        return [(ends[each.start], ends[each.stop]) for each in _stretches(chosen)]

    def holds(self, reading: Reading) -> NDArray[np.bool_]:
        return self.chosen[self.cells.locate(reading)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness(Facts):
    r"""An event that reveals the dataset, and how often it occurred in runs that did not choose it.

    The event occurred in ``inside_a`` of ``runs_a`` runs on dataset A, and in ``inside_b`` of
    ``runs_b`` runs on dataset B. ``world`` is the dataset that the event indicates. The ratio of
    the two frequencies is not a lower bound on e^epsilon; the report's ``epsilon_lower`` is the
    bound on epsilon. ``feature`` is the feature to whose values the event applies, or None for the
    output itself. ``where`` is the event as data, and ``score`` is the definition of a learned
    feature.

    >>> print(
    ...     Witness(event="output <= -1", world="A", inside_a=41, runs_a=100, inside_b=3, runs_b=97)
    ... )
    output <= -1: 41 of 100 runs on dataset A, 3 of 97 on dataset B (points to A)
    """

    event: str = fact("the outputs in the event, in words")
    world: Literal["A", "B"] = fact("the dataset to which the event points")
    inside_a: int = fact("runs on dataset A in the event")
    runs_a: int = fact("runs on dataset A")
    inside_b: int = fact("runs on dataset B in the event")
    runs_b: int = fact("runs on dataset B")
    feature: str | None = fact("the feature of the event, null for the output itself", default=None)
    where: Event | None = field(default=None, compare=False, repr=False)
    score: dict[str, Any] | None = fact(
        "the definition of a learned feature", default=None, compare=False, repr=False
    )

    @classmethod
    def counted(cls, event: Event, counts: Integers, world: Literal["A", "B"]) -> Witness:
        inside, runs = counts[:, event.chosen].sum(axis=1).tolist(), counts.sum(axis=1).tolist()
        return cls(
            event=event.words(), where=event, world=world,
            inside_a=inside[0], runs_a=runs[0], inside_b=inside[1], runs_b=runs[1],
        )  # fmt: skip

    @property
    def margin(self) -> float:
        r"""How much more often the event occurred on ``world``, in standard deviations."""
        beyond = self.inside_b - self.inside_a
        total = self.inside_b + self.inside_a
        return (beyond if self.world == "B" else -beyond) / math.sqrt(total + 1)

    def through(self, feature: str | None) -> Witness:
        r"""The same witness, described as an event of the values of the named feature."""
        if self.where is None:
            return self
        words = (self.score or {}).get("words") or _label_words(feature, self.where, self.world)
        if feature is None:
            return replace(self, event=words or self.event)
        return replace(
            self, feature=feature, event=words or self.where.words(_feature_words(feature))
        )

    def __str__(self) -> str:
        return (
            f"{self.event}: {self.inside_a} of {self.runs_a} runs on dataset A, "
            f"{self.inside_b} of {self.runs_b} on dataset B (points to {self.world})"
        )


def _feature_words(feature: str) -> str:
    # Describe a feature: precision(output.mean) for column:mean+precision.
    first, *rest = feature.split("+")
    name, _, path = first.partition(":")
    if name == "column":
        opened = "".join(f"{each}(" for each in rest[::-1])
        return opened + display_path(path_of(path)) + ")" * len(rest)
    return "output" if feature == "identity" else f"{feature}(output)"


def _label_words(feature: str | None, event: Event, world: Literal["A", "B"]) -> str | None:
    # Describe how structures or tables differ; None if the event is better described by its labels.
    labels = slice(event.cells.intervals, -1)
    chosen, other = event.chosen[labels], event.cells.counts[0 if world == "B" else 1, labels] > 0
    if feature not in {None, "identity", "structure"} or not chosen.any():
        return None
    names = list(event.cells.labels)

    def listed(which: NDArray[np.bool_]) -> list[str]:
        return [display_name(names[place]) for place in np.flatnonzero(which).tolist()]

    # The first label is tested first, to avoid making the texts of large arrays.
    of_tables = bool(table_parts(listed(chosen)[0]))
    words = table_words(listed(chosen), listed(other & ~chosen), world) if of_tables else None
    if words or feature != "structure":
        return words
    return structure_words(listed(chosen), listed(~chosen))


def witness_of(
    cells: Cells,
    chosen: NDArray[np.bool_],
    counts: Integers,
    world: Literal["A", "B"],
    *,
    integral: bool,
) -> Witness | None:
    r"""The event that the output is in a chosen cell, with its counts in later runs.

    ``counts``, of shape (2, cells), contains the numbers of later runs. Only the twelve chosen
    labels or blocks of adjacent intervals with the most earlier runs form the event. Unknown labels
    do not belong to the event. Returns None if this leaves no cell with earlier runs.
    """
    past = cells.counts.sum(axis=0)
    known = chosen & (past > 0)
    stretches = _stretches(known[: cells.intervals])
    labels = cells.intervals + np.flatnonzero(known[cells.intervals : -1])
    weights = np.append([int(past[each].sum()) for each in stretches], past[labels])
    named = np.zeros_like(known)
    for i in np.argsort(-weights, kind="stable")[:_MOST_PIECES].tolist():
        named[stretches[i] if i < len(stretches) else labels[i - len(stretches)]] = True
    if not named.any():
        return None
    return Witness.counted(Event(cells=cells, chosen=named, integral=integral), counts, world)


def wording(pieces: Sequence[str], of: str = "output") -> str:
    r"""Join the descriptions of cells: intervals by "or", and single values as one set."""
    intervals = [piece for piece in pieces if not piece.startswith("{")]
    values = [piece[1:-1] for piece in pieces if piece.startswith("{")]
    return " or ".join(intervals + ([f"{of} in {{{', '.join(values)}}}"] if values else []))
