r"""Tests of `dpcore.numbers.rounding`: printed bounds are on the safe side, within one digit."""

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpcore.errors import InvalidParameter
from dpcore.numbers.rounding import down, up

ENDS = st.one_of(
    st.fractions(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.builds(lambda n, k: Fraction(n, 7**k), st.integers(-(10**9), 10**9), st.integers(0, 3000)),
)


@given(ENDS, st.integers(1, 12))
@example(1.23456, 4)  # the nearest decimals of these are on the wrong side
@example(0.0012344, 3)
def test_a_printed_bound_is_safe_and_close(value: Fraction | float, digits: int) -> None:
    low, high = Fraction(down(value, digits)), Fraction(up(value, digits))
    assert low <= Fraction(value) <= high
    assert high - low <= abs(Fraction(value)) * Fraction(10) ** (1 - digits)


@pytest.mark.parametrize("write", [down, up])
def test_infinite_ends_are_printed_with_sign_and_nan_is_refused(
    write: Callable[[float], str],
) -> None:
    assert [write(math.inf), write(-math.inf)] == ["infinity", "-infinity"]
    with pytest.raises(InvalidParameter, match="must be a number"):
        write(math.nan)
