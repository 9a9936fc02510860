r"""The binomial law: P(X = k) = n!/(k! (n-k)!) p^k (1-p)^(n-k), the number of heads in n flips.

The shuffle model uses it: each user adds a few random bits and the analyzer subtracts their
mean. Proofs: docs/proofs/laws.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import ClassVar, Final

from flint import acb, arb

from dpcore.laws.count_noise import CountNoise, table_of_counts
from dpcore.laws.poisson import log_ratio
from dpcore.noise import Covered
from dpcore.numbers.enclosure import ball
from dpcore.numbers.parameter import Exact, Whole
from dpcore.sampling.bernoulli import bernoulli
from dpcore.sampling.inversion import Batch, invert
from dpcore.sampling.rng import Rng
from dpcore.sampling.unimodal_rejection import Centred, Shifted

_TABLE_VARIANCE: Final = 1 << 22
_MOST_COINS: Final = 1 << 12
_EXACT_BITS: Final = 1 << 12


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Binomial(CountNoise):
    r"""Binomial noise: the number of heads in n = ``trials`` flips, each with p = ``probability``.

    P(X = k) = n!/(k! (n-k)!) p^k (1-p)^(n-k).

    p is a rational strictly between 0 and 1. Mean np, variance np(1-p). The support is 0, ..., n:
    a release is (epsilon, delta)-DP and never pure DP.

    The float64 functions cover trials <= 2^62 and 1e-9 <= variance <= 2^60; beyond variance 2^20
    each distinct k costs about a millisecond. Raises :class:`InvalidParameter` for trials < 1 and
    for a probability outside (0, 1): bits with p = 0 or 1 add no noise.

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
        if 2 * self.probability == 1 and 2 * k + 1 == self.trials:
            return arb(1) / 2
        return CountNoise.cdf_ball(self, k)

    def sf_ball(self, k: int) -> arb:
        r"""P(X > k): an exact rational for few trials, and at the middle if p = 1/2."""
        if self._few:
            return ball(1 - self._exactly(k))
        if 2 * self.probability == 1 and 2 * k + 1 == self.trials:
            return arb(1) / 2
        return CountNoise.sf_ball(self, k)

    @property
    def _few(self) -> bool:
        # With few coins F(k) may equal a multiple of 2^-64, and no inexact ball can decide that.
        return self.trials * self.probability.denominator.bit_length() <= _EXACT_BITS

    def _exactly(self, k: int) -> Fraction:
        if k < 0:
            return Fraction(0)
        sums = _sums(self)
        return Fraction(sums[min(k, self.trials)], sums[-1])

    def _reaches(self, k: int, p: Fraction) -> bool:
        # With few coins F(k) = p is possible, and only exact arithmetic decides it.
        return self._exactly(k) >= p if self._few else CountNoise._reaches(self, k, p)

    def log_moment(self, c: arb) -> arb:
        r"""The cumulant function K(c) = n log(1 + p (e^c - 1)), for the contour sum."""
        return self.trials * (ball(self.probability) * c.expm1()).log1p()

    def tilted_characteristic(self, c: arb, theta: arb) -> acb:
        r"""The characteristic function (1 + p' (e^(i theta) - 1))^n, p' the tilted probability."""
        turned = self._tilted(c) * acb(0, theta).expm1()
        if turned.real > -1:
            return (self.trials * turned.log1p()).exp()
        # Beyond the branch cut of the logarithm: z^n = (-1)^n (-z)^n.
        size = (self.trials * (-1 - turned).log()).exp()
        return -size if self.trials % 2 else size

    def tilted_variance(self, c: arb) -> arb:
        r"""The tilted variance K''(c) = n p' (1-p') at the tilted probability p'."""
        heads = self._tilted(c)
        return self.trials * heads * (1 - heads)

    def _tilted(self, c: arb) -> arb:
        # p' = p e^c/(1 - p + p e^c).
        return 1 / (1 + ball((1 - self.probability) / self.probability) * (-c).exp())

    def tilt(self, t: int) -> Fraction:
        r"""The c = log(t (1-p)/((n-t) p)) at which the tilted mean K'(c) is t, rounded."""
        most = self.trials - Fraction(1, 2)
        heads = min(max(Fraction(t), Fraction(1, 2)), most)
        tails = self.trials - heads
        return log_ratio(heads, self.mean) - log_ratio(tails, self.trials - self.mean)

    def sample_reference(self, rng: Rng) -> int:
        r"""Count the heads in n flips; for n > 4096, invert the distribution function."""
        if self.trials > _MOST_COINS:
            return invert(rng, self.cdf_ball, math.floor(self.mean))
        return sum(bernoulli(rng, self.probability) for _ in range(self.trials))

    def centred(self) -> Centred:
        r"""The batch sampler of X - floor(np) for np(1-p) > 2^21; np itself may exceed int64.

        >>> from dpcore.sampling.rng import SeededRng
        >>> noise = Binomial(trials=2**82, probability="1/2")
        >>> drawn = noise.centred().draw(SeededRng(1), 1000)
        >>> bool(0.9 * 2**40 < drawn.std() < 1.1 * 2**40)
        True
        """
        return Centred(self, self.variance, (self.mean, self.trials - self.mean))

    def build_batch(self) -> Batch:
        r"""Build a table up to variance 2^22; above, rejection from staircase proposals."""
        if self.variance <= _TABLE_VARIANCE:
            return table_of_counts(self)
        return Shifted(self.centred())


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
