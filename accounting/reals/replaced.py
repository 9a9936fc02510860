r"""One round of noise on a Poisson sample in which a unit may be replaced by another one.

The unit moves the sum by D one way if it is sampled, the other unit by D the other way. With noise
scaled by D, Q_0 = noise around 0, B(u) = 1 - gamma + gamma e^u and u the loss of a shift of 1,

    P = B(u(x)) Q_0,    Q = B(u(-x)) Q_0,    L = log B(u(x)) - log B(u(-x)),
    M(z) = E_{Q_0}[B(u(x))^(z+1) B(u(-x))^(-z)].

x -> -x swaps both: one symmetric pair. Proofs: docs/proofs/replaced_units.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from flint import arb

from accounting.fourier.discs import Floats
from accounting.fourier.smooth_factor import Nodes
from accounting.loss.normal_tail import upper_tail
from accounting.reals.mixture import Ball, Direction, SampledLaw, moments
from accounting.reals.sampled_gaussian import CELLS, SampledGaussian
from accounting.reals.sampled_laplace import SampledLaplace, falling
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import ball

__all__ = ["ReplacedGaussian", "ReplacedLaplace"]

_LEAST_NATS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedGaussian(SampledGaussian):
    r"""Gaussian noise, v = ``variance`` = sigma^2/D^2; ``direction`` is of the unit against nobody.

    >>> direction = Direction(rate=Fraction(1), present=True)
    >>> law = ReplacedGaussian(variance=Fraction(4), direction=direction)
    >>> round(law.cumulants(1.0)[0], 6)  # everybody: a shift of 2 under sigma 2, M(1) = e
    1.0
    """

    @property
    def largest(self) -> arb:
        r"""No end."""
        return arb("inf")

    def curve(self, epsilon: arb) -> arb:
        r"""delta at ``epsilon`` >= 0: the loss rises in x, and is epsilon where

        e^(2x/v) - b e^(x/v) - e^epsilon = 0, b = (1 - gamma)(e^epsilon - 1) e^(1/2v)/gamma.
        """
        v, rate = ball(self.variance), ball(self.direction.rate)
        b = (1 - rate) * epsilon.expm1() * (1 / (2 * v)).exp() / rate
        x = v * ((b + (b * b + 4 * epsilon.exp()).sqrt()) / 2).log()
        here, away, none = (upper_tail((x - at) / v.sqrt()) for at in (1, -1, 0))
        # P - e^epsilon Q, with what both share taken together.
        return rate * (here - epsilon.exp() * away) - (1 - rate) * epsilon.expm1() * none

    # -- floats, on which only speed rests ---------------------------------------------------------

    def _exponents(self, x: Floats, logs: Floats, r: float) -> Floats:
        found: Floats = SampledGaussian._exponents(self, x, logs, r) - (r - 1) * self._logs(-x)
        return found

    def _losses(self, x: Floats, logs: Floats) -> Floats:
        return logs - self._logs(-x)

    def _exponents_beside(self, x: Floats, r: float, angle: float, reach: float) -> Floats:
        v = float(self.variance)
        logs, turns = self.direction.logs_beside((2 * x - 1) / (2 * v), angle)
        others, back = self.direction.logs_beside((-2 * x - 1) / (2 * v), angle)
        found: Floats = r * logs - (r - 1) * others - x * x / (2 * v) + reach * (turns + back)
        return found - 0.5 * float(np.log(2 * np.pi * v))

    # -- balls -----------------------------------------------------------------------------------

    def _steepest(self, r: arb) -> arb:
        # B(u(x))^r rises with slope <= r/v, B(u(-x))^(1-r) with slope <= (r - 1)/v.
        return 2 * r - 1

    def _term(self, growth: Ball, r: arb) -> tuple[Ball, Ball]:
        log, other = self.direction.mixed(growth).log(), self._mirrored(growth).log()
        return r * log - (r - 1) * other, log - other

    def _mirrored(self, growth: Ball) -> Ball:
        return self.direction.mixed(self._back(growth))

    def _back(self, growth: Ball) -> Ball:
        # e^(u(-x)) from e^(u(x)): their product is e^(-1/v).
        return (-1 / ball(self.variance)).exp() / growth

    def cells(
        self, r: arb, angle: arb, first: arb, step: arb, count: int = CELLS
    ) -> list[tuple[arb, arb, arb]]:
        # As without replacement. Both powers rise in x; of the two angles, which add, that of u(x)
        # rises and that of u(-x) falls.
        v, zero = ball(self.variance), arb(0)
        half, width = -1 / (2 * v), step.log()
        growth, grown = ((2 * first - 1) / (2 * v)).exp(), (step / v).exp()
        at, (power, turn, back) = first, self._beside_at(growth, angle, r)
        rise = -at
        found = [(half * at * at + power + (v / rise).log(), back, turn + angle)]
        for _ in range(count):
            end, growth = at + step, growth * grown
            power, turn_end, back_end = self._beside_at(growth, angle, r)
            nearest = end if end < 0 else at if at > 0 else zero
            most = half * nearest * nearest + power + width
            found.append((most, turn + back_end, turn_end + back))
            at, turn, back = end, turn_end, back_end
        fall = at - self._steepest(r)
        if not (rise > 0 and fall > 0):
            raise PrecisionExhausted("the strip does not reach the tails")
        found.append((half * at * at + power + (v / fall).log(), turn, angle + back))
        return found

    def _beside_at(self, growth: arb, angle: arb, r: arb) -> tuple[arb, arb, arb]:
        log, turn, _ = self.direction.beside(growth, angle)
        other, back, _ = self.direction.beside(self._back(growth), angle)
        return r * log - (r - 1) * other, turn, back


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedLaplace(SampledLaw):
    r"""Laplace noise, l = ``spread`` = D/scale; ``direction`` is of the unit against nobody.

    Right of 0 the other unit's loss is -l, left of 0 that of the unit is: two sampled laws, without
    their atoms at u = -l, and with constant factors.

    >>> direction = Direction(rate=Fraction(1), present=True)
    >>> law = ReplacedLaplace(spread=Fraction(1, 2), direction=direction)
    >>> round(law.cumulants(1.0)[0], 6)  # everybody: a shift of 1, M(1) = (2 e + e^-2)/3
    0.619124
    """

    spread: Fraction

    @property
    def highest(self) -> Fraction:
        r"""l."""
        return self.spread

    @property
    def largest(self) -> arb:
        r"""log B(l) - log B(-l)."""
        return self._end(self.spread) - self._end(-self.spread)

    def curve(self, epsilon: arb) -> arb:
        r"""delta at ``epsilon`` >= 0: the loss rises in x, and is epsilon at some x in [0, 1]."""
        rate, spread = ball(self.direction.rate), ball(self.spread)
        if epsilon >= self.largest:
            return arb(0)
        ratio = (epsilon.exp() * self._end(-self.spread).exp() - (1 - rate)) / rate
        x = ((ratio.log() / spread + 1) / 2).min(arb(1)).max(arb(0))
        here, away = 1 - (-spread * (1 - x)).exp() / 2, (-spread * (1 + x)).exp() / 2
        none = (-spread * x).exp() / 2
        found = rate * (here - epsilon.exp() * away) - (1 - rate) * epsilon.expm1() * none
        return found.max(arb(0))

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        r"""From the two halves, in floats."""
        exponents, losses = [], []
        for half, power, moved in self._halves(arb(tilt)):
            u, masses = (each[1:] for each in half.in_floats())
            logs = half.direction.logs(u)
            up = half.direction.present
            r = tilt + 1 if up else -tilt
            exponents.append(masses + r * logs + float(power))
            losses.append((logs if up else -logs) + float(moved))
        return moments(np.concatenate(exponents), np.concatenate(losses))

    def nodes(self, tilt: Fraction, reach: float, nats: float, most: int) -> Nodes:
        r"""Those of the two halves."""
        weights, losses, rest = [], [], arb(0)
        log_scale = self.cumulants(float(tilt))[0]
        for half, power, moved in self._halves(ball(tilt)):
            # A half may be small beside the whole: its own error counts relative to the whole.
            spare = half.cumulants(float(tilt))[0] + float(power) - log_scale
            found = half.nodes(tilt, reach, max(nats + spare, _LEAST_NATS), most)
            scale = power.exp()
            weights += [weight * scale for weight in found.weights[1:]]
            losses += [loss + moved for loss in found.losses[1:]]
            rest += found.rest * scale
        return Nodes(weights=tuple(weights), losses=tuple(losses), rest=rest.upper())

    def far(self, tilt: Fraction, frequencies: Floats) -> Floats:
        r"""The atoms at both ends, and b/y for either density."""
        scale = arb(self.cumulants(float(tilt))[0]).exp()
        atoms, slope = arb(0), arb(0)
        for half, power, _ in self._halves(ball(tilt)):
            low, high = half.ends(ball(tilt))
            atoms += power.exp() * high[0]
            slope += power.exp() * (low[1] + high[1])
        return falling(atoms / scale, slope / scale, frequencies)

    def _end(self, u: Fraction) -> arb:
        # log B(u).
        return self.direction.mixed(ball(u).exp()).log()

    def _halves(self, tilt: arb) -> Iterator[tuple[SampledLaplace, arb, arb]]:
        # x > 0: B(u)^(z+1) B(-l)^-z; x < 0, u = u(-x): B(-l)^(z+1) B(u)^-z. Each with its constant
        # factor at Re z = c, and what that adds to the loss.
        low, rate = self._end(-self.spread), self.direction.rate
        for present, power, moved in ((True, -tilt * low, -low), (False, (tilt + 1) * low, low)):
            direction = Direction(rate=rate, present=present)
            yield SampledLaplace(spread=self.spread, direction=direction), power, moved
