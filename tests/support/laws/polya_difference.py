r"""The difference of two Polya variables by mpmath: 2F1; its tails by sums and an integral."""

from __future__ import annotations

import math
from bisect import bisect_left
from fractions import Fraction
from functools import cache

from mpmath import mp, mpf

from dpcore import Noise
from dpcore.laws.polya import PolyaDifference
from tests.support.dpcore.mpmath_precision import Real, real
from tests.support.laws import polya
from tests.support.laws.polya import one_mass, scale_of, shape_of

NAME = "polya-difference"
ROWS = (
    *("shape=1/3,scale=1/10", "shape=0.9,scale=10", "shape=7/2,scale=3/2"),
    *("shape=1/1024,scale=1000", "shape=1/16,scale=1048576"),
)
BEYOND, reach, decay = polya.BEYOND, polya.reach, polya.decay
GRID: list[Noise] = [PolyaDifference(**noise.parameters) for noise in polya.GRID]
_SUMMED = 64


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
def nodes(shape: Fraction, scale: Fraction, dps: int) -> tuple[list[Real], list[Real], list[Real]]:
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
            weight *= (-mp.expm1(-2 * rate - v)) ** (-r) / -mp.expm1(-rate - v)
            places.append(v)
            weights.append(step * weight)
            sums.append(sums[-1] + weights[-1])
        return places, weights, sums


def around_cut(shape: Fraction, scale: Fraction, k: int) -> Real:
    r"""Return P(X >= k) by the integral of the module, for 0 < r < 1 and k < e^50."""
    digits = mp.dps + 20
    with mp.workdps(digits):
        places, weights, sums = nodes(shape, scale, digits)
        # e^(-kv) is 1 to all digits before the first of these, and 0 after the second.
        first = bisect_left(places, mpf(10) ** -digits / (k + 1))
        last = bisect_left(places, mp.log(10) * (digits + 5) / k) if k else len(places)
        total = sums[first] + mp.fsum(
            weight * mp.exp(-k * v)
            for v, weight in zip(places[first:last], weights[first:last], strict=True)
        )
        r, rate = real(shape), 1 / real(scale)
        return total * mp.sinpi(r) / mp.pi * (-mp.expm1(-rate)) ** (2 * r) * mp.exp(-rate * k)


def pmf(noise: Noise, k: int) -> Real:
    r"""P(Y = k) (1 - beta)^r 2F1(r, k + r; k + 1; beta^2) for k >= 0."""
    shape, scale, k = shape_of(noise), scale_of(noise), abs(k)
    with mp.workdps(mp.dps + 40):
        r, rate = real(shape), 1 / real(scale)
        rest = mp.hyp2f1(r, k + r, k + 1, mp.exp(-2 * rate))
        found = one_mass(shape, scale, k) * mp.exp(r * mp.log(-mp.expm1(-rate))) * rest
    return +found


def log_pmf(noise: Noise, k: int) -> Real:
    r"""log P(X = k); where P(X = 0) is next to 1, from the remaining mass."""
    shape, scale = shape_of(noise), scale_of(noise)
    if k == 0 and scale < 1:
        with mp.workdps(mp.dps + 10):
            r, beta = real(shape), mp.exp(-1 / real(scale))
            rest = mp.nsum(
                lambda j: (mp.rf(r, j) / mp.factorial(j)) ** 2 * beta ** (2 * j), [1, 90]
            )
            return 2 * r * mp.log1p(-beta) + mp.log1p(rest)
    with mp.workdps(mp.dps + 20):
        return mp.log(pmf(noise, k))


def sf(noise: Noise, k: int) -> Real:
    r"""P(X > k) = sum_y P(Y = y) P(Y > y + k), or the integral around the cut."""
    shape, scale = shape_of(noise), scale_of(noise)
    if shape == 1:
        return mp.exp(-(k + 1) / real(scale)) / (1 + mp.exp(-1 / real(scale)))
    if scale <= _SUMMED:
        if k > 800 * scale + 1000:
            return pmf(noise, k + 1) / -mp.expm1(-1 / real(scale))  # magnitude only
        one, tails = masses(shape, scale, mp.dps, far_enough(shape, scale, k))
        return mp.fsum(a * b for a, b in zip(one, tails[k + 1 :], strict=False))
    return around_cut(shape, scale, k + 1)


def variance(noise: Noise) -> Real:
    return 2 * polya.variance(noise)
