r"""Features of sequences, and of outputs of any kind.

A list, a tuple, a row of an array, a string (of characters) and bytes (of integers) are sequences.
Here nan is larger than all numbers, and equal to itself.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from audit.features.apply_feature import Map, Misread, number_of
from audit.outputs.identity import identity
from audit.outputs.output_parser import Outputs, kind
from audit.outputs.rows import path_of, paths_of, row_of

_MIX: Final = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_WORD: Final = 1 << 64


def _items(output: object) -> Sequence[Any]:
    match output:
        case list() | tuple() | str() | bytes():
            return output
        case np.ndarray() if output.ndim:
            return list(output.tolist())
        case _:
            raise Misread("no sequence")


def _numbers(output: object) -> list[int | float]:
    # The numbers in a sequence and its nested sequences, in order.
    found: list[int | float] = []
    for item in _items(output):
        match item:
            case list() | tuple() | np.ndarray():
                found += _numbers(item)
            case bool() | np.bool_():
                found.append(int(item))
            case _:
                found.append(number_of(item))
    return found


def _rows(array: NDArray[Any]) -> NDArray[Any] | None:
    if array.ndim == 1:
        raise Misread("numbers")
    return array.reshape(len(array), -1) if array.size else None


def _kind(output: object) -> str:
    # numpy's float64 and int64 count as Python's numbers, because numbers of one type are joined to
    # an array, which does not distinguish them.
    if isinstance(output, np.float64 | np.int64):
        return kind(output.item())
    return kind(output)


KIND: Final = Map(name="kind", of_one=_kind)
r"""The type and shape of an output.

>>> KIND([1, [1, 2], None])
['int', 'list of 2', 'None']
"""


def _length(output: object) -> int:
    if isinstance(output, dict | set | frozenset):
        return len(output)
    return len(_items(output))


LENGTH: Final = Map(name="length", of_one=_length)
r"""The number of items.

>>> LENGTH([[1, 2], "abc", 7])
[2, 3, 'no length: int']
"""


def _sum(output: object) -> int | float:
    total: int | float = 0
    for number in _numbers(output):
        total = total + number
    return total


def _sums(array: NDArray[Any]) -> Outputs | None:
    rows = _rows(array)
    if rows is None:
        return None
    if rows.dtype.kind == "f":
        rows = rows.astype(np.float64, copy=False)
    elif int(np.abs(rows.astype(np.float64)).max()) * rows.shape[1] < 1 << 62:
        rows = rows.astype(np.int64)
    else:
        return None
    # Add column by column, so that the rounding is the same as for a single run.
    total = np.zeros(len(rows), dtype=rows.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        for column in rows.T:
            total = total + column
    return total


SUM: Final = Map(name="sum", of_one=_sum, of_array=_sums)
r"""The sum of all numbers in a sequence, from left to right; True counts as 1.

>>> SUM([[1, 2], [0.5, [True, 2]], "ab"])
[3, 3.5, 'no sum: str']
"""


def _rank(number: float) -> tuple[bool, int | float]:
    return (True, 0) if math.isnan(number) else (False, number)


def _argmax(output: object) -> int:
    numbers = _numbers(output)
    return max(range(len(numbers)), key=lambda i: _rank(numbers[i]))


def _argmaxes(array: NDArray[Any]) -> Outputs | None:
    rows = _rows(array)
    return None if rows is None else np.argmax(rows, axis=1)


ARGMAX: Final = Map(name="argmax", of_one=_argmax, of_array=_argmaxes)
r"""The index of the largest number, counted from 0; the first one if several are equal.

>>> ARGMAX([[3, 9, 9], []])
[1, 'no argmax: list of 0']
"""


def _sorted(output: object) -> tuple[object, ...]:
    items = _items(output)
    try:
        plain = [number_of(item) for item in items]
    except Misread:
        return tuple(sorted(items, key=_text))
    return tuple(sorted(plain, key=_rank))


SORTED: Final = Map(name="sorted", of_one=_sorted)
r"""The items without their order.

>>> SORTED([[3, 1, 2], "ba"])
[(1, 2, 3), ('a', 'b')]
"""


def _distinct(output: object) -> int:
    return len({_same_as(item) for item in _items(output)})


def _same_as(item: object) -> object:
    # A key that is equal for equal numbers, and for other items with equal text.
    if isinstance(item, int | float | np.integer | np.floating) and not math.isnan(item):
        return item
    return _text(item)


DISTINCT: Final = Map(name="distinct", of_one=_distinct)
r"""The number of distinct items.

>>> DISTINCT([[1, 1.0, 2], "abba"])
[2, 2]
"""


def _coordinate_of(output: object, place: int) -> object:
    return _items(output)[place]


def _coordinates(array: NDArray[Any], place: int) -> Outputs:
    if array.ndim == 1 or not -array.shape[1] <= place < array.shape[1]:
        raise Misread("no item at this index")
    return array[:, place]


def coordinate(place: int) -> Map:
    r"""The item at an index: 0 for the first, -1 for the last."""
    return Map.with_number("coordinate", place, _coordinate_of, _coordinates)


def _structure_of(output: object) -> str:
    return row_of(output).structure


STRUCTURE: Final = Map(name="structure", of_one=_structure_of)
r"""The structure without the values: types, keys and their order, nesting, lengths.

>>> STRUCTURE([{"a": 1}, [True, 2.5]])
["dict('a': int)", 'list(bool, float)']
"""


def _column_of(output: object, path: str) -> object:
    cells = dict(reversed(row_of(output).cells))  # of equal paths, the first
    if path in cells:
        return cells[path]
    # A text without numbers is one label; the parts of other texts have columns of their own.
    text = f"{path}.text"
    if text in cells and f"{text}[0]" not in cells:
        return cells[text]
    raise Misread("no such column")


def _columns(array: NDArray[Any], path: str) -> Outputs:
    paths = paths_of(array.shape[1:])
    if path not in paths:
        raise Misread("no such column")
    return array.reshape(len(array), -1)[:, paths.index(path)]


def column(written: str) -> Map:
    r"""The number or label at a path (:mod:`audit.outputs.rows`); ``%2B`` is a plus sign."""
    path, name = path_of(written), f"column:{written}"
    return Map(name=name, of_one=_column_of, of_array=_columns, arguments=(path,))


def _text(output: object) -> str:
    # The identity, which is the same in every process; lists, tuples and arrays are not
    # distinguished.
    if isinstance(output, np.ndarray | np.generic):
        output = output.tolist()
    if isinstance(output, list | tuple):
        return f"({','.join(map(_text, output))})"
    return str(identity(output))


def _hash_of(output: object, cells: int) -> int:
    try:
        word = _word(number_of(output))
    except Misread:
        text = _text(output).encode("utf-8", "surrogatepass")
        word = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
    word = (word + _MIX[0]) % _WORD
    word = ((word ^ (word >> 30)) * _MIX[1]) % _WORD
    word = ((word ^ (word >> 27)) * _MIX[2]) % _WORD
    return (word ^ (word >> 31)) % cells


def _word(number: float) -> int:
    # A 64-bit word; equal numbers of different types have the same word.
    if isinstance(number, int) or (number.is_integer() and abs(number) < _WORD >> 1):
        return int(number) % _WORD
    (word,) = struct.unpack("<Q", struct.pack("<d", math.nan if math.isnan(number) else number))
    return int(word)


def hashed(cells: int) -> Map:
    r"""A fixed hash of any output into 0, ..., cells - 1: equal outputs have equal hashes.

    Numbers are mixed by splitmix64 (Steele, Lea and Flood 2014), the text of other outputs by
    BLAKE2b without a key, so that hashes are the same in every process.
    """
    return Map.with_number("hash", cells, _hash_of)
