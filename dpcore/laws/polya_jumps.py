r"""Exact Polya draws of any scale, as sums of a Poisson number of logarithmic jumps.

A Polya(r, s) variable is a compound Poisson sum: jumps of size m arrive with rate r e^(-m/s)/m for
each m >= 1, independently (Quenouille 1949). Candidates arrive with rate r in each of the following
cells and are kept with a probability c <= 1 that gives the right rates. With T = 2^t >= s:

    octave o < t:  m uniform on [2^o, 2^(o+1)),            c = (2^o/m) e^(-m/s);
    last cell:     w = 0, 1, ... with probability 2^(-w-1),
                   m uniform on [T (w+1), T (w+2)),        c = (T/m) 2^(w+1) e^(-m/s).

So the number of candidates is Poisson(r (t+1)), with a rational mean, and c <= (2/e)^(w+1) in the
last cell. In a batch, floats decide the coin of c only if their certified error cannot change the
outcome; the reference uses exact draws. Proofs: docs/proofs/polya.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Final

import numpy as np
from flint import arb

from dpcore.errors import Unrepresentable
from dpcore.laws.poisson import Poisson
from dpcore.noise import batch_of
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import ball
from dpcore.numbers.floating import exp_neg
from dpcore.sampling.bernoulli import bernoulli, bernoulli_exp
from dpcore.sampling.inversion import BLOCK, Uniform, in_blocks
from dpcore.sampling.rng import Rng, below

_MARGIN: Final = 2.0**-40
_GRAIN: Final = 2.0**-63
_MOST_OCTAVES: Final = 58
_RUN_BITS: Final = 8
# The number of trailing zeros of each byte; the exact path handles the byte 0.
_ZEROS: Final = np.array([(v & -v).bit_length() - 1 if v else _RUN_BITS for v in range(256)])


def octaves(scale: Fraction) -> int:
    r"""The smallest t >= 0 with 2^t >= s, s = ``scale``."""
    return (-(-scale.numerator // scale.denominator) - 1).bit_length()


def sum_of_jumps(rng: Rng, shape: Fraction, scale: Fraction) -> int:
    r"""Draw exactly from Polya(shape, scale): the reference for :class:`LogJumps`."""
    cells = octaves(scale) + 1
    arrived = Poisson(mean=shape * cells).sample_reference(rng)
    return sum(jump(rng, scale, rng.below(cells)) for _ in range(arrived))


def jump(rng: Rng, scale: Fraction, cell: int) -> int:
    r"""Draw one candidate of ``cell``: return its size, or 0 if it is rejected."""
    unit, run = 1 << cell, 0
    if cell == octaves(scale):
        while rng.flip():
            run += 1
        # 2^(w+1) e^(-m/s) = (2/e)^(w+1) e^(w+1-m/s), and m/s >= w + 1.
        size = unit * (run + 1) + rng.bits(cell)
        excess = size / scale - (run + 1)
        kept = all(_two_over_e(rng) for _ in range(run + 1))
    else:
        size = unit + rng.bits(cell)
        excess = size / scale
        kept = True
    kept = kept and bernoulli(rng, Fraction(unit, size)) and bernoulli_exp(rng, excess)
    return size if kept else 0


def _two_over_e(rng: Rng) -> bool:
    # Let K be the first k >= 3 with a failed Bernoulli(1/k): P(K > k) = 2/k!, so that
    # P(K odd) = 1 - 1/3 + 1/12 - 1/60 + ... = 2/e.
    trial = 3
    while bernoulli(rng, Fraction(1, trial)):
        trial += 1
    return trial % 2 == 1


class LogJumps:
    r"""Batches of Polya(shape, scale) draws for shapes below 1 and scales too large for a table."""

    __slots__ = ("_arrivals", "_cells", "_piece", "_rate", "_scale")

    def __init__(self, shape: Fraction, scale: Fraction) -> None:
        self._cells = octaves(scale) + 1
        if self._cells > _MOST_OCTAVES + 1:
            raise Unrepresentable(
                f"a batch of jumps of scale {scale} could overflow int64; draw single values"
            )
        self._scale = scale
        self._rate = float(1 / scale)
        mean = shape * self._cells
        self._arrivals = batch_of(Poisson(mean=mean))
        # About one block of candidates at a time, so that they stay in the CPU cache.
        self._piece = max(1, BLOCK // max(1, math.ceil(mean)))

    def draw(self, rng: Rng, count: int) -> Integers:
        r"""Return ``count`` independent draws."""
        return in_blocks(count, partial(self._fill, rng))

    def _fill(self, rng: Rng, target: Integers) -> None:
        for start in range(0, len(target), self._piece):
            piece = target[start : start + self._piece]
            arrived = self._arrivals.draw(rng, len(piece))
            ends = np.cumsum(arrived)
            sums = np.zeros(int(ends[-1]) + 1, dtype=np.int64)
            # Sums may wrap around, but their differences are still right modulo 2^64.
            np.cumsum(self.jumps(rng, len(sums) - 1), out=sums[1:])
            np.subtract(sums[ends], sums[ends - arrived], out=piece)

    def jumps(self, rng: Rng, count: int) -> Integers:
        r"""Draw ``count`` candidates: return their sizes, with 0 for each rejected one."""
        cell = below(rng, self._cells, count)
        unit = np.int64(1) << cell
        low = (rng.words(count) >> np.uint64(1)) >> (np.uint64(63) - cell.astype(np.uint64))
        # The acceptance probability is share/m e^(-m/s); run = w in the last cell, -1 in an octave.
        run = np.full(count, -1)
        last = np.flatnonzero(cell == self._cells - 1)
        run[last] = _ZEROS[(rng.words(len(last)) & np.uint64(255)).view(np.int64)]
        size = unit + low.view(np.int64)
        size[last] += unit[last] * run[last]
        share = np.ldexp(unit.astype(np.float64), run + 1)
        # m/s <= 9 has error below 2^-47, exp_neg below 2^-48, and the quotient adds two roundings:
        # the margin covers these. The grain covers the interval that a word stands for.
        words = rng.words(count)
        chance = exp_neg(size.astype(np.float64) * self._rate) * (share / size)
        uniform = words.astype(np.float64) * 2.0**-64
        unsure = np.abs(uniform - chance) <= _MARGIN * chance + _GRAIN
        unsure |= run == _RUN_BITS
        drawn = np.where(uniform < chance, size, 0)
        for place in np.flatnonzero(unsure).tolist():
            exact, bits = int(size[place]), int(run[place])
            while bits >= _RUN_BITS and rng.flip():
                exact, bits = exact + int(unit[place]), bits + 1
            kept = self.keeps(rng, int(words[place]), exact, int(unit[place]) << (bits + 1))
            drawn[place] = exact if kept else 0
        return drawn

    def keeps(self, rng: Rng, word: int, size: int, share: int) -> bool:
        r"""Whether V < (share/m) e^(-m/s), m = ``size``, for uniform V starting with ``word``."""

        def chance() -> arb:
            return (-ball(size / self._scale)).exp() * share / size

        return Uniform(rng, word).below(chance)
