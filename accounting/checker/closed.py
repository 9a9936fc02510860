r"""Noise on the reals in closed form: one round, sampled or not, and any unsampled Gaussian rounds.

The loss rises in the output, so delta is P minus e^epsilon Q beyond one threshold, in tails of the
law. In units of the shift: Q around 0, P around 1.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Final

from accounting.checker.clock import tick
from accounting.checker.laws.density import Density, chances
from accounting.checker.laws.masses import REAL, Number, real
from accounting.checker.laws.value import Value
from accounting.checker.sums.tilt import Listed

__all__ = ["closed_form", "delta_of"]

_RELATIVE: Final = REAL.mpf(10) ** -40
_HALVINGS: Final = 160


def closed_form(listed: Listed) -> Density | None:
    r"""The one round that the list comes to, if it has a closed form.

    Unsampled Gaussian rounds are one: the losses are normal, of variances 1/v that add.

    >>> one = Density(law="gaussian", size=Fraction(4), rate=Fraction(1), way="present")
    >>> closed_form([(one, 4)]).size
    Fraction(1, 1)
    """
    found = [(one, count) for one, count in listed if isinstance(one, Density)]
    if len(found) < len(listed):
        return None
    if all(one.law == "gaussian" and one.rate == 1 for one, _ in found):
        inverse = sum((count / one.size for one, count in found), Fraction(0))
        return Density(law="gaussian", size=1 / inverse, rate=Fraction(1), way="present")
    return found[0][0] if len(found) == 1 and found[0][1] == 1 else None


def delta_of(one: Density, epsilon: Fraction) -> Value:
    r"""delta at ``epsilon`` >= 0 of one round.

    >>> one = Density(law="gaussian", size=Fraction(1), rate=Fraction(1), way="present")
    >>> REAL.nstr(delta_of(one, Fraction(1)).value, 12)
    '0.126936737507'
    """
    rate, factor = real(one.rate), REAL.exp(real(epsilon))
    other = 1 - rate
    tail = _tail(one)
    if one.members > 1:
        return _of_members(one, epsilon, tail)
    match one.way:
        case "present":
            # P' = (1 - rate) Q + rate P: P' - e^eps Q = rate (P - e^eps' Q).
            at = REAL.log1p(REAL.expm1(real(epsilon)) / rate)
            place = _place(one, at)
            here, there = rate * tail(place - 1), rate * REAL.exp(at) * tail(place)
        case "absent":
            share = 1 / factor - other
            if share <= 0:
                return Value(value=REAL.zero, error=REAL.zero)
            # Where u is below log(share/rate); by symmetry that is a tail too.
            place = _place(one, REAL.log(share / rate))
            here = tail(-place) * (1 - factor * other)
            there = factor * rate * tail(1 - place)
        case _:
            # rate k w^2 + (1 - rate)(1 - e^eps) w - e^eps rate k = 0 for w = e^(x/v).
            v = real(one.size)
            k = rate * REAL.exp(-1 / (2 * v))
            b = other * (1 - factor)
            w = (-b + REAL.sqrt(b * b + 4 * k * k * factor)) / (2 * k)
            place = v * REAL.log(w)
            here = other * tail(place) + rate * tail(place - 1)
            there = factor * (other * tail(place) + rate * tail(place + 1))
    return Value(value=here - there, error=(abs(here) + abs(there)) * _RELATIVE)


def _of_members(one: Density, epsilon: Fraction, tail: Callable[[Number], Number]) -> Value:
    # P = sum_j w_j N(j, v) and Q = N(0, v): beyond, or below, the x where B = e^eps, or e^-eps.
    v, shifts = real(one.size), [*enumerate(chances(one.members, one.rate))]
    factor = REAL.exp(real(epsilon))
    goal = factor if one.way == "present" else 1 / factor
    if goal <= shifts[0][1]:
        return Value(value=REAL.zero, error=REAL.zero)

    def mixed(x: Number) -> Number:
        return REAL.fsum(w * REAL.exp((2 * j * x - j * j) / (2 * v)) for j, w in shifts)

    width = REAL.one
    while mixed(width) < goal or mixed(-width) > goal:
        tick()
        width *= 2
    low, high = -width, width
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if mixed(middle) < goal else (low, middle)
    place = (low + high) / 2
    if one.way == "present":
        here = REAL.fsum(w * tail(place - j) for j, w in shifts)
        there = factor * tail(place)
    else:
        here = tail(-place)
        there = factor * REAL.fsum(w * tail(j - place) for j, w in shifts)
    return Value(value=here - there, error=(abs(here) + abs(there)) * _RELATIVE)


def _place(one: Density, u: Number) -> Number:
    # Where the loss without sampling is u: beyond it, it is larger.
    size = real(one.size)
    if one.law == "gaussian":
        return size * u + REAL.mpf(1) / 2
    if abs(u) >= size:
        return REAL.inf if u >= size else -REAL.inf
    return (u / size + 1) / 2


def _tail(one: Density) -> Callable[[Number], Number]:
    # P(X > x) for the law around 0.
    size = real(one.size)
    if one.law == "gaussian":
        root = REAL.sqrt(2 * size)
        return lambda x: REAL.erfc(x / root) / 2

    def laplace(x: Number) -> Number:
        return REAL.exp(-x * size) / 2 if x > 0 else 1 - REAL.exp(x * size) / 2

    return laplace
