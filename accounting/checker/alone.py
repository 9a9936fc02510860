r"""One round of a symmetric log-concave law: delta(epsilon) without listing its losses.

For such a law P(x)/Q(x), Q(x) = P(x + step), rises in x. So (P - e^epsilon Q)+ is summed over all
x beyond the place where it turns positive, which halving finds. Discrete Laplace needs no list:
with b = e^(-1/s) the loss is (step - 2x)/s with P-mass (1 - b)/(1 + b) b^x at x = 1, ..., step - 1,
and +-step/s beyond, so the sum is of two geometric series.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Final

from accounting.checker.clock import ticking
from accounting.checker.laws.law import Law, Unchecked
from accounting.checker.laws.masses import REAL, Number, effort, masses, reach, real
from accounting.checker.laws.value import Value

__all__ = ["deltas_of_one", "knows", "listed_values"]

_MOST_VALUES: Final = 1 << 18
_APART: Final = 32
_LISTED: Final = frozenset({"discrete-gaussian", "discrete-gaussian-sum", "skellam"})
_RELATIVE: Final = REAL.mpf(10) ** -40


def knows(law: Law) -> bool:
    r"""Whether the law is one of those that this file is for.

    >>> knows(Law("skellam", (Fraction(9),))), knows(Law("poisson", (Fraction(9),)))
    (True, False)
    """
    return law.name == "discrete-laplace" or law.name in _LISTED


def deltas_of_one(
    law: Law, step: int, epsilons: Sequence[Fraction], surprise: float
) -> list[Value]:
    r"""delta at each epsilon >= 0 of one round; a listing leaves out 2 e^-surprise at most.

    >>> law = Law("discrete-laplace", (Fraction(10),))
    >>> [found] = deltas_of_one(law, 1, [Fraction(0)], 50.0)
    >>> REAL.nstr(found.value, 12)
    '0.0499583749579'

    Raises :class:`Unchecked` where more than 2^18 values matter, and where what is found is no
    probability to within its error.
    """
    if law.name == "discrete-laplace":
        found = [_laplace(law.parameters[0], step, epsilon) for epsilon in epsilons]
    else:
        far = _rounded(surprise)
        around, beyond = _listing(law, step, far)
        found = [_beyond(around, beyond, step, epsilon, far) for epsilon in epsilons]
    for each in found:
        if not -each.error <= each.value <= 1 + each.error:
            raise Unchecked(f"{law.name}: its delta would be {REAL.nstr(each.value, 8)}")
    return found


def listed_values(law: Law, step: int, surprise: float) -> tuple[tuple[Law, int, float], int]:
    r"""Which listing :func:`deltas_of_one` makes of the law, and its effort.

    >>> listed_values(Law("discrete-gaussian", (Fraction(1),)), 2, 50.0)[1]
    31

    Raises :class:`Unchecked` where they are too many.
    """
    far = _rounded(surprise)
    if law.name == "discrete-laplace":
        return (law, step, far), 0
    low, high = reach(law, far, _MOST_VALUES)
    return (law, step, far), effort(law, high - low + 1 + 2 * step)


def _rounded(surprise: float) -> float:
    # Claims at deltas that are near to each other share one listing.
    return float(_APART * math.ceil(surprise / _APART))


@lru_cache(maxsize=1)
def _listing(law: Law, step: int, surprise: float) -> tuple[list[Number], list[Number]]:
    # The masses from ``step`` below the lowest place to ``step`` above the highest, and how much
    # lies at each of these places and beyond.
    low, high = reach(law, surprise, _MOST_VALUES)
    around = masses(law, low - step, high + step, 2 * _MOST_VALUES)
    beyond = [*accumulate(ticking(reversed(around)), initial=REAL.zero)]
    beyond.reverse()
    return around, beyond


def _beyond(
    around: list[Number], beyond: list[Number], step: int, epsilon: Fraction, surprise: float
) -> Value:
    # around[i] is P at i - step above the lowest place.
    factor = REAL.exp(real(epsilon))
    first, end = step, len(around) - step
    last = end
    while first < end:
        middle = (first + end) // 2
        if around[middle] > factor * around[middle + step]:
            end = middle
        else:
            first = middle + 1
    here = beyond[first] - beyond[last]
    there = factor * beyond[first + step]
    left_out = 2 * REAL.exp(-REAL.mpf(surprise))
    return Value(value=here - there, error=(here + there + beyond[last]) * _RELATIVE + left_out)


def _laplace(scale: Fraction, step: int, epsilon: Fraction) -> Value:
    if epsilon >= step / scale:
        return Value(value=REAL.zero, error=REAL.zero)
    # The losses beyond epsilon are those of x = 0, 1, ..., k.
    k = math.ceil((step - epsilon * scale) / 2) - 1
    beta, factor = REAL.exp(-1 / real(scale)), REAL.exp(real(epsilon))
    edge = -REAL.expm1(real(epsilon - step / scale))
    here = -beta * REAL.expm1(-real(k / scale))
    there = factor * REAL.exp(-real(step / scale)) * REAL.expm1(real(k / scale))
    value = (edge + here - there) / (1 + beta)
    return Value(value=value, error=(edge + here + there) * _RELATIVE)
