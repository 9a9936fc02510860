r"""Closed form of delta(epsilon) for real-valued Gaussian noise without subsampling.

Gaussian noise of variance sigma^2 under a shift of l2 length D has the loss Normal(m/2, m) with
m = D^2/sigma^2, in any number of coordinates. The m of several releases add up. With mu = sqrt(m)
and the normal distribution function Phi (Balle and Wang 2018, Theorem 8),

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu).

Proofs: docs/proofs/cells.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from flint import arb

from accounting.pairs.enclose_curve import inverse, narrowed, within
from accounting.pld.noise_density import upper_tail
from dpcore.numbers.enclosure import Enclosure, ball


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalLoss:
    r"""The privacy loss Normal(m/2, m) of Gaussian noise without subsampling; m = ``variance`` > 0.

    >>> NormalLoss(variance=Fraction(1)).delta(Fraction(1), 64)
    Enclosure([0.12693673750664394, 0.12693673750664395])
    """

    variance: Fraction

    def largest_loss(self) -> Enclosure:
        r"""Infinity: the loss is unbounded."""
        return Enclosure.infinite()

    def delta(self, epsilon: Fraction, bits: int) -> Enclosure:
        r"""The delta at ``epsilon`` >= 0, to a relative width of 2^-bits."""
        found = narrowed(lambda: self.curve(ball(epsilon)), bits)
        return within(found, Fraction(0), Fraction(1))

    def epsilon(self, delta: Fraction, bits: int) -> Enclosure:
        r"""The epsilon at 0 < ``delta`` < 1, to a relative width of 2^-bits."""
        return inverse(self.curve, delta, bits)

    def renyi(self, order: Fraction) -> Fraction:
        r"""The Renyi divergence of this ``order``, which is ``order * variance / 2``."""
        return order * self.variance / 2

    def curve(self, epsilon: arb) -> arb:
        r"""The delta at ``epsilon`` >= 0, in ball arithmetic."""
        mu = ball(self.variance).sqrt()
        fall = epsilon.exp() * upper_tail(mu / 2 + epsilon / mu)
        return upper_tail(epsilon / mu - mu / 2) - fall
