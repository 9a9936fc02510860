"""Reference values of one release: plain sums in mpmath over all shifts, in both directions.

Rays, intervals, closed forms, worst shifts and worst directions are not used. A world is the list
of outcomes of two laws; its divergences follow their definitions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations
from math import comb
from typing import Any

import mpmath
import numpy as np

from accounting.pld.finite_pld import Listing
from dpcore import Noise
from dpcore.numbers.enclosure import Enclosure
from tests.support.accounting.unregistered_law import Triangle
from tests.support.dpcore import mpmath_precision
from tests.support.laws import second

DIGITS = 50
EPSILONS = ("0", "1/1000", "1/10", "1/3", "1", "5/2", "7")
Mass = Callable[[int], Any]
Rational = Fraction | int | str
World = Sequence[tuple[Any, Any]]
"""(P, Q) of each outcome: mpf, Fraction or float."""

real = mpmath_precision.real


def mass_of(noise: Noise) -> Mass:
    """Return the masses of a law from its reference module, at the ambient digits."""
    if isinstance(noise, Triangle):
        return lambda k: mpmath.mpf(max(noise.half + 1 - abs(k), 0)) / (noise.half + 1) ** 2
    return lambda k: second(noise, "pmf", k)


def excess(world: World, growth: Any) -> Any:
    """Return the hockey-stick divergence at e^epsilon = ``growth``; exact for rationals."""
    return sum(max(p - growth * q, 0) for p, q in world)


def hockey_stick(world: World, epsilon: Any) -> Any:
    return excess(world, mpmath.exp(real(epsilon)))


def worse(world: World, epsilon: Any) -> Any:
    """Return the hockey-stick divergence, the larger of both directions."""
    return max(hockey_stick(each, epsilon) for each in (world, [(q, p) for p, q in world]))


def renyi(world: World, order: Any) -> Any:
    """Return the Renyi divergence, over the outcomes that both laws have."""
    alpha = real(order)
    moment = sum(real(p) ** alpha * real(q) ** (1 - alpha) for p, q in world if p and q)
    return mpmath.log(moment) / (alpha - 1)


def least_error(world: World, alpha: Any) -> Any:
    """Return the type II error of Neyman and Pearson: reject Q in falling order of P/Q."""
    missed, left = 1, alpha
    for p, q in sorted(world, key=lambda point: point[1] / point[0] if point[0] else mpmath.inf):
        share = min(left / q, 1) if q else 1
        missed, left = missed - share * p, left - share * q
    return missed


def binomial(trials: int, p: Any) -> dict[int, Any]:
    """Return the masses of a binomial law, exact for a rational ``p``."""
    return {k: comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(trials + 1)}


def shifted(masses: Mapping[int, Any], step: int) -> World:
    """Return a law on the integers and its copy moved by ``step``."""
    places = sorted({*masses, *(k + step for k in masses)})
    return [(masses.get(k, 0), masses.get(k - step, 0)) for k in places]


def product(worlds: Iterable[World]) -> World:
    """Return the outcomes of independent coordinates or rounds."""
    total: World = [(1, 1)]
    for world in worlds:
        total = [(p * r, q * s) for p, q in total for r, s in world]
    return total


def response(epsilon: Any, rounds: int = 1) -> World:
    """Return the number of right answers in ``rounds`` rounds of randomised response."""
    right = 1 / (1 + mpmath.exp(-real(epsilon)))
    return [*zip(*(binomial(rounds, p).values() for p in (right, 1 - right)), strict=True)]


def converted(divergence: Any, order: Any, delta: Any) -> Any:
    """Return the epsilon of Canonne, Kamath and Steinke 2020, Proposition 12."""
    return divergence - mpmath.log(order * delta) / (order - 1) + mpmath.log(1 - 1 / order)


def batch(values: Sequence[int], rate: float, most: int) -> dict[float, float]:
    """Return the law of the sum of a Poisson sample, of which ``most`` are kept at random."""
    weights: dict[float, float] = defaultdict(float)
    for size in range(len(values) + 1):
        for sample in combinations(values, size):
            kept = [*combinations(sample, min(most, size))]
            chance = rate**size * (1 - rate) ** (len(values) - size) / len(kept)
            for each in kept:
                weights[sum(each)] += chance
    return weights


def world_of(listing: Listing) -> World:
    """Return the two laws of a listing; hidden mass has no partner."""
    rows = zip(listing.masses.tolist(), listing.losses.tolist(), strict=True)
    points = [(mpmath.mpf(p), mpmath.mpf(p) * mpmath.exp(-mpmath.mpf(l))) for p, l in rows]
    return [*points, (mpmath.mpf(listing.hidden), mpmath.mpf(0))]


def normal_delta(squared: Any, epsilon: Any) -> Any:
    """Return delta of a real Gaussian whose squared shift over its variance is ``squared``."""
    mu, e = mpmath.sqrt(squared), real(epsilon)
    return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)


class Neighbours(ABC):
    """The worst case over the pairs of laws of all neighbours, in both directions."""

    __slots__ = ()

    @abstractmethod
    def pairs(self) -> Iterable[World]: ...

    @cache  # noqa: B019  # a few frozen cases, each asked by several mutants
    def delta(self, epsilon: Rational) -> Any:
        with mpmath.workdps(DIGITS):
            return max(hockey_stick(world, epsilon) for world in self.pairs())

    def tradeoff(self, alpha: Rational) -> Any:
        with mpmath.workdps(DIGITS):
            return min(least_error(world, real(alpha)) for world in self.pairs())

    def renyi(self, order: Rational) -> Any:
        with mpmath.workdps(DIGITS):
            return max(renyi(world, order) for world in self.pairs())

    def divergence(self) -> Any:
        with mpmath.workdps(DIGITS):
            return max(
                mpmath.fsum(p * mpmath.log(p / q) for p, q in world if p and q)
                for world in self.pairs()
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Brute(Neighbours):
    """All given vector shifts of independent coordinates, over the cube |x_i| <= reach."""

    noise: Noise
    shifts: tuple[tuple[int, ...], ...]
    reach: int

    def pairs(self) -> Iterable[World]:
        mass = mass_of(self.noise)
        single = {k: mass(k) for k in range(-2 * self.reach - 1, 2 * self.reach + 2)}
        for shift in self.shifts:
            for signed in (shift, tuple(-step for step in shift)):
                axes = [
                    [(single[x], single[x - step]) for x in range(-self.reach, self.reach + 1)]
                    for step in signed
                ]
                yield product(axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worlds(Neighbours):
    """Shifts 1..most of one law whose mass outside low..high is negligible: below 1e-30."""

    noise: Noise
    most: int
    low: int
    high: int

    def pairs(self) -> Iterable[World]:
        with mpmath.workdps(DIGITS):
            points = range(self.low - self.most, self.high + self.most + 1)
            mass = mass_of(self.noise)
            single = {k: mass(k) if self.low <= k <= self.high else 0 for k in points}
        for step in range(1, self.most + 1):
            for move in (step, -step):
                both = [(single[k], single.get(k + move, 0)) for k in points]
                yield [point for point in both if point != (0, 0)]


def close(found: Enclosure, truth: Any, *, relative: str = "1e-30", room: str = "0") -> bool:
    """Whether the enclosure contains a reference of this relative and this absolute error."""
    with mpmath.workdps(DIGITS):
        slack = abs(truth) * mpmath.mpf(relative) + mpmath.mpf(room)
        return bool(
            real(Fraction(found.lower)) - slack <= truth <= real(Fraction(found.upper)) + slack
        )


def inverts(
    found: Enclosure, brute: Neighbours, delta: str, narrow: Fraction = Fraction(1, 2**64)
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


def two_samples(sigma: str, rate: Fraction, epsilon: Any, sign: int, *, pieces: int = 56) -> Any:
    r"""The delta of two Poisson samples of Gaussian noise, by quadrature over one of them.

    The loss of the other one has a closed form. ``sign`` is 1 for (mixture, N(0, 1)), -1 for the
    swapped pair.
    """
    share, move = real(rate), 1 / real(sigma)
    mean = move**2 / 2

    def loss(x: Any) -> Any:
        return mpmath.log1p(share * mpmath.expm1(x * move - mean))

    def one(level: Any) -> Any:
        grown = 1 + mpmath.expm1(sign * level) / share
        if grown <= 0:
            return (1 - mpmath.exp(level)) if sign > 0 else mpmath.mpf(0)
        at = (mpmath.log(grown) + mean) / move
        tail = mpmath.ncdf(-sign * at)
        mixed = (1 - share) * tail + share * mpmath.ncdf(-sign * (at - move))
        here, there = (mixed, tail) if sign > 0 else (tail, mixed)
        return here - mpmath.exp(level) * there

    def part(x: Any) -> Any:
        density = mpmath.npdf(x)
        if sign > 0:
            density = (1 - share) * density + share * mpmath.npdf(x - move)
        return density * one(epsilon - sign * loss(x))

    return mpmath.quad(part, mpmath.linspace(-14, 14, pieces + 1))


def by_fft(
    p: Any, loss: Any, rounds: int, epsilons: tuple[float, float], step: float
) -> Iterator[float]:
    """Yield delta at two epsilons: losses of a round rounded down, then up, to a grid; an FFT."""
    size = 1 << 20
    for places, epsilon in zip(
        (np.floor(loss / step), np.ceil(loss / step)), epsilons, strict=True
    ):
        first = int(places.min())
        law = np.bincount(places.astype(int) - first, p, size)
        total = np.fft.irfft(np.fft.rfft(law) ** rounds, size)
        at = (np.arange(size) + rounds * first) * step
        yield float(-np.expm1(np.minimum(epsilon - at, 0)) @ total)
