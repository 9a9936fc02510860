r"""Laws that are not symmetric: Poisson, binomial and Polya noise, in both directions.

X on {0, 1, ...} (to n for the binomial law) against X - d, and X - d against X, which is the pair
of -X under the same shift. Each world shows values that the other never does: in the second
direction X < d, in the first, for the binomial law, X > n - d. So the largest loss and every Renyi
divergence are infinite, and epsilon(delta) is infinite for delta below that mass.
Proofs: docs/proofs/curve_of_laws.md.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import Final

from flint import arb, ctx

from accounting.laws.one_sided_listing import (
    flat_rest,
    one_sided_cut,
    one_sided_ends,
    two_ended_rest,
)
from accounting.pairs.listing import Cut, geometric, list_losses, nothing
from accounting.pairs.log_concave import ShiftedPair
from accounting.pairs.losses import Losses
from accounting.pairs.monotone import Cell
from accounting.pairs.pair import Loss, Pair
from dpcore.laws.binomial import Binomial
from dpcore.laws.poisson import Poisson
from dpcore.laws.polya import Polya
from dpcore.numbers.enclosure import Enclosure, ball
from dpcore.numbers.integer_search import least

__all__ = ["BinomialPair", "OneSidedPair", "PoissonPair", "PolyaPair"]

_SUMMED: Final = 64
_WIDEST: Final = 8
_MOST_EXACT: Final = 1 << 12
_LEAST: Final = 1e-290


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSidedPair(ShiftedPair):
    r"""X against X - d, or with ``mirrored`` -X against -X - d, for a log-concave X >= 0.

    ``most`` is the largest value of X, None where there is none.
    """

    mirrored: bool = True

    # -- what a law provides ------------------------------------------------------------------

    @property
    def most(self) -> int | None:
        r"""The largest value of X."""
        return None

    @abstractmethod
    def log_odds(self, k: int) -> arb:
        r"""log p(k)/p(k+d), rising in k, where both values have mass."""

    @abstractmethod
    def odds(self, k: int) -> Fraction | None:
        r"""p(k)/p(k+d) where it is rational."""

    @abstractmethod
    def crossing(self, level: float) -> float:
        r"""About the k with log_odds(k) = ``level``; or raises ArithmeticError."""

    # -- the pair -----------------------------------------------------------------------------

    def mirror(self) -> Pair:
        r"""The other direction."""
        return replace(self, mirrored=not self.mirrored)

    def loss(self, m: int) -> arb:
        r"""log p(m)/p(m+d), or log p(-m)/p(-m-d); infinite beyond an end of a support."""
        here, there = (-m, -m - self.shift) if self.mirrored else (m, m + self.shift)
        if not self._shown(here):
            # Left of every value of P, or right of them all: where the second lies, and P has no
            # mass, any loss will do that keeps the order.
            return arb("-inf") if self._left_of_all(m) else arb("inf")
        if not self._shown(there):
            return arb("inf")
        return -self.log_odds(there) if self.mirrored else self.log_odds(here)

    def _shown(self, k: int) -> bool:
        return k >= 0 and (self.most is None or k <= self.most)

    def _left_of_all(self, m: int) -> bool:
        # P has mass on 0..most, or on -most..0 when mirrored.
        if not self.mirrored:
            return m < 0
        return self.most is not None and m < -self.most

    def near(self, epsilon: Fraction) -> int:
        r"""From the inverse of log_odds, in floats; any integer is sound."""
        try:
            level = float(-epsilon if self.mirrored else epsilon)
            k = math.floor(self.crossing(level))
        except (ArithmeticError, ValueError):
            return 0
        return -k - self.shift if self.mirrored else k

    def ray(self, epsilon: Fraction) -> Cell | None:
        r"""By bisection; ties at epsilon = 0 are settled exactly where the odds are rational."""
        level = ball(epsilon)
        last = least(lambda m: bool(self.loss(m) > level), self.near(epsilon))
        first = last
        while last - first < _WIDEST and not self.loss(first - 1) <= level:
            if epsilon == 0 and self._even(first - 1):
                break
            first -= 1
        return first, last

    def _even(self, m: int) -> bool:
        # Whether L(m) = 0, exactly.
        if self.shift > _MOST_EXACT:
            return False
        return self.odds(-m - self.shift if self.mirrored else m) == 1

    def tails(self, m: int) -> tuple[arb, arb]:
        r"""P(X >= m) and P(X >= m+d), or P(X <= -m) and P(X <= -m-d)."""
        if not self.mirrored:
            return ShiftedPair.tails(self, m)
        rest = self.noise.cdf_ball(-m - self.shift)
        if self.shift > _SUMMED:
            return self.noise.cdf_ball(-m) - rest, rest
        return sum((self.noise.pmf_ball(-m - j) for j in range(self.shift)), arb(0)), rest

    def below(self, m: int) -> arb:
        r"""P(X < m), or P(X > -m)."""
        return self.noise.sf_ball(-m) if self.mirrored else self.noise.cdf_ball(m - 1)

    def hidden(self) -> Loss:
        r"""P(X > most - d), or P(X < d) in the mirrored direction."""
        if self.most is not None and self.shift > self.most:
            return Fraction(1)
        if self.mirrored:
            return self.noise.cdf_ball(self.shift - 1)
        return Fraction(0) if self.most is None else self.noise.sf_ball(self.most - self.shift)

    def largest_loss(self) -> Enclosure:
        r"""Infinite: a mass is hidden, or the loss grows without bound."""
        return Enclosure.infinite()

    def renyi(self, order: Fraction) -> Loss:
        r"""Infinite where a mass is hidden; else the sum is not needed, for the mirror's is."""
        if self.mirrored or self.most is not None:
            return arb("inf")
        return ShiftedPair.renyi(self, order)

    def zcdp(self) -> Loss | Enclosure:
        r"""As every Renyi divergence."""
        return self.renyi(Fraction(2)) if self.mirrored else ShiftedPair.zcdp(self)

    # -- losses -------------------------------------------------------------------------------

    @abstractmethod
    def step(self, k: int) -> arb:
        r"""p(k+1)/p(k), falling in k."""

    @abstractmethod
    def log_step(self, k: float) -> float:
        r"""About log p(k+1)/p(k), in floats, for real k >= 0; nothing rests on it but speed."""

    @abstractmethod
    def rest(self, last: int, mass: arb, loss: arb) -> tuple[Callable[[arb], arb], arb]:
        r"""For X against X - d: a bound on sum_{k > last} p(k) e^(c loss(k)), and sup loss.

        ``mass`` and ``loss`` are those at ``last``.
        """

    def losses(self, tilt: Fraction, bits: int) -> Losses:
        r"""From the ratios of neighbouring masses."""
        return list_losses(self, tilt, bits)

    def ends(self, tilt: float, need: float) -> tuple[int, int]:
        r"""From the mean outwards."""
        return one_sided_ends(self, tilt, need)

    def cut(self, low: int, high: int) -> Cut:
        r"""In values k of X: p(k) and log p(k)/p(k+d), or in the mirrored direction p(k)/p(k-d)."""
        return one_sided_cut(self, low, high)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonPair(OneSidedPair):
    r"""p(k)/p(k+d) = (k+1)...(k+d)/lambda^d.

    >>> pair = PoissonPair(noise=Poisson(mean=50), shift=1)
    >>> pair.loss(-50).contains(0), pair.mirror().loss(49).contains(0)
    (True, True)
    """

    noise: Poisson

    def log_odds(self, k: int) -> arb:
        r"""log (k+1)...(k+d) - d log lambda."""
        return _rising(ball(k + 1), self.shift) - self.shift * ball(self.noise.mean).log()

    def odds(self, k: int) -> Fraction:
        r"""The same, exactly."""
        return Fraction(math.prod(range(k + 1, k + self.shift + 1))) / self.noise.mean**self.shift

    def step(self, k: int) -> arb:
        r"""lambda/(k+1)."""
        return ball(self.noise.mean) / (k + 1)

    def log_step(self, k: float) -> float:
        r"""log lambda/(k + 1), in the middle of the step."""
        return math.log(max(float(self.noise.mean), _LEAST) / (k + 0.5))

    def rest(self, last: int, mass: arb, loss: arb) -> tuple[Callable[[arb], arb], arb]:
        r"""t(k+1)/t(k) = lambda/(k+1) ((k+1+d)/(k+1))^c falls: geometric. No largest loss."""
        step = self.step(last)
        rise = (step / self.step(last + self.shift)).log()

        def bound(c: arb) -> arb:
            ratio = step * (c * rise).exp()
            return geometric(mass * (c * loss).exp() * ratio, ratio)

        return bound, arb("inf")

    def crossing(self, level: float) -> float:
        r"""lambda e^(level/d), in the middle of the shift."""
        return float(self.noise.mean) * math.exp(level / self.shift) - (self.shift + 1) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BinomialPair(OneSidedPair):
    r"""p(k)/p(k+d) = prod_{j=1..d} (k+j)/(n-k-d+j) ((1-p)/p)^d.

    >>> noise = Binomial(trials=100, probability="1/2")
    >>> pair = BinomialPair(noise=noise, shift=1)
    >>> pair.mirror() is pair
    True
    """

    noise: Binomial

    @property
    def most(self) -> int:
        r"""n."""
        return self.noise.trials

    def mirror(self) -> Pair:
        r"""n - X has the law of X when p = 1/2: one direction stands for both."""
        return self if self.noise.probability == Fraction(1, 2) else OneSidedPair.mirror(self)

    def log_odds(self, k: int) -> arb:
        r"""The logarithm of the product."""
        p, left = ball(self.noise.probability), self.noise.trials - k - self.shift
        up, down = (_rising(ball(first), self.shift) for first in (k + 1, left + 1))
        return up - down + self.shift * ((1 - p) / p).log()

    def odds(self, k: int) -> Fraction:
        r"""The same, exactly."""
        p, left = self.noise.probability, self.noise.trials - k - self.shift
        up, down = (math.prod(range(n + 1, n + self.shift + 1)) for n in (k, left))
        return Fraction(up, down) * ((1 - p) / p) ** self.shift

    def step(self, k: int) -> arb:
        r"""(n-k)/(k+1) p/(1-p)."""
        odds = ball(self.noise.probability) / (1 - ball(self.noise.probability))
        return odds * (self.noise.trials - k) / (k + 1)

    def log_step(self, k: float) -> float:
        r"""The same, in the middle of the step."""
        odds = float(self.noise.probability / (1 - self.noise.probability))
        return math.log(max(odds * (self.noise.trials - k), _LEAST) / (k + 0.5))

    def rest(self, last: int, mass: arb, loss: arb) -> tuple[Callable[[arb], arb], arb]:
        r"""As near 0 in the mirrored direction, which swaps p and 1-p."""
        end = self.noise.trials - self.shift
        top, final = self.log_odds(end), self.noise.pmf_ball(end)
        if last == end:
            return nothing, top
        step = self.step(last)
        ratios = step, step / self.step(last + self.shift)
        return partial(two_ended_rest, end - last, ratios, (mass, loss), (final, top)), top

    def crossing(self, level: float) -> float:
        r"""n x/(1 + x), x = p/(1-p) e^(level/d), in the middle of the shift."""
        p = self.noise.probability
        x = float(p / (1 - p)) * math.exp(level / self.shift)
        return self.noise.trials * x / (1 + x) - self.shift / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PolyaPair(OneSidedPair):
    r"""p(k)/p(k+d) = prod_{j=1..d} (k+j)/(k+j-1+r) e^(d/s), for a shape r > 1.

    It rises to e^(d/s), so X against X - d never loses d/s or more.
    """

    noise: Polya

    def log_odds(self, k: int) -> arb:
        r"""The logarithm of the product."""
        up, down = (_rising(ball(first), self.shift) for first in (k + 1, k + self.noise.shape))
        return up - down + ball(self.shift / self.noise.scale)

    def odds(self, k: int) -> None:
        r"""Never rational."""
        del k

    def step(self, k: int) -> arb:
        r"""beta (k+r)/(k+1)."""
        return _beta(self.noise.scale, ctx.prec) * ball(k + self.noise.shape) / (k + 1)

    def log_step(self, k: float) -> float:
        r"""The same, in the middle of the step."""
        r = float(self.noise.shape)
        return math.log((k + r - 0.5) / (k + 0.5)) - float(1 / self.noise.scale)

    def rest(self, last: int, mass: arb, loss: arb) -> tuple[Callable[[arb], arb], arb]:
        r"""No loss reaches d/s, and p(k+1)/p(k) falls."""
        del loss
        top, step = ball(self.shift / self.noise.scale), self.step(last)
        return partial(flat_rest, geometric(mass * step, step), top), top

    def crossing(self, level: float) -> float:
        r"""Where (k + r)/(k + 1) = e^(1/s - level/d), in the middle of the shift."""
        step = math.expm1(float(1 / self.noise.scale) - level / self.shift)
        return (float(self.noise.shape) - 1 - step) / step - (self.shift - 1) / 2

    def ray(self, epsilon: Fraction) -> Cell | None:
        r"""None from d/s on, in the direction that hides nothing."""
        if not self.mirrored and epsilon * self.noise.scale >= self.shift:
            return None
        return OneSidedPair.ray(self, epsilon)

    def largest_loss(self) -> Enclosure:
        r"""d/s, approached for large k and not attained; infinite in the mirrored direction."""
        if self.mirrored:
            return Enclosure.infinite()
        return Enclosure.exactly(self.shift / self.noise.scale)


def _rising(start: arb, count: int) -> arb:
    # log start (start + 1) ... (start + count - 1).
    if count <= _SUMMED:
        return start.rising(count).log()
    return (start + count).lgamma() - start.lgamma()


@lru_cache(maxsize=64)
def _beta(scale: Fraction, bits: int) -> arb:
    # e^(-1/s); `bits` is the ambient precision, part of the key.
    del bits
    return (-1 / ball(scale)).exp()
