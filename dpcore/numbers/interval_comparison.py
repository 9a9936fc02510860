r"""Comparisons of intervals, which hold for the whole interval or raise an error.

A proven bound is an interval: ``bound <= 1`` may hold for all numbers in it, for none, or only for
some. In the third case the comparison is undecided and raises an error.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import NoReturn

from dpcore.errors import Undecided
from dpcore.numbers.parameter import rational

_NUMBERS = (int, float, Fraction, Decimal)


class Ordered:
    r"""A base class for ``<``, ``<=``, ``>`` and ``>=`` with numbers and other intervals.

    A float is read by its shortest decimal form: 0.1 is one tenth. Comparing an interval with a
    number by ``==``, or using an interval as a truth value, raises :class:`TypeError`; an undecided
    comparison raises :class:`Undecided`.
    """

    __slots__ = ()

    def _interval(self) -> tuple[Fraction | float, Fraction | float]:
        # Both ends; infinite where there is no bound.
        raise NotImplementedError

    def __lt__(self, other: object) -> bool:
        return _below(self, other, "<", strictly=True)

    def __le__(self, other: object) -> bool:
        return _below(self, other, "<=", strictly=False)

    def __gt__(self, other: object) -> bool:
        found = _below(self, other, ">", strictly=False)
        return found if found is NotImplemented else not found

    def __ge__(self, other: object) -> bool:
        found = _below(self, other, ">=", strictly=True)
        return found if found is NotImplemented else not found

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self!r} has no truth value; compare it with a number, as in bound <= 1")

    def _refuse_number(self, other: object) -> None:
        # An interval is not a number: == would be False even for the value that it encloses.
        if isinstance(other, _NUMBERS):
            raise TypeError(f"{self!r} == {other!r} is undefined: use <, <=, >, >= or its bounds")


def _below(one: Ordered, other: object, sign: str, *, strictly: bool) -> bool:
    ends = _ends(other)
    if ends is None:
        return NotImplemented  # type: ignore[no-any-return]  # as a comparison does
    (low, high), (least, most) = one._interval(), ends
    if high < least or (high == least and not strictly):
        return True
    if low > most or (low == most and strictly):
        return False
    raise Undecided(f"{one!r} {sign} {other!r}")


def _ends(value: object) -> tuple[Fraction | float, Fraction | float] | None:
    if isinstance(value, Ordered):
        return value._interval()
    if not isinstance(value, _NUMBERS):
        return None
    if isinstance(value, (float, Decimal)) and math.isinf(value):
        return float(value), float(value)
    exact = rational("number", value)
    return exact, exact
