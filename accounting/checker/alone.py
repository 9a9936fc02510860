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
from typing import Final

from accounting.checker.laws import REAL, Law, masses, reach, real
from accounting.checker.value import Value

__all__ = ["deltas_of_one", "knows"]

_MOST_VALUES: Final = 1 << 18
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

    Raises :class:`Unchecked` where more than 2^18 values matter.
    """
    if law.name == "discrete-laplace":
        return [_laplace(law.parameters[0], step, epsilon) for epsilon in epsilons]
    low, high = reach(law, surprise, _MOST_VALUES)
    around = masses(law, low - step, high + step, 2 * _MOST_VALUES)
    return [_beyond(around, step, epsilon, surprise) for epsilon in epsilons]


def _beyond(around: list[object], step: int, epsilon: Fraction, surprise: float) -> Value:
    # around[i] is P at i - step above the lowest place.
    factor = REAL.exp(real(epsilon))
    first, end = step, len(around) - step
    while first < end:
        middle = (first + end) // 2
        if around[middle] > factor * around[middle + step]:
            end = middle
        else:
            first = middle + 1
    here = REAL.fsum(around[first : len(around) - step])
    there = factor * REAL.fsum(around[first + step :])
    error = (here + there) * _RELATIVE + 2 * REAL.exp(-REAL.mpf(surprise))
    return Value(value=here - there, error=error)


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
