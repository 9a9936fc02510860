r"""Tests of `dpcore.protocols.fixed_point_encoding`: exact expectation; arrays equal rationals."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpcore.protocols.fixed_point_encoding import MOST_STEPS, FixedPoint, _encode_block, _settle
from dpcore.sampling.rng import SYSTEM
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import names, refusal
from tests.support.dpcore.scripted_rng import Digits, NeverAsked, leading
from tests.support.enumerate_random_choices import unroll

FLOATS = st.floats(0, 1, allow_subnormal=True)
STEPS = st.integers(1, MOST_STEPS) | st.sampled_from([1, 2, 3, 10, 1000, 1 << 20, MOST_STEPS])


@given(st.one_of(FLOATS, st.fractions(0, 1), st.decimals(0, 1, places=6)), STEPS)
@example(1.0, MOST_STEPS)
@example(5e-324, 1)
@example(0.1, 10)
def test_the_expectation_of_an_encoding_is_exact(x: Any, steps: int) -> None:
    encoding = FixedPoint(precision=steps)
    law = unroll(lambda rng: encoding.encode(x, rng=rng), open_mass=Fraction(0))
    assert law.leftover == 0
    mean = sum((value * mass for value, mass in law.lower.items()), Fraction(0))  # type: ignore[operator]  # values are integers
    assert mean == Fraction(x) * steps
    assert set(law.lower) <= {math.floor(Fraction(x) * steps), math.ceil(Fraction(x) * steps)}


def test_a_float_is_read_by_its_binary_value_and_text_by_its_decimal_value() -> None:
    # 0.1 lies above one tenth: ten steps of it may round to 2, one tenth may not.
    tenths = FixedPoint(precision=10)
    assert unroll(lambda rng: tenths.encode(0.1, rng=rng)).lower[2] > 0
    for tenth in ("0.1", Decimal("0.1"), Fraction(1, 10)):
        assert unroll(lambda rng, x=tenth: tenths.encode(x, rng=rng)).lower == {1: 1}  # type: ignore[misc]  # a default binds the loop variable


Block = Callable[..., Any]


def uniforms(x: float, steps: int) -> list[Fraction]:
    r"""Numbers U next to where x g + U crosses an integer, by words and by tiny fractions."""
    border = math.floor(Fraction(x) * steps) + 1 - Fraction(x) * steps
    found = [Fraction(0), Fraction(1, 3), Fraction((1 << 200) - 1, 1 << 200), border]
    for bits in (20, 40, 60, 62, 63, 64, 65, 100, 128, 129, 300, 1100):
        found += [border + Fraction(sign, 1 << bits) for sign in (-1, 1)]
    word = Fraction(math.floor(border * (1 << 64)), 1 << 64)
    found += [word + Fraction(off, 1 << 64) for off in range(-4, 5)]
    found += [word + Fraction(off * 4 * steps, 1 << 64) for off in (-2, -1, 1, 2)]
    return [u for u in dict.fromkeys(found) if 0 <= u < 1]


def contradictions(x: float, steps: int, block: Block = _encode_block) -> list[Fraction]:
    wrong = []
    for u in uniforms(x, steps):
        rng = Digits.after(u)
        words = np.array([leading(u)], dtype=np.uint64)
        decided = block(np.array([x]), steps, words, rng)[0]
        if int(decided) != math.floor(Fraction(x) * steps + u):
            wrong.append(u)
    return wrong


@given(FLOATS, STEPS)
@example(1.0, MOST_STEPS)
@example(0.1, 10)
@example(math.nextafter(1, 0), MOST_STEPS)
@example(5e-324, MOST_STEPS)
@example(2.0**-62, MOST_STEPS)
@example(2.0**-11 + 2.0**-63, 3)
def test_arrays_are_rounded_like_exact_rationals(x: float, steps: int) -> None:
    assert contradictions(x, steps) == []


MUTANTS = {
    "ties ignored": ("fraction >= np.uint64((1 << 64) - 4 * steps)", "fraction < 0"),
    "no carry": ("encoded += fraction < words", "pass"),
    "rounded down": ("np.rint(near)", "np.floor(near)"),
    "half of the fraction": ("np.uint64(4 * steps)  # mod", "np.uint64(2 * steps)  # mod"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_rounding_is_detected(mutant: str) -> None:
    broken = mutated(_encode_block, *MUTANTS[mutant])
    hard = [5e-324, 1e-9, 0.1, 0.3, 0.7, math.nextafter(1, 0), 1.0]
    cases = product(hard, (1, 3, 1000, MOST_STEPS))
    assert any(contradictions(x, steps, broken) for x, steps in cases)


def test_a_close_rounding_uses_every_bit() -> None:
    # x g + U with 64 ones after the word: only the 129th bit decides.
    u = Fraction((1 << 128) - 1, 1 << 128)
    for last, expected in ((0, 0), (1, 1)):
        rng = Digits.after(u + Fraction(last, 1 << 129))
        assert _settle(Fraction(1, 1 << 129), leading(u), rng.bits) == expected


def test_shapes_and_types_of_arrays_are_kept() -> None:
    encoding = FixedPoint(precision=4)
    for shape in ((0,), (3,), (2, 3), (1, 1, 2), (0, 4)):
        encoded = encoding.encode(np.full(shape, 0.5), rng=SYSTEM)
        assert encoded.shape == shape
        assert encoded.dtype == np.int64
        assert (encoded == 2).all()
    many = np.full(100_001, 0.25)
    assert (encoding.encode(many) == 1).all()
    assert encoding.encode(np.array([0, 1], dtype=np.uint8)).tolist() == [0, 4]
    assert encoding.encode(np.array([0.25, 1], dtype=np.float16)).tolist() == [1, 4]
    exact = np.array([Fraction(1, 4), "0.75", 1, 0.5], dtype=object)
    assert encoding.encode(exact).tolist() == [1, 3, 4, 2]
    scalar: Any = np.array(0.5)
    assert encoding.encode(scalar) == 2


def test_float32_is_read_by_its_own_value() -> None:
    x = np.array([0.1], dtype=np.float32)
    u = 1 - (Fraction(float(x[0])) * 10 - 1) - Fraction(1, 1 << 40)
    assert FixedPoint(precision=10).encode(x, rng=Digits([u])).tolist() == [1]
    u += Fraction(1, 1 << 39)
    assert FixedPoint(precision=10).encode(x, rng=Digits([u])).tolist() == [2]


def test_values_are_clamped_to_the_nearer_end_and_decoded_exactly() -> None:
    encoding = FixedPoint(precision=8, clamp=True)
    assert encoding.encode([-3.0, 0.5, 1.5]).tolist() == [0, 4, 8]
    assert (encoding.encode(-1), encoding.encode("7/2"), encoding.encode(1e300)) == (0, 8, 8)
    assert FixedPoint(precision=3).decode(-7) == Fraction(-7, 3)
    assert FixedPoint(precision=3).decode(np.array([3, -1])).tolist() == [1.0, -1 / 3]


NEVER = [math.nan, -math.inf, Decimal("Infinity"), None, 1j, True, "x"]
NO_NUMBERS = [["a"], [[1], [1, 2]], np.zeros(2, dtype=np.longdouble)]


@pytest.mark.parametrize("clamp", [False, True])
def test_an_invalid_value_is_refused_before_any_draw(clamp: bool) -> None:
    # Clamping accepts numbers out of range, but not nan.
    outside = [] if clamp else [-1, "1.5", Fraction(-1, 3), math.nextafter(1, 2), -5e-324]
    encoding = FixedPoint(precision=3, clamp=clamp)
    for x in (*outside, *NEVER):
        arrays = [np.array([0.5, x], dtype=object)]
        arrays += [np.array([0.5, x])] if isinstance(x, float) else []
        for value in (x, *arrays):
            assert names(refusal(partial(encoding.encode, value, rng=NeverAsked())), "x")
    for value in NO_NUMBERS:
        assert names(refusal(partial(encoding.encode, value, rng=NeverAsked())), "x")


def test_other_invalid_arguments_are_refused() -> None:
    wrong: list[Any] = [0, 1.0, None, MOST_STEPS + 1]
    for precision in wrong:
        line = refusal(partial(FixedPoint, precision=precision))
        assert names(line, "precision", precision)
    one: Any = 1
    assert names(refusal(lambda: FixedPoint(precision=1, clamp=one)), "clamp")
    assert names(refusal(lambda: FixedPoint(precision=1).encode(0.5, rng=one)), "rng")
    totals: list[Any] = [0.5, np.array([0.5])]
    for total in totals:
        assert names(refusal(partial(FixedPoint(precision=1).decode, total)), "total")
