r"""Order numbers exactly: by value, and equal values by how they are written.

No number is rounded on the way. Where all are of one form, integers of 64 bits are themselves and
floats are the integers that IEEE 754 orders alike (-0.0 just before 0.0), so that both are compared
as int64. Anything else (larger integers, fractions, decimals, forms side by side) is compared one
by one, as Python does: exactly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from audit.outputs.identity import Exact, Number

Integers = NDArray[np.int64]

_MAX: Final = np.int64(2**63 - 1)
_EXACT: Final = 2.0**53
_READABLE: Final = 1e15
_BARE: Final = frozenset({"int", "float", "int64", "float64"})
_DTYPE: Final = re.compile(r"(?:u?int|float|longdouble)[0-9]*(?:\([0-9, ]*\))?")


class Place(NamedTuple):
    r"""Where a number stands: at its value, or ``behind`` it with nothing between."""

    value: Any  # of audit.outputs.identity.Exact
    form: str
    behind: bool = False

    @property
    def words(self) -> str:
        r"""The number as it was written, where its form says so.

        >>> Place(2.0, "float").words, Place(2, "int8").words, Place(2, "2e0").words
        ('2', 'np.int8(2)', '2e0')
        """
        value, form = self.value, self.form
        if isinstance(value, float) and value == 0.0:
            form = form.removeprefix("-")
        if form in _BARE:
            return _shown(value)
        return f"np.{form}({_shown(value)})" if _DTYPE.fullmatch(form) else form


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberLine:
    r"""Numbers in an array; ``places`` are integers where all have one ``form``, else objects.

    ``floats`` says that the integers stand for floats.
    """

    places: NDArray[Any]
    form: str | None = None
    floats: bool = False

    @classmethod
    def empty(cls) -> NumberLine:
        return cls(places=np.zeros(0, dtype=np.int64), form="")

    @classmethod
    def of_floats(cls, numbers: NDArray[np.floating[Any]], form: str) -> NumberLine:
        r"""Of floats of at most 64 bits, which must be finite where they count."""
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
        r"""What the numbers are worth: integers, floats, or objects."""
        if self.form is None:
            return _objects(place.value for place in self.places)
        if not self.floats:
            return self.places
        return np.where(self.places < 0, self.places ^ _MAX, self.places).view(np.float64)

    def as_floats(self) -> NDArray[np.float64]:
        r"""The nearest floats, for a picture; beyond them all, the last one."""
        return np.array([as_float(value) for value in self.values.tolist()], dtype=np.float64)

    @property
    def integral(self) -> bool:
        r"""Whether every number is an integer of one form, so that no other lies between n, n+1."""
        if self.form is None:
            forms = {place.form for place in self.places}
            return len(forms) <= 1 and all(isinstance(place.value, int) for place in self.places)
        if not self.floats:
            return True
        values = self.values
        negative_zero = (values == 0.0) & np.signbit(values)
        return bool((values == np.rint(values)).all()) and not bool(negative_zero.any())

    def unique(self) -> tuple[NumberLine, Integers, Integers]:
        r"""The distinct numbers in order, for each the first place it is at, for each place which
        one it is.
        """
        found, first, index = np.unique(self.places, return_index=True, return_inverse=True)
        return (
            NumberLine(places=found, form=self.form, floats=self.floats),
            first.astype(np.int64),
            index.astype(np.int64),
        )

    def behind(self, *, integral: bool) -> NumberLine:
        r"""Just behind each number; at the next whole one, where all there are is ``integral``."""
        if self.form is None:
            return NumberLine(places=_objects(place._replace(behind=True) for place in self.places))
        if self.floats and integral:
            values = self.values
            following = np.nextafter(values, math.inf)
            near = np.abs(following) <= _EXACT
            return NumberLine.of_floats(np.where(near, values + 1.0, following), self.form)
        return NumberLine(places=self.places + 1, form=self.form, floats=self.floats)

    def before(self) -> NumberLine:
        r"""The float just before each one: these are floats of one form."""
        return NumberLine(places=self.places - 1, form=self.form, floats=self.floats)

    def search(self, numbers: NumberLine) -> Integers:
        r"""How many of these, in order, are at or before each of the numbers."""
        if not len(self) or not len(numbers):
            return np.zeros(len(numbers), dtype=np.int64)
        mine, theirs = self.places, numbers.places
        if (self.form, self.floats) != (numbers.form, numbers.floats):
            mine, theirs = _objects(self.listed()), _objects(numbers.listed())
        return np.searchsorted(mine, theirs, side="right").astype(np.int64)


def _objects(items: Iterable[object]) -> NDArray[Any]:
    # An array of objects, in which a tuple is one entry.
    return np.fromiter(items, dtype=object)


def _place(value: Exact, form: str) -> Place:
    # -0.0 equals 0.0, and stands before it.
    if isinstance(value, float) and value == 0.0 and math.copysign(1.0, value) < 0.0:
        form = f"-{form}"
    return Place(value, form)


def _shown(value: Exact) -> str:
    if not isinstance(value, float):
        return str(value)
    whole = value.is_integer() and abs(value) < _READABLE and repr(value) != "-0.0"
    return str(int(value)) if whole else repr(value)


def as_float(value: Exact) -> float:
    r"""The nearest float, or the last one."""
    try:
        found = float(value)
    except OverflowError:
        found = math.inf if value > 0 else -math.inf
    largest = float(np.finfo(np.float64).max)
    return min(max(found, -largest), largest)
