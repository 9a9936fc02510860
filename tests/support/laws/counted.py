r"""Tails of laws of counts by mpmath: plain sums, or Fourier inversion for long ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from mpmath import mp, mpf

from dpcore import Noise
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


Function = Callable[[Noise, int], Real]


def functions(law_of: Callable[[Noise], Counted]) -> tuple[Function, Function, Function, Function]:
    r"""Return ``pmf``, ``log_pmf``, ``sf`` and ``cdf`` of a noise."""
    return (
        lambda noise, k: pmf(law_of(noise), k),
        lambda noise, k: log_pmf(law_of(noise), k),
        lambda noise, k: tail(law_of(noise), k + 1, 1),
        lambda noise, k: tail(law_of(noise), k, -1),
    )


def deviance(part: Fraction, k: Fraction) -> float:
    r"""About r ((1 + u) log(1 + u) - u), u = (k - r)/r, for k >= 0."""
    if k == 0:
        return float(part)
    u = float((k - part) / part)
    if abs(u) < 1e-4:
        return float(part) * u * u * (0.5 - u / 6)
    return float(part) * ((1 + u) * (math.log(k) - math.log(part)) - u)
