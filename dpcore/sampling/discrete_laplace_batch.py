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
from dpcore.sampling.inversion import TABLE_BITS, InversionTable, in_blocks, table_of_sums
from dpcore.sampling.rng import Rng

_TABLE_SCALE: Final = 64
_DIGIT_BITS: Final = 10
_WORD: Final = 2.0**-64


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

    with precision(TABLE_BITS):
        return table_of_sums(0, map(cdf, range(size)), cdf)


def _top(scale: Fraction, unit: int) -> InversionTable:
    # H for X = unit H + L: P(H > m) = g^(m+1)/(1+beta) and P(H <= -1-m) = beta g^m/(1+beta),
    # m >= 0, with g = beta^unit; for unit = 1 this is the law of X itself.
    def cdf(k: int) -> arb:
        rate = -1 / ball(scale)
        beta = rate.exp()
        if k < 0:
            return beta * (rate * unit * (-k - 1)).exp() / (1 + beta)
        return 1 - (rate * unit * (k + 1)).exp() / (1 + beta)

    with precision(TABLE_BITS):
        ratio = (-ball(Fraction(unit)) / ball(scale)).exp()
        beta = (-1 / ball(scale)).exp()
        below = [*_powers(beta / (1 + beta), ratio)]
        above = [1 - power for power in _powers(ratio / (1 + beta), ratio)]
        return table_of_sums(-len(below), [*reversed(below), *above], cdf)


def _powers(power: arb, ratio: arb) -> Iterator[arb]:
    # power * ratio^m for m = 0, 1, ..., until one lies below 2^-64.
    yield power
    while not power < _WORD:
        power *= ratio
        yield power
