r"""Parse outputs for the tests: order numbers exactly, and distinguish other values by identity.

All outputs that a recipient can distinguish are distinguished (:mod:`audit.outputs.identity`).
Finite numbers are ordered without rounding. If all numbers have the same type, 64-bit integers are
compared as int64, and floats as int64 values in the same order (with -0.0 just before 0.0). All
other numbers (larger integers, fractions, decimals, mixed types) are compared one by one in Python.
An output that is not a finite number is a *label*: a string, a tuple, None, or a row of an array.
Each of nan, inf and -inf is also a label.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from audit.outputs.identity import (
    Exact,
    Name,
    Number,
    array_form,
    distinct_rows,
    identity,
    number_in,
)
from dpcore.errors import ABSENT, InvalidParameter

Integers = NDArray[np.int64]

_MAX: Final = np.int64(2**63 - 1)
_EXACT: Final = 2.0**53
_READABLE: Final = 1e15
_BARE: Final = frozenset({"int", "float", "int64", "float64"})
_DTYPE: Final = re.compile(r"(?:[<>]?[uif]|u?int|float|longdouble)[0-9]*(?:\([0-9, ]*\))?")


class Place(NamedTuple):
    r"""A position on the real line: at ``value`` or, if ``behind`` is true, immediately above."""

    value: Any  # an audit.outputs.identity.Exact
    form: str
    behind: bool = False

    @property
    def words(self) -> str:
        r"""The number as text, as it was written in the output if this is known."""
        value, form = self.value, self.form
        if isinstance(value, float) and value == 0.0:
            form = form.removeprefix("-")
        if form in _BARE:
            return _format_number(value)
        if not _DTYPE.fullmatch(form):
            return form
        kind, array, shape = form.partition("(")
        if not array:
            return f"np.{form}({_format_number(value)})"
        depth = len(re.findall("[0-9]+", shape))
        more = "" if kind in _BARE else f", dtype={kind}"
        return f"array({'[' * depth}{_format_number(value)}{']' * depth}{more})"


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberLine:
    r"""An array of numbers that are compared exactly, without rounding.

    If ``form`` is not None, all numbers have this type, and ``places`` contains integers. If
    ``floats`` is true, these integers represent floats in the same order. If ``form`` is None,
    ``places`` contains :class:`Place` objects.
    """

    places: NDArray[Any]
    form: str | None = None
    floats: bool = False

    @classmethod
    def empty(cls, runs: int = 0) -> NumberLine:
        r"""An array of ``runs`` zeros, as placeholders for outputs that are not numbers."""
        return cls(places=np.zeros(runs, dtype=np.int64), form="")

    @classmethod
    def of_floats(cls, numbers: NDArray[np.floating[Any]], form: str) -> NumberLine:
        r"""Build the array from floats of at most 64 bits; nan and infinities become arbitrary."""
        bits = np.ascontiguousarray(numbers, dtype=np.float64).view(np.int64)
        return cls(places=np.where(bits < 0, bits ^ _MAX, bits), form=form, floats=True)

    @classmethod
    def of_int(cls, numbers: Sequence[int] | NDArray[Any], form: str = "int") -> NumberLine:
        if isinstance(numbers, np.ndarray):
            if numbers.dtype.kind != "u" or not np.any(numbers > _MAX):
                return cls(places=numbers.astype(np.int64), form=form)
            numbers = numbers.tolist()
        try:
            return cls(places=np.array(numbers, dtype=np.int64), form=form)
        except OverflowError:
            return cls.of_numbers([Number(number, form) for number in numbers])

    @classmethod
    def of_numbers(cls, numbers: Sequence[Number]) -> NumberLine:
        return cls(places=_objects(_place(*number) for number in numbers))

    @classmethod
    def joined(cls, lines: Sequence[NumberLine]) -> NumberLine:
        kept = [line for line in lines if len(line)]
        if not kept:
            return cls.empty()
        first = kept[0]
        if any((line.form, line.floats) != (first.form, first.floats) for line in kept):
            return cls(places=np.concatenate([_objects(line.listed()) for line in kept]))
        places = np.concatenate([line.places for line in kept])
        return cls(places=places, form=first.form, floats=first.floats)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, part: slice | NDArray[Any]) -> NumberLine:
        return NumberLine(places=self.places[part], form=self.form, floats=self.floats)

    def listed(self) -> list[Place]:
        if self.form is None:
            return list(self.places)
        form = self.form
        return [_place(value, form) for value in self.values.tolist()]

    @property
    def values(self) -> NDArray[Any]:
        if self.form is None:
            return _objects(place.value for place in self.places)
        if not self.floats:
            return self.places
        return np.where(self.places < 0, self.places ^ _MAX, self.places).view(np.float64)

    def as_floats(self) -> NDArray[np.float64]:
        r"""The nearest floats, for a plot, clipped to the range of finite floats."""
        return np.array([as_float(value) for value in self.values.tolist()], dtype=np.float64)

    @property
    def integral(self) -> bool:
        r"""Whether all numbers have integer values and one type, and none is -0.0."""
        if self.form is None:
            forms = {place.form for place in self.places}
            return len(forms) <= 1 and all(isinstance(place.value, int) for place in self.places)
        if not self.floats:
            return True
        values = self.values
        negative_zero = (values == 0.0) & np.signbit(values)
        return bool((values == np.rint(values)).all()) and not bool(negative_zero.any())

    @property
    def zeros(self) -> NumberLine:
        r"""The floats -0.0 and 0.0."""
        return self.of_floats(np.array([-0.0, 0.0]), self.form or "")

    @property
    def signed_zeros(self) -> bool:
        r"""Whether the numbers, which must be sorted, include both floats 0.0 and -0.0."""
        return self.floats and bool(np.isin(self.zeros.places, self.places).all())

    def unique(self) -> tuple[NumberLine, Integers, Integers]:
        r"""The sorted distinct numbers, first indices and inverse indices, as in numpy.unique."""
        found, first, index = np.unique(self.places, return_index=True, return_inverse=True)
        return (
            NumberLine(places=found, form=self.form, floats=self.floats),
            first.astype(np.int64),
            index.astype(np.int64),
        )

    def behind(self, *, integral: bool) -> NumberLine:
        r"""The position just above each number, or the next integer if ``integral`` is true.

        If ``form`` is None, the positions are :class:`Place` objects just above also for integers.
        """
        if self.form is None:
            return NumberLine(places=_objects(place._replace(behind=True) for place in self.places))
        if self.floats and integral:
            values = self.values
            following = np.nextafter(values, math.inf)
            near = np.abs(following) <= _EXACT
            return NumberLine.of_floats(np.where(near, values + 1.0, following), self.form)
        return NumberLine(places=self.places + 1, form=self.form, floats=self.floats)

    def before(self) -> NumberLine:
        r"""The largest float below each number. All numbers must be floats of one type."""
        return NumberLine(places=self.places - 1, form=self.form, floats=self.floats)

    def search(self, numbers: NumberLine) -> Integers:
        r"""For each of ``numbers``, count the entries of this sorted array that are not larger."""
        if not len(self) or not len(numbers):
            return np.zeros(len(numbers), dtype=np.int64)
        mine, theirs = self.places, numbers.places
        if (self.form, self.floats) != (numbers.form, numbers.floats):
            mine, theirs = _objects(self.listed()), _objects(numbers.listed())
        return np.searchsorted(mine, theirs, side="right").astype(np.int64)


def _objects(items: Iterable[object]) -> NDArray[Any]:
    # An array of objects in which a tuple is one entry.
    return np.fromiter(items, dtype=object)


def _place(value: Exact, form: str) -> Place:
    # -0.0 equals 0.0, but is ordered before it.
    if isinstance(value, float) and value == 0.0 and math.copysign(1.0, value) < 0.0:
        form = f"-{form}"
    return Place(value, form)


def _format_number(value: Exact) -> str:
    if not isinstance(value, float):
        return str(value)
    whole = value.is_integer() and abs(value) < _READABLE and repr(value) != "-0.0"
    return str(int(value)) if whole else repr(value)


def as_float(value: Exact) -> float:
    r"""The nearest float, clipped to the range of finite floats."""
    try:
        found = float(value)
    except OverflowError:
        found = math.inf if value > 0 else -math.inf
    largest = float(np.finfo(np.float64).max)
    return min(max(found, -largest), largest)


_NOWHERE: Final = Number(0, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    r"""The parsed outputs of runs, in run order.

    Output i is the number ``numbers[i]`` if ``codes[i] < 0``. Otherwise it is the label
    ``names[codes[i]]``, that is, an output that is not a finite number.
    """

    numbers: NumberLine
    codes: Integers
    names: Sequence[str | Name]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, part: slice | NDArray[Any]) -> Reading:
        return Reading(numbers=self.numbers[part], codes=self.codes[part], names=self.names)


def read(outputs: object) -> Reading:
    r"""Parse the outputs of runs: an array with one row per run, or a sequence of any objects.

    Each output is parsed independently of the others and without rounding; outputs of different
    types are different. Raises :class:`InvalidParameter` if ``outputs`` is an array without axes, a
    string, or another object that is not such a sequence.
    """
    if isinstance(outputs, np.ndarray):
        if outputs.ndim == 0:
            raise InvalidParameter("outputs", outputs, "must contain one output per run")
        return _read_array(outputs)
    if isinstance(outputs, (str, bytes)) or not isinstance(outputs, Sequence):
        raise InvalidParameter("outputs", outputs, "must be an array or a list, one output per run")
    types = set(map(type, outputs))
    if len(types) == 1:
        (kind,) = types
        if kind is int:
            return _plain(NumberLine.of_int(outputs))
        if kind is float:
            return _read_floats(np.array(outputs, dtype=np.float64), "float")
        if issubclass(kind, np.number) and kind.__module__ == "numpy" and kind not in _LARGE:
            return _read_array(np.array(outputs))
    return _read_objects(outputs)


_LARGE: Final = frozenset({np.longdouble, np.timedelta64})


def _read_array(array: NDArray[Any]) -> Reading:
    dtype, rest = array.dtype, array.shape[1:]
    form = array_form(dtype, rest) if rest else dtype.name
    if rest == (1,) * len(rest):
        flat = array.reshape(len(array))
        if dtype.kind in "iu":
            return _plain(NumberLine.of_int(flat, form))
        if dtype.kind == "f" and dtype.itemsize <= 8:
            return _read_floats(flat, form, rest)
    if array.ndim == 1 and dtype.kind == "b":
        names = (identity(np.False_), identity(np.True_))
        return _labelled(array.astype(np.int64), names)
    plain = dtype.kind in "biuf" and dtype.itemsize <= 8
    if plain and len(array) and math.prod(rest) > 1:
        return _labelled(*distinct_rows(array))
    return _read_objects(list(array))


def _labelled(codes: Integers, names: Sequence[str | Name]) -> Reading:
    return Reading(numbers=NumberLine.empty(len(codes)), codes=codes, names=names)


def _plain(numbers: NumberLine) -> Reading:
    return Reading(numbers=numbers, codes=np.full(len(numbers), -1, dtype=np.int64), names=())


def _read_floats(numbers: NDArray[Any], form: str, shape: tuple[int, ...] = ()) -> Reading:
    codes = np.full(len(numbers), -1, dtype=np.int64)
    names: list[str | Name] = []
    if not bool(np.isfinite(numbers).all()):
        for odd in (math.nan, math.inf, -math.inf):
            codes[np.isnan(numbers) if math.isnan(odd) else numbers == odd] = len(names)
            own = numbers.dtype.type(odd)
            names.append(
                identity(odd if form == "float" else np.full(shape, own) if shape else own)
            )
    return Reading(numbers=NumberLine.of_floats(numbers, form), codes=codes, names=tuple(names))


def _read_objects(outputs: Sequence[object]) -> Reading:
    codes = np.full(len(outputs), -1, dtype=np.int64)
    known: dict[str | Name, int] = {}
    numbers = [_NOWHERE] * len(outputs)
    for i, output in enumerate(outputs):
        number = number_in(output)
        if number is None:
            codes[i] = known.setdefault(identity(output), len(known))
        else:
            numbers[i] = number
    if known and bool((codes >= 0).all()):
        return _labelled(codes, tuple(known))
    return Reading(numbers=NumberLine.of_numbers(numbers), codes=codes, names=tuple(known))


def read_worlds(worlds: object, runs: int) -> NDArray[np.bool_]:
    r"""Parse the datasets of the runs: one truth value per run, which is True for dataset B."""
    array = np.asarray(worlds)
    if array.ndim != 1 or (array.dtype != np.bool_ and array.size):
        raise InvalidParameter("worlds", worlds, "must be a list of bools, True for dataset B")
    if len(array) != runs:
        reason = f"must contain {runs} bools, one per run, but contains {len(array)}"
        raise InvalidParameter("worlds", ABSENT, reason)
    return array.astype(np.bool_)
