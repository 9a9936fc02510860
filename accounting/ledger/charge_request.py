r"""Requests to charge users for a batch, and the cost to each user.

Proofs: docs/proofs/ledger.md.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final, Self, TypeAlias, cast

from accounting.composition.compose import Composition, Source, compose
from accounting.composition.partition_selection_guarantee import threshold_guarantee
from accounting.convert_guarantees import as_zcdp
from accounting.derive_guarantee import Derivable, Reported
from accounting.derive_guarantee import guarantee as derived
from accounting.errors import NotDerived
from accounting.group_privacy import Priced, for_user, threshold_for_user
from accounting.guarantees.guarantee import Guarantee
from accounting.guarantees.stated_guarantees import Approx, Pure, ZCdp
from accounting.ledger.hash_chain import canonical
from accounting.privacy_curves.release_curve import OneRelease, PrivacyCurve, described
from accounting.privacy_filters import ApproxFilter, Filter, Price
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Mechanism, Release, Unit
from dpcore.numbers.enclosure import End
from dpcore.numbers.parameter import PLAIN, integer, name, write_rational
from dpcore.sampling.rng import Rng, SeededRng
from dpcore.selection import AboveThreshold, NoisyMax, NoisyThreshold, Selection

_PLAIN_LINES: Final = re.compile(rf"(?:{PLAIN.pattern}\n)*+")
_NO_DELTA: Final = (
    "has no delta for unknown keys: name the keys (--keys), or open a ledger with a budget "
    "such as epsilon=1,delta=1e-6"
)

Releasable: TypeAlias = Mechanism | Selection | NoisyThreshold
"""A mechanism that can answer a query."""

Drawable: TypeAlias = Releasable | NoisyMax | AboveThreshold | Reported
"""A mechanism from which a ledger can draw a value."""

Priceable: TypeAlias = Source | Drawable
"""A guarantee, or an object from which one is derived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    r"""A request to charge ``users`` for the release of a ``batch`` with this ``guarantee``.

    ``rows_per_user`` is the largest number of rows of one user in the batch; it is needed if the
    guarantee is for one contribution. With ``skip_exhausted``, users with too little budget are
    left out of the charge, and must not take part.
    """

    users: Iterable[str]
    guarantee: Priceable
    batch: str
    rows_per_user: int | None = None
    skip_exhausted: bool = False

    @classmethod
    def of(cls, release: Request | Release, rows_per_user: int | None = None) -> Request:
        r"""The request to charge the participants of ``release``; returns a Request unchanged."""
        if isinstance(release, Request):
            return release
        if not isinstance(release, Release):
            raise InvalidParameter("requests", release, "must be a Request or a Release")
        return cls(
            users=release.participants,
            guarantee=derived(release.mechanism),
            batch=release.batch,
            rows_per_user=rows_per_user,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRequest:
    r"""A validated request, with sorted distinct names and the price for each user.

    ``record`` is the guarantee as it is stored in the history. ``draw`` computes the value that is
    released with the charge. It is called only in the process that made the request.
    """

    batch: str
    names: tuple[str, ...]
    price: Price
    record: Mapping[str, Any]
    skip_exhausted: bool
    draw: Callable[[], object] | None = None

    @classmethod
    def of(cls, request: Request, price: Price, record: Mapping[str, Any]) -> Self:
        r"""Validate ``request``; error messages name ``users`` or ``batch``."""
        return cls(
            batch=name("batch", request.batch),
            names=sorted_names(request.users),
            price=price,
            record=record,
            skip_exhausted=request.skip_exhausted,
        )

    @classmethod
    def of_json(cls, data: Mapping[str, Any], counters: int) -> Self:
        r"""Parse the output of :meth:`to_json`, whose price must have ``counters`` amounts."""
        price, record = data["price"], data["record"]
        amounts = tuple(integer("amounts", each, at_least=0) for each in price["amounts"])
        costs = tuple(Fraction(each) for each in price["costs"])
        if not len(amounts) == len(costs) == counters or not isinstance(record, dict):
            must = f"must be {counters} integers, with {counters} costs and a JSON object as record"
            raise InvalidParameter("amounts", amounts, must)
        assumptions = tuple(map(str, price["assumptions"]))
        return cls(
            batch=name("batch", data["batch"]),
            names=sorted_names(data["names"]),
            price=Price(amounts=amounts, assumptions=assumptions, costs=costs),
            record=record,
            skip_exhausted=bool(data["skip_exhausted"]),
        )

    def to_json(self) -> dict[str, Any]:
        r"""All fields except ``draw``, a function that no other process may call."""
        kept, costs = self.price, [*map(write_rational, self.price.costs)]
        price = {"amounts": kept.amounts, "assumptions": kept.assumptions, "costs": costs}
        data = {"batch": self.batch, "names": self.names, "price": price, "record": self.record}
        return {**data, "skip_exhausted": self.skip_exhausted}


def sorted_names(users: object) -> tuple[str, ...]:
    r"""Check that the names in ``users`` are valid and distinct, and sort them by code point."""
    if isinstance(users, (str, bytes)) or not isinstance(users, Iterable):
        raise InvalidParameter("users", users, "must be a collection of names, e.g. a list")
    names = [*users]
    lines = "\n".join([*names, ""]) if {*map(type, names)} == {str} else ""
    if lines.count("\n") != len(names) or not _PLAIN_LINES.fullmatch(lines):
        names = [name("users", user) for user in names]
    names.sort()
    if not names:
        raise InvalidParameter("users", names, "must contain at least one user")
    for one, following in pairwise(names):
        if one == following:
            raise InvalidParameter("users", one, "appears twice: list each user once per batch")
    return tuple(names)


def refuse_seed(rng: Rng) -> None:
    r"""Raise :class:`InvalidParameter` for a seeded generator, whose noise gives no privacy."""
    if isinstance(rng, SeededRng):
        must = "is not private: a ledger cannot charge for this release"
        raise InvalidParameter("seed", rng.seed, must)


def without(names: tuple[str, ...], left_out: tuple[str, ...]) -> tuple[str, ...]:
    r"""The ``names`` that are not in ``left_out``, in the same order."""
    out = frozenset(left_out)
    return tuple(name for name in names if name not in out) if out else names


def cost(
    keeper: Filter, guarantee: object, rows_per_user: int | None = None
) -> tuple[Price, Mapping[str, Any]]:
    r"""The price of a guarantee for each user, and the guarantee as it is stored in the history.

    A user has at most ``rows_per_user`` rows in the batch, if the guarantee is for one
    contribution.
    """
    if isinstance(guarantee, Derivable):
        guarantee = derived(guarantee)
    if isinstance(guarantee, NoisyThreshold):
        if "delta" not in keeper.counters:
            raise InvalidParameter("budget", keeper.budget.text, _NO_DELTA)
        if rows_per_user is not None and guarantee.scope.unit is Unit.CONTRIBUTION:
            guarantee, rows_per_user = threshold_for_user(guarantee, rows_per_user), None
        guarantee = threshold_guarantee(guarantee)
    if isinstance(guarantee, OneRelease) and not isinstance(guarantee, PrivacyCurve):
        guarantee = compose(guarantee)
    if not isinstance(guarantee, Priced):
        reason = "must be a claim, a mechanism, a release or a Composition"
        raise InvalidParameter("guarantee", guarantee, reason)
    scope = keeper.budget.scope
    own = guarantee.scope
    if own.relation is not scope.relation or (own.unit is Unit.USER and own != scope):
        other = "the scope of one contribution with the same relation"
        must = f"must be the budget's scope, {scope!r}, or {other}: mixed scopes never compose"
        raise InvalidParameter("scope", own, must)
    found = for_user(guarantee, rows_per_user)
    if isinstance(found, Composition):
        return _price_of(keeper, found), _plain(found.record())
    return keeper.price(found), _plain(found.to_json())


def _price_of(keeper: Filter, whole: Composition) -> Price:
    # Bounds the composition in the quantities that the filter counts; raises NotDerived if there is
    # no bound.
    if isinstance(keeper, ApproxFilter):
        found = _price_in_two(keeper, whole)
    else:
        found = keeper.price(keeper.convert(whole))
    return replace(found, assumptions=whole.assumptions)


def _price_in_two(keeper: ApproxFilter, whole: Composition) -> Price:
    # Parts are priced by their rho. The rho of a subsampled release is only an upper bound, so
    # subsampled releases are also priced by their epsilon at a delta; the price that uses less of
    # the budget is charged.
    rhos: dict[Guarantee, Fraction] = {}
    for part, _ in whole.parts:
        with suppress(NotDerived):
            source = Pure(part.stated_epsilon) if isinstance(part, Approx) else part
            rhos[part] = _finite(whole, source.zcdp().upper)
    exact = {part: rho for part, rho in rhos.items() if not _sampled(part)}
    routes = (rhos, exact) if len(exact) < len(rhos) else (rhos,)
    prices = (_by_rho(keeper, whole, each) for each in routes)

    def used(price: Price) -> tuple[bool, Fraction]:
        limits = zip(price.costs, keeper.budgets, strict=True)
        shares = (cost / limit for cost, limit in limits if limit)
        return not keeper.admits((0, 0), price), sum(shares, Fraction(0))

    return min(prices, key=used)


def _sampled(part: Guarantee) -> bool:
    description = described(part)
    return description is not None and not description.scheme.everybody


def _by_rho(keeper: ApproxFilter, whole: Composition, rhos: Mapping[Guarantee, Fraction]) -> Price:
    # The price if the parts in `rhos` are priced by their rho, and all others together by the
    # epsilon of their composition.
    rest = tuple(each for each in whole.parts if each[0] not in rhos)
    rho, delta = Fraction(0), Fraction(0)
    for part, rounds in whole.parts:
        rho += rounds * rhos.get(part, 0)
        delta += rounds * part.stated_delta if isinstance(part, Approx) else 0
    if rest:
        at = Fraction(keeper.charge_delta or 0)
        epsilon = _finite(whole, replace(whole, parts=rest).epsilon(at).upper)
        rho += Fraction(as_zcdp(Pure(epsilon)).rho)
        delta += at
    scope = keeper.budget.scope
    added = keeper.price(ZCdp(rho, scope=scope))
    lost = keeper.price(Approx(0, min(delta, Fraction(1)), scope=scope))
    return Price(amounts=(added.amounts[0], lost.amounts[1]), costs=(added.costs[0], lost.costs[1]))


def _finite(whole: Composition, upper: End) -> Fraction:
    if upper == math.inf:
        reason = "no theorem bounds its cost in the quantity of the budget"
        raise NotDerived(f"a price of {whole!r}", reason)
    return Fraction(upper)


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    # The record as it is read back from the database.
    return cast("dict[str, Any]", json.loads(canonical(record)))
