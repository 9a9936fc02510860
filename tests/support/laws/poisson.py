r"""The Poisson law: e^(-l) l^k/k! by log gamma, its tails by sums of masses."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

from mpmath import mp

from dpcore import Noise
from dpcore.laws.poisson_and_binomial import Poisson
from tests.support.dpcore.mpmath_precision import Real, real
from tests.support.laws import counted
from tests.support.laws.counted import Counted

NAME = "poisson"
ROWS = ("mean=1/50", "mean=10/3", "mean=50", "mean=1000003", "mean=16777216.5", "mean=1e12")
BEYOND = "mean=1e60"
GRID: list[Noise] = [
    Poisson(mean=m)
    for m in ("1e-9", "1/50", "1/2", 1, "10/3", 50, 401, "4096.5", 10**6, "4194304.3", 2**60, 2**80)
]


def _mean(noise: Noise) -> Fraction:
    return Fraction(noise.parameters["mean"])


@cache
def _law(mean: Fraction) -> Counted:
    def log_mass(x: Real) -> Real:
        rate = real(mean)
        return x * mp.log(rate) - rate - mp.loggamma(x + 1)

    return Counted(
        mean=mean,
        variance=mean,
        last=None,
        ratio=lambda k: mean / (k + 1),
        log_mass=log_mass,
        log_moment=lambda z: real(mean) * mp.expm1(z),
        saddle=lambda k: (mp.log(k / real(mean)), mp.sqrt(k)),
    )


pmf, log_pmf, sf, cdf = counted.functions(lambda noise: _law(_mean(noise)))


def reach(noise: Noise) -> int:
    return max(1, math.isqrt(math.ceil(_mean(noise))))


def decay(noise: Noise, k: int) -> float:
    mean = _mean(noise)
    return counted.deviance(mean, Fraction(abs(k))) if abs(k) > mean else 0.0


def smallest(noise: Noise, k: int) -> float:
    return counted.deviance(_mean(noise), Fraction(k)) if k >= 0 else 0.0
