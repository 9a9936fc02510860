r"""Rejection in batches, each acceptance decided by the filtered comparison.

A proposal y is kept when V < a(y) for a fresh uniform real V. Floats decide it only where their
certified error cannot matter; the rest, about one in 2^40, is decided by balls and further bits
of V. So the kept values have exactly the law proposal x acceptance, renormalised.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import numpy as np
from flint import arb

from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import ball
from dpcore.numbers.floating import exp_neg
from dpcore.sampling.inversion import Batch, Uniform, in_blocks
from dpcore.sampling.rng import Rng

__all__ = ["GaussianByRejection"]

_MARGIN: Final = 2.0**-40
_GRAIN: Final = 2.0**-63
_ACCEPTED: Final = 0.74


class GaussianByRejection:
    r"""The discrete Gaussian from a discrete Laplace of scale t = floor(sigma) + 1.

    Canonne, Kamath and Steinke (arXiv 2004.00010v5), Algorithm 3: keep y with probability
    e^(-g), g = (|y| - v/t)^2 / (2v). About 76% are kept; v = ``variance``, ``proposal`` draws
    the discrete Laplace. The float margin is derived in docs/proofs/samplers.md.
    """

    __slots__ = ("_centre", "_proposal", "_rate", "_scale", "_variance")

    def __init__(self, variance: Fraction, scale: int, proposal: Batch) -> None:
        self._variance = variance
        self._scale = scale
        self._proposal = proposal
        self._centre = float(variance / scale)
        self._rate = float(1 / (2 * variance))

    def draw(self, rng: Rng, count: int) -> Integers:
        r"""``count`` independent draws."""
        return in_blocks(count, lambda piece: self._fill(rng, piece))

    def _fill(self, rng: Rng, target: Integers) -> None:
        done = 0
        while done < len(target):
            missing = len(target) - done
            proposed = self._proposal.draw(rng, math.ceil(missing / _ACCEPTED) + 8)
            kept = proposed[self._accept(rng, proposed)][:missing]
            target[done : done + len(kept)] = kept
            done += len(kept)

    def _accept(self, rng: Rng, proposed: Integers) -> np.typing.NDArray[np.bool_]:
        # |g - its float| <= 2^-44 where g <= 50, and exp_neg errs by 2^-48: a margin of 2^-40
        # covers both. A word stands for an interval of length 2^-64, which matters beside a
        # small chance: the grain covers it, and every chance beyond g = 50 as well.
        words = rng.words(len(proposed))
        distance = np.abs(proposed).astype(np.float64) - self._centre
        chance = exp_neg(distance * distance * self._rate)
        uniform = words.astype(np.float64) * 2.0**-64
        accepted = uniform < chance
        unsure = np.abs(uniform - chance) <= _MARGIN * chance + _GRAIN
        for place in np.flatnonzero(unsure):
            accepted[place] = self.accepts(rng, int(words[place]), int(proposed[place]))
        return accepted

    def accepts(self, rng: Rng, word: int, proposed: int) -> bool:
        r"""The exact decision for one proposal and a uniform real that starts with ``word``."""
        gap = abs(proposed) * self._scale - self._variance
        exponent = gap * gap / (2 * self._variance * self._scale * self._scale)

        def chance() -> arb:
            return (-ball(exponent)).exp()

        return Uniform(rng, word).below(chance)
