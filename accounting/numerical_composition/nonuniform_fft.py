r"""Sums of many exponentials at many equally spaced frequencies, with a proven error bound.

phi(j) = sum_x q_x e^(2 pi i j f_x), |j| <= M/8, for phases f_x of 128 bits: a nonuniform Fourier
transform (Dutt and Rokhlin 1993; Greengard and Lee 2004). Each exponential is spread over a grid of
M points by a Gaussian K, a discrete Fourier transform sums the grid, and the result is divided by
the Fourier transform of K. Proofs: docs/proofs/cells.md.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np
from flint import arb

from accounting.numerical_composition.complex_intervals import (
    CIRCLE,
    PRODUCT,
    SLACK,
    UNIT,
    Complexes,
    Floats,
    Integers,
    Turns,
    circle,
    gamma,
    product_error,
)
from dpcore.numbers.arrays import EXP_NEG_ERROR, exp_neg
from dpcore.numbers.enclosure import nearest, precision

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


def transform(high: Turns, low: Turns, weights: Complexes, length: int) -> Complexes:
    r"""Compute phi at -length/2 <= j < length/2, within TRANSFORM_ERROR times the sum of |weights|.

    ``high`` and ``low`` are the words of the phases f_x, where a full turn is 2^128. ``length`` is
    even and at most 2^20.

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
    r"""Sums over runs of equal labels, pairwise in groups of four."""
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
