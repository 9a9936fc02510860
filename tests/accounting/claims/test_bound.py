"""Bounds as numbers: which end is given, how it is rounded, what a comparison may decide."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import Bound
from dpcore.errors import InvalidParameter, Undecided
from dpcore.numbers.enclosure import Enclosure
from tests.support.dpcore.mutants import rewired

THIRD = Fraction(1, 3)


def bound(lower: Any, upper: Any, **others: Any) -> Bound:
    low = None if lower is None else lower
    return Bound(lower=low, upper=upper, method="m", theorem="t", **others)


ends = st.fractions(min_value=-20, max_value=20, max_denominator=10**6)


@given(ends, st.integers(min_value=0, max_value=12), st.sampled_from("fe%"))
def test_the_decimals_printed_are_on_the_safe_side(end: Fraction, places: int, kind: str) -> None:
    above, below = bound(end, end), bound(end, end, safe="lower")
    scale = 100 if kind == "%" else 1
    for shown, sign in ((above, 1), (below, -1)):
        text = format(shown, f".{places}{kind}").rstrip("%")
        error = sign * (Fraction(text) / scale - end)
        grain = Fraction(1, 10**places) * (1 + 10 * abs(end))
        unit = grain / (1 if kind == "e" else scale)
        assert 0 <= error <= unit + Fraction(1, 10**12)
        assert sign * (Fraction(float(shown)) - end) >= 0


def test_rounding_to_nearest_would_be_seen() -> None:
    # The twins: to the nearest, and towards the wrong end.
    assert f"{bound(None, THIRD):.3f}" == "0.334" != f"{float(THIRD):.3f}"
    assert f"{bound(THIRD, THIRD, safe='lower'):.3f}" == "0.333"
    assert f"{bound(None, Fraction(2, 3)):.2e}" == "6.67e-1"
    assert f"{bound(Fraction(2, 3), 1, safe='lower'):.3f}" == "0.666"
    assert f"{bound(None, Fraction(1, 10)):.3f}" == "0.100"
    assert f"{bound(None, math.inf):>8.3f}" == "     inf"
    assert f"{bound(None, THIRD)}" == "Bound(at most 0.33333333333333334, 'm')"
    floor = rewired(Bound.__format__, ROUND_CEILING="ROUND_FLOOR")
    assert floor(bound(None, THIRD), ".3f") == "0.333"
    with pytest.raises(ValueError, match="format"):
        f"{bound(None, THIRD):d}"


@pytest.mark.parametrize("one", [bound(1, 2), Enclosure(Fraction(1), Fraction(2))], ids=repr)
def test_what_holds_of_every_number_in_between_is_decided(one: Any) -> None:
    assert one < 3
    assert one <= 2
    assert one > 0.5
    assert one >= Decimal(1)
    assert not one < 1
    assert not one <= Fraction(1, 2)
    assert not one > 2
    assert not one >= math.inf
    assert 0 < one < 2.5  # from the left as well
    other = Enclosure(Fraction(2), Fraction(5))
    assert one <= other
    assert not other < one
    open_ones: list[Callable[[], object]] = [
        lambda: one < 2,
        lambda: one <= 1,
        lambda: one > 1.5,
        lambda: one >= 2,
        lambda: one >= other,
    ]
    for undecided in open_ones:
        with pytest.raises(Undecided, match="is undecided"):
            undecided()


def test_a_missing_end_decides_nothing() -> None:
    one = bound(None, 2)
    assert one <= 2
    assert one < math.inf
    assert not one > 2
    open_ones: list[Callable[[], object]] = [
        lambda: one >= 0,
        lambda: one < 2,
        lambda: one > 0,
        lambda: one >= 1,
    ]
    for undecided in open_ones:
        with pytest.raises(Undecided):
            undecided()


@pytest.mark.parametrize("one", [bound(1, 1), Enclosure.exactly(1)], ids=repr)
def test_no_bound_equals_a_number_or_is_a_truth_value(one: Any) -> None:
    asked: list[Callable[[], object]] = [
        lambda: one == 1,
        lambda: one == 1.0,
        lambda: one != Fraction(1),
        lambda: bool(one),
        lambda: one and 3,
        lambda: one < "2",
        lambda: one < None,
    ]
    for refused in asked:
        with pytest.raises(TypeError):
            refused()
    assert one != "1"
    with pytest.raises(InvalidParameter):
        assert one < Decimal("nan")


def test_equal_bounds_say_the_same() -> None:
    assert bound(1, 2) == bound(1, 2)
    assert hash(bound(1, 2)) == hash(bound(1, 2))
    for other in (bound(None, 2), bound(1, 3), bound(1, 2, safe="lower"), Enclosure(1.0, 2.0)):
        assert bound(1, 2) != other
    with pytest.raises(InvalidParameter, match="lower"):
        bound(2, 1)
    with pytest.raises(InvalidParameter, match="rely on"):
        bound(None, 1, safe="lower")
