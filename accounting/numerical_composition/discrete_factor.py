r"""A finite law of exact floats as a factor of the integrand: phi(y) = sum_x q_x e^(iyl_x).

Frequencies are equally spaced, so a transform
(:mod:`accounting.numerical_composition.nonuniform_fft`) gives phi at all of them at a cost
proportional to the atoms plus the frequencies. Proofs: docs/proofs/cells.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Final

import numpy as np
from flint import arb

from accounting.numerical_composition.complex_intervals import (
    CIRCLE,
    PRODUCT,
    SLACK,
    TINY,
    UNIT,
    Complexes,
    Discs,
    Floats,
    Integers,
    Turns,
    circle,
    multiples,
    product_error,
    sizes,
)
from accounting.numerical_composition.factor import Grid
from accounting.numerical_composition.nonuniform_fft import TRANSFORM_ERROR, transform
from accounting.pld.discretised_pld import Listing
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.arrays import EXP_NEG_ERROR, exp_neg, two_product
from dpcore.numbers.enclosure import ball, nearest, precision

_GAP: Final = 1024
"""The largest number of consecutive frequencies that are computed although unneeded."""

_LONGEST: Final = 1 << 18
_FEW: Final = 48
"""Up to this number of atoms, phi is summed directly."""

_DIRECT: Final = (product_error(_FEW) + 2 * CIRCLE + 2 * PRODUCT) * SLACK
_PIECES: Final = 3
_PIECE_BITS: Final = 256
_DROPPED: Final = 2.0**-58
_FLOOR: Final = 2.0**-900


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DiscreteFactor:
    r"""The factor phi at one tilt c; |phi(y) - sum q_x e^(iyl_x)| <= ``missing`` for all y.

    ``weights`` are the floats q_x, ``total`` is at least their sum, and ``deviation`` is at least
    sum q_x |l_x - mu| for some mu. ``moment`` bounds log M((1 + lift) c) from above.
    """

    log_scale: arb
    losses: Floats
    weights: Floats
    missing: float
    total: float
    deviation: float
    moment: Callable[[Fraction], arb]

    @property
    def peak(self) -> float:
        r"""An upper bound on |phi(y)|: sum q_x + missing."""
        return (self.total + self.missing) * SLACK

    def log_moment(self, lift: Fraction) -> arb:
        return self.moment(lift)

    def on(self, grid: Grid) -> DiscreteOnGrid:
        return DiscreteOnGrid(factor=self, grid=grid)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DiscreteOnGrid:
    r"""phi on one grid, by runs of blocks: summed directly for few atoms, transformed for many."""

    factor: DiscreteFactor
    grid: Grid

    def cover(self, blocks: Integers) -> Floats:
        r"""Bounds on |phi| over each block: |phi| at its centre + error + (length/2) deviation."""
        half = Fraction(self.grid.length) / 2
        found = self._at(2 * blocks + 1, half, 2)
        error = self._error() + 0.5 * self.grid.length * self.factor.deviation * SLACK
        return (sizes(found) + error) * SLACK

    def values(self, blocks: Integers) -> Discs:
        centres = self._at(self.grid.indices(blocks), Fraction(self.grid.step), 1)
        return Discs(centres, np.full(centres.shape, self._error()))

    def _error(self) -> float:
        # The relative errors of the sums and of the phases.
        relative = max(TRANSFORM_ERROR, _DIRECT) + CIRCLE + PRODUCT
        return (self.factor.missing + self.factor.total * relative) * SLACK + TINY

    def _at(self, indices: Integers, step: Fraction, every: int) -> Complexes:
        # phi at these multiples of `step`. The indices increase, within a run by multiples of
        # `every`.
        found = np.empty(len(indices), dtype=np.complex128)
        first_turns = turns(self.factor.losses, step)
        run_turns = turns(self.factor.losses, every * step) if every > 1 else first_turns
        offset = int(indices[0]) % every
        add_up = _direct if len(self.factor.losses) <= _FEW else transform
        for first, last in _runs(indices // every):
            run = indices[first:last] // every
            length = int(run[-1] - run[0]) + 1
            length += length % 2
            middle = (int(run[0]) + length // 2) * every + offset
            phases = circle(multiples(*first_turns, np.array([middle])))
            values = add_up(*run_turns, self.factor.weights * phases, length)
            found[first:last] = values[run - run[0]]
        return found


def _direct(high: Turns, low: Turns, weights: Complexes, length: int) -> Complexes:
    # Like `transform`, from two small tables of phases: j = a + b C with small a and b.
    width = 2 * math.ceil(math.sqrt(length) / 2)
    rows = np.arange(-(length // 2) // width, (length - length // 2) // width + 1) * width
    near, far = (_phases(high, low, each) for each in (np.arange(width), rows))
    values = ((far * weights) @ near.T).reshape(-1)
    start = -(length // 2) - int(rows[0])
    found: Complexes = values[start : start + length]
    return found


def _phases(high: Turns, low: Turns, counts: Integers) -> Complexes:
    found = circle(multiples(high, low, np.abs(counts)[:, None]))
    return np.where(counts[:, None] < 0, found.conj(), found)


def _runs(indices: Integers) -> list[tuple[int, int]]:
    # Ranges of the increasing `indices` that are transformed together.
    starts = [0, *(np.flatnonzero(np.diff(indices) > _GAP) + 1).tolist()]
    found: list[tuple[int, int]] = []
    for start, end in pairwise([*starts, len(indices)]):
        first, last = int(indices[start]), int(indices[end - 1])
        cuts = np.searchsorted(indices, np.arange(first + _LONGEST, last + 1, _LONGEST)).tolist()
        found += pairwise([start, *cuts, end])
    return found


def cumulants(exponents: Floats, losses: Floats) -> tuple[float, float, float]:
    r"""The approximate log sum e^t, and the mean and variance of the losses under these weights."""
    if not len(losses):
        return 0.0, 0.0, 0.0
    top = float(exponents.max())
    weights = np.exp(exponents - top)
    total = float(weights.sum())
    mean = float(weights @ losses) / total
    return top + math.log(total), mean, float(weights @ (losses - mean) ** 2) / total


def tilted(listing: Listing, tilt: Fraction) -> DiscreteFactor:
    r"""The factor of exact floats at the float c = ``tilt`` > 0."""
    weights, error, reference = _grown(listing, tilt)
    scale = float(weights.sum())
    if not (math.isfinite(scale) and scale > 0):
        raise PrecisionExhausted(f"the moment at {float(tilt)} exceeds the range of floats")

    def moment(lift: Fraction) -> arb:
        grown, slip, farther = _grown(listing, (1 + lift) * tilt)
        return (arb(farther) + arb(_sum(grown) + slip).log()).upper()

    return _factor(
        log_scale=arb(reference) + arb(scale).log(),
        losses=listing.losses,
        weights=weights / scale,
        missing=error / scale + 2 * UNIT * _sum(weights / scale),
        moment=moment,
    )


def _factor(
    *,
    log_scale: arb,
    losses: Floats,
    weights: Floats,
    missing: float,
    moment: Callable[[Fraction], arb],
) -> DiscreteFactor:
    # The atoms whose weight is not negligible, in increasing order of the losses.
    total = _sum(weights)
    rising = np.argsort(weights)
    small = np.cumsum(weights[rising]) <= _DROPPED
    kept = rising[~small]
    kept = kept[np.argsort(losses[kept], kind="stable")]
    losses, weights = losses[kept], weights[kept]
    spread = _sum(weights * np.abs(losses - float(weights @ losses))) * SLACK
    return DiscreteFactor(
        log_scale=log_scale,
        losses=losses,
        weights=weights,
        missing=(missing + 2 * _DROPPED) * SLACK + TINY,
        total=total,
        deviation=spread + 4 * UNIT * float(np.abs(losses).max()),
        moment=moment,
    )


def _grown(listing: Listing, tilt: Fraction) -> tuple[Floats, float, float]:
    # m_x e^(cl_x - R) as floats, a bound on the sum of their errors, and R.
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


def turns(losses: Floats, step: Fraction) -> tuple[Turns, Turns]:
    r"""Compute l step/2 pi modulo 1 for each loss l, in units of 2^-128, within 16 units.

    >>> high, low = turns(np.array([1.0, -3.0]), Fraction(1, 2))
    >>> (high / 2.0**64).round(6).tolist()  # 1/4 pi, 1 - 3/4 pi
    [0.079577, 0.761268]
    """
    high = np.zeros(len(losses), dtype=np.uint64)
    low = np.zeros(len(losses), dtype=np.uint64)
    for piece in _pieces(step):
        for part in two_product(losses, np.full(1, piece)):
            # The absolute value of the float modulo 1 is exact; its bits are read in two words.
            whole = np.fmod(np.abs(part), 1.0) * 2.0**64
            top = np.floor(whole)
            above, below = top.astype(np.uint64), ((whole - top) * 2.0**64).astype(np.uint64)
            negative = part < 0
            # The negative of a 128-bit number: all bits inverted, plus one unit.
            below = np.where(negative, ~below, below)
            above = np.where(negative, ~above, above)
            low = low + below
            high = high + above + (low < below)
    return high, low


def _pieces(step: Fraction) -> list[float]:
    # step/2 pi as a sum of floats, accurate to 150 bits.
    with precision(_PIECE_BITS):
        rest, found = ball(step) / (2 * arb.pi()), list[float]()
        for _ in range(_PIECES):
            found.append(nearest(rest))
            rest -= arb(found[-1])
    return found


def _sum(values: Floats) -> float:
    # An upper bound on the sum of numbers >= 0, for any order of summation.
    return float(values.sum()) * (1 + len(values) * 2 * UNIT) + TINY
