r"""Batches of discrete Laplace draws, each digit from an exact table.

Proof: docs/proofs/laws.md, claim 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Final

import numpy as np
from flint import arb

from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import ball, precision
from dpcore.sampling.inversion import FIXED_BITS, InversionTable, fixed_point, in_blocks, place
from dpcore.sampling.rng import Rng

_TABLE_SCALE: Final = 64
_DIGIT_BITS: Final = 10


class LaplaceDigits:
    r"""A batch sampler of the discrete Laplace law of ``scale``, modulo 2^64."""

    # X = 2^t H + L with L in [0, 2^t). For X >= 0 the digits of the geometric X are independent:
    # e^(-x/s) factorises over the digits. For X < 0 the same holds for ~X = -X-1, whose low digits
    # are the complements of those of X. H has the sign, so one table decides sign and top digit.

    def __init__(self, scale: Fraction) -> None:
        low_bits = max(0, math.ceil(math.log2(scale / _TABLE_SCALE))) if scale > 1 else 0
        self._low: list[tuple[int, InversionTable]] = []
        for start in range(0, low_bits, _DIGIT_BITS):
            width = min(_DIGIT_BITS, low_bits - start)
            self._low.append((start, _digit(scale / 2**start, 1 << width)))
        self._low_bits = low_bits
        self._top = _top(scale, 1 << low_bits)

    def draw(self, rng: Rng, count: int) -> Integers:
        r"""Draw ``count`` independent values."""
        return in_blocks(count, partial(self._fill, rng))

    def _fill(self, rng: Rng, target: Integers) -> None:
        self._top.fill(rng, target)
        if not self._low:
            return
        low = (target >> 63) & ((1 << self._low_bits) - 1)
        target <<= self._low_bits
        digit = np.empty_like(target)
        for start, table in self._low:
            table.fill(rng, digit)
            digit <<= start
            low ^= digit
        target |= low


def _digit(scale: Fraction, size: int) -> InversionTable:
    # P(L <= k) = (1 - q^(k+1))/(1 - q^size), q = e^(-1/scale): a geometric truncated to one digit.
    def cdf(k: int) -> arb:
        rate = -1 / ball(scale)
        if k + 1 >= size:
            return arb(1)
        return (rate * max(k + 1, 0)).expm1() / (rate * size).expm1()

    with precision(FIXED_BITS + 32):
        masses = [fixed_point(cdf(k)) for k in range(size)]
    return InversionTable(0, place(masses, 0, cdf), cdf)


def _top(scale: Fraction, unit: int) -> InversionTable:
    # H for X = unit H + L: P(H > m) = g^(m+1)/(1+beta) and P(H <= -1-m) = beta g^m/(1+beta),
    # m >= 0, with g = beta^unit; for unit = 1 this is the law of X itself.
    def cdf(k: int) -> arb:
        rate = -1 / ball(scale)
        beta = rate.exp()
        if k < 0:
            return beta * (rate * unit * (-k - 1)).exp() / (1 + beta)
        return 1 - (rate * unit * (k + 1)).exp() / (1 + beta)

    with precision(FIXED_BITS + 32):
        ratio = (-ball(Fraction(unit)) / ball(scale)).exp()
        beta = (-1 / ball(scale)).exp()
        below = [*_powers(beta / (1 + beta), ratio)]
        above = [*_powers(ratio / (1 + beta), ratio)]
    full = 1 << FIXED_BITS
    masses = [*reversed(below), *((full - high, full - low) for low, high in above)]
    return InversionTable(-len(below), place(masses, -len(below), cdf), cdf)


def _powers(start: arb, ratio: arb) -> Iterator[tuple[int, int]]:
    # start * ratio^m for m = 0, 1, ... as integer intervals, until one lies below 2^-64. Each
    # step rounds outwards by one unit of 2^-192, far from the 64 bits that are used.
    low, high = fixed_point(start)
    ratio_low, ratio_high = fixed_point(ratio)
    last = 1 << (FIXED_BITS - 64)
    while True:
        yield low, high
        if high < last:
            return
        low, high = (low * ratio_low) >> FIXED_BITS, ((high * ratio_high) >> FIXED_BITS) + 1
