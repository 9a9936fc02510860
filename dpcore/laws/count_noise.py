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
from itertools import accumulate, islice
from typing import Final, cast

import numpy as np
from flint import arb, ctx

from dpcore.analysis import contour_sums as contour
from dpcore.analysis.law_floats import normal_guess, one_sided, pointwise
from dpcore.noise import Additive
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import precision
from dpcore.numbers.floating import Floats
from dpcore.sampling.inversion import TABLE_BITS, InversionTable, table_of_masses

Ratio = tuple[int, int]
"""A rational >= 0 as numerator and denominator, not in lowest terms."""

_STEEP: Final = Fraction(3, 4)
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

    def masses(self, first: int, last: int) -> list[arb]:
        r"""P(X = k) for k = ``first``, ..., ``last`` from their ratios."""
        ratios = islice(self._upwards(first), last - first)
        return [*accumulate(ratios, _stepped, initial=self.pmf_ball(first))]

    def _pmf(self, k: Integers) -> Floats:
        return one_sided(self, k, "pmf")

    def _cdf(self, k: Integers) -> Floats:
        return one_sided(self, k, "cdf")

    def _sf(self, k: Integers) -> Floats:
        return one_sided(self, k, "sf")

    def _log_pmf(self, k: Integers) -> Floats:
        inside = k >= 0
        if self._last is not None:
            inside &= k <= self._last
        logs = pointwise(np.where(inside, k, self._mode), self._log_mass)
        return np.where(inside, logs, -np.inf)

    def _quantile_guess(self, p: Floats) -> Integers:
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


def table_of_counts(noise: CountNoise) -> InversionTable:
    r"""Build the table of a law of standard deviation up to about 2^11, from the mode outwards."""
    with precision(TABLE_BITS + 2 * _size(noise)):
        first, balls = _masses(noise, _LEFT_MASS, _RIGHT_MASS)
        return table_of_masses(first, noise.cdf_ball(first - 1), balls, noise.cdf_ball)


def _size(noise: CountNoise) -> int:
    # About the number of bits that logarithms of factorials lose.
    return max(noise._mode, noise._last or 0).bit_length()


def _masses(noise: CountNoise, least_left: float, least_right: float) -> tuple[int, list[arb]]:
    # The first value, and the masses from it on: those above `least_left` to the left of the mode,
    # the mode, and those above `least_right` to its right.
    mode = noise._mode
    middle = noise.pmf_ball(mode)
    left = [*_walk(middle, noise._downwards(mode), least_left)]
    right = _walk(middle, noise._upwards(mode), least_right)
    return mode - len(left), [*reversed(left), middle, *right]


def _stepped(mass: arb, ratio: Ratio) -> arb:
    return mass * ratio[0] / ratio[1]


def _walk(mass: arb, ratios: Iterator[Ratio], least: float) -> Iterator[arb]:
    for ratio in ratios:
        mass = _stepped(mass, ratio)
        if not mass > least:
            return
        yield mass
