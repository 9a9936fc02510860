r"""Discrete Gaussian against its shifts.

The loss of x under the shifts d_i is (2 S + D)/2v with S = sum_i d_i x_i and D = sum_i d_i^2: exact
rationals on a lattice, and under Q the law of S is moved by D. D_alpha = D/2v +
sum_i log E[e^((alpha-1) d_i X/v)]/(alpha-1) is at most alpha D/2v, with equality when every
(alpha-1) d_i is an integer. Proofs: docs/proofs/curve.md.
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
from accounting.search import hull, middle
from accounting.shift import Shift
from dpcore import theta
from dpcore.discrete_gaussian import DiscreteGaussian
from dpcore.enclosure import Enclosure, ball

__all__ = ["GaussianPair", "GaussianProduct"]

_SUMMED: Final = 64
_MOST_TERMS: Final = 1 << 17
_NEARLY_REAL: Final = 4
_NEWTON: Final = 40
_SHORT: Final = 1e-6
_CLOSE: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gaussian(RayPair):
    # What one coordinate and several have in common: a loss (2m + D)/2v on integers m.
    noise: DiscreteGaussian
    shift: Shift

    @property
    def _v(self) -> Fraction:
        return Fraction(self.noise.sigma_squared)

    @property
    def _distance(self) -> int:
        # D = sum of squares.
        return sum(count * step * step for step, count in self.shift)

    @property
    def _unit(self) -> int:
        # S runs over the multiples of g: m = S/g, and Q moves it by D/g.
        return math.gcd(*(step for step, _ in self.shift))

    def loss(self, m: int) -> Fraction:
        r"""(2gm + D)/2v."""
        return (2 * self._unit * m + self._distance) / (2 * self._v)

    def ray(self, epsilon: Fraction) -> Cell:
        r"""(2gm + D)/2v > epsilon, in exact arithmetic."""
        first = math.floor((epsilon * self._v - Fraction(self._distance, 2)) / self._unit) + 1
        return first, first

    def start(self, delta: Fraction) -> Fraction:
        r"""rho + 2 sqrt(rho log(1/delta)), which is above epsilon(delta) by 10% or so."""
        rho = ball(self.zcdp())
        return middle(rho + 2 * (rho * abs(ball(delta).log()).upper()).sqrt())

    def guess(self, delta: Fraction) -> int | None:
        r"""From the curve of a real Gaussian, in floats; the general search where it strays."""
        near = real_gaussian_epsilon(self._distance / self._v, delta)
        if self._v < _NEARLY_REAL or not near > 0:
            return RayPair.guess(self, delta)
        return self.ray(Fraction(near))[0]

    def largest_loss(self) -> Enclosure:
        r"""Infinite: the loss grows with m."""
        return Enclosure.infinite()

    def hidden(self) -> Fraction:
        r"""0: every integer has mass."""
        return Fraction(0)

    def zcdp(self) -> Fraction:
        r"""D/2v, attained at order 2."""
        return self._distance / (2 * self._v)

    def renyi(self, order: Fraction) -> Fraction | arb:
        r"""alpha D/2v when every (alpha-1) d_i is an integer, else the ball below it."""
        if all(((order - 1) * step).denominator == 1 for step, _ in self.shift):
            return order * self.zcdp()
        excess = ball(order - 1)
        logs = (
            count * theta.log_moment(self._v, excess * step / ball(self._v))
            for step, count in self.shift
        )
        return ball(self.zcdp()) + sum(logs, arb(0)) / excess


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianPair(_Gaussian):
    r"""X against X - d for one discrete Gaussian: m is x itself.

    >>> GaussianPair(noise=DiscreteGaussian(sigma_squared=400), shift=((1, 1),)).zcdp()
    Fraction(1, 800)
    """

    def tails(self, m: int) -> tuple[arb, arb]:
        r"""A(m) = P(X >= m), B(m) = P(X >= m+d); a short gap is summed, without cancellation."""
        step = self._unit
        rest = self.noise.sf_ball(m + step - 1)
        if step > _SUMMED:
            return self.noise.sf_ball(m - 1) - rest, rest
        rate = 1 / (2 * ball(self._v))
        masses = ((-rate * (m + j) ** 2).exp() for j in range(step))
        return sum(masses, arb(0)) / theta.partition(self._v), rest

    def below(self, m: int) -> arb:
        r"""P(X < m)."""
        return self.noise.cdf_ball(m - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianProduct(_Gaussian):
    r"""Several coordinates: the law of S = sum_i d_i X_i by rigorous polynomial products.

    Raises :class:`NotDerived` where the polynomial would have more than 2^17 terms.
    """

    def tails(self, m: int) -> tuple[arb, arb]:
        r"""A(m) = P(S >= gm), B(m) = P(S >= gm + D)."""
        rest = self._at_least(m + self._distance // self._unit)
        return self._at_least(m) - rest, rest

    def below(self, m: int) -> arb:
        r"""P(S < gm) = P(S >= g(1-m))."""
        return self._at_least(1 - m)

    def _at_least(self, m: int) -> arb:
        # Coordinates are cut at |x| <= T, where P(|X| > T) is about 2^-prec of P(S >= gm):
        # S has about the tail e^(-(gm)^2/2vD). Any T is sound, for the mass cut off is added.
        need = (self._unit * max(m, 0)) ** 2 / self._distance + 2 * self._v * ctx.prec
        cut = math.isqrt(math.ceil(need)) + 1
        grain = 1 << max(cut.bit_length() - 3, 0)
        cut = -(-cut // grain) * grain
        shift = tuple((step // self._unit, count) for step, count in self.shift)
        most = cut * sum(step * count for step, count in shift)
        if 2 * most >= _MOST_TERMS:
            raise NotDerived(
                f"the exact curve of {self.noise!r} under the shift {self.shift}",
                f"its lattice has {2 * most + 1} points within reach and at most {_MOST_TERMS} are "
                "summed; zcdp() is exact",
            )
        tail, lost = _lattice(self.noise, shift, cut, ctx.prec)
        return (tail[min(max(m + most, 0), len(tail) - 1)]) + hull([arb(0), lost])


def real_gaussian_epsilon(squared: Fraction, delta: Fraction) -> float:
    # With mu^2 = D/v, a = epsilon/mu - mu/2 and Mills' ratio R: delta = phi(a) (R(a) - R(a+mu)).
    # Newton on its logarithm, whose slope in a is -mu R(a+mu)/(R(a) - R(a+mu)). Only a start.
    from scipy.special import erfcx  # here, not above: importing accounting stays fast

    def mills(x: float) -> float:
        return float(erfcx(x / math.sqrt(2))) * math.sqrt(math.pi / 2)

    try:
        mu = math.sqrt(squared)
        goal = math.log(delta.numerator) - math.log(delta.denominator)
        a = math.sqrt(-2 * goal)
        for _ in range(_NEWTON):
            gap = mills(a) - mills(a + mu) if mu > _SHORT else mu * (1 - a * mills(a))
            value = -a * a / 2 - math.log(2 * math.pi) / 2 + math.log(gap)
            step = (value - goal) * gap / (mu * mills(a + mu))
            a += step
            if abs(step) <= _CLOSE:
                return mu * (a + mu / 2)
    except (ArithmeticError, ValueError):
        pass
    return math.nan


@lru_cache(maxsize=32)
def _lattice(noise: DiscreteGaussian, shift: Shift, cut: int, bits: int) -> tuple[list[arb], arb]:
    # (P(S >= k - most, all |X_i| <= cut) for k = 0, 1, ..., and P(some |X_i| > cut) or more);
    # `bits` is the ambient precision, part of the key.
    del bits
    variance = Fraction(noise.sigma_squared)
    rate, total = 1 / (2 * ball(variance)), theta.partition(variance)
    half = [(-rate * x * x).exp() / total for x in range(cut + 1)]
    powers = []
    for step, count in shift:
        spread = [arb(0)] * (2 * cut * step + 1)
        for x in range(-cut, cut + 1):
            spread[(x + cut) * step] = half[abs(x)]
        powers.append(arb_poly(spread) ** count)
    tails = [arb(0)]
    for mass in reversed(reduce(lambda left, right: left * right, powers).coeffs()):
        tails.append(tails[-1] + mass)
    count = sum(count for _, count in shift)
    return tails[::-1], 2 * count * noise.sf_ball(cut).upper()
