r"""Tests of `dpcore.sampling.step_function_rejection`: heights, squeezes and every decision."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from mpmath import mp

from dpcore import DiscreteGaussian, Unrepresentable
from dpcore.laws.poisson_and_binomial import Binomial, Poisson
from dpcore.noise import batch_of
from dpcore.sampling.rng import Rng, Words
from dpcore.sampling.step_function_rejection import Centred
from tests.day_and_nightly import by_day, effort
from tests.support.dpcore import mpmath_precision
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.scripted_rng import Digits, leading
from tests.support.laws import second

Law = Poisson | Binomial | DiscreteGaussian
SMALL = Poisson(mean="4194305.3")
LAWS: list[Law] = [
    SMALL,
    Poisson(mean=2**21 + 1),
    Poisson(mean=2**40),
    Poisson(mean=2**80 + Fraction(1, 3)),
    Binomial(trials=3 * 2**23, probability="1/4"),
    Binomial(trials=2**42, probability="1/2"),
    Binomial(trials=2**60, probability=Fraction(2**26 - 1, 2**60)),
    Binomial(trials=2**90, probability="2/3"),
    DiscreteGaussian(sigma_squared=2**22 + Fraction(1, 3)),
    DiscreteGaussian(sigma_squared=Fraction(2**110, 3)),
]
WORDS = 1 << 64
BITS = 128


@cache
def staircase(noise: Law) -> Centred:
    if isinstance(noise, DiscreteGaussian):
        batch = batch_of(noise)
        assert isinstance(batch, Centred)
        return batch
    return noise.centred()


def tails(noise: Law, batch: Centred) -> tuple[Any, Any]:
    return second(noise, "cdf", batch._below), second(noise, "sf", batch._above - 1)


def edges(batch: Centred) -> list[int]:
    r"""Return the first integer of every step, and the first beyond the last."""
    return [batch.centre + i * batch.unit for i in range(-batch._reach, batch._reach + 1)]


def chance(noise: Law, batch: Centred, cell: int, k: int) -> Any:
    r"""Mass over height, for a height in units of 2^-(b + 128)."""
    return second(noise, "pmf", k) * mp.mpf(2) ** BITS * batch.unit / batch._heights[cell]


def wrong_steps(noise: Law, batch: Centred) -> list[str]:
    r"""Return the disagreements of the staircase and its squeezes with mpmath."""
    found = []
    every = edges(batch)
    # By day every eleventh step of the small law, nightly every step; every 23rd of the others.
    picked = range(1, len(every), 23 // effort(2, 23) if noise is SMALL else 23)
    middle = batch._reach + 1
    with mpmath_precision.digits(50):
        for cell in sorted({*picked, 1, 2, middle - 1, middle, middle + 1, len(every) - 1}):
            first, after = every[cell - 1], every[cell]
            inside = {first, after - 1, (first + after) // 2}
            inside |= {k for k in (batch.centre, batch.centre + 1) if first <= k < after}
            ratios = [chance(noise, batch, cell, k) for k in inside]
            if not max(ratios) <= 1:
                found.append(f"height of {cell}")
            if not max(ratios) > 0.99:
                found.append(f"waste at {cell}")
            if not int(batch._sure[cell]) <= min(ratios) * WORDS:
                found.append(f"squeeze of {cell}")
            if not min(ratios) > 0.7:
                found.append(f"step of {cell}")
        for cell, tail in zip((0, -1), tails(noise, batch), strict=True):
            if not tail * mp.mpf(2) ** BITS <= batch._heights[cell] <= tail * 2**BITS * 1.01 + 1:
                found.append(f"tail {cell}")
            if batch._sure[cell]:
                found.append(f"squeeze of tail {cell}")
    return found


@by_day(1)
@pytest.mark.parametrize("noise", LAWS, ids=repr)
def test_the_staircase_is_above_the_mass_function(noise: Law) -> None:
    batch = staircase(noise)
    assert wrong_steps(noise, batch) == []
    sigma = math.isqrt(math.floor(1 / (2 * batch._rate))) + 1
    assert 32 * batch.unit <= sigma < 65 * batch.unit


def middle_of(batch: Centred, cell: int) -> Fraction:
    r"""Return a number that draws a step: the middle of its part of [0, 1)."""
    below = sum(batch._heights[:cell])
    return Fraction(2 * below + batch._heights[cell], 2 * sum(batch._heights))


def places(batch: Centred) -> list[tuple[int, int]]:
    r"""Steps from end to end with integers on them: (cell, k - centre)."""
    found = []
    reach, unit = batch._reach, batch.unit
    for cell in sorted({1, 2, reach // 2, reach - 3, reach, reach + 1, reach + 7, 2 * reach}):
        first = (cell - 1 - reach) * unit
        found += [(cell, first + off) for off in sorted({0, 1, unit // 3, unit - 1})]
    return found


@pytest.mark.parametrize("noise", LAWS, ids=repr)
def test_steps_are_drawn_in_proportion_to_their_areas(noise: Law) -> None:
    batch, total = staircase(noise), Fraction(0)
    whole = sum(batch._heights)
    thresholds = batch._cells.thresholds.tolist()
    assert len(thresholds) == len(batch._heights) == len(edges(batch)) + 1
    for height, c in zip(batch._heights, thresholds, strict=True):
        total += Fraction(height, whole)
        assert c <= total * WORDS <= c + 1
    # About one in a hundred proposals is rejected.
    assert 0.98 < Fraction(1 << BITS, whole) < 1
    # A step and a word determine the integer.
    for cell, drawn in places(batch):
        place = drawn - (cell - 1 - batch._reach) * batch.unit
        words = [middle_of(batch, cell), Fraction(place, WORDS)]
        assert batch._propose(Digits(words), 1).tolist() == [drawn]


class Continued(Rng):
    r"""Continues V after its first 64 - b bits, which are in the word: b bits, then the rest."""

    __slots__ = ("_rest", "_width")

    def __init__(self, v: Fraction, width: int) -> None:
        self._width = width
        self._rest = Digits.after(v)

    def words(self, count: int) -> Words:
        assert count == 1
        v = self._rest.looked_at
        return np.array([leading(v * (WORDS >> self._width) % 1)], dtype=np.uint64)

    def bits(self, count: int) -> int:
        return self._rest.bits(count)


def contradictions(noise: Law, batch: Centred) -> Iterator[Any]:
    r"""Yield (k, V) where the filtered decision is not V < mass/height."""
    width = batch.unit.bit_length() - 1
    with mpmath_precision.digits(230):
        for cell, drawn in places(batch):
            border = chance(noise, batch, cell, batch.centre + drawn)
            for v in mpmath_precision.next_to(border):
                word = leading(v) >> width << width | (drawn & (batch.unit - 1))
                value = np.array([drawn], dtype=np.int64)
                kept = batch._accept(
                    Continued(v, width),
                    np.array([cell], dtype=np.int64),
                    value,
                    np.array([word], dtype=np.uint64),
                )
                right = mpmath_precision.real(v) < border
                if bool(kept[0]) != right or (right and value[0] != drawn):
                    yield drawn, v


@by_day(1)
@pytest.mark.parametrize("noise", LAWS, ids=repr)
def test_floats_never_contradict_the_exact_decision(noise: Law) -> None:
    assert [*contradictions(noise, staircase(noise))] == []


MUTANTS: dict[str, tuple[str, str, str]] = {
    "left steps too low": ("_build", "*highest[1 : reach + 1]", "*highest[:reach]"),
    "no margin": ("_accept", "_MARGIN * chance", "0.0 * chance"),
    "never looks closer": ("_accept", "np.flatnonzero(unsure)", "()"),
    "rounded mean": ("_exponent", " - self._fraction", ""),
    "next integer": ("settle", "self.centre + drawn", "self.centre + drawn + 1"),
}


@by_day(4)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_detected(name: str) -> None:
    method, *edit = MUTANTS[name]
    broken: Any = type("Broken", (Centred,), {"__slots__": ()})
    setattr(broken, method, mutated(getattr(Centred, method), *edit))
    batch = broken(SMALL, SMALL.variance, staircase(SMALL)._parts)
    assert wrong_steps(SMALL, batch) if method == "_build" else any(contradictions(SMALL, batch))


@pytest.mark.nightly
@pytest.mark.parametrize("noise", LAWS[:1] + LAWS[4:5], ids=repr)
def test_tails_are_drawn_by_inversion(noise: Law) -> None:
    batch = staircase(noise)

    def cdf(k: int) -> Any:
        return second(noise, "cdf", k)

    with mpmath_precision.digits(60):
        left, right = tails(noise, batch)
        for numerator in (1, 2**63, 2**64 - 2**50):
            u = Fraction(numerator, WORDS)
            x = batch._far_left(Digits.after(u, 0))
            share = mpmath_precision.real(u)
            assert cdf(x - 1) / left <= share < cdf(x) / left or x == 0
            x = batch._far_right(Digits.after(u, 0))
            assert second(noise, "sf", x) / right <= share < second(noise, "sf", x - 1) / right


@pytest.mark.parametrize("cell", [0, -1])
def test_a_tail_is_accepted_with_its_probability(cell: int) -> None:
    # The height of a tail is its mass rounded up to 64 bits and to a unit of 2^-128.
    noise, batch = SMALL, staircase(SMALL)
    height, last = batch._heights[cell], len(batch._heights) - 1
    with mpmath_precision.digits(60):
        border = tails(noise, batch)[cell] * mp.mpf(2) ** BITS / height
        exact = mpmath_precision.floor_to(border, 300)
    # Bits without end: an accepted V is followed by the bits of a second number for the place.
    further = Fraction(2**5000 // 3, 2**5300)
    for v, kept in ((exact - Fraction(1, 2**190), True), (exact + Fraction(1, 2**190), False)):
        found = batch.settle(Digits.after(v + further), leading(v), last if cell else 0, 12345)
        assert (found is not None) == kept
        if found is not None:
            assert found + batch.centre >= batch._above if cell else found < -batch._reach
    # A first number at this end of [0, 1) draws from the tail.
    first, u = Fraction(1, 2**100), Fraction(1, 3)
    drawn = batch._propose(Digits([1 - first if cell else first, u, u, u]), 1)
    assert (drawn[0] >= batch._reach * batch.unit) if cell else (drawn[0] < -batch._reach)


def test_small_and_huge_variances_are_refused() -> None:
    for noise in (
        Poisson(mean=2**21),
        Poisson(mean=2**117),
        Binomial(trials=2**23, probability="1/2"),
    ):
        with pytest.raises(Unrepresentable, match="variance"):
            noise.centred()
    assert staircase(DiscreteGaussian(sigma_squared=2**116 - 1)).unit
    with pytest.raises(Unrepresentable, match="variance"):
        batch_of(DiscreteGaussian(sigma_squared=2**116))
