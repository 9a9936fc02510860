"""Tests of `dpcore.numbers.exp_field`: arithmetic with e^(-unit) against mpmath; equality."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mpf

from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.exp_field import ExpRational
from tests.support.dpcore.mpmath_precision import real

UNITS = st.sampled_from([Fraction(1), Fraction(1, 3), Fraction(5, 2), Fraction(1, 1000)])
WAYS = st.lists(
    st.tuples(st.sampled_from("+-*/r"), st.fractions(-3, 3, max_denominator=7), st.integers(-3, 3)),
    max_size=6,
)


@given(UNITS, WAYS)
def test_arithmetic_agrees_with_mpmath(unit: Fraction, ways: list[Any]) -> None:
    number = ExpRational.base(unit)
    with mpmath.workdps(60):
        truth = mpmath.exp(-real(unit))
        for kind, value, power in ways:
            x = ExpRational.base(unit) ** power + value
            y = mpmath.exp(-real(unit) * power) + real(value)
            match kind:
                case "+":
                    number, truth = number + x, truth + y
                case "-":
                    number, truth = x - number, y - truth
                case "*":
                    number, truth = number * x * value, truth * y * real(value)
                case "/" if x:
                    number, truth = number / x, truth / y
                case "r" if number:
                    number, truth = value / number**2, real(value) / truth**2
        found = number.enclose(100)
        assert abs(real(Fraction(found.lower)) - truth) <= abs(truth) * mpf(10) ** -25
        assert (number > 1) == (truth > 1)


def test_equal_numbers_in_different_forms_are_equal() -> None:
    x = ExpRational.base(Fraction(1, 2))
    assert (1 - x**2) / (1 + x) == 1 - x
    assert not (1 - x**2) / (1 + x) < 1 - x
    assert x * x.power_of_e(Fraction(1, 2)) == 1  # type: ignore[operator]  # it is in the field
    assert x**2 != x * x + Fraction(1, 10**300)
    assert x**2 < x * x + Fraction(1, 10**300)
    assert ((x + 1) / (1 + x)).enclose(64) == Enclosure.exactly(1)
    assert ((1 - x**4) - 1 + x**4).rational == 0
    assert (x**2 / x**9).log == Fraction(7, 2)
    assert (2 * x).log is None
    assert (x + 1).rational is None
    assert x.power_of_e(Fraction(1, 3)) is None
    for unit in (Fraction(0), Fraction(1, 3)):
        with pytest.raises(InvalidParameter, match="unit"):
            _ = x + ExpRational.base(unit)
