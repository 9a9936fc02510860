r"""Basic, advanced, optimal, Renyi, zCDP and exact composition, compared for returning users.

A user takes part in at most B batches, once per batch. So the guarantee of the user is the B-fold
composition of the guarantee of one contribution (Chowdhury and Zhou 2023, Appendix I). The noise
that a target epsilon requires depends on the composition theorem, so :func:`routes` compares the
theorems. Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, lru_cache, partial
from typing import Any, Final

from accounting.amplification.random_allocation import AllocatedSample
from accounting.amplification.subsampling import SampledRelease
from accounting.composition.compose import Composition, compose, renyi_of
from accounting.convert_guarantees import as_approx
from accounting.errors import NotDerived
from accounting.guarantees.bound import Bound
from accounting.guarantees.guarantee import Guarantee
from accounting.guarantees.renyi_and_zcdp_to_epsilon import (
    approx_from_renyi,
    epsilon_at_order,
    rounded_up,
)
from accounting.guarantees.stated_guarantees import Approx, Pure, ZCdp
from accounting.guarantees.tradeoff_function import golden
from accounting.privacy_curves.release_curve import PrivacyCurve
from accounting.published_noise_bounds import gaussian_sum_epsilon, skellam_renyi_bound
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussianSum
from dpcore.laws.skellam import Skellam
from dpcore.mechanism import Norm, Scope, Sensitivity, Unit
from dpcore.numbers.enclosure import Enclosure, End, ball, precision
from dpcore.numbers.parameter import RationalLike, integer, rational_in

_ORDERS: Final = 4096
_SAMPLED_ORDERS: Final = tuple(map(Fraction, (2, 4, 8, 16, 32)))
_KEPT: Final = 4096
_ROUND_WIDTH: Final = Fraction(1, 10**5)
_PROPOSITION_13: Final = Fraction(1, 4)
_PARTS: Final = tuple(map(Fraction, ("0", "1/1000", "1/10", "1/2", "9/10", "1")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    r"""A composition theorem with a bound on epsilon, or the reason why it does not apply."""

    method: str
    bound: Bound | None
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        r"""The bound on epsilon as a lower and an upper value, or null together with the reason."""
        if self.bound is None:
            return {"method": self.method, "epsilon": None, "reason": self.reason}
        theorem = self.bound.theorem
        return {"method": self.method, "epsilon": self.bound.to_json(), "theorem": theorem}


def per_user(guarantee: Guarantee, *, max_visits: int) -> Composition:
    r"""The guarantee of a user who takes part at most ``max_visits`` times, once per batch.

    ``guarantee`` covers one contribution; the result has the scope unit ``user``. The visits may
    depend on earlier releases, but not otherwise on the user's data.

    >>> user = per_user(Pure("1/10"), max_visits=4)
    >>> float(user.epsilon(0)), user.scope.unit.value
    (0.4, 'user')

    Raises :class:`InvalidParameter` if ``max_visits`` < 1, or if ``guarantee`` has the unit
    ``user``.
    """
    visits = integer("max_visits", max_visits, at_least=1)
    total = compose((guarantee, visits))
    if total.scope.unit is Unit.USER:
        must = "has unit user: pass the guarantee of one contribution"
        raise InvalidParameter("guarantee", guarantee, must)
    reason = f"a user takes part in at most {visits} batches, once in each, whatever the data"
    return replace(
        total,
        scope=Scope(unit=Unit.USER, relation=total.scope.relation),
        assumptions=(*total.assumptions, reason),
    )


def routes(total: Guarantee, delta: RationalLike) -> tuple[Route, ...]:
    r"""Compare composition theorems: the bound on epsilon that each gives for ``total``.

    ``delta`` lies in (0, 1). The methods are:

    - ``exact``: the composed privacy losses;
    - ``renyi``: exact Renyi divergences, order by order;
    - ``paper``: published bounds on the Renyi divergences;
    - ``zcdp``: the zCDP parameter rho;
    - ``optimal`` and ``advanced``: the composition theorems of these names, from the (epsilon,
      delta) of a round, for the best split of ``delta`` found between the rounds and the slack;
    - ``basic``: the sum of the epsilons.

    A theorem that does not apply has a reason instead of a bound.

    >>> from dpcore import Skellam
    >>> visit = PrivacyCurve(noise=Skellam(variance=400), sensitivity=1)
    >>> found = routes(per_user(visit, max_visits=16), "1e-6")
    >>> [route.method for route in found]
    ['exact', 'renyi', 'paper', 'zcdp', 'optimal', 'advanced', 'basic']
    >>> uppers = [float(route.bound) for route in found if route.bound is not None]
    >>> uppers[0] < uppers[1] < uppers[5]
    True
    """
    total = compose(total)
    at = rational_in("delta", delta, "(0, 1)", "every theorem needs a positive delta")
    methods = {
        "exact": _exact,
        "renyi": _renyi,
        "paper": _paper,
        "zcdp": _zcdp,
        "optimal": _optimal,
        "advanced": _advanced,
        "basic": _basic,
    }
    return tuple(_route(method, partial(find, total, at)) for method, find in methods.items())


def _route(method: str, find: Callable[[], Bound]) -> Route:
    try:
        bound = find()
    except NotDerived as error:
        return Route(method=method, bound=None, reason=str(error))
    # An infinite epsilon is a result only if both bounds are infinite; else there is no bound.
    if bound.upper == math.inf and bound.lower != math.inf:
        return Route(method=method, bound=None, reason="no finite epsilon at this delta")
    return Route(method=method, bound=bound)


def _exact(total: Composition, delta: Fraction) -> Bound:
    if not total.in_pairs:
        raise NotDerived("the exact total of a Renyi claim", "use the bound of another theorem")
    return total.epsilon(delta)


def _renyi(total: Composition, delta: Fraction) -> Bound:
    # Orders without a divergence count as infinite; an error is raised if no order has a
    # divergence.
    _divergence(total.parts[0][0], Fraction(2))

    def divergence(order: Fraction) -> End:
        try:
            return sum(
                (rounds * _divergence(source, order) for source, rounds in total.parts), Fraction(0)
            )
        except NotDerived:
            return math.inf

    if any(isinstance(source, (SampledRelease, AllocatedSample)) for source, _ in total.parts):
        # Each order needs a separate discretisation, so only a few orders are tried.
        return Bound(
            upper=min(epsilon_at_order(divergence(a), a, delta) for a in _SAMPLED_ORDERS),
            method="renyi",
            theorem="Renyi divergences add; the best of a few integer orders",
        )
    return approx_from_renyi(divergence, delta)


@lru_cache(maxsize=_KEPT)
def _divergence(source: Guarantee, order: Fraction) -> End:
    return renyi_of(source, order).upper


@lru_cache(maxsize=_KEPT)
def _rho(source: Guarantee) -> End:
    return source.zcdp().upper


def _zcdp(total: Composition, delta: Fraction) -> Bound:
    rho: End = sum((rounds * _rho(source) for source, rounds in total.parts), Fraction(0))
    if not isinstance(rho, Fraction):
        raise NotDerived("a finite rho", "D_alpha/alpha is unbounded for this noise")
    found = as_approx(ZCdp(rho), delta).stated_epsilon
    return Bound(upper=Fraction(found), method="zcdp", theorem="rhos add; the best order")


def _paper(total: Composition, delta: Fraction) -> Bound:
    curve, rounds = _of_one_curve(total)
    moves = Sensitivity.of(curve.sensitivity)
    match curve.noise, moves.amount if moves.norm is Norm.ABSOLUTE else None:
        case Skellam(variance=variance), int() as step:
            found = _least_order(lambda a: rounds * skellam_renyi_bound(a, variance, step), delta)
            theorem = "Agarwal, Kairouz and Liu 2021, Theorem 3.5, at integer orders"
            return Bound(upper=found, method="paper", theorem=theorem)
        case DiscreteGaussianSum(count=count, sigma_squared=v), int() as step if (
            Fraction(v) >= _PROPOSITION_13
        ):
            each = gaussian_sum_epsilon(count, v, step).upper
            rho = rounds * Fraction(each) ** 2 / 2
            theorem = "Kairouz, Liu and Steinke 2021, Proposition 13"
            bound = Fraction(as_approx(ZCdp(rho), delta).stated_epsilon)
            return Bound(upper=bound, method="paper", theorem=theorem)
    raise NotDerived(
        "a published bound",
        "the papers bound Skellam noise and sums of discrete Gaussians of sigma_squared >= 1/4, "
        "for a scalar sensitivity",
    )


def _least_order(divergence: Callable[[int], Fraction], delta: Fraction) -> End:
    # Over integer orders; the bound decreases and then increases in the order.
    best: End = math.inf
    for order in range(2, _ORDERS):
        found = epsilon_at_order(divergence(order), Fraction(order), delta)
        if found > best:
            return best
        best = found
    return best


def _optimal(total: Composition, delta: Fraction) -> Bound:
    curve, rounds = _of_one_part(total)
    best: End = math.inf
    for part in _PARTS:
        each = part * delta / rounds
        epsilon = curve(each)
        if isinstance(epsilon, Fraction):
            claim = Approx(epsilon, each) if each else Pure(epsilon)
            best = min(best, compose((claim, rounds)).epsilon(delta).upper)
    theorem = "Kairouz, Oh and Viswanath 2015, Theorem 3.3, on (epsilon, delta) of a round"
    return Bound(upper=best, method="optimal", theorem=theorem)


def _advanced(total: Composition, delta: Fraction) -> Bound:
    return advanced_over_splits(*_of_one_part(total), delta)


def _basic(total: Composition, delta: Fraction) -> Bound:
    # delta is shared equally among the rounds; a round of delta 0 is pure.
    share = delta / total.rounds
    found: End = Fraction(0)
    for source, rounds in total.parts:
        found += rounds * compose(source).epsilon(share, _ROUND_WIDTH).upper
    return Bound(upper=found, method="basic", theorem="epsilons and deltas add")


def _of_one_part(total: Composition) -> tuple[Callable[[Fraction], End], int]:
    if len(total.parts) != 1:
        raise NotDerived("this bound for different rounds", "the theorem is for identical rounds")
    ((source, rounds),) = total.parts
    one = compose(source)

    @cache
    def epsilon_of(delta: Fraction) -> End:
        return one.epsilon(delta, _ROUND_WIDTH).upper

    return epsilon_of, rounds


def _of_one_curve(total: Composition) -> tuple[PrivacyCurve, int]:
    match total.parts:
        case ((PrivacyCurve() as curve, rounds),):
            return curve, rounds
    raise NotDerived(
        "a published bound", "the papers cover only identical rounds of one noise distribution"
    )


_BITS: Final = 192
_LARGEST: Final = 1 << 8192
_ADVANCED: Final = "Dwork, Rothblum and Vadhan 2010, Theorem III.3"


def advanced_over_splits(
    epsilon_of: Callable[[Fraction], End], rounds: int, delta: RationalLike
) -> Bound:
    r"""Bound the epsilon of ``rounds`` rounds at ``delta`` from above, by advanced composition.

    ``epsilon_of(d)`` is an upper bound on the epsilon of one round at delta = d, possibly infinite.
    The bound is minimised over splits delta = ``rounds`` d + slack. Every split gives a valid
    bound; a floating-point search proposes the splits.
    """
    k, total = integer("rounds", rounds, at_least=1), rational_in("delta", delta, "(0, 1)")

    def at(place: float) -> End:
        # Splits slack : k d = 1 : e^place. Floats only choose the split; every split is valid.
        slack = total * Fraction(1 / (1 + math.exp(place)))
        return _forward(epsilon_of((total - slack) / k), k, slack)

    start = min(range(-12, 13, 3), key=at)
    near = golden(at, start - 3.0, start + 3.0, 12)
    found = min(at(start), near, _forward(epsilon_of(Fraction(0)), k, total))
    return Bound(upper=found, method="advanced", theorem=_ADVANCED)


def _forward(epsilon: End, rounds: int, slack: Fraction) -> End:
    # x sqrt(2k log(1/slack)) + k x (e^x - 1) for x = epsilon, rounded up.
    if not isinstance(epsilon, Fraction):
        return math.inf
    with precision(_BITS):
        each = ball(epsilon)
        spread = (2 * rounds * -ball(slack).log()).sqrt()
        total = rounded_up(Enclosure.of(each * spread + rounds * each * each.expm1()).upper)
    # A larger value could not be written as exact text.
    return total if total < _LARGEST else math.inf
