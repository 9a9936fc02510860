"""Tests of `bandits.policies.registry`: algorithms by name; policies see released sums only."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from bandits.batch import Released
from bandits.elimination_radii import DpSeRadius, ExactRadius, PaperRadius
from bandits.policies.policy import Policy
from bandits.policies.registry import Setting, read_algorithm
from bandits.policies.successive_elimination import (
    PAPER,
    RELEASED,
    BatchedElimination,
    DpSe,
    ShuffleElimination,
    exact_schedule,
)
from bandits.privatizers.batch_sums_by_trust_model import BitPrivatizer, SumPrivatizer
from bandits.privatizers.privatizer import Unprotected
from dpcore.errors import InvalidParameter
from tests.day_and_nightly import by_day
from tests.support.bandits.worlds import played

NAMES = [
    "cdp-se", "ldp-se", "dist-dp-se", "dist-rdp-se", "dist-cdp-se", "shuffled-se", "dp-se", "se",
    "sdp-ae", "vb-sdp-ae",
]  # fmt: skip
TRUST = {
    "cdp-se": "central",
    "ldp-se": "local",
    "dist-dp-se": "pure",
    "dist-rdp-se": "renyi",
    "dist-cdp-se": "concentrated",
    "shuffled-se": "shuffled-pure",
}


def setting(**more: Any) -> Setting:
    given: dict[str, Any] = {"epsilon": "1/2", "delta": "1e-6", "horizon": 10**4, "arms": 3}
    return Setting(**{**given, **more})


PAPERS = setting(radius="paper", schedule="released")


@by_day(3)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("made_for", [setting(), PAPERS], ids=["exact", "paper"])
def test_every_algorithm_runs_under_its_own_name(name: str, made_for: Setting) -> None:
    policy = read_algorithm(name).policy(made_for)
    assert policy.name == name
    run = played(policy, (0.9, 0.5, 0.1), made_for.horizon)
    assert sum(run.pulls) == made_for.horizon
    assert (run.guarantee is None) == (name == "se")
    if run.guarantee is not None and name not in ("dist-rdp-se", "dist-cdp-se"):
        assert run.guarantee.epsilon("1e-6").upper <= Fraction(1, 2)


@pytest.mark.parametrize("name", TRUST)
def test_the_radius_paper_uses_the_parameters_of_the_paper(name: str) -> None:
    policy = read_algorithm(name).policy(PAPERS)
    trust = TRUST[name]
    scaling = 10 if trust in ("renyi", "concentrated") else 1
    half = 2 if trust == "shuffled-pure" else 1
    privatizer = SumPrivatizer(
        trust=trust,  # type: ignore[arg-type]  # of the table above
        epsilon="1/2",
        failure=Fraction(1, half * 10**4),
        scaling=scaling,
        parameters="paper",
    )
    assert policy == BatchedElimination(
        privatizer=privatizer, schedule=RELEASED, radius=PaperRadius(form="released")
    )
    printed = read_algorithm(name).policy(replace(PAPERS, schedule="paper"))
    assert printed == replace(policy, schedule=PAPER, radius=PaperRadius())


@by_day(2)
@pytest.mark.parametrize("name", ["se", "ldp-se", "dist-dp-se", "dist-rdp-se"])
def test_the_exact_radius_has_its_own_schedule(name: str) -> None:
    policy = read_algorithm(name).policy(setting())
    assert isinstance(policy, BatchedElimination)
    schedule = exact_schedule(policy.privatizer, arms=3, horizon=10**4, failure="1/10")
    assert policy.schedule == schedule
    assert policy.radius == ExactRadius(batches=schedule.batches(10**4))
    if isinstance(policy.privatizer, SumPrivatizer):
        scaled = {"renyi": 10, "concentrated": 10}
        assert policy.privatizer.scaling == scaled.get(policy.privatizer.trust, 4)
        assert policy.privatizer.parameters == "exact"


def test_with_the_papers_failure_probability_no_arm_is_dropped() -> None:
    # The exact radius with the protocol failure probability 1/T of the paper.
    few = setting(arms=150, horizon=10**4, epsilon=50)
    made = read_algorithm("dist-dp-se").policy(few)
    assert isinstance(made, BatchedElimination)
    wrong = replace(made.privatizer, failure=Fraction(1, 10**4))  # type: ignore[type-var]  # a dataclass
    gap = made.radius.gap(wrong, 64, batch=1, active=150, failure="1/10")
    assert (
        gap == math.inf > made.radius.gap(made.privatizer, 64, batch=1, active=150, failure="1/10")
    )
    assert played(made, (0.97,) + (0.03,) * 149, 10**4).active == (0,)
    assert few.failure < Fraction(1, 10**4) == replace(few, radius="paper").failure


def test_the_other_algorithms_have_their_named_policies() -> None:
    exact, paper = (read_algorithm("dp-se").policy(s) for s in (setting(), PAPERS))
    assert exact == DpSe(epsilon="1/2", failure=setting().failure, radius=ExactRadius())
    assert paper == DpSe(epsilon="1/2", failure="1e-4", radius=DpSeRadius())
    floor = read_algorithm("se").policy(PAPERS)
    assert floor.privatizer == Unprotected()
    bits = BitPrivatizer(epsilon="1/2", delta="1e-6", parameters="paper")
    doubling = read_algorithm("vb-sdp-ae").policy(PAPERS)
    assert doubling == ShuffleElimination(privatizer=bits, radius="paper")
    constant = read_algorithm("sdp-ae:m=64").policy(PAPERS)
    assert constant == ShuffleElimination(privatizer=bits, radius="paper", batch=64)
    alone = read_algorithm("sdp-ae").policy(setting())
    assert isinstance(alone, ShuffleElimination)
    assert alone.batch == BitPrivatizer(epsilon="1/2", delta="1e-6").protocol(1).noise_bits
    assert alone.radius == "exact"


REFUSED = {
    "cpd-se": "did you mean cdp-se", "CDP-SE": "must be one of cdp-se", "": "must be one of",
    "linear": "must be one of", "se:s=3": "has no parameters", "se:": "has no parameters",
    "dist-rdp-se:": "s is missing: write s=",
    "dist-rdp-se:m=3": "dist-rdp-se has the parameters s",
    "dist-rdp-se:s=0": r"must be a number in \[1", "dist-rdp-se:s=1/2": r"must be a number in \[1",
    "dist-rdp-se:s=1e13": r"must be a number in \[1", "dist-rdp-se:s=": "s has no value",
    "sdp-ae:m=2.5": "must be a whole number", "dpe-fixedu:u=2.5": "must be a whole number",
    "sdp-ae:m=1099511627777": r"must be a whole number in \[1, 2\^40\]",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_unknown_names_and_parameters_are_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidParameter, match=REFUSED[text]):
        read_algorithm(text)


class Peeking(Policy[tuple[Fraction, ...]]):
    """Asks for the rewards, in each way that the types refuse: an unused ignore is an error."""

    def observe(self, state: tuple[Fraction, ...], rewards: list[float]) -> tuple[Fraction, ...]:  # type: ignore[override]  # mypy refuses to be told the rewards
        return tuple(map(Fraction, rewards))

    def search(self, released: Released) -> tuple[Fraction, ...]:
        return tuple(map(Fraction, released.rewards))  # type: ignore[attr-defined]  # and to look for them


def test_a_policy_that_reads_a_reward_does_not_type_check() -> None:
    assert Peeking.__abstractmethods__
    # mypy rejects this line too: only a privatizer makes released sums.
    released = Released((Fraction(1),))  # type: ignore[arg-type]  # deliberately of the wrong type
    assert released.sums == (Fraction(1),)
    with pytest.raises(AttributeError, match="rewards"):
        Peeking.search(None, released)  # type: ignore[arg-type]  # needs no policy
