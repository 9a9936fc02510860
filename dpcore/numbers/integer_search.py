r"""Search the integers for the first one that a certified predicate accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dpcore.errors import PrecisionExhausted

_DOUBLINGS: Final = 1 << 16


def least(holds: Callable[[int], bool], near: int) -> int:
    r"""The least m with holds(m), for a predicate that is false up to some m and true from there.

    Steps double away from ``near`` and then halve: about 2 log2 of the distance calls.

    >>> least(lambda m: m * m >= 50 and m > 0, 3)
    8

    Raises :class:`PrecisionExhausted` when no such m lies within 2^65536 of ``near``.
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
        raise PrecisionExhausted("a search left every range in which an answer is of use")
