r"""One round of wide discrete Gaussian noise on a random sample: nearly noise on the reals.

Its moment is a trapezoid sum of the real one's integrand, at the spacing 1/D of the integers over
the shift. So the two differ by what Poisson summation leaves, which is bounded here: the nodes of
the real law serve, however many integers there are. Proofs: docs/proofs/real_noise.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from flint import arb, ctx

from accounting.fourier.discs import Floats, upward
from accounting.fourier.smooth_factor import Nodes
from accounting.reals.mixture import MOST_ANGLE, Direction
from accounting.reals.sampled_gaussian import SampledGaussian
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import ball
from dpcore.numbers.floating import exp_neg

__all__ = ["GridGaussian", "is_smooth"]

_FINEST: Final = 200
_FEWEST: Final = 50
_NATS: Final = 60.0
_MOST_NODES: Final = 1 << 13
_READ: Final = 2.0**-40
_MOST_FALL: Final = 690.0


def is_smooth(sigma_squared: Fraction, shift: int) -> bool:
    r"""Whether noise on the integers is so wide that its sum is as good as an integral.

    >>> is_smooth(Fraction(10**6), 1000), is_smooth(Fraction(4), 1)
    (True, False)
    """
    return sigma_squared >= max(_FINEST * shift, _FEWEST**2)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridGaussian(SampledGaussian):
    r"""The loss of one round, v = ``variance`` = sigma^2/D^2, D = ``shift``, in one direction.

    >>> from accounting.reals.mixture import Direction
    >>> direction = Direction(rate=Fraction(1, 100), present=True)
    >>> law = GridGaussian.of(Fraction(10**6), 1000, direction)
    >>> float(law.ripple(Fraction(1), np.array([100.0]))[0]) < 1e-120
    True
    """

    shift: int

    @classmethod
    def of(cls, sigma_squared: Fraction, shift: int, direction: Direction) -> GridGaussian:
        r"""Of discrete Gaussian noise under a shift by ``shift`` integers."""
        return cls(variance=sigma_squared / shift**2, shift=shift, direction=direction)

    def nodes(self, tilt: Fraction, reach: float, nats: float, most: int) -> Nodes:
        r"""Those of the real law, with what the sum over the integers differs by."""
        log_scale = arb(self.cumulants(float(tilt))[0])
        short = _log_ripple(self, tilt, ctx.prec) + arb(MOST_ANGLE) * arb(reach)
        if not short < -_NATS:
            raise PrecisionExhausted(f"the grid shows at frequencies up to {reach:g}")
        found = SampledGaussian.nodes(self, tilt, reach, nats, most)
        whole = sum(found.weights, arb(0)) + found.rest
        rest = found.rest + (short + log_scale).exp() + _excess(self) * whole
        return replace(found, rest=rest.upper())

    def ripple(self, tilt: Fraction, frequencies: Floats) -> Floats:
        r"""It rises with the frequency, up to where the echo of the integers is."""
        level = _log_ripple(self, tilt, ctx.prec)
        fall = -float(level.upper()) * (1 - _READ) - MOST_ANGLE * (1 + _READ) * frequencies
        found = exp_neg(np.clip(fall, 0.0, _MOST_FALL)) * (1 + _READ)
        shown: Floats = np.where(fall > 0, found + _always(self, tilt, ctx.prec), np.inf)
        return shown


def _excess(law: GridGaussian) -> arb:
    # sum over the integers of e^(-k^2/2 sigma^2) is sqrt(2 pi sigma^2) (1 + this), at most.
    fall = 2 * arb.pi() ** 2 * ball(law.variance) * arb(law.shift) ** 2
    share = (-fall).exp()
    return 2 * share / (1 - share)


@lru_cache(maxsize=1 << 8)
def _always(law: GridGaussian, tilt: Fraction, bits: int) -> float:
    # What the norm of the law adds to any moment, over e^K: none is larger than that at y = 0.
    del bits
    found = SampledGaussian.nodes(law, tilt, 0.0, _NATS, _MOST_NODES)
    whole = sum(found.weights, arb(0)) + found.rest
    return upward(_excess(law) * whole / arb(law.cumulants(float(tilt))[0]).exp())


@lru_cache(maxsize=1 << 8)
def _log_ripple(law: GridGaussian, tilt: Fraction, bits: int) -> arb:
    # log of 2 N e^-K/(e^(2 pi a D) - 1), N beside the real line at the height a = angle v, y = 0.
    del bits
    angle, power = arb(MOST_ANGLE), law.direction.power(ball(tilt))
    beside = law.beside(power, MOST_ANGLE, 0.0, _NATS)
    fall = 2 * arb.pi() * angle * ball(law.variance) * arb(law.shift)
    log_scale = arb(law.cumulants(float(tilt))[0])
    # 1/(e^f - 1) = e^-f/(1 - e^-f); a float of 2^-30 above the rest of it.
    rest = -((-fall).exp()) + 1
    return (2 * beside / rest).log() - fall - log_scale
