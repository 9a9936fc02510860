r"""One round of wide discrete Gaussian noise on a random sample: nearly noise on the reals.

Its moment is a trapezoid sum of the real one's integrand, at the spacing 1/D of the integers over
the shift. Up to an output X the two differ by what is left along a line beside the real one, where
outputs are so dense that the loss turns by less than pi from one to the next; beyond X they differ
by what lies there at most. So the nodes of the real law serve, however many integers there are.
Proofs: docs/proofs/wide.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Final

import numpy as np
from flint import arb, ctx

from accounting.fourier.discs import Floats, upward
from accounting.fourier.smooth_factor import Nodes
from accounting.reals.mixture import MOST_ANGLE, Direction
from accounting.reals.sampled_gaussian import CELLS, SampledGaussian
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import ball, nearest, precision
from dpcore.numbers.floating import exp_neg

__all__ = ["GridGaussian", "is_smooth"]

_FINEST: Final = 200
_FEWEST: Final = 50
_WIDEST: Final = 10**16
_READ: Final = 2.0**-40
_MOST_FALL: Final = 690.0
_LADDER: Final = 2.0 ** np.arange(0, 34, 0.125)
_HALVINGS: Final = 24
_FAR_OUT: Final = 20.0
_DEVIATIONS: Final = 5.0
_LITTLE: Final = 500.0
_BITS: Final = 64


def is_smooth(sigma_squared: Fraction, shift: int) -> bool:
    r"""Whether noise on the integers is so wide that its sum is as good as an integral.

    Noise that is wider still is beyond the floats that choose the nodes.

    >>> is_smooth(Fraction(10**6), 1000), is_smooth(Fraction(4), 1)
    (True, False)
    """
    return max(_FINEST * shift, _FEWEST**2) <= sigma_squared <= _WIDEST * shift**2


@dataclass(frozen=True, slots=True, kw_only=True)
class GridGaussian(SampledGaussian):
    r"""The loss of one round, v = ``variance`` = sigma^2/D^2, D = ``shift``, in one direction.

    >>> from accounting.reals.mixture import Direction
    >>> direction = Direction(rate=Fraction(1, 100), present=True)
    >>> law = GridGaussian.of(Fraction(10**6), 1000, direction)
    >>> [bool(far < 1e-120) for far in law.ripple(Fraction(1), np.array([100.0, 10000.0]))]
    [True, False]
    """

    shift: int

    @classmethod
    def of(cls, sigma_squared: Fraction, shift: int, direction: Direction) -> GridGaussian:
        r"""Of discrete Gaussian noise under a shift by ``shift`` integers."""
        return cls(variance=sigma_squared / shift**2, shift=shift, direction=direction)

    def nodes(self, tilt: Fraction, reach: float, nats: float, most: int) -> Nodes:
        r"""Those of the real law, with what the sum over the integers differs by."""
        apart = self._apart(tilt, reach, nats)
        if not apart < (-arb(nats)).exp():
            raise PrecisionExhausted(f"the grid shows at frequencies up to {reach:g}")
        found = SampledGaussian.nodes(self, tilt, reach, nats, most)
        whole = sum(found.weights, arb(0)) + found.rest
        scale = arb(self.cumulants(float(tilt))[0]).exp()
        return replace(found, rest=(found.rest + apart * scale + self.excess() * whole).upper())

    def fading(self, tilt: Fraction, nats: float, most: int) -> None:
        r"""None: the integers show at high frequencies."""
        del tilt, nats, most

    def ripple(self, tilt: Fraction, frequencies: Floats) -> Floats:
        r"""What the integers may add: it rises with the frequency."""
        rungs = np.searchsorted(_LADDER, frequencies, side="left")
        return np.append(_on_the_ladder(self, tilt, ctx.prec), np.inf)[rungs]

    def excess(self) -> arb:
        r"""Over the integers e^(-k^2/2 sigma^2) sums to sqrt(2 pi sigma^2) (1 + this) or less."""
        share = (-2 * arb.pi() ** 2 * ball(self.variance) * arb(self.shift) ** 2).exp()
        return 2 * share / (1 - share)

    def _apart(self, tilt: Fraction, reach: float, nats: float) -> arb:
        # Over e^K, for |y| <= reach: beside the whole real line, and cut where that is too much.
        power, angle = self.direction.power(ball(tilt)), arb(MOST_ANGLE)
        fall = 2 * arb.pi() * angle * ball(self.variance) * arb(self.shift)
        beside = self.beside(power, MOST_ANGLE, reach, nats)
        apart = 2 * beside / fall.expm1() / arb(self.cumulants(float(tilt))[0]).exp()
        if apart < (-arb(nats)).exp():
            return apart
        return arb(float(_cuts(self, tilt, ctx.prec).apart(np.array([reach]))[0]))

    def fades(self, rounds: int, relative: float) -> bool:
        r"""About whether the total of so many rounds hides the integers: speed rests on it only.

        Five deviations out, smoothed as for this ``relative`` width, what they may add to the
        integral of the total is compared with that integral.
        """
        low, high = -_FAR_OUT, _FAR_OUT
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            bend = rounds * self.cumulants(2.0**middle)[2]
            low, high = (middle, high) if 4.0**middle * bend < _DEVIATIONS**2 else (low, middle)
        c, y = float(np.float32(2.0**high)), _LADDER
        with precision(_BITS):
            shown = np.minimum(self.ripple(Fraction(c), y), 1.0)
        tau = math.sqrt(relative) / c
        kernel = (1 / y**2 + tau**2) * exp_neg(np.minimum((tau * y) ** 2 / 2, _MOST_FALL))
        added = float(shown**rounds @ (kernel * np.gradient(y)))
        whole = math.sqrt(math.tau / (rounds * self.cumulants(c)[2])) / (c * (c + 1))
        return added < _LITTLE * relative * whole


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cuts:
    # |M_Z - M| e^-K at |y| and below, cut at any of some outputs X: what is left beside the real
    # line up to there (logs of sizes, cell by cell, which grow like e^(y turn)), at X itself
    # (sizes over room - y pull), and beyond it.
    sizes: Floats
    turns: Floats
    edges: Floats
    pulls: Floats
    room: float
    beyond: Floats
    always: float

    def apart(self, frequencies: Floats) -> Floats:
        # The best of all X. None for the cut after the last cell: there all is beside the line.
        lifted = np.outer(frequencies, self.turns)
        logs = self.sizes + lifted + (np.abs(self.sizes) + lifted) * _READ
        cells = np.where(logs < 0, exp_neg(np.clip(-logs, 0.0, _MOST_FALL)), np.inf)
        beside = np.cumsum(cells, axis=1) * (1 + _READ)
        room = self.room * (1 - _READ) - np.outer(frequencies, self.pulls) * (1 + _READ)
        edge = np.where(room > 0, self.edges / np.where(room > 0, room, 1.0), np.inf)
        cut = beside[:, :-1] + edge + self.beyond
        found: Floats = np.minimum(cut.min(axis=1), beside[:, -1])
        return found * (1 + _READ)


@lru_cache(maxsize=1 << 8)
def _on_the_ladder(law: GridGaussian, tilt: Fraction, bits: int) -> Floats:
    cuts = _cuts(law, tilt, bits)
    return (cuts.apart(_LADDER) + cuts.always) * (1 + _READ)


@lru_cache(maxsize=1 << 8)
def _cuts(law: GridGaussian, tilt: Fraction, bits: int) -> _Cuts:
    del bits
    v, shift, angle = ball(law.variance), arb(law.shift), arb(MOST_ANGLE)
    power, scale = law.direction.power(ball(tilt)), arb(law.cumulants(float(tilt))[0]).exp()
    # Cells from half-integers to half-integers.
    low, width = law.places(power)
    first = ((low * shift).floor() + arb(0.5)) / shift
    step = (width * shift).ceil() / shift
    # Along both lines, over e^(2 pi a D) - 1, a = angle v.
    fall = 2 * arb.pi() * shift * v
    level = (2 * law.height(angle) / scale / (fall * angle).expm1()).log()
    beside = law.cells(power, angle, first, step)
    inside = [size.exp() for size, _, _ in law.cells(power, arb(0), first, step)]
    edges, pulls, height = [], [], law.height(arb(0)) / scale
    for j in range(CELLS + 1):
        at = first + j * step
        growth = ((2 * at - 1) / (2 * v)).exp()
        here, there = (law.direction.beside(growth, each) for each in (arb(0), angle))
        # |B|^r is largest on the line for r > 0, beside it for r < 0.
        log = power * (here[0] if power > 0 else there[0])
        edges.append(upward(2 * height * v * (log - at * at / (2 * v)).exp()))
        pulls.append(upward(here[2].max(there[2])))
    beyond = list(accumulate(reversed(inside), initial=arb(0)))
    return _Cuts(
        sizes=np.array([nearest((size + level).upper()) for size, _, _ in beside]),
        turns=np.array([upward(turn) for _, _, turn in beside]),
        edges=np.array(edges),
        pulls=np.array(pulls),
        room=nearest((fall - angle * v / 2).lower()),
        beyond=np.array([upward(2 * height * each) for each in beyond[-2:0:-1]]),
        always=upward(law.excess() * height * beyond[-1]),
    )
