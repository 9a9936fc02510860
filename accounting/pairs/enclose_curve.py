r"""Enclosures of privacy curves, of their inverses, and of the supremum of D_alpha/alpha.

The precision increases until an enclosure is narrow enough. The supremum of D_alpha/alpha over
alpha > 1 (the zCDP parameter) is found by branch and bound, where D_alpha is the Renyi divergence.
K(alpha) = (alpha - 1) D_alpha is convex with K(1) = 0, so on an interval [a, b] of orders K lies
below the line l through its values at a and b. This gives the upper bound

    D_alpha/alpha <= l(alpha)/(alpha (alpha - 1)) = |l(0)|/alpha - |l(1)|/(alpha - 1).

The right side has one maximum, (sqrt|l(0)| - sqrt|l(1)|)^2, at alpha = r/(r - 1) with r =
sqrt(l(0)/l(1)). For orders below the smallest evaluated order s, the upper bound is D_s. For orders
above the largest evaluated order t, the upper bound is D_oo/t, where D_oo is the largest loss; some
noise laws have another bound, for example because D_oo is infinite. Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import reduce
from typing import Final, TypeAlias

from flint import arb

from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import Enclosure, End, ball, precision

BEYOND_FLOATS: Final = (
    "a parameter or a privacy loss is outside the range of floats (1e-308 to 1e308): use less "
    "extreme numbers"
)
r"""The error message for numbers outside the range of floats."""

_MOST_EXPONENT: Final = 1 << 24  # fractions with this many bits are already slow
MOST_BITS: Final = 1 << 15
"""The largest number of bits of relative width for a curve."""

_TRIES: Final = 4
_DOUBLINGS: Final = 512
_UNSURE: Final = 8
_ORDER_BITS: Final = 192
_EVALUATIONS: Final = 20_000
_MOST_ORDERS: Final = 1 << 12  # larger than any order that parameters within floats need


def as_ball(value: Fraction | arb) -> arb:
    r"""Convert an exact number to a ball; a ball is returned unchanged."""
    return ball(value) if isinstance(value, Fraction) else value


def hull(values: Iterable[arb]) -> arb:
    r"""A ball that contains every number in ``values``.

    >>> 1 in hull([arb(0), arb(2)]), arb(3) in hull([arb(0), arb(2)])
    (True, False)
    """
    return reduce(arb.union, values)


def middle(value: arb) -> Fraction:
    r"""The midpoint of a finite ball as an exact number, or 0 if it is very small.

    It is used only in searches, never for reported values. Raises :class:`PrecisionExhausted` if
    the value is very large.

    >>> middle(arb("0.5"))
    Fraction(1, 2)
    """
    mantissa, exponent = (int(part) for part in value.mid().man_exp())
    if exponent < -_MOST_EXPONENT:
        return Fraction(0)
    if exponent > _MOST_EXPONENT:
        raise PrecisionExhausted(BEYOND_FLOATS)
    return Fraction(mantissa << exponent) if exponent >= 0 else Fraction(mantissa, 1 << -exponent)


def narrowed(
    compute: Callable[[], arb], bits: int, negligible: Fraction = Fraction(0)
) -> Enclosure:
    r"""An enclosure of the number that ``compute()`` returns, to a relative width of 2^-bits.

    ``compute`` is repeated at increasing precision. Unlike in ``dpcore.numbers.enclosure.narrow``,
    the precision increases by the number of missing bits, and an absolute value of at most
    ``negligible`` is accepted at any width. Raises :class:`PrecisionExhausted` if no precision
    suffices.
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
    r"""An enclosure of the largest of several enclosed numbers."""
    kept: list[Enclosure] = []
    for each in found:
        if each.lower == math.inf:
            return each
        kept.append(each)
    return Enclosure(max(each.lower for each in kept), max(each.upper for each in kept))


def within(found: Enclosure, least: End, most: End) -> Enclosure:
    r"""Narrow the enclosure ``found`` by the bounds ``least`` and ``most`` on the true value."""
    return Enclosure(max(found.lower, least), min(found.upper, most))


def inverse(curve: Callable[[arb], arb], delta: Fraction, bits: int) -> Enclosure:
    r"""The least epsilon >= 0 at which a decreasing ``curve`` is at most ``delta`` in (0, 1).

    The relative width is 2^-bits, or more where the curve is flat. The method is bisection, in
    which only certified comparisons move an end. Raises :class:`PrecisionExhausted` if no
    comparison is certified.
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
    r"""Bisect from ``end`` to ``towards``, and return the last point where ``certain`` holds."""
    for _ in range(times):
        middle = ((end + towards) / 2).mid()
        end, towards = (middle, towards) if certain(middle) else (end, middle)
    return end


def joined(best: Enclosure, found: Enclosure, side: int) -> Enclosure:
    r"""Combine two enclosures of the same result for two discretisations of a privacy loss.

    ``side`` states what the enclosures prove about the true value.

    - 0: both enclosures contain it. The result is their intersection.
    - 1 (both discretisations are pessimistic): both upper ends are upper bounds on it. The result
      has the smaller upper end, and the lower end of ``found``, or that of ``best`` if ``found``
      lies above the result.
    - -1 (both are optimistic): as for 1, with upper and lower exchanged.
    """
    if not side:
        return within(best, found.lower, found.upper)
    if side < 0:
        return _mirrored(joined(_mirrored(best), _mirrored(found), 1))
    upper = min(best.upper, found.upper)
    return Enclosure(found.lower if found.lower <= upper else best.lower, upper)


def better(one: Enclosure, two: Enclosure, side: int, relative: Fraction) -> Enclosure:
    r"""The better of two bounds on the same true value, each given as an enclosure of the bound.

    - ``side`` 0: both enclosures contain the true value. The result is their intersection.
    - ``side`` 1: both are upper bounds. The result is the enclosure with the smaller upper end; if
      the upper ends agree to the ``relative`` width, it has the larger lower end.
    - ``side`` -1: both are lower bounds. The result is as for 1, with upper and lower exchanged.
    """
    if not side:
        return within(one, two.lower, two.upper)
    if side < 0:
        return _mirrored(better(_mirrored(one), _mirrored(two), 1, relative))
    best, other = sorted((one, two), key=lambda each: (each.upper, -each.lower))
    size = max(other.upper, -best.upper)
    near = size < math.inf and other.upper - best.upper <= relative * size
    low = max(best.lower, other.lower)
    return Enclosure(low, best.upper) if near and low <= best.upper else best


def _mirrored(found: Enclosure) -> Enclosure:
    return Enclosure(-found.upper, -found.lower)


_Interval: TypeAlias = tuple[Fraction, Fraction, Fraction, arb, arb]
"""(-bound, low, high, D_low, D_high): the heap returns the interval with the largest bound."""


def supremum_over_orders(
    divergence: Callable[[Fraction], Fraction | arb],
    beyond: Callable[[Fraction], Fraction | arb],
    *,
    known: Fraction = Fraction(0),
    tolerance: Fraction = Fraction(1, 10**6),
) -> Enclosure:
    r"""The supremum of D_alpha/alpha over alpha > 1, to a relative width of ``tolerance``.

    ``divergence(alpha)`` is the Renyi divergence D_alpha. ``beyond(a)`` is an upper bound on
    D_alpha/alpha for all alpha >= a. ``known`` is a lower bound on the supremum. ``beyond`` must
    decrease to the supremum or below, because the search examines ever larger orders until it does;
    it raises :class:`PrecisionExhausted` after 4,096 doublings.

    >>> found = supremum_over_orders(lambda a: a / 8, lambda a: 4 / a, tolerance=Fraction(1, 9))
    >>> Fraction(1, 8) in found
    True
    """
    with precision(_ORDER_BITS):
        low = 1 + tolerance / 4
        at_low = as_ball(divergence(low))
        best = max(known, _lower(at_low / ball(low)))
        # For orders below `low`, D_alpha/alpha <= D_low.
        ceiling = _upper(at_low)
        heap: list[_Interval] = []
        while (rest := Enclosure.of(as_ball(beyond(low))).upper) > best * (1 + tolerance):
            if len(heap) == _MOST_ORDERS:
                raise PrecisionExhausted("no bound on the orders above the largest one suffices")
            high = 1 + 2 * (low - 1)
            at_high = as_ball(divergence(high))
            best = max(best, _lower(at_high / ball(high)))
            heapq.heappush(heap, _interval(low, high, at_low, at_high))
            low, at_low = high, at_high
        ceiling = max(ceiling, Fraction(rest))
        if not heap:
            return Enclosure(best, max(best, ceiling))
        for _ in range(_EVALUATIONS):
            if -heap[0][0] <= max(best * (1 + tolerance), ceiling):
                break
            _, low, high, at_low, at_high = heapq.heappop(heap)
            center = (low + high) / 2
            at_center = as_ball(divergence(center))
            best = max(best, _lower(at_center / ball(center)))
            heapq.heappush(heap, _interval(low, center, at_low, at_center))
            heapq.heappush(heap, _interval(center, high, at_center, at_high))
        return Enclosure(best, max(ceiling, -heap[0][0]))


def _interval(low: Fraction, high: Fraction, at_low: arb, at_high: arb) -> _Interval:
    bound = _chord_bound(ball(low), ball(high), at_low, at_high)
    return -_upper(bound), low, high, at_low, at_high


def _chord_bound(low: arb, high: arb, at_low: arb, at_high: arb) -> arb:
    # The maximum over [low, high] of the chord of K divided by alpha (alpha - 1).
    ends = (at_low / low).max(at_high / high)
    left, right = (low - 1) * at_low, (high - 1) * at_high
    slope = (right - left) / (high - low)
    zero, one = low * slope - left, left - (low - 1) * slope
    # zero = -l(0) >= 0 >= l(1) = one, up to the radii of the balls.
    root_zero, root_one = zero.max(arb(0)).sqrt(), (-one).max(arb(0)).sqrt()
    peak = root_zero / (root_zero - root_one)
    if peak < low or peak > high:
        return ends
    return ends.max((root_zero - root_one) ** 2)


def _lower(value: arb) -> Fraction:
    end = Enclosure.of(value).lower
    return Fraction(0) if end == -math.inf else Fraction(end)


def _upper(value: arb) -> Fraction:
    return Fraction(Enclosure.of(value).upper)
