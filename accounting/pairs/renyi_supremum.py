r"""The supremum of D_alpha/alpha over all real orders, by branch and bound.

K(alpha) = (alpha - 1) D_alpha is convex with K(1) = 0. So on an interval of orders [a, b] K lies
below its chord l, and l(alpha)/(alpha(alpha-1)) = |l(0)|/alpha - |l(1)|/(alpha-1) has one maximum,
(sqrt|l(0)| - sqrt|l(1)|)^2 at alpha* = r/(r-1), r = sqrt(l(0)/l(1)). Below the smallest order b
tried D_b is an upper bound; above the largest order it is D_oo/b, or a bound from the law. Proofs:
docs/proofs/curve.md.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from flint import arb

from accounting.pairs.ball_arithmetic import as_ball
from dpcore.numbers.enclosure import Enclosure, ball, precision

_BITS: Final = 192
_EVALUATIONS: Final = 20_000


@dataclass(order=True, slots=True)
class _Interval:
    # Ordered by the negated bound: the heap returns the interval with the largest bound.
    key: Fraction
    low: Fraction = field(compare=False)
    high: Fraction = field(compare=False)
    at_low: arb = field(compare=False)
    at_high: arb = field(compare=False)


def supremum_over_orders(
    divergence: Callable[[Fraction], Fraction | arb],
    beyond: Callable[[Fraction], Fraction | arb],
    *,
    known: Fraction = Fraction(0),
    tolerance: Fraction = Fraction(1, 10**6),
) -> Enclosure:
    r"""The supremum of D_alpha/alpha over alpha > 1, to a relative width of ``tolerance``.

    ``divergence(alpha)`` is D_alpha of a pair. ``beyond(a)`` bounds D_alpha/alpha for all alpha >=
    a, such as D_oo/a. ``known`` is a lower bound on the supremum. The enclosure is rigorous
    whenever the search stops; it reaches ``tolerance`` only if ``beyond`` decreases to the supremum
    or below.

    >>> found = supremum_over_orders(lambda a: a / 8, lambda a: 4 / a, tolerance=Fraction(1, 9))
    >>> Fraction(1, 8) in found
    True
    """
    with precision(_BITS):
        low = 1 + tolerance / 4
        at_low = as_ball(divergence(low))
        best = max(known, _lower(at_low / ball(low)))
        # For orders close to 1, D_alpha/alpha <= D_b.
        ceiling = _upper(at_low)
        heap: list[_Interval] = []
        while (rest := Enclosure.of(as_ball(beyond(low))).upper) > best * (1 + tolerance):
            high = 1 + 2 * (low - 1)
            at_high = as_ball(divergence(high))
            best = max(best, _lower(at_high / ball(high)))
            heapq.heappush(heap, _interval(low, high, at_low, at_high))
            low, at_low = high, at_high
        ceiling = max(ceiling, Fraction(rest))
        if not heap:
            return Enclosure(best, max(best, ceiling))
        for _ in range(_EVALUATIONS):
            if -heap[0].key <= max(best * (1 + tolerance), ceiling):
                break
            widest = heapq.heappop(heap)
            center = (widest.low + widest.high) / 2
            at_center = as_ball(divergence(center))
            best = max(best, _lower(at_center / ball(center)))
            heapq.heappush(heap, _interval(widest.low, center, widest.at_low, at_center))
            heapq.heappush(heap, _interval(center, widest.high, at_center, widest.at_high))
        return Enclosure(best, max(ceiling, -heap[0].key))


def _interval(low: Fraction, high: Fraction, at_low: arb, at_high: arb) -> _Interval:
    bound = _chord_bound(ball(low), ball(high), at_low, at_high)
    return _Interval(-_upper(bound), low, high, at_low, at_high)


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
