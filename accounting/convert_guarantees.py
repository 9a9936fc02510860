r"""Conversions between pure DP, zCDP, Renyi DP and (epsilon, delta)-DP.

Supported conversions, named by the classes of the claims:

    Pure(e)      -> ZCdp(min(e^2/2, e)), and Rdp with the exact divergences of randomised response
    ZCdp(rho)    -> Rdp, with D_alpha <= rho alpha at each order alpha
    Pure, Approx -> Approx, exactly, at every larger delta
    Rdp, ZCdp    -> Approx, by the minimum over orders

Results are rational and rounded up. No theorem converts Approx to ZCdp or Rdp, Rdp to ZCdp, or
another claim to Pure, so these conversions are refused. A pure or (epsilon, delta) result that
differs from the given claim is a ``PureBound`` or an ``ApproxBound``, whose compositions have only
upper bounds. An assumed claim stays assumed, with the same reason. Proofs:
docs/proofs/composition.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

from accounting.errors import NotDerived
from accounting.guarantees.guarantee import Guarantee, order_above_one, probability
from accounting.guarantees.renyi_and_zcdp_to_epsilon import rounded_up
from accounting.guarantees.stated_guarantees import (
    Approx,
    ApproxBound,
    Assumed,
    Pure,
    PureBound,
    Rdp,
    Word,
    ZCdp,
)
from accounting.privacy_curves.release_curve import PairCurve
from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import End
from dpcore.numbers.parameter import RationalLike, at_least_zero

_P = ParamSpec("_P")
_W_co = TypeVar("_W_co", bound=Word, covariant=True)


class _Conversion(Protocol[_P, _W_co]):
    @overload
    def __call__(self, claim: Word | PairCurve, /, *args: _P.args, **kw: _P.kwargs) -> _W_co: ...
    @overload
    def __call__(self, claim: Assumed, /, *args: _P.args, **kw: _P.kwargs) -> Assumed: ...
    @overload
    def __call__(self, claim: Guarantee, /, *args: _P.args, **kw: _P.kwargs) -> _W_co | Assumed: ...


def _keeping_assumptions(
    convert: Callable[Concatenate[Guarantee, _P], _W_co],
) -> _Conversion[_P, _W_co]:
    # If a claim is assumed, so is every claim derived from it, for the same reason.
    @wraps(convert)
    def converted(claim: Guarantee, /, *args: _P.args, **named: _P.kwargs) -> _W_co | Assumed:
        if isinstance(claim, Assumed):
            return Assumed(convert(claim.guarantee, *args, **named), claim.reason)
        return convert(claim, *args, **named)

    return cast("_Conversion[_P, _W_co]", converted)


@_keeping_assumptions
def as_pure(claim: Guarantee) -> Pure:
    r"""Convert a guarantee to pure DP; epsilon is its largest privacy loss.

    >>> from accounting.composition.compose import compose
    >>> as_pure(compose((Pure("1/10"), 3)))
    PureBound('3/10')

    Raises :class:`NotDerived` if the loss is unbounded, or not known to be bounded.
    """
    if isinstance(claim, Pure):
        return claim
    if isinstance(claim, (ZCdp, Rdp, Approx)):
        raise NotDerived(f"a pure claim from {claim.text}", "no theorem bounds its largest loss")
    largest = _of_guarantee(claim).pure().upper
    wanted = f"a pure claim from {claim.text}"
    return PureBound(_finite(largest, wanted, "its privacy loss is unbounded"), scope=claim.scope)


@_keeping_assumptions
def as_zcdp(claim: Guarantee) -> ZCdp:
    r"""Convert a claim to zCDP. Pure(e) gives rho = min(e^2/2, e), exactly.

    >>> as_zcdp(Pure("1/10")), as_zcdp(Pure(3)), as_zcdp(ZCdp("1/800"))
    (ZCdp('1/200'), ZCdp(3), ZCdp('1/800'))

    Raises :class:`NotDerived` if the claim is Approx or Rdp, which do not bound D_alpha/alpha at
    all orders alpha, or if the supremum of D_alpha/alpha is infinite.
    """
    found = _of_guarantee(claim).zcdp().upper
    rho = _finite(found, f"a zCDP claim from {claim.text}", "D_alpha/alpha is unbounded")
    return ZCdp(rho, scope=claim.scope)


@_keeping_assumptions
def as_rdp(claim: Guarantee, orders: Iterable[RationalLike]) -> Rdp:
    r"""Convert a claim to bounds on the Renyi divergences D_alpha for all alpha in ``orders``.

    All orders must be > 1. A Pure claim gives the exact divergences of randomised response. Between
    two orders of an Rdp claim the bound is the linear interpolation of (alpha - 1) D_alpha, which
    is convex in alpha.

    >>> as_rdp(ZCdp("1/800"), [2, "3/2"])
    Rdp({'3/2': '3/1600', 2: '1/400'})
    >>> as_rdp(Rdp({2: 1, 4: 3}), [3])
    Rdp({3: '5/2'})

    Raises :class:`NotDerived` if the claim is Approx, or if it is Rdp and all its orders are below
    one of ``orders``.
    """
    wanted = [order_above_one(order) for order in orders]
    renyi, source = _of_guarantee(claim).renyi, claim.text
    points = [
        (a, _finite(renyi(a).upper, f"a Renyi bound of order {a} from {source}", "it is infinite"))
        for a in wanted
    ]
    return Rdp(points, scope=claim.scope)


@_keeping_assumptions
def as_approx(claim: Guarantee, delta: RationalLike) -> Approx:
    r"""Convert a claim to (epsilon, delta): the least epsilon at ``delta`` in [0, 1], rounded up.

    For Pure and Approx claims it is exact before rounding, as randomised response attains it.

    >>> as_approx(Pure(1), 0), float(as_approx(Pure(1), "1/10").stated_epsilon)
    (ApproxBound(1, 0), 0.8529...)
    >>> float(as_approx(ZCdp("1/800"), "1e-6").stated_epsilon)
    0.2059...

    Raises :class:`NotDerived` if no theorem gives a finite epsilon, e.g. if ``delta`` is below
    the delta of an Approx claim, or is 0 for a ZCdp or Rdp claim.
    """
    target = probability("delta", delta)
    found = _bounded(claim, lambda known: known.epsilon(target).upper)
    wanted = f"an epsilon from {claim.text} at delta = {target}"
    return _approx(claim, _finite(found, wanted, "it is infinite: use a larger delta"), target)


@_keeping_assumptions
def as_approx_at(claim: Guarantee, epsilon: RationalLike) -> Approx:
    r"""Convert a claim to (epsilon, delta): the least delta at ``epsilon`` >= 0, rounded up.

    >>> as_approx_at(Approx(1, "1e-6"), 2), float(as_approx_at(ZCdp("1/800"), 1).stated_delta)
    (ApproxBound(2, '1/1000000'), 2.09...e-90)
    """
    target = at_least_zero("epsilon", epsilon)
    found = Fraction(_bounded(claim, lambda known: known.delta(target).upper))
    short = found if isinstance(claim, Approx) else rounded_up(found)
    return _approx(claim, target, min(short, Fraction(1)))


def _approx(claim: Guarantee, epsilon: Fraction, delta: Fraction) -> Approx:
    # Only an upper bound, unless the given claim is already this (epsilon, delta) claim.
    same = Approx(epsilon, delta, scope=claim.scope)
    return same if claim == same else ApproxBound(epsilon, delta, scope=claim.scope)


def _bounded(claim: Guarantee, bound_of: Callable[[Guarantee], End]) -> End:
    # If the curve is not known, the zCDP parameter gives a bound.
    try:
        return bound_of(_of_guarantee(claim))
    except NotDerived:
        if isinstance(claim, (Pure, ZCdp, Rdp, Approx)):
            raise
        return bound_of(as_zcdp(claim))


def _of_guarantee(claim: Guarantee) -> Guarantee:
    if not isinstance(claim, Guarantee):
        raise InvalidParameter("claim", claim, "must be a claim, a curve or a composition")
    return claim


def _finite(found: End, wanted: str, instead: str) -> Fraction:
    if not isinstance(found, Fraction):
        raise NotDerived(wanted, instead)
    return found
