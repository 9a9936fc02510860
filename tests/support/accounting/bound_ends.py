"""Read the numbers of a claim as exact rationals, and both ends of a bound."""

from __future__ import annotations

from fractions import Fraction

from accounting import Approx, Assumed, Bound, Pure, Rdp, StatedGuarantee, ZCdp
from accounting.guarantees.stated_guarantees import points_of
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.parameter import rational


def amounts(claim: StatedGuarantee) -> tuple[Fraction, ...]:
    match claim:
        case Pure():
            return (rational("epsilon", claim.stated_epsilon),)
        case ZCdp():
            return (rational("rho", claim.rho),)
        case Approx():
            return (
                rational("epsilon", claim.stated_epsilon),
                rational("delta", claim.stated_delta),
            )
        case Rdp():
            return tuple(e for _, e in points_of(claim))
        case Assumed():
            return amounts(claim.guarantee)


def epsilon(claim: StatedGuarantee) -> Fraction:
    return amounts(claim)[0]


def delta(claim: StatedGuarantee) -> Fraction:
    return amounts(claim)[1]


def ends(found: Bound) -> Enclosure:
    """Return both ends of a bound that has a lower one."""
    assert found.lower is not None
    return Enclosure(found.lower, found.upper)
