r"""The binomial law: n!/(k! (n-k)!) p^k (1-p)^(n-k) by log gamma, its tails by sums of masses."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

from mpmath import mp

from dpcore import Noise
from dpcore.laws.poisson_and_binomial import Binomial
from tests.support.dpcore.mpmath_precision import Real, real
from tests.support.laws import counted
from tests.support.laws.counted import Counted

NAME = "binomial"
ROWS = (
    *("trials=1,probability=1/50", "trials=12,probability=1/3", "trials=268,probability=1/2"),
    *("trials=5000003,probability=3/10", "trials=1e8,probability=1/3"),
)
BEYOND = "trials=1e60,probability=1/2"
GRID: list[Noise] = [
    Binomial(trials=n, probability=p)
    for n, p in (
        *((1, "1/2"), (1, "1/3"), (1, "1e-9"), (2, "999999/1000000"), (12, "1/3"), (64, "1/2")),
        *((268, "1/2"), (2049, "1/2"), (5000, "1/1000"), (10**6, "1/3"), (10**8, "1/3")),
        *((2**62, Fraction(1, 2**60)), (2**62, 1 - Fraction(3, 2**60)), (2**62, "1/2")),
        *((2**80, "1/3"), (2**80 + 1, "1/2"), (2**80, Fraction(5, 2**80))),
    )
]


def _parameters(noise: Noise) -> tuple[int, Fraction]:
    return int(noise.parameters["trials"]), Fraction(noise.parameters["probability"])


@cache
def _law(n: int, p: Fraction) -> Counted:
    def log_mass(x: Real) -> Real:
        ways = mp.loggamma(n + 1) - mp.loggamma(x + 1) - mp.loggamma(n - x + 1)
        return ways + x * mp.log(real(p)) + (n - x) * mp.log(real(1 - p))

    def saddle(k: int) -> tuple[Real, Real]:
        return mp.log(real(k * (1 - p) / ((n - k) * p))), mp.sqrt(real(Fraction(k * (n - k), n)))

    return Counted(
        mean=n * p,
        variance=n * p * (1 - p),
        last=n,
        ratio=lambda k: (n - k) * p / ((k + 1) * (1 - p)),
        log_mass=log_mass,
        log_moment=lambda z: n * mp.log1p(real(p) * mp.expm1(z)),
        saddle=saddle,
    )


pmf, log_pmf, sf, cdf = counted.functions(lambda noise: _law(*_parameters(noise)))


def reach(noise: Noise) -> int:
    n, p = _parameters(noise)
    return max(1, math.isqrt(math.ceil(n * p * (1 - p))))


def decay(noise: Noise, k: int) -> float:
    n, p = _parameters(noise)
    if abs(k) <= n * p:
        return 0.0
    return _deviance(n, p, abs(k)) if abs(k) < n else math.inf


def smallest(noise: Noise, k: int) -> float:
    n, p = _parameters(noise)
    return _deviance(n, p, k) if 0 <= k <= n else 0.0


def _deviance(n: int, p: Fraction, k: int) -> float:
    heads = counted.deviance(n * p, Fraction(k))
    return heads + counted.deviance(n * (1 - p), Fraction(n - k))
