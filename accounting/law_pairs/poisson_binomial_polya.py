r"""Poisson, binomial and Polya noise against their shifts, in both directions.

Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from flint import arb

from accounting.law_pairs.one_sided import OneSidedPair
from accounting.pairs.pair import Pair
from dpcore.laws.poisson_and_binomial import Binomial, Poisson
from dpcore.laws.polya import Polya
from dpcore.numbers.enclosure import Enclosure, ball

_SUMMED: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonPair(OneSidedPair):
    r"""Poisson noise against its shift: p(k)/p(k+d) = (k+1)...(k+d)/lambda^d.

    >>> pair = PoissonPair(noise=Poisson(mean=50), shift=1)
    >>> pair.loss(-50).contains(0), pair.mirror().loss(49).contains(0)
    (True, True)
    """

    noise: Poisson

    def log_odds(self, k: int) -> arb:
        r"""The logarithm of p(k)/p(k+d): log (k+1)...(k+d) - d log lambda."""
        return _rising(ball(k + 1), self.shift) - self.shift * ball(self.noise.mean).log()

    def odds(self, k: int) -> Fraction:
        return Fraction(math.prod(range(k + 1, k + self.shift + 1))) / self.noise.mean**self.shift

    def crossing(self, level: float) -> float:
        r"""The k with these odds: lambda e^(level/d), minus about half the shift."""
        return float(self.noise.mean) * math.exp(level / self.shift) - (self.shift + 1) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BinomialPair(OneSidedPair):
    r"""Binomial noise: p(k)/p(k+d) = prod_{j=1..d} (k+j)/(n-k-d+j) ((1-p)/p)^d.

    >>> noise = Binomial(trials=100, probability="1/2")
    >>> pair = BinomialPair(noise=noise, shift=1)
    >>> pair.mirror() is pair
    True
    """

    noise: Binomial

    @property
    def most(self) -> int:
        r"""The largest value of the noise: its number of trials."""
        return self.noise.trials

    def mirror(self) -> Pair:
        r"""This pair if p = 1/2, as n - X then has the law of X; otherwise the mirrored pair."""
        return self if self.noise.probability == Fraction(1, 2) else OneSidedPair.mirror(self)

    def log_odds(self, k: int) -> arb:
        p, left = ball(self.noise.probability), self.noise.trials - k - self.shift
        up, down = (_rising(ball(first), self.shift) for first in (k + 1, left + 1))
        return up - down + self.shift * ((1 - p) / p).log()

    def odds(self, k: int) -> Fraction:
        p, left = self.noise.probability, self.noise.trials - k - self.shift
        up, down = (math.prod(range(n + 1, n + self.shift + 1)) for n in (k, left))
        return Fraction(up, down) * ((1 - p) / p) ** self.shift

    def crossing(self, level: float) -> float:
        r"""The k with these odds: n x/(1 + x) - d/2, x = p/(1-p) e^(level/d)."""
        p = self.noise.probability
        x = float(p / (1 - p)) * math.exp(level / self.shift)
        return self.noise.trials * x / (1 + x) - self.shift / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PolyaPair(OneSidedPair):
    r"""Polya noise, shape r > 1: p(k)/p(k+d) = prod_{j=1..d} (k+j)/(k+j-1+r) e^(d/s).

    The odds increase to e^(d/s), so the loss of X against X - d stays below d/s.
    """

    noise: Polya

    def log_odds(self, k: int) -> arb:
        up, down = (_rising(ball(first), self.shift) for first in (k + 1, k + self.noise.shape))
        return up - down + ball(self.shift / self.noise.scale)

    def odds(self, k: int) -> None:
        r"""None, as the odds are never rational."""
        del k

    def mass_balls(self, first: int, last: int) -> list[arb]:
        r"""The masses, computed from the ratios of adjacent masses."""
        if last < 0:
            return [arb(0)] * (last + 1 - first)
        return [arb(0)] * -min(first, 0) + self.noise.masses(max(first, 0), last)

    def crossing(self, level: float) -> float:
        r"""The k with (k + r)/(k + 1) = e^(1/s - level/d), minus about half the shift."""
        step = math.expm1(float(1 / self.noise.scale) - level / self.shift)
        return (float(self.noise.shape) - 1 - step) / step - (self.shift - 1) / 2

    def largest_loss(self) -> Enclosure:
        r"""The largest loss d/s, approached for large k and not attained; infinite if mirrored."""
        if self.mirrored:
            return Enclosure.infinite()
        return Enclosure.exactly(self.shift / self.noise.scale)


def _rising(start: arb, count: int) -> arb:
    # log start (start + 1) ... (start + count - 1).
    if count <= _SUMMED:
        return start.rising(count).log()
    return (start + count).lgamma() - start.lgamma()
