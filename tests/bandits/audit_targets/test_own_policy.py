r"""Audits of user-defined policies, returning users and dropouts: correct and broken versions."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import audit
from accounting.composition.returning_users import per_user
from accounting.privacy_curves.release_curve import PrivacyCurve
from bandits import Policy
from bandits.audit_targets.server_view import view_of
from bandits.audit_targets.target import AuditTarget, audit_view, both, target
from bandits.batch import ReleasedSum
from bandits.policies.returning_user_noise import steady_for
from bandits.policies.successive_elimination import BatchedElimination
from bandits.privatizers.batch_sums import SumPrivatizer
from bandits.privatizers.deployment import Deployment, SumProtocol
from dpcore.errors import InvalidParameter
from dpcore.sampling.rng import SYSTEM, Rng, SeededRng
from tests.alpha_budget import buy_alpha
from tests.effort import by_day
from tests.support.bandits.audit_targets import halved

ALPHA = buy_alpha("own bandit policies keep their promise", "1e-8") / 10

PURE = SumPrivatizer(trust="pure", epsilon=1, failure="1e-3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Halving(SumPrivatizer):
    """Broken: adds half of the noise that its protocol states."""

    def release(self, encoded_sum: int, pulls: int, rng: Rng = SYSTEM) -> ReleasedSum:
        return halved(self, encoded_sum, pulls, rng)


def _verdict(policy: Policy[Any], runs: int) -> str | None:
    view = audit_view(policy)
    assert (view.epsilon, view.delta) == (Fraction(1), Fraction(0))
    return audit.audit(view, runs=runs, seed=7, confidence=1 - ALPHA).verdict


def test_a_policy_that_keeps_its_promise() -> None:
    assert _verdict(BatchedElimination(privatizer=PURE), 500) == "not_refuted"


@pytest.mark.nightly
def test_a_policy_that_does_not_keep_its_promise() -> None:
    short = Halving(trust="pure", epsilon=1, failure="1e-3")
    assert _verdict(BatchedElimination(privatizer=short), 4000) == "refuted"


MINE = """
    from dataclasses import dataclass, field
    from bandits import BatchedElimination, Policy, Privatizer, SumPrivatizer

    def policy():
        return BatchedElimination(
            privatizer=SumPrivatizer(trust="pure", epsilon="1/2", failure="1e-3")
        )

    ready = policy()
    number = 3

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Bare(Policy):
        privatizer: Privatizer = field()
        size: int = 8
        name: str = "bare"
        def init(self, arms, horizon): return 0
        def choose(self, state): return None
        def observe(self, state, released): return 0
        def sizes(self, arms, horizon): return (self.size,)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Annotated(Bare):
        privatizer: Privatizer = Policy.privatizer  # as "privatizer: Privatizer" in a Policy
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine.py").write_text(textwrap.dedent(MINE))
    (tmp_path / "my_module.py").write_text(textwrap.dedent(MINE))
    return tmp_path


@pytest.mark.parametrize("rest", ["mine.py:policy", "mine.py:ready", "my_module:policy"])
@pytest.mark.usefixtures("mine")
def test_by_file_and_by_module(rest: str) -> None:
    viewed = target(f"bandit:{rest}", rest, True)
    assert (viewed.epsilon, viewed.pair) == (Fraction(1, 2), (0, 1))
    with_keys = f"{rest},delta=1e-3,path=devices"
    assert target(f"bandit:{with_keys}", with_keys, True).delta == Fraction(1, 1000)
    report = audit.audit(f"bandit:{rest}", runs=200, seed=7)
    assert (report.verdict, report.claim.to_json()["epsilon"]) == ("not_refuted", "1/2")


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("mine.py:number", "'int' object is not callable"),
        ("mine.py:Bare", r"without privatizer: give each a default, .*policy = Bare\("),
        ("mine.py:Annotated", "without privatizer: give each a default"),
        ("mine.py:policy,epsilon=1", "epsilon"),
        ("builtins:dict", "must be or return a bandits.Policy"),
    ],
)
@pytest.mark.usefixtures("mine")
def test_what_is_no_policy_is_refused(rest: str, said: str) -> None:
    with pytest.raises(InvalidParameter, match=said):
        target(f"bandit:{rest}", rest, True)


RUNS = 600


def refuted(viewed: AuditTarget, runs: int = RUNS) -> bool:
    return audit.audit(viewed, runs=runs, seed=7, alpha="0.05").verdict == "refuted"


def policy_of(privatizer: Any) -> BatchedElimination:
    return BatchedElimination(privatizer=privatizer)


def steady(visits: int) -> Any:
    return steady_for("dist-dp-se", epsilon="3/2", delta="1e-2", max_visits=visits, failure="1e-6")


def test_the_claim_is_for_both_visits() -> None:
    viewed = audit_view(policy_of(steady(2)), delta="1e-2", visits=2)
    total = per_user(PrivacyCurve(noise=steady(2).law, sensitivity=16), max_visits=2)
    assert total.epsilon("1e-2").upper <= viewed.epsilon <= Fraction(1501, 1000)
    assert "bandits.audit_targets.target:both" in viewed.features


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


GONE = Deployment(dropouts="3/4")


class ForEveryone(SumPrivatizer):
    """Broken: shares for all users, although three quarters drop out with their noise."""

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
    runs = RUNS if path == "release" else 10 * RUNS  # 16 devices give less evidence
    assert refuted(replace(seen, epsilon=claim.epsilon, delta=claim.delta), runs) is wrong


def test_the_derived_claim_of_shares_for_everyone_is_what_is_left() -> None:
    right = audit_view(policy_of(private(SumPrivatizer)), delta="1e-2")
    wrong = audit_view(policy_of(private(ForEveryone)), delta="1e-2")
    assert wrong.epsilon > right.epsilon * Fraction(3, 2)


def test_visits_need_one_law() -> None:
    pure = SumPrivatizer(trust="pure", epsilon=1, failure="1e-3")
    with pytest.raises(InvalidParameter, match="do not all have the same law"):
        audit_view(policy_of(pure), visits=2)
