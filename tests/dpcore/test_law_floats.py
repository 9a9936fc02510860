r"""The float64 functions come within 1e-13 of mpmath above 1e-300, and quantiles are exact."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mpf

from dpcore import DiscreteGaussian, DiscreteLaplace, Noise
from dpcore.noise import FLOAT_ERROR
from tests.dpcore import second_path
from tests.dpcore.grid import GAUSSIANS, LAPLACES, NOISES, reach, second, spelled
from tests.dpcore.mutants import mutated

# -- float64 -------------------------------------------------------------------------------------

FLOAT_NOISES = [
    noise for noise in NOISES if repr(noise) not in {repr(LAPLACES[-1]), repr(GAUSSIANS[-1])}
]


def float_places(noise: Noise) -> list[int]:
    wide = reach(noise)
    steps = (
        (1, 4, 5, 8, 10, 20, 30, 36, 37, 38, 39, 40)
        if noise.name == "discrete-gaussian"
        else (1, 5, 20, 100, 300, 500, 600, 680, 690, 700, 745)
    )
    edges = [wide * step + off for step in steps for off in (-1, 0, 1)]
    every = {0, 1, 2, 3, 4, 5, 7, wide // 10, wide // 3, *edges}
    return [k for k in sorted({sign * k for k in every for sign in (1, -1)}) if abs(k) < 2**63]


def float_errors(noise: Noise, function: str, ks: list[int], found: Any = None) -> list[int]:
    r"""The places where the float is not within 1e-13 of mpmath, above 1e-300."""
    floats = getattr(noise, function)(np.array(ks, dtype=np.int64)) if found is None else found
    wrong = []
    with second_path.digits(40):
        for k, value in zip(ks, floats.tolist(), strict=True):
            exact = second(noise, function, k)
            if abs(exact) > mpf("1e-300"):
                if not abs(value - exact) <= FLOAT_ERROR * abs(exact):
                    wrong.append(k)
            elif not abs(value) <= 1.1e-300:
                wrong.append(k)
    return wrong


@pytest.mark.parametrize("noise", FLOAT_NOISES, ids=repr)
@pytest.mark.parametrize("function", ["pmf", "log_pmf", "cdf", "sf"])
def test_floats_are_within_their_error(noise: Noise, function: str) -> None:
    assert float_errors(noise, function, float_places(noise)) == []


@given(
    st.fractions(min_value=-20, max_value=45, max_denominator=1000),
    st.floats(-760, 760),
    st.sampled_from(["pmf", "log_pmf", "cdf", "sf"]),
)
def test_laplace_floats_at_any_scale(octave: Fraction, x: float, function: str) -> None:
    scale = max(Fraction(2.0 ** float(octave)), Fraction(1, 10**6))
    k = round(x * float(scale))
    assert float_errors(DiscreteLaplace(scale=scale), function, [k]) == []


@given(
    st.fractions(min_value=-39, max_value=91, max_denominator=1000),
    st.floats(-40, 40),
    st.sampled_from(["pmf", "log_pmf", "cdf", "sf"]),
)
def test_gaussian_floats_at_any_variance(octave: Fraction, x: float, function: str) -> None:
    variance = max(Fraction(2.0 ** float(octave)), Fraction(1, 10**12))
    k = round(x * math.sqrt(variance))
    assert float_errors(DiscreteGaussian(sigma_squared=variance), function, [k]) == []


def test_floats_at_the_ends_of_int64() -> None:
    ends = [-(2**63), -(2**63) + 1, 2**63 - 1, 2**63 - 2]
    for noise in FLOAT_NOISES:
        for function in ("pmf", "cdf", "sf"):
            if noise.name == "discrete-laplace" or reach(noise) < 2**40:
                assert float_errors(noise, function, ends) == [], (noise, function)


def test_plain_float_formulas_are_seen() -> None:
    # What the pairs are for: k and s rounded to floats lose e^-x its digits for large x.
    noise = DiscreteLaplace(scale="1048576.3")
    ks = [k for k in float_places(noise) if 100 * 2**20 < k < 690 * 2**20]
    plain = math.tanh(1 / (2 * 1048576.3)) * np.exp(-np.array(ks) / 1048576.3)
    assert float_errors(noise, "pmf", ks, plain * (1 + 2e-13))
    gaussian = DiscreteGaussian(sigma_squared=4096)
    normal = np.exp(-(np.array([0, 64, 640]) ** 2) / 8192) / math.sqrt(2 * math.pi * 4096.001)
    assert float_errors(gaussian, "pmf", [0, 64, 640], normal)


# -- quantiles -----------------------------------------------------------------------------------


def wrong_quantiles(noise: Noise, levels: list[float], found: Any = None) -> list[float]:
    r"""The p for which k is not the least with F(k) >= p, for the exact binary value of p."""
    answer = np.asarray(noise.quantile(np.array(levels)) if found is None else found)
    wrong = []
    with second_path.digits(60):
        for p, k in zip(levels, answer.tolist(), strict=True):
            exact = second_path.real(Fraction(p))
            if p < 0.5:
                right = second(noise, "cdf", k) >= exact > second(noise, "cdf", k - 1)
            else:
                rest = second_path.real(1 - Fraction(p))
                right = second(noise, "sf", k) <= rest < second(noise, "sf", k - 1)
            if not right:
                wrong.append(p)
    return wrong


def jumps(noise: Noise) -> list[float]:
    r"""Floats at and next to F(k): where one unit in the last place changes the quantile."""
    found: list[float] = []
    wide = reach(noise)
    for k in (-6 * wide, -wide, -2, -1, 0, 1, 2, wide, 3 * wide):
        value = noise.enclose_cdf(k, 64).lower_float
        for _ in range(2):
            value = math.nextafter(value, 0)
        for _ in range(6):
            found.append(value)
            value = math.nextafter(value, 1)
    return [p for p in found if 0 < p < 1]


LEVELS = [
    *(0.5, math.nextafter(0.5, 0), math.nextafter(0.5, 1), 0.1, 0.25, 0.75, 0.9, 0.975),
    *(1e-300, 1e-290, 1e-100, 1e-17, 1e-16, 2.0**-53, 1 - 2.0**-53, 1 - 1e-10, 5e-324, 2.3e-308),
]
QUANTILE_NOISES = [DiscreteLaplace(scale=s) for s in ("1e-3", "1/3", 1, 10, "1048576.3", 2**46)] + [
    DiscreteGaussian(sigma_squared=v) for v in ("1/4", 1, "16.01", 400, 4096, 10**6, 2**80, 2**92)
]


@pytest.mark.parametrize("noise", QUANTILE_NOISES, ids=repr)
def test_quantiles_are_exact(noise: Noise) -> None:
    assert wrong_quantiles(noise, LEVELS + jumps(noise)) == []


def test_quantiles_that_trust_their_guess_are_seen() -> None:
    noise = DiscreteLaplace(scale=10)
    trusting = mutated(Noise._quantile, "np.flatnonzero(~(enough & short))", "()")
    levels = LEVELS + jumps(noise)
    assert wrong_quantiles(noise, levels, trusting(noise, np.array(levels)))


@pytest.mark.parametrize("noise", QUANTILE_NOISES, ids=repr)
def test_rational_levels_are_decided_at_any_depth(noise: Noise) -> None:
    with second_path.digits(140):
        for k in (-2 * reach(noise), -1, 0, 3):
            if not spelled(noise, 100 * k):
                continue
            below = second_path.floor_to(second(noise, "cdf", k), 380)
            if 0 < below < 1:
                assert noise.quantile(below) == k
                assert noise.quantile(below + Fraction(1, 1 << 380)) == k + 1


def test_levels_beyond_floats_are_decided() -> None:
    noise = DiscreteLaplace(scale=10)
    tiny = Fraction(1, 10**400)
    with second_path.digits(60):
        for p, k in ((tiny, noise.quantile(tiny)), (1 - tiny, noise.quantile(1 - tiny))):
            assert isinstance(k, int)
            side = second(noise, "cdf", k) if p < Fraction(1, 2) else 1 - second(noise, "sf", k)
            if p < Fraction(1, 2):
                assert second(noise, "cdf", k - 1) < mpf(10) ** -400 <= side
            else:
                assert second(noise, "sf", k) <= mpf(10) ** -400 < second(noise, "sf", k - 1)


@given(st.floats(0, 1, exclude_min=True, exclude_max=True), st.sampled_from(QUANTILE_NOISES))
def test_any_level_is_exact(p: float, noise: Noise) -> None:
    assert wrong_quantiles(noise, [p]) == []
