r"""Tests of `dpcore.numbers.enclosure`: bounds under rounding, printing, infinities and threads."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import example, given
from hypothesis import strategies as st
from threadpoolctl import (  # type: ignore[import-untyped]  # it has no types
    threadpool_info,
    threadpool_limits,
)

from dpcore import Enclosure, InvalidParameter, PrecisionExhausted
from dpcore.numbers.arrays import one_thread
from dpcore.numbers.enclosure import ball, narrow, precision, round_down, round_up
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.threads import at_once

RATIONALS = st.builds(
    lambda n, d, e: Fraction(n, d) * Fraction(2) ** e,
    st.integers(-(10**20), 10**20),
    st.integers(1, 10**20),
    st.integers(-1200, 1200),
)


def best_upper(value: Fraction, found: float) -> bool:
    r"""Whether ``found`` is the least float at or above ``value``, read as text or not."""
    return _above(value, found) and not _above(value, math.nextafter(found, -math.inf))


def _above(value: Fraction, found: float) -> bool:
    if math.isinf(found):
        return found > 0
    return Fraction(found) >= value and Fraction(repr(found)) >= value


# The float 0.1 is slightly above this value, but its decimal form 0.1 is below it.
TENTH = Fraction(1, 10) + Fraction(1, 10**18)


@given(RATIONALS)
@example(TENTH)
def test_floats_are_rounded_in_their_direction(value: Fraction) -> None:
    assert best_upper(value, round_up(value))
    assert round_down(value) == -round_up(-value)
    assert round_down(value) <= value <= round_up(value)


def test_rounding_to_nearest_is_detected() -> None:
    nearest = mutated(round_up, "nearest >= value and", "")
    unread = mutated(round_up, "and Fraction(repr(nearest)) >= value", "")
    assert not best_upper(Fraction(3, 10), nearest(Fraction(3, 10)))
    assert not best_upper(TENTH, unread(TENTH))


@pytest.mark.parametrize(
    ("value", "up"),
    [(0, 0.0), (Fraction(10**400), math.inf), (Fraction(-(10**400)), -1.7976931348623157e308),
     (Fraction(1, 10**400), 5e-324), (Fraction(-1, 10**400), 0.0), (math.inf, math.inf),
     (-math.inf, -math.inf), (2**53 + 1, 2.0**53 + 2)],
)  # fmt: skip
def test_rounding_up_is_correct_at_edges(value: Any, up: float) -> None:
    assert round_up(value) == up
    assert round_down(-value) == -up


@given(RATIONALS, RATIONALS)
def test_a_printed_enclosure_contains_the_value(a: Fraction, b: Fraction) -> None:
    enclosure = Enclosure(min(a, b), max(a, b))
    shown = re.fullmatch(r"Enclosure\(\[(.*), (.*)\]\)", repr(enclosure))
    assert shown is not None
    lower, upper = (Fraction(Decimal(text)) for text in shown.groups())
    assert lower <= min(a, b)
    assert max(a, b) <= upper


@given(RATIONALS, RATIONALS, RATIONALS)
def test_membership_and_overlap_are_correct(a: Fraction, b: Fraction, c: Fraction) -> None:
    first, second = Enclosure(min(a, b), max(a, b)), Enclosure(min(b, c), max(b, c))
    assert first.overlaps(second)
    assert second.overlaps(first)
    assert (c in first) == (min(a, b) <= c <= max(a, b))
    assert first.width == abs(a - b)
    assert "1" not in first
    assert not first.overlaps(Enclosure(first.upper + 1, math.inf))


def test_infinite_ends_and_ends_out_of_order() -> None:
    assert Enclosure.infinite().width == 0
    assert math.inf in Enclosure.infinite()
    assert Enclosure(Fraction(0), math.inf).width == math.inf
    wrong: list[tuple[Any, Any]] = [(Fraction(1), Fraction(0)), (math.inf, Fraction(0))]
    for lower, upper in (*wrong, (math.nan, Fraction(1)), (Fraction(0), math.nan)):
        with pytest.raises(InvalidParameter, match="lower"):
            Enclosure(lower, upper)


@given(RATIONALS, st.integers(2, 300))
def test_a_ball_becomes_an_enclosure_that_contains_it(value: Fraction, bits: int) -> None:
    with precision(bits):
        assert value in Enclosure.of(ball(value))
        assert value**2 in Enclosure.of(ball(value) ** 2)


def test_balls_that_are_not_finite_are_handled() -> None:
    assert Enclosure.of(arb("inf")).upper == math.inf
    assert Enclosure.of(arb("-inf")).lower == -math.inf
    whole = Enclosure.of(arb(0, "inf"))
    assert (whole.lower, whole.upper) == (-math.inf, math.inf)
    with pytest.raises(PrecisionExhausted):
        Enclosure.of(arb("nan"))


@pytest.mark.parametrize("sign", [1, -1])
def test_extreme_exponents_widen_the_enclosure_outwards(sign: int) -> None:
    with precision(200):
        tiny = Enclosure.of(sign * (-(arb(10) ** 30)).exp())
        huge = Enclosure.of(sign * (arb(10) ** 30).exp())
    assert tiny.lower < tiny.upper
    assert 0 in (tiny.lower, tiny.upper)
    assert tiny.width < Fraction(1, 1 << 4_000_000)
    assert huge.lower < huge.upper
    assert math.inf in (huge.upper, -huge.lower)
    assert (huge.lower if sign > 0 else -huge.upper) >= 1 << 4_000_000


def test_narrow_reaches_its_precision_or_raises() -> None:
    assert narrow(lambda: arb(2).sqrt(), 100).width < Fraction(1, 1 << 99)
    assert narrow(lambda: arb(0), 100) == Enclosure.exactly(0)
    with pytest.raises(PrecisionExhausted):
        narrow(lambda: arb(0, 1), 64)
    # All digits cancel until the working precision exceeds a thousand bits.
    small = narrow(lambda: 1 - (1 - arb(2) ** -1000), 64)
    assert Fraction(1, 1 << 1000) in small
    assert small.lower > 0


def test_precision_is_held_by_one_thread_at_a_time() -> None:
    def work(bits: int) -> bool:
        held = True
        for _ in range(200):
            with precision(bits):
                held &= ctx.prec == bits
        return held

    assert all(at_once(*(partial(work, bits) for bits in (64, 128, 256))))


def threads() -> set[int]:
    np.ones((2, 2)) @ np.ones((2, 2))
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_the_number_of_threads_is_restored() -> None:
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        with one_thread():
            assert threads() == {1}
        assert threads() == before
        with pytest.raises(ZeroDivisionError), one_thread():
            raise ZeroDivisionError
        assert threads() == before
