r"""Tests of the float64 functions of laws: within 1e-13 of mpmath above 1e-300; exact quantiles."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from dpcore import DiscreteGaussian, DiscreteLaplace, Noise
from dpcore.laws.skellam import Skellam
from dpcore.noise import FLOAT_ERROR
from tests.day_and_nightly import by_day
from tests.support.dpcore import mpmath_precision
from tests.support.dpcore.mutants import mutated
from tests.support.laws import (
    FLOAT_NOISES,
    LAWS,
    WIDE,
    cases,
    centre,
    reach,
    second,
    spelled,
)

NARROW = [noise for noise in FLOAT_NOISES if reach(noise) < WIDE]
FUNCTIONS = ("pmf", "log_pmf", "cdf", "sf")
DEPTHS = (0.1, 0.5, 1, 5, 12, 20, 100, 200, 350, 500, 600, 680, 688, 690, 692, 700, 720, 745)


def depth(noise: Noise, nats: float) -> int:
    r"""Return the places beyond which about e^-nats of the mass lies, on both sides."""
    decay = LAWS[noise.name].decay
    low, high = -1, 1
    while decay(noise, high) < nats and high < 2**70:
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decay(noise, middle) >= nats else (middle, high)
    return high


def float_places(noise: Noise) -> list[int]:
    r"""Return places next to 0 and to the mean, and at depths down to 1e-323, mirrored at both."""
    wide, middle = reach(noise), centre(noise)
    if wide < WIDE:
        deep = [depth(noise, nats) for nats in DEPTHS]
        near = [0, 1, 2, 3, 5, 7, wide // 3, wide, 5 * wide]
    else:
        deep, near = [depth(noise, nats) for nats in (12, 200, 600, 690, 745)], [0, 1, wide]
    every = {*near, *deep, *(middle + off for off in near), *(k - middle for k in deep)}
    mirrored = {*every, *(-k for k in every), *(2 * middle - k for k in every)}
    return [k for k in sorted(mirrored) if abs(k) < 2**63]


def float_errors(noise: Noise, function: str, ks: list[int], found: Any = None) -> list[int]:
    r"""Return the places where the float is not within 1e-13 of mpmath, above 1e-300.

    If the value is 0, or its logarithm -oo, the float must be exactly that.
    """
    floats = getattr(noise, function)(np.array(ks, dtype=np.int64)) if found is None else found
    wrong = []
    with mpmath_precision.digits(30):
        for k, value in zip(ks, floats.tolist(), strict=True):
            exact = second(noise, function, k)
            if exact == 0 or mp.isinf(exact):
                right = value == exact
            elif abs(exact) > mpf("1e-300"):
                right = abs(value - exact) <= FLOAT_ERROR * abs(exact)
            else:
                right = abs(value) <= 1.1e-300
            if not right:
                wrong.append(k)
    return wrong


@by_day(1)
@pytest.mark.parametrize("noise", cases(FLOAT_NOISES, every=4), ids=repr)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_floats_are_within_their_stated_error(noise: Noise, function: str) -> None:
    assert float_errors(noise, function, float_places(noise)) == []


def octaves(least: int, most: int) -> st.SearchStrategy[Fraction]:
    found = st.fractions(min_value=least, max_value=most, max_denominator=1000)
    return found.map(lambda octave: Fraction(2.0 ** float(octave)))


ANY: dict[str, st.SearchStrategy[Noise]] = {
    "Laplace": octaves(-19, 45).map(lambda s: DiscreteLaplace(scale=s)),
    "Gaussian": octaves(-39, 91).map(lambda v: DiscreteGaussian(sigma_squared=v)),
    "Skellam": octaves(-29, 14).map(lambda v: Skellam(variance=v)),
}


@pytest.mark.parametrize("law", ANY)
@given(st.data(), st.floats(0, 760), st.sampled_from([1, -1]), st.sampled_from(FUNCTIONS))
def test_floats_at_random_parameters_are_within_their_error(
    law: str, data: st.DataObject, nats: float, sign: int, function: str
) -> None:
    noise = data.draw(ANY[law])
    assert float_errors(noise, function, [sign * depth(noise, nats)]) == []


@by_day(6)
@pytest.mark.parametrize("noise", cases(FLOAT_NOISES), ids=repr)
def test_floats_at_the_ends_of_int64_are_within_their_error(noise: Noise) -> None:
    for k in (-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1):
        if LAWS[noise.name].decay(noise, k) < 10_000:
            for function in FUNCTIONS:
                assert float_errors(noise, function, [k]) == []
        else:
            above, below = (0.0, 1.0) if k > 0 else (1.0, 0.0)
            assert (noise.pmf(k), noise.sf(k), noise.cdf(k)) == (0.0, above, below)
            assert noise.log_pmf(k) < -5000


def test_plain_float_formulas_are_detected() -> None:
    # The reason for float pairs: with k and s rounded to floats, e^-x loses its digits for large x.
    noise = DiscreteLaplace(scale="1048576.3")
    ks = [step * 2**20 + off for step in (300, 500, 600, 680) for off in (-1, 0, 1)]
    plain = math.tanh(1 / (2 * 1048576.3)) * np.exp(-np.array(ks) / 1048576.3)
    assert float_errors(noise, "pmf", ks, plain * (1 + 2e-13))
    gaussian = DiscreteGaussian(sigma_squared=4096)
    normal = np.exp(-(np.array([0, 64, 640]) ** 2) / 8192) / math.sqrt(2 * math.pi * 4096.001)
    assert float_errors(gaussian, "pmf", [0, 64, 640], normal)


def compared(noise: Noise, function: str, k: int, level: Fraction) -> int:
    r"""Return the sign of a value minus a level, with as many digits as necessary; 0 for a tie."""
    for count in (35, 70, 140):
        with mpmath_precision.digits(count):
            exact = mpmath_precision.real(level)
            apart = second(noise, function, k) - exact
            if abs(apart) > exact * mpf(10) ** -(count - 5):
                return 1 if apart > 0 else -1
    return 0


def least_reaching(noise: Noise, k: int, p: Fraction) -> bool:
    r"""Whether F(k) >= p > F(k-1), computed from the smaller tail."""
    if p < Fraction(1, 2):
        return compared(noise, "cdf", k, p) >= 0 > compared(noise, "cdf", k - 1, p)
    return compared(noise, "sf", k, 1 - p) <= 0 < compared(noise, "sf", k - 1, 1 - p)


def wrong_quantiles(noise: Noise, levels: list[float], found: Any = None) -> list[float]:
    r"""Return the p for which k is not the least with F(k) >= p, by the exact binary value of p."""
    answer = np.asarray(noise.quantile(np.array(levels)) if found is None else found)
    pairs = zip(levels, answer.tolist(), strict=True)
    return [p for p, k in pairs if not least_reaching(noise, k, Fraction(p))]


def jumps(noise: Noise) -> list[float]:
    r"""Floats at and next to F(k): where one unit in the last place changes the quantile."""
    found: list[float] = []
    wide = reach(noise)
    steps = [-6 * wide, -1, 0, 1, 3 * wide] if wide < WIDE else [0, 3 * wide]
    for k in sorted({centre(noise) + step for step in steps}):
        value = noise.enclose_cdf(k, 64).lower_float if spelled(noise, k) else 0.0
        for _ in range(2):
            value = math.nextafter(value, 0)
        for _ in range(5):
            found.append(value)
            value = math.nextafter(value, 1)
    return [p for p in found if 0 < p < 1]


LEVELS = [
    *(0.5, math.nextafter(0.5, 0), math.nextafter(0.5, 1), 0.1, 0.25, 0.75, 0.9, 0.975),
    *(1e-300, 1e-290, 1e-100, 1e-17, 1e-16, 2.0**-53, 1 - 2.0**-53, 1 - 1e-10, 5e-324, 2.3e-308),
]


@by_day(1)
@pytest.mark.parametrize("noise", cases(FLOAT_NOISES, every=8), ids=repr)
def test_quantiles_are_exact(noise: Noise) -> None:
    levels = LEVELS if reach(noise) < WIDE else LEVELS[::3]
    assert wrong_quantiles(noise, levels + jumps(noise)) == []


def test_quantiles_that_trust_their_guess_are_detected() -> None:
    noise = DiscreteLaplace(scale=10)
    trusting = mutated(
        Noise._quantile, "np.flatnonzero(~(enough & short & (levels > 1e-290)))", "()"
    )
    levels = LEVELS + jumps(noise)
    assert wrong_quantiles(noise, levels, trusting(noise, np.array(levels)))


@by_day(3)
@pytest.mark.parametrize("noise", cases(NARROW, every=4), ids=repr)
def test_rational_levels_are_decided_at_any_depth(noise: Noise) -> None:
    with mpmath_precision.digits(140):
        for k in {centre(noise) + off for off in (-2 * reach(noise), -1, 0, 3)}:
            if not spelled(noise, k):
                continue
            below = mpmath_precision.floor_to(second(noise, "cdf", k), 380)
            if 0 < below < 1:
                assert noise.quantile(below) == k
                assert noise.quantile(below + Fraction(1, 1 << 380)) == k + 1
