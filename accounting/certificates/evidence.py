r"""Evidence of a certificate: how finely the kernel computes, and what it then proves.

It is chosen here in floats. Only the width of the bounds and the time depend on the choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any, Final

from accounting.checker.clock import tick
from accounting.checker.exact import exact_value
from accounting.checker.laws.law import Unchecked
from accounting.checker.proof import curve_of, require_curve, scenarios
from accounting.checker.text.reading import Claim, Part
from accounting.kernel.laws import Refused, Round, pair_of
from accounting.kernel.series import Fixed
from accounting.kernel.sums import Plan
from accounting.kernel.verdict import Curve, lattice

__all__ = ["ends_of", "evidence_of", "plan_of"]

_SLOTS: Final = 1 << 15
_WIDTH: Final = 1.6e-4
_SPARSE: Final = 1e-5
_GUARD: Final = 8
_ONE: Final = Fraction(1)
_LEAST: Final = Fraction(1, 10**60)
_COARSE: Final = Plan(Fraction(1, 100), 20, 64, 0)
_POINTS: Final = 300
_A_UNIT: Final = 20
_HALVINGS: Final = 60


def evidence_of(plan: Plan) -> dict[str, Any]:
    r"""The plan as a certificate holds it.

    >>> evidence_of(Plan(Fraction(1, 8000), 22, 32768, 10))
    {'step': '1/8000', 'digits': 22, 'slots': 32768, 'cut': 10}
    """
    return {**asdict(plan), "step": str(plan.step)}


def plan_of(parts: tuple[Part, ...], claims: Sequence[Claim]) -> Plan:
    r"""A plan whose roundings are small beside the claims, on a grid for a width of 2e-4.

    Raises :class:`Unchecked` for parts that the kernel cannot compute, whatever is claimed.
    """
    try:
        rows = scenarios(parts, above=True)
        Curve(rows, rows, _COARSE)
    except Refused as error:
        raise Unchecked(str(error)) from None
    rounds = max(sum(count for _, count in each) for each in rows)
    exact = rounds == 1 or all(lattice(each) for row in rows for each, _ in row)
    least = Fraction(1, 10**40 if exact else 10**6)
    room = min((_room(claim, least) for claim in claims), default=Fraction(1, 10**12))
    if rounds == 1:
        return Plan(_ONE, _decimals(room) + _GUARD, _SLOTS, 0)
    # Every round and every doubling of copies may lose a share of the room.
    digits = _decimals(room / rounds / (64 * _SLOTS)) + 4
    cut = int(room * 10**digits / (64 * rounds * max(rounds.bit_length(), 1)))
    # As fine as the window of the total allows, or as fine as the width needs. Few places between
    # the losses of noise on the integers are merged less well than many.
    square = sum(count * _square(each) for each, count in rows[0])
    sparse = any(each.law not in ("gaussian", "laplace", "stated") for each, _ in rows[0])
    width = 2 * math.sqrt((_SPARSE if sparse else _WIDTH) * square / rounds)
    step = max(min(width, 16 * math.sqrt(square) / _SLOTS), 1e-8)
    return Plan(Fraction(1, math.ceil(1 / step)), digits, _SLOTS, cut)


def ends_of(parts: tuple[Part, ...], claim: Claim, plan: Plan) -> tuple[Fraction, Fraction]:
    r"""The ends that the kernel proves of what ``claim`` asks, whatever the claim says.

    Raises :class:`Unchecked` where it proves none.
    """
    exact = exact_value(parts, claim)
    if exact is not None:
        return exact, exact
    require_curve(claim)
    try:
        curve = curve_of(parts, plan)
        if claim.quantity == "delta":
            return curve.delta(claim.at)
        return _passed(curve.below, claim.at)[0], _passed(curve.above, claim.at)[1]
    except Refused as error:
        raise Unchecked(str(error)) from None


def _passed(delta: Callable[[Fraction], Fraction], target: Fraction) -> tuple[Fraction, Fraction]:
    # Two numbers near to each other, between which delta passes the target.
    low, high = Fraction(0), _ONE
    if delta(low) <= target:
        return low, low
    while delta(high) > target and high < 1 << 20:
        tick()
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if delta(middle) > target else (low, middle)
    return low, high


def _room(claim: Claim, least: Fraction) -> Fraction:
    # What delta may be off by, ``least`` a share of it at least.
    if claim.quantity == "delta":
        return max(claim.unit / 64, least * claim.upper, _LEAST)
    if claim.quantity == "epsilon" and claim.at:
        return claim.at * max(min(claim.unit, _ONE) / 64, least)
    return Fraction(1, 10**12)


def _decimals(small: Fraction) -> int:
    if small < _LEAST**5:
        raise Unchecked("a delta so small needs more digits than are allowed")
    return max(math.ceil((math.log2(small.denominator) - math.log2(small.numerator)) / 3.32), 0)


def _square(each: Round) -> float:
    # The mean square of the loss of a round, roughly.
    if each.law == "gaussian":
        c, here, there = float(each.shift), [*map(float, each.here)], [*map(float, each.there)]
        found = 0.0
        for i in range(-_POINTS, _POINTS + 1):
            x = i / _A_UNIT
            p, q = _mixed(here, x, c), _mixed(there, x, -c)
            found += (q if each.swapped else p) * math.log(p / q) ** 2 / _A_UNIT
        return found
    pair = pair_of(each, Fixed(96), (Fraction(1, 256), Fraction(0)), 1 << 40)
    masses = [(float(p), float(q)) for p, q, low, _ in pair.cells if p and q and low is not None]
    return sum(p * math.log(p / q) ** 2 for p, q in masses) / (1 << 96)


def _mixed(chances: Sequence[float], x: float, c: float) -> float:
    return 1e-300 + sum(
        w * math.exp(-((x - j * c) ** 2) / 2) / math.sqrt(2 * math.pi)
        for j, w in enumerate(chances)
    )
