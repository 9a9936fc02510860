r"""The Polya law by mpmath: its closed form, plain sums of it, and an integral around its cut."""

from __future__ import annotations

import math
from bisect import bisect_left
from fractions import Fraction
from functools import cache

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
_SUMMED = 64


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


@cache
def masses(shape: Fraction, scale: Fraction, dps: int, far: int) -> tuple[list[Real], list[Real]]:
    r"""P(X = k) and P(X >= k) for k < far, so large that the remaining mass is below any digit."""
    with mp.workdps(dps + 10):
        r, beta = real(shape), mp.exp(-1 / real(scale))
        found = [one_mass(shape, scale, 0)]
        for k in range(1, far):
            found.append(found[-1] * beta * (k - 1 + r) / k)
        tails, rest = [], mpf(0)
        for mass in reversed(found):
            rest += mass
            tails.append(rest)
        return found, tails[::-1]


def far_enough(shape: Fraction, scale: Fraction, k: int) -> int:
    r"""Return a power of two so far above k that the remaining mass is below the last digit.

    At this number e^(-x/s) has outweighed the polynomial growth of the masses.
    """
    out: int = k + math.ceil((2.4 * mp.dps + 60 + 12 * float(shape)) * float(scale)) + 60
    return 1 << out.bit_length()


@cache
def nodes(
    shape: Fraction, scale: Fraction, dps: int, *, left: bool, tail: bool
) -> tuple[list[Real], list[Real], list[Real]]:
    r"""v, the weight of the trapezoidal rule there without e^(-kv), and the sums of weights."""
    with mp.workdps(dps):
        r, rate = real(shape), 1 / real(scale)
        need = mp.log(10) * dps + 10
        step = 2 * mp.pi * mpf("1.4") / need
        # Below, the integrand falls like v^(1-r); above, like e^(-(k+r)v).
        low = -(need + 2 * mp.log(1 / rate + 1) + 60) / (1 - r) - 5
        high = mp.log(2 * need / r)
        places, weights, sums = [], [], [mpf(0)]
        for j in range(int(mp.floor(low / step)), int(mp.ceil(high / step)) + 1):
            v = mp.exp(j * step)
            weight = v * mp.exp(-r * mp.log(mp.expm1(v)))
            if left:
                weight *= (-mp.expm1(-2 * rate - v)) ** (-r)
            if tail:
                weight /= -mp.expm1(-rate - v)
            places.append(v)
            weights.append(step * weight)
            sums.append(sums[-1] + weights[-1])
        return places, weights, sums


def around_cut(shape: Fraction, scale: Fraction, k: int, *, left: bool, tail: bool) -> Real:
    r"""Return the integral of the module, for 0 < r < 1 and k < e^50."""
    digits = mp.dps + 20
    with mp.workdps(digits):
        places, weights, sums = nodes(shape, scale, digits, left=left, tail=tail)
        # e^(-kv) is 1 to all digits before the first of these, and 0 after the second.
        first = bisect_left(places, mpf(10) ** -digits / (k + 1))
        last = bisect_left(places, mp.log(10) * (digits + 5) / k) if k else len(places)
        total = sums[first] + mp.fsum(
            weight * mp.exp(-k * v)
            for v, weight in zip(places[first:last], weights[first:last], strict=True)
        )
        r, rate = real(shape), 1 / real(scale)
        shapes = 2 * r if left else r
        return total * mp.sinpi(r) / mp.pi * (-mp.expm1(-rate)) ** shapes * mp.exp(-rate * k)


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


def sf(noise: Noise, k: int) -> Real:
    r"""P(X > k): geometric, a plain sum, or the integral around the cut."""
    shape, scale = shape_of(noise), scale_of(noise)
    if k < 0:
        return mpf(1)
    if shape == 1:
        return mp.exp(-(k + 1) / real(scale))
    if scale <= _SUMMED:
        if k > 800 * scale + 1000:
            return one_mass(shape, scale, k + 1) / -mp.expm1(-1 / real(scale))  # magnitude only
        return masses(shape, scale, mp.dps, far_enough(shape, scale, k))[1][k + 1]
    return around_cut(shape, scale, k + 1, left=False, tail=True)


def cdf(noise: Noise, k: int) -> Real:
    r"""P(X <= k), by a plain sum where the shape is large."""
    if k < 0:
        return mpf(0)
    shape, scale = shape_of(noise), scale_of(noise)
    if scale <= _SUMMED and k <= 800 * scale + 1000:
        return mp.fsum(masses(shape, scale, mp.dps, far_enough(shape, scale, k))[0][: k + 1])
    with mp.workdps(mp.dps + 40):
        return 1 - sf(noise, k)


def mean(noise: Noise) -> Real:
    return real(shape_of(noise)) / mp.expm1(1 / real(scale_of(noise)))


def variance(noise: Noise) -> Real:
    rate = 1 / real(scale_of(noise))
    return real(shape_of(noise)) * mp.exp(-rate) / mp.expm1(-rate) ** 2


def reach(noise: Noise) -> int:
    return max(1, math.ceil(scale_of(noise) * max(1, math.isqrt(math.ceil(shape_of(noise))))))


def decay(noise: Noise, k: int) -> float:
    return float(min(abs(k) / scale_of(noise), Fraction(10**9)))
