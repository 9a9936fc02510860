r"""Sums of discrete Gaussians: powers of an integer polynomial of weights, or Fourier inversion."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from itertools import accumulate

from flint import fmpz_poly
from mpmath import mp, mpf

from dpcore import DiscreteGaussian, Noise
from dpcore.laws.discrete_gaussian import DiscreteGaussianSum
from tests.support.dpcore.mpmath_precision import Real, digits, real
from tests.support.laws import discrete_gaussian, inverted

NAME = "discrete-gaussian-sum"
ROWS = (
    *("count=3,sigma_squared=1/50", "count=16,sigma_squared=1/4", "count=5,sigma_squared=20"),
    *("count=1000,sigma_squared=400.5", "count=3,sigma_squared=4194304"),
)
BEYOND = "count=7,sigma_squared=1e60"
GRID: list[Noise] = [
    DiscreteGaussianSum(count=n, sigma_squared=v)
    for n, v in (
        *((2, "1e-6"), (3, "1/50"), (1000, "1/100"), (16, "1/4"), (1, 1), (2, 1), (16, 4)),
        *((3, "15.99"), (64, "16.01"), (7, 401), (1024, 1000), (2, 2**22), (3, 2**58)),
        *((2**20, "1/3"), (5, 2**80)),
    )
]
_PLAIN_LENGTH = 1 << 9


def _parameters(noise: Noise) -> tuple[int, Fraction]:
    return int(noise.parameters["count"]), Fraction(noise.parameters["sigma_squared"])


def _tiny(n: int, v: Fraction) -> bool:
    return n <= 4 and v < Fraction(1, 10)


def _plain(n: int, v: Fraction) -> bool:
    return n * math.sqrt(v) < _PLAIN_LENGTH and n <= 1000


def _bits(noise: Noise, k: int) -> int:
    # Fixed point that represents the mass at k with the requested digits and some more.
    need = 1.25 * decay(noise, k) / math.log(2) + 4 * mp.dps + 128
    return 1 << math.ceil(math.log2(need))


def pmf(noise: Noise, k: int) -> Real:
    n, v = _parameters(noise)
    if _tiny(n, v):
        return +_few(n, v, abs(k) // n + 6, mp.dps)[abs(k)]
    if not _plain(n, v):
        return inverted.of_gaussians(n, v, abs(k), tail=False)
    bits = _bits(noise, k)
    masses, _ = _powers(n, v, bits)
    return mp.ldexp(mpf(masses[abs(k)]), -bits)


def log_pmf(noise: Noise, k: int) -> Real:
    if k == 0 and noise.parameters["sigma_squared"] < 1:  # P(X = 0) may be next to 1
        return mp.log1p(-2 * sf(noise, 0))
    return mp.log(pmf(noise, k))


def sf(noise: Noise, k: int) -> Real:
    n, v = _parameters(noise)
    if _tiny(n, v):
        return mp.fsum(_few(n, v, (k + 1) // n + 6, mp.dps)[k + 1 :])
    if not _plain(n, v):
        return inverted.of_gaussians(n, v, k + 1, tail=True)
    bits = _bits(noise, k + 1)
    _, tails = _powers(n, v, bits)
    return mp.ldexp(mpf(tails[k]), -bits)


def variance(noise: Noise) -> Real:
    n, v = _parameters(noise)
    return n * discrete_gaussian.variance(DiscreteGaussian(sigma_squared=v))


def reach(noise: Noise) -> int:
    n, v = _parameters(noise)
    return max(1, math.isqrt(math.ceil(n * v)))


def decay(noise: Noise, k: int) -> float:
    r"""About k^2/2nv; for small v the least sum of x_i^2/2v over integers that add up to k."""
    n, v = _parameters(noise)
    if v >= Fraction(1, 10):
        return float(min(Fraction(k * k) / (2 * n * v), Fraction(10**9)))
    each, more = divmod(abs(k), n)
    squares = (n - more) * each**2 + more * (each + 1) ** 2
    # Most terms are 0, and any of them may be the nonzero one.
    ways = abs(k) * math.log(n) if each == 0 else 0.0
    return max(float(min(squares / (2 * v), Fraction(10**9))) - ways, 0.0)


@cache
def _few(n: int, v: Fraction, reach: int, dps: int) -> list[Real]:
    # P(X = k), k = 0, 1, ..., from draws with |x| <= reach: by plain convolution, in floating point
    # with any exponent. The omitted part is below e^(-12/v) relative to the kept part.
    with mp.workdps(dps + 10):
        rate = -1 / (2 * real(v))
        weights = [mp.exp(rate * x * x) for x in range(-reach, reach + 1)]
        whole, masses = mp.fsum(weights), [mpf(1)]
        for _ in range(n):
            longer = [mpf(0)] * (len(masses) + 2 * reach)
            for i, mass in enumerate(masses):
                for j, weight in enumerate(weights):
                    longer[i + j] += mass * weight
            masses = longer
        return [mass / whole**n for mass in masses[n * reach :]]


@cache
def _powers(n: int, v: Fraction, bits: int) -> tuple[list[int], list[int]]:
    # P(X = k) and P(X > k), k = 0, 1, ..., in units of 2^-bits; each weight is off by one unit.
    one = math.isqrt(math.ceil(2 * v * (bits + 64))) + 2
    guard = bits + 64
    with digits(math.ceil((guard + 64) * math.log10(2))):
        whole = discrete_gaussian.total(v)
        rate = -1 / (2 * real(v))
        half = [int(mp.ldexp(mp.exp(rate * k * k) / whole, guard)) for k in range(one + 1)]
    weights = fmpz_poly([*half[:0:-1], *half])
    power, middle = fmpz_poly([1 << guard]), n * one
    for digit in f"{n:b}":
        power = _rounded(power * power, guard)
        if digit == "1":
            power = _rounded(power * weights, guard)
    masses = [int(power[middle + k]) >> 64 for k in range(middle + 1)] + [0] * (1 << 16)
    tails = [*accumulate(reversed(masses))][::-1]
    return masses, [*tails[1:], 0]


def _rounded(poly: fmpz_poly, bits: int) -> fmpz_poly:
    return fmpz_poly([int(c) >> bits for c in poly.coeffs()])
