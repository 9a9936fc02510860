r"""Discrete Laplace against its shifts, in closed form.

With beta = e^(-1/s), C = (1-beta)/(1+beta) and one shift d: the loss of x is (|x+d| - |x|)/s, and
D_alpha = d/s + log((1 + beta^((2alpha-1)d))/(1+beta) + C (g - g^d)/(1-g))/(alpha-1) with
g = beta^(2alpha-1). D_alpha/alpha falls in alpha, so the zCDP parameter is the limit at alpha = 1,
the Kullback-Leibler divergence. Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Final

from flint import arb, arb_poly, ctx

from accounting.errors import NotDerived
from accounting.ray import Cell, RayPair
from accounting.shift import Shift
from dpcore.enclosure import Enclosure, ball

__all__ = ["LaplacePair", "LaplaceProduct"]

_MOST_ATOMS: Final = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class LaplacePair(RayPair):
    r"""X against X - d for one discrete Laplace X of scale s and an integer d >= 1.

    >>> LaplacePair(scale=Fraction(10), shift=1).largest_loss()
    Enclosure([0.1, 0.1])
    """

    scale: Fraction
    shift: int

    def loss(self, m: int) -> Fraction:
        r"""(|m+d| - |m|)/s."""
        return (abs(m + self.shift) - abs(m)) / self.scale

    def ray(self, epsilon: Fraction) -> Cell | None:
        r"""(2m+d)/s > epsilon between -d and 0, in exact arithmetic."""
        if epsilon * self.scale >= self.shift:
            return None
        first = math.floor((epsilon * self.scale - self.shift) / 2) + 1
        return first, first

    def tails(self, m: int) -> tuple[arb, arb]:
        r"""Geometric tails or their complements, their difference formed without cancellation."""
        rate = 1 / ball(self.scale)
        rest = _upper(rate, m + self.shift)
        if m > 0:
            return rest * (rate * self.shift).expm1(), rest
        if m + self.shift <= 0:
            return _upper(rate, 1 - m - self.shift) - _upper(rate, 1 - m), rest
        # 1 + beta - beta^(1-m) - beta^(m+d) as two differences that are each >= 0.
        beta = (-rate).exp()
        gap = -(-rate * (m + self.shift)).expm1() - beta * (rate * m).expm1()
        return gap / (1 + beta), rest

    def below(self, m: int) -> arb:
        r"""P(X < m) = P(X >= 1-m)."""
        return _upper(1 / ball(self.scale), 1 - m)

    def largest_loss(self) -> Enclosure:
        r"""d/s, attained at every x >= 0."""
        return Enclosure.exactly(self.shift / self.scale)

    def hidden(self) -> Fraction:
        r"""0: every integer has mass."""
        return Fraction(0)

    def renyi(self, order: Fraction) -> arb:
        r"""The closed form at the head of this file."""
        return _renyi(self.scale, self.shift, order)

    def zcdp(self) -> arb:
        r"""The Kullback-Leibler divergence, the limit of D_alpha/alpha at alpha = 1."""
        return _divergence(self.scale, self.shift)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceProduct(RayPair):
    r"""Independent coordinates X_i against X_i - d_i: finitely many losses J/s, J = 2m - D.

    D = sum_i d_i and m = 0..D. With Y_i = 0..d_i the loss of coordinate i is (d_i - 2 Y_i)/s, of
    mass 1/(1+beta), C beta^y in between, beta^d_i/(1+beta); the polynomial product of these is
    exact, and Q is its mirror image. Its tails raise :class:`NotDerived` for D beyond 2^14.
    """

    scale: Fraction
    shift: Shift

    @property
    def _total(self) -> int:
        return sum(step * count for step, count in self.shift)

    def loss(self, m: int) -> Fraction:
        r"""(2m - D)/s."""
        return (2 * m - self._total) / self.scale

    def ray(self, epsilon: Fraction) -> Cell | None:
        r"""(2m - D)/s > epsilon, in exact arithmetic."""
        if epsilon * self.scale >= self._total:
            return None
        first = math.floor((epsilon * self.scale + self._total) / 2) + 1
        return first, first

    def tails(self, m: int) -> tuple[arb, arb]:
        r"""A(m) = P(Y <= D-m), B(m) = P(Y >= m)."""
        low, high = self._cumulated()
        m = min(max(m, 0), self._total + 1)
        return low[self._total + 1 - m] - high[m], high[m]

    def below(self, m: int) -> arb:
        r"""P(Y > D-m)."""
        m = min(max(self._total + 1 - m, 0), self._total + 1)
        return self._cumulated()[1][m]

    def _cumulated(self) -> tuple[list[arb], list[arb]]:
        if self._total > _MOST_ATOMS:
            raise NotDerived(
                f"the exact curve of discrete Laplace noise under a total shift of {self._total}",
                f"it has more than {_MOST_ATOMS} losses; pure() and zcdp() are exact",
            )
        return _cumulated(self.scale, self.shift, ctx.prec)

    def largest_loss(self) -> Enclosure:
        r"""D/s."""
        return Enclosure.exactly(self._total / self.scale)

    def hidden(self) -> Fraction:
        r"""0: every integer has mass."""
        return Fraction(0)

    def renyi(self, order: Fraction) -> arb:
        r"""Divergences of independent coordinates add."""
        parts = (count * _renyi(self.scale, step, order) for step, count in self.shift)
        return sum(parts, arb(0))

    def zcdp(self) -> arb:
        r"""Every coordinate is worst in the same limit, so the parameters add."""
        parts = (count * _divergence(self.scale, step) for step, count in self.shift)
        return sum(parts, arb(0))


def _upper(rate: arb, k: int) -> arb:
    # P(X >= k).
    if k <= 0:
        return 1 - _upper(rate, 1 - k)
    return (-rate * k).exp() / (1 + (-rate).exp())


def _renyi(scale: Fraction, shift: int, order: Fraction) -> arb:
    rate, excess = 1 / ball(scale), ball(order - 1)
    rise = rate * ball(2 * order - 1)
    inner = (1 + (-rise * shift).exp()) / (1 + (-rate).exp())
    # C (g - g^d)/(1 - g), zero for d = 1.
    inner += (rate / 2).tanh() * (-rise).exp() * (rise * (1 - shift)).expm1() / (-rise).expm1()
    return shift * rate + inner.log() / excess


def _divergence(scale: Fraction, shift: int) -> arb:
    # s KL = sum_x p(x) (|x+d| - |x|) = sum_{j<d} P(-j <= X <= j), telescoping in d.
    #      = sum_{j<d} 1 - 2 beta^(j+1)/(1+beta) = d - 2 beta (1 - beta^d)/((1+beta)(1-beta)).
    rate = 1 / ball(scale)
    return rate * shift + rate * (-rate * shift).expm1() / rate.sinh()


@lru_cache(maxsize=64)
def _cumulated(scale: Fraction, shift: Shift, bits: int) -> tuple[list[arb], list[arb]]:
    # (P(Y < k), P(Y >= k)) for k = 0..D+1; `bits` is the ambient precision, part of the key.
    del bits
    rate = 1 / ball(scale)
    center, edge = (rate / 2).tanh(), 1 / (1 + (-rate).exp())
    powers = []
    for step, count in shift:
        inner = [center * (-rate * y).exp() for y in range(1, step)]
        powers.append(arb_poly([edge, *inner, edge * (-rate * step).exp()]) ** count)
    masses = reduce(lambda left, right: left * right, powers).coeffs()
    low, high = [arb(0)], [arb(0)]
    for mass in masses:
        low.append(low[-1] + mass)
    for mass in reversed(masses):
        high.append(high[-1] + mass)
    return low, high[::-1]
