r"""Batch samplers of discrete Gaussian, Poisson and binomial laws of large variance, by rejection.

The proposal is a step function: with steps of 2^b integers it dominates the masses P(X = m + i),
m = floor(E[X]). A step is drawn by certified inversion and an integer on the step uniformly; the
integer is accepted with probability mass/height. On most steps the mass hardly varies, and about
98% of the random words are below the smallest ratio mass/height and accept immediately. For the
other words the ratio is computed in floating point (for counts by Stirling's series); if its
certified error could matter, balls and further bits decide. Values beyond the outermost steps are
drawn by inversion. So the law is exact. Proofs: docs/proofs/samplers.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Final, Protocol

import numpy as np
from flint import arb

from dpcore.errors import PrecisionExhausted, Unrepresentable
from dpcore.numbers.arrays import Floats, Integers, exp_neg
from dpcore.numbers.enclosure import ball, integer_below, narrow, precision
from dpcore.sampling.inversion import InversionTable, Uniform, in_blocks, invert
from dpcore.sampling.rng import Rng, Words

_MARGIN: Final = 2.0**-40
_KEPT: Final = 0.98
_HEIGHT_BITS: Final = 128
_REACH: Final = Fraction(19, 2)
_FINEST: Final = 32
_LEAST_VARIANCE: Final = 1 << 21
_MOST_VARIANCE: Final = 1 << 116

Flags = np.typing.NDArray[np.bool_]


class UnimodalLaw(Protocol):
    r"""A unimodal law whose mode is floor(E[X]) or the next integer."""

    def pmf_ball(self, k: int) -> arb: ...
    def cdf_ball(self, k: int) -> arb: ...
    def sf_ball(self, k: int) -> arb: ...


class Centred:
    r"""A batch sampler of X - floor(E[X]), where X has the law ``law`` and the variance v.

    For count laws ``parts`` are the expected counts: (l,) for Poisson, (np, n(1-p)) for the heads
    and tails of a binomial; E[X] is the first part, which may exceed int64, and 1/v is the sum of
    their inverses. Without parts the law is the discrete Gaussian, with E[X] = 0. With
    ``shifted=True`` the draws are X itself, which must fit int64. Raises :class:`Unrepresentable`
    unless v is between 2^21 and 2^116: below, the float series is not accurate enough, and above, a
    draw could exceed int64.
    """

    def __init__(
        self,
        law: UnimodalLaw,
        variance: Fraction,
        parts: tuple[Fraction, ...] = (),
        *,
        shifted: bool = False,
    ) -> None:
        self._law, self._parts = law, parts
        mean = parts[0] if parts else Fraction(0)
        self.centre = math.floor(mean)
        self._start = self.centre if shifted else 0
        self._fraction = float(mean - self.centre)
        self._rate = float(1 / (2 * variance))
        if not _LEAST_VARIANCE < variance < _MOST_VARIANCE:
            raise Unrepresentable(f"the batch needs 2^21 < variance < 2^116, not {variance}")
        self._width = (math.isqrt(math.floor(variance)) // _FINEST).bit_length() - 1
        self._reach = math.ceil(_REACH * (math.isqrt(math.ceil(variance)) + 1) / self.unit)
        self._base = (self._reach + 1) * self.unit
        size = 2 * math.ceil(sum(parts)).bit_length() + 2 * _HEIGHT_BITS
        with precision(size):
            self._build()

    @property
    def unit(self) -> int:
        r"""The length of a step: a power of two between sigma/64 and sigma/32."""
        return 1 << self._width

    def _build(self) -> None:
        # Masses at the edges of the steps are in units of 2^-(b + 128): then the height of a step
        # is also its area in units of 2^-128.
        reach, unit = self._reach, self.unit
        scale = arb(2) ** (_HEIGHT_BITS + self._width)
        edges = [
            _outwards(self._law.pmf_ball(self.centre + i * unit) * scale)
            for i in range(-reach, reach + 1)
        ]
        _, beside = _outwards(self._law.pmf_ball(self.centre + 1) * scale)
        highest = [high for _, high in edges]
        # The masses increase up to the centre and decrease from centre + 1 on.
        middle = max(highest[reach], beside)
        steps = [*highest[1 : reach + 1], middle, *highest[reach + 1 : -1]]
        least = [min(low, after) for (low, _), (after, _) in pairwise(edges)]
        left = narrow(lambda: self._law.cdf_ball(self._below), 64).upper
        right = narrow(lambda: self._law.sf_ball(self._above - 1), 64).upper
        tails = [math.ceil(tail * (1 << _HEIGHT_BITS)) for tail in (left, right)]
        self._heights = [tails[0], *steps, tails[1]]
        self._cells = _table(self._heights)
        # A word w on a step stands for V in [w, w + 1)/2^64, with the last b bits not drawn yet.
        sure = [((low << 64 - self._width) // h) for low, h in zip(least, steps, strict=True)]
        bounds = [0, *(min(s, (1 << 64 - self._width) - 1) << self._width for s in sure), 0]
        self._sure = np.array(bounds, dtype=np.uint64)
        peak = self._law.pmf_ball(self.centre) * scale
        start = float(self._exponent(np.zeros(1, dtype=np.int64))[0])
        self._offsets = np.array([start - _float((ball(h) / peak).log()) for h in self._heights])

    @property
    def _below(self) -> int:
        return self.centre - self._reach * self.unit - 1

    @property
    def _above(self) -> int:
        return self.centre + self._reach * self.unit

    def draw(self, rng: Rng, count: int) -> Integers:
        r"""Return ``count`` independent draws of X - ``centre``, or of X if ``shifted``."""
        drawn = in_blocks(count, lambda piece: self._fill(rng, piece))
        drawn += self._start
        return drawn

    def _fill(self, rng: Rng, target: Integers) -> None:
        done = 0
        while done < len(target):
            missing = len(target) - done
            kept = self._propose(rng, math.ceil(missing / _KEPT) + 8)[:missing]
            target[done : done + len(kept)] = kept
            done += len(kept)

    def _propose(self, rng: Rng, count: int) -> Integers:
        cells = np.empty(count, dtype=np.int64)
        self._cells.fill(rng, cells)
        words = rng.words(count)
        kept = words < self._sure.take(cells)
        drawn = (words & np.uint64(self.unit - 1)).view(np.int64)
        drawn += (cells << self._width) - self._base
        unsure = np.flatnonzero(~kept)
        if len(unsure):
            sub = drawn[unsure]
            kept[unsure] = self._accept(rng, cells[unsure], sub, words[unsure])
            drawn[unsure] = sub
        return drawn[kept]

    def _accept(self, rng: Rng, cells: Integers, drawn: Integers, words: Words) -> Flags:
        # V keeps the bits of the word that did not choose the integer, and redraws the others.
        width = np.uint64(self._width)
        fresh = rng.words(len(words)) >> (np.uint64(64) - width)
        words = (words >> width << width) | fresh
        # The error of the exponent is at most 2^-43 and that of exp_neg 2^-48, and no probability
        # is below 0.7: the margin covers both errors and the width of a word.
        chance = exp_neg(np.maximum(self._exponent(drawn) - self._offsets[cells], 0.0))
        uniform = words.astype(np.float64) * 2.0**-64
        accepted: Flags = uniform < chance
        unsure = np.abs(uniform - chance) <= _MARGIN * chance
        unsure |= (cells == 0) | (cells == len(self._heights) - 1)
        for place in np.flatnonzero(unsure):
            kept = self.settle(rng, int(words[place]), int(cells[place]), int(drawn[place]))
            accepted[place] = kept is not None
            drawn[place] = 0 if kept is None else kept
        return accepted

    def settle(self, rng: Rng, word: int, cell: int, drawn: int) -> int | None:
        r"""Decide acceptance exactly, for a uniform V whose first bits are ``word``.

        Returns the accepted draw, or None.
        """
        uniform = Uniform(rng, word)
        if cell == 0:
            kept = uniform.below(lambda: self._share(self._law.cdf_ball(self._below), cell))
            return self._far_left(rng) - self.centre if kept else None
        if cell == len(self._heights) - 1:
            kept = uniform.below(lambda: self._share(self._law.sf_ball(self._above - 1), cell))
            return self._far_right(rng) - self.centre if kept else None
        place = self.centre + drawn
        kept = uniform.below(lambda: self._share(self._law.pmf_ball(place) * self.unit, cell))
        return drawn if kept else None

    def _share(self, mass: arb, cell: int) -> arb:
        # The fraction of the area of a step under ``mass`` times its length, at ambient precision.
        return mass * arb(2) ** _HEIGHT_BITS / self._heights[cell]

    def _far_left(self, rng: Rng) -> int:
        # Draws X given X <= ``_below``, by inversion.
        edge, cdf = self._below, self._law.cdf_ball
        return invert(rng, lambda k: cdf(k) / cdf(edge) if k < edge else arb(1), edge)

    def _far_right(self, rng: Rng) -> int:
        # Draws X given X >= ``_above``, by inversion of the law of -X.
        edge, sf = self._above, self._law.sf_ball
        return -invert(rng, lambda k: sf(-k - 1) / sf(edge - 1) if k < -edge else arb(1), -edge)

    def _exponent(self, drawn: Integers) -> Floats:
        # -log P(X = m + i) up to a constant: i^2/2v for the discrete Gaussian, or else the
        # sum over parts r of r h(u) + log1p(u)/2 + 1/(12 r') with u = (r' - r)/r and h(u) =
        # (1 + u) log(1 + u) - u (Loader 2000).
        away = drawn.astype(np.float64) - self._fraction
        squared, total = away * away, np.zeros(len(away))
        if not self._parts:
            return squared * self._rate
        for part, sign in zip(self._parts, (1, -1), strict=False):
            u = away * float(sign / part)
            total += squared * float(1 / (2 * part)) * _polynomial(u, _DEVIANCE)
            total += u * _polynomial(u, _LOGARITHM) + float(1 / (12 * part)) / (1 + u)
        return total


# 2 h(u)/u^2 = sum_i 2 (-u)^i/((i+1)(i+2)) and log1p(u)/(2u) = sum_i (-u)^i/(2(i+1)).
_DEVIANCE: Final = [2 * (-1) ** i / ((i + 1) * (i + 2)) for i in range(9)]
_LOGARITHM: Final = [(-1) ** i / (2 * (i + 1)) for i in range(7)]


def _polynomial(u: Floats, coefficients: list[float]) -> Floats:
    value = np.full_like(u, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * u + coefficient
    return value


def _outwards(value: arb) -> tuple[int, int]:
    return max(integer_below(value), 0), -integer_below(-value)


def _float(value: arb) -> float:
    # The error is at most 2^-52 absolutely plus 2^-53 relatively.
    if not value.rad() < arb(2) ** -60:
        raise PrecisionExhausted("a logarithm could not be computed with 60 bits of precision")
    return float(value.mid())


def _table(heights: list[int]) -> InversionTable:
    sums = [*accumulate(heights)]
    whole = sums[-1]

    def cdf(k: int) -> arb:
        return ball(Fraction(sums[min(k, len(sums) - 1)] if k >= 0 else 0, whole))

    return InversionTable(0, [min((s << 64) // whole, (1 << 64) - 1) for s in sums], cdf)
