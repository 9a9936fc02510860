r"""epsilon from delta: the inverse of a falling curve that is computed in balls."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Final

from flint import arb

from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import Enclosure, ball, precision

__all__ = ["inverse"]

_TRIES: Final = 4
_DOUBLINGS: Final = 512


def inverse(curve: Callable[[arb], arb], delta: Fraction, bits: int) -> Enclosure:
    r"""epsilon at 0 < ``delta`` < 1 of a ``curve`` that falls, to a relative width of 2^-bits.

    By halving: only certain comparisons move an end. Raises :class:`PrecisionExhausted` where none
    is certain.
    """
    for working in (2 * bits + 64 << attempt for attempt in range(_TRIES)):
        with precision(working):
            found = _bracketed(curve, ball(delta), bits)
        if found is not None:
            return found
    raise PrecisionExhausted(f"no epsilon at delta = {delta} was certified: take more noise")


def _bracketed(curve: Callable[[arb], arb], goal: arb, bits: int) -> Enclosure | None:
    if curve(arb(0)) <= goal:
        return Enclosure.exactly(0)
    low, high = arb(0), arb(1)
    for _ in range(_DOUBLINGS):
        if curve(high) <= goal:
            break
        if not curve(high) >= goal:
            return None
        low, high = high, 2 * high
    else:
        return None
    while not high - low <= high * arb(2) ** -bits:
        middle = ((low + high) / 2).mid()
        value = curve(middle)
        if value >= goal:
            low = middle
        elif value <= goal:
            high = middle
        else:
            return None
    return Enclosure.of(low.union(high))
