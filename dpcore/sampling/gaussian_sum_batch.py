r"""Large sums of discrete Gaussians in batches: rejection from one discrete Gaussian.

With V = n v, P(X = k) = e^(-k^2/2V) f(k), where f has period n and is greatest at 0 (Poisson
summation over the lattice of integer vectors with sum 0). So a discrete Gaussian of parameter V is
drawn and kept with probability f(k)/f(0), which is at least 1 - 2S for an S that is computed
beforehand and tiny unless v is small. Proofs: docs/proofs/laws.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Final

import numpy as np
from flint import arb

from dpcore.analysis import coin_sums as contour
from dpcore.analysis import theta
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import ball, precision
from dpcore.sampling.inversion import Batch, Uniform, in_blocks
from dpcore.sampling.rng import Rng

_BITS: Final = 512


def deviation_from_gaussian(law: theta.ThetaSum) -> arb:
    r"""S with (1 - S)/(1 + S) <= f(k)/f(0) <= 1 for every k, as a ball of 512 bits.

    1 + S = P(X = 0) sqrt(n) Z^n (2 pi v)^(-(n-1)/2), Z the sum of e^(-j^2/2v) over all integers j.
    """
    v, n = ball(law.variance), law.count
    with precision(_BITS + n.bit_length()):
        growth = n * theta.partition(law.variance).log() - (n - 1) * (2 * arb.pi() * v).log() / 2
        return contour.mass(law, 0) * arb(n).sqrt() * growth.exp() - 1


class GaussianSumBatch:
    r"""Exact draws of the sum ``law`` from ``proposal``, the discrete Gaussian of parameter n v.

    ``most`` >= S and below 1/2. A word below 2^64 (1 - 2 most) keeps a proposal at once, whatever
    it is; for the others balls and further bits decide.
    """

    __slots__ = ("_law", "_proposal", "_sure")

    def __init__(self, law: theta.ThetaSum, proposal: Batch, most: Fraction) -> None:
        self._law = law
        self._proposal = proposal
        self._sure = np.uint64(math.floor((1 - 2 * most) * (1 << 64)) - 1)

    def draw(self, rng: Rng, count: int) -> Integers:
        r"""``count`` independent draws."""
        return in_blocks(count, partial(self._fill, rng))

    def _fill(self, rng: Rng, target: Integers) -> None:
        done = 0
        while done < len(target):
            proposed = self._proposal.draw(rng, len(target) - done)
            words = rng.words(len(proposed))
            kept = words < self._sure
            for place in np.flatnonzero(~kept):
                kept[place] = self.keeps(rng, int(words[place]), int(proposed[place]))
            proposed = proposed[kept]
            target[done : done + len(proposed)] = proposed
            done += len(proposed)

    def keeps(self, rng: Rng, word: int, proposed: int) -> bool:
        r"""The exact decision for one proposal and a uniform real that starts with ``word``."""
        return Uniform(rng, word).below(partial(self._chance, proposed))

    def _chance(self, k: int) -> arb:
        # f(k)/f(0), by the period: the residue nearest to 0 has the shortest exponent.
        rest = abs(k) % self._law.count
        rest = min(rest, self._law.count - rest)
        lift = Fraction(rest * rest, 2 * self._law.count) / self._law.variance
        return contour.mass(self._law, rest) * ball(lift).exp() / contour.mass(self._law, 0)
