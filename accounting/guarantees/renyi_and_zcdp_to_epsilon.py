r"""Convert Renyi and zCDP bounds to epsilon or delta, minimised over real orders.

For every order alpha > 1 (Canonne, Kamath and Steinke 2020, Proposition 12):

    epsilon(delta) <= D_alpha + log(1/(alpha delta))/(alpha - 1) + log(1 - 1/alpha)
    delta(epsilon) <= e^((alpha - 1)(D_alpha - epsilon)) (1 - 1/alpha)^(alpha - 1)/alpha

rho-zCDP means D_alpha <= rho alpha for all orders. Each order gives a valid bound, so the choice of
orders affects only the tightness: a floating-point search proposes orders, and ball arithmetic
evaluates the bound.

The module also converts (epsilon, delta)-DP to other epsilons and deltas. The worst mechanism
reveals the dataset with probability delta, and is randomised response at epsilon otherwise
(Kairouz, Oh and Viswanath 2015). Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final, TypeAlias, overload

from flint import arb

from accounting.errors import NotDerived
from accounting.guarantees.bound import Bound
from accounting.guarantees.guarantee import order_above_one, probability
from accounting.guarantees.tradeoff_function import golden
from dpcore.numbers.enclosure import Enclosure, End, ball, narrow, precision
from dpcore.numbers.parameter import RationalLike, at_least_zero, rational_in

Renyi: TypeAlias = Callable[[Fraction], End | Enclosure | Bound | arb]
"""An upper bound on D_alpha at any real order alpha > 1, possibly infinite."""

_BITS: Final = 192
_KEPT: Final = 66
_LEAST_BITS: Final = 8192
_STEPS: Final = 40
_STARTS: Final = (3.0, -9.0)
_FARTHEST: Final = 2000
_NEARBY: Final = 60
_THEOREM: Final = "least over orders of Canonne, Kamath and Steinke 2020, Proposition 12"


def approx_from_renyi(renyi: Renyi, delta: RationalLike) -> Bound:
    r"""An upper bound on epsilon at ``delta``, minimised over real orders.

    ``renyi(order)`` is an upper bound on D_order. The result is infinite at delta = 0, where Renyi
    divergences imply no finite epsilon.
    """
    target = probability("delta", delta)
    if target == 0:
        return Bound(upper=math.inf, method="renyi", theorem=_THEOREM)
    found = _least(lambda order: epsilon_at_order(_upper(renyi(order)), order, target))
    return Bound(upper=found, method="renyi", theorem=_THEOREM)


def delta_from_renyi(renyi: Renyi, epsilon: RationalLike) -> Bound:
    r"""An upper bound on delta at ``epsilon`` >= 0, minimised over real orders."""
    target = at_least_zero("epsilon", epsilon)
    # The search minimises the logarithm: delta itself is 1 at every order far from the best.
    found = _least(lambda order: _log_delta(_upper(renyi(order)), order, target))
    return Bound(upper=_exponential(found), method="renyi", theorem=_THEOREM)


def epsilon_at_order(divergence: End, order: Fraction, delta: Fraction) -> End:
    r"""An upper bound on epsilon(``delta``) if D_alpha <= ``divergence`` at alpha = ``order``."""
    if divergence == 0 or delta == 1:
        return Fraction(0)
    if delta == 0 or not isinstance(divergence, Fraction):
        return math.inf
    with precision(_BITS):
        found = Enclosure.of(ball(divergence) + _constant(order, delta)).upper
    return max(rounded_up(found), Fraction(0))


def delta_at_order(divergence: End, order: Fraction, epsilon: Fraction) -> Fraction:
    r"""An upper bound on delta(``epsilon``) if D_alpha <= ``divergence`` at alpha = ``order``."""
    return _exponential(_log_delta(divergence, order, epsilon))


def rho_within(epsilon: RationalLike, delta: RationalLike) -> Fraction:
    r"""A rho, rounded down, such that every rho-zCDP mechanism is (epsilon, delta)-DP.

    The rho is the largest found by a search over the orders of :func:`approx_from_renyi`, or 0.
    """
    most, target = at_least_zero("epsilon", epsilon), rational_in("delta", delta, "(0, 1)")

    def lost(order: Fraction) -> End:
        with precision(_BITS):
            return -Enclosure.of((ball(most) - _constant(order, target)) / ball(order)).lower

    found = -rounded_up(_least(lost))
    return found if isinstance(found, Fraction) and found > 0 else Fraction(0)


@overload
def rounded_up(value: Fraction) -> Fraction: ...
@overload
def rounded_up(value: End) -> End: ...
def rounded_up(value: End) -> End:
    r"""The value rounded up to 66 bits, with a relative error of at most 2^-65."""
    if not isinstance(value, Fraction) or value == 0:
        return value
    shift = value.denominator.bit_length() - value.numerator.bit_length() + _KEPT
    if shift >= 0:
        return Fraction(math.ceil(value * (1 << shift)), 1 << shift)
    return Fraction(math.ceil(value / (1 << -shift)) << -shift)


def _constant(order: Fraction, delta: Fraction) -> arb:
    # The term that the conversion adds to D_alpha.
    return (-ball(order * delta).log()) / ball(order - 1) + ball(1 - 1 / order).log()


def _log_delta(divergence: End, order: Fraction, epsilon: Fraction) -> End:
    if divergence == 0:
        return -math.inf
    if not isinstance(divergence, Fraction):
        return math.inf
    with precision(_BITS):
        found = ball((order - 1) * (divergence - epsilon)) - ball(order).log()
        return Enclosure.of(found + ball(order - 1) * ball(1 - 1 / order).log()).upper


def _exponential(log: End) -> Fraction:
    # The value is rounded up, is at least the smallest number that is stored, and is at most 1.
    if not isinstance(log, Fraction) or log >= 0:
        return Fraction(0 if log == -math.inf else 1)
    if log < -_LEAST_BITS:
        return Fraction(1, 1 << _LEAST_BITS)
    with precision(_BITS):
        return min(Fraction(rounded_up(Enclosure.of(ball(log).exp()).upper)), Fraction(1))


def _upper(found: End | Enclosure | Bound | arb) -> End:
    if isinstance(found, arb):
        return Enclosure.of(found).upper
    return found.upper if isinstance(found, (Enclosure, Bound)) else found


def _least(value: Callable[[Fraction], End]) -> End:
    # The least value found at orders 1 + 2^t; any order is valid. Values of one bound fall and then
    # rise in t (see the proof), so doubling steps bracket the minimum and a golden-section search
    # refines it. The smaller of two bounds may have two minima, so there are two starts.
    here, place = min(_bracketed(value, start) for start in _STARTS)
    return min(here, golden(lambda t: value(_order(t)), place - 1, place + 1, _STEPS))


def _bracketed(value: Callable[[Fraction], End], place: float) -> tuple[End, float]:
    here = value(_order(place))
    for step in (1.0, -1.0):
        for _ in range(_FARTHEST if here < math.inf else _NEARBY):
            there = value(_order(place + step))
            # While no order is finite, smaller ones are tried: D_alpha is non-decreasing.
            if there >= here and not (here == math.inf and step < 0):
                break
            place, here = place + step, there
    return here, place


def _order(place: float) -> Fraction:
    whole = math.floor(place)
    return 1 + Fraction(2 ** (place - whole)) * Fraction(2) ** whole


def response_epsilon(epsilon: Fraction, hidden: Fraction, delta: Fraction) -> Fraction:
    r"""The least epsilon at ``delta`` that (``epsilon``, ``hidden``)-DP implies, rounded up.

    Raises :class:`NotDerived` if ``delta`` is below ``hidden``.
    """
    # delta = hidden + (1 - hidden)(e^epsilon - e^found)/(1 + e^epsilon), solved for `found`.
    if delta < hidden:
        wanted = f"an epsilon at delta = {delta} from a claim at delta = {hidden}"
        why = "no theorem lowers the delta of an Approx claim; use a delta at least as large"
        raise NotDerived(wanted, why)
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
    r"""The delta, rounded up, that (``epsilon``, ``hidden``)-DP implies for epsilon = ``at``."""
    if at >= epsilon:
        return hidden
    with precision(_BITS):
        share = -ball(at - epsilon).expm1() / (1 + ball(-epsilon).exp())
        found = Enclosure.of(ball(hidden) + ball(1 - hidden) * share).upper
    return min(Fraction(1), Fraction(rounded_up(found)))


def bounded_range_epsilon(length: Fraction, delta: Fraction) -> Fraction:
    r"""The epsilon at ``delta`` of selections with losses in a range of ``length``, rounded up."""
    # delta = (1 - e^((found - length)/2))^2/(1 - e^-length), solved for `found`.
    if delta == 1:
        return Fraction(0)
    with precision(_BITS):
        left = (1 - (ball(delta) * -ball(-length).expm1()).sqrt()).upper()
        found = Enclosure.of(ball(length) + 2 * left.log()).upper if left > 0 else Fraction(0)
    return max(rounded_up(Fraction(found)), Fraction(0))


def bounded_range_delta(length: Fraction, at: Fraction) -> Fraction:
    r"""The delta at ``at`` of selections with losses in a range of ``length``, rounded up."""
    if at >= length:
        return Fraction(0)
    with precision(_BITS):
        found = Enclosure.of(ball((at - length) / 2).expm1() ** 2 / -ball(-length).expm1()).upper
    return min(rounded_up(Fraction(found)), Fraction(1))


def randomised_response_renyi(epsilon: RationalLike, order: RationalLike) -> Enclosure:
    r"""D_alpha, alpha = ``order``, of randomised response: the maximum under ``epsilon``-DP."""
    e, alpha = at_least_zero("epsilon", epsilon), order_above_one(order)
    if e == 0:
        return Enclosure.exactly(0)
    far, near = -(2 * alpha - 1) * e, -e
    return narrow(
        lambda: ball(e) + (ball(far).exp().log1p() - ball(near).exp().log1p()) / ball(alpha - 1),
        _BITS // 2,
    )
