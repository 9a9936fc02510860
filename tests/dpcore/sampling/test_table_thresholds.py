r"""Tests of table thresholds: each is recomputed with mpmath; combined digits give the law."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpcore import DiscreteGaussian, DiscreteLaplace, Noise, PrecisionExhausted
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


@by_day(3)
@pytest.mark.parametrize("scale", LAPLACE_SCALES + LARGE_SCALES, ids=str)
def test_every_threshold_of_every_digit_is_correct(scale: Fraction) -> None:
    sampler = laplace_digits(scale)
    check_table(sampler._top, top_cdf(scale, 1 << sampler._low_bits))
    covered = 0
    for start, table in sampler._low:
        assert start == covered
        assert table.first == 0
        check_table(table, digit_cdf(scale, start, len(table)))
        covered += len(table).bit_length() - 1
    assert covered == sampler._low_bits
    assert (covered > 0) == (scale > 64) or sampler._top.thresholds[0] == 0


TABLED: dict[type[Noise], list[Noise]] = {
    DiscreteGaussian: [
        DiscreteGaussian(sigma_squared=v)
        for v in ("400", "1/1000000", "1/4", "1", "31/2", "16", "1000000")
    ],
    DiscreteGaussianSum: [
        DiscreteGaussianSum(count=n, sigma_squared=v)
        for n, v in (
            *((5, "20"), (2, "1/1000000"), (3, "1/50"), (16, "1/4"), (1, "1"), (64, "16.01")),
            *((7, "401"), (1000, "400.5"), (1 << 20, "1/3")),
        )
    ],
    Skellam: [
        Skellam(variance=v) for v in ("100", "1e-9", "1/50", "10/3", "20000", "1000003", "4194304")
    ],
    Polya: [
        Polya(shape=r, scale=s)
        for r, s in (("7/2", "3/2"), ("1/3", "1/10"), ("1/4", 10), (40, 5), (300, 2), (1, 20))
    ],
    Poisson: [Poisson(mean=m) for m in (300, "1e-9", "1/50", 1, "10/3", 4096, "1000003")],
    Binomial: [
        Binomial(trials=n, probability=p)
        for n, p in (
            *((268, "1/2"), (1, "1/2"), (1, "1/3"), (12, "1/3"), (64, "1/2"), (2049, "1/2")),
            *((10**6, "1/3"), (2**80, Fraction(5, 2**80)), (2**61, 1 - Fraction(3, 2**60))),
        )
    ],
}
BY_DAY = 1


@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(noise, marks=pytest.mark.nightly if place >= BY_DAY else ())
        for noises in TABLED.values()
        for place, noise in enumerate(noises)
    ],
    ids=repr,
)
def test_every_threshold_is_correct(noise: Noise) -> None:
    assert wrong_thresholds(noise, table_of(noise)) == []


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


def test_two_draws_share_no_digits() -> None:
    # Draws of one block are independent: consecutive draws do not reuse digits.
    drawn = batch_of(DiscreteLaplace(scale=2**40)).draw(SeededRng(3), 4096)
    assert len(np.unique(drawn)) > 4090
