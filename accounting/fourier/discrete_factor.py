r"""A finite law of exact floats as a factor of the integrand: phi(y) = sum_x q_x e^(iyl_x).

Frequencies cost clusters and not atoms. Within a cluster of width h around its middle c_k,

    sum_x q_x e^(iyl_x) = e^(iyc_k) sum_n (iy)^n/n! sum_x q_x (l_x - c_k)^n,   |y| h <= 1,

up to a Taylor remainder of at most 2^-n/n! each; the middles are multiples of a power of two, so
their phases are integer multiples of one 128-bit turn. Proofs: docs/proofs/line.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from flint import arb

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
    multiples,
    sizes,
)
from accounting.fourier.factor import Grid
from accounting.loss.listing import Listing
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import ball, nearest, precision
from dpcore.numbers.floating import EXP_NEG_ERROR, exp_neg, two_product

__all__ = ["DiscreteFactor", "DiscreteOnGrid", "tilted"]

_ORDER: Final = 16
_REMAINDER: Final = 2.0**-59
"""sum over n >= 16 of 2^-n/n!."""

_GROWN: Final = 1.6488
"""e^(1/2), rounded up: sum over n of 2^-n/n!."""

_AT_ONCE: Final = 1 << 20
_CHUNK_BITS: Final = 7
_LOOSE: Final = 0.2
"""What merging atoms may add to the bound of a block: it decides cost, and is counted."""

_MOST_DEPTH: Final = 14
_ATOM_COST: Final = 8.0
_PIECES: Final = 3
_PIECE_BITS: Final = 256
_DROPPED: Final = 2.0**-58
_READ: Final = 2.0**-40
_FLOOR: Final = 2.0**-900


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DiscreteFactor:
    r"""phi at one tilt c; |phi(y) - sum q_x e^(iyl_x)| <= ``missing`` for all y.

    ``weights`` are the floats q_x, ``total`` is at least their sum, and ``deviation`` at least
    sum q_x |l_x - mu| for some mu.
    """

    listing: Listing
    tilt: Fraction
    log_scale: arb
    losses: Floats
    weights: Floats
    missing: float
    total: float
    deviation: float

    @property
    def peak(self) -> float:
        r"""|phi(y)| <= sum q_x + missing."""
        return (self.total + self.missing) * SLACK

    def log_moment(self, lift: Fraction) -> arb:
        r"""log M((1 + lift) c), from above."""
        weights, error, reference = _grown(self.listing, (1 + lift) * self.tilt)
        return (arb(reference) + arb(_sum(weights) + error).log()).upper()

    def on(self, grid: Grid) -> DiscreteOnGrid:
        r"""The factor on a grid."""
        return DiscreteOnGrid(factor=self, grid=grid)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DiscreteOnGrid:
    r"""phi on one grid: merged atoms bound whole blocks, clusters give values."""

    factor: DiscreteFactor
    grid: Grid

    def cover(self, blocks: Integers) -> Floats:
        r"""|sum over merged atoms at the middle| + what merging adds + (length/2) deviation."""
        length = self.grid.length
        end = (int(blocks.max()) + 1) * length
        losses, weights, spread, drift = _merged(self.factor, end)
        chunks, place = np.unique(blocks >> _CHUNK_BITS, return_inverse=True)
        inner = _phases(np.array([0.5 * length]), losses)
        for turn in _phases(np.array([length * (1 << b) for b in range(_CHUNK_BITS)]), losses):
            inner = np.concatenate((inner, inner * turn))
        columns = inner.T
        moduli = np.empty((len(chunks), 1 << _CHUNK_BITS))
        starts = (chunks << _CHUNK_BITS).astype(np.float64) * length
        rows = max(_AT_ONCE // len(losses), 1)
        for first in range(0, len(chunks), rows):
            part = slice(first, first + rows)
            moduli[part] = sizes((_phases(starts[part], losses) * weights) @ columns)
        found = moduli[place, blocks & ((1 << _CHUNK_BITS) - 1)]
        middles = (blocks + 0.5) * length
        apart = middles * middles * (spread / 2)
        # The phases are off by less than 2^-40 (1 + y |l|), the sums by less than 2^-30.
        largest = float(np.abs(losses).max())
        slip = (1 + end * largest) * _READ + (len(self.factor.weights) + 64) * 4 * UNIT
        reach = 0.5 * length * self.factor.deviation
        rest = self.factor.missing + self.factor.total * slip + end * drift
        bounds: Floats = (found + (rest + reach) + apart) * SLACK
        return bounds

    def values(self, blocks: Integers) -> Discs:
        r"""phi by runs of 2^d frequencies: phases of atoms at the middle of a run, and clusters of
        atoms around it, which are as wide as the run is short.
        """
        indices = self.grid.indices(blocks)
        losses, weights = self.factor.losses, self.factor.weights
        depth = _depth(indices, self.grid.step * float(losses[-1] - losses[0]), len(losses))
        reach = 1 << (depth - 1)
        # A power of two, at most 1/(reach step): |distance y| <= 1/2 in a cluster.
        width = math.ldexp(1.0, -math.frexp(reach * self.grid.step)[1])
        place = np.floor(losses / width + 0.5)
        labels = (place - place[0]).astype(np.int64)
        starts = np.flatnonzero(np.diff(labels, prepend=-1))
        around = np.arange(-reach, reach, dtype=np.int64)
        phases = self._centres(around, width, place[starts])
        powers = _powers(around.astype(np.float64) * (self.grid.step * width))
        high, low = turns(losses, Fraction(self.grid.step))
        terms = _terms(losses / width - place, weights)
        runs, run_of = np.unique(indices >> depth, return_inverse=True)
        found = np.empty((len(runs), 2 * reach), dtype=np.complex128)
        levels = 0
        for at, run in enumerate(runs):
            middle = (int(run) << depth) + reach
            moved = circle(multiples(high, low, np.array([middle]))) * terms
            moments, levels = _by_cluster(moved, labels)
            found[at] = _pairwise((moments.T @ powers).T * phases)
        centres = found[run_of, indices & (2 * reach - 1)]
        # A term, its sums by fours, the polynomial, the phases of a centre, and sums by twos.
        count = 2 * math.ceil(math.log2(len(starts)) + 1)
        roundings = 2 * _ORDER + 3 * levels + 4 * _ORDER + count
        relative = gamma(roundings) * math.sqrt(2) + 3 * (CIRCLE + UNIT + PRODUCT)
        error = self.factor.missing + self.factor.total * (_GROWN * relative * SLACK + _REMAINDER)
        return Discs(centres, np.full(centres.shape, error * SLACK + TINY))

    def _centres(self, around: Integers, width: float, place: Floats) -> Complexes:
        # e^(iyc) at frequencies around a middle, c = width place: integer multiples of a turn.
        turn = ball(Fraction(width) * Fraction(self.grid.step))
        high, low = fixed_point([turn * arb(2) ** (TURN_BITS - 1) / arb.pi()])
        product = np.multiply.outer(around, place.astype(np.int64))
        found = circle(multiples(high, low, np.abs(product)))
        return np.where(product < 0, found.conj(), found)


def tilted(listing: Listing, tilt: Fraction) -> DiscreteFactor:
    r"""The factor at c = ``tilt`` > 0, a float."""
    weights, error, reference = _grown(listing, tilt)
    scale = float(weights.sum())
    if not (math.isfinite(scale) and scale > 0):
        raise PrecisionExhausted(f"the losses have no moment at {float(tilt)} in floats")
    weights = weights / scale
    total = _sum(weights)
    rising = np.argsort(weights)
    small = np.cumsum(weights[rising]) <= _DROPPED
    kept = np.sort(rising[~small])
    losses, weights = listing.losses[kept], weights[kept]
    spread = _mean_size(weights, losses - float(weights @ losses))
    return DiscreteFactor(
        listing=listing,
        tilt=tilt,
        log_scale=arb(reference) + arb(scale).log(),
        losses=losses,
        weights=weights,
        missing=(error / scale + 2 * UNIT * total + 2 * _DROPPED) * SLACK + TINY,
        total=total,
        deviation=spread + 4 * UNIT * float(np.abs(losses).max()),
    )


def _grown(listing: Listing, tilt: Fraction) -> tuple[Floats, float, float]:
    # m_x e^(cl_x - R) as floats, a bound of the sum of their errors, and R.
    c, losses, masses = float(tilt), listing.losses, listing.masses
    slip = abs(c - float(tilt)) + 2 * UNIT * c
    with np.errstate(divide="ignore"):
        reference = float((np.log(masses) + c * losses).max())
    exponents = c * losses - reference
    half = exp_neg(np.abs(exponents) / 2)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        half = np.where(exponents > 0, 1 / half, half)
        weights = masses * half * half
    if not np.all(np.isfinite(weights)):
        raise PrecisionExhausted(f"the losses have no moment at {c} in floats")
    relative = slip * np.abs(losses) + 2 * UNIT * (abs(reference) + np.abs(exponents))
    relative += 2 * EXP_NEG_ERROR + 6 * UNIT
    return weights, (_sum(weights * relative) + len(losses) * _FLOOR) * SLACK, reference


def _merged(factor: DiscreteFactor, end: float) -> tuple[Floats, Floats, float, float]:
    # Means of runs of atoms, their weights, and upper bounds of sum q (l - mean)^2, so small that
    # it hardly shows up to the frequency `end`, and of |sum q (l - mean)|, from rounding alone.
    losses, weights = factor.losses, factor.weights
    gaps = np.gradient(losses) if len(losses) > 1 else np.zeros(1)
    place = np.cumsum(np.cbrt(weights * gaps * gaps))
    count = math.sqrt(place[-1] ** 3 * end * end / (24 * _LOOSE)) + 1
    if not count < len(losses) / 2:
        return losses, weights, 0.0, 0.0
    labels = np.floor(place * (count / place[-1])).astype(np.int64)
    starts = np.flatnonzero(np.diff(labels, prepend=-1))
    sums = np.add.reduceat(weights, starts)
    means = np.add.reduceat(weights * losses, starts) / np.where(sums > 0, sums, 1.0)
    apart = losses - np.repeat(means, np.diff(starts, append=len(losses)))
    slip = len(losses) * UNIT
    spread = float((weights * apart * apart).sum()) * (1 + 4 * slip)
    return means, sums, spread, 4 * slip * _mean_size(weights, losses)


def turns(losses: Floats, step: Fraction) -> tuple[Turns, Turns]:
    r"""l step/2 pi modulo 1 for each loss, in 2^-128, within 16 units.

    >>> high, low = turns(np.array([1.0, -3.0]), Fraction(1, 2))
    >>> (high / 2.0**64).round(6).tolist()  # 1/4 pi, 1 - 3/4 pi
    [0.079577, 0.761268]
    """
    high = np.zeros(len(losses), dtype=np.uint64)
    low = np.zeros(len(losses), dtype=np.uint64)
    for piece in _pieces(step):
        for part in two_product(losses, np.full(1, piece)):
            # Exact: the size of a float modulo 1, and its bits two words at a time.
            whole = np.fmod(np.abs(part), 1.0) * 2.0**64
            top = np.floor(whole)
            above, below = top.astype(np.uint64), ((whole - top) * 2.0**64).astype(np.uint64)
            negative = part < 0
            # Minus a number of 128 bits: all bits turned, plus one unit.
            below = np.where(negative, ~below, below)
            above = np.where(negative, ~above, above)
            low = low + below
            high = high + above + (low < below)
    return high, low


def _pieces(step: Fraction) -> list[float]:
    # step/2 pi as a sum of floats, to 150 bits.
    with precision(_PIECE_BITS):
        rest, found = ball(step) / (2 * arb.pi()), list[float]()
        for _ in range(_PIECES):
            found.append(nearest(rest))
            rest -= arb(found[-1])
    return found


def _depth(indices: Integers, span: float, atoms: int) -> int:
    # The d that costs least: atoms for each run, clusters for each frequency. Only speed depends
    # on it.
    best, found = math.inf, 1
    for depth in range(1, _MOST_DEPTH + 1):
        clusters = min(span * (1 << (depth - 1)) + 1, atoms)
        runs = len(np.unique(indices >> depth))
        cost = runs * (atoms * _ATOM_COST + clusters * (1 << depth)) + clusters * (1 << depth)
        if cost < best:
            best, found = cost, depth
    return found


def _terms(apart: Floats, weights: Floats) -> Floats:
    # Row n: q d^n/n!.
    terms = np.empty((_ORDER, len(apart)))
    terms[0] = weights
    for n in range(1, _ORDER):
        terms[n] = terms[n - 1] * apart / n
    return terms


def _powers(scaled: Floats) -> Complexes:
    # Row n: (iy)^n.
    powers = np.empty((_ORDER, len(scaled)), dtype=np.complex128)
    powers[0] = 1.0
    for n in range(1, _ORDER):
        powers[n] = powers[n - 1] * scaled
    powers *= np.array([1, 1j, -1, -1j] * (_ORDER // 4))[:, None]
    return powers


def _by_cluster(terms: Complexes, labels: Integers) -> tuple[Complexes, int]:
    # Sums over each cluster, by fours: how many times, too.
    levels = 0
    while True:
        starts = np.flatnonzero(np.diff(labels, prepend=-1))
        if len(starts) == len(labels):
            return terms, levels
        within = np.arange(len(labels)) - np.repeat(starts, np.diff(starts, append=len(labels)))
        cuts = np.flatnonzero(within % 4 == 0)
        terms, labels, levels = np.add.reduceat(terms, cuts, axis=1), labels[cuts], levels + 1


def _pairwise(terms: Complexes) -> Complexes:
    # Sums of the rows, two by two.
    while terms.shape[1] > 1:
        half = terms.shape[1] // 2
        rest = terms[:, 2 * half :]
        terms = terms[:, :half] + terms[:, half : 2 * half]
        if rest.size:
            terms[:, 0] += rest[:, 0]
    return terms[:, 0]


def _phases(frequencies: Floats, losses: Floats) -> Complexes:
    # e^(iyl), within 2^-41 (1 + y |l|).
    turns = np.multiply.outer(frequencies, losses * (1 / math.tau))
    parts = (turns - np.floor(turns)) * 2.0**52
    return circle((parts.astype(np.int64) << 12).view(np.uint64))


def _sum(values: Floats) -> float:
    # Of numbers >= 0, from above, in whatever order numpy adds.
    return float(values.sum()) * (1 + len(values) * 2 * UNIT) + TINY


def _mean_size(weights: Floats, values: Floats) -> float:
    # sum q |x|, from above.
    return _sum(weights * np.abs(values)) * SLACK
