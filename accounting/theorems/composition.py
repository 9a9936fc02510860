r"""Advanced composition: many equal rounds of one curve, in closed form.

``accounting.totals.compose`` composes claims and curves exactly; this bound stands beside it where
composition theorems are compared (``accounting.budget.returning.routes``). Proofs:
docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from accounting.claims.bound import Bound
from accounting.claims.orders import rounded_up
from dpcore.numbers.enclosure import Enclosure, End, ball, precision
from dpcore.numbers.parameter import RationalLike, integer, rational_in

__all__ = ["advanced_over_splits"]

_BITS: Final = 192
_LARGEST: Final = 1 << 8192
_ADVANCED: Final = "Dwork, Rothblum and Vadhan 2010, Theorem III.3"


def advanced_over_splits(
    epsilon_of: Callable[[Fraction], End], rounds: int, delta: RationalLike
) -> Bound:
    r"""Advanced composition of k rounds of one curve, the least over delta = k d + slack.

    ``epsilon_of(d)`` is an upper bound of a round's epsilon at d, infinite where there is none.
    Every split gives a true bound; a search in floats proposes them.

    >>> advanced_over_splits(lambda d: Fraction(1, 20), 1000, "1e-6").upper_float
    10.87...

    Raises :class:`InvalidParameter` for a delta outside (0, 1).
    """
    k, total = integer("rounds", rounds, at_least=1), rational_in("delta", delta, "(0, 1)")

    def at(place: float) -> End:
        # Splits slack : k d = 1 : e^place; the floats decide which split, nothing else.
        slack = total * Fraction(1 / (1 + math.exp(place)))
        return _forward(epsilon_of((total - slack) / k), k, slack)

    places = [float(place) for place in range(-12, 13, 3)]
    start = min(places, key=at)
    found, step = at(start), 1.5
    for _ in range(12):
        for place in (start - step, start + step):
            if (other := at(place)) < found:
                start, found = place, other
        step /= 2
    found = min(found, _forward(epsilon_of(Fraction(0)), k, total))
    return Bound(upper=found, method="advanced", theorem=_ADVANCED)


def _forward(epsilon: End, rounds: int, slack: Fraction) -> End:
    # e sqrt(2k log(1/slack)) + k e (e^e - 1), rounded up.
    if not isinstance(epsilon, Fraction):
        return math.inf
    with precision(_BITS):
        each = ball(epsilon)
        spread = (2 * rounds * -ball(slack).log()).sqrt()
        total = rounded_up(Enclosure.of(each * spread + rounds * each * each.expm1()).upper)
    # Beyond this a claim could not be written out.
    return total if total < _LARGEST else math.inf
