r"""The pairs of Poisson, binomial and Polya noise, which are >= 0, in both directions.

The two directions are X on {0, 1, ...} (up to n for the binomial law) against X - d, and X - d
against X; the second is the pair of -X under the same shift. Under each dataset there are outputs
that the other cannot produce: X < d in the second direction, and X > n - d in the first direction
for the binomial law. So the largest loss and every Renyi divergence are infinite, and
epsilon(delta) is infinite for delta below that mass. Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from flint import arb

from accounting.pairs.pair import Loss, Pair, ShiftedPair
from dpcore.laws.poisson_and_binomial import Binomial, Poisson
from dpcore.laws.polya import Polya
from dpcore.numbers.enclosure import Enclosure, ball

_MOST_EXACT: Final = 1 << 12
_SUMMED: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSidedPair(ShiftedPair):
    r"""The pair (X, X - d), or if ``mirrored`` (-X, -X - d), for a log-concave X >= 0.

    ``most`` is the largest value of X, or None if X is unbounded.
    """

    mirrored: bool = True

    @property
    def sign(self) -> int:
        return -1 if self.mirrored else 1

    # -- what a law provides ------------------------------------------------------------------

    @property
    def most(self) -> int | None:
        r"""The largest value of X, or None if there is none."""
        return None

    @abstractmethod
    def log_odds(self, k: int) -> arb:
        r"""The log ratio log(p(k)/p(k+d)) if both masses are positive; it increases in k."""

    @abstractmethod
    def odds(self, k: int) -> Fraction | None:
        r"""The odds p(k)/p(k+d) if they are known to be rational, otherwise None."""

    @abstractmethod
    def crossing(self, level: float) -> float:
        r"""The approximate k with log_odds(k) = ``level``; ArithmeticError if none exists."""

    # -- the pair -----------------------------------------------------------------------------

    def mirror(self) -> Pair:
        return replace(self, mirrored=not self.mirrored)

    def loss(self, m: int) -> arb:
        r"""The loss log p(m)/p(m+d), or log p(-m)/p(-m-d); infinite beyond an end of a support."""
        here, there = (-m, -m - self.shift) if self.mirrored else (m, m + self.shift)
        if not self._possible(here):
            # Outside the support of P, any loss that keeps the order is valid: -infinity to the
            # left of the support, +infinity to the right.
            least = 0 if not self.mirrored else -math.inf if self.most is None else -self.most
            return arb("-inf") if m < least else arb("inf")
        if not self._possible(there):
            return arb("inf")
        return -self.log_odds(there) if self.mirrored else self.log_odds(here)

    def _possible(self, k: int) -> bool:
        return k >= 0 and (self.most is None or k <= self.most)

    def near(self, epsilon: Fraction) -> int:
        r"""The approximate first m with a loss above epsilon; it only starts a search."""
        try:
            level = float(-epsilon if self.mirrored else epsilon)
            k = math.floor(self.crossing(level))
        except (ArithmeticError, ValueError):
            return 0
        return -k - self.shift if self.mirrored else k

    def lowest(self) -> float:
        r"""-infinity: no lower bound is known for an asymmetric law."""
        return -math.inf

    def even(self, m: int) -> bool:
        r"""Whether L(m) is exactly 0; False if the odds are irrational or take long to compute."""
        if self.shift > _MOST_EXACT:
            return False
        return self.odds(-m - self.shift if self.mirrored else m) == 1

    def hidden(self) -> Loss:
        r"""The mass of infinite loss: P(X > most - d), or P(X < d) if mirrored."""
        if self.most is not None and self.shift > self.most:
            return Fraction(1)
        if self.mirrored:
            return self.noise.cdf_ball(self.shift - 1)
        return Fraction(0) if self.most is None else self.noise.sf_ball(self.most - self.shift)

    def largest_loss(self) -> Enclosure:
        r"""Infinite, as some outcome has mass under only one dataset, or the loss is unbounded."""
        return Enclosure.infinite()

    def renyi(self, order: Fraction) -> Loss:
        r"""D_alpha: infinity if a loss is infinite; otherwise raises :class:`NotDerived`."""
        if self.mirrored or self.most is not None:
            return arb("inf")
        return ShiftedPair.renyi(self, order)

    def zcdp(self) -> Loss | Enclosure:
        r"""The zCDP parameter: infinity if mirrored; otherwise raises :class:`NotDerived`."""
        return self.renyi(Fraction(2)) if self.mirrored else ShiftedPair.zcdp(self)

    def bends(self) -> tuple[int, ...]:
        r"""The last m in both supports; L is infinite from m + 1 on."""
        if self.mirrored:
            return (-self.shift,)
        return () if self.most is None else (self.most - self.shift,)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonPair(OneSidedPair):
    r"""The pair of Poisson noise of mean lambda: p(k)/p(k+d) = (k+1)...(k+d)/lambda^d.

    >>> pair = PoissonPair(noise=Poisson(mean=50), shift=1)
    >>> pair.loss(-50).contains(0), pair.mirror().loss(49).contains(0)
    (True, True)
    """

    noise: Poisson

    def log_odds(self, k: int) -> arb:
        return _rising(ball(k + 1), self.shift) - self.shift * ball(self.noise.mean).log()

    def odds(self, k: int) -> Fraction:
        return Fraction(math.prod(range(k + 1, k + self.shift + 1))) / self.noise.mean**self.shift

    def crossing(self, level: float) -> float:
        r"""The k with these log odds: lambda e^(level/d), minus about half the shift."""
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
        r"""The k with these log odds: n x/(1 + x) - d/2 with x = p/(1-p) e^(level/d)."""
        p = self.noise.probability
        x = float(p / (1 - p)) * math.exp(level / self.shift)
        return self.noise.trials * x / (1 + x) - self.shift / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PolyaPair(OneSidedPair):
    r"""Polya noise of shape r > 1: p(k)/p(k+d) = prod_{j=1..d} (k+j)/(k+j-1+r) e^(d/s).

    The odds increase to e^(d/s), so the loss of X against X - d stays below d/s.
    """

    noise: Polya

    def log_odds(self, k: int) -> arb:
        up, down = (_rising(ball(first), self.shift) for first in (k + 1, k + self.noise.shape))
        return up - down + ball(self.shift / self.noise.scale)

    def odds(self, k: int) -> None:
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
