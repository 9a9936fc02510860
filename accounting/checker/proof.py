r"""A claim decided by the integer kernel: which pairs it is of, and what the kernel proves of them.

It holds if both ends are proven, fails if the contrary of one is, and is unchecked in between. A
claim whose value is a rational is compared with that. Proofs: docs/proofs/kernel.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

from accounting.checker.clock import tick
from accounting.checker.exact import exact_pure, exact_value, exact_zcdp
from accounting.checker.laws.law import Unchecked
from accounting.checker.rounds import Rounds, alternatives
from accounting.checker.text.reading import Claim, Part
from accounting.checker.text.words import decimal_of
from accounting.kernel.laws import Refused, Round
from accounting.kernel.sums import Plan
from accounting.kernel.verdict import Curve, Scenario

__all__ = ["curve_of", "proven", "require_curve", "scenarios"]

_SHOWN: Final = 16
_BITS: Final = 256
_ONE: Final = Fraction(1)


def proven(
    parts: tuple[Part, ...], claim: Claim, plan: Plan, spend: Callable[[object, int], None]
) -> tuple[bool, str]:
    r"""Whether the claim holds, and what the kernel proves; ``spend`` counts its work before it.

    Raises :class:`Unchecked` where neither the claim nor its contrary is proven.
    """
    if claim.quantity in ("pure", "zcdp"):
        exact = exact_pure(parts) if claim.quantity == "pure" else exact_zcdp(parts)
        return claim.at == exact, f"proven: the value is {exact}, a rational"
    found = exact_value(parts, claim)
    if found is not None:
        holds = claim.lower <= found <= claim.upper
        return holds, f"proven: the value is {decimal_of(found)}, a rational"
    require_curve(claim)
    try:
        curve = curve_of(parts, plan)
        spend((parts, plan), curve.work)
        return _delta(curve, claim) if claim.quantity == "delta" else _epsilon(curve, claim)
    except Refused as error:
        raise Unchecked(f"the kernel refuses: {error}") from None


def require_curve(claim: Claim) -> None:
    r"""Raises :class:`Unchecked` for what the kernel proves only where it is a rational."""
    if claim.quantity == "renyi":
        raise Unchecked("the kernel proves no Renyi divergence that is not a rational")
    if claim.quantity == "epsilon" and claim.at == 0:
        raise Unchecked("the kernel proves no largest loss that is not a rational")


@lru_cache(maxsize=8)
def curve_of(parts: tuple[Part, ...], plan: Plan) -> Curve:
    r"""Bounds of delta of the worst neighbour. Raises :class:`Refused` for too much work."""
    return Curve(scenarios(parts, above=False), scenarios(parts, above=True), plan, tick)


def _delta(curve: Curve, claim: Claim) -> tuple[bool, str]:
    low, high = curve.delta(claim.at)
    shown = f"proven: delta is at most {_up(high)} and at least {_down(low)}"
    if claim.lower <= low and high <= claim.upper:
        return True, shown
    if high < claim.lower or low > claim.upper:
        return False, shown
    end = "lower" if high <= claim.upper else "upper"
    raise Unchecked(f"the {end} end is not proven: {shown.removeprefix('proven: ')}")


def _epsilon(curve: Curve, claim: Claim) -> tuple[bool, str]:
    # delta(epsilon) falls: at the upper end it must be at most the target, and below the lower end
    # it must be more.
    target, low, high = claim.at, claim.lower, claim.upper
    most = curve.above(high)
    shown = f"delta is at most {_up(most)} at {decimal_of(high)}"
    if most > target:
        least = curve.below(high)
        if least > target:
            return False, f"proven: delta is at least {_down(least)} at the upper end"
        raise Unchecked(f"the upper end is not proven: {shown}")
    if not low:
        return True, f"proven: {shown}"
    least = curve.below(low)
    if least > target:
        return True, f"proven: {shown} and at least {_down(least)} at {decimal_of(low)}"
    most = curve.above(low)
    if most < target:
        return False, f"proven: delta is at most {_up(most)} at the lower end"
    raise Unchecked(f"the lower end is not proven: delta is at least {_down(least)} there")


# -- which pairs -----------------------------------------------------------------------------------


def scenarios(parts: tuple[Part, ...], *, above: bool) -> list[Scenario]:
    r"""The lists of rounds of which the worst is claimed.

    A shift that is no rational is rounded to more loss (``above``), or to less.
    """
    rows = [
        [(_round(each, above=above), each.count) for each in rounds]
        for rounds in alternatives(parts)
    ]
    return [_with_one_gaussian(row, above=above) for row in rows]


def _round(each: Rounds, *, above: bool) -> Round:
    law, n, rate = each.law, each.members, each.rate
    if law is None:
        return Round("stated", each.stated, _ONE)
    here = tuple(math.comb(n, j) * rate**j * (1 - rate) ** (n - j) for j in range(n + 1))
    there = here if each.way == "replaced" else (_ONE,)
    swapped = each.way == "absent"
    if each.squared is not None:
        shift = _root(each.squared[above] / law.parameters[0] ** 2, above=above)
        return Round(law.name, (), shift, here, there, swapped)
    if rate < 1 and (not law.symmetric or law.name == "binomial"):
        raise Unchecked(f"samples with {law.name} noise, which is not symmetric or ends somewhere")
    shift = Fraction(-each.step if each.mirrored else each.step)
    return Round(law.name, law.parameters, shift, here, there, swapped)


def _with_one_gaussian(rounds: Scenario, *, above: bool) -> Scenario:
    # Unsampled Gaussian rounds are one: losses are normal, of variances that add.
    plain = [each for each in rounds if each[0].law == "gaussian" and each[0].here[1] == 1]
    if sum(count for _, count in plain) < 2:
        return rounds
    squared = sum((each.shift**2 * count for each, count in plain), Fraction(0))
    rest = [each for each in rounds if each not in plain]
    return [*rest, (Round("gaussian", (), _root(squared, above=above)), 1)]


def _root(square: Fraction, *, above: bool) -> Fraction:
    tops = math.isqrt(square.numerator), math.isqrt(square.denominator)
    if (tops[0] ** 2, tops[1] ** 2) == (square.numerator, square.denominator):
        return Fraction(*tops)
    scaled = math.isqrt((square.numerator << 2 * _BITS) // square.denominator)
    return Fraction(scaled + above, 1 << _BITS)


def _down(value: Fraction) -> str:
    return _rounded(value, ROUND_FLOOR)


def _up(value: Fraction) -> str:
    return _rounded(value, ROUND_CEILING)


def _rounded(value: Fraction, way: str) -> str:
    context = Context(prec=_SHOWN, rounding=way)
    return f"{context.divide(Decimal(value.numerator), Decimal(value.denominator)):g}"
