r"""A listed law as a factor of the integrand: phi(y) = sum_x q_x e^(iyl_x), many y at once.

The q_x are the masses tilted at c, from balls. The phases of one step of the grid are 128-bit
fixed-point turns, also from balls, so that doubling a frequency is an exact shift; each power of
two becomes a float once, and every other phase is a product of those. phi at all frequencies is
then a product of two small tables. Proofs: docs/proofs/line.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

import numpy as np
from flint import acb, arb

from accounting.fourier.discs import (
    CIRCLE,
    PRODUCT,
    SLACK,
    TINY,
    TURN_BITS,
    UNIT,
    Complexes,
    Discs,
    Floats,
    Integers,
    Turns,
    circle,
    fixed_point,
    gamma,
    sizes,
    upward,
)
from accounting.fourier.factor import Grid
from accounting.pairs.losses import Losses
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import ball, nearest
from dpcore.numbers.floating import EXP_NEG_ERROR, exp_neg

__all__ = ["AtomFactor", "Atoms", "AtomsOnGrid", "atom_factor", "fading_factor"]

_DROPPED: Final = 2.0**-56
_SLICE: Final = 1024
_UNTHREADED: Final = 1 << 20
_BY_THREE: Final = 3.42
_CHUNK_BITS: Final = 7
_DIGIT_BITS: Final = 6
_BATCH: Final = 1 << _DIGIT_BITS
_READ: Final = 2.0**-52
_SEED: Final = CIRCLE + UNIT
_FADED: Final = EXP_NEG_ERROR + 4 * UNIT
"""exp_neg, two roundings of its argument (x e^-x < 1/2), and the product with a phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Atoms:
    r"""A listing as a part of a line.

    >>> coin = Losses(
    ...     masses=(arb(0.75), arb(0.25)),
    ...     losses=(arb(3).log(), -arb(3).log()),
    ...     hidden=arb(0),
    ...     beyond=lambda c: arb(0),
    ...     largest=arb(3).log(),
    ... )
    >>> round(Atoms(listing=coin).cumulants(1.0)[0], 6)
    0.847298
    """

    listing: Losses
    _logs: Floats = field(init=False, repr=False)
    _losses: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Floats that propose: a mass that no float holds has the logarithm -oo and plays no part.
        masses = np.array([float(p) for p in self.listing.masses])
        with np.errstate(divide="ignore"):
            object.__setattr__(self, "_logs", np.log(masses))
        object.__setattr__(self, "_losses", np.array([float(l) for l in self.listing.losses]))

    @property
    def hidden(self) -> arb:
        r"""P(L = oo), enclosed."""
        return self.listing.hidden

    @property
    def largest(self) -> arb:
        r"""An upper bound of every finite loss."""
        return self.listing.largest

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        r"""K, K' and K'' of what is listed, in floats."""
        if not self.listing.masses:
            return 0.0, 0.0, 0.0
        exponents = self._logs + tilt * self._losses
        top = float(exponents.max())
        weights = np.exp(exponents - top)
        total = float(weights.sum())
        mean = float(weights @ self._losses) / total
        spread = float(weights @ (self._losses - mean) ** 2) / total
        return top + math.log(total), mean, spread

    def factor(self, tilt: Fraction, variance: float = math.inf) -> AtomFactor:
        r"""The listing tilted: q_x = P(x) e^(cL(x))/S, S the sum of the listed ones."""
        del variance
        return _tilted(self.listing, tilt)


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomFactor:
    r"""phi of a listed law at one tilt.

    ``weights`` are the floats q_x of the ``losses`` that are kept; |phi(y) - sum q_x e^(iyl_x)| <=
    ``missing`` for every real y, ``total`` >= sum q_x, and ``deviation`` >= sum q_x |l_x - mu| for
    some mu: that bounds how fast |sum q_x e^(iyl_x)| moves. With ``falls`` f_x >= 0 the terms are
    q_x e^(iyl_x - yf_x) for complex q_x and y >= 0, and ``total`` >= sum |q_x|.
    """

    log_scale: arb
    twice: arb
    weights: Floats | Complexes
    losses: tuple[arb, ...]
    missing: float
    total: float
    deviation: float
    falls: tuple[arb, ...] = ()

    @property
    def peak(self) -> float:
        r"""|phi(y)| <= sum q_x + missing."""
        return (self.total + self.missing) * SLACK

    def log_moment(self, lift: Fraction) -> arb:
        r"""log M((1 + lift) c), from above: log M is convex, so below its chord from c to 2c."""
        if not self.twice.is_finite():
            return arb("inf")
        here = self.log_scale + arb(self.total + self.missing).log()
        return ball(1 - lift) * here + ball(lift) * self.twice.log()

    def on(self, grid: Grid) -> AtomsOnGrid:
        r"""The tables of the phases on a grid."""
        return _sampled(self, grid)


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomsOnGrid:
    r"""``seeds[b]`` = e^(i eta 2^b l_x) to within 6u, and ``drift``, what turns may be off by.

    ``error`` bounds |computed - phi| at every frequency of the grid.
    """

    factor: AtomFactor
    grid: Grid
    seeds: tuple[Complexes, ...]
    blocks: Complexes
    error: float

    def cover(self, blocks: Integers) -> Floats:
        r"""|phi(middle)| + error + (length/2) deviation, by batches of chunks of blocks."""
        depth = self.grid.depth
        columns = (self.blocks * self.seeds[depth - 1]).T
        chunks, place = np.unique(blocks >> _CHUNK_BITS, return_inverse=True)
        moduli = np.empty((len(chunks), 1 << _CHUNK_BITS))
        for first in range(0, len(chunks), _BATCH):
            part = slice(first, first + _BATCH)
            rows = self._phases(chunks[part], depth + _CHUNK_BITS) * self.factor.weights
            moduli[part] = sizes(_product(rows, columns))
        found = moduli[place, blocks & ((1 << _CHUNK_BITS) - 1)]
        reach = 0.5 * self.grid.length * self.factor.deviation * SLACK
        bounds: Floats = (found + (self.error + reach)) * SLACK
        return bounds

    def values(self, blocks: Integers) -> Discs:
        r"""The phases of the left ends of the blocks, times those within a block."""
        depth = self.grid.depth
        fine = self._ladder(0, depth).T
        centres = np.empty((len(blocks), 1 << depth), dtype=np.complex128)
        for first in range(0, len(blocks), _BATCH):
            part = slice(first, first + _BATCH)
            rows = self._phases(blocks[part] >> _CHUNK_BITS, depth + _CHUNK_BITS)
            rows = rows * self.blocks[blocks[part] & ((1 << _CHUNK_BITS) - 1)]
            centres[part] = _product(rows * self.factor.weights, fine)
        flat = centres.reshape(-1)
        return Discs(flat, np.full(flat.shape, self.error))

    def _ladder(self, first: int, bits: int) -> Complexes:
        # Row j < 2^bits holds the phases of j 2^first steps.
        return _ladder(self.seeds[first : first + bits], len(self.factor.weights))

    def _phases(self, multiples: Integers, first: int) -> Complexes:
        # The phases of each multiple of 2^first steps, digit by digit.
        found = np.ones((len(multiples), len(self.factor.weights)), dtype=np.complex128)
        digits, mask = multiples, (1 << _DIGIT_BITS) - 1
        while digits.any():
            bits = min(_DIGIT_BITS, int(digits.max()).bit_length())
            found *= self._ladder(first, bits)[digits & mask]
            digits, first = digits >> _DIGIT_BITS, first + _DIGIT_BITS
        return found


def _tilted(listing: Losses, tilt: Fraction) -> AtomFactor:
    c = ball(tilt)
    growths = [(c * l).exp() for l in listing.losses]
    tilted = [p * growth for p, growth in zip(listing.masses, growths, strict=True)]
    scale = sum(tilted, arb(0)).mid()
    if not (scale.is_finite() and scale > 0):
        raise PrecisionExhausted(f"the listing has no moment at {float(tilt)}")
    twice = sum((w * growth for w, growth in zip(tilted, growths, strict=True)), arb(0))
    return atom_factor(
        [w / scale for w in tilted],
        listing.losses,
        rest=listing.beyond(c).upper() / scale,
        log_scale=scale.log(),
        twice=(twice + listing.beyond(2 * c)).upper(),
    )


def atom_factor(
    exact: Sequence[arb], losses: Sequence[arb], *, rest: arb, log_scale: arb, twice: arb
) -> AtomFactor:
    r"""phi(y) = sum q_x e^(iyl_x) to within ``rest``, q_x = ``exact``; ``twice`` bounds M(2c)."""
    weights = np.maximum(np.array([float(q) for q in exact]), 0)
    rising = np.argsort(weights)
    small = np.cumsum(weights[rising]) <= _DROPPED
    dropped, kept = rising[small], np.sort(rising[~small])
    total = math.fsum(weights.tolist()) * SLACK
    # The radius of a sum of balls is at least the sum of their radii.
    missing = upward(sum(exact, arb(0)).rad() + rest)
    missing += math.fsum(weights[dropped].tolist()) + total * _READ
    listed = tuple(losses[x] for x in kept)
    return AtomFactor(
        log_scale=log_scale,
        twice=twice,
        weights=weights[kept],
        losses=listed,
        missing=missing * SLACK + TINY,
        total=total,
        deviation=_deviation(weights[kept], listed, total),
    )


def fading_factor(
    exact: Sequence[acb], losses: Sequence[acb], *, rest: arb, log_scale: arb
) -> AtomFactor:
    r"""phi(y) = sum q_x e^(iyl_x) to within ``rest`` for y >= 0, q_x = ``exact``, Im l_x >= 0.

    Good for values: the bounds of a block and of M(2c) are infinite.
    """
    weights = np.array([complex(nearest(q.real), nearest(q.imag)) for q in exact])
    whole = sum(exact, acb(0))
    total = math.fsum(sizes(weights).tolist()) * SLACK
    # A part is read with an error of its ball's radius and 2^-53 of itself.
    missing = upward(whole.real.rad() + whole.imag.rad() + rest) + total * _READ
    return AtomFactor(
        log_scale=log_scale,
        twice=arb("inf"),
        weights=weights,
        losses=tuple(l.real for l in losses),
        missing=missing * SLACK + TINY,
        total=total,
        deviation=math.inf,
        falls=tuple(l.imag for l in losses),
    )


def _deviation(weights: Floats, losses: tuple[arb, ...], total: float) -> float:
    # sum q_x |l_x - mu| from above, for a mu near the mean; a float l_x is off by 2^-52 |l_x| and
    # by the radius of its ball.
    floats = np.array([float(l) for l in losses])
    center = float(weights @ floats) / float(weights.sum())
    spread = math.fsum((weights * np.abs(floats - center)).tolist())
    read = _READ * float(np.abs(floats).max()) + upward(sum(losses, arb(0)).rad())
    return (spread + 2 * read * total) * SLACK + TINY


def _sampled(factor: AtomFactor, grid: Grid) -> AtomsOnGrid:
    last = grid.blocks << grid.depth
    bits = max(last.bit_length(), grid.depth + _CHUNK_BITS)
    units = ball(Fraction(grid.step)) * arb(2) ** (TURN_BITS - 1) / arb.pi()
    scaled = [units * l for l in factor.losses]
    high, low = fixed_point(scaled)
    seeds = tuple(circle(_shifted(high, low, b)) for b in range(bits))
    # In radians, at the last frequency: the radii of the turns, and their rounding down.
    drift = math.tau * (upward(sum(scaled, arb(0)).rad()) + 1) * 2.0**-TURN_BITS * last
    seed = _SEED
    if factor.falls:
        falls = np.maximum(np.array([float(fall) for fall in factor.falls]), 0) * grid.step
        seeds = tuple(each * exp_neg(falls * 2.0**b) for b, each in enumerate(seeds))
        seed += _FADED
        drift += upward(sum(factor.falls, arb(0)).rad()) * grid.step * last
    # Each phase is a product of at most `bits` seeds, and of a weight: prod (1 + e) - 1 <= p + p^2
    # for p = sum e <= 1.
    phase = bits * (seed + PRODUCT) + PRODUCT + drift
    phase = phase * (1 + phase) if phase <= 1 else math.inf
    rounding = _rounding(len(factor.weights))
    error = factor.missing + factor.total * (phase + rounding * (1 + phase) ** 2)
    ladder = _ladder(seeds[grid.depth : grid.depth + _CHUNK_BITS], len(factor.weights))
    return AtomsOnGrid(
        factor=factor, grid=grid, seeds=seeds, blocks=ladder, error=error * SLACK + TINY
    )


def _ladder(seeds: tuple[Complexes, ...], width: int) -> Complexes:
    table = np.ones((1 << len(seeds), width), dtype=np.complex128)
    for b, seed in enumerate(seeds):
        np.multiply(table[: 1 << b], seed, out=table[1 << b : 2 << b])
    return table


def _rounding(terms: int) -> float:
    # Of `_product`, for moduli at most 1 and weights of sum 1: by four real products, or by three.
    slices, each = -(-terms // _SLICE), min(terms, _SLICE)
    by_four = math.sqrt(2) * gamma(2 * each + slices)
    return max(by_four, _BY_THREE * gamma(each + 4 + slices)) * SLACK


def _product(rows: Complexes, columns: Complexes) -> Complexes:
    # By slices, so that no sum has more than 2 _SLICE terms: that is what its rounding grows with.
    # Small ones by plain sums: a matrix product wakes threads, which cost more than they bring.
    small = rows.size * columns.shape[1] <= _UNTHREADED
    found = np.zeros((rows.shape[0], columns.shape[1]), np.complex128)
    for first in range(0, rows.shape[1], _SLICE):
        left, right = rows[:, first : first + _SLICE], columns[first : first + _SLICE]
        found += np.einsum("ij,jk->ik", left, right) if small else left @ right
    return found


def _shifted(high: Turns, low: Turns, bits: int) -> Turns:
    if bits == 0:
        return high
    return (high << np.uint64(bits)) | (low >> np.uint64(64 - bits))
