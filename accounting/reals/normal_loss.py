r"""The loss of unsampled Gaussian noise: Normal(m/2, m), and so is a sum of such losses.

m = D^2/sigma^2 for a shift of l2 length D, in any number of coordinates; over many releases the m
add. delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), mu = sqrt(m)
(Balle and Wang 2018, Theorem 8). Proofs: docs/proofs/real_noise.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from flint import arb

from accounting.fourier.smooth_factor import SmoothPart
from accounting.pairs.enclose import narrowed, within
from accounting.pairs.losses import Losses
from accounting.reals.mixture import Direction, not_listed
from accounting.reals.sampled_gaussian import SampledGaussian
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import Enclosure, ball, precision

__all__ = ["NormalLoss"]

_SPARE: Final = 32
_HALVINGS: Final = 24
_NEWTON: Final = 12
_WIDENINGS: Final = 40


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
        found = narrowed(lambda: self._curve(ball(epsilon))[0], bits)
        return within(found, Fraction(0), Fraction(1))

    def epsilon(self, delta: Fraction, bits: int) -> Enclosure:
        r"""The inverse at 0 < ``delta`` < 1: Newton proposes two points, the curve decides."""
        for working in (2 * bits + 64, 8 * bits + 256):
            with precision(working):
                goal = ball(delta)
                if self._curve(arb(0))[0] <= goal:
                    return Enclosure.exactly(0)
                near, step = self._near(goal), arb(2) ** (-bits - 2)
                for _ in range(_WIDENINGS):
                    low, high = (near * (1 - step)).lower(), (near * (1 + step)).upper()
                    above, below = self._curve(low)[0] >= goal, self._curve(high)[0] <= goal
                    if above and below:
                        return Enclosure.of(low.union(high))
                    step *= 4
        raise PrecisionExhausted(f"no epsilon at delta = {delta} was certified")

    def renyi(self, order: Fraction) -> Fraction:
        r"""order m/2."""
        return order * self.variance / 2

    def _curve(self, epsilon: arb) -> tuple[arb, arb]:
        # delta and its derivative, which is -e^epsilon Phi(-mu/2 - epsilon/mu).
        mu = ball(self.variance).sqrt()
        fall = epsilon.exp() * _phi(-mu / 2 - epsilon / mu)
        return _phi(mu / 2 - epsilon / mu) - fall, -fall

    def _near(self, goal: arb) -> arb:
        # delta(m/2 + mu t) <= e^(-t^2/2): the root lies below that; halving, then Newton on log.
        mu = ball(self.variance).sqrt()
        low, high = arb(0), (ball(self.variance) / 2 + mu * (-2 * goal.log()).sqrt()).mid()
        for _ in range(_HALVINGS):
            middle = ((low + high) / 2).mid()
            if self._curve(middle)[0] > goal:
                low = middle
            else:
                high = middle
        at = ((low + high) / 2).mid()
        for _ in range(_NEWTON):
            value, slope = self._curve(at)
            if not value > 0:
                break
            after = (at - (value.log() - goal.log()) * value / slope).mid()
            if not (after.is_finite() and after > 0):
                break
            at = after
        return at


def _phi(x: arb) -> arb:
    return (-x / arb(2).sqrt()).erfc() / 2
