r"""Exact ceilings of irrational numbers: no float decides them."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from flint import arb

from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import precision

_START: Final = 96
_MOST_BITS: Final = 1 << 16


def ceil_sqrt(squared: Fraction) -> int:
    r"""The least integer k with k^2 >= ``squared``.

    >>> ceil_sqrt(Fraction(16)), ceil_sqrt(Fraction(33, 2))
    (4, 5)
    """
    # k^2 is an integer, so it is >= squared when it is >= its ceiling.
    least = math.ceil(squared)
    root = math.isqrt(least)
    return root if root * root == least else root + 1


def ceiling(compute: Callable[[], arb]) -> int:
    r"""The least integer >= an irrational number, from balls of rising precision.

    >>> ceiling(lambda: arb(2).sqrt())
    2

    Raises :class:`PrecisionExhausted` for a number that 2^16 bits do not tell from an integer.
    """
    bits = _START
    while bits <= _MOST_BITS:
        with precision(bits):
            found = compute().ceil().unique_fmpz()
        if found is not None:
            return int(found)
        bits *= 2
    raise PrecisionExhausted(f"a ceiling is not decided by {_MOST_BITS} bits")
