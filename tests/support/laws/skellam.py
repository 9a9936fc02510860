r"""The Skellam law: e^(-v) I_|k|(v) by mpmath's Bessel functions, a recurrence, or inversion."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

from mpmath import mp

from dpcore import Noise
from dpcore.laws.skellam import Skellam
from tests.support.dpcore.mpmath_precision import Real, real
from tests.support.laws import inverted

NAME = "skellam"
ROWS = (
    *("variance=1/50", "variance=10/3", "variance=100", "variance=1000003"),
    *("variance=16777216.5", "variance=1e12"),
)
BEYOND = "variance=1e60"
GRID: list[Noise] = [
    Skellam(variance=v)
    for v in ("1e-9", "1/50", "1/2", 1, "10/3", 63, 65, 401, 10**4, "4194304.3", 2**60, 2**80)
]
_BESSEL_VARIANCE = 1 << 15


def _variance(noise: Noise) -> Fraction:
    return Fraction(noise.parameters["variance"])


def pmf(noise: Noise, k: int) -> Real:
    v = _variance(noise)
    if v < _BESSEL_VARIANCE:
        with mp.workdps(mp.dps + 20):
            found = mp.exp(-real(v)) * mp.besseli(abs(k), real(v))
        return +found
    return _inverted(v, abs(k), tail=False)


def log_pmf(noise: Noise, k: int) -> Real:
    # Next to 1 for tiny v: the digits that the logarithm loses are added.
    with mp.workdps(mp.dps + 30):
        found = mp.log(pmf(noise, k))
    return +found


def sf(noise: Noise, k: int) -> Real:
    v = _variance(noise)
    return +_tail(v, k + 1, mp.dps) if v < _BESSEL_VARIANCE else _inverted(v, k + 1, tail=True)


def reach(noise: Noise) -> int:
    return max(1, math.isqrt(math.ceil(_variance(noise))))


def decay(noise: Noise, k: int) -> float:
    r"""Chernoff's exponent |k| asinh(|k|/v) - v (cosh(asinh(|k|/v)) - 1)."""
    v, x = float(_variance(noise)), float(abs(k))
    ratio = x / v
    if ratio < 1e-4:
        return x * ratio / 2
    return x * math.asinh(ratio) - v * (math.hypot(1, ratio) - 1)


@cache
def _tail(v: Fraction, first: int, dps: int) -> Real:
    # sum_{k >= first} e^(-v) I_k(v), downwards from far out by I_(k-1) = I_(k+1) + (2k/v) I_k: all
    # terms are positive, and the errors of the two starting terms decrease.
    with mp.workdps(dps + 15):
        far = first
        while decay(Skellam(variance=v), far) < decay(Skellam(variance=v), first) + 2.4 * mp.dps:
            far += 1 + far // 16
        above, here = (mp.besseli(n, real(v)) for n in (far + 1, far))
        total, k, rate = here, far, 2 / real(v)
        while k > first:
            above, here = here, above + rate * k * here
            k -= 1
            total += here
        return total * mp.exp(-real(v))


def _inverted(v: Fraction, k: int, *, tail: bool) -> Real:
    return +_integral(v, k, mp.dps, tail=tail)


@cache
def _integral(v: Fraction, k: int, dps: int, *, tail: bool) -> Real:
    with mp.workdps(dps + 60):
        rate = real(v)
        saddle = mp.asinh(k / rate)
        spread = mp.sqrt(rate * mp.cosh(saddle))
    with mp.workdps(dps):
        return inverted.integral(
            lambda z: 2 * rate * mp.sinh(z / 2) ** 2, k, saddle, spread, tail=tail
        )
