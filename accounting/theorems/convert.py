r"""Conversions between the words of privacy: what one claim says in another word.

    Pure(e)      -> ZCdp(min(e^2/2, e)) -> Rdp: rho alpha at each order
    Pure(e)      -> Rdp exactly, through randomised response
    Pure, Approx -> Approx exactly, at every larger delta
    Rdp, ZCdp    -> Approx, by the minimum over orders (``accounting.theorems.orders``)

Numbers are rational and rounded up. What no theorem gives is refused: nothing leads from Approx
to ZCdp or Rdp, from Rdp to ZCdp, or from anything to Pure. A claim that was assumed stays assumed,
for the same reason. Proofs: docs/proofs/convert.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Final, TypeAlias, cast, overload

from accounting.claims.claim import Approx, Assumed, Pure, Rdp, ZCdp
from accounting.errors import NotDerived
from accounting.release.curve import PrivacyCurve
from accounting.release.guarantee import Guarantee
from accounting.theorems.orders import (
    approx_from_renyi,
    delta_at_order,
    delta_from_renyi,
    epsilon_at_order,
    rounded_up,
)
from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import Enclosure, End, ball, narrow, precision
from dpcore.numbers.parameter import RationalLike, rational

__all__ = [
    "Word",
    "as_approx",
    "as_approx_at",
    "as_rdp",
    "as_zcdp",
    "points_of",
    "randomised_response_renyi",
]

Word: TypeAlias = Pure | ZCdp | Rdp | Approx
"""A claim that is not assumed."""

_BITS: Final = 192


def points_of(claim: Rdp) -> tuple[tuple[Fraction, Fraction], ...]:
    r"""The points (order, epsilon) of an Rdp claim, in rising order.

    >>> points_of(Rdp({2: "1/400"}))
    ((Fraction(2, 1), Fraction(1, 400)),)
    """
    # The claim has checked and sorted them when it was made.
    return cast("tuple[tuple[Fraction, Fraction], ...]", claim.points)


@overload
def as_zcdp(claim: Word | PrivacyCurve) -> ZCdp: ...
@overload
def as_zcdp(claim: Assumed) -> Assumed: ...
def as_zcdp(claim: Guarantee) -> ZCdp | Assumed:
    r"""The claim in the word zCDP. Pure(e) gives rho = min(e^2/2, e), exactly.

    >>> as_zcdp(Pure("1/10")), as_zcdp(Pure(3)), as_zcdp(ZCdp("1/800"))
    (ZCdp('1/200'), ZCdp(3), ZCdp('1/800'))

    Raises :class:`NotDerived` for an Approx or Rdp claim: no theorem bounds all orders by either.
    """
    match claim:
        case Assumed():
            return Assumed(as_zcdp(claim.guarantee), claim.reason)
        case ZCdp():
            return claim
        case Pure():
            epsilon = rational("epsilon", claim.epsilon)
            return ZCdp(min(epsilon**2 / 2, epsilon), scope=claim.scope)
        case PrivacyCurve():
            return _zcdp_of(claim)
        case Approx() | Rdp():
            raise NotDerived(f"a zCDP claim from {claim!r}", "no theorem bounds every order by it")
        case _:
            raise _unknown(claim)


@overload
def as_rdp(claim: Word | PrivacyCurve, orders: Iterable[RationalLike]) -> Rdp: ...
@overload
def as_rdp(claim: Assumed, orders: Iterable[RationalLike]) -> Assumed: ...
def as_rdp(claim: Guarantee, orders: Iterable[RationalLike]) -> Rdp | Assumed:
    r"""The claim as Renyi bounds at ``orders``, each > 1.

    A Pure claim gives the exact divergence of randomised response; between the orders of an Rdp
    claim (alpha - 1) D_alpha lies below its chord.

    >>> as_rdp(ZCdp("1/800"), [2, "3/2"])
    Rdp({'3/2': '3/1600', 2: '1/400'})
    >>> as_rdp(Rdp({2: 1, 4: 3}), [3])
    Rdp({3: '5/2'})

    Raises :class:`NotDerived` for an Approx claim, and beyond the largest order of an Rdp claim.
    """
    wanted = [rational("order", order) for order in orders]
    for order in wanted:
        if order <= 1:
            raise InvalidParameter("order", order, "must be > 1")
    if isinstance(claim, Assumed):
        return Assumed(as_rdp(claim.guarantee, wanted), claim.reason)
    divergence = _divergence(claim)
    return Rdp([(order, divergence(order)) for order in wanted], scope=claim.scope)


@overload
def as_approx(claim: Word | PrivacyCurve, delta: RationalLike) -> Approx: ...
@overload
def as_approx(claim: Assumed, delta: RationalLike) -> Assumed: ...
def as_approx(claim: Guarantee, delta: RationalLike) -> Approx | Assumed:
    r"""The least epsilon that the claim gives at ``delta`` in [0, 1], rounded up.

    Exact for Pure and Approx claims, which is what randomised response at their epsilon loses.

    >>> as_approx(Pure(1), 0), float(as_approx(Pure(1), "1/10").epsilon)
    (Approx(1, 0), 0.8529...)
    >>> float(as_approx(ZCdp("1/800"), "1e-6").epsilon)
    0.2059...

    Raises :class:`NotDerived` where no theorem gives a finite epsilon: below the delta of an
    Approx claim, at delta = 0 for a ZCdp or Rdp claim.
    """
    target = _probability(delta)
    if isinstance(claim, Assumed):
        return Assumed(as_approx(claim.guarantee, target), claim.reason)
    return Approx(_epsilon_at(claim, target), target, scope=claim.scope)


@overload
def as_approx_at(claim: Word | PrivacyCurve, epsilon: RationalLike) -> Approx: ...
@overload
def as_approx_at(claim: Assumed, epsilon: RationalLike) -> Assumed: ...
def as_approx_at(claim: Guarantee, epsilon: RationalLike) -> Approx | Assumed:
    r"""The least delta that the claim gives at ``epsilon`` >= 0, rounded up: the reverse question.

    >>> as_approx_at(Approx(1, "1e-6"), 2), float(as_approx_at(ZCdp("1/800"), 1).delta)
    (Approx(2, '1/1000000'), 2.09...e-90)
    """
    target = rational("epsilon", epsilon)
    if target < 0:
        raise InvalidParameter("epsilon", epsilon, "must be >= 0")
    if isinstance(claim, Assumed):
        return Assumed(as_approx_at(claim.guarantee, target), claim.reason)
    return Approx(target, min(_delta_at(claim, target), Fraction(1)), scope=claim.scope)


def randomised_response_renyi(epsilon: RationalLike, order: RationalLike) -> Enclosure:
    r"""D_alpha of randomised response at epsilon: the largest of any epsilon-DP pair.

    >>> randomised_response_renyi(1, 2).upper_float
    0.7353...
    """
    e, alpha = rational("epsilon", epsilon), rational("order", order)
    if e < 0:
        raise InvalidParameter("epsilon", epsilon, "must be >= 0")
    if alpha <= 1:
        raise InvalidParameter("order", order, "must be > 1")
    if e == 0:
        return Enclosure.exactly(0)
    far, near = -(2 * alpha - 1) * e, -e
    return narrow(
        lambda: ball(e) + (ball(far).exp().log1p() - ball(near).exp().log1p()) / ball(alpha - 1),
        _BITS // 2,
    )


# -- one claim as a divergence, as epsilon at delta, as delta at epsilon ----------------------


def _divergence(claim: Word | PrivacyCurve) -> Callable[[Fraction], Fraction]:
    match claim:
        case Pure():
            epsilon = rational("epsilon", claim.epsilon)
            return lambda a: Fraction(rounded_up(randomised_response_renyi(epsilon, a).upper))
        case ZCdp():
            rho = rational("rho", claim.rho)
            return lambda a: rho * a
        case Rdp():
            return lambda a: _between(points_of(claim), a)
        case PrivacyCurve():
            return lambda a: _finite(
                claim.renyi(a).upper, f"a Renyi bound of order {a} for {claim.noise!r}"
            )
        case Approx():
            raise NotDerived(f"a Renyi bound from {claim!r}", "no theorem bounds any order by it")
        case _:
            raise _unknown(claim)


def _epsilon_at(claim: Word | PrivacyCurve, delta: Fraction) -> Fraction:
    match claim:
        case Pure():
            return _randomised_epsilon(rational("epsilon", claim.epsilon), Fraction(0), delta)
        case Approx():
            return _randomised_epsilon(
                rational("epsilon", claim.epsilon), rational("delta", claim.delta), delta
            )
        case ZCdp():
            rho = rational("rho", claim.rho)
            found = approx_from_renyi(lambda a: rho * a, delta).upper if rho else Fraction(0)
        case Rdp():
            found = min(epsilon_at_order(epsilon, a, delta) for a, epsilon in points_of(claim))
        case PrivacyCurve():
            try:
                found = claim.epsilon(delta).upper
            except NotDerived:
                # No exact curve: what does bound every order bounds this too.
                return _epsilon_at(_zcdp_of(claim), delta)
        case _:
            raise _unknown(claim)
    return _finite(found, f"an epsilon from {claim!r} at delta = {delta}")


def _delta_at(claim: Word | PrivacyCurve, epsilon: Fraction) -> Fraction:
    match claim:
        case Pure():
            return _randomised_delta(rational("epsilon", claim.epsilon), Fraction(0), epsilon)
        case Approx():
            return _randomised_delta(
                rational("epsilon", claim.epsilon), rational("delta", claim.delta), epsilon
            )
        case ZCdp():
            rho = rational("rho", claim.rho)
            found = delta_from_renyi(lambda a: rho * a, epsilon).upper if rho else Fraction(0)
        case Rdp():
            found = min(delta_at_order(bound, a, epsilon) for a, bound in points_of(claim))
        case PrivacyCurve():
            try:
                found = claim.delta(epsilon).upper
            except NotDerived:
                return _delta_at(_zcdp_of(claim), epsilon)
        case _:
            raise _unknown(claim)
    return rounded_up(_finite(found, f"a delta from {claim!r} at epsilon = {epsilon}"))


def _zcdp_of(curve: PrivacyCurve) -> ZCdp:
    try:
        rho = curve.zcdp().upper
    except NotDerived:
        pure = curve.pure()
        if pure is None:
            raise
        return as_zcdp(pure)
    return ZCdp(_finite(rho, f"a zCDP claim for {curve.noise!r}"), scope=curve.scope)


def _between(points: tuple[tuple[Fraction, Fraction], ...], order: Fraction) -> Fraction:
    # K(alpha) = (alpha - 1) D_alpha is convex with K(1) = 0, and D_alpha rises.
    above = [(a, epsilon) for a, epsilon in points if a >= order]
    if not above:
        raise NotDerived(
            f"a Renyi bound of order {order} from orders up to {points[-1][0]}",
            "ask for an order within those of the claim",
        )
    high, at_high = above[0]
    least = min(epsilon for _, epsilon in above)
    below = [(a, epsilon) for a, epsilon in points if a < order]
    if not below:
        return least
    low, at_low = below[-1]
    chord = ((high - order) * (low - 1) * at_low + (order - low) * (high - 1) * at_high) / (
        high - low
    )
    return min(least, chord / (order - 1))


def _randomised_epsilon(epsilon: Fraction, hidden: Fraction, delta: Fraction) -> Fraction:
    # delta = hidden + (1 - hidden)(e^epsilon - e^found)/(1 + e^epsilon), solved for `found`.
    if delta < hidden:
        raise NotDerived(
            f"an epsilon at delta = {delta} from a claim at delta = {hidden}",
            "no theorem lowers the delta of an Approx claim",
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


def _randomised_delta(epsilon: Fraction, hidden: Fraction, at: Fraction) -> Fraction:
    if at >= epsilon:
        return hidden
    with precision(_BITS):
        share = -ball(at - epsilon).expm1() / (1 + ball(-epsilon).exp())
        found = Enclosure.of(ball(hidden) + ball(1 - hidden) * share).upper
    return min(Fraction(1), Fraction(rounded_up(found)))


def _finite(found: End, wanted: str) -> Fraction:
    if not isinstance(found, Fraction):
        raise NotDerived(wanted, "no theorem here gives a finite number")
    return found


def _probability(delta: RationalLike) -> Fraction:
    exact = rational("delta", delta)
    if not 0 <= exact <= 1:
        raise InvalidParameter("delta", delta, "must lie in [0, 1]: it is a probability")
    return exact


def _unknown(claim: object) -> InvalidParameter:
    return InvalidParameter("claim", claim, "must be a claim or a PrivacyCurve")
