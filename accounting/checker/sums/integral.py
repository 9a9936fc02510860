r"""Any list: the contour integral of the total loss along Re z = c, in floats.

delta(epsilon) = (1/2 pi i) integral of M(z) e^(-z epsilon)/(z(z+1)) dz + P(L = oo), for any c > 0.
The trapezoid rule of step eta = 2 pi/T is exact up to sum over n != 0 of e^(cnT) delta(epsilon+nT).
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final, TypeAlias

from accounting.checker.laws.law import Unchecked
from accounting.checker.laws.masses import REAL
from accounting.checker.laws.value import Value, Wanted
from accounting.checker.sums.tilt import Listed, Tilted, best_tilt, echoes, scan, tilted

__all__ = ["Terms", "integral"]

Terms: TypeAlias = Callable[
    [list[Tilted], float, float, float, float], tuple[list[tuple[complex, complex]], float]
]
"""From laws, c, eta, drift and goal: the summands at z that count, and the share of the rest."""

_FLOAT: Final = 1e-15
_FINEST: Final = 1e-13
_FEW: Final = 4
_MOST_STEPS: Final = 1 << 26


def integral(
    listed: Listed,
    epsilons: Sequence[Fraction],
    wanted: Wanted,
    summands: Terms | None = None,
) -> list[Value]:
    r"""delta at each epsilon, but for P(L = oo); they are close to each other: one tilt serves all.

    Raises :class:`Unchecked` where that is out of reach of floats.
    """
    plain, least = [*listed], float(min(epsilons))
    c = best_tilt(plain, least)
    reached = wanted.relative + c * wanted.of_epsilon
    goal = max(reached / 4, _FINEST)
    laws = tilted(plain, c)
    level = sum(one.count * one.log_moment for one in laws) - c * least
    mean = sum(one.count * one.mean for one in laws) - least
    double = sum(one.count * one.log_moment for one in tilted(plain, 2 * c)) - 2 * c * least
    deviation = math.sqrt(sum(one.count * one.deviation**2 for one in laws))
    # delta is about M(c) e^(-c epsilon)/(c(c+1) sd) near the saddle.
    size = c * (c + 1) * (1 + deviation)
    span = (math.log(8 / goal * size) + max(double, 0.0) + max(-level, 0.0)) / c
    eta = 2 * math.pi / span
    terms, rest = (summands or _terms)(laws, c, eta, mean, goal)
    known = _FLOAT * sum(count for _, count in plain) + rest + goal
    if known > reached:
        raise Unchecked("the contour integral does not reach the digits of the claim")
    scale = REAL.exp(REAL.mpf(level)) * eta / (2 * REAL.pi)
    found = []
    for epsilon in epsilons:
        # e^(-z epsilon) is taken relative to the least epsilon, from which the others are not far.
        beyond = float(epsilon - min(epsilons))
        parts = [(term * cmath.exp(-z * beyond)).real for z, term in terms]
        spread = math.fsum(map(abs, parts))
        value, error = scale * math.fsum(parts), scale * spread * known
        found.append(Value(value=value, error=error))
    return found


def _terms(
    laws: list[Tilted], c: float, eta: float, drift: float, goal: float
) -> tuple[list[tuple[complex, complex]], float]:
    # (z, summand) at every frequency that matters, and the share of the rest: what the mean size
    # over the last half of what was seen, which spans the first echoes, makes of it, and two
    # whole echoes of the peak just beyond: few laws may beat, many do not coincide.
    terms: list[tuple[complex, complex]] = []
    sizes: list[tuple[float, float]] = []
    bulk, weight = 0.0, c * (c + 1)
    until = max(echoes(laws), 16 / min(one.deviation for one in laws))
    whole = 2 if len(laws) <= _FEW else 0
    for point in scan(laws, eta, _MOST_STEPS, goal * 1e-4, weight):
        y = point.j * eta
        if y > until:
            late = math.fsum(size for at, size in sizes if at > until / 2)
            rest = late / (until / 2) * weight / until * 2 / bulk + whole * weight / until**2
            if rest < goal:
                return terms, rest
            until = y * 1.25
        if not point.matters:
            continue
        z = complex(c, y)
        doubled = 2 if point.j else 1
        terms.append((z, point.product * cmath.exp(1j * y * drift) / (z * (z + 1)) * doubled))
        sizes.append((y, eta * abs(point.product)))
        bulk += doubled * eta * weight * abs(point.product / (z * (z + 1)))
    return terms, goal
