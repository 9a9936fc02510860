r"""The Poisson and binomial laws, on 0, 1, 2, ..., with rational ratios of successive masses.

Poisson(l): P(X = k) = e^(-l) l^k/k!. Sums of independent draws are Poisson, so the law divides into
any number of shares; the difference of two draws is Skellam. Binomial(n, p): P(X = k) =
n!/(k! (n-k)!) p^k (1-p)^(n-k), the number of successes in n trials. In the shuffle model each user
adds a few random bits, and the analyzer subtracts their mean.

For both laws P(X = k+1)/P(X = k) is a rational number that decreases in k (:class:`CountNoise`). So
the law is log-concave, one mass and the exact ratios determine all masses, and far tails are
bounded by geometric series. Tails that start near the mean are computed as contour sums. Proofs:
docs/proofs/laws.md.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, islice
from typing import ClassVar, Final, cast

import numpy as np
from flint import acb, arb, ctx

from dpcore.analysis import contour_sums as contour
from dpcore.analysis.law_floats import normal_guess, pointwise
from dpcore.noise import Additive, Covered
from dpcore.numbers.arrays import Floats, Integers
from dpcore.numbers.enclosure import ball, precision
from dpcore.numbers.parameter import Exact, Whole
from dpcore.sampling.bernoulli import bernoulli
from dpcore.sampling.inversion import TABLE_BITS, Batch, InversionTable, invert, table_of_masses
from dpcore.sampling.rng import Rng
from dpcore.sampling.step_function_rejection import Centred

Ratio = tuple[int, int]
"""A rational >= 0 as numerator and denominator, not in lowest terms."""

_STEEP: Final = Fraction(3, 4)
_LEFT_MASS: Final = 2.0**-80
_RIGHT_MASS: Final = 2.0**-60
_TABLE_VARIANCE: Final = 1 << 22
_MOST_TERMS: Final = 1 << 12
_EXACT_BITS: Final = 1 << 12


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
    def _counts(self) -> tuple[Fraction, ...]:
        r"""The mean number of events, and for a binomial law also that of the other trials."""

    @property
    @abstractmethod
    def _skew(self) -> Fraction:
        r"""E[(X - E[X])^3]/Var[X], used for initial guesses."""

    @property
    def _last(self) -> int | None:
        r"""The largest value of X, or None if it is unbounded."""
        return None

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
        r"""P(X > k), by a direct or contour sum above the mean and as 1 - P(X <= k) below it."""
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
        r"""P(X <= k), by a direct or contour sum below the mean and as 1 - P(X > k) above it."""
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

    def centred(self) -> Centred:
        r"""The batch sampler of X - floor(E[X]) for a variance > 2^21; E[X] may exceed int64.

        >>> from dpcore.sampling.rng import SeededRng
        >>> for noise in (Poisson(mean=2**80), Binomial(trials=2**82, probability="1/2")):
        ...     drawn = noise.centred().draw(SeededRng(1), 1000)
        ...     print(bool(0.9 * 2**40 < drawn.std() < 1.1 * 2**40))
        True
        True
        """
        return Centred(self, self.variance, self._counts)

    def build_batch(self) -> Batch:
        r"""Build a table for variances <= 2^22, else a rejection sampler (:class:`Centred`)."""
        if self.variance <= _TABLE_VARIANCE:
            return table_of_counts(self)
        return Centred(self, self.variance, self._counts, shifted=True)

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


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Poisson(CountNoise):
    r"""Poisson noise: P(X = k) = e^(-l) l^k/k! for k = 0, 1, 2, ..., l = ``mean`` > 0.

    The mean and the variance are l. The values are never negative; the analyzer subtracts the mean.
    The support starts at 0, so a release is (epsilon, delta)-DP and never pure DP.

    The float64 functions cover 1e-9 <= mean <= 2^60; beyond mean 2^20 each distinct k costs
    about a millisecond. Raises :class:`InvalidParameter` if the mean is not a positive
    rational.

    >>> noise = Poisson(mean=50)
    >>> noise.pmf(50), noise.quantile(0.975)
    (0.05632500632519082, 64)
    >>> noise.enclose_sf(500).upper < Fraction(1, 10**300)
    True
    """

    name: ClassVar[str] = "poisson"
    adds: ClassVar[str] = "mean"
    floats: ClassVar[tuple[Covered, ...]] = (Covered("mean", "1e-9", "2^60"),)

    mean: Exact = Exact(zero="mean 0 adds no noise")

    @property
    def variance(self) -> Fraction:
        r"""The variance l, equal to the mean."""
        return self.mean

    @property
    def _counts(self) -> tuple[Fraction, ...]:
        return (self.mean,)

    @property
    def _skew(self) -> Fraction:
        return Fraction(1)

    @property
    def _mode(self) -> int:
        return math.floor(self.mean)

    @property
    def _steps(self) -> tuple[int, int, int]:
        return self.mean.numerator, 0, self.mean.denominator

    def _log_mass(self, k: int) -> arb:
        rate = ball(self.mean)
        return k * rate.log() - rate - ball(k + 1).lgamma()

    def log_moment(self, c: arb) -> arb:
        r"""The cumulant function K(c) = l (e^c - 1), for the contour sum."""
        return ball(self.mean) * c.expm1()

    def tilted_characteristic(self, c: arb, theta: arb) -> acb:
        r"""The characteristic function of the tilted law, Poisson with mean l e^c."""
        return (ball(self.mean) * c.exp() * acb(0, theta).expm1()).exp()

    def tilted_variance(self, c: arb) -> arb:
        r"""The tilted variance K''(c) = l e^c."""
        return ball(self.mean) * c.exp()

    def tilt(self, t: int) -> Fraction:
        r"""The solution log(t/l) of K'(c) = l e^c = t, rounded to a float."""
        return _log_ratio(max(Fraction(t), Fraction(1, 2)), self.mean)

    def sample_reference(self, rng: Rng) -> int:
        r"""Sum floor(l) Poisson draws of mean 1, and one of mean l - floor(l) by thinning.

        If floor(l) > 4096, where this would take too long, invert the distribution function.
        """
        whole = math.floor(self.mean)
        if whole > _MOST_TERMS:
            return invert(rng, self.cdf_ball, whole)
        kept = self.mean - whole
        total = sum(_unit_poisson(rng) for _ in range(whole))
        if kept:
            total += sum(bernoulli(rng, kept) for _ in range(_unit_poisson(rng)))
        return total


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Binomial(CountNoise):
    r"""Binomial noise: the successes in n = ``trials`` trials of probability p = ``probability``.

    P(X = k) = n!/(k! (n-k)!) p^k (1-p)^(n-k).

    p is a rational strictly between 0 and 1. The mean is np, the variance np(1-p). The support is
    0, ..., n, so a release is (epsilon, delta)-DP and never pure DP.

    The float64 functions cover trials <= 2^62 and 1e-9 <= variance <= 2^60; beyond variance 2^20
    each distinct k costs about a millisecond. Raises :class:`InvalidParameter` if trials < 1, or if
    the probability is outside (0, 1): trials with p = 0 or 1 add no noise.

    >>> noise = Binomial(trials=268, probability="1/2")
    >>> noise.pmf(134), noise.quantile(0.975)
    (0.04869311295983914, 150)
    >>> noise.enclose_sf(267).upper == Fraction(1, 2**268)
    True
    """

    name: ClassVar[str] = "binomial"
    adds: ClassVar[str] = "trials"
    floats: ClassVar[tuple[Covered, ...]] = (
        Covered("trials", "1", "2^62"),
        Covered("variance", "1e-9", "2^60", argument="probability", written="trials p (1-p)"),
    )

    trials: Whole = Whole()
    probability: Exact = Exact(within="(0, 1)", reason="probability 1 adds no noise")

    @property
    def mean(self) -> Fraction:
        r"""The mean np, exact."""
        return self.trials * self.probability

    @property
    def variance(self) -> Fraction:
        r"""The variance np(1-p), exact."""
        return self.mean * (1 - self.probability)

    @property
    def _counts(self) -> tuple[Fraction, ...]:
        return self.mean, self.trials - self.mean

    @property
    def _skew(self) -> Fraction:
        return 1 - 2 * self.probability

    @property
    def _last(self) -> int:
        return self.trials

    @property
    def _mode(self) -> int:
        return math.floor((self.trials + 1) * self.probability)

    @property
    def _steps(self) -> tuple[int, int, int]:
        heads = self.probability.numerator
        return self.trials * heads, heads, self.probability.denominator - heads

    def _log_mass(self, k: int) -> arb:
        n, p = self.trials, self.probability
        ways = ball(n + 1).lgamma() - ball(k + 1).lgamma() - ball(n - k + 1).lgamma()
        return ways + k * ball(p).log() + (n - k) * ball(1 - p).log()

    def pmf_ball(self, k: int) -> arb:
        r"""P(X = k): an exact rational for few trials, otherwise from logarithms of factorials."""
        if not self._few:
            return CountNoise.pmf_ball(self, k)
        return ball(self._exactly(k) - self._exactly(k - 1))

    def cdf_ball(self, k: int) -> arb:
        r"""P(X <= k): an exact rational for few trials, and at the middle if p = 1/2."""
        if self._few:
            return ball(self._exactly(k))
        return arb(1) / 2 if self._halved_at(k) else CountNoise.cdf_ball(self, k)

    def sf_ball(self, k: int) -> arb:
        r"""P(X > k): an exact rational for few trials, and at the middle if p = 1/2."""
        if self._few:
            return ball(1 - self._exactly(k))
        return arb(1) / 2 if self._halved_at(k) else CountNoise.sf_ball(self, k)

    def _halved_at(self, k: int) -> bool:
        # P(X <= k) = P(X > k) = 1/2 exactly.
        return 2 * self.probability == 1 and 2 * k + 1 == self.trials

    @property
    def _few(self) -> bool:
        # With few trials F(k) may equal a multiple of 2^-64, which an inexact ball cannot decide.
        return self.trials * self.probability.denominator.bit_length() <= _EXACT_BITS

    def _exactly(self, k: int) -> Fraction:
        if k < 0:
            return Fraction(0)
        sums = _sums(self)
        return Fraction(sums[min(k, self.trials)], sums[-1])

    def _reaches(self, k: int, p: Fraction) -> bool:
        # With few trials F(k) = p is possible, which only exact arithmetic decides.
        return self._exactly(k) >= p if self._few else CountNoise._reaches(self, k, p)

    def log_moment(self, c: arb) -> arb:
        r"""The cumulant function K(c) = n log(1 + p (e^c - 1)), for the contour sum."""
        return self.trials * (ball(self.probability) * c.expm1()).log1p()

    def tilted_characteristic(self, c: arb, theta: arb) -> acb:
        r"""The function (1 + p' (e^(i theta) - 1))^n, where p' is the tilted probability."""
        turned = self._tilted(c) * acb(0, theta).expm1()
        if turned.real > -1:
            return (self.trials * turned.log1p()).exp()
        # Beyond the branch cut of the logarithm: z^n = (-1)^n (-z)^n.
        size = (self.trials * (-1 - turned).log()).exp()
        return -size if self.trials % 2 else size

    def tilted_variance(self, c: arb) -> arb:
        r"""The tilted variance K''(c) = n p' (1-p'), where p' is the tilted probability."""
        heads = self._tilted(c)
        return self.trials * heads * (1 - heads)

    def _tilted(self, c: arb) -> arb:
        # p' = p e^c/(1 - p + p e^c).
        return 1 / (1 + ball((1 - self.probability) / self.probability) * (-c).exp())

    def tilt(self, t: int) -> Fraction:
        r"""The solution log(t (1-p)/((n-t) p)) of K'(c) = t, rounded to a float."""
        most = self.trials - Fraction(1, 2)
        heads = min(max(Fraction(t), Fraction(1, 2)), most)
        tails = self.trials - heads
        return _log_ratio(heads, self.mean) - _log_ratio(tails, self.trials - self.mean)

    def sample_reference(self, rng: Rng) -> int:
        r"""Count the successes in n trials; for n > 4096, invert the distribution function."""
        if self.trials > _MOST_TERMS:
            return invert(rng, self.cdf_ball, math.floor(self.mean))
        return sum(bernoulli(rng, self.probability) for _ in range(self.trials))


@lru_cache(maxsize=16)
def _sums(noise: Binomial) -> list[int]:
    # b^n F(k) for k = 0, ..., n, where p = a/b: exact integers; the last one is b^n.
    n, heads, ways = noise.trials, noise.probability.numerator, noise.probability.denominator
    tails = ways - heads
    mass, masses = tails**n, []
    for k in range(n + 1):
        masses.append(mass)
        mass = mass * (n - k) * heads // ((k + 1) * tails)
    return [*accumulate(masses)]


def _log_ratio(a: Fraction, b: Fraction) -> Fraction:
    # log(a/b) for positive rationals of any size, to about float accuracy.
    return Fraction(float(ball(a / b - 1).log1p().mid()))


def _unit_poisson(rng: Rng) -> int:
    # Draws Poisson(1) using only uniform integers: Duchon and Duvignau, "Preserving the number of
    # cycles of length k in a growing uniform permutation" (2016), Algorithm 1.
    size, guard, count = 1, 0, 1
    while True:
        drawn = rng.below(size + 1) + 1
        if drawn == size + 1:
            count += 1
        elif drawn > guard:
            count -= 1
            guard = size + 1
        else:
            return count
        size += 1


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
    r"""Build the table of a law of standard deviation up to about 2^11, from its mode outwards."""
    # Logarithms of factorials lose about as many bits as the largest count has.
    size = max(noise._mode, noise._last or 0).bit_length()
    with precision(TABLE_BITS + 2 * size):
        first, balls = _masses(noise, _LEFT_MASS, _RIGHT_MASS)
        return table_of_masses(first, noise.cdf_ball(first - 1), balls, noise.cdf_ball)


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
