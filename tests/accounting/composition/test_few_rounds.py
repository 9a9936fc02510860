r"""Tests of totals with few rounds or wide noise: quadrature, enumeration and dp-accounting."""

from __future__ import annotations

import math
import time
from fractions import Fraction
from functools import partial
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.special import ive
from scipy.stats import nbinom

from accounting.composition.compose import compose
from accounting.privacy_curves.release_curve import PrivacyCurve
from dpcore import DiscreteGaussian, PolyaDifference, Skellam
from tests.day_and_nightly import by_day
from tests.support.accounting import subsampled_releases as releases
from tests.support.accounting.bound_ends import ends
from tests.support.accounting.brute_force import by_fft, real, two_samples
from tests.support.accounting.release_lists import curve, sampled

NEAR = AT = Fraction(1, 10**6)
SECONDS = 30


def sample(sigma: str, rate: str, members: int = 1) -> Any:
    return releases.poisson(releases.gaussian(sigma), rate, members=members)


@by_day(1)
@pytest.mark.parametrize(
    ("sigma", "rate", "exponent", "pieces"),
    [
        ("1000", "1/100", 30, 28),
        ("4/5", "1/300", 10, 56),
        ("9/2", "1/3000", 9, 28),
        ("2", "1/400", 7, 28),
    ],
)
def test_two_rounds_agree_with_quadrature(
    sigma: str, rate: str, exponent: int, pieces: int
) -> None:
    found = ends(compose((sample(sigma, rate), 2)).epsilon(Fraction(1, 10**exponent)))
    assert found.width <= 2 * NEAR * found.upper
    with mpmath.workdps(20):
        low, high, delta = real(found.lower), real(found.upper), mpmath.mpf(10) ** -exponent
        exact = partial(two_samples, sigma, Fraction(rate), pieces=pieces)
        assert all(exact(high, sign) <= delta for sign in (1, -1))
        assert any(exact(low, sign) >= delta for sign in (1, -1))


@by_day(2)
@pytest.mark.parametrize(
    ("sigma", "rate", "members", "rounds", "question", "at", "about"),
    [
        ("752/379", "2/809", 1, 9, "epsilon", "1e-7", 0.0228102),
        ("2153/977", "4/803", 2, 6, "epsilon", "1e-8", 0.0911801),
        ("1180/1997", "206/940809", 3, 60, "epsilon", "1e-12", 7.29395),
        ("6917/1556", "130/422537", 1, 14, "epsilon", "1e-10", 0.00141256),
        ("4", "1/100", 1, 1000, "epsilon", "1e-100", 1.84374),
        # Wider than 1e-5 with one integral.
        ("1.179", "0.000414", 1, 84, "epsilon", "1e-11", None),
        ("1.633", "0.00106", 1, 91, "epsilon", "1e-22", None),
        ("0.862", "0.000228", 1, 759, "epsilon", "1e-14", None),
        # Two rounds far in the tail, and 20 rounds of which one integral shows almost nothing.
        ("1", "1/100000", 1, 20, "delta", "1/10", None),
        ("1", "1/30", 1, 2, "delta", "7.2", None),
    ],
)
def test_few_rounds_have_narrow_bounds_quickly(
    sigma: str, rate: str, members: int, rounds: int, question: str, at: str, about: float | None
) -> None:
    start = time.process_time()
    found = ends(getattr(compose((sample(sigma, rate, members), rounds)), question)(at))
    assert found.lower > 0
    assert found.width <= (3 if question == "epsilon" else 10) * NEAR * found.upper
    assert about is None or found.upper_float == pytest.approx(about, rel=1e-5)
    assert time.process_time() - start < SECONDS


def wide(sigma: int, shift: int, rate: str) -> Any:
    noise = DiscreteGaussian(sigma_squared=sigma**2)
    base = PrivacyCurve(noise=noise, sensitivity=shift, scope=releases.ADD_REMOVE)
    return releases.poisson(base, rate)


def test_few_rounds_agree_with_the_enumeration_of_outcomes() -> None:
    """At sigma 50 single integers matter: two rounds cost less than those of real-valued noise."""
    found = ends(compose((wide(50, 12, "1/2"), 2)).epsilon(AT))
    assert found.width < found.upper / 10**4
    k = np.arange(-400, 401)
    p, q = (np.exp(-((k - shift) ** 2) / 5000) for shift in (12, 0))
    p, q = (p / p.sum() + q / q.sum()) / 2, q / q.sum()
    low, high = (
        max(
            float(np.maximum(np.outer(a, a) - math.exp(end) * np.outer(b, b), 0).sum())
            for a, b in ((p, q), (q, p))
        )
        for end in (found.lower, found.upper)
    )
    assert high * (1 - 1e-9) <= 1e-6 <= low * (1 + 1e-9)
    beside = ends(compose((sample("50/12", "1/2"), 2)).epsilon(AT))
    assert beside.lower > found.lower + (found.upper - found.lower) / 2


@pytest.mark.parametrize("shift", [1000, 5000])
def test_wide_integer_noise_has_bounds_as_narrow_as_real_noise(shift: int) -> None:
    """sigma = 5000: under a shift of 1000 there are too many outcomes to list."""
    rate, rounds, near = "1/100", 2000, Fraction(1, 10**6)
    found = ends(compose((wide(5000, shift, rate), rounds)).epsilon(AT))
    real = sample(str(Fraction(5000, shift)), rate)
    beside = ends(compose((real, rounds)).epsilon(AT))
    assert found.upper - found.lower <= 2 * near * found.upper
    # The exact values differ by at most 1e-12, so both intervals contain both up to that.
    assert max(found.lower, beside.lower) <= min(found.upper, beside.upper)


def test_rare_outcomes_with_the_largest_losses_are_counted() -> None:
    """The loss is 0.28 at 0 and below 0.02 elsewhere: two zeros in 20 rounds exceed 1/2."""
    found = ends(compose((curve(PolyaDifference(shape="1/2", scale=400)), 20)).delta("1/2"))
    one = nbinom.pmf(np.arange(10_000), 0.5, -np.expm1(-1 / 400))
    p = np.convolve(one, one[::-1])
    low, high = by_fft(p[1:], np.log(p[1:] / p[:-1]), 20, (0.5, 0.5), 1e-5)
    assert low < found.lower
    assert found.upper < high < 1.03 * low
    assert found.width < found.upper / 10**6


@by_day(1)
@pytest.mark.parametrize("relative", ["1e-6", "1e-7", "1e-8"])
def test_a_tiny_delta_has_narrow_bounds_at_every_requested_width(relative: str) -> None:
    # Enumeration first counts a mass as infinite that is six million times this delta.
    p = np.array([ive(abs(k), 200.0) for k in range(-300, 301)])
    q = np.array([ive(abs(k + 1), 200.0) for k in range(-300, 301)])
    truth = float(np.maximum(np.outer(p, p) - math.e * np.outer(q, q), 0).sum())
    found = ends(compose((curve(Skellam(variance=200)), 2)).delta(1, relative))
    assert found.lower <= truth * (1 + 1e-9)
    assert truth * (1 - 1e-9) <= found.upper <= truth * (1 + 1e-5)


def test_many_samples_of_narrow_noise_have_two_narrow_bounds() -> None:
    noise = DiscreteGaussian(sigma_squared=1)
    found = ends(compose((sampled(noise, "1/5000"), 365)).epsilon("1e-10", "1e-5"))
    assert found.width <= found.upper / 10**5
    k = np.arange(-9, 11)
    q = np.exp(-(k**2) / 2)
    ratio = 1 + np.expm1((2 * k - 1) / 2) / 5000
    p, losses = q / q.sum() * ratio, np.log(ratio)
    below, above = by_fft(p, losses, 365, (float(found.upper), float(found.lower)), 1.6e-6)
    assert below <= 1e-10 * (1 + 1e-4)
    assert above >= 1e-10 * (1 - 1e-4)
