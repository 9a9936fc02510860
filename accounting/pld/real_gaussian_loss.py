r"""The loss of unsampled Gaussian noise, Normal(m/2, m); sums of these losses are again normal.

m = D^2/sigma^2 for a shift of l2 length D, in any number of coordinates; over releases the m add.
delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), mu = sqrt(m) (Balle and
Wang 2018, Theorem 8). Proofs: docs/proofs/cells.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from flint import arb

from accounting.pairs.enclose_curve import inverse, narrowed, within
from dpcore.numbers.enclosure import Enclosure, ball

_FAR: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalLoss:
    r"""A loss with the law Normal(m/2, m), m = ``variance`` > 0.

    >>> NormalLoss(variance=Fraction(1)).delta(Fraction(1), 64)
    Enclosure([0.12693673750664394, 0.12693673750664395])
    """

    variance: Fraction

    def largest_loss(self) -> Enclosure:
        r"""The largest loss is infinite."""
        return Enclosure.infinite()

    def delta(self, epsilon: Fraction, bits: int) -> Enclosure:
        r"""The delta at ``epsilon`` >= 0, to a relative width of 2^-bits."""
        found = narrowed(lambda: self.curve(ball(epsilon)), bits)
        return within(found, Fraction(0), Fraction(1))

    def epsilon(self, delta: Fraction, bits: int) -> Enclosure:
        r"""The epsilon at 0 < ``delta`` < 1, to a relative width of 2^-bits."""
        return inverse(self.curve, delta, bits)

    def renyi(self, order: Fraction) -> Fraction:
        r"""The Renyi divergence: order m/2."""
        return order * self.variance / 2

    def curve(self, epsilon: arb) -> arb:
        r"""The delta at the ball ``epsilon`` >= 0, as a ball."""
        mu = ball(self.variance).sqrt()
        fall = epsilon.exp() * upper_tail(mu / 2 + epsilon / mu)
        return upper_tail(epsilon / mu - mu / 2) - fall


def upper_tail(x: arb) -> arb:
    r"""The tail 1 - Phi(x) = P(Z > x) of a standard normal Z.

    For large x it is e^(-x^2/2) U(1/2, 1/2, x^2/2)/(2 sqrt(pi)), which flint encloses tightly for
    any size of x (DLMF 7.11.5); its erfc of a ball does not.

    >>> upper_tail(arb(1)).str(8, radius=False)
    '0.15865525'
    """
    if not x > _FAR:
        return (x / arb(2).sqrt()).erfc() / 2
    square, half = x * x / 2, arb(1) / 2
    return (-square).exp() * square.hypgeom_u(half, half) / (2 * arb.pi().sqrt())
