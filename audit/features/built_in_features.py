r"""The built-in features: functions of one output, such as its sign, length or lowest bit.

Some features read the digits of an output, which reveal noise that was added in floating point. For
a query answer x and noise z, the possible values of the rounded sum x + z depend on x (Mironov
2012, "On significance of the least significant bits for differential privacy"). With x = 0, small
outputs keep all the digits of small noise; with x = 1, they are multiples of 2^-53. ``lowest-bit``
distinguishes multiples of this kind from other floats at every magnitude. For other pairs of
answers, the possible floats differ only at some magnitudes or on one side of 0 (Haney,
Desfontaines, Hartman, Shrestha and Hay 2022, "Precision-based attacks and interval refining").
``precision`` detects these differences.

A list, a tuple, a row of an array, a string (of characters) and bytes (of integers) are sequences.
In a sequence, nan counts as larger than all numbers and as equal to itself.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from audit.outputs.identity import identity
from audit.outputs.output_parser import Outputs, kind
from audit.outputs.rows import path_of, paths_of, row_of

_EXACT: Final = 1 << 53


class Misread(ValueError):
    r"""Raised by a feature for an output to which it does not apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    r"""A function that computes the value of a feature from each output.

    ``of_one`` computes the value of a single output. If it raises an error, the value is the label
    "no NAME: KIND", with the name of the map and the type of the output. ``of_array`` does the same
    faster for an array with one row per run, or for a list of only floats or only 64-bit integers.
    ``of_array`` returns None for an array that it does not support, and raises :class:`Misread` if
    ``of_one`` would raise an error for all outputs. Both functions also receive the ``arguments``.
    """

    name: str
    of_one: Callable[..., object]
    of_array: Callable[..., Outputs | None] | None = None
    arguments: tuple[Any, ...] = ()

    @classmethod
    def with_number(
        cls,
        name: str,
        number: Any,
        of_one: Callable[[Any, Any], object],
        of_array: Callable[[NDArray[Any], Any], Outputs | None] | None = None,
    ) -> Map:
        r"""Make a map from functions that take ``number`` as their second argument."""
        return cls(name=f"{name}:{number!r}", of_one=of_one, of_array=of_array, arguments=(number,))

    def __call__(self, outputs: Outputs) -> Outputs:
        if self.of_array is None:
            return list(map(self._of_any, outputs))
        array = _as_array(outputs)
        if array is not None:
            try:
                found = self.of_array(array, *self.arguments)
            except Misread:
                return [self._label(outputs[0])] * len(array) if len(array) else []
            if found is not None:
                return found
        return [self._of_any(output) for output in each(outputs)]

    def _of_any(self, output: object) -> object:
        try:
            return self.of_one(output, *self.arguments)
        except Exception:  # noqa: BLE001 - an output can be any object, and do anything when read
            return self._label(output)

    def _label(self, output: object) -> str:
        return f"no {self.name}: {kind(output)}"


def is_unread(label: str, feature: str) -> bool:
    r"""Whether a value with the identity ``label`` means that the feature does not apply."""
    return label.startswith(f"'no {feature.rpartition('+')[2]}: ")


def _as_array(outputs: Outputs) -> NDArray[Any] | None:
    if isinstance(outputs, np.ndarray):
        return outputs if outputs.dtype.kind in "iuf" and outputs.dtype.itemsize <= 8 else None
    types = set(map(type, outputs))
    try:
        if types == {float}:
            return np.array(outputs, dtype=np.float64)
        return np.array(outputs, dtype=np.int64) if types == {int} else None
    except OverflowError:  # integers beyond int64: use of_one
        return None


def by_value(found: Outputs) -> Outputs:
    r"""Normalise the types of a feature's values, so that lists and arrays give equal results.

    Numbers become floats, except integers beyond the range of exact floats. Sequences become
    tuples.
    """
    array = _as_array(found) if isinstance(found, np.ndarray) else None
    if array is not None and array.ndim == 1:
        wide = array.astype(np.float64)
        if array.dtype.kind == "f" or not bool((np.abs(wide) >= _EXACT).any()):
            floats: list[object] = wide.tolist()
            return floats
    return [_by_value(item) for item in found]


def _by_value(item: object) -> object:
    match item:
        case bool() | np.bool_():
            return bool(item)
        case str():
            return str(item)
        case list() | tuple() | np.ndarray():
            return tuple(_by_value(inner) for inner in item)
        case np.timedelta64():
            return item
        case int() | np.integer():
            return float(item) if abs(int(item)) < _EXACT else int(item)
        case float() | np.floating():
            wide = float(item)
            return wide if wide == item or math.isnan(wide) else item
        case _:
            return item


def each(outputs: Outputs) -> Sequence[object]:
    r"""The outputs as a sequence of Python objects, or of rows of an array with several axes."""
    if not isinstance(outputs, np.ndarray):
        return outputs
    found: list[object] = outputs.tolist() if outputs.ndim == 1 else list(outputs)
    return found


def number_of(output: object) -> int | float:
    r"""The number that an output is or a 1-item array contains; else raises :class:`Misread`."""
    if isinstance(output, np.ndarray) and output.size == 1:
        output = output.reshape(1)[0]
    match output:
        case bool() | np.timedelta64():
            raise Misread("not a number")
        case int() | np.integer():
            return int(output)
        case float() | np.floating():
            number = float(output)
            if number != output and not math.isnan(number):
                raise Misread("a float with more precision than float64")
            return number
        case _:
            raise Misread("not a number")


# -- numbers ---------------------------------------------------------------------------------------

_FORMATS: Final = {2: ("<e", "<H", 10), 4: ("<f", "<I", 23), 8: ("<d", "<Q", 52)}
_DIGITS: Final = 53
_PART: Final = 10_000
_ABOVE: Final = 1_100  # every float has an exponent above -1100
_TOP: Final = 3_800
_CLOCK: Final = 64


def _flat(array: NDArray[Any]) -> NDArray[Any]:
    # One number per run; a row that contains one number counts as that number.
    if array.size != len(array):
        raise Misread("not a number")
    return array.reshape(len(array))


def _sign(output: object) -> object:
    x = number_of(output)
    if math.isnan(x):
        return math.nan
    if x == 0:
        return "-0" if math.copysign(1.0, x) < 0.0 else 0
    return 1 if x > 0 else -1


def _signs(array: NDArray[Any]) -> Outputs:
    flat = _flat(array)
    if flat.dtype.kind != "f":
        return (flat > 0).astype(np.int64) - (flat < 0)
    signs: NDArray[Any] = np.sign(flat)
    negative_zero = (flat == 0.0) & np.signbit(flat)
    if not bool(negative_zero.any()):
        return signs
    labels = signs.astype(object)
    labels[negative_zero] = "-0"
    return list(labels)


SIGN: Final = Map(name="sign", of_one=_sign, of_array=_signs)
r"""The sign: -1, 0, 1 or nan, or the label "-0" for -0.0, a result of rounding towards zero.

>>> SIGN([-2.5, 0.0, -0.0, 7])
[-1, 0, '-0', 1]
"""


def _exponent(output: object) -> int | float:
    x = number_of(output)
    if x == 0:
        return -math.inf
    if isinstance(x, int):
        return x.bit_length() - 1
    return math.frexp(x)[1] - 1 if math.isfinite(x) else abs(float(x))


def _exponents(array: NDArray[Any]) -> Outputs:
    flat = _flat(array)
    if flat.dtype.kind == "f":
        wide = flat.astype(np.float64)
        _, power = np.frexp(wide)
        return np.where(
            wide == 0.0, -np.inf, np.where(np.isfinite(wide), power - 1.0, np.abs(wide))
        )
    size = flat.astype(np.int64, casting="unsafe").view(np.uint64)
    size = np.where(flat < 0, np.negative(size), size)
    _, power = np.frexp(size.astype(np.float64))
    # Converting an integer just below a power of two to float may round it up to that power.
    power -= np.right_shift(size, np.clip(power - 1, 0, 63).astype(np.uint64)) == 0
    return np.where(size == 0, -np.inf, power - 1.0)


EXPONENT: Final = Map(name="exponent", of_one=_exponent, of_array=_exponents)
r"""The exponent floor(log2 \|x\|); -inf for 0, inf for inf or -inf, and nan for nan.

>>> EXPONENT([0.75, -8.0, 2**100])
[-1, 3, 100]
"""


def _lowest_bit(output: object) -> int | float:
    x = number_of(output)
    if x == 0:
        return math.inf
    if isinstance(x, int):
        return (x & -x).bit_length() - 1
    if not math.isfinite(x):
        return math.nan
    top, bottom = float(x).as_integer_ratio()
    return (top & -top).bit_length() - bottom.bit_length()


def _lowest_bits(array: NDArray[Any]) -> Outputs:
    flat = _flat(array)
    if flat.dtype.kind == "f":
        wide = flat.astype(np.float64)
        usable = np.isfinite(wide) & (wide != 0.0)
        part, power = np.frexp(np.where(usable, wide, 1.0))
        digits = np.ldexp(part, _DIGITS).astype(np.int64)
        _, lowest = np.frexp((digits & -digits).astype(np.float64))
        found = power - _DIGITS + lowest - 1.0
        return np.where(usable, found, np.where(wide == 0.0, np.inf, np.nan))
    pattern = flat.astype(np.int64, casting="unsafe").view(np.uint64)
    _, lowest = np.frexp((pattern & np.negative(pattern)).astype(np.float64))
    return np.where(pattern == 0, np.inf, lowest - 1.0)


LOWEST_BIT: Final = Map(name="lowest-bit", of_one=_lowest_bit, of_array=_lowest_bits)
r"""The largest e for which the number x is a multiple of 2^e; inf for 0, nan if x is not finite.

>>> LOWEST_BIT([0.75, 3 * 2.0**-53, 12])
[-2, -53, 2]
"""


def _precision(output: object) -> object:
    lowest = _lowest_bit(output)
    if not isinstance(lowest, int):  # inf for 0, or nan
        return -lowest
    size = min(int(_exponent(output)), _TOP) + _ABOVE
    return (_PART * -lowest + _PART // 2 + (size if number_of(output) > 0 else -size)) / _PART


def _precisions(array: NDArray[Any]) -> Outputs:
    flat = _flat(array)
    lowest, exponent = (np.asarray(found(flat)) for found in (_lowest_bits, _exponents))
    usable = np.isfinite(lowest)
    size = np.where(usable, exponent, 0.0) + _ABOVE
    side = _PART // 2 + np.where(flat > 0, size, -size)
    return np.where(usable, (_PART * np.where(usable, -lowest, 0.0) + side) / _PART, -lowest)


PRECISION: Final = Map(name="precision", of_one=_precision, of_array=_precisions)
r"""The precision of a number x, together with its magnitude.

The value is p + 1/2 + s (k + 1100)/10^4, where p is the number of fractional binary digits of x
(minus its ``lowest-bit``), k its exponent and s its sign; -inf for 0, nan if x is not finite.
Values are ordered by p, and for equal p by the sign and the exponent of x.

The three parts detect different leaks. Lowest bits alone detect that noise is added to 0 in only
one dataset (Mironov 2012). With exponents, a test also distinguishes noise added to 1 from noise
added to 1.1, where both sums lose the same last bits except where they are small, and detects noise
that is scaled after the addition (by 0.3, or by 1/100 for a mean), which makes some floats of each
magnitude impossible. With signs, it also distinguishes noise added to -1 from noise added to 1,
where one output is the mirror image of the other.

>>> PRECISION([0.75, -0.75, 12])
[2.6099, 2.3901, -1.3897]
"""


def _last_bits_of(output: object, bits: int) -> object:
    x = number_of(output)
    if isinstance(x, int):
        return x & ((1 << bits) - 1)
    if not math.isfinite(x):
        return x
    size = output.dtype.itemsize if isinstance(output, np.floating | np.ndarray) else 8
    if size not in _FORMATS:
        raise Misread("an unsupported float format")
    as_float, as_bits, digits = _FORMATS[size]
    (pattern,) = struct.unpack(as_bits, struct.pack(as_float, x))
    return int(pattern) & ((1 << min(bits, digits)) - 1)


def _last_bits(array: NDArray[Any], bits: int) -> Outputs:
    flat = _flat(array)
    if flat.dtype.kind != "f":
        return flat.astype(np.int64, casting="unsafe") & ((1 << bits) - 1)
    size = flat.dtype.itemsize
    pattern = flat.astype(flat.dtype.newbyteorder("=")).view(f"u{size}").astype(np.int64)
    found = pattern & ((1 << min(bits, _FORMATS[size][2])) - 1)
    finite = np.isfinite(flat)
    return found if bool(finite.all()) else np.where(finite, found, flat.astype(np.float64))


def last_bits(bits: int) -> Map:
    r"""The feature ``last-bits``: the lowest ``bits`` bits of an integer or a float's significand.

    A float64 has 52 stored bits of significand, and a float32 has 23. inf and nan are unchanged.
    """
    return Map.with_number("last-bits", bits, _last_bits_of, _last_bits)


def _modulo_of(output: object, step: float) -> object:
    x = number_of(output)
    if isinstance(x, int) and float(step).is_integer():
        return (x % int(step)) / step
    return float(parts_of_step(np.array([x], dtype=np.float64), step=step)[0])


def parts_of_step(numbers: NDArray[Any], *, step: float) -> NDArray[np.float64]:
    r"""Each number modulo ``step``, as a fraction of the step (:func:`modulo`)."""
    wide = numbers.astype(np.float64)
    finite = np.isfinite(wide)
    rest = np.fmod(np.where(finite, wide, 0.0), step)  # fmod is exact
    found = np.rint(rest / step * _CLOCK) % _CLOCK / _CLOCK
    if float(step).is_integer():
        found = np.where(wide == np.rint(wide), rest % step / step, found)
    return np.where(finite, found, wide)


def _modulo(array: NDArray[Any], step: float) -> NDArray[Any] | None:
    flat = _flat(array)
    if flat.dtype.kind == "f" or not float(step).is_integer():
        return parts_of_step(flat, step=step)
    return flat.astype(np.int64) % int(step) / step if flat.dtype.kind == "i" else None


def modulo(step: float) -> Map:
    r"""The feature ``modulo``: the remainder of a number modulo a step, as a fraction of the step.

    The fraction is exact if the number and the step are integers; otherwise it is rounded to the
    nearest 64th. inf and nan are unchanged. The feature reveals noise that lies on a grid: if noise
    with multiples of 0.01 is added to a value that is not a multiple, the remainder modulo 0.01 is
    the same in every run, and depends on the value.
    """
    return Map.with_number("modulo", step, _modulo_of, _modulo)


def _round_of(output: object, digits: int) -> object:
    match output:
        case list() | tuple():
            return tuple(_round_of(item, digits) for item in output)
        case np.ndarray() if output.ndim:
            return tuple(_round_of(item, digits) for item in output)
    x = number_of(output)
    if isinstance(x, int) and digits >= 0:
        return x
    return float(_round(np.array([x], dtype=np.float64), digits)[0])


def _round(array: NDArray[Any], digits: int) -> NDArray[Any]:
    if array.dtype.kind != "f" and digits >= 0:
        return array
    wide, power = array.astype(np.float64), 10.0 ** abs(digits)
    with np.errstate(over="ignore", invalid="ignore"):
        if digits >= 0:
            found = np.rint(wide * power) / power
        else:
            found = np.rint(wide / power) * power
    # A number whose scaled value overflows is an integer, so it is returned unchanged.
    return np.where(np.isfinite(found), found, wide)


def rounded(digits: int) -> Map:
    r"""The feature ``round``: every number rounded to ``digits`` decimals, also within sequences.

    A vector of floats rarely occurs twice. Rounded vectors may repeat, so they can be counted.
    """
    return Map.with_number("round", digits, _round_of, _round)


# -- sequences, and outputs of any kind ------------------------------------------------------------

_MIX: Final = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_WORD: Final = 1 << 64


def _items(output: object) -> Sequence[Any]:
    match output:
        case list() | tuple() | str() | bytes():
            return output
        case np.ndarray() if output.ndim:
            return list(output.tolist())
        case _:
            raise Misread("not a sequence")


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
        raise Misread("not a sequence")
    return array.reshape(len(array), -1) if array.size else None


def _kind(output: object) -> str:
    # numpy's float64 and int64 count as Python's numbers, because outputs that all have such a type
    # are joined to an array, which does not distinguish numpy's types from Python's.
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
r"""The items in sorted order.

>>> SORTED([[3, 1, 2], "ba"])
[(1, 2, 3), ('a', 'b')]
"""


def _distinct(output: object) -> int:
    return len({_same_as(item) for item in _items(output)})


def _same_as(item: object) -> object:
    # A key that is equal for equal numbers, and for other items if their texts are equal.
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
    r"""The feature ``coordinate``: the item of a sequence at an index; -1 is the last item."""
    return Map.with_number("coordinate", place, _coordinate_of, _coordinates)


def _structure_of(output: object) -> str:
    return row_of(output).structure


STRUCTURE: Final = Map(name="structure", of_one=_structure_of)
r"""The structure without the values: types, keys and their order, nesting, lengths.

>>> STRUCTURE([{"a": 1}, [True, 2.5]])
["dict('a': int)", 'list(bool, float)']
"""


def _column_of(output: object, path: str) -> object:
    cells = dict(reversed(row_of(output).cells))  # the first cell of each path
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
    r"""The feature ``column``: the number or label at a path (:mod:`audit.outputs.rows`)."""
    path, name = path_of(written), f"column:{written}"
    return Map(name=name, of_one=_column_of, of_array=_columns, arguments=(path,))


def _text(output: object) -> str:
    # The identity as text, which is the same in every process, but does not distinguish lists from
    # tuples and arrays.
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
    r"""The feature ``hash``: a fixed hash of any output into 0, ..., cells - 1.

    Equal outputs have equal hashes, in every process. A number is hashed with splitmix64 (Steele,
    Lea and Flood 2014). Any other output is first reduced to a number: the BLAKE2b hash of its
    text.
    """
    return Map.with_number("hash", cells, _hash_of)
