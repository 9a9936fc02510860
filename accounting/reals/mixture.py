r"""The loss of a release from a random sample, as a function of the loss u without sampling.

The unit is in the sample with chance gamma. With B(u) = 1 - gamma + gamma e^u, u = log P/Q and
outputs drawn by Q, the dataset with the unit against the other one has the loss log B(u), and

    M(z) = E_Q[B(u)^(z+1)];    the other direction has -log B(u), and M(z) = E_Q[B(u)^(-z)].

So at Re z = c both are moments E_Q[B^r ...], r = c + 1 or -c, of which |B^(iy)| = e^(-y arg B) is
known beside the real line. Proofs: docs/proofs/real_noise.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, TypeVar

import numpy as np
from flint import acb, arb, ctx

from accounting.errors import NotDerived
from accounting.fourier.discs import Floats
from accounting.fourier.smooth_factor import FadingNodes, Nodes, SmoothPart
from accounting.pairs.losses import Losses
from dpcore.numbers.enclosure import Enclosure, ball, narrow

__all__ = ["MOST_ANGLE", "Ball", "Direction", "SampledLaw", "SmoothLoss", "moments", "not_listed"]

Ball = TypeVar("Ball", arb, acb)

MOST_ANGLE: Final = 1.5
"""Angles of e^u stay below pi/2: the argument of B then rises with Re u."""

_BITS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    r"""B(u), for the dataset with the unit (``present``) or without it against the other one."""

    rate: Fraction
    present: bool

    @property
    def degree(self) -> int:
        r"""B grows like this power of e^u, and its argument stays below this many angles of it."""
        return 1

    @property
    def least(self) -> Fraction:
        r"""B where u falls without end."""
        return 1 - self.rate

    def share(self, u: float) -> float:
        r"""s(u), in floats."""
        rate = float(self.rate)
        return 1 / (1 + (1 - rate) / rate * math.exp(min(max(-u, -600.0), 600.0)))

    def power(self, tilt: arb) -> arb:
        r"""r = c + 1 or -c."""
        return tilt + 1 if self.present else -tilt

    def mixed(self, growth: Ball) -> Ball:
        r"""B, from e^u, real or not."""
        share, other = _shares(self.rate.numerator, self.rate.denominator, ctx.prec)
        return other + share * growth

    def signed(self, log: Ball) -> Ball:
        r"""The loss, from log B."""
        return log if self.present else -log

    def beside(self, growth: arb, angle: arb) -> tuple[arb, arb, arb]:
        r"""log |B|, arg B and Re s at u + i ``angle``, from e^u, for 0 <= angle < pi/2.

        s = gamma e^u/B is the slope of log B. All three rise in u: arg B from 0 to the angle, Re s
        from 0 to 1.
        """
        share, other = _shares(self.rate.numerator, self.rate.denominator, ctx.prec)
        far = share * growth
        real, imaginary = far * angle.cos(), far * angle.sin()
        square = (other + real) ** 2 + imaginary**2
        slope = (far * far + other * real) / square
        return square.log() / 2, (imaginary / (other + real)).atan(), slope

    # -- the same in floats, on which only speed rests ---------------------------------------------

    def logs(self, u: Floats) -> Floats:
        r"""log B(u)."""
        rate = float(self.rate)
        other = math.log1p(-rate) if rate < 1 else -math.inf
        found: Floats = np.logaddexp(other, math.log(rate) + u)
        return found

    def logs_beside(self, u: Floats, angle: float) -> tuple[Floats, Floats]:
        r"""log |B| and arg B at u + i angle."""
        rate = float(self.rate)
        far = rate * np.exp(np.minimum(u, 300.0))
        real, imaginary = (1 - rate) + far * math.cos(angle), far * math.sin(angle)
        return np.log(np.hypot(real, imaginary)), np.arctan2(imaginary, real)


class SmoothLoss(ABC):
    r"""The loss of one round with noise on the reals: what the line asks of it."""

    __slots__ = ()

    @property
    @abstractmethod
    def largest(self) -> arb:
        r"""The largest loss."""

    @abstractmethod
    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        r"""About K, K' and K''."""

    @abstractmethod
    def nodes(self, tilt: Fraction, reach: float, nats: float, most: int) -> Nodes:
        r"""The moment as a sum."""

    def fading(self, tilt: Fraction, nats: float, most: int) -> FadingNodes | None:
        r"""The moment as a sum along a line beside the real one; None where that is not known."""
        del tilt, nats, most
        return None

    @abstractmethod
    def far(self, tilt: Fraction, frequencies: Floats) -> Floats:
        r"""Bounds of the moment far up the line."""

    def ripple(self, tilt: Fraction, frequencies: Floats) -> Floats:
        r"""Nothing: the bounds far up the line hold at every frequency."""
        del tilt
        return np.zeros_like(frequencies, dtype=np.float64)

    def part(self) -> SmoothPart:
        r"""The law, for the line."""
        return SmoothPart(law=self)

    def losses(self, tilt: Fraction, bits: int) -> Losses:
        r"""None: there is a density. Raises :class:`NotDerived`."""
        return not_listed(self, tilt, bits)

    def largest_loss(self) -> Enclosure:
        r"""The same, enclosed."""
        if not self.largest.is_finite():
            return Enclosure.infinite()
        return narrow(lambda: self.largest, _BITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledLaw(SmoothLoss):
    r"""The loss of one round on a Poisson sample, in one direction."""

    direction: Direction

    @property
    @abstractmethod
    def highest(self) -> Fraction | None:
        r"""The largest u, None where there is none; the smallest one is its negative."""

    @property
    def largest(self) -> arb:
        r"""log B at the largest u, or -log B at the smallest one."""
        direction, high = self.direction, self.highest
        if high is None and (direction.present or not direction.least):
            return arb("inf")
        if high is None:
            return -ball(direction.least).log()
        end = ball(high if direction.present else -high)
        return direction.signed(direction.mixed(end.exp()).log())


@lru_cache(maxsize=64)
def _shares(above: int, below: int, bits: int) -> tuple[arb, arb]:
    # gamma and 1 - gamma, which every node asks for: two integers are found faster than a fraction.
    del bits
    return ball(Fraction(above, below)), ball(Fraction(below - above, below))


def not_listed(law: object, tilt: Fraction, bits: int) -> Losses:
    r"""Raises :class:`NotDerived`: outcomes of a density are not listed."""
    del tilt, bits
    raise NotDerived(f"a listing of the losses of {law!r}", "it has a density: use its moments")


def moments(exponents: Floats, losses: Floats) -> tuple[float, float, float]:
    r"""log sum e^a, and mean and variance of the losses under those weights; in floats."""
    top = float(exponents.max())
    weights = np.exp(exponents - top)
    total = float(weights.sum())
    mean = float(weights @ losses) / total
    spread = float(weights @ (losses - mean) ** 2) / total
    return top + math.log(total), mean, spread
