r"""What a learner reads of each output: its coordinates, their differences, grids and summaries.

Flags are numbers that come often in a coordinate of floats (-1000 for "below", -1 for "ended"):
sums, maxima and differences leave them out, and where outputs consist of nothing else, how often
each flag comes takes their place. Which numbers are flags is learned from earlier runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from audit.learn.table import ABSENT, Codes, Floats, Table
from audit.outputs.features.numbers import LOWEST_BIT

__all__ = ["MOST_WIDE", "Column", "Reader", "learn_reader"]

_FLAG: Final = 0.01
_MOST_FLAGS: Final = 12
_LOOKED_AT: Final = 4096
MOST_WIDE: Final = 64
r"""Wider outputs are read by their coordinates and summaries alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    r"""One thing to read of an output: ``what`` it is, of the coordinate at ``place`` or of the
    flag ``value``.
    """

    what: str
    place: int = 0
    value: float = 0.0

    @property
    def name(self) -> str:
        r"""As a person reads it.

        >>> Column(what="difference", place=3).name, Column(what="count", value=-1.0).name
        ('coordinate:3 - coordinate:2', 'count of -1')
        """
        match self.what:
            case "coordinate":
                return f"coordinate:{self.place}"
            case "difference":
                return f"coordinate:{self.place} - coordinate:{self.place - 1}"
            case "number":
                return f"number at {self.place}"
            case "lowest-bit":
                return f"coordinate:{self.place}+lowest-bit"
            case "count":
                return f"count of {self.value:g}"
            case _:
                return self.what


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    r"""Which columns there are, and the flags that summaries leave out."""

    columns: tuple[Column, ...]
    flags: tuple[float, ...]
    width: int

    def plain(self, table: Table) -> Floats:
        r"""The numbers that are no flags, nan elsewhere, as many columns as were learned of."""
        numbers = np.full((len(table), self.width), np.nan)
        width = min(self.width, table.width)
        numbers[:, :width] = table.numbers[:, :width]
        for flag in self.flags:
            numbers[numbers == flag] = np.nan
        return numbers

    def read(self, column: Column, table: Table, plain: Floats) -> tuple[Floats, Codes]:
        r"""A column of every run: numbers, and codes where there is none."""
        match column.what:
            case "coordinate":
                return table.column(column.place)
            case "number":
                return _coded(plain[:, column.place])
            case "difference":
                return _coded(plain[:, column.place] - plain[:, column.place - 1])
            case "lowest-bit":
                return _coded(np.asarray(LOWEST_BIT(plain[:, column.place]), dtype=np.float64))
            case "count":
                return _coded((table.numbers == column.value).sum(axis=1).astype(np.float64))
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
        return numbers, np.zeros(len(numbers), dtype=np.int16)
    return np.where(bad, np.nan, numbers), np.where(bad, ABSENT, 0).astype(np.int16)


def learn_reader(table: Table) -> Reader:
    r"""What to read of outputs like these.

    >>> from audit.learn.table import table_of
    >>> reader = learn_reader(table_of(np.arange(20.0).reshape(10, 2) ** 0.5))
    >>> [column.name for column in reader.columns][:4]
    ['coordinate:0', 'coordinate:1', 'coordinate:1 - coordinate:0', 'coordinate:0+lowest-bit']
    """
    width = table.width
    some = table.rows(slice(max(0, len(table) - _LOOKED_AT), None))
    values, counts = np.unique(some.numbers[some.codes == 0], return_counts=True)
    often = np.argsort(-counts)[:_MOST_FLAGS]
    share = counts[often] / max(len(some) * width, 1)
    # A flag comes back; a float that is none hardly does.
    flags = np.sort(values[often[(share >= _FLAG) & (counts[often] >= _MOST_FLAGS)]])
    numbers = int((some.codes == 0).sum())
    flagged = int(counts[np.isin(values, flags)].sum())
    columns = [Column(what="coordinate", place=place) for place in range(width)]
    if width > 1:
        columns += [Column(what="count", value=float(flag)) for flag in flags]
    if numbers - flagged > numbers / 100:
        plain = (some.codes == 0) & ~np.isin(some.numbers, flags)
        fine = (plain & (some.numbers != np.rint(some.numbers))).sum(axis=0)
        wide = width <= MOST_WIDE
        if wide:
            columns += [Column(what="difference", place=place) for place in range(1, width)]
        columns += [
            Column(what="lowest-bit", place=place)
            for place in range(width)
            if wide and 2 * int(fine[place]) > int(plain[:, place].sum())
        ]
        if width > 1:
            columns += [Column(what=what) for what in ("sum", "max", "min", "argmax", "numbers")]
    return Reader(columns=tuple(columns), flags=tuple(map(float, flags)), width=width)
