r"""The loss of unsampled Gaussian noise: Normal(m/2, m), and so is a sum of such losses.

m = D^2/sigma^2 for a shift of l2 length D, in any number of coordinates; over many releases the m
add. delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), mu = sqrt(m)
(Balle and Wang 2018, Theorem 8). Proofs: docs/proofs/cells.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from flint import arb

from accounting.fourier.discs import (
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
)
from accounting.fourier.factor import Grid
from accounting.loss.normal_tail import upper_tail
from accounting.pairs.enclose import inverse, narrowed, within
from dpcore.numbers.enclosure import Enclosure, ball, nearest
from dpcore.numbers.floating import EXP_NEG_ERROR, exp_neg

_LOOSE: Final = 1 + 2.0**-40


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalLoss:
    r"""A loss of law Normal(m/2, m), m = ``variance`` > 0.

    >>> NormalLoss(variance=Fraction(1)).delta(Fraction(1), 64)
    Enclosure([0.12693673750664394, 0.12693673750664395])
    """

    variance: Fraction

    @property
    def above(self) -> None:
        r"""Exact: the moment M(z) = e^(m z(z+1)/2) has a closed form."""

    @property
    def hidden(self) -> arb:
        r"""0."""
        return arb(0)

    @property
    def largest(self) -> arb:
        r"""Infinite."""
        return arb("inf")

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        r"""K = m c(c+1)/2, K' and K''."""
        m = float(self.variance)
        return m * tilt * (tilt + 1) / 2, m * (tilt + 0.5), m

    def factor(self, tilt: Fraction, variance: float = math.inf) -> NormalFactor:
        r"""The factor at c = ``tilt``; it is exact, whatever ``variance`` a listing may add."""
        del variance
        return NormalFactor(variance=self.variance, tilt=tilt)

    def largest_loss(self) -> Enclosure:
        r"""Infinite."""
        return Enclosure.infinite()

    def delta(self, epsilon: Fraction, bits: int) -> Enclosure:
        r"""The curve at ``epsilon`` >= 0, to a relative width of 2^-bits."""
        found = narrowed(lambda: self.curve(ball(epsilon)), bits)
        return within(found, Fraction(0), Fraction(1))

    def epsilon(self, delta: Fraction, bits: int) -> Enclosure:
        r"""The inverse at 0 < ``delta`` < 1."""
        return inverse(self.curve, delta, bits)

    def renyi(self, order: Fraction) -> Fraction:
        r"""order m/2."""
        return order * self.variance / 2

    def curve(self, epsilon: arb) -> arb:
        r"""delta at ``epsilon`` >= 0."""
        mu = ball(self.variance).sqrt()
        fall = epsilon.exp() * upper_tail(mu / 2 + epsilon / mu)
        return upper_tail(epsilon / mu - mu / 2) - fall


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalFactor:
    r"""phi(y) = M(c+iy)/M(c) = e^(-my^2/2) e^(imy(c + 1/2)), m = ``variance``."""

    variance: Fraction
    tilt: Fraction

    @property
    def log_scale(self) -> arb:
        r"""m c(c+1)/2."""
        return ball(self.variance * self.tilt * (self.tilt + 1) / 2)

    @property
    def deviation(self) -> float:
        r"""sqrt(m)."""
        return math.sqrt(self.variance)

    @property
    def peak(self) -> float:
        r"""1."""
        return 1.0

    def log_moment(self, lift: Fraction) -> arb:
        r"""log M((1 + lift) c)."""
        c = (1 + lift) * self.tilt
        return ball(self.variance * c * (c + 1) / 2).upper()

    def on(self, grid: Grid) -> NormalOnGrid:
        r"""The factor on a grid."""
        return NormalOnGrid(factor=self, grid=grid)


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalOnGrid:
    r"""phi on one grid."""

    factor: NormalFactor
    grid: Grid

    def cover(self, blocks: Integers) -> Floats:
        r"""e^(-my^2/2) at the left end of each block."""
        found: Floats = self._fall(blocks.astype(np.float64) * self.grid.length) * _LOOSE + TINY
        return found

    def values(self, blocks: Integers) -> Discs:
        r"""The fall and the phase, both to within a few u."""
        indices, frequencies = self.grid.indices(blocks), self.grid.frequencies(blocks)
        turn = ball(self.factor.variance * (self.factor.tilt + Fraction(1, 2)))
        turn *= ball(Fraction(self.grid.step)) * arb(2) ** (TURN_BITS - 1) / arb.pi()
        phases = circle(multiples(*fixed_point([turn]), indices))
        falls = self._fall(frequencies)
        drift = math.tau * (float(turn.rad()) + 1) * 2.0**-TURN_BITS * float(indices[-1])
        half = nearest(ball(self.factor.variance / 2))
        squares = frequencies * frequencies * half
        error = EXP_NEG_ERROR + CIRCLE + 4 * UNIT + drift + 4 * UNIT * np.minimum(squares, 745.0)
        return Discs(phases * falls, (falls * error + TINY) * SLACK)

    def _fall(self, frequencies: Floats) -> Floats:
        half = nearest(ball(self.factor.variance / 2))
        return exp_neg(np.minimum(frequencies * frequencies * half, 800.0))
