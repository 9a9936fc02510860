r"""A finite distribution of losses as the factor phi(y) = sum_x q_x e^(iyl_x) of an integral.

The integral is the contour integral of a composition. q_x is the mass of the atom x, multiplied by
e^(c l_x) for the tilt c and normalised, and l_x is its loss. The frequencies y are equally spaced,
so a nonuniform Fourier transform gives phi at all of them, at a cost proportional to the number of
atoms plus the number of frequencies (Dutt and Rokhlin 1993; Greengard and Lee 2004). The transform
computes phi(j) = sum_x q_x e^(2 pi i j f_x) for the integers |j| <= M/8, where f_x is a fraction of
a full turn with 128 bits, in three steps. A Gaussian K spreads each exponential over a grid of M
points. A discrete Fourier transform sums the grid. The sums are divided by the transform of K.
Proofs: docs/proofs/cells.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np
from flint import arb

from accounting.pld.finite_pld import Listing
from accounting.pld_composition.complex_intervals import (
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
    gamma,
    multiples,
    product_error,
    sizes,
)
from accounting.pld_composition.factor import Grid
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.arrays import EXP_NEG_ERROR, exp_neg, two_product
from dpcore.numbers.enclosure import ball, nearest, precision

_VARIANCE: Final = 2.5
"""The variance s^2 of K(u) = e^(-u^2/2s^2), in squared grid steps."""

_SIDE: Final = 14
"""K is truncated at this distance, where it is e^(-39.2)."""

_RADIX_BITS: Final = 5
_DENSE_BITS: Final = 5
_LEAST_BITS: Final = 4
_MOST_STAGES: Final = 4
_MOST_LEVELS: Final = 10
_TAYLOR: Final = 13
"""The degree of the series of e^-x for 0 <= x <= 2/5, whose remainder is below 2^-54."""

_GROWN: Final = 2.1625
"""K^(0)/K^(1/8) = e^(2 pi^2 s^2/64), rounded up."""

_MEAN: Final = 2.3
"""An upper bound on sum_i |i| K(r - i)/sum_i K(r - i), 0 <= r < 1."""

_KERNEL: Final = 4 * UNIT * (1 + _MEAN) + gamma(2) * _MEAN + gamma(4)
_SUMS: Final = math.sqrt(2) * gamma(3 * _MOST_LEVELS + 4 * _SIDE)
_STAGE: Final = product_error(1 << _RADIX_BITS) * SLACK + 2 * CIRCLE + PRODUCT
_DENSE: Final = product_error(1 << _DENSE_BITS) * SLACK + CIRCLE

TRANSFORM_ERROR: Final = (
    _GROWN * (_KERNEL + _SUMS + _MOST_STAGES * _STAGE + _DENSE) + EXP_NEG_ERROR + 2.0**-51
) * SLACK
"""The error relative to the sum of |q_x|: aliases and truncation of K (< 2^-52), and rounding."""

_GAP: Final = 1024
"""The largest number of consecutive unneeded frequencies that are computed."""

_LONGEST: Final = 1 << 18
_FEW: Final = 48
"""Up to this number of atoms, phi is summed directly."""

_DIRECT: Final = (product_error(_FEW) + 2 * CIRCLE + 2 * PRODUCT) * SLACK
_PIECES: Final = 3
_PIECE_BITS: Final = 256
_DROPPED: Final = 2.0**-58
_FLOOR: Final = 2.0**-900


def transform(high: Turns, low: Turns, weights: Complexes, length: int) -> Complexes:
    r"""The sums phi(j) = sum_x q_x e^(2 pi i j f_x) for -length/2 <= j < length/2.

    The q_x are the ``weights``. ``high`` and ``low`` are the 64-bit words of the f_x, in units of
    2^-128. ``length`` is even and at most 2^20. The error is at most TRANSFORM_ERROR times sum
    |q_x|.

    >>> half = np.array([1 << 63], dtype=np.uint64)
    >>> transform(half, 0 * half, np.array([1 + 0j]), 4).real.round(12).tolist()  # (-1)^j
    [1.0, -1.0, 1.0, -1.0]
    """
    bits = max(math.ceil(math.log2(4 * length)), _LEAST_BITS)
    grid = _spread(high, low, weights, bits)
    found = _dft(grid[None, :], bits)[0]
    middle = len(found) // 2
    j = np.arange(-(length // 2), length - length // 2)
    values: Complexes = found[middle + j] / _kernel(j, bits)
    return values


def _spread(high: Turns, low: Turns, weights: Complexes, bits: int) -> Complexes:
    # sum_x q_x K(x - g) at the points g of the grid, x = M f.
    rest = np.uint64(64 - bits)
    # Sorted, so that phases that wrap around the circle are summed with their neighbours there.
    order = np.argsort(high, kind="stable")
    high, low, weights = high[order], low[order], weights[order]
    place = (high >> rest).astype(np.int64)
    within = (high & ((np.uint64(1) << rest) - np.uint64(1))).astype(np.float64)
    within = within * 2.0 ** (bits - 64) + low.astype(np.float64) * 2.0 ** (bits - 128)
    sums, places = summed_by_label(_kernels(within) * weights, place)
    grid = np.zeros(1 << bits, dtype=np.complex128)
    for row, offset in zip(sums, range(1 - _SIDE, _SIDE + 1), strict=True):
        grid[(places + offset) & ((1 << bits) - 1)] += row
    return grid


def _kernels(within: Floats) -> Floats:
    # Row i: K(r - i) = e^(-r^2/2s^2) e^(ri/s^2) e^(-i^2/2s^2), 0 <= r < 1.
    fall = _exp_neg(within / _VARIANCE)
    found = np.empty((2 * _SIDE, len(within)))
    found[_SIDE - 1] = _exp_neg(within * within * (0.5 / _VARIANCE))
    rise = 1 / fall
    for i in range(1, _SIDE):
        found[_SIDE - 1 - i] = found[_SIDE - i] * fall
        found[_SIDE - 1 + i] = found[_SIDE - 2 + i] * rise
    found[-1] = found[-2] * rise
    found *= _heights()[:, None]
    return found


def _exp_neg(x: Floats) -> Floats:
    # e^-x for 0 <= x <= 2/5, with error <= 4u: partial sums are at most 1, so the roundings add up
    # to at most (1 + 2 sum_n x^n) u.
    found = np.full_like(x, 1 / math.factorial(_TAYLOR))
    for n in range(_TAYLOR - 1, -1, -1):
        found = 1 / math.factorial(n) - x * found
    return found


@lru_cache(maxsize=1)
def _heights() -> Floats:
    with precision(128):
        squares = [i * i for i in range(1 - _SIDE, _SIDE + 1)]
        return np.array([nearest((-arb(n) / (2 * _VARIANCE)).exp()) for n in squares])


def summed_by_label(terms: Complexes, labels: Integers) -> tuple[Complexes, Integers]:
    r"""The sums of the columns of ``terms`` over runs of equal ``labels``, and the runs' labels."""
    while True:
        starts = np.flatnonzero(np.diff(labels, prepend=-1))
        if len(starts) == len(labels):
            return terms, labels
        within = np.arange(len(labels)) - np.repeat(starts, np.diff(starts, append=len(labels)))
        cuts = np.flatnonzero(within % 4 == 0)
        terms, labels = np.add.reduceat(terms, cuts, axis=1), labels[cuts]


def _kernel(j: Integers, bits: int) -> Floats:
    # The Fourier transform of K at j/M: sqrt(2 pi) s e^(-2 pi^2 s^2 j^2/M^2).
    with precision(128):
        factor = nearest(2 * arb.pi() ** 2 * arb(_VARIANCE))
        height = nearest((2 * arb.pi() * arb(_VARIANCE)).sqrt())
    share = j / float(1 << bits)
    return height * exp_neg(factor * share * share)


def _dft(rows: Complexes, bits: int) -> Complexes:
    # For each row, sum_n a_n e^(2 pi i k n/M), -M/8 <= k < M/8; n = n1 M/R + n2, k = k1 + R k2.
    if bits <= _DENSE_BITS:
        return rows @ _part(bits).T
    radix = min(bits - _LEAST_BITS, _RADIX_BITS)
    rest, count = bits - radix, len(rows)
    split = rows.reshape(count, 1 << radix, 1 << rest)
    found = _whole(radix) @ split
    found *= _twiddles(radix, rest)
    inner = _dft(found.reshape(-1, 1 << rest), rest)
    return inner.reshape(count, 1 << radix, -1).transpose(0, 2, 1).reshape(count, -1)


@lru_cache(maxsize=8)
def _part(bits: int) -> Complexes:
    # e^(2 pi i k n/M), -M/8 <= k < M/8.
    k = np.arange(-(1 << (bits - 3)), 1 << (bits - 3))
    return _roots(np.multiply.outer(k, np.arange(1 << bits)), bits)


@lru_cache(maxsize=8)
def _whole(bits: int) -> Complexes:
    # e^(2 pi i k n/R), 0 <= k < R.
    k = np.arange(1 << bits)
    return _roots(np.multiply.outer(k, k), bits)


@lru_cache(maxsize=8)
def _twiddles(radix: int, rest: int) -> Complexes:
    # e^(2 pi i k1 n2/M).
    return _roots(np.multiply.outer(np.arange(1 << radix), np.arange(1 << rest)), radix + rest)


def _roots(multiples: Integers, bits: int) -> Complexes:
    # e^(2 pi i m/2^bits) from exact turns.
    return circle((multiples & ((1 << bits) - 1)).astype(np.uint64) << np.uint64(64 - bits))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DiscreteFactor:
    r"""The factor phi of the module docstring, with weights that are rounded to floats.

    For all y, |phi(y) - sum q_x e^(iyl_x)| <= ``missing``, where ``weights`` are the floats q_x
    and ``losses`` the l_x. ``total`` is at least the sum of the q_x, and ``deviation`` is at least
    sum q_x |l_x - mu| for some mu. For the moment generating function M of the losses and the
    tilt c, ``moment(lift)`` is an upper bound on log M((1 + lift) c).
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
        return (self.total + self.missing) * SLACK

    def log_moment(self, lift: Fraction) -> arb:
        return self.moment(lift)

    def cover(self, grid: Grid, blocks: Integers) -> Floats:
        # |phi| at the centre of the block + error + (length/2) deviation.
        found = self._at(2 * blocks + 1, Fraction(grid.length) / 2, 2)
        error = self._error() + 0.5 * grid.length * self.deviation * SLACK
        return (sizes(found) + error) * SLACK

    def values(self, grid: Grid, blocks: Integers) -> Discs:
        centres = self._at(grid.indices(blocks), Fraction(grid.step), 1)
        return Discs(centres, np.full(centres.shape, self._error()))

    def _error(self) -> float:
        # The relative errors of the sums and of the phases.
        relative = max(TRANSFORM_ERROR, _DIRECT) + CIRCLE + PRODUCT
        return (self.missing + self.total * relative) * SLACK + TINY

    def _at(self, indices: Integers, step: Fraction, every: int) -> Complexes:
        # phi at these multiples of `step`. The indices increase, within a run by multiples of
        # `every`.
        found = np.empty(len(indices), dtype=np.complex128)
        first_turns = turns(self.losses, step)
        run_turns = turns(self.losses, every * step) if every > 1 else first_turns
        offset = int(indices[0]) % every
        add_up = _direct if len(self.losses) <= _FEW else transform
        for first, last in _runs(indices // every):
            run = indices[first:last] // every
            length = int(run[-1] - run[0]) + 1
            length += length % 2
            middle = (int(run[0]) + length // 2) * every + offset
            phases = circle(multiples(*first_turns, np.array([middle])))
            values = add_up(*run_turns, self.weights * phases, length)
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
    r"""The approximate log sum e^t, and the mean and variance of the losses with weights e^t.

    ``exponents`` are the numbers t, one for each loss.
    """
    if not len(losses):
        return 0.0, 0.0, 0.0
    top = float(exponents.max())
    weights = np.exp(exponents - top)
    total = float(weights.sum())
    mean = float(weights @ losses) / total
    return top + math.log(total), mean, float(weights @ (losses - mean) ** 2) / total


def tilted(listing: Listing, tilt: Fraction) -> DiscreteFactor:
    r"""The factor of the contour integral for the discretised loss ``listing`` at ``tilt`` > 0.

    Raises :class:`PrecisionExhausted` if the moment at ``tilt`` exceeds the range of floats.
    """
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
    r"""The fractional part of l ``step``/(2 pi) for each loss l, in units of 2^-128.

    It is returned as arrays of high and low 64-bit words, with an error of at most 16 units.

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
    # An upper bound on the sum of numbers >= 0 that holds for any order of summation.
    return float(values.sum()) * (1 + len(values) * 2 * UNIT) + TINY
