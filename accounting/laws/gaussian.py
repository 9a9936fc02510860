r"""Discrete Gaussian against its shifts.

The loss of x under the shifts d_i is (2 S + D)/2v with S = sum_i d_i x_i and D = sum_i d_i^2: exact
rationals on a lattice, and under Q the law of S is moved by D. D_alpha = D/2v +
sum_i log E[e^((alpha-1) d_i X/v)]/(alpha-1) is at most alpha D/2v, with equality when every
(alpha-1) d_i is an integer. Proofs: docs/proofs/curve.md and
docs/proofs/line.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from flint import acb, arb, ctx

from accounting.pairs.balls import middle
from accounting.pairs.lattice import LatticePair, Limit, residue
from accounting.pairs.monotone import Cell, RayPair
from accounting.pairs.pair import Coordinates
from accounting.pairs.shift import Shift
from dpcore.analysis import theta
from dpcore.analysis.theta import ThetaSum
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.numbers.enclosure import Enclosure, ball

_SUMMED: Final = 64
_NEARLY_REAL: Final = 4
_REACH: Final = 16
_NEWTON: Final = 40
_SHORT: Final = 1e-6
_CLOSE: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gaussian(RayPair):
    # What one coordinate and several have in common: a loss (2m + D)/2v on integers m.
    noise: DiscreteGaussian
    shift: Shift

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
        return (2 * self._unit * m + self._distance) / (2 * self.noise.sigma_squared)

    def ray(self, epsilon: Fraction) -> Cell:
        r"""(2gm + D)/2v > epsilon, in exact arithmetic."""
        beyond = epsilon * self.noise.sigma_squared - Fraction(self._distance, 2)
        first = math.floor(beyond / self._unit) + 1
        return first, first

    def start(self, delta: Fraction) -> Fraction:
        r"""rho + 2 sqrt(rho log(1/delta)), which is above epsilon(delta) by 10% or so."""
        rho = ball(self.zcdp())
        return middle(rho + 2 * (rho * abs(ball(delta).log()).upper()).sqrt())

    def guess(self, delta: Fraction) -> int | None:
        r"""From the curve of a real Gaussian, in floats; the general search where it strays."""
        near = real_gaussian_epsilon(self._distance / self.noise.sigma_squared, delta)
        if self.noise.sigma_squared < _NEARLY_REAL or not near > 0:
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
        return self._distance / (2 * self.noise.sigma_squared)

    def renyi(self, order: Fraction) -> Fraction | arb:
        r"""alpha D/2v when every (alpha-1) d_i is an integer, else the ball below it."""
        if all(((order - 1) * step).denominator == 1 for step, _ in self.shift):
            return order * self.zcdp()
        excess, v = ball(order - 1), self.noise.sigma_squared
        logs = (count * theta.log_moment(v, excess * step / ball(v)) for step, count in self.shift)
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
        rate = 1 / (2 * ball(self.noise.sigma_squared))
        masses = ((-rate * (m + j) ** 2).exp() for j in range(step))
        return sum(masses, arb(0)) / theta.partition(self.noise.sigma_squared), rest

    def below(self, m: int) -> arb:
        r"""P(X < m)."""
        return self.noise.cdf_ball(m - 1)

    def coordinates(self) -> Coordinates:
        r"""p(m) and p(m+d)."""
        return Coordinates(noise=self.noise, there=self._unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianProduct(_Gaussian, LatticePair):
    r"""Several coordinates: S/g = sum_i (d_i/g) X_i is a lattice sum, at any number of them.

    >>> rounds = GaussianProduct(noise=DiscreteGaussian(sigma_squared=400), shift=((1, 1000),))
    >>> rounds.epsilon(Fraction(1, 10**6), rounds.guess(Fraction(1, 10**6))).str(7, radius=False)
    '8.306226'
    """

    @property
    def rise(self) -> Fraction:
        r"""g/v."""
        return self._unit / self.noise.sigma_squared

    @property
    def twice_centre(self) -> int:
        r"""-D/g: X_i -> -X_i - d_i swaps the two."""
        return -self._distance // self._unit

    @property
    def top(self) -> None:
        r"""S is unbounded."""

    def parts(self) -> tuple[_Draws, ...]:
        r"""The coordinates of each step."""
        v = self.noise.sigma_squared
        return tuple(
            _Draws(law=ThetaSum(variance=v, count=count), step=step // self._unit)
            for step, count in self.shift
        )

    def guess(self, delta: Fraction) -> int | None:
        r"""From the saddle: for large v this is the curve of a real Gaussian too."""
        return LatticePair.guess(self, delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draws:
    # step (X_1 + ... + X_n) for independent draws: a part of a lattice sum.
    law: ThetaSum
    step: int

    def log_moment(self, c: arb) -> arb:
        return self.law.log_moment(self.step * c)

    def line(self, c: arb, points: int, kept: Sequence[int]) -> list[acb]:
        turn = 2 * arb.pi() / points
        places = [residue(self.step * j, points) for j in kept]
        angles = [turn * place for place in places]
        near = self._ripple(turn * max(map(abs, places), default=0))
        if near is None:
            return [self.law.tilted_characteristic(self.step * c, angle) for angle in angles]
        v, n = ball(self.law.variance), self.law.count
        damp, lift = -v * n / 2, v * n * self.step * c
        return [near * acb(damp * x * x, lift * x).exp() for x in angles]

    def _ripple(self, widest: arb) -> acb | None:
        # Around (S(z)/S(c))^n, S the dual series, for |Im z| <= widest; None where it is not a
        # tiny ball around 1. The pairs of terms of S fall at least as fast as the first two.
        v = 2 * arb.pi() * ball(self.law.variance)
        lift = v * widest
        first, ratio = (lift - v * arb.pi()).exp(), (lift - 3 * v * arb.pi()).exp()
        size = (2 * first / (1 - ratio)).upper()
        if not (ratio < 0.5 and size * self.law.count < arb(2) ** -ctx.prec):
            return None
        return ((1 + acb(arb(0, size), arb(0, size))) / (1 + arb(0, size))) ** self.law.count

    def limits(self, c: arb, need: arb) -> list[Limit]:
        # The lemma of coins of docs/proofs/contour.md; 1 - cos x = 2 sin^2(x/2).
        variance = self.law.tilted_variance(self.step * c)

        def bound(x: arb) -> arb:
            return (-2 * variance * (x / 2).sin() ** 2).exp()

        angle = 2 * (need / (2 * variance)).sqrt().asin()
        return [Limit(step=self.step, angle=angle, bound=bound)]

    def cumulants(self, c: float) -> tuple[float, float, float]:
        v, n, d = float(self.law.variance), self.law.count, self.step
        value, mean, variance = _cumulants(v, d * c)
        return n * value, n * d * mean, n * d * d * variance


def _cumulants(v: float, c: float) -> tuple[float, float, float]:
    # log E[e^(cX)] and two derivatives in floats; the integers near vc carry all for small v.
    if v >= _NEARLY_REAL:
        return v * c * c / 2, v * c, v
    total = sum(math.exp(-x * x / (2 * v)) for x in range(-_REACH, _REACH + 1))
    best = round(v * c)
    terms = [(x, c * x - x * x / (2 * v)) for x in range(best - _REACH, best + _REACH + 1)]
    top = max(size for _, size in terms)
    weights = [(x - best, math.exp(size - top)) for x, size in terms]
    whole = sum(w for _, w in weights)
    mean = sum(x * w for x, w in weights) / whole
    variance = sum((x - mean) ** 2 * w for x, w in weights) / whole
    return top + math.log(whole / total), best + mean, variance


def real_gaussian_epsilon(squared: Fraction, delta: Fraction) -> float:
    r"""About epsilon at ``delta``, of real Gaussian noise of this squared ratio; only a start."""
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
