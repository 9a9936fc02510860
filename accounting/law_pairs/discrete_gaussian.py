r"""The discrete Gaussian against its shifts.

The loss of x under the shift d is d (2x + d)/2v. D_alpha = d^2/2v + log E[e^((alpha-1) d X/v)]/
(alpha-1) is at most alpha d^2/2v, with equality when (alpha-1) d is an integer.
Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final

from flint import arb

from accounting.pairs.ball_arithmetic import middle
from accounting.pairs.log_concave import ShiftedPair
from accounting.pairs.monotone import Cell, RayPair
from dpcore.analysis import theta
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.numbers.enclosure import Enclosure, ball

NEARLY_REAL: Final = 4
"""For a larger variance the curve is close to that of real Gaussian noise."""

_SUMMED: Final = 64
_NEWTON: Final = 40
_SHORT: Final = 1e-6
_CLOSE: Final = 1e-9
_ASYMPTOTIC: Final = 25.0
_TERMS: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianPair(ShiftedPair):
    r"""The pair (X, X - ``shift``) for a discrete Gaussian X.

    >>> GaussianPair(noise=DiscreteGaussian(sigma_squared=400), shift=1).zcdp()
    Fraction(1, 800)
    """

    everywhere: ClassVar[bool] = True

    noise: DiscreteGaussian

    def loss(self, m: int) -> Fraction:
        r"""The loss d (2m + d)/2v at m."""
        return self.shift * (2 * m + self.shift) / (2 * self.noise.sigma_squared)

    def ray(self, epsilon: Fraction) -> Cell:
        r"""The first m with d (2m + d)/2v > epsilon, in exact arithmetic."""
        beyond = epsilon * self.noise.sigma_squared / self.shift - Fraction(self.shift, 2)
        first = math.floor(beyond) + 1
        return first, first

    def start(self, delta: Fraction) -> Fraction:
        r"""The point rho + 2 sqrt(rho log(1/delta)), which exceeds epsilon(delta) by about 10%."""
        rho = ball(self.zcdp())
        return middle(rho + 2 * (rho * abs(ball(delta).log()).upper()).sqrt())

    def guess(self, delta: Fraction) -> int | None:
        r"""The optimal m for real Gaussian noise, in floats, or else that of the general search."""
        near = real_gaussian_epsilon(self.shift**2 / self.noise.sigma_squared, delta)
        if self.noise.sigma_squared < NEARLY_REAL or not near > 0:
            return RayPair.guess(self, delta)
        return self.ray(Fraction(near))[0]

    def tails(self, m: int) -> tuple[arb, arb]:
        r"""A(m) - B(m) and B(m), with one partition sum for all masses of the gap."""
        if self.shift > _SUMMED:
            return ShiftedPair.tails(self, m)
        rate = 1 / (2 * ball(self.noise.sigma_squared))
        masses = ((-rate * (m + j) ** 2).exp() for j in range(self.shift))
        whole = theta.partition(self.noise.sigma_squared)
        return sum(masses, arb(0)) / whole, self.noise.sf_ball(m + self.shift - 1)

    def largest_loss(self) -> Enclosure:
        r"""The largest loss: infinite, since the loss grows with m."""
        return Enclosure.infinite()

    def zcdp(self) -> Fraction:
        r"""The zCDP parameter d^2/2v, attained at order 2."""
        return self.shift**2 / (2 * self.noise.sigma_squared)

    def renyi(self, order: Fraction) -> Fraction | arb:
        r"""D_alpha: alpha d^2/2v if (alpha-1) d is an integer, otherwise a ball below that."""
        if ((order - 1) * self.shift).denominator == 1:
            return order * self.zcdp()
        excess, v = ball(order - 1), self.noise.sigma_squared
        return ball(self.zcdp()) + theta.log_moment(v, excess * self.shift / ball(v)) / excess


def mills(x: float) -> float:
    r"""Mills' ratio (1 - Phi(x))/phi(x) of the normal law, to about 1e-13; not an enclosure.

    SciPy's functions are as accurate, but importing them takes longer than most commands run.

    >>> mills(0), mills(1e9)
    (1.2533141373155..., 1e-09)
    """
    if x < _ASYMPTOTIC:
        return math.erfc(x / math.sqrt(2)) * math.exp(x * x / 2) * math.sqrt(math.pi / 2)
    term = total = 1.0
    for k in range(1, _TERMS):
        term *= -(2 * k - 1) / (x * x)
        total += term
    return total / x


def real_gaussian_epsilon(squared: Fraction, delta: Fraction) -> float:
    r"""Approximate epsilon at ``delta`` of real Gaussian noise with this squared ratio."""
    # With mu^2 = D/v, a = epsilon/mu - mu/2 and Mills' ratio R: delta = phi(a) (R(a) - R(a+mu)).
    # Newton on its logarithm, whose slope in a is -mu R(a+mu)/(R(a) - R(a+mu)). Only a start.
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
