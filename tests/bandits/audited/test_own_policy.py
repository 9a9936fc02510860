r"""A policy of one's own as a target: one that keeps its promise, and twins that break it."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import audit
from bandits import BatchedElimination, Policy, SumPrivatizer, audit_view
from bandits.audited.target import target
from bandits.batch import Pulls, ReleasedSum
from dpcore.errors import InvalidParameter
from dpcore.sampling.rng import SYSTEM, Rng
from tests.purse import purse
from tests.support.bandits.audited import halved

ALPHA = purse.buy("own bandit policies keep their promise", "1e-8") / 10

PURE = SumPrivatizer(trust="pure", epsilon=1, failure="1e-3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Halving(SumPrivatizer):
    """Promises what its protocol says, and draws half of the noise."""

    def release(self, encoded_sum: int, pulls: int, rng: Rng = SYSTEM) -> ReleasedSum:
        return halved(self, encoded_sum, pulls, rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forever(Policy[int]):
    """Not an elimination: the same two batches for ever."""

    of: SumPrivatizer
    name: str = "forever"

    @property
    def privatizer(self) -> SumPrivatizer:
        return self.of

    def init(self, arms: int, horizon: int) -> int:
        return arms

    def choose(self, state: int) -> Pulls:
        return Pulls((16,) * state)

    def observe(self, state: int, released: Any) -> int:
        return state

    def sizes(self, arms: int, horizon: int) -> tuple[int, ...]:
        return (16,)


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


def test_a_policy_that_is_no_elimination() -> None:
    assert _verdict(Forever(of=PURE), 500) == "not_refuted"


MINE = """
    from dataclasses import dataclass, field
    from bandits import BatchedElimination, Policy, Privatizer, SumPrivatizer

    def policy():
        return BatchedElimination(
            privatizer=SumPrivatizer(trust="pure", epsilon="1/2", failure="1e-3")
        )

    ready = policy()
    number = 3
    def needs(words): return policy()

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
    (tmp_path / "fails.py").write_text("1 / 0\n")
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
        ("mine.py:nobody", "has no attribute 'nobody'"),
        ("lost.py:policy", "there is no file lost.py"),
        ("lost:policy", "No module named 'lost'"),
        ("mine.py:number", "'int' object is not callable"),
        ("mine.py:needs", "cannot be made without words"),
        ("mine.py:Bare", r"without privatizer: give each a default, .*policy = Bare\("),
        ("mine.py:Annotated", "without privatizer: give each a default"),
        ("fails.py:policy", "ZeroDivisionError"),
        ("mine.py:policy,epsilon=1", "epsilon"),
        ("builtins:dict", "must be or return a bandits.Policy"),
    ],
)
@pytest.mark.usefixtures("mine")
def test_what_is_no_policy_is_refused(rest: str, said: str) -> None:
    with pytest.raises(InvalidParameter, match=said):
        target(f"bandit:{rest}", rest, True)


def test_audit_view_is_for_policies() -> None:
    wrong: Any = PURE
    with pytest.raises(InvalidParameter, match=r"must be a bandits\.Policy"):
        audit_view(wrong)
