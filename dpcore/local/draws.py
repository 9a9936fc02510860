r"""Exact coins and uniform integers in arrays, and probabilities that such coins can have.

A probability is a multiple of 2^-32, so a coin compares random bits with an integer: nothing is
rounded when it is flipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt
from flint import arb

from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import narrow
from dpcore.sampling.rng import Rng

Flags = npt.NDArray[np.bool_]

GRID: Final = 1 << 32
r"""Probabilities are multiples of 1/GRID."""


def rounded_down(probability: Callable[[], arb]) -> Fraction:
    r"""The largest multiple of 1/GRID that is proven to be at most ``probability``."""
    return Fraction(math.floor(narrow(probability, 96).lower * GRID), GRID)


def rounded_up(probability: Callable[[], arb]) -> Fraction:
    r"""The least multiple of 1/GRID that is proven to be at least ``probability``."""
    return Fraction(math.ceil(narrow(probability, 96).upper * GRID), GRID)


def flip(probability: Fraction, count: int, rng: Rng) -> Flags:
    r"""``count`` independent coins with heads at ``probability``, a multiple of 1/GRID below 1.

    A byte decides unless it equals the first byte of the probability; 24 more bits decide then.
    """
    threshold = int(probability * GRID)
    first, rest = threshold >> 24, threshold & 0xFFFFFF
    words = rng.words(-(-count // 8))
    drawn = words.astype("<u8", copy=False).view(np.uint8)[:count]
    heads: Flags = drawn < first
    if rest:
        ties = np.flatnonzero(drawn == first)
        heads[ties] = (rng.words(len(ties)) >> np.uint64(40)) < rest
    return heads


def below(bound: int, count: int, rng: Rng) -> Integers:
    r"""``count`` independent integers, uniform on [0, bound), for a bound of at most 2^32.

    The high half of a product of 32 random bits with the bound, where the low half is not among
    the 2^32 mod bound values that would make some integers likelier (Lemire 2019).
    """
    words = rng.words(-(-count // 2)).astype("<u8", copy=False)
    products = words.view("<u4")[:count].astype(np.uint64) * np.uint64(bound)
    refused = GRID % bound
    if refused:
        low = products.astype(np.uint32)
        again = np.flatnonzero(low < refused)
        while len(again):
            fresh = (rng.words(len(again)) >> np.uint64(32)) * np.uint64(bound)
            products[again] = fresh
            again = again[fresh.astype(np.uint32) < refused]
    return (products >> np.uint64(32)).astype(np.int64)
