r"""Lists with noise on the reals: the contour integral, cut off where its terms are proven small.

A density makes \|E e^((c+iy)L)\| fall for good, so beyond some frequency a bound of all further
terms takes the place of an estimate. What one round of it is off by enters the error, times the
rounds. Proofs: docs/proofs/checker.md.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Final

from accounting.checker.clock import tick
from accounting.checker.laws.density import Density
from accounting.checker.laws.law import Unchecked
from accounting.checker.laws.value import Value, Wanted
from accounting.checker.sums.integral import integral
from accounting.checker.sums.tilt import Listed, Tilted, tilted

__all__ = ["smooth_integral"]

_MOST_WORK: Final = 20_000_000
_AHEAD: Final = 32
_FARTHER: Final = 1.25


def smooth_integral(listed: Listed, epsilons: Sequence[Fraction], wanted: Wanted) -> list[Value]:
    r"""delta at each epsilon of a list in which a law has a density, but for P(L = oo).

    Raises :class:`Unchecked` where that is out of reach of floats, or of some seconds.
    """
    return integral(listed, epsilons, wanted, partial(_terms, listed))


def _terms(
    listed: Listed,
    laws: list[Tilted],
    c: float,
    eta: float,
    drift: float,
    goal: float,
) -> tuple[list[tuple[complex, complex]], float]:
    # (z, summand) at every frequency up to the last, and the share of the rest and of what the
    # moments are off by.
    terms: list[tuple[complex, complex]] = []
    weight, bulk, work, j = c * (c + 1), 0.0, 0, 0
    reach, check, last = 0.0, _AHEAD * eta, 1.0
    while True:
        y = j * eta
        if y > reach:
            reach = max(2 * reach, check)
            laws = tilted(listed, c, reach)
            off = math.fsum(one.count * one.off for one in laws)
        if y >= check:
            ahead = 2 * weight / (y - eta) / bulk
            # The bound is no less than the last product.
            rest = last * ahead
            if rest < goal:
                rest = _beyond(listed, c, y, laws) * ahead
            if rest < goal:
                return terms, rest + off
            check *= _FARTHER
        tick()
        product = 1 + 0j
        for one in laws:
            product *= one.phi(y) ** one.count
        work += sum(len(one.weights) for one in laws)
        if work > _MOST_WORK:
            raise Unchecked("the loss is too uneven: too many frequencies matter")
        z = complex(c, y)
        doubled = 2 if j else 1
        last = abs(product)
        terms.append((z, product * cmath.exp(1j * y * drift) / (z * (z + 1)) * doubled))
        bulk += doubled * eta * weight * abs(product / (z * (z + 1)))
        j += 1


def _beyond(listed: Listed, c: float, y: float, laws: list[Tilted]) -> float:
    # The most that any product of characteristic functions beyond y comes to.
    moments = {one.law: one.log_moment for one in laws if one.law is not None}
    return math.prod(
        one.far(c, y, moments[one]) ** count for one, count in listed if isinstance(one, Density)
    )
