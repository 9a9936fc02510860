"""Tests of several rows per user: the user pays the total loss of all rows."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from accounting.composition.compose import compose
from accounting.composition.partition_selection_guarantee import appearance
from accounting.derive_guarantee import PoissonSampled, guarantee
from accounting.errors import NotDerived
from accounting.group_privacy import for_user
from accounting.guarantees.stated_guarantees import Approx, Assumed, Pure, PureBound, Rdp, ZCdp
from accounting.ledger import Ledger
from accounting.ledger.charge_request import Request, cost
from accounting.privacy_curves.release_curve import PrivacyCurve
from accounting.privacy_filters import filter_for
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.mechanism import Mechanism, Relation, Release, Scope, Sensitivity, Unit
from dpcore.selection import NoisyThreshold
from tests.support.ledger.budget import PER_USER

LAPLACE = Mechanism(noise=DiscreteLaplace(scale=10), sensitivity=1)
CURVE = PrivacyCurve(noise=LAPLACE.noise, sensitivity=1)
GAUSSIAN = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=4), sensitivity=1)
ADDED = Scope(relation=Relation.ADD_REMOVE)


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    with Ledger.create(str(tmp_path / "ledger.db"), budget=Pure(4, scope=PER_USER)) as made:
        yield made


def test_a_guarantee_for_one_contribution_needs_a_number_of_rows(ledger: Ledger) -> None:
    release = Release(mechanism=LAPLACE, batch="a", participants=("ada",))
    for charge in (
        lambda: ledger.charge(["ada"], guarantee(LAPLACE), batch="a"),
        lambda: ledger.charge(["ada"], Pure("1/10"), batch="a"),
        lambda: ledger.charge(["ada"], Assumed(Pure("1/10"), "a data sheet"), batch="a"),
        lambda: ledger.charge(compose(CURVE, CURVE), users=["ada"], batch="a"),
        lambda: ledger.charge(release),
        lambda: ledger.charge_many([release]),
        lambda: ledger.exhausted(["ada"], Pure("1/10")),
    ):
        with pytest.raises(InvalidParameter, match=r"rows_per_user: must be given: .*unit='user'"):
            charge()
    wrong: tuple[Any, ...] = (0, -1, 1.5, "two")
    for rows in wrong:
        with pytest.raises(InvalidParameter, match="rows_per_user"):
            ledger.charge(["ada"], Pure("1/10"), batch="a", rows_per_user=rows)
    with pytest.raises(InvalidParameter, match="rows_per_user = 2: must not be given"):
        ledger.charge(["ada"], Pure("1/10", scope=PER_USER), batch="a", rows_per_user=2)
    assert ledger.charges() == 0
    # k rows cost k times as much.
    ledger.charge(["ada"], guarantee(LAPLACE), batch="a", rows_per_user=3)
    assert ledger.spent("ada") == PureBound("3/10", scope=PER_USER)
    ledger.charge(Release(mechanism=LAPLACE, batch="b", participants=("ada",)), rows_per_user=2)
    ledger.charge(["ada"], Pure("1/10"), batch="c", rows_per_user=1)
    assert ledger.spent("ada") == PureBound("6/10", scope=PER_USER)
    # The same batch with other rows is another charge.
    with pytest.raises(InvalidParameter, match="at another price"):
        ledger.charge(["ada"], guarantee(LAPLACE), batch="a", rows_per_user=2)
    assert ledger.exhausted(["ada"], Pure("1/10"), rows_per_user=34) == ()
    assert ledger.exhausted(["ada"], Pure("1/10"), rows_per_user=35) == ("ada",)
    ledger.charge_many([Request(users=["ada"], guarantee=CURVE, batch="d", rows_per_user=34)])
    assert ledger.remaining("ada") == {"epsilon": 0}


def test_the_cost_of_k_rows_is_that_of_a_shift_by_k() -> None:
    """Reference: the laws themselves with a shift of k instead of one."""
    for k in (1, 2, 3):
        curve = for_user(CURVE, k)
        masses = {x: math.exp(-abs(x) / 10) * math.tanh(1 / 20) for x in range(-400, 401)}
        found = sum(max(p - masses.get(x - k, 0.0), 0) for x, p in masses.items())
        assert math.isclose(curve.delta(0).upper_float, found, rel_tol=1e-9)
        rho = for_user(GAUSSIAN, k)
        assert rho.zcdp().upper == Fraction(k * k, 8)
        assert for_user(ZCdp("1/8"), k) == ZCdp(Fraction(k * k, 8), scope=PER_USER)
        assert for_user(Pure("1/8"), k) == Pure(Fraction(k, 8), scope=PER_USER)
        assert for_user(Assumed(Pure("1/8"), "said"), k) == Assumed(
            Pure(Fraction(k, 8), scope=PER_USER), "said"
        )


def test_rows_that_no_theorem_covers_are_refused() -> None:
    sampled = compose(PoissonSampled(curve=replace(CURVE, scope=ADDED), rate="1/10"))
    for source in (Rdp({2: 1}), sampled):
        assert for_user(source, 1).scope.unit is Unit.USER
        with pytest.raises(NotDerived, match="the cost of 2 rows of one user"):
            for_user(source, 2)


def test_an_approximate_claim_over_several_rows_has_its_bound() -> None:
    """Chains of neighbouring datasets: the ends lose at most the bound, and some nearly as much."""
    epsilon, delta, k = 0.5, 0.01, 3
    claim = for_user(Approx("1/2", "1/100"), k)
    assert isinstance(claim, Approx)
    assert claim.scope == PER_USER
    assert claim.stated_epsilon == Fraction(3, 2)
    # From P_0 to P_k, with P_(i+1)(S) = e^-eps (P_i(S) - delta): the extreme event of every step.
    chance = 0.2
    far = chance
    for _ in range(k):
        far = math.exp(-epsilon) * (far - delta)
    lost = chance - math.exp(k * epsilon) * far
    assert math.isclose(float(claim.stated_delta), lost, rel_tol=1e-12)
    assert Fraction(claim.stated_delta) >= Fraction(lost) * (1 - Fraction(1, 10**14))


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_rows_with_the_same_key_reach_a_threshold_together(rows: int) -> None:
    noise, threshold = DiscreteLaplace(scale=1), 12
    counts = Mechanism(noise=noise, sensitivity=Sensitivity.l1(1), scope=ADDED)
    asked = NoisyThreshold(mechanism=counts, threshold=threshold)
    scope = Scope(unit=Unit.USER, relation=Relation.ADD_REMOVE)
    keeper = filter_for(Approx(50, "1/10", scope=scope))
    price, record = cost(keeper, asked, rows)
    # A user adds one key with `rows` rows: the key never appears without them.
    appears = noise.enclose_sf(threshold - 1 - rows).lower
    assert price.costs[1] >= appears
    assert record["scope"] == scope.to_json()
    # k times the delta of one row is not a bound.
    of_one = appearance(noise, threshold, 1)
    assert rows == 1 or rows * of_one < appears
    # A sensitivity stated for a user with that many rows gives the same guarantee.
    moved = Mechanism(noise=noise, sensitivity=Sensitivity.l1(rows), scope=scope)
    whole = NoisyThreshold(mechanism=moved, threshold=threshold, rows_per_user=rows)
    assert cost(keeper, whole)[0] == price
