r"""The columns that a learner reads from outputs: values, differences, grids and summaries.

Flags are numbers that are frequent in a column of floats (-1000 for "below", -1 for "ended"): sums,
maxima and differences omit them, and if outputs consist only of flags, their counts are used
instead. Flags, the repeated labels of each column, and the grid of its numbers are learned from
earlier runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from audit.features.numbers import LOWEST_BIT, parts_of_step, step_of
from audit.outputs.rows import ABSENT, CODES, OTHER, Codes, Floats, Schema, Table, display_path

_FLAG: Final = 0.01
_MOST_FLAGS: Final = 12
_LOOKED_AT: Final = 4096
_MOST_LABELS: Final = 1000
_STEPPED: Final = 48
MOST_WIDE: Final = 64
r"""Outputs with more columns than this are read only by their columns and summaries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    r"""One property of outputs: ``what`` names it, for the column with index ``place`` and path
    ``path``; ``value`` is the flag or the step. ``labels`` are the repeated labels with their
    codes.
    """

    what: str
    place: int = 0
    path: str = ""
    value: float = 0.0
    labels: tuple[tuple[int, str], ...] = ()

    @property
    def name(self) -> str:
        r"""The column's display name."""
        match self.what:
            case "column":
                return display_path(self.path)
            case "difference":
                return f"difference of {display_path(self.path)} and the number before it"
            case "number" | "lowest-bit":
                return f"{self.what} of {display_path(self.path)}"
            case "modulo":
                return f"{display_path(self.path)} modulo {self.value!r}"
            case "count":
                return f"count of {self.value:g}"
            case "zero":
                return f"sign of the zero {display_path(self.path)}"
            case _:
                return self.what

    def label(self, code: int) -> str:
        r"""The label of a code of :meth:`own`."""
        return CODES[code] if code in CODES else self.labels[code - OTHER - 1][1]

    def own(self, codes: Codes) -> Codes:
        r"""Convert codes of a schema to codes of this column, numbered from the first label."""
        if not self.labels:
            return np.minimum(codes, OTHER)
        known = np.array([code for code, _ in self.labels])
        at = np.searchsorted(known, codes).clip(max=len(known) - 1)
        found = np.where(known[at] == codes, OTHER + 1 + at, np.minimum(codes, OTHER))
        return found.astype(np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    r"""The columns, and the flags that summaries omit."""

    columns: tuple[Column, ...]
    flags: tuple[float, ...]
    paths: tuple[str, ...]

    @property
    def width(self) -> int:
        return len(self.paths)

    @property
    def codes(self) -> int:
        r"""An exclusive upper bound on the codes of columns."""
        return OTHER + 1 + max((len(column.labels) for column in self.columns), default=0)

    @property
    def names(self) -> list[str]:
        return [display_path(path) for path in self.paths]

    def number(self, place: int) -> Column:
        r"""The column of the numbers at index ``place``, without flags."""
        return Column(what="number", place=place, path=self.paths[place])

    def plain(self, table: Table) -> Floats:
        r"""The numbers that are not flags, nan elsewhere, with as many columns as in training."""
        if not self.flags and table.width == self.width:
            return table.numbers
        numbers = np.full((len(table), self.width), np.nan)
        width = min(self.width, table.width)
        numbers[:, :width] = table.numbers[:, :width]
        for flag in self.flags:
            numbers[numbers == flag] = np.nan
        return numbers

    def read(self, column: Column, table: Table, plain: Floats) -> tuple[Floats, Codes]:
        r"""Read a column of every run: numbers, and codes for non-numbers."""
        match column.what:
            case "column":
                numbers, codes = table.column(column.place)
                return numbers, column.own(codes)
            case "structure":
                return np.full(len(table), np.nan), column.own(table.structures)
            case "difference":
                return _coded(plain[:, column.place] - plain[:, column.place - 1])
            case "lowest-bit":
                return _coded(np.asarray(LOWEST_BIT(plain[:, column.place]), dtype=np.float64))
            case "modulo":
                return _coded(parts_of_step(plain[:, column.place], step=column.value))
            case "zero":
                numbers, _ = table.column(column.place)
                return _coded(np.where(numbers == 0.0, np.copysign(1.0, numbers), np.nan))
            case "count":
                return _coded(
                    (table.numbers[:, : self.width] == column.value).sum(axis=1).astype(np.float64)
                )
        return _coded(_summary(column.what, plain))


def _summary(what: str, plain: Floats) -> Floats:
    known = np.isfinite(plain)
    whole = bool(known.all()) and plain.shape[1] > 0
    some = None if whole else known.any(axis=1)

    def among(other: float) -> Floats:
        return plain if whole else np.where(known, plain, other)

    match what:
        case "numbers":
            found = known.sum(axis=1).astype(np.float64)
        case "sum":
            found = among(0.0).sum(axis=1)
        case "max":
            found = np.maximum.reduce(among(-np.inf).T.copy())
        case "argmax":
            found = among(-np.inf).argmax(axis=1).astype(np.float64)
        case _:
            found = np.minimum.reduce(among(np.inf).T.copy())
    return found if some is None or what == "numbers" else np.where(some, found, np.nan)


def _coded(numbers: Floats) -> tuple[Floats, Codes]:
    bad = ~np.isfinite(numbers)
    if not bool(bad.any()):
        return numbers, np.zeros(len(numbers), dtype=np.int32)
    return np.where(bad, np.nan, numbers), np.where(bad, ABSENT, 0).astype(np.int32)


def learn_reader(table: Table, schema: Schema) -> Reader:
    r"""Choose the columns for outputs like these. A constant column is omitted."""
    width = table.width
    some = table.rows(slice(max(0, len(table) - _LOOKED_AT), None))
    known = some.known()
    values, counts = np.unique(some.numbers[known], return_counts=True)
    often = np.argsort(-counts)[:_MOST_FLAGS]
    share = counts[often] / max(len(some) * width, 1)
    # A flag is repeated; other floats hardly ever are.
    flags = np.sort(values[often[(share >= _FLAG) & (counts[often] >= _MOST_FLAGS)]])
    flagged = int(counts[np.isin(values, flags)].sum())
    paths = schema.paths[:width]
    columns = [
        Column(what="column", place=place, path=path, labels=_labels(codes, schema))
        for place, path in enumerate(paths)
        if _varies(*(found := table.column(place)))
        for codes in found[1:]
    ]
    if bool((table.structures != table.structures[:1]).any()):
        columns.append(Column(what="structure", labels=_labels(table.structures, schema)))
    zero, negative = some.numbers == 0.0, np.signbit(some.numbers)
    both_zeros = (zero & negative).any(axis=0) & (zero & ~negative).any(axis=0)
    columns += [
        Column(what="zero", place=place, path=paths[place])
        for place in np.flatnonzero(both_zeros).tolist()
    ]
    if width > 1:
        columns += [Column(what="count", value=float(flag)) for flag in flags]
    if int(known.sum()) - flagged > int(known.sum()) / 100:
        plain = known & ~np.isin(some.numbers, flags)
        if width <= MOST_WIDE:
            columns += _fine(some, plain, paths)
        if width > 1:
            columns += [Column(what=what) for what in ("sum", "max", "min", "argmax", "numbers")]
    return Reader(columns=tuple(columns), flags=tuple(map(float, flags)), paths=tuple(paths))


def _varies(numbers: Floats, codes: Codes) -> bool:
    if bool((codes != codes[:1]).any()):
        return True
    return not codes[:1].any() and bool((numbers != numbers[:1]).any())


def _labels(codes: Codes, schema: Schema) -> tuple[tuple[int, str], ...]:
    # The repeated labels, at most the most frequent ones.
    found, counts = np.unique(codes[codes > OTHER], return_counts=True)
    kept = np.argsort(-counts, kind="stable")[:_MOST_LABELS]
    names = schema.names
    return tuple(
        (code, names[code - OTHER - 1]) for code in sorted(found[kept[counts[kept] > 1]].tolist())
    )


def _fine(some: Table, plain: NDArray[np.bool_], paths: list[str]) -> list[Column]:
    # Differences of adjacent numbers, lowest bits of floats, and the steps between numbers.
    found = [
        Column(what="difference", place=place, path=paths[place]) for place in range(1, len(paths))
    ]
    fine = (plain & (some.numbers != np.rint(some.numbers))).sum(axis=0)
    for place, path in enumerate(paths):
        numbers = some.numbers[plain[:, place], place]
        if 2 * int(fine[place]) > len(numbers):
            found.append(Column(what="lowest-bit", place=place, path=path))
        if step := step_of(numbers[-_STEPPED:]):
            found.append(Column(what="modulo", place=place, path=path, value=step))
    return found
