r"""The Polya law by mpmath: its closed form, and incomplete beta functions for its tails."""

from __future__ import annotations

import math
from fractions import Fraction

from mpmath import mp, mpf

from dpcore import Noise
from dpcore.laws.polya import Polya
from tests.support.dpcore.mpmath_precision import Real, real

NAME = "polya"
ROWS = (
    *("shape=1/3,scale=1/10", "shape=1/4,scale=10", "shape=7/2,scale=3/2"),
    *("shape=1/1024,scale=1000", "shape=1/16,scale=1048576"),
)
BEYOND = "shape=1/2,scale=1e30"
GRID: list[Noise] = [
    Polya(shape=r, scale=s)
    for r, s in (
        *(("1/3", "1e-6"), ("1/1048576", "1/50"), ("7/2", "1/3"), ("0.9", 10), (1, 3), (40, 5)),
        *(("1/1024", 1000), (1, 2**46), ("1/1048576", 2**20), ("1/3", 2**46), ("1/2", 2**80)),
    )
]


def shape_of(noise: Noise) -> Fraction:
    return Fraction(noise.parameters["shape"])


def scale_of(noise: Noise) -> Fraction:
    return Fraction(noise.parameters["scale"])


def one_mass(shape: Fraction, scale: Fraction, k: int) -> Real:
    r"""Return the closed form, with the digits that large logarithms lose."""
    if k < 0:
        return mpf(0)
    with mp.workdps(mp.dps + 60):
        r, rate = real(shape), 1 / real(scale)
        log = mp.loggamma(k + r) - mp.loggamma(r) - mp.loggamma(k + 1) - k * rate
        return mp.exp(log + r * mp.log(-mp.expm1(-rate)))


def pmf(noise: Noise, k: int) -> Real:
    return one_mass(shape_of(noise), scale_of(noise), k)


def log_pmf(noise: Noise, k: int) -> Real:
    r"""Return the logarithm of the closed form, with log1p where 1 - beta is next to 1."""
    if k < 0:
        return mpf("-inf")
    with mp.workdps(mp.dps + 60):
        r, rate = real(shape_of(noise)), 1 / real(scale_of(noise))
        peak = r * (mp.log1p(-mp.exp(-rate)) if rate > 1 else mp.log(-mp.expm1(-rate)))
        return mp.loggamma(k + r) - mp.loggamma(r) - mp.loggamma(k + 1) - k * rate + peak


def _beta(a: Real, b: Real, x: Real, rest: Real) -> Real:
    r"""Return the incomplete beta function I_x(a, b) with 1 - x = ``rest``."""
    log = a * mp.log(x) + b * mp.log(rest) + mp.loggamma(a + b) - mp.loggamma(a + 1)
    return mp.exp(log - mp.loggamma(b)) * mp.hyp2f1(a + b, 1, a + 1, x)


def sf(noise: Noise, k: int) -> Real:
    if k < 0:
        return mpf(1)
    with mp.workdps(mp.dps + 60):
        r, rate = real(shape_of(noise)), 1 / real(scale_of(noise))
        if k < mean(noise):
            found = 1 - cdf(noise, k)
        else:
            found = _beta(mpf(k + 1), r, mp.exp(-rate), -mp.expm1(-rate))
    return +found


def cdf(noise: Noise, k: int) -> Real:
    if k < 0:
        return mpf(0)
    with mp.workdps(mp.dps + 60):
        r, rate = real(shape_of(noise)), 1 / real(scale_of(noise))
        found = _beta(r, mpf(k + 1), -mp.expm1(-rate), mp.exp(-rate))
    return +found


def mean(noise: Noise) -> Real:
    return real(shape_of(noise)) / mp.expm1(1 / real(scale_of(noise)))


def variance(noise: Noise) -> Real:
    rate = 1 / real(scale_of(noise))
    return real(shape_of(noise)) * mp.exp(-rate) / mp.expm1(-rate) ** 2


def reach(noise: Noise) -> int:
    return max(1, math.ceil(scale_of(noise) * max(1, math.isqrt(math.ceil(shape_of(noise))))))


def decay(noise: Noise, k: int) -> float:
    return float(min(abs(k) / scale_of(noise), Fraction(10**9)))
