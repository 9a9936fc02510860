r"""Base class of noise on 0, 1, 2, ... with rational, decreasing ratios of successive masses.

Poisson and binomial laws have the support 0, 1, 2, ... (up to the number of trials), and
P(X = k+1)/P(X = k) is a rational number that decreases in k. So the law is log-concave, all masses
follow from any one of them by exact ratios, and far tails are bounded by geometric series. Tails
that start near the mean are computed as contour sums. Proofs: docs/proofs/laws.md.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Final, NamedTuple, cast

import numpy as np
from flint import arb, ctx

from dpcore.analysis import contour_sums as contour
from dpcore.analysis.law_floats import normal_guess, pointwise
from dpcore.noise import Additive
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import nearest, precision
from dpcore.numbers.floating import Floats
from dpcore.sampling.inversion import TABLE_BITS, InversionTable, table_of_masses

Ratio = tuple[int, int]
"""A rational >= 0 as numerator and denominator, not in lowest terms."""

_ROUNDED_VARIANCE: Final = 1 << 20
_STEEP: Final = Fraction(3, 4)
_LEAST_FLOAT: Final = 1e-308
_LEFT_MASS: Final = 2.0**-80
_RIGHT_MASS: Final = 2.0**-60


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CountNoise(Additive):
    r"""A law on 0, 1, 2, ... with rational ratios of successive masses, decreasing in k."""

    @property
    @abstractmethod
    def mean(self) -> Fraction:
        r"""The mean E[X], exact."""

    @property
    @abstractmethod
    def variance(self) -> Fraction:
        r"""The variance Var[X], exact."""

    @property
    @abstractmethod
    def _last(self) -> int | None:
        r"""The largest value of X, or None if it is unbounded."""

    @property
    @abstractmethod
    def _mode(self) -> int:
        r"""A mode: an integer k with P(X = k) >= P(X = j) for all j."""

    @property
    @abstractmethod
    def _steps(self) -> tuple[int, int, int]:
        r"""Integers (a, b, c) with P(X = k+1)/P(X = k) = (a - b k)/(c (k+1)); a, c > 0, b >= 0."""

    @abstractmethod
    def _log_mass(self, k: int) -> arb:
        r"""log P(X = k) for k in the range of X, as a ball."""

    @property
    def log_concave(self) -> bool:
        r"""True, because the ratios of successive masses are decreasing."""
        return True

    def _ratio(self, k: int) -> Fraction:
        a, b, c = self._steps
        return Fraction(a - b * k, c * (k + 1))

    def _inside(self, k: int) -> bool:
        return k >= 0 and (self._last is None or k <= self._last)

    def pmf_ball(self, k: int) -> arb:
        r"""P(X = k), from its logarithm; 0 outside the support."""
        return self._log_mass(k).exp() if self._inside(k) else arb(0)

    def sf_ball(self, k: int) -> arb:
        r"""P(X > k): 1 - P(X <= k) below the mean, a direct or a contour sum in the tail."""
        if k < 0:
            return arb(1)
        if not self._inside(k + 1):
            return arb(0)
        if k + 1 <= self.mean:
            return 1 - self.cdf_ball(k)
        if self._ratio(k + 1) <= _STEEP:
            return falling_sum(self.pmf_ball(k + 1), self._upwards(k + 1))
        return contour.upper_tail(cast(contour.CoinSum, self), k + 1)

    def cdf_ball(self, k: int) -> arb:
        r"""P(X <= k): 1 - P(X > k) above the mean, a direct or a contour sum in the tail."""
        if k < 0:
            return arb(0)
        if not self._inside(k + 1):
            return arb(1)
        if k >= self.mean:
            return 1 - self.sf_ball(k)
        if k == 0 or 1 / self._ratio(k - 1) <= _STEEP:
            return falling_sum(self.pmf_ball(k), self._downwards(k))
        return contour.lower_tail(cast(contour.CoinSum, self), k)

    def _upwards(self, k: int) -> Iterator[Ratio]:
        # P(X = j+1)/P(X = j) for j = k, k+1, ...; 0 at the end of the support.
        a, b, c = self._steps
        while True:
            yield a - b * k, c * (k + 1)
            k += 1

    def _downwards(self, k: int) -> Iterator[Ratio]:
        # P(X = j-1)/P(X = j) for j = k, k-1, ...; 0 at the smallest value.
        a, b, c = self._steps
        while k >= 0:
            yield c * k, a - b * (k - 1)
            k -= 1

    def _pmf(self, k: Integers) -> Floats:
        if self.variance > _ROUNDED_VARIANCE:
            return pointwise(k, self.pmf_ball)
        return _rounded(self).read(k, "masses")

    def _cdf(self, k: Integers) -> Floats:
        if self.variance > _ROUNDED_VARIANCE:
            return pointwise(k, self.cdf_ball)
        return _rounded(self).read(k, "below")

    def _sf(self, k: Integers) -> Floats:
        if self.variance > _ROUNDED_VARIANCE:
            return pointwise(k, self.sf_ball)
        return _rounded(self).read(k, "above")

    def _log_pmf(self, k: Integers) -> Floats:
        inside = k >= 0
        if self._last is not None:
            inside &= k <= self._last
        logs = pointwise(np.where(inside, k, self._mode), self._log_mass)
        return np.where(inside, logs, -np.inf)

    def _quantile_guess(self, p: Floats) -> Integers:
        if self.variance <= _ROUNDED_VARIANCE:
            table = _rounded(self)
            low = np.searchsorted(table.below, p)
            high = np.searchsorted(-table.above, p - 1)
            found: Integers = np.where(p < 0.5, low, high) + (table.first - 1)
            return found
        away = normal_guess(p, self.variance, self._skew)
        guess: Integers = np.maximum(away + math.floor(self.mean), 0)
        return guess

    @property
    @abstractmethod
    def _skew(self) -> Fraction:
        r"""E[(X - E[X])^3]/Var[X], used for initial guesses."""


def falling_sum(first: arb, ratios: Iterator[Ratio]) -> arb:
    r"""The sum ``first`` (1 + r_0 + r_0 r_1 + ...) for decreasing rational ratios 0 <= r_i < 1.

    The remainder after a term t with the next ratio r is at least 0 and at most t r/(1 - r).
    """
    total, term, cut = first, first, first * arb(2) ** (-ctx.prec)
    for above, below in ratios:
        if not above:
            return total
        # `not term > cut`, because a ball too wide to be compared must end the loop.
        if not term > cut:
            rest = (term * above / (below - above)).upper()
            return total + arb(rest / 2, rest / 2)
        term = term * above / below
        total += term
    raise AssertionError("the sequence of ratios must end with 0 or be infinite")


class _Rounded(NamedTuple):
    # Index i stands for k = first - 1 + i; the two ends also stand for all k beyond them.
    first: int
    masses: Floats
    below: Floats
    above: Floats

    def read(self, k: Integers, column: str) -> Floats:
        values: Floats = getattr(self, column)
        least = self.first - 1
        return values[np.clip(k, least, least + len(values) - 1) - least]


@lru_cache(maxsize=16)
def _rounded(noise: CountNoise) -> _Rounded:
    # P(X = k), P(X <= k), P(X > k) where they exceed 1e-300, each rounded once from a ball.
    with precision(160 + 2 * _size(noise)):
        first, balls = _masses(noise, _LEAST_FLOAT, _LEAST_FLOAT)
        below = [*accumulate(balls, initial=noise.cdf_ball(first - 1))]
        above = [*accumulate(reversed(balls), initial=noise.sf_ball(first + len(balls) - 1))]
        return _Rounded(
            first,
            np.array([0.0, *map(nearest, balls), 0.0]),
            np.array([0.0, *map(nearest, below[1:]), 1.0]),
            np.array([1.0, *map(nearest, above[-2::-1]), 0.0]),
        )


def table_of_counts(noise: CountNoise) -> InversionTable:
    r"""Build the table of a law of standard deviation up to about 2^11, from the mode outwards."""
    with precision(TABLE_BITS + 2 * _size(noise)):
        first, balls = _masses(noise, _LEFT_MASS, _RIGHT_MASS)
        return table_of_masses(first, noise.cdf_ball(first - 1), balls, noise.cdf_ball)


def _size(noise: CountNoise) -> int:
    # About the number of bits that logarithms of factorials lose.
    return max(noise._mode, noise._last or 0).bit_length()


def _masses(noise: CountNoise, least_left: float, least_right: float) -> tuple[int, list[arb]]:
    # The first value, and the masses from it on, down to these on either side of the mode.
    mode = noise._mode
    middle = noise.pmf_ball(mode)
    left = [*_walk(middle, noise._downwards(mode), least_left)]
    right = _walk(middle, noise._upwards(mode), least_right)
    return mode - len(left), [*reversed(left), middle, *right]


def _walk(mass: arb, ratios: Iterator[Ratio], least: float) -> Iterator[arb]:
    for above, below in ratios:
        mass = mass * above / below
        if not mass > least:
            return
        yield mass
