r"""Prove or refute the claims of a certificate with the kernel, ``accounting.proof_kernel``.

The kernel rounds privacy losses to a grid. Its resolution is a ``Plan``, which a certificate may
store as evidence. Floats choose the resolution, which affects only the time and the width of the
proven bounds. A claim holds if both of its bounds are proven, and fails if a bound is refuted. If
the kernel does neither, :func:`proven` raises :class:`Refused`. Proofs: docs/proofs/kernel.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, Final

from accounting.certificates.canonical_text import decimal_of
from accounting.certificates.certificate_format import Claim, Read
from accounting.certificates.deadline import tick
from accounting.proof_kernel.convolution import Plan
from accounting.proof_kernel.delta_bounds import Curve, gridless, lattice
from accounting.proof_kernel.exact_values import exact_value
from accounting.proof_kernel.law_tables import REAL, Refused, Round, pair_of
from accounting.proof_kernel.series import Fixed
from accounting.proof_kernel.worst_case_neighbours import Part, scenarios

_SLOTS: Final = 1 << 15
_FEW_SLOTS: Final = 1 << 10
_WIDTH: Final = 1.6e-4
_REACH: Final = Fraction(1, 10**4)
_SPARSE: Final = 1e-5
_GUARD: Final = 8
_ONE: Final = Fraction(1)
_LEAST: Final = Fraction(1, 10**60)
_COARSE: Final = Plan(Fraction(1, 100), 20, 64, 0)
_POINTS: Final = 300
_A_UNIT: Final = 20
_HALVINGS: Final = 60
_SHOWN: Final = 16


def evidence_of(plan: Plan) -> dict[str, Any]:
    r"""The resolution ``plan`` of the kernel, in the form that a certificate stores as evidence."""
    return {**asdict(plan), "step": str(plan.step)}


# -- the resolution --------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _plan_for(parts: tuple[Part, ...], claims: tuple[Claim, ...], claim: Claim) -> Plan:
    # Claims too narrow for the kernel share a coarse plan, which still refutes very wrong claims.
    reached = _reaches(parts, claim)
    alike = [each for each in claims if _reaches(parts, each) == reached]
    return plan_of(parts, alike, slots=_SLOTS if reached else _FEW_SLOTS)


@lru_cache(maxsize=256)
def _reaches(parts: tuple[Part, ...], claim: Claim) -> bool:
    # Whether the kernel can prove bounds as narrow as the claim; on a grid it proves few digits.
    size = 100 * claim.upper if claim.quantity == "delta" else max(claim.upper, _ONE)
    return claim.unit >= _REACH * size or _without_spread(scenarios(parts, above=True, tick=tick))


def plan_of(parts: tuple[Part, ...], claims: Sequence[Claim], *, slots: int | None = None) -> Plan:
    r"""A resolution of the kernel at which its rounding errors are small relative to the claims.

    Rounding to the grid increases the mean square of the privacy losses by at most about 0.02%.
    ``slots`` is the largest number of grid points; fewer slots make the proof faster and the bounds
    wider.
    """
    rows = scenarios(parts, above=True, tick=tick)
    Curve(rows, rows, _COARSE)
    slots = slots or _SLOTS
    rounds = max(sum(count for _, count in each) for each in rows)
    least = Fraction(1, 10**40 if _without_spread(rows) else 10**6)
    room = min((_room(claim, least) for claim in claims), default=Fraction(1, 10**12))
    if rounds == 1:
        return Plan(_ONE, _decimals(room) + _GUARD, slots, 0)
    # Every round and every doubling of copies may use an equal share of the permitted error.
    digits = _decimals(room / rounds / (64 * slots)) + 4
    cut = int(room * 10**digits / (64 * rounds * max(rounds.bit_length(), 1)))
    # The grid is as fine as the window of the total permits, or as the width requires. Losses of
    # integer noise that are sparse on the grid are merged less accurately than dense losses.
    square = sum(count * _square(each) for each, count in rows[0])
    sparse = any(each.law not in (*REAL, "stated") for each, _ in rows[0])
    width = 2 * math.sqrt((_SPARSE if sparse else _WIDTH) * square / rounds)
    step = max(min(width, 16 * math.sqrt(square) / slots), 1e-8)
    return Plan(Fraction(1, math.ceil(1 / step)), digits, slots, cut)


def _without_spread(rows: Sequence[Sequence[tuple[Round, int]]]) -> bool:
    # Whether no loss is rounded, because there are few combinations or all losses are on a lattice.
    return all(gridless(row) or all(lattice(each) for each, _ in row) for row in rows)


def _room(claim: Claim, least: Fraction) -> Fraction:
    # The permitted error of delta, at least the fraction ``least`` of delta.
    if claim.quantity == "delta":
        return max(claim.unit / 64, least * claim.upper)
    if claim.quantity == "epsilon" and claim.at:
        return claim.at * max(min(claim.unit, _ONE) / 64, least)
    return Fraction(1, 10**12)


def _decimals(small: Fraction) -> int:
    if small < _LEAST**5:
        raise Refused("a delta this small needs more than 300 decimals, the limit of the kernel")
    return max(math.ceil((math.log2(small.denominator) - math.log2(small.numerator)) / 3.32), 0)


def _square(each: Round) -> float:
    # The approximate mean square of the loss of a round.
    if each.law == "gaussian":
        c, here, there = float(each.shift), [*map(float, each.here)], [*map(float, each.there)]
        found = 0.0
        for i in range(-_POINTS, _POINTS + 1):
            x = i / _A_UNIT
            p, q = _mixed(here, x, c), _mixed(there, x, -c)
            found += (q if each.swapped else p) * math.log(p / q) ** 2 / _A_UNIT
        return found
    pair = pair_of(each, Fixed(96, tick), (Fraction(1, 256), Fraction(0)), 1 << 40)
    masses = [(float(p), float(q)) for p, q, low, _ in pair.cells if p and q and low is not None]
    return sum(p * math.log(p / q) ** 2 for p, q in masses) / (1 << 96)


def _mixed(chances: Sequence[float], x: float, c: float) -> float:
    return 1e-300 + sum(
        w * math.exp(-((x - j * c) ** 2) / 2) / math.sqrt(2 * math.pi)
        for j, w in enumerate(chances)
    )


# -- the proofs ------------------------------------------------------------------------------------


def ends_of(parts: tuple[Part, ...], claim: Claim, plan: Plan) -> tuple[Fraction, Fraction]:
    r"""The bounds that the kernel proves on the quantity of ``claim``, whatever it states."""
    value = _known(parts, claim)
    if value is not None:
        return value, value
    curve = _curve(parts, plan)
    if claim.quantity == "delta":
        return curve.delta(claim.at)
    return _passed(curve.below, claim.at)[0], _passed(curve.above, claim.at)[1]


def _passed(delta: Callable[[Fraction], Fraction], target: Fraction) -> tuple[Fraction, Fraction]:
    # Two numbers close to each other, between which delta crosses the target.
    low, high = Fraction(0), _ONE
    if delta(low) <= target:
        return low, low
    while delta(high) > target:
        tick()
        if high >= 1 << 20:
            raise Refused("no bound on epsilon up to 2^20 is proven")
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if delta(middle) > target else (low, middle)
    return low, high


def _known(parts: tuple[Part, ...], claim: Claim) -> Fraction | None:
    # The exact value if it is rational; None if bounds on delta decide the claim.
    try:
        return exact_value(parts, claim.quantity, claim.at)
    except Refused:
        if claim.quantity in ("pure", "zcdp"):
            raise
    if claim.quantity == "renyi":
        raise Refused("the kernel proves only rational Renyi divergences")
    if claim.quantity == "epsilon" and claim.at == 0:
        raise Refused("the kernel proves only a rational largest loss")
    return None


@lru_cache(maxsize=8)
def _curve(parts: tuple[Part, ...], plan: Plan) -> Curve:
    below, above = (scenarios(parts, above=end, tick=tick) for end in (False, True))
    return Curve(below, above, plan, tick)


def proven(found: Read, claim: Claim, spend: Callable[[object, int], None]) -> tuple[bool, str]:
    r"""Return True or False if the kernel proves or refutes the claim, and the proof as text.

    Before the bounds are computed, ``spend`` is called with a key of the computation and the number
    of values that it needs. Raises :class:`Refused` if the kernel does not decide the claim.
    """
    value = _known(found.parts, claim)
    if value is not None:
        decimal = value if claim.quantity in ("pure", "zcdp") else decimal_of(value)
        return claim.lower <= value <= claim.upper, f"proven: the value is {decimal}, a rational"
    plan = found.plan or _plan_for(found.parts, found.claims, claim)
    curve = _curve(found.parts, plan)
    spend((found.parts, plan), curve.work)
    return _decided(curve, claim)


@lru_cache(maxsize=128)
def _decided(curve: Curve, claim: Claim) -> tuple[bool, str]:
    target, low, high = claim.at, claim.lower, claim.upper
    if claim.quantity == "delta":
        below, above = curve.delta(target)
        bounds = f"delta is at most {_up(above)} and at least {_down(below)}"
        if low <= below <= above <= high or above < low or below > high:
            return low <= below <= above <= high, f"proven: {bounds}"
        end = "lower" if above <= high else "upper"
        raise Refused(f"the {end} bound is not proven: {bounds}")
    # delta(epsilon) is non-increasing: it must be at most the target at the upper end, and exceed
    # the target below the lower end.
    most = curve.above(high)
    bound = f"delta is at most {_up(most)} at epsilon = {decimal_of(high)}"
    if most > target:
        least = curve.below(high)
        if least > target:
            return False, f"proven: delta is at least {_down(least)} at the upper end"
        raise Refused(
            f"the upper bound is not proven: delta at epsilon = {decimal_of(high)} is only known "
            f"to be at most {_up(most)}"
        )
    if not low:
        return True, f"proven: {bound}"
    least = curve.below(low)
    if least > target:
        return True, f"proven: {bound} and at least {_down(least)} at epsilon = {decimal_of(low)}"
    most = curve.above(low)
    if most < target:
        return False, f"proven: delta is at most {_up(most)} at the lower end"
    raise Refused(
        f"the lower bound is not proven: delta at epsilon = {decimal_of(low)} is only known to be "
        f"at least {_down(least)}"
    )


def _rounded(value: Fraction, way: str) -> str:
    context = Context(prec=_SHOWN, rounding=way)
    return f"{context.divide(Decimal(value.numerator), Decimal(value.denominator)):g}"


_down, _up = partial(_rounded, way=ROUND_FLOOR), partial(_rounded, way=ROUND_CEILING)
