r"""The pairs of Poisson, binomial and Polya noise X >= 0 with its shift X - d, in both directions.

These laws are in general not symmetric, so (X, X - d) and (X - d, X) differ. The second direction
is computed as the pair (-X, -X - d), which has the same losses. An output has infinite loss if it
is impossible under the second law of the pair. In the direction (X - d, X) these are the outputs
below 0, where X < d. In the direction (X, X - d) they are the outputs X > n - d of binomial noise
with n trials. If outputs of infinite loss exist, the largest loss and all Renyi divergences are
infinite, and epsilon(delta) is infinite for every delta below their mass. Proofs:
docs/proofs/curve.md.
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
    r"""The pair (X, X - d) for log-concave noise X >= 0, or (-X, -X - d) if ``mirrored`` is true.

    d is ``shift``, and p is the mass function of X.
    """

    mirrored: bool = True

    @property
    def sign(self) -> int:
        return -1 if self.mirrored else 1

    # -- what a law provides ------------------------------------------------------------------

    @property
    def most(self) -> int | None:
        r"""The largest value of X, or None if X is unbounded."""
        return None

    @abstractmethod
    def log_odds(self, k: int) -> arb:
        r"""The logarithm of p(k)/p(k+d), which is increasing in k; both masses must be positive."""

    @abstractmethod
    def odds(self, k: int) -> Fraction | None:
        r"""The ratio p(k)/p(k+d) as an exact fraction, or None if the ratio may be irrational."""

    @abstractmethod
    def crossing(self, level: float) -> float:
        r"""The approximate k where ``log_odds`` is ``level``; may raise ArithmeticError."""

    # -- the pair -----------------------------------------------------------------------------

    def mirror(self) -> Pair:
        return replace(self, mirrored=not self.mirrored)

    def loss(self, m: int) -> arb:
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
        try:
            level = float(-epsilon if self.mirrored else epsilon)
            k = math.floor(self.crossing(level))
        except (ArithmeticError, ValueError):
            return 0
        return -k - self.shift if self.mirrored else k

    def lowest(self) -> float:
        # No lower bound is known for an asymmetric law.
        return -math.inf

    def even(self, m: int) -> bool:
        if self.shift > _MOST_EXACT:
            return False
        return self.odds(-m - self.shift if self.mirrored else m) == 1

    def hidden(self) -> Loss:
        if self.most is not None and self.shift > self.most:
            return Fraction(1)
        if self.mirrored:
            return self.noise.cdf_ball(self.shift - 1)
        return Fraction(0) if self.most is None else self.noise.sf_ball(self.most - self.shift)

    def largest_loss(self) -> Enclosure:
        return Enclosure.infinite()

    def renyi(self, order: Fraction) -> Loss:
        if self.mirrored or self.most is not None:
            return arb("inf")
        return ShiftedPair.renyi(self, order)

    def zcdp(self) -> Loss | Enclosure:
        return self.renyi(Fraction(2)) if self.mirrored else ShiftedPair.zcdp(self)

    def bends(self) -> tuple[int, ...]:
        # The last m in both supports; L is infinite from m + 1 on.
        if self.mirrored:
            return (-self.shift,)
        return () if self.most is None else (self.most - self.shift,)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonPair(OneSidedPair):
    r"""The pairs of Poisson noise of mean lambda, for which p(k)/p(k+d) = (k+1)...(k+d)/lambda^d.

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
        # lambda e^(level/d), minus about half the shift.
        return float(self.noise.mean) * math.exp(level / self.shift) - (self.shift + 1) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BinomialPair(OneSidedPair):
    r"""The pairs of binomial noise with n trials of probability p.

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
        # If p = 1/2, then n - X has the law of X.
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
        # n x/(1 + x) - d/2 with x = p/(1-p) e^(level/d).
        p = self.noise.probability
        x = float(p / (1 - p)) * math.exp(level / self.shift)
        return self.noise.trials * x / (1 + x) - self.shift / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PolyaPair(OneSidedPair):
    r"""The pairs of Polya noise of shape r > 1 and scale s.

    The ratio of the masses at k and k+d is prod_{j=1..d} (k+j)/(k+j-1+r) e^(d/s). It increases to
    e^(d/s), so the loss of (X, X - d) stays below d/s.
    """

    noise: Polya

    def log_odds(self, k: int) -> arb:
        up, down = (_rising(ball(first), self.shift) for first in (k + 1, k + self.noise.shape))
        return up - down + ball(self.shift / self.noise.scale)

    def odds(self, k: int) -> None:
        del k

    def mass_balls(self, first: int, last: int) -> list[arb]:
        if last < 0:
            return [arb(0)] * (last + 1 - first)
        return [arb(0)] * -min(first, 0) + self.noise.masses(max(first, 0), last)

    def crossing(self, level: float) -> float:
        # The k with (k + r)/(k + 1) = e^(1/s - level/d), minus about half the shift.
        step = math.expm1(float(1 / self.noise.scale) - level / self.shift)
        return (float(self.noise.shape) - 1 - step) / step - (self.shift - 1) / 2

    def largest_loss(self) -> Enclosure:
        if self.mirrored:
            return Enclosure.infinite()
        return Enclosure.exactly(self.shift / self.noise.scale)


def _rising(start: arb, count: int) -> arb:
    # log start (start + 1) ... (start + count - 1).
    if count <= _SUMMED:
        return start.rising(count).log()
    return (start + count).lgamma() - start.lgamma()
