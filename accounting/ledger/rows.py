r"""What a guarantee for one contribution costs a user who has several rows in a batch.

Group privacy: k rows of one user change together. Proofs: docs/proofs/ledger.md.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final, TypeAlias

from accounting.claims.claim import Approx, Assumed, Pure, Rdp, ZCdp
from accounting.claims.orders import rounded_up
from accounting.errors import NotDerived
from accounting.release.curve import PrivacyCurve, described
from accounting.release.guarantee import guarantee as guarantee_of
from accounting.totals.compose import Composition
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.mechanism import Scope, Unit
from dpcore.numbers.enclosure import Enclosure, ball, precision
from dpcore.numbers.parameter import integer

__all__ = ["Priced", "for_user"]

_BITS: Final = 192

Priced: TypeAlias = Pure | ZCdp | Rdp | Approx | Assumed | PrivacyCurve | Composition
"""What a charge may be of: one guarantee, or several that are released together."""


def for_user(guarantee: Priced, rows_per_user: int | None) -> Priced:
    r"""``guarantee`` for the whole of a user, who has at most ``rows_per_user`` rows in the batch.

    A guarantee of scope unit ``user`` takes no ``rows_per_user``; one for a contribution needs it.
    k rows move a query k times as far, so a noise is priced at k times its sensitivity: pure
    epsilon k, rho k^2. A claim (epsilon, delta) becomes
    (k epsilon, delta (1 + e^epsilon + ... + e^((k-1) epsilon))).

    >>> for_user(ZCdp("1/8"), 2), for_user(Pure("1/10"), 3)
    (ZCdp('1/2', scope=Scope(unit='user', relation='replace')), Pure('3/10', scope=Scope(...)))

    Raises :class:`InvalidParameter` if ``rows_per_user`` is missing, is given for a user's
    guarantee, or is not an integer >= 1; :class:`NotDerived` for more than one row of Renyi claims
    and of samples without group privacy.
    """
    if guarantee.scope.unit is Unit.USER:
        if rows_per_user is not None:
            must = "must not be given: the guarantee is for the whole of a user already"
            raise InvalidParameter("rows_per_user", rows_per_user, must)
        return guarantee
    if rows_per_user is None:
        raise InvalidParameter(
            "rows_per_user",
            ABSENT,
            "must be given: the guarantee is for one contribution, the budget for a user. Give the "
            "most rows that one user has in the batch (1 if each has one), or a guarantee with "
            "Scope(unit='user')",
        )
    rows = integer("rows_per_user", rows_per_user, at_least=1)
    scope = Scope(unit=Unit.USER, relation=guarantee.scope.relation)
    if isinstance(guarantee, Assumed):
        return replace(guarantee, guarantee=_of_rows(guarantee.guarantee, rows, scope))
    if isinstance(guarantee, Composition):
        parts = tuple((_of_rows(each, rows), rounds) for each, rounds in guarantee.parts)
        return replace(guarantee, parts=parts, scope=scope)
    found: Priced = _of_rows(guarantee, rows, scope)
    return found


def _of_rows(source: Any, k: int, scope: Scope | None = None) -> Any:
    # For k rows at once, and in another scope; the parts of a composition keep theirs.
    if scope is not None:
        source = replace(source, scope=scope)
    if k == 1:
        return source
    asked = described(source)
    if asked is not None:
        with suppress(InvalidParameter):  # of a group of this scheme nothing is proven
            return guarantee_of(replace(asked, group=k * asked.group))
    match source:
        case Pure():
            return replace(source, stated_epsilon=k * source.stated_epsilon)
        case ZCdp():
            return replace(source, rho=k * k * Fraction(source.rho))
        case Approx():
            return _approx(source, k)
    raise NotDerived(
        f"the cost of {k} rows of one user under {source!r}",
        "state the noise with the sensitivity of a whole user and Scope(unit='user')",
    )


def _approx(claim: Approx, k: int) -> Approx:
    epsilon, delta = Fraction(claim.stated_epsilon), Fraction(claim.stated_delta)
    with precision(_BITS):
        grown = sum(((i * ball(epsilon)).exp() for i in range(1, k)), ball(Fraction(1)))
        most = rounded_up(Enclosure.of(ball(delta) * grown).upper)
    found = min(most, Fraction(1)) if isinstance(most, Fraction) else Fraction(1)
    return replace(claim, stated_epsilon=k * epsilon, stated_delta=found)
