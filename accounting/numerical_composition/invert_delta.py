r"""Invert delta(epsilon): floats propose two points, and proven bounds of the sum decide.

delta is non-increasing: lower(a) >= delta gives a <= epsilon(delta), and upper(b) <= delta gives
epsilon(delta) <= b. Proofs: docs/proofs/total_loss.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final, Protocol

from flint import arb

from accounting.numerical_composition.contour_sum import Window
from dpcore.numbers.enclosure import Enclosure, End, round_down

_STEPS: Final = 60
_LEAP: Final = 16
_NUDGE: Final = 2.0**-46
_NUDGES: Final = 50
_GROWTH: Final = 4
_BLURRED: Final = 2.0**-10


class CurveSum(Protocol):
    r"""Proven bounds on a curve, from sums near one point of it."""

    @property
    def window(self) -> Window:
        r"""The place of the sums: its epsilon and tilt direct the search."""
        ...

    def bounds(self, epsilon: Fraction) -> tuple[arb, arb]:
        r"""The (lower, upper) bounds at ``epsilon``."""
        ...

    def logarithm(self, epsilon: float, *, upper: bool) -> tuple[float, float]:
        r"""The approximate log of a bound and its derivative."""
        ...


def epsilon_between(total: CurveSum, goal: arb, largest: End) -> Enclosure:
    r"""An enclosure of the epsilon >= 0 at which E[(1 - e^(epsilon - L))+; L < oo] = ``goal`` > 0.

    It is 0 if the curve at 0 is below ``goal``. ``largest`` >= 0 is a known upper bound; the lower
    bound is 0 if no better one is certified.
    """
    most = round_down(largest)
    start = min(max(total.window.epsilon, 0.0), most)
    high = _proposed(total, goal, (start, most), upper=True)
    if high * total.window.tilt <= _NUDGE:
        high = 0.0
    # The lower bound dips at every atom, so its last crossing is sought from above.
    low = _proposed(total, goal, (high, most), upper=False)
    scale = 1 / total.window.tilt
    upper = _first(lambda b: total.bounds(b)[1] <= goal, high, scale, largest)
    if upper == 0:
        return Enclosure.exactly(0)
    lower = _first(lambda a: total.bounds(a)[0] >= goal, low, -scale, Fraction(0))
    return Enclosure(lower, upper)


def _proposed(total: CurveSum, goal: arb, place: tuple[float, float], *, upper: bool) -> float:
    # Newton's method on log delta, and a second time with the error of the bound at that point.
    target = float(goal.log())
    near = _newton(total, target, place, upper=upper)
    bound, log = total.bounds(Fraction(near))[1 if upper else 0], total.logarithm(near, upper=upper)
    if not (bound > 0 and math.isfinite(log[0])):
        return near
    error = float(bound.log()) - log[0]
    return _newton(total, target - error, (near, place[1]), upper=upper)


def _newton(total: CurveSum, target: float, place: tuple[float, float], *, upper: bool) -> float:
    # Newton's method within a bracket, since a step from a plateau of the curve may lead anywhere.
    near, high = place
    low, leap = 0.0, _LEAP / total.window.tilt
    close = _NUDGE * max(near, 1 / total.window.tilt)
    for _ in range(_STEPS):
        log, slope = total.logarithm(near, upper=upper)
        # Far from the saddle point the sum is mostly error: move towards the saddle point.
        lost = not math.isfinite(log)
        right = near < total.window.epsilon if lost else log > target
        low, high = (near, high) if right else (low, near)
        step = math.nan if lost or slope >= 0 else (target - log) / slope
        if abs(step) <= close:
            return min(max(near + step, low), high)
        # Where the sum is mostly error, its position need not be precise.
        if high - low <= (_BLURRED / total.window.tilt if lost else close):
            break
        near += step
        if not (low < near < high and abs(step) <= leap):
            near = (low + high) / 2 if high < math.inf else low + leap
    return min(high, near + leap) if upper else low


def _first(certified: Callable[[Fraction], bool], start: float, scale: float, last: End) -> End:
    # The first certified point from `start` in the direction of `scale`, by growing steps;
    # otherwise `last`, which needs no certificate.
    point, step = Fraction(start), Fraction(scale * _NUDGE)
    for _ in range(_NUDGES):
        if (last - point) * step <= 0:
            return last
        if certified(point):
            return point
        point += step
        step *= _GROWTH
    return last
