r"""Certified integers: the smallest integer that satisfies a predicate, and ceilings of reals."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from flint import arb

from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import precision

_DOUBLINGS: Final = 1 << 16


def least(holds: Callable[[int], bool], near: int) -> int:
    r"""The smallest m with holds(m), for a predicate that stays true for all larger integers.

    The search starts at ``near``, doubles its step and then bisects. It makes about 2 log2(d)
    calls, where d is the distance of the result from ``near``.
    """
    low, high, step = near - 1, near, 1
    while not holds(high):
        low, high, step = high, high + step, 2 * step
        _check(step)
    step = 1
    while low == near - 1 and holds(low):
        high, low, step = low, low - step, 2 * step
        near = low + 1
        _check(step)
    while high - low > 1:
        center = (low + high) // 2
        low, high = (low, center) if holds(center) else (center, high)
    return high


def _check(step: int) -> None:
    if step.bit_length() > _DOUBLINGS:
        raise PrecisionExhausted(f"the search found no integer within 2^{_DOUBLINGS} of its start")


_START: Final = 96
_MOST_BITS: Final = 1 << 16


def ceil_sqrt(squared: Fraction) -> int:
    r"""The smallest integer k >= 0 with k^2 >= ``squared``."""
    # k^2 is an integer, so k^2 >= squared iff k^2 > ceil(squared) - 1.
    below = math.ceil(squared) - 1
    return math.isqrt(below) + 1 if below >= 0 else 0


def ceiling(compute: Callable[[], arb]) -> int:
    r"""The ceiling of an irrational number, from balls of increasing precision."""
    bits = _START
    while bits <= _MOST_BITS:
        with precision(bits):
            found = compute().ceil().unique_fmpz()
        if found is not None:
            return int(found)
        bits *= 2
    raise PrecisionExhausted(f"{_MOST_BITS} bits of precision do not determine the ceiling")
