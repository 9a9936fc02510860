r"""Group privacy: convert a guarantee for one contribution to a guarantee for a user with k rows.

Neighbouring datasets differ in all k rows at once. Proofs: docs/proofs/ledger.md.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final, TypeAlias

from accounting.composition.compose import Composition
from accounting.derive_guarantee import guarantee as derived
from accounting.errors import NotDerived
from accounting.guarantees.renyi_and_zcdp_to_epsilon import rounded_up
from accounting.guarantees.stated_guarantees import Approx, Assumed, Pure, Rdp, ZCdp
from accounting.privacy_curves.local_report_curve import ReportCurve
from accounting.privacy_curves.release_curve import PrivacyCurve, described
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.mechanism import Scope, Sensitivity, Unit
from dpcore.numbers.enclosure import Enclosure, ball, precision
from dpcore.numbers.parameter import integer
from dpcore.selection import NoisyThreshold

_BITS: Final = 192
_NO_ROWS: Final = (
    "must be given: the guarantee is for one contribution, the budget for a user. Pass the largest "
    "number of rows of one user in the batch, e.g. 1, or a guarantee with Scope(unit='user')"
)


def threshold_for_user(threshold: NoisyThreshold, rows_per_user: int) -> NoisyThreshold:
    r"""Adapt a noisy threshold for one contribution to a user with k = ``rows_per_user`` rows.

    Rows with the same key can reach the threshold together, so the delta of k rows may exceed k
    times the delta of one row.
    """
    k = integer("rows_per_user", rows_per_user, at_least=1)
    counts = threshold.mechanism
    scope = Scope(unit=Unit.USER, relation=threshold.scope.relation)
    moves = Sensitivity.of(counts.sensitivity).times(k)
    return replace(
        threshold,
        mechanism=replace(counts, sensitivity=moves, scope=scope),
        rows_per_user=k * threshold.rows_per_user,
    )


Priced: TypeAlias = Pure | ZCdp | Rdp | Approx | Assumed | PrivacyCurve | Composition
"""The types that can be charged: one guarantee, or a composition of releases made together."""


def for_user(guarantee: Priced, rows_per_user: int | None) -> Priced:
    r"""Convert ``guarantee`` to a guarantee for a user with at most ``rows_per_user`` rows.

    A guarantee with the scope unit ``user`` is returned unchanged, and ``rows_per_user`` must be
    None. Otherwise let k = ``rows_per_user``. The guarantee of a noise law becomes that at k times
    the sensitivity, a pure claim k epsilon, a zCDP claim k^2 rho, and an (epsilon, delta) claim (k
    epsilon, delta (1 + e^epsilon + ... + e^((k-1) epsilon))). Raises :class:`NotDerived` if k > 1
    and no theorem covers the guarantee, e.g. an Rdp claim.
    """
    if guarantee.scope.unit is Unit.USER:
        if rows_per_user is not None:
            must = "must not be given: the guarantee already covers all rows of a user"
            raise InvalidParameter("rows_per_user", rows_per_user, must)
        return guarantee
    if rows_per_user is None:
        raise InvalidParameter("rows_per_user", ABSENT, _NO_ROWS)
    rows = integer("rows_per_user", rows_per_user, at_least=1)
    scope = Scope(unit=Unit.USER, relation=guarantee.scope.relation)
    if isinstance(guarantee, Assumed):
        return replace(guarantee, guarantee=_of_rows(guarantee.guarantee, rows, scope))
    if isinstance(guarantee, Composition):
        # Each row of a user is a separate local report.
        parts = tuple(
            (each, rows * k) if isinstance(each, ReportCurve) else (_of_rows(each, rows), k)
            for each, k in guarantee.parts
        )
        return replace(guarantee, parts=parts, scope=scope)
    found: Priced = _of_rows(guarantee, rows, scope)
    return found


def _of_rows(source: Any, k: int, scope: Scope | None = None) -> Any:
    # The guarantee for k rows together, under `scope` if given; parts of a composition keep theirs.
    if scope is not None:
        source = replace(source, scope=scope)
    if k == 1:
        return source
    description = described(source)
    if description is not None:
        with suppress(InvalidParameter):  # no bound is proven for groups under this scheme
            found: Any = derived(replace(description, group=k * description.group))
            return found if scope is None else replace(found, scope=scope)
    match source:
        case Pure():
            return replace(source, stated_epsilon=k * source.stated_epsilon)
        case ZCdp():
            return replace(source, rho=k * k * Fraction(source.rho))
        case Approx():
            return _approx(source, k)
    reason = "state the noise with the sensitivity of a whole user and Scope(unit='user')"
    raise NotDerived(f"the cost of {k} rows of one user under {source!r}", reason)


def _approx(claim: Approx, k: int) -> Approx:
    epsilon, delta = Fraction(claim.stated_epsilon), Fraction(claim.stated_delta)
    with precision(_BITS):
        grown = sum(((i * ball(epsilon)).exp() for i in range(1, k)), ball(Fraction(1)))
        most = rounded_up(Enclosure.of(ball(delta) * grown).upper)
    found = min(most, Fraction(1)) if isinstance(most, Fraction) else Fraction(1)
    return replace(claim, stated_epsilon=k * epsilon, stated_delta=found)
