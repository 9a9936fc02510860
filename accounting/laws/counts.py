r"""Poisson, binomial and Polya noise against their shifts, in both directions.

Proofs: docs/proofs/curve.md and docs/proofs/cells.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Final

from flint import arb, ctx

from accounting.laws.one_sided import OneSidedPair, flat_rest, two_ended_rest
from accounting.pairs.listing import geometric, nothing
from accounting.pairs.monotone import Cell
from accounting.pairs.pair import Pair
from dpcore.laws.binomial import Binomial
from dpcore.laws.poisson import Poisson
from dpcore.laws.polya import Polya
from dpcore.numbers.enclosure import Enclosure, ball

__all__ = ["BinomialPair", "PoissonPair", "PolyaPair"]

_SUMMED: Final = 64
_LEAST: Final = 1e-290


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
