r"""Tests of table thresholds: each is recomputed with mpmath; combined digits give the law."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpcore import DiscreteGaussian, DiscreteLaplace, InvalidParameter, Noise, PrecisionExhausted
from dpcore.laws import discrete_gaussian as gaussian
from dpcore.laws import poisson_and_binomial as counts
from dpcore.laws import polya, skellam
from dpcore.laws.discrete_gaussian import DiscreteGaussianSum
from dpcore.laws.poisson_and_binomial import Binomial, Poisson
from dpcore.laws.polya import Polya
from dpcore.laws.skellam import Skellam
from dpcore.noise import batch_of
from dpcore.numbers.enclosure import ball
from dpcore.sampling.inversion import InversionTable, LaplaceDigits, certified_threshold
from dpcore.sampling.rng import SeededRng
from tests.day_and_nightly import by_day
from tests.support.dpcore import mpmath_precision
from tests.support.dpcore.mutants import mutated, rewired
from tests.support.dpcore.scripted_rng import Digits
from tests.support.dpcore.tables import (
    LAPLACE_SCALES,
    LARGE_SCALES,
    LAST,
    WORDS,
    check_table,
    digit_cdf,
    laplace_digits,
    misplaced,
    sums_of,
    table_of,
    top_cdf,
    wrong_thresholds,
)
from tests.support.laws import discrete_laplace


@pytest.mark.parametrize("scale", LAPLACE_SCALES, ids=str)
def test_every_laplace_threshold_is_correct(scale: Fraction) -> None:
    sampler = laplace_digits(scale)
    unit = 1 << sampler._low_bits
    check_table(sampler._top, top_cdf(scale, unit))
    assert sampler._top.thresholds[0] == 0 or scale > 64


@by_day(1)
@pytest.mark.parametrize("scale", LARGE_SCALES, ids=str)
def test_every_threshold_of_every_digit_is_correct(scale: Fraction) -> None:
    sampler = laplace_digits(scale)
    check_table(sampler._top, top_cdf(scale, 1 << sampler._low_bits))
    covered = 0
    for start, table in sampler._low:
        assert start == covered
        assert table.first == 0
        check_table(table, digit_cdf(scale, start, len(table)))
        covered += len(table).bit_length() - 1
    assert covered == sampler._low_bits > 0


TABLED: list[Noise] = [
    *(
        DiscreteGaussian(sigma_squared=v)
        for v in ("1/1000000", "1/4", "1", "31/2", "16", "400", "1000000")
    ),
    *(
        DiscreteGaussianSum(count=n, sigma_squared=v)
        for n, v in (
            *((2, "1/1000000"), (3, "1/50"), (16, "1/4"), (1, "1"), (5, "20"), (64, "16.01")),
            *((7, "401"), (1000, "400.5"), (1 << 20, "1/3")),
        )
    ),
    *(Skellam(variance=v) for v in ("1e-9", "1/50", "10/3", "100", "20000", "1000003", "4194304")),
    *(
        Polya(shape=r, scale=s)
        for r, s in (("1/3", "1/10"), ("1/4", 10), ("7/2", "3/2"), (40, 5), (300, 2), (1, 20))
    ),
    *(Poisson(mean=m) for m in ("1e-9", "1/50", 1, "10/3", 50, 4096, "1000003")),
    *(
        Binomial(trials=n, probability=p)
        for n, p in (
            *((1, "1/2"), (1, "1/3"), (12, "1/3"), (64, "1/2"), (268, "1/2"), (2049, "1/2")),
            *((10**6, "1/3"), (2**80, Fraction(5, 2**80)), (2**61, 1 - Fraction(3, 2**60))),
        )
    ),
]


@by_day(8)
@pytest.mark.parametrize("noise", TABLED, ids=repr)
def test_every_threshold_is_correct(noise: Noise) -> None:
    assert wrong_thresholds(noise, table_of(noise)) == []


Build = Callable[..., Any]
BUILDERS = {"_extended": "_sum_table"}


def edited(module: Any, function: str, *edit: str) -> Build:
    r"""Return the builder of a law's tables with one of its parts edited."""
    whole = BUILDERS.get(function) or ("table_of_counts" if module is counts else "_table")
    if function in ("ratios", "masses"):
        return partial(_with, module._table, function, edit)
    mutant = mutated(getattr(module, function), *edit)
    return mutant if function == whole else rewired(getattr(module, whole), **{function: mutant})


def _with(build: Build, name: str, edit: tuple[str, ...], noise: Noise, *bounds: int) -> Any:
    r"""Return the table of a law of which one method is edited."""

    class Edited:
        def __getattr__(self, wanted: str) -> Any:
            found = getattr(type(noise), wanted)
            if wanted == name:
                found = mutated(found, *edit)
            return partial(found, self) if callable(found) else getattr(noise, wanted)

    return build(Edited(), *bounds)


SUM, SKELLAM = DiscreteGaussianSum(count=5, sigma_squared=20), Skellam(variance=100)
GAUSSIAN, COUNTS = DiscreteGaussian(sigma_squared=100), Poisson(mean=50)
POLYA = Polya(shape="7/2", scale="3/2")
MUTANTS: dict[str, tuple[Noise, Callable[[], Build]]] = {
    f"{noise.name}: {name}": (noise, partial(edited, module, function, old, new))
    for noise, module, function, name, old, new in (
        (SUM, gaussian, "_extended", "the move starts one late", "(first - Fr", "(first + 1 - Fr"),
        (SUM, gaussian, "_extended", "the step is constant", "factor *= step", "pass"),
        (SKELLAM, skellam, "ratios", "another recurrence", "step * k", "step * (k + 1)"),
        (SKELLAM, skellam, "masses", "a wrong start", "pmf_ball(first)", "pmf_ball(first + 1)"),
        (GAUSSIAN, gaussian, "_masses", "a constant ratio", "ratio * shrink", "ratio"),
        (GAUSSIAN, gaussian, "_table", "ends early", "2.0**-80", "2.0**-50"),
        (GAUSSIAN, gaussian, "symmetric_table", "shifted", "1 - len(masses)", "-len(masses)"),
        (COUNTS, counts, "_masses", "rises too late", "upwards(mode)", "upwards(mode + 1)"),
        (COUNTS, counts, "_masses", "falls too late", "downwards(mode)", "downwards(mode + 1)"),
        (COUNTS, counts, "table_of_masses", "below forgotten", "initial=below", "initial=arb(0)"),
        (COUNTS, counts, "table_of_masses", "late", "(first, sums", "(first + 1, sums"),
        (COUNTS, counts, "table_of_counts", "right tail cut", "_RIGHT_MASS", "2.0**-20"),
        (COUNTS, counts, "table_of_counts", "left tail cut", "_LEFT_MASS", "2.0**-20"),
        (POLYA, polya, "masses", "a wrong start", "pmf_ball(first)", "pmf_ball(first + 1)"),
    )
}


@by_day(6)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_of_a_table_is_detected(name: str) -> None:
    noise, build = MUTANTS[name]
    bounds = polya._support(noise.shape, noise.scale) if isinstance(noise, Polya) else ()
    try:
        table = build()(noise, *bounds)
    except InvalidParameter:
        return  # impossible masses are detected when the table is built
    assert wrong_thresholds(noise, table)


def test_a_moved_threshold_is_detected() -> None:
    noise = DiscreteGaussian(sigma_squared=400)
    table = table_of(noise)
    cdf = sums_of(noise, table.first, -table.first)
    for place, off in product([1, 40, len(table) - 2], [-2, 2]):
        thresholds = table.thresholds.tolist()
        thresholds[place] += off
        assert misplaced(thresholds, table.first, cdf) == [table.first + place]


@given(
    st.integers(0, 2**130).map(lambda n: Fraction(n, 2**130)),
    st.integers(0, 100),
)
def test_a_certified_threshold_separates_both_sides(f: Fraction, error: int) -> None:
    # A wide ball is narrowed, a tight one is taken; at integers either neighbour is right.
    c = certified_threshold(ball(f) + arb(0, 2.0**-error), lambda: ball(f))
    assert 0 <= c <= LAST
    assert c <= f * WORDS <= c + 1


def test_an_undecidable_threshold_is_refused() -> None:
    blind = arb(0.5, 0.5)
    with pytest.raises(PrecisionExhausted):
        certified_threshold(blind, lambda: blind)


def digits_of(x: int, sampler: LaplaceDigits) -> tuple[int, list[int]]:
    r"""Return the top and the low digits that must be drawn for x: those of x, or of ~x below 0."""
    magnitude = x if x >= 0 else ~x
    low = [(magnitude >> start) & (len(table) - 1) for start, table in sampler._low]
    high = magnitude >> sampler._low_bits
    return (high if x >= 0 else ~high), low


def inside(table: InversionTable, k: int) -> Fraction:
    r"""Return a number in the middle of the cell of k."""
    above = int(table.thresholds[k - table.first])
    below = int(table.thresholds[k - table.first - 1]) if k > table.first else 0
    return Fraction(above + below, 2 * WORDS)


INTEGERS = [0, 1, -1, 2, -2, 1023, 1024, -1024, -1025, 123_456_789, -987_654_321, 5 * 10**9]


@by_day(1)
@pytest.mark.parametrize("scale", LARGE_SCALES, ids=str)
def test_combined_digits_have_the_law(scale: Fraction) -> None:
    # P(X = x) must be the product of the masses of its digits, and these digits must give x.
    sampler = laplace_digits(scale)
    unit = 1 << sampler._low_bits
    for x in (*INTEGERS, int(3 * scale), -int(5 * scale) - 1):
        if abs(x) > 40 * scale:
            continue
        top, low = digits_of(x, sampler)
        numbers = [inside(sampler._top, top)]
        with mpmath_precision.digits(60):
            head = top_cdf(scale, unit)
            mass = head(top) - head(top - 1)
            for (start, table), digit in zip(sampler._low, low, strict=True):
                numbers.append(inside(table, digit))
                part = digit_cdf(scale, start, len(table))
                mass *= part(digit) - part(digit - 1)
            assert (
                abs(mass / discrete_laplace.pmf(DiscreteLaplace(scale=scale), x) - 1)
                < mp.mpf(10) ** -40
            )
        assert sampler.draw(Digits(numbers), 1).tolist() == [x]


@pytest.mark.parametrize(
    ("old", "new"),
    [("(target >> 63)", "(target & 0)"), ("digit <<= start", "digit <<= start // 2")],
    ids=["low digits not complemented below 0", "digits overlap"],
)
def test_a_mutant_of_the_digits_is_detected(old: str, new: str) -> None:
    sampler = laplace_digits(Fraction(2**40))
    target = np.empty(1, dtype=np.int64)
    top, low = digits_of(-(10**9) - 7, sampler)
    tables = [table for _, table in sampler._low]
    numbers = [inside(sampler._top, top), *map(inside, tables, low)]
    mutated(LaplaceDigits._fill, old, new)(sampler, Digits(numbers), target)
    assert target.tolist() != [-(10**9) - 7]


def test_two_draws_share_no_digits() -> None:
    # Draws of one block are independent: consecutive draws do not reuse digits.
    drawn = batch_of(DiscreteLaplace(scale=2**40)).draw(SeededRng(3), 4096)
    assert len(np.unique(drawn)) > 4090
