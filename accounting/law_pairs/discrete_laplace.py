r"""The pair (X, X - d) for discrete Laplace noise X, in closed form.

For the scale s and the shift d let beta = e^(-1/s), C = (1-beta)/(1+beta) and g = beta^(2alpha-1).
The loss at x is (|x+d| - |x|)/s, and the Renyi divergence of order alpha is

    D_alpha = d/s + log((1 + beta^((2alpha-1)d))/(1+beta) + C (g - g^d)/(1-g))/(alpha-1).

D_alpha/alpha is decreasing in alpha, so the zCDP parameter is its limit at alpha = 1, the
Kullback-Leibler divergence. Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from flint import arb

from accounting.pairs.pair import Cell, ShiftedPair
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.numbers.enclosure import Enclosure, ball


@dataclass(frozen=True, slots=True, kw_only=True)
class LaplacePair(ShiftedPair):
    r"""The pair (X, X - d) for a discrete Laplace X of scale s and an integer d >= 1.

    >>> LaplacePair(noise=DiscreteLaplace(scale=10), shift=1).largest_loss()
    Enclosure([0.1, 0.1])
    """

    everywhere: ClassVar[bool] = True

    noise: DiscreteLaplace

    def loss(self, m: int) -> Fraction:
        return (abs(m + self.shift) - abs(m)) / self.noise.scale

    def ray(self, epsilon: Fraction) -> Cell | None:
        if epsilon * self.noise.scale >= self.shift:
            return None
        first = math.floor((epsilon * self.noise.scale - self.shift) / 2) + 1
        return first, first

    def tails(self, m: int) -> tuple[arb, arb]:
        # Geometric tails or their complements; the difference is formed without cancellation.
        rate = 1 / ball(self.noise.scale)
        rest = self._above(m + self.shift)
        if m > 0:
            return rest * (rate * self.shift).expm1(), rest
        if m + self.shift <= 0:
            return self._above(1 - m - self.shift) - self._above(1 - m), rest
        # 1 + beta - beta^(1-m) - beta^(m+d) as two differences that are each >= 0.
        beta = (-rate).exp()
        gap = -(-rate * (m + self.shift)).expm1() - beta * (rate * m).expm1()
        return gap / (1 + beta), rest

    def constant_beyond(self) -> tuple[int, int]:
        return -self.shift, 0

    def largest_loss(self) -> Enclosure:
        return Enclosure.exactly(self.shift / self.noise.scale)

    def renyi(self, order: Fraction) -> arb:
        rate, excess = 1 / ball(self.noise.scale), ball(order - 1)
        rise = rate * ball(2 * order - 1)
        inner = (1 + (-rise * self.shift).exp()) / (1 + (-rate).exp())
        # C (g - g^d)/(1 - g), zero for d = 1.
        between = (rise * (1 - self.shift)).expm1() / (-rise).expm1()
        inner += (rate / 2).tanh() * (-rise).exp() * between
        return self.shift * rate + inner.log() / excess

    def zcdp(self) -> arb:
        # s KL = sum_x p(x) (|x+d| - |x|) = sum_{j<d} P(-j <= X <= j), telescoping in d,
        #      = sum_{j<d} 1 - 2 beta^(j+1)/(1+beta) = d - 2 beta (1 - beta^d)/((1+beta)(1-beta)).
        rate = 1 / ball(self.noise.scale)
        return rate * self.shift + rate * (-rate * self.shift).expm1() / rate.sinh()
