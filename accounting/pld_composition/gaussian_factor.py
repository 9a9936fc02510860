r"""The factor of the contour integral for discrete Gaussian noise, in closed form.

Let X be a discrete Gaussian with parameter v (the sigma^2 of the law), D the shift, and E the mean
under the law of X. The privacy loss is L = (D^2 + 2DX)/2v, and z = c + iy with the tilt c. With
a = D^2/2v, P = 2 pi v/D and Theta = sum_j e^(-2 pi^2 v j^2), Poisson summation gives

    E e^(zL) = S phi(y),   S = e^(ac(c+1))/Theta,
    phi(y)   = e^(ia(2c+1)y) sum_j e^(-a(y - jP)^2 - 2 pi i j D c),

where j runs over the integers. So phi is a sum of Gaussian peaks at the multiples of P. For v < 1/2
the peaks overlap, so such noise, which has few likely outputs, is divided into cells instead.
Proofs: docs/proofs/cells.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from flint import arb, ctx

from accounting.pld.discretise_round import Focus
from accounting.pld_composition.complex_intervals import (
    CIRCLE,
    SLACK,
    TINY,
    TURN_BITS,
    UNIT,
    Discs,
    Floats,
    Integers,
    circle,
    fixed_point,
    multiples,
    upward,
)
from accounting.pld_composition.factor import Grid, LossPart
from dpcore.analysis import theta
from dpcore.numbers.arrays import EXP_NEG_ERROR, exp_neg
from dpcore.numbers.enclosure import Enclosure, ball, nearest

LEAST_VARIANCE: Final = Fraction(1, 2)
"""For smaller variances the lobes overlap."""

_NATS: Final = 90
_LARGEST_EXPONENT: Final = 700.0
_READ: Final = 2.0**-50
_BLUR: Final = 2.0**-48
_MOST_LOBES: Final = 2.0**31
_CERTAIN: Final = 2.0**32
_FARTHEST: Final = 300.0
_LARGEST_RATE: Final = 2.0**100
_PHASE: Final = CIRCLE + 3 * UNIT + 2.0**-56
"""The phase error: that of circle, of three turns (2^-61 in total) and of a product."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianPart(LossPart):
    r"""The loss of the pair (X, X - D) for a discrete Gaussian X with v = ``variance`` >= 1/2.

    >>> part = GaussianPart(variance=Fraction(400), shift=1)
    >>> [round(each, 6) for each in part.cumulants(9.5)]
    [0.124688, 0.025, 0.0025]
    """

    variance: Fraction
    shift: int

    @property
    def rate(self) -> Fraction:
        r"""The rate a = D^2/2v."""
        return self.shift**2 / (2 * self.variance)

    @property
    def above(self) -> None:
        r"""None: the loss is exact, since its moments have a closed form."""

    @property
    def hidden(self) -> arb:
        return arb(0)

    def largest_loss(self) -> Enclosure:
        return Enclosure.infinite()

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        # The cumulants of real Gaussian noise, which are accurate enough for v >= 1/2.
        rate = self.shift**2 * self.variance.denominator / (2 * self.variance.numerator)
        return rate * tilt * (tilt + 1), rate * (2 * tilt + 1), 2 * rate

    def factor(
        self, tilt: Fraction, variance: float = math.inf, focus: Focus | None = None
    ) -> GaussianFactor:
        del variance, focus
        return GaussianFactor(part=self, tilt=tilt)


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianFactor:
    r"""The factor phi of the module docstring at the tilt c = ``tilt`` > 0.

    Products and sums are computed in floats with error bounds, and all else in ball arithmetic.

    >>> grid = Grid(step=1.0, depth=1, blocks=4000)
    >>> factor = GaussianPart(variance=Fraction(400), shift=1).factor(Fraction(10))
    >>> factor.log_scale.str(10, radius=False)
    '0.1375000000'
    >>> from dpcore.numbers.enclosure import precision
    >>> with precision(96):
    ...     bounds = factor.cover(grid, np.array([0, 20, 1256]))
    >>> [round(bound, 6) for bound in bounds.tolist()]  # at 0, y = 40 and near P = 800 pi
    [1.0, 0.135335, 1.0]
    """

    part: GaussianPart
    tilt: Fraction

    @property
    def log_scale(self) -> arb:
        whole = _whole(self.part.variance, ctx.prec)
        return ball(self.part.rate) * ball(self.tilt * (self.tilt + 1)) - whole.log()

    @property
    def deviation(self) -> float:
        return math.sqrt(2 * self.part.rate)

    @property
    def peak(self) -> float:
        # By Poisson summation, sum_j e^(-a(y - jP)^2) is largest at y = 0, where it is Theta.
        return _peak(self.part.variance)

    def log_moment(self, lift: Fraction) -> arb:
        # log M(c') <= ac'(c'+1) for c' = (1+lift) c, because E e^(wX) <= e^(vw^2/2).
        farther = ball((1 + lift) * self.tilt)
        return ball(self.part.rate) * farther * (farther + 1)

    def cover(self, grid: Grid, blocks: Integers) -> Floats:
        # sum_j e^(-a d_j^2) or Theta, where d_j <= the distance of the block from jP.
        rate, period, cap, rest = _cover(self.part, grid, ctx.prec)
        centre = grid.centres(blocks)
        # u is the distance of the centre from the nearest jP, with error <= `blur`: j is an
        # integer; the period and three operations have errors <= 2^-52 each, relative to y + P.
        blur = (centre + period) * _BLUR
        reach = blur + grid.length / 2
        u = np.abs(centre - np.rint(centre / period) * period)
        found = _decay(rate, u - reach) + _decay(rate, period - u - reach) + rest
        return np.minimum(found * (1 + _READ), cap)

    def values(self, grid: Grid, blocks: Integers) -> Discs:
        # y/P = j + w with an integer j and |w| <= 1/2, and a (y - (j+k)P)^2 = 2 pi^2 v (w-k)^2.
        part, indices = self.part, grid.indices(blocks)
        step, period, rate = arb(grid.step), _period(part), _nome(part)
        lobes, lost = _lobes(part, ctx.prec)
        sides = range(-lobes, lobes + 1)
        drift = ball(part.rate * (2 * self.tilt + 1)) * step / (2 * arb.pi())
        turns = [step / period, drift, *(ball(n * part.shift * self.tilt % 1) for n in (1, *sides))]
        whole = [turn * arb(2) ** TURN_BITS for turn in turns]
        last = (grid.blocks << grid.depth) * upward(step / period)
        certain = all(upward(turn.rad()) < _CERTAIN for turn in whole)
        if not (certain and last < _MOST_LOBES and rate < _LARGEST_RATE):
            return self._unknown(len(indices))
        high, low = fixed_point(whole)
        w: Floats = (
            multiples(high[:1], low[:1], indices).view(np.int64).astype(np.float64) * 2.0**-64
        )
        lobe = np.rint(indices * (grid.step / nearest(period)) - w).astype(np.int64)
        first = multiples(high[1:2], low[1:2], indices) - multiples(high[2:3], low[2:3], lobe)
        centres, radii = np.zeros(len(indices), np.complex128), np.full(len(indices), lost)
        for k, turn in zip(sides, high[3:], strict=True):
            size, error = _magnitude(nearest(rate), w - k)
            centres += size * circle(first - turn)
            radii += size * (error + _PHASE + len(sides) * UNIT)
        return Discs(centres, (radii + len(sides) * TINY) * SLACK)

    def _unknown(self, count: int) -> Discs:
        # The bound |phi| <= Theta, for numbers too large for 128-bit fixed point.
        peak = _peak(self.part.variance)
        return Discs(np.zeros(count, np.complex128), np.full(count, peak))


@lru_cache(maxsize=1 << 10)
def _whole(variance: Fraction, bits: int) -> arb:
    # Theta = Z/sqrt(2 pi v); `bits` is the ambient precision, part of the cache key.
    del bits
    return theta.partition(variance) / (2 * arb.pi() * ball(variance)).sqrt()


def _peak(variance: Fraction) -> float:
    return upward(_whole(variance, ctx.prec))


def _period(part: GaussianPart) -> arb:
    return 2 * arb.pi() * ball(part.variance / part.shift)


def _nome(part: GaussianPart) -> arb:
    # The constant a P^2.
    return 2 * arb.pi() ** 2 * ball(part.variance)


@lru_cache(maxsize=1 << 10)
def _lobes(part: GaussianPart, bits: int) -> tuple[int, float]:
    # The number of lobes on either side of the nearest one, and a bound on all others: they are at
    # distances >= (K + 1/2) P in steps of P, on either side; 0.45 allows for |w| > 1/2.
    del bits
    nome = _nome(part)
    count = max(0, math.ceil(math.sqrt(_NATS / float(nome)) - 0.45))
    first = (-nome * (count + arb(0.45)) ** 2).exp()
    return count, upward(2 * first / (1 - (-nome * (2 * count + arb(1.9))).exp()))


@lru_cache(maxsize=1 << 10)
def _cover(part: GaussianPart, grid: Grid, bits: int) -> tuple[float, float, float, float]:
    # (a, P, Theta, a bound on all lobes but the nearest two), rounded down, to nearest, up and up.
    # The other lobes are at distances >= P - h, 3P/2 - h, 2P - h, ..., where h is the reach of a
    # block: a geometric series, which is useless for h >= P/2.
    del bits
    period = _period(part)
    far = arb(grid.length) * (grid.blocks + 1) + period
    reach = arb(grid.length) / 2 + 2 * far * _BLUR
    rate = float(ball(part.rate).lower()) * (1 - _READ)
    rest = cap = _peak(part.variance)
    if reach < period / 2:
        first = (-ball(part.rate) * (period - reach) ** 2).exp()
        ratio = (-ball(part.rate) * period * (period * 5 / 4 - reach)).exp()
        rest = upward(first / (1 - ratio))
    return rate, nearest(period), cap, rest


def _decay(rate: float, distance: Floats) -> Floats:
    # An upper bound on e^(-a d^2), 1 for d < 0: the exponent is rounded down.
    near = np.maximum(distance, 0.0)
    exponent = np.minimum(rate * near * near, _LARGEST_EXPONENT) * (1 - _READ)
    return exp_neg(exponent) * (1 + 2.0**-40)


def _magnitude(rate: float, distance: Floats) -> tuple[Floats, Floats]:
    # e^(-x), x = rate d^2, and its relative error: d has the error 2^-61 + 2^-52 d, and the rate,
    # which is below 2^100, the relative error 2^-52. For x > 300 the value is 0 to within TINY.
    x = rate * distance * distance
    near = x < _FARTHEST
    x = np.where(near, x, 0.0)
    moved = x * 2.0**-49 + np.sqrt(rate * x) * 2.0**-59 + rate * 2.0**-122
    return np.where(near, exp_neg(x), 0.0), 2 * moved + EXP_NEG_ERROR * (1 + 2.0**-20)
