"""Audits of users who return or vanish: noise for one visit, or for everyone, is refuted."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

import audit
from accounting.budget.returning import per_user
from accounting.release.curve import PrivacyCurve
from bandits.audited.server_view import view_of
from bandits.audited.target import Viewed, audit_view, both
from bandits.policies.elimination import BatchedElimination
from bandits.policies.returning import steady_for
from bandits.privatizers.protocols import Deployment, SumProtocol
from bandits.privatizers.sums import SumPrivatizer
from dpcore.errors import InvalidParameter
from dpcore.sampling.rng import SeededRng
from tests.effort import by_day

RUNS = 600


def refuted(viewed: Viewed, runs: int = RUNS) -> bool:
    return audit.audit(viewed, runs=runs, seed=7, alpha="0.05").verdict == "refuted"


def policy_of(privatizer: Any) -> BatchedElimination:
    return BatchedElimination(privatizer=privatizer)


# -- visits --------------------------------------------------------------------------------------


def steady(visits: int) -> Any:
    return steady_for("dist-dp-se", epsilon="3/2", delta="1e-2", max_visits=visits, failure="1e-6")


def test_the_claim_is_for_both_visits() -> None:
    viewed = audit_view(policy_of(steady(2)), delta="1e-2", visits=2)
    total = per_user(PrivacyCurve(noise=steady(2).law, sensitivity=16), max_visits=2)
    assert total.epsilon("1e-2").upper <= viewed.epsilon <= Fraction(1501, 1000)
    assert "bandits.audited.target:both" in viewed.features


def test_the_watched_user_is_in_both_batches() -> None:
    quiet = replace(steady(2), law=type(steady(2).law)(scale="1/1000"))
    view = view_of(policy_of(quiet), visits=2)
    one, none = (view.views(reward, 1, SeededRng(3)) for reward in (1, 0))
    moved = (one - none)[0]
    assert moved.tolist()[:4] == [16, 0, 16, 0]
    assert both(one[0]) - both(none[0]) == 4


@by_day(1)
@pytest.mark.parametrize(("planned", "wrong"), [(2, False), (1, True)])
def test_noise_for_one_visit_is_refuted_by_two(planned: int, wrong: bool) -> None:
    claim = audit_view(policy_of(steady(2)), delta="1e-2", visits=2)
    seen = audit_view(policy_of(steady(planned)), delta="1e-2", visits=2)
    assert refuted(replace(seen, epsilon=claim.epsilon, delta=claim.delta)) is wrong


# -- who vanishes --------------------------------------------------------------------------------

GONE = Deployment(dropouts="3/4")


class ForEveryone(SumPrivatizer):
    """Shares for all users, though three quarters of them vanish: a quarter of the noise stays."""

    def protocol(self, pulls: int) -> SumProtocol:
        everyone = SumPrivatizer(trust="renyi", epsilon=self.epsilon, failure=self.failure)
        return everyone.protocol(pulls)


def private(kind: type[SumPrivatizer]) -> SumPrivatizer:
    return kind(trust="renyi", epsilon="1/2", failure="1e-6", deployment=GONE)


@pytest.mark.parametrize("path", ["release", pytest.param("devices", marks=pytest.mark.nightly)])
@pytest.mark.parametrize(("kind", "wrong"), [(SumPrivatizer, False), (ForEveryone, True)])
def test_shares_for_everyone_are_refuted_when_users_vanish(
    kind: type[SumPrivatizer], wrong: bool, path: Any
) -> None:
    claim = audit_view(policy_of(private(SumPrivatizer)), delta="1e-2")
    seen = audit_view(policy_of(private(kind)), delta="1e-2", path=path)
    runs = RUNS if path == "release" else 10 * RUNS  # 16 devices, so little is to be seen
    assert refuted(replace(seen, epsilon=claim.epsilon, delta=claim.delta), runs) is wrong


def test_the_derived_claim_of_shares_for_everyone_is_what_is_left() -> None:
    right = audit_view(policy_of(private(SumPrivatizer)), delta="1e-2")
    wrong = audit_view(policy_of(private(ForEveryone)), delta="1e-2")
    assert wrong.epsilon > right.epsilon * Fraction(3, 2)


# -- what is asked for ---------------------------------------------------------------------------


def test_visits_need_one_law() -> None:
    pure = SumPrivatizer(trust="pure", epsilon=1, failure="1e-3")
    with pytest.raises(InvalidParameter, match="no one law"):
        audit_view(policy_of(pure), visits=2)
