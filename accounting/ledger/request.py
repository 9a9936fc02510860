r"""What is asked of a ledger: who is to pay for which batch, and what that costs each of them.

Proofs: docs/proofs/ledger.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias, cast

from accounting.claims.claim import Approx, Pure, Rdp, ZCdp
from accounting.claims.guarantee import Guarantee
from accounting.errors import NotDerived
from accounting.ledger.history import canonical
from accounting.ledger.names import name, sorted_names
from accounting.ledger.rows import Priced, for_user
from accounting.mechanism.description import Description
from accounting.release.curve import OneRelease, PrivacyCurve
from accounting.release.guarantee import guarantee as derived
from accounting.theorems.convert import as_zcdp, points_of
from accounting.theorems.filter import ApproxFilter, Filter, Price, PureFilter, RdpFilter
from accounting.totals.compose import Composition, compose
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Release
from dpcore.numbers.enclosure import End

__all__ = ["Asked", "Cost", "Costly", "Request", "asked", "cost"]

Costly: TypeAlias = Guarantee | Description
"""What a charge may be of: one guarantee or description, or several released together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    r"""One charge to ask for: ``users`` pay for the release ``batch`` of ``guarantee``.

    ``rows_per_user`` is the most rows that one user has in the batch; it is needed if the guarantee
    is for one contribution. With ``skip_exhausted`` those who cannot pay are left out, and must not
    take part.
    """

    users: Iterable[str]
    guarantee: Costly
    batch: str
    rows_per_user: int | None = None
    skip_exhausted: bool = False

    @classmethod
    def of(cls, asked_for: Request | Release, rows_per_user: int | None = None) -> Request:
        r"""The record of a release as what it costs its participants."""
        if isinstance(asked_for, Request):
            return asked_for
        if not isinstance(asked_for, Release):
            raise InvalidParameter("requests", asked_for, "must be a Request or a Release")
        return cls(
            users=asked_for.participants,
            guarantee=derived(asked_for.mechanism),
            batch=asked_for.batch,
            rows_per_user=rows_per_user,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    r"""The price of a guarantee under a filter, and the guarantee as the history keeps it."""

    price: Price
    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    r"""A request whose arguments are in order: sorted distinct names and the cost for each."""

    batch: str
    names: tuple[str, ...]
    cost: Cost
    skip_exhausted: bool


def asked(request: Request, cost_each: Cost) -> Asked:
    r"""The request, checked: errors name its ``users`` or its ``batch``."""
    return Asked(
        batch=name("batch", request.batch),
        names=sorted_names(request.users),
        cost=cost_each,
        skip_exhausted=request.skip_exhausted,
    )


def cost(keeper: Filter, guarantee: object, rows_per_user: int | None = None) -> Cost:
    r"""What a guarantee costs each user, who has at most ``rows_per_user`` rows in the batch."""
    if isinstance(guarantee, Description):
        guarantee = derived(guarantee)
    if isinstance(guarantee, OneRelease) and not isinstance(guarantee, PrivacyCurve):
        guarantee = compose(guarantee)
    if not isinstance(guarantee, Priced):
        raise InvalidParameter(
            "guarantee", guarantee, "must be a claim, a release or a Composition"
        )
    scope = keeper.budget.scope
    if guarantee.scope.relation is not scope.relation:
        raise InvalidParameter(
            "scope",
            guarantee.scope,
            f"must have the relation of the budget, {scope.relation.value!r}: mixed scopes "
            "never compose",
        )
    found = for_user(guarantee, rows_per_user)
    if isinstance(found, Composition):
        return Cost(price=_price_of(keeper, found), record=_record_of(found))
    return Cost(price=keeper.price(found), record=_plain(found.to_json()))


def _price_of(keeper: Filter, whole: Composition) -> Price:
    # A bound of the whole in the words that the filter counts; what has none is refused.
    budget, scope = keeper.budget, keeper.budget.scope
    if isinstance(keeper, PureFilter):
        found = keeper.price(Pure(_finite(whole, whole.pure().upper), scope=scope))
    elif isinstance(keeper, RdpFilter) and isinstance(budget, Rdp):
        at = {order: _finite(whole, whole.renyi(order).upper) for order, _ in points_of(budget)}
        found = keeper.price(Rdp(at, scope=scope))
    elif isinstance(keeper, ApproxFilter):
        found = _price_in_two(keeper, whole)
    else:
        found = keeper.price(ZCdp(_finite(whole, whole.zcdp().upper), scope=scope))
    return Price(amounts=found.amounts, assumptions=whole.assumptions)


def _price_in_two(keeper: ApproxFilter, whole: Composition) -> Price:
    # Each part as it would be charged by itself; those that have no rho are read together, once.
    rho, delta, rest = Fraction(0), Fraction(0), []
    for part, rounds in whole.parts:
        if isinstance(part, Approx):
            rho += rounds * Fraction(as_zcdp(Pure(part.stated_epsilon)).rho)
            delta += rounds * part.stated_delta
            continue
        try:
            rho += rounds * _finite(whole, part.zcdp().upper)
        except NotDerived:
            rest.append((part, rounds))
    if rest:
        at = Fraction(keeper.charge_delta or 0)
        others = replace(whole, parts=tuple(rest))
        epsilon = _finite(whole, others.epsilon(at).upper)
        rho += Fraction(as_zcdp(Pure(epsilon)).rho)
        delta += at
    scope = keeper.budget.scope
    return Price(
        amounts=(
            keeper.price(ZCdp(rho, scope=scope)).amounts[0],
            keeper.price(Approx(0, min(delta, Fraction(1)), scope=scope)).amounts[1],
        )
    )


def _finite(whole: Composition, upper: End) -> Fraction:
    if upper == math.inf:
        raise NotDerived(f"a price of {whole!r}", "the budget's word bounds it by nothing finite")
    return Fraction(upper)


def _record_of(whole: Composition) -> dict[str, Any]:
    parts, scope = whole.to_json(), whole.scope.to_json()
    record = {"claim": "composition", "parts": parts, "scope": scope}
    if whole.assumptions:
        record["reason"] = "; ".join(whole.assumptions)
    return _plain(record)


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    # As it is when it comes back from the database.
    return cast("dict[str, Any]", json.loads(canonical(record)))
