r"""Enclosures of a pair's curve: the precision increases until the enclosure is narrow enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import partial
from typing import Final

from flint import arb

from accounting.pairs.ball_arithmetic import as_ball
from accounting.pairs.pair import ClosedPair
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import Enclosure, End, ball, precision

MOST_BITS: Final = 1 << 15
"""The largest number of bits of relative width for a curve."""

_BITS: Final = 64
_TRIES: Final = 4
_DOUBLINGS: Final = 512
_UNSURE: Final = 8


def enclose_delta(pair: ClosedPair, epsilon: Fraction, bits: int) -> Enclosure:
    r"""The hockey-stick divergence of one pair at ``epsilon`` >= 0, to a width of 2^-bits."""
    return within(narrowed(partial(pair.delta, epsilon), bits), Fraction(0), Fraction(1))


def enclose_epsilon(pair: ClosedPair, delta: Fraction, bits: int) -> Enclosure:
    r"""The epsilon at ``delta`` in (0, 1), to a relative width of 2^-bits.

    If epsilon is positive and below 2^-bits times the smallest positive loss, the width is relative
    to that loss instead.
    """
    for working in (_BITS, 2 * _BITS, 8 * _BITS):
        with precision(working):
            guess = pair.guess(delta)
            smallest = Enclosure.of(as_ball(pair.smallest_loss())).lower
        if guess is not None:
            break
    negligible = Fraction(smallest) / 2**bits if 0 < smallest < math.inf else Fraction(0)
    found = narrowed(lambda: pair.epsilon(delta, guess), bits, negligible)
    return within(found, Fraction(0), math.inf)


def narrowed(
    compute: Callable[[], arb], bits: int, negligible: Fraction = Fraction(0)
) -> Enclosure:
    r"""Evaluate like ``dpcore.numbers.enclosure.narrow``, with two differences.

    The precision increases by the missing bits, and a value below ``negligible`` is narrow enough.
    Raises :class:`PrecisionExhausted` if no precision suffices.
    """
    working = bits + 32
    while working <= MOST_BITS + 64 * bits:
        with precision(working):
            value = compute()
            found = math.inf if value.is_exact() else value.rel_accuracy_bits()
            if not value.is_nan() and (found >= bits or abs(value) <= ball(negligible)):
                return Enclosure.of(value)
        missing = bits - found if value.is_finite() and found > 0 else working
        working += max(int(missing), 0) + 16
    raise PrecisionExhausted(f"no enclosure of relative width 2^-{bits} within {working} bits")


def largest(found: Iterable[Enclosure]) -> Enclosure:
    r"""The largest of the enclosed numbers; the others are not computed once one is infinite."""
    kept: list[Enclosure] = []
    for each in found:
        if each.lower == math.inf:
            return each
        kept.append(each)
    return Enclosure(max(each.lower for each in kept), max(each.upper for each in kept))


def within(found: Enclosure, least: End, most: End) -> Enclosure:
    r"""The intersection of ``found`` with a range that is known to contain the true value."""
    return Enclosure(max(found.lower, least), min(found.upper, most))


def inverse(curve: Callable[[arb], arb], delta: Fraction, bits: int) -> Enclosure:
    r"""The epsilon at 0 < ``delta`` < 1 of a decreasing ``curve``, to a relative width of 2^-bits.

    The method is bisection: only certified comparisons move an end. The result is wider where the
    curve is flat at ``delta``. Raises :class:`PrecisionExhausted` if no comparison is certified.
    """
    for attempt in range(_TRIES):
        with precision(2 * bits + 64 << attempt):
            found = _bracketed(curve, ball(delta), bits, last=attempt == _TRIES - 1)
        if found is not None:
            return found
    raise PrecisionExhausted(f"no epsilon at delta = {delta} was certified: use more noise")


def _bracketed(
    curve: Callable[[arb], arb], goal: arb, bits: int, *, last: bool
) -> Enclosure | None:
    # None if a comparison is uncertain; in the last attempt, each end instead moves only as far as
    # its comparison is certain.
    if curve(arb(0)) <= goal:
        return Enclosure.exactly(0)
    low, high, unsure = arb(0), arb(1), 0
    for _ in range(_DOUBLINGS):
        value = curve(high)
        if value <= goal:
            break
        unsure += not value >= goal
        if unsure > (_UNSURE if last else 0):
            return None
        low, high = (high if value >= goal else low), 2 * high
    else:
        return None
    while not high - low <= high * arb(2) ** -bits:
        middle = ((low + high) / 2).mid()
        value = curve(middle)
        if value >= goal:
            low = middle
        elif value <= goal:
            high = middle
        elif last:
            low = moved(low, middle, lambda x: curve(x) >= goal, bits)
            high = moved(high, middle, lambda x: curve(x) <= goal, bits)
            break
        else:
            return None
    return Enclosure.of(low.union(high))


def moved(end: arb, towards: arb, certain: Callable[[arb], object], times: int) -> arb:
    r"""Move ``end``, where ``certain`` holds, towards ``towards`` by halving while it holds."""
    for _ in range(times):
        middle = ((end + towards) / 2).mid()
        end, towards = (middle, towards) if certain(middle) else (end, middle)
    return end


def joined(best: Enclosure, found: Enclosure, side: int) -> Enclosure:
    r"""The best ends of two enclosures from discretised losses on one ``side`` of the true loss.

    If ``side`` is 1 (above) or -1 (below), only the end on that side bounds the true value; the
    other is that of the last law, or of the previous one if the last one is worse. If it is 0, both
    contain the true value, and this is the intersection.
    """
    if not side:
        return within(best, found.lower, found.upper)
    if side > 0:
        upper, lower = min(best.upper, found.upper), max(found.lower, Fraction(0))
        return Enclosure(lower if lower <= upper else best.lower, upper)
    lower = max(best.lower, found.lower)
    return Enclosure(lower, found.upper if found.upper >= lower else best.upper)


def better(one: Enclosure, two: Enclosure, side: int, relative: Fraction) -> Enclosure:
    r"""The better of two enclosures of numbers on the same side of the true value.

    The numbers are upper bounds if ``side`` is 1, lower bounds if it is -1, and equal to the true
    value if it is 0; then this is the intersection. If both agree on this side to the ``relative``
    width, the other end is that of the narrower one.
    """
    if side == 0:
        return within(one, two.lower, two.upper)
    if side > 0:
        best, other = sorted((one, two), key=lambda each: (each.upper, -each.lower))
        near = other.upper < math.inf and other.upper - best.upper <= relative * other.upper
        low = max(best.lower, other.lower)
        return Enclosure(low, best.upper) if near and low <= best.upper else best
    best, other = sorted((one, two), key=lambda each: (-each.lower, each.upper))
    near = best.lower < math.inf and best.lower - other.lower <= relative * best.lower
    high = min(best.upper, other.upper)
    return Enclosure(best.lower, high) if near and high >= best.lower else best
