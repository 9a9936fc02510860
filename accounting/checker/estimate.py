r"""A claim computed again by a second numerical path, with an estimate of its error.

A claim [lower, upper] is one unit of its last digit wide and the truth lies at least a sixteenth of
a unit inside. So the second path must place it more than 1/32 of a unit inside either end, with an
error below 1/64: a claim moved by one unit fails, and no claim passes that this path cannot decide.
A claim of two equal ends is one of a rational, and is compared with that rational.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Final

from accounting.checker.curve import allowed, largest, largest_loss, worst_deltas
from accounting.checker.exact import exact_pure, exact_value, exact_zcdp
from accounting.checker.laws.law import Unchecked
from accounting.checker.laws.losses import randomised_response, renyi_of, renyi_of_listed
from accounting.checker.laws.masses import REAL, real
from accounting.checker.laws.value import Value, Wanted
from accounting.checker.rounds import Rounds, alternatives
from accounting.checker.text.reading import Claim, Part

__all__ = ["checked"]

_INSIDE: Final = Fraction(1, 32)
_ERROR: Final = Fraction(1, 64)


@lru_cache(maxsize=128)
def checked(parts: tuple[Part, ...], claim: Claim) -> tuple[bool, str]:
    r"""Whether the claim holds, and what was found.

    Raises :class:`Unchecked` where this path decides nothing.
    """
    match claim.quantity:
        case "pure":
            return _equal(claim.at, exact_pure(parts))
        case "zcdp":
            return _equal(claim.at, exact_zcdp(parts))
    exact = exact_value(parts, claim)
    if exact is not None:
        return _inside_exactly(claim, exact)
    match claim.quantity:
        case "renyi":
            return _renyi(parts, claim)
        case "delta":
            return _delta(parts, claim)
    return _epsilon(parts, claim)


def _equal(claimed: Fraction, found: Fraction) -> tuple[bool, str]:
    if claimed == found:
        return True, "equal, exactly"
    return False, f"the second path finds {found}"


def _inside_exactly(claim: Claim, found: Fraction) -> tuple[bool, str]:
    if claim.lower == claim.upper:
        return _equal(claim.lower, found)
    margin = _INSIDE * claim.unit
    holds = claim.lower + margin < found < claim.upper - margin
    return holds, f"the second path finds {REAL.nstr(real(found), 20)}, a rational"


# -- enclosed claims -------------------------------------------------------------------------------


def _delta(parts: tuple[Part, ...], claim: Claim) -> tuple[bool, str]:
    size = max(claim.lower, claim.unit)
    wanted = Wanted(relative=float(claim.unit * _ERROR / size))
    return _inside(claim, worst_deltas(parts, [claim.at], allowed(claim), wanted)[0])


def _renyi(parts: tuple[Part, ...], claim: Claim) -> tuple[bool, str]:
    found = []
    for rounds in alternatives(parts):
        ones = [(each.count, _renyi_of_one(each, claim.at)) for each in rounds]
        value = REAL.fsum(count * one.value for count, one in ones)
        found.append(Value(value=value, error=REAL.fsum(k * one.error for k, one in ones)))
    return _inside(claim, largest(found))


def _renyi_of_one(each: Rounds, order: Fraction) -> Value:
    if each.density is not None or each.rate < 1:
        raise Unchecked("a Renyi divergence of a sample, or of noise on the reals")
    if each.law is not None:
        return renyi_of(each.law, each.step, order)
    epsilon, lost = each.stated
    if lost:
        raise Unchecked("a Renyi divergence of an approximate claim")
    return renyi_of_listed(randomised_response(epsilon, lost), order)[0]


def _inside(claim: Claim, found: Value) -> tuple[bool, str]:
    unit = real(claim.unit)
    shown = f"the second path finds {REAL.nstr(found.value, 20)}"
    if not REAL.isfinite(found.value):
        return False, shown
    if claim.lower == claim.upper:
        # A computation with an error tells only that they are not met.
        if abs(found.value - real(claim.lower)) > found.error:
            return False, shown
        raise Unchecked(f"{shown}, and no rational: two equal ends are not checked")
    if found.error > real(_ERROR) * unit:
        raise Unchecked(f"{shown} with error {REAL.nstr(found.error, 3)}")
    low, high = (real(end) for end in (claim.lower, claim.upper))
    margin = real(_INSIDE) * unit
    return bool(low + margin < found.value < high - margin), shown


def _epsilon(parts: tuple[Part, ...], claim: Claim) -> tuple[bool, str]:
    # delta(epsilon) falls: it must exceed the target just inside the lower end, and stay below it
    # just inside the upper end.
    if claim.at == 0:
        return _inside(claim, largest([largest_loss(each) for each in alternatives(parts)]))
    target, goal = real(claim.at), Wanted(of_epsilon=float(claim.unit * _ERROR))
    room = allowed(claim)
    if claim.lower == claim.upper:
        if claim.lower:
            return False, "no epsilon but 0 is exact"
        (most,) = worst_deltas(parts, [Fraction(0)], room, goal)
        shown = f"delta(0) is {REAL.nstr(most.value, 20)}"
        if abs(most.value - target) <= most.error:
            raise Unchecked(f"{shown} with error {REAL.nstr(most.error, 3)}: too near the target")
        return bool(most.value < target), shown
    ends = [claim.lower + _INSIDE * claim.unit, claim.upper - _INSIDE * claim.unit]
    left, right = worst_deltas(parts, ends, room, goal)
    for each in (left, right):
        if abs(each.value - target) <= each.error:
            raise Unchecked(
                f"delta at an end is {REAL.nstr(each.value, 20)} with error "
                f"{REAL.nstr(each.error, 3)}: too near the target"
            )
    holds = bool(left.value > target > right.value)
    return holds, (
        f"just inside the bounds delta is {REAL.nstr(left.value, 16)} and "
        f"{REAL.nstr(right.value, 16)}; the claimed delta {'lies' if holds else 'must lie'} between"
    )
