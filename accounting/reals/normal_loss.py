r"""The loss of unsampled Gaussian noise: Normal(m/2, m), and so is a sum of such losses.

m = D^2/sigma^2 for a shift of l2 length D, in any number of coordinates; over many releases the m
add. delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), mu = sqrt(m)
(Balle and Wang 2018, Theorem 8). Proofs: docs/proofs/real_noise.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from flint import arb

from accounting.fourier.smooth_factor import SmoothPart
from accounting.loss.normal_tail import upper_tail
from accounting.pairs.enclose import narrowed, within
from accounting.pairs.losses import Losses
from accounting.reals.inverse import inverse
from accounting.reals.mixture import Direction, not_listed
from accounting.reals.sampled_gaussian import SampledGaussian
from dpcore.numbers.enclosure import Enclosure, ball

__all__ = ["NormalLoss"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalLoss:
    r"""A loss of law Normal(m/2, m), m = ``variance`` > 0.

    >>> NormalLoss(variance=Fraction(1)).delta(Fraction(1), 64)
    Enclosure([0.12693673750664394, 0.12693673750664395])
    """

    variance: Fraction

    def part(self) -> SmoothPart:
        r"""For the line, among other laws: a sample that holds everybody."""
        direction = Direction(rate=Fraction(1), present=True)
        return SmoothPart(law=SampledGaussian(variance=1 / self.variance, direction=direction))

    def losses(self, tilt: Fraction, bits: int) -> Losses:
        r"""None: there is a density. Raises :class:`NotDerived`."""
        return not_listed(self, tilt, bits)

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
