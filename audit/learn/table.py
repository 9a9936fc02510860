r"""Outputs as a table: one row a run, one column a coordinate, whatever the outputs are.

A cell is a number, or the code of something else: nothing there, nan, an infinity, a label. Vectors
of flags and numbers, records, ``None``, sequences of different lengths all have a place. Each
output is read by itself, so a row says the same whatever stands beside it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from audit.outputs.form import Outputs
from audit.outputs.identity import identity

__all__ = ["ABSENT", "CODES", "Codes", "Floats", "Table", "joined", "table_of"]

Floats: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = NDArray[np.int16]

ABSENT: Final = 1
r"""The code of a cell where an output has no item."""

_NAN: Final = 2
_INFINITE: Final = 3  # and 4 for -inf
_FIRST_LABEL: Final = 5
CODES: Final = 64
r"""Codes are less than this; 0 is that of a number. Labels are hashed into what is left."""

_MOST: Final = 2048
_DEEPEST: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    r"""``numbers`` (runs, columns), nan where there is none; there ``codes`` says what there is.

    >>> table = table_of([(1, "stop"), (2.5, None), [3]])
    >>> table.numbers[:, 0].tolist(), (table.codes[:, 1] > 0).tolist()
    ([1.0, 2.5, 3.0], [True, True, True])
    """

    numbers: Floats
    codes: Codes

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def width(self) -> int:
        r"""The number of columns."""
        return int(self.numbers.shape[1])

    def rows(self, part: slice | NDArray[Any]) -> Table:
        r"""Some of the runs."""
        return Table(numbers=self.numbers[part], codes=self.codes[part])

    def column(self, place: int) -> tuple[Floats, Codes]:
        r"""A coordinate: numbers and codes; beyond the last, nothing there."""
        if place < self.width:
            return self.numbers[:, place], self.codes[:, place]
        return np.full(len(self), np.nan), np.full(len(self), ABSENT, dtype=np.int16)


def joined(tables: Sequence[Table]) -> Table:
    r"""One after the other, as wide as the widest."""
    width = max(table.width for table in tables)
    return Table(
        numbers=np.concatenate([_wide(table.numbers, width, np.nan) for table in tables]),
        codes=np.concatenate([_wide(table.codes, width, ABSENT) for table in tables]),
    )


def _wide(cells: NDArray[Any], width: int, fill: float) -> NDArray[Any]:
    if cells.shape[1] == width:
        return cells
    return np.pad(cells, ((0, 0), (0, width - cells.shape[1])), constant_values=fill)


def table_of(outputs: Outputs) -> Table:
    r"""The table of some outputs: at most 2048 columns, the first ones.

    >>> table_of(np.array([[1, 2], [3, 4]])).numbers.tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    array = outputs if isinstance(outputs, np.ndarray) else _stacked(outputs)
    if array is not None and array.dtype.kind in "biuf":
        flat = array.reshape(len(array), -1)[:, :_MOST] if array.size else np.zeros((len(array), 0))
        return _of_numbers(flat.astype(np.float64))
    rows = [_items(output) for output in outputs]
    width = min(_MOST, max(map(len, rows), default=0))
    numbers = np.full((len(rows), width), np.nan)
    codes = np.full((len(rows), width), ABSENT, dtype=np.int16)
    for i, row in enumerate(rows):
        for j, item in enumerate(row[:width]):
            if isinstance(item, int):
                codes[i, j] = item
            else:
                numbers[i, j], codes[i, j] = item, 0
    plain = _of_numbers(numbers)
    return Table(numbers=plain.numbers, codes=np.where(codes > 0, codes, plain.codes))


def _of_numbers(numbers: Floats) -> Table:
    codes = np.zeros(numbers.shape, dtype=np.int16)
    if not bool(np.isfinite(numbers).all()):
        codes[np.isnan(numbers)] = _NAN
        codes[np.isposinf(numbers)] = _INFINITE
        codes[np.isneginf(numbers)] = _INFINITE + 1
        numbers = np.where(codes > 0, np.nan, numbers)
    return Table(numbers=numbers, codes=codes)


def _stacked(outputs: list[Any]) -> NDArray[Any] | None:
    # Rows of one length that hold nothing but plain numbers, at once.
    kinds = set(map(type, outputs))
    if kinds <= {int, float, bool}:
        try:
            return np.array(outputs, dtype=np.float64)
        except OverflowError:
            return None
    if not kinds <= {list, tuple} or len(set(map(len, outputs))) != 1:
        return None
    if not {type(item) for output in outputs for item in output} <= {int, float, bool}:
        return None
    try:
        return np.array(outputs, dtype=np.float64)
    except OverflowError:
        return None


def _items(output: object, depth: int = 0) -> list[float | int]:
    # A float is a number, an int the code of something else.
    match output:
        case dict() if depth < _DEEPEST:
            ordered = sorted(output.items(), key=lambda item: str(identity(item[0])))
            return _each((value for _, value in ordered), depth)
        case list() | tuple() if depth < _DEEPEST:
            return _each(output, depth)
        case np.ndarray() if depth < _DEEPEST and output.ndim:
            return _each(output.tolist(), depth)
        case np.timedelta64():  # numpy counts it among its integers
            return [_label(output)]
        case bool() | int() | float() | np.bool_() | np.integer() | np.floating():
            try:
                return [float(output)]
            except OverflowError:
                return [_label(output)]
        case _:
            return [_label(output)]


def _each(items: Iterable[object], depth: int) -> list[float | int]:
    found: list[float | int] = []
    for item in items:
        found += _items(item, depth + 1)
        if len(found) >= _MOST:
            break
    return found


def _label(item: object) -> int:
    text = str(identity(item)).encode("utf-8", "surrogatepass")
    return _FIRST_LABEL + zlib.crc32(text) % (CODES - _FIRST_LABEL)
