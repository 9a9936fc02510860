r"""The loss of one round that is of one of several kinds, and shows of which: a mixture of losses.

M(z) = sum_i w_i M_i(z), with w_i the chance of each kind, the same for both datasets. Proofs:
docs/proofs/truncated.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Final

import numpy as np
from flint import acb, arb

from accounting.fourier.discs import Floats, upward
from accounting.fourier.smooth_factor import FadingNodes, Nodes
from accounting.reals.mixture import SmoothLoss
from dpcore.numbers.enclosure import ball

__all__ = ["LabelledLoss"]

_LEAST_NATS: Final = 1.0
_SLACK: Final = 1 + 2.0**-40


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledLoss(SmoothLoss):
    r"""``kinds``: (chance, loss) of each kind, chances > 0 that add to 1.

    >>> from accounting.reals.mixture import Direction
    >>> from accounting.reals.sampled_gaussian import SampledGaussian
    >>> here = Direction(rate=Fraction(1, 100), present=True)
    >>> one, two = (SampledGaussian(variance=Fraction(1, d), direction=here) for d in (1, 4))
    >>> law = LabelledLoss(kinds=((Fraction(3, 4), one), (Fraction(1, 4), two)))
    >>> # log M(1), M(1) = 1 + gamma^2 (3 (e - 1) + e^4 - 1)/4
    >>> round(law.cumulants(1.0)[0], 8)
    0.00146775
    """

    kinds: tuple[tuple[Fraction, SmoothLoss], ...]

    @property
    def largest(self) -> arb:
        r"""The largest of any kind."""
        return reduce(arb.max, (law.largest for _, law in self.kinds))

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        r"""Of the mixture, in floats."""
        each = [law.cumulants(tilt) for _, law in self.kinds]
        logs = [math.log(w) + found[0] for (w, _), found in zip(self.kinds, each, strict=True)]
        value = float(np.logaddexp.reduce(logs))
        shares = [math.exp(log - value) for log in logs]
        mean = sum(s * found[1] for s, found in zip(shares, each, strict=True))
        spread = sum(
            s * (found[2] + (found[1] - mean) ** 2) for s, found in zip(shares, each, strict=True)
        )
        return value, mean, spread

    def nodes(self, tilt: Fraction, reach: float, nats: float, most: int) -> Nodes:
        r"""Those of all kinds."""
        weights: list[arb] = []
        losses: list[arb] = []
        rest = arb(0)
        log_scale = self.cumulants(float(tilt))[0]
        for chance, law in self.kinds:
            # The error of a rare kind counts relative to the whole.
            spare = law.cumulants(float(tilt))[0] + math.log(chance) - log_scale
            found = law.nodes(tilt, reach, max(nats + spare, _LEAST_NATS), most)
            scale = ball(chance)
            weights += [weight * scale for weight in found.weights]
            losses += found.losses
            rest += found.rest * scale
        return Nodes(weights=tuple(weights), losses=tuple(losses), rest=rest.upper())

    def fading(self, tilt: Fraction, nats: float, most: int) -> FadingNodes | None:
        r"""Those of all kinds, where they have some."""
        weights: list[acb] = []
        losses: list[acb] = []
        rest, log_scale = arb(0), self.cumulants(float(tilt))[0]
        for chance, law in self.kinds:
            spare = law.cumulants(float(tilt))[0] + math.log(chance) - log_scale
            found = law.fading(tilt, max(nats + spare, _LEAST_NATS), most)
            if found is None:
                return None
            scale = ball(chance)
            weights += [weight * scale for weight in found.weights]
            losses += found.losses
            rest += found.rest * scale
        return FadingNodes(weights=tuple(weights), losses=tuple(losses), rest=rest.upper())

    def far(self, tilt: Fraction, frequencies: Floats) -> Floats:
        r"""Of all kinds, weighted; each is relative to its own moment."""
        whole = arb(self.cumulants(float(tilt))[0])
        found = np.zeros(len(frequencies))
        for chance, law in self.kinds:
            share = ball(chance) * (arb(law.cumulants(float(tilt))[0]) - whole).exp()
            found += upward(share) * law.far(tilt, frequencies)
        return found * _SLACK
