r"""Trade-off functions of f-DP: lower bounds on the type II error of tests with type I error alpha.

Each (epsilon, delta) of a curve gives a bound (Dong, Roth and Su 2022, Proposition 2.5), and a
search chooses the best one. The exact trade-off function of derived guarantees is computed by
``accounting.privacy_curves``. Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Final

from dpcore.numbers.enclosure import Enclosure, End, ball, precision

_BITS: Final = 192
_GOLDEN: Final = (math.sqrt(5) - 1) / 2
_FAR: Final = 128.0
_PLACES: Final = (0.0, *(2.0**k for k in range(-5, 8)))
_STEPS: Final = 16
_NEGLIGIBLE: Final = Fraction(1, 1 << 40)


def approx_tradeoff(epsilon: Fraction, delta: Fraction, alpha: Fraction) -> Fraction:
    r"""The trade-off function of (``epsilon``, ``delta``)-DP at ``alpha``, rounded down.

    It is max(0, 1 - delta - e^epsilon alpha, e^-epsilon (1 - delta - alpha)).
    """
    kept = 1 - delta
    with precision(_BITS):
        factor = ball(epsilon).exp()
        if not factor.is_finite():
            return Fraction(0)
        ends = (ball(kept) - factor * ball(alpha), ball(kept - alpha) / factor)
        lowest = [Enclosure.of(end).lower for end in ends]
        return max(Fraction(0), *(Fraction(end) for end in lowest if end > -math.inf))


def curve_tradeoff(delta: Callable[[Fraction], Fraction], alpha: Fraction) -> Fraction:
    r"""A lower bound on the trade-off function of the privacy curve ``delta`` at ``alpha``."""
    # Both branches of a line are concave, one in e^epsilon and one in e^-epsilon, so each rises and
    # then falls in epsilon; their maximum may have two local maxima. Both neighbourhoods are tried.
    near: list[tuple[float, Fraction]] = [(math.inf, Fraction(0))]

    def delta_at(place: float) -> Fraction:
        # delta decreases in epsilon: a negligible delta is reused at every larger epsilon.
        if place >= near[0][0]:
            return near[0][1]
        found = delta(Fraction(place))
        if found <= _NEGLIGIBLE:
            near[0] = (place, found)
        return found

    @cache
    def known(place: float) -> Fraction:
        return approx_tradeoff(Fraction(place), delta_at(place), alpha)

    best = max(known(place) for place in _PLACES)
    hills = [
        (low, high)
        for low, here, high in zip((0.0, *_PLACES), _PLACES, (*_PLACES[1:], _FAR), strict=False)
        if known(here) >= max(known(low), known(high)) and known(here) > 0
    ]
    for low, high in hills:
        best = max(best, Fraction(-golden(lambda place: -known(place), low, high, _STEPS)))
    return best


def golden(value: Callable[[float], End], low: float, high: float, steps: int) -> End:
    r"""The least ``value(x)`` that a golden-section search finds for x in [``low``, ``high``]."""
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = value(left), value(right)
    best = min(at_left, at_right)
    for _ in range(steps):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = value(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = value(right)
        best = min(best, at_left, at_right)
    return best
