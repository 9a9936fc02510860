r"""The Poisson and the binomial law: masses by log gamma, tails by sums or Fourier inversion."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from mpmath import mp, mpf

from dpcore import Binomial, Noise, Poisson
from tests.support.dpcore.mpmath_precision import Real, real
from tests.support.laws import inverted

PLAIN_VARIANCE = 1 << 16
STEEP = Fraction(9, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    r"""A law on 0, ..., last (None: unbounded), given by log f and log E[e^(zX)].

    ``saddle(k)`` is the saddle z of log E[e^(zX)] - zk, and the deviation of the tilted law there.
    """

    mean: Fraction
    variance: Fraction
    last: int | None
    ratio: Callable[[int], Fraction]
    log_mass: Callable[[Real], Real]
    log_moment: Callable[[Real], Real]
    saddle: Callable[[int], tuple[Real, Real]]

    def inside(self, k: int) -> bool:
        return k >= 0 and (self.last is None or k <= self.last)


# The logarithms of masses at 2^80 lose twice as many digits as the numbers have.
_LOST = 60


def log_pmf(law: Counted, k: int) -> Real:
    if not law.inside(k):
        return -mp.inf
    with mp.workdps(mp.dps + _LOST):
        found = law.log_mass(mpf(k))
    return +found


def pmf(law: Counted, k: int) -> Real:
    with mp.workdps(mp.dps + _LOST):
        found = mp.exp(log_pmf(law, k))
    return +found


def tail(law: Counted, first: int, direction: int) -> Real:
    r"""P(X >= first) for direction 1, P(X <= first) for -1, each computed from the smaller side."""
    beyond = first - 1 if direction > 0 else first + 1
    if not law.inside(first):
        inner = (first < 0) == (direction > 0)
        return mpf(1 if inner else 0)
    if (first - law.mean) * direction < 0:
        return 1 - tail(law, beyond, -direction)
    return +_far(law, first, direction, mp.dps)


@cache
def _far(law: Counted, first: int, direction: int, dps: int) -> Real:
    with mp.workdps(dps + 15):
        if law.variance <= PLAIN_VARIANCE or _step(law, first, direction) < STEEP:
            return _plain(law, first, direction)
        return _inverted(law, first, direction)


def _plain(law: Counted, k: int, direction: int) -> Real:
    term = pmf(law, k)
    total = mpf(0)
    while term > mp.eps * total / 10**8:
        total += term
        term *= real(_step(law, k, direction))
        k += direction
    return total


def _step(law: Counted, k: int, direction: int) -> Fraction:
    r"""Return the ratio of the next mass outwards to the mass at k."""
    if direction > 0:
        return law.ratio(k)
    return 1 / law.ratio(k - 1) if k > 0 else Fraction(0)


def _inverted(law: Counted, first: int, direction: int) -> Real:
    with mp.workdps(mp.dps + 60):
        saddle, spread = law.saddle(first)
    return inverted.integral(
        lambda z: law.log_moment(direction * z),
        direction * first,
        direction * saddle,
        spread,
        tail=True,
    )


def _deviance(part: Fraction, k: Fraction) -> float:
    r"""About r ((1 + u) log(1 + u) - u), u = (k - r)/r, for k >= 0."""
    if k == 0:
        return float(part)
    u = float((k - part) / part)
    if abs(u) < 1e-4:
        return float(part) * u * u * (0.5 - u / 6)
    return float(part) * ((1 + u) * (math.log(k) - math.log(part)) - u)


@dataclass(frozen=True, kw_only=True)
class Reference:
    r"""The interface of a reference module, for a law of counts."""

    NAME: str
    ROWS: tuple[str, ...]
    BEYOND: str
    GRID: list[Noise]
    law_of: Callable[[Noise], Counted]

    def pmf(self, noise: Noise, k: int) -> Real:
        return pmf(self.law_of(noise), k)

    def log_pmf(self, noise: Noise, k: int) -> Real:
        return log_pmf(self.law_of(noise), k)

    def sf(self, noise: Noise, k: int) -> Real:
        return tail(self.law_of(noise), k + 1, 1)

    def cdf(self, noise: Noise, k: int) -> Real:
        return tail(self.law_of(noise), k, -1)

    def reach(self, noise: Noise) -> int:
        return max(1, math.isqrt(math.ceil(self.law_of(noise).variance)))

    def decay(self, noise: Noise, k: int) -> float:
        law = self.law_of(noise)
        if abs(k) <= law.mean:
            return 0.0
        return deviance(law, abs(k)) if law.last is None or abs(k) < law.last else math.inf

    def smallest(self, noise: Noise, k: int) -> float:
        law = self.law_of(noise)
        return deviance(law, k) if law.inside(k) else 0.0


def deviance(law: Counted, k: int) -> float:
    r"""Return about -log P(X = k), relative to that of the mean."""
    if law.last is None:
        return _deviance(law.mean, Fraction(k))
    rest = law.last - law.mean
    return _deviance(law.mean, Fraction(k)) + _deviance(rest, Fraction(law.last - k))


@cache
def _poisson(noise: Noise) -> Counted:
    mean = Fraction(noise.parameters["mean"])
    return Counted(
        mean=mean,
        variance=mean,
        last=None,
        ratio=lambda k: mean / (k + 1),
        log_mass=lambda x: x * mp.log(real(mean)) - real(mean) - mp.loggamma(x + 1),
        log_moment=lambda z: real(mean) * mp.expm1(z),
        saddle=lambda k: (mp.log(k / real(mean)), mp.sqrt(k)),
    )


@cache
def _binomial(noise: Noise) -> Counted:
    n, p = int(noise.parameters["trials"]), Fraction(noise.parameters["probability"])

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


_MEANS = ("1e-9", "1/50", "1/2", 1, "10/3", 50, 401, "4096.5", 10**6, "4194304.3", 2**60, 2**80)
POISSON = Reference(
    NAME="poisson",
    ROWS=("mean=1/50", "mean=10/3", "mean=50", "mean=1000003", "mean=16777216.5", "mean=1e12"),
    BEYOND="mean=1e60",
    GRID=[Poisson(mean=mean) for mean in _MEANS],
    law_of=_poisson,
)
BINOMIAL = Reference(
    NAME="binomial",
    ROWS=(
        *("trials=1,probability=1/50", "trials=12,probability=1/3", "trials=268,probability=1/2"),
        *("trials=5000003,probability=3/10", "trials=1e8,probability=1/3"),
    ),
    BEYOND="trials=1e60,probability=1/2",
    GRID=[
        Binomial(trials=n, probability=p)
        for n, p in (
            *((1, "1/2"), (1, "1/3"), (1, "1e-9"), (2, "999999/1000000"), (12, "1/3")),
            *((64, "1/2"), (268, "1/2"), (2049, "1/2"), (5000, "1/1000"), (10**6, "1/3")),
            *((10**8, "1/3"), (2**62, Fraction(1, 2**60)), (2**62, 1 - Fraction(3, 2**60))),
            *((2**62, "1/2"), (2**80, "1/3"), (2**80 + 1, "1/2"), (2**80, Fraction(5, 2**80))),
        )
    ],
    law_of=_binomial,
)
