r"""The Poisson law: P(X = k) = e^(-l) l^k/k! for k >= 0, with mean l.

Sums of independent Poisson draws are Poisson, so the law divides into any number of shares. The
difference of two draws is Skellam. Proofs: docs/proofs/laws.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final

from flint import acb, arb

from dpcore.laws.count_noise import CountNoise, table_of_counts
from dpcore.noise import Covered
from dpcore.numbers.enclosure import ball
from dpcore.numbers.parameter import Exact
from dpcore.sampling.bernoulli import bernoulli
from dpcore.sampling.inversion import Batch, invert
from dpcore.sampling.rng import Rng
from dpcore.sampling.unimodal_rejection import Centred, Shifted

_TABLE_MEAN: Final = 1 << 22
_MOST_UNITS: Final = 1 << 12


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Poisson(CountNoise):
    r"""Poisson noise: P(X = k) = e^(-l) l^k/k! for k = 0, 1, 2, ..., l = ``mean`` > 0.

    Mean and variance are l. The values are never negative; the analyzer subtracts the mean. The
    support starts at 0, so a release is (epsilon, delta)-DP and never pure DP.

    The float64 functions cover 1e-9 <= mean <= 2^60; beyond mean 2^20 each distinct k costs
    about a millisecond. Raises :class:`InvalidParameter` for a mean that is not a positive
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
    def _skew(self) -> Fraction:
        return Fraction(1)

    @property
    def _last(self) -> None:
        return None

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
        r"""The solution log(t/l) of K'(c) = l e^c = t, rounded as a float."""
        return log_ratio(max(Fraction(t), Fraction(1, 2)), self.mean)

    def sample_reference(self, rng: Rng) -> int:
        r"""Sum floor(l) Poissons of mean 1 and one more, thinned with probability l - floor(l).

        For l > 4096, where this would take too long, invert the distribution function.
        """
        whole = math.floor(self.mean)
        if whole > _MOST_UNITS:
            return invert(rng, self.cdf_ball, whole)
        kept = self.mean - whole
        total = sum(_unit_poisson(rng) for _ in range(whole))
        if kept:
            total += sum(bernoulli(rng, kept) for _ in range(_unit_poisson(rng)))
        return total

    def centred(self) -> Centred:
        r"""The batch sampler of X - floor(l) for l > 2^21; l itself need not fit int64.

        >>> from dpcore.sampling.rng import SeededRng
        >>> drawn = Poisson(mean=2**80).centred().draw(SeededRng(1), 1000)
        >>> bool(0.9 * 2**40 < drawn.std() < 1.1 * 2**40)
        True
        """
        return Centred(self, self.mean, (self.mean,))

    def build_batch(self) -> Batch:
        r"""Build a table up to mean 2^22; above, rejection from staircase proposals."""
        if self.mean <= _TABLE_MEAN:
            return table_of_counts(self)
        return Shifted(self.centred())


def log_ratio(a: Fraction, b: Fraction) -> Fraction:
    r"""log(a/b) for positive rationals of any size, to about float accuracy."""
    away = a / b - 1
    if 2 * abs(away) < 1:
        return Fraction(math.log1p(away))
    ratio = a / b
    size = ratio.numerator.bit_length() - ratio.denominator.bit_length()
    return Fraction(math.log(ratio / Fraction(2) ** size) + size * math.log(2))


def _unit_poisson(rng: Rng) -> int:
    # Poisson of mean 1 from uniform integers alone: Duchon and Duvignau, "Preserving the number
    # of cycles of length k in a growing uniform permutation" (2016), Algorithm 1.
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
