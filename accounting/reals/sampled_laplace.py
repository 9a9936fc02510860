r"""One round of Laplace noise on a random sample, or on everybody: two atoms and a density.

With l = D/scale the loss u without sampling is -l with mass 1/2 under Q, l with mass e^-l/2, and
has the density e^(-(u+l)/2)/4 between. The integral of B(u)^w over it is a Gauss-Legendre sum in
panels, on each of which the integrand is analytic in an ellipse. Proofs: docs/proofs/real_noise.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from flint import arb, ctx

from accounting.fourier.discs import Floats, upward
from accounting.fourier.smooth_factor import Nodes
from accounting.reals.mixture import MOST_ANGLE, SampledLaw, moments
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import ball

__all__ = ["MOST_SPREAD", "SampledLaplace", "falling"]

MOST_SPREAD: Final = 1 << 11
"""The largest loss of one round that is summed by panels."""

_PANEL: Final = 1.0
_MOST_POINTS: Final = 64
_POINTS: Final = 24
_ELLIPSES: Final = (1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 14.0, 22.0)
_SPARE: Final = 12.0
_SLACK: Final = 1 + 2.0**-40


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledLaplace(SampledLaw):
    r"""The loss of one round, l = ``spread`` = D/scale, in one direction.

    >>> from accounting.reals.mixture import Direction
    >>> direction = Direction(rate=Fraction(1), present=True)
    >>> law = SampledLaplace(spread=Fraction(1), direction=direction)
    >>> round(law.cumulants(1.0)[0], 6)  # M(1) = (2 e + e^-2)/3
    0.619124
    """

    spread: Fraction

    def __post_init__(self) -> None:
        if self.spread > MOST_SPREAD:
            raise PrecisionExhausted(f"a loss of {float(self.spread):g} is not summed by panels")

    @property
    def highest(self) -> Fraction:
        r"""l."""
        return self.spread

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        r"""By Gauss-Legendre panels, in floats."""
        r = tilt + 1 if self.direction.present else -tilt
        u, exponents = self.in_floats()
        logs = self.direction.logs(u)
        return moments(exponents + r * logs, logs if self.direction.present else -logs)

    def nodes(self, tilt: Fraction, reach: float, nats: float, most: int) -> Nodes:
        r"""The atoms, and the nodes of panels that are as short as ``reach`` wants them."""
        c, spread = ball(tilt), ball(self.spread)
        r, log_scale = self.direction.power(c), self.cumulants(float(tilt))[0]
        weights, losses = [], []
        for u, mass in ((-spread, arb(0.5)), (spread, (-spread).exp() / 2)):
            log = self.direction.mixed(u.exp()).log()
            weights.append(mass * (r * log).exp())
            losses.append(self.direction.signed(log))
        rest, panels = arb(0), math.ceil(float(self.spread) * 2 / _PANEL)
        goal = log_scale - nats - math.log(panels)
        pending = [*self._panels(panels)]
        while pending:
            low, high = pending.pop()
            if (whole := self._most(low, high, r)).log() < goal - _SPARE:
                rest += whole
                continue
            chosen = self._ellipse(low, high, r, reach, goal)
            if chosen is None:
                middle = (low + high) / 2
                pending += [(low, middle), (middle, high)]
                continue
            count, error = chosen
            rest += error
            half, centre = ball(high - low) / 2, ball(high + low) / 2
            for root, weight in _legendre(count, ctx.prec):
                u = centre + half * root
                log = self.direction.mixed(u.exp()).log()
                weights.append(half * weight * (r * log - (u + spread) / 2).exp() / 4)
                losses.append(self.direction.signed(log))
            if len(weights) > most:
                raise PrecisionExhausted(f"a sum of over {most} nodes")
        return Nodes(weights=tuple(weights), losses=tuple(losses), rest=rest.upper())

    def far(self, tilt: Fraction, frequencies: Floats) -> Floats:
        r"""The atoms, and b/y for the density: its density in the loss has one valley at most."""
        scale = arb(self.cumulants(float(tilt))[0]).exp()
        low, high = self.ends(ball(tilt))
        return falling((low[0] + high[0]) / scale, (low[1] + high[1]) / scale, frequencies)

    def ends(self, tilt: arb) -> tuple[tuple[arb, arb], tuple[arb, arb]]:
        r"""For u = -l and u = l: what the atom adds to M(c), and a bound 2f of the density's end.

        Far up the line the density adds at most the sum of both bounds over y.
        """
        spread, r, rate = ball(self.spread), self.direction.power(tilt), ball(self.direction.rate)
        found = []
        for u, mass in ((-spread, arb(0.5)), (spread, (-spread).exp() / 2)):
            log = self.direction.mixed(u.exp()).log()
            slope = ((r + 1) * log - (3 * u + spread) / 2).exp() / 2
            found.append((mass * (r * log).exp(), slope / rate))
        return found[0], found[1]

    def in_floats(self) -> tuple[Floats, Floats]:
        r"""u and the logarithms of masses: the atoms at -l and l, and the density by panels."""
        return _in_floats(float(self.spread))

    def _panels(self, count: int) -> Iterator[tuple[Fraction, Fraction]]:
        step = 2 * self.spread / count
        for j in range(count):
            yield -self.spread + j * step, -self.spread + (j + 1) * step

    def _most(self, low: Fraction, high: Fraction, r: arb) -> arb:
        # At least the integral over a panel: B rises.
        at = ball(high if r > 0 else low)
        log = self.direction.mixed(at.exp()).log()
        fall = (ball(low) + ball(self.spread)) / 2
        return (ball(high - low) * (r * log - fall).exp() / 4).upper()

    def _ellipse(
        self, low: Fraction, high: Fraction, r: arb, reach: float, goal: float
    ) -> tuple[int, arb] | None:
        # How many points are enough on a panel, and what they are off by:
        # (64/15) M rho^(-2(n-1))/(1 - rho^-2), M the most on the ellipse of that rho.
        half, centre = ball(high - low) / 2, ball(high + low) / 2
        best: tuple[int, arb, arb] | None = None
        for rho in _ELLIPSES:
            wide, tall = half * (arb(rho) + 1 / arb(rho)) / 2, half * (arb(rho) - 1 / arb(rho)) / 2
            if not tall < MOST_ANGLE:
                break
            right, left = (centre + wide).exp(), (centre - wide).exp()
            _, turn, _ = self.direction.beside(right, tall)
            # |B| is most on the real line, and least at the largest angle.
            least, _, _ = self.direction.beside(left, tall)
            log = self.direction.mixed(right).log() if r > 0 else least
            fall = (centre - wide + ball(self.spread)) / 2
            top = r * log - fall + arb(reach) * turn - arb(4).log() + half.log()
            need = (float(top) - goal + 2) / (2 * math.log(rho))
            count = max(math.ceil(need) + 1, 2)
            if best is None or count < best[0]:
                best = count, top, arb(rho)
        if best is None or best[0] > _MOST_POINTS:
            return None
        count, top, ellipse = best
        error = arb(64) / 15 * top.exp() * ellipse ** (-2 * (count - 1)) / (1 - ellipse**-2)
        return count, error.upper()


def falling(atoms: arb, slope: arb, frequencies: Floats) -> Floats:
    r"""a + b/y for each frequency y, from above."""
    found: Floats = (upward(atoms) + upward(slope) / frequencies) * _SLACK
    return found


@lru_cache(maxsize=1 << 8)
def _legendre(count: int, bits: int) -> tuple[tuple[arb, arb], ...]:
    del bits
    return tuple(arb.legendre_p_root(count, k, weight=True) for k in range(count))


@lru_cache(maxsize=1 << 6)
def _in_floats(spread: float) -> tuple[Floats, Floats]:
    panels = math.ceil(2 * spread / _PANEL)
    roots, weights = np.polynomial.legendre.leggauss(_POINTS)
    half = spread / panels
    centres = -spread + half * (2 * np.arange(panels) + 1)
    u = (centres[:, None] + half * roots).reshape(-1)
    density = np.log(np.tile(half * weights / 4, panels)) - (u + spread) / 2
    ends = np.array([-spread, spread])
    masses = np.array([math.log(0.5), math.log(0.5) - spread])
    return np.concatenate((ends, u)), np.concatenate((masses, density))
