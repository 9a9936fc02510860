r"""Randomised response: the worst pair of any (epsilon, delta) claim.

With probability ``hidden`` the outcome names the world, else randomised response at epsilon
answers (Kairouz, Oh and Viswanath 2015). So what this pair loses is the least that follows from the
claim. Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from accounting.claims.guarantee import at_least_zero, order_above_one
from accounting.claims.orders import rounded_up
from accounting.errors import NotDerived
from dpcore.numbers.enclosure import Enclosure, ball, narrow, precision
from dpcore.numbers.parameter import RationalLike

__all__ = ["randomised_response_renyi", "response_delta", "response_epsilon"]

_BITS: Final = 192


def response_epsilon(epsilon: Fraction, hidden: Fraction, delta: Fraction) -> Fraction:
    r"""The least epsilon of the pair at ``delta``, rounded up.

    >>> float(response_epsilon(Fraction(1), Fraction(0), Fraction(1, 10)))
    0.8529...

    Raises :class:`NotDerived` for a delta below ``hidden``.
    """
    # delta = hidden + (1 - hidden)(e^epsilon - e^found)/(1 + e^epsilon), solved for `found`.
    if delta < hidden:
        raise NotDerived(
            f"an epsilon at delta = {delta} from a claim at delta = {hidden}",
            "no theorem lowers the delta of an Approx claim; ask at its delta or above",
        )
    if delta == 1:
        return Fraction(0)
    if delta == hidden:
        return epsilon
    share = (delta - hidden) / (1 - hidden)
    with precision(_BITS):
        left = (1 - ball(share) * (1 + ball(-epsilon).exp())).upper()
        found = ball(epsilon) + left.log() if left > 0 else ball(0)
        upper = rounded_up(Enclosure.of(found).upper)
    return min(epsilon, max(Fraction(0), Fraction(upper)))


def response_delta(epsilon: Fraction, hidden: Fraction, at: Fraction) -> Fraction:
    r"""The least delta of the pair at epsilon = ``at``, rounded up.

    >>> response_delta(Fraction(1), Fraction(1, 10), Fraction(2))
    Fraction(1, 10)
    """
    if at >= epsilon:
        return hidden
    with precision(_BITS):
        share = -ball(at - epsilon).expm1() / (1 + ball(-epsilon).exp())
        found = Enclosure.of(ball(hidden) + ball(1 - hidden) * share).upper
    return min(Fraction(1), Fraction(rounded_up(found)))


def randomised_response_renyi(epsilon: RationalLike, order: RationalLike) -> Enclosure:
    r"""D_alpha of randomised response at epsilon: the largest of any epsilon-DP pair.

    >>> randomised_response_renyi(1, 2).upper_float
    0.7353...
    """
    e, alpha = at_least_zero("epsilon", epsilon), order_above_one(order)
    if e == 0:
        return Enclosure.exactly(0)
    far, near = -(2 * alpha - 1) * e, -e
    return narrow(
        lambda: ball(e) + (ball(far).exp().log1p() - ball(near).exp().log1p()) / ball(alpha - 1),
        _BITS // 2,
    )
