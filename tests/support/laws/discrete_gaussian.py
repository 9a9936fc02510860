r"""The discrete Gaussian law: e^(-k^2/2v) and its sums, plain or by Fourier inversion."""

from __future__ import annotations

import math
from fractions import Fraction

from mpmath import mp, mpf

from dpcore import DiscreteGaussian, Noise
from tests.support.dpcore.mpmath_precision import Real, digits, real
from tests.support.laws import inverted

NAME = "discrete-gaussian"
ROWS = (
    *("sigma_squared=1/50", "sigma_squared=1/4", "sigma_squared=400"),
    *("sigma_squared=1000003", "sigma_squared=16777216.5", "sigma_squared=1e24"),
)
BEYOND = "sigma_squared=1e60"
GRID: list[Noise] = [
    DiscreteGaussian(sigma_squared=v)
    for v in (
        *("1e-12", "1/100", "1/4", "0.9999", 1, 2, "15.99", 16, "16.01", 401, "4095.99", 4096),
        *("4096.01", 10**6, 12582913, "4194304.3", 2**80, 2**92, 2**160),
    )
]


def _sigma_squared(noise: Noise) -> Fraction:
    return Fraction(noise.parameters["sigma_squared"])


def total(sigma_squared: Fraction) -> Real:
    r"""Z = sum over all integers of e^(-k^2/2v), by the shorter of the two theta series.

    Poisson summation: Z = sqrt(2 pi v) sum_j e^(-2 pi^2 v j^2).
    """
    v = real(sigma_squared)
    if sigma_squared < 1:
        return 2 * _plain_sum(sigma_squared, 1) + 1
    found, j = mpf(1), 1
    while True:
        term = 2 * mp.exp(-2 * mp.pi**2 * v * j * j)
        found += term
        if term < mp.eps:
            return mp.sqrt(2 * mp.pi * v) * found
        j += 1


def pmf(noise: Noise, k: int) -> Real:
    r"""e^(-k^2/2v)/Z."""
    v = _sigma_squared(noise)
    return mp.exp(-real(Fraction(k * k) / (2 * v))) / total(v)


def log_pmf(noise: Noise, k: int) -> Real:
    r"""-k^2/2v - log Z, with log1p where Z is next to 1."""
    v = _sigma_squared(noise)
    log_total = mp.log1p(2 * _plain_sum(v, 1)) if v < 1 else mp.log(total(v))
    return -real(Fraction(k * k) / (2 * v)) - log_total


def sf(noise: Noise, k: int) -> Real:
    r"""P(X > k) by a plain sum, or by Fourier inversion for large v."""
    v = _sigma_squared(noise)
    if v > 10**4 and k < v:
        return inverted.of_gaussians(1, v, k + 1, tail=True)
    with digits(mp.dps + 15):
        found = _plain_sum(v, k + 1) / total(v)
    return +found


def variance(noise: Noise) -> Real:
    r"""E[X^2] by a plain sum; v for large v, where E[X^2] lies less than 10^-1000 below v."""
    v = _sigma_squared(noise)
    if v > 4000:
        return real(v)
    rate = -1 / (2 * real(v))
    weights = (2 * k * k * mp.exp(rate * k * k) for k in range(1, 60 + 20 * reach(noise)))
    return sum(weights) / total(v)


def reach(noise: Noise) -> int:
    return max(1, math.isqrt(math.ceil(_sigma_squared(noise))))


def decay(noise: Noise, k: int) -> float:
    return float(min(k * k / (2 * _sigma_squared(noise)), Fraction(10**9)))


def _plain_sum(v: Fraction, first: int) -> Real:
    # Terms fall faster than geometrically: w(k + j) <= w(k) e^(-j k/v) e^(-j^2/2v).
    found, k = mpf(0), first
    while True:
        term = mp.exp(-mpf(k * k) / (2 * real(v)))
        found += term
        if term < mp.eps * found * mpf(10) ** -10:
            return found
        k += 1
