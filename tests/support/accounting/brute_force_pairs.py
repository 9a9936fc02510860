"""Reference values of one coordinate: sums over a truncated support, all shifts and directions.

Rays, intervals, directions and worst shifts are not used. Truncation loses less than 1e-30 of the
compared value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath

from dpcore import Binomial, DiscreteGaussianSum, Poisson, Polya, Skellam
from dpcore.numbers.enclosure import Enclosure
from tests.support.accounting.brute_force import DIGITS, Mass, close, mass_of, real

Rational = Fraction | int | str
World = list[tuple[Any, Any]]


def skellam(variance: Rational) -> Mass:
    return mass_of(Skellam(variance=variance))


def poisson(mean: Rational) -> Mass:
    return mass_of(Poisson(mean=mean))


def binomial(trials: int, probability: Rational) -> Mass:
    return mass_of(Binomial(trials=trials, probability=probability))


def polya(shape: Rational, scale: Rational) -> Mass:
    return mass_of(Polya(shape=shape, scale=scale))


def difference(one: Mass, reach: int) -> Mass:
    """Return the law of X - Y for two draws of a law on 0..reach, by the double sum."""

    def mass(k: int) -> Any:
        with mpmath.workdps(DIGITS + 10):
            return mpmath.fsum(points[j] * points[j + abs(k)] for j in range(reach + 1 - abs(k)))

    with mpmath.workdps(DIGITS + 10):
        points = [one(k) for k in range(reach + 1)]
    return lru_cache(maxsize=None)(mass)


def gaussian_sum(count: int, sigma_squared: Rational) -> Mass:
    return mass_of(DiscreteGaussianSum(count=count, sigma_squared=sigma_squared))


@dataclass(frozen=True, slots=True, kw_only=True)
class Worlds:
    """Shifts 1..most of one law whose mass outside low..high is negligible."""

    mass: Mass
    most: int
    low: int
    high: int

    def pairs(self) -> Iterable[World]:
        with mpmath.workdps(DIGITS):
            points = range(self.low - self.most, self.high + self.most + 1)
            single = {k: self.mass(k) if self.low <= k <= self.high else 0 for k in points}
        for step in range(1, self.most + 1):
            for move in (step, -step):
                both = [(single[k], single.get(k + move, 0)) for k in points]
                yield [point for point in both if point != (0, 0)]

    def delta(self, epsilon: Rational) -> Any:
        with mpmath.workdps(DIGITS):
            factor = mpmath.exp(real(epsilon))
            return max(mpmath.fsum(max(p - factor * q, 0) for p, q in w) for w in self.pairs())

    def tradeoff(self, alpha: Rational) -> Any:
        with mpmath.workdps(DIGITS):
            return min(_missed(world, real(alpha)) for world in self.pairs())

    def renyi(self, order: Rational) -> Any:
        with mpmath.workdps(DIGITS):
            alpha = real(order)
            sums = (
                mpmath.fsum(p**alpha * q ** (1 - alpha) for p, q in world if p and q)
                for world in self.pairs()
            )
            return mpmath.log(max(sums)) / (alpha - 1)

    def divergence(self) -> Any:
        with mpmath.workdps(DIGITS):
            return max(
                mpmath.fsum(p * mpmath.log(p / q) for p, q in world if p and q)
                for world in self.pairs()
            )


def _missed(world: World, left: Any) -> Any:
    # Neyman and Pearson: reject the null q in falling order of p/q.
    missed = mpmath.mpf(1)
    order: Callable[[tuple[Any, Any]], Any] = lambda pq: pq[1] / pq[0] if pq[0] else mpmath.inf  # noqa: E731 - one line says it
    for p, q in sorted(world, key=order):
        share = min(left / q, 1) if q else 1
        missed -= share * p
        left -= share * q
    return missed


def inverts(
    found: Enclosure, brute: Worlds, delta: str, narrow: Fraction = Fraction(1, 2**64)
) -> bool:
    """Whether epsilon(delta) is found, is narrow, and gives delta back."""
    with mpmath.workdps(DIGITS):
        slack = real(delta) * mpmath.mpf("1e-17")
        below, above = Fraction(found.lower), Fraction(found.upper)
        return bool(
            found.width <= above * narrow
            and brute.delta(above) <= real(delta) + slack
            and (below == 0 or brute.delta(below) >= real(delta) - slack)
        )


def agrees(
    found: Callable[[str], Enclosure], truth: Callable[[str], Any], at: Iterable[str]
) -> bool:
    """The check that every pair must pass and every mutant must fail."""
    for point in at:
        exact = truth(point)
        if not (close(found(point), exact, relative="1e-28") or abs(exact) < mpmath.mpf("1e-27")):
            return False
    return True
