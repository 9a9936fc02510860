r"""Discrete Laplace against its shifts, in closed form.

With beta = e^(-1/s), C = (1-beta)/(1+beta) and one shift d: the loss of x is (|x+d| - |x|)/s, and
D_alpha = d/s + log((1 + beta^((2alpha-1)d))/(1+beta) + C (g - g^d)/(1-g))/(alpha-1) with
g = beta^(2alpha-1). D_alpha/alpha falls in alpha, so the zCDP parameter is the limit at alpha = 1,
the Kullback-Leibler divergence. Proofs: docs/proofs/curve.md and
docs/proofs/line.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from flint import acb, arb

from accounting.pairs.lattice import LatticePair, Limit, residue
from accounting.pairs.monotone import Cell, RayPair
from accounting.pairs.pair import Coordinates
from accounting.pairs.shift import Shift
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.numbers.enclosure import Enclosure, ball

_FLAT: Final = 1e-3


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

    def coordinates(self) -> Coordinates:
        r"""p(m) and p(m+d)."""
        return Coordinates(noise=DiscreteLaplace(scale=self.scale), there=self.shift)

    def constant_beyond(self) -> tuple[int, int]:
        r"""-d/s up to m = -d, and d/s from 0 on."""
        return -self.shift, 0

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
class LaplaceProduct(LatticePair):
    r"""Independent coordinates X_i against X_i - d_i: finitely many losses J/s, J = 2m - D.

    D = sum_i d_i and m = 0..D. With Y_i = 0..d_i the loss of coordinate i is (d_i - 2 Y_i)/s, of
    mass 1/(1+beta), C beta^y in between, beta^d_i/(1+beta); m = sum_i (d_i - Y_i) is a lattice sum,
    at any number of coordinates, and Q is its mirror image.

    >>> rounds = LaplaceProduct(scale=Fraction(20), shift=((1, 1000),))
    >>> rounds.epsilon(Fraction(1, 10**6), rounds.guess(Fraction(1, 10**6))).str(9, radius=False)
    '8.28357335'
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

    @property
    def rise(self) -> Fraction:
        r"""2/s."""
        return 2 / self.scale

    @property
    def twice_centre(self) -> int:
        r"""D."""
        return self._total

    @property
    def top(self) -> int:
        r"""D."""
        return self._total

    def parts(self) -> tuple[_Steps, ...]:
        r"""The coordinates of each step."""
        return tuple(_Steps(scale=self.scale, step=d, count=n) for d, n in self.shift)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    # n coordinates of one step d: E[e^(z(d - Y))] = beta^d T(w)/(1 + beta) for w = e^(z + 1/s) and
    # T(w) = 1 + w^d + (1 - beta)(w + ... + w^(d-1)).
    scale: Fraction
    step: int
    count: int

    def log_moment(self, c: arb) -> arb:
        rate = 1 / ball(self.scale)
        # T falls by w^d for w > 1: nothing overflows, for any d.
        lost = self._whole(c).log() - (-rate).exp().log1p()
        return self.count * (lost + self.step * c)

    def _whole(self, c: arb) -> arb:
        # T(r) r^-d, r = e^(c + 1/s).
        return self._scaled(acb(c + 1 / ball(self.scale))).real

    def _scaled(self, u: acb) -> acb:
        # T(w) w^-d, w = e^u, Re u > 0.
        d = self.step
        if d == 1:
            return 1 + (-u).exp()
        inner = -(-1 / ball(self.scale)).expm1() * (u * (1 - d)).expm1() / (-u).expm1()
        return 1 + (-d * u).exp() + inner * (-u).exp()

    def line(self, c: arb, points: int, kept: Sequence[int]) -> list[acb]:
        turn, high = 2 * arb.pi() / points, c + 1 / ball(self.scale)
        whole = self._whole(c)
        values = []
        for j in kept:
            # w^d turns by the residue of d j, n times.
            angle = turn * residue(self.step * self.count * j, points)
            value = self._scaled(acb(high, turn * j)) / whole
            values.append(value**self.count * acb(angle.cos(), angle.sin()))
        return values

    def limits(self, c: arb, need: arb) -> list[Limit]:
        d, n, rate = self.step, self.count, 1 / ball(self.scale)
        back, low = (-c - rate).exp(), (d * (-c - rate)).exp()  # |1/w| and |w^-d|
        whole, flat = self._whole(c), -(-rate).expm1()
        cut = (-need / n).exp() * whole

        # The two ends alone, the terms between at full size: 1 + w^d at step d.
        def ends(x: arb) -> arb:
            return ((whole - (1 + low) + _chord(low, x)) / whole) ** n

        outer = cut - whole + 1 + low
        found = [Limit(step=d, angle=_angle(low, outer), bound=ends)]
        if d > 1:
            # The terms between as a geometric sum, the ends at full size.
            most = flat * (back + low)

            def between(x: arb) -> arb:
                return ((1 + low + most / _chord(back, arb.pi() - x)) / whole) ** n

            inner = most / (cut - 1 - low)
            found.append(Limit(step=1, angle=arb.pi() - _angle(back, inner), bound=between))
        return found

    def cumulants(self, c: float) -> tuple[float, float, float]:
        d, n, rate = self.step, self.count, 1 / float(self.scale)
        u = c + rate
        between = _geometric(d, u) if d > 1 else (0.0, 0.0, 0.0)
        flat, low = -math.expm1(-rate), math.exp(-d * u)
        total, first, second = (flat * b + d**k * low for k, b in enumerate(between))
        total += 1
        mean = first / total
        start = math.log1p(math.exp(-rate))
        return (
            n * (math.log(total) - start + d * c),
            n * (d - mean),
            n * (second / total - mean * mean),
        )


def _chord(size: arb, x: arb) -> arb:
    # |1 + size e^(ix)| for 0 <= x <= pi: it falls in x.
    return ((1 - size) ** 2 + 4 * size * (x / 2).cos() ** 2).sqrt()


def _angle(size: arb, length: arb) -> arb:
    # The x with |1 + size e^(ix)| = length, not finite where there is none.
    if not length > 0:
        return arb("nan")
    return 2 * ((length**2 - (1 - size) ** 2) / (4 * size)).sqrt().acos()


def _geometric(d: int, u: float) -> tuple[float, float, float]:
    # sum of j^k e^(-ju) over 0 < j < d, for k = 0, 1, 2, in floats.
    if abs(d * u) < _FLAT:
        return d - 1, d * (d - 1) / 2, d * (d - 1) * (2 * d - 1) / 6
    q, p, top = math.exp(-u), -math.expm1(-u), math.exp(-d * u)
    zero = (q - top) / p
    one = (zero - (d - 1) * top) / p
    two = (2 * one - zero - (d - 1) ** 2 * top) / p
    return zero, one, two


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
