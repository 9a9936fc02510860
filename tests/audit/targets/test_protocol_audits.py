"""Audits of every protocol instance: rounds, views of the server, and values of users."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from accounting.protocol_guarantees.plan_protocol import Plan as ProtocolPlan
from accounting.protocol_guarantees.plan_protocol import protocol_guarantee
from accounting.protocol_guarantees.shuffled_bits_guarantee import BinomialBox
from audit.claims import Claim
from audit.known_laws.compare_two_laws import epsilon_at
from audit.known_laws.exact_layer import join_layers, prove
from audit.report.audit_report import AuditReport
from audit.runs.draw_plan import Plan
from audit.sample_layer import sample
from audit.targets.protocol import read_plan, target_of
from audit.targets.target import Known, Shifted
from audit.targets.target_syntax import read_target
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.protocols.noisy_sums import AggregatedSum
from dpcore.protocols.shuffled_bits import VectorShuffle
from tests.alpha_budget import buy_alpha
from tests.audit.targets.test_mechanisms_by_text import PROTOCOLS
from tests.day_and_nightly import by_day
from tests.support.audit.command import Shell

# -- the instances -------------------------------------------------------------------------------


def decided(target: Known, claim: str, pair: tuple[Any, Any]) -> AuditReport:
    return prove(target, Plan(claim=Claim.read(claim), pair=pair))


@cache
def instance(words: str, functionality: str = "ideal") -> Known:
    found = read_target(f"protocol:{words},functionality={functionality}")
    assert isinstance(found, Known)
    return found


def plan_of(words: str) -> ProtocolPlan:
    return read_plan(f"protocol:{words}", words)[0]


def claimed(target: Known) -> str:
    return f"epsilon={target.subject.epsilon},delta={target.subject.delta}"


RUNS = 1000


@pytest.fixture(scope="module")
def alpha() -> float:
    return buy_alpha("protocol rounds keep what is derived", "1e-9") / 20


def rounds(target: Known, alpha: float, runs: int, claim: str | None = None) -> AuditReport:
    plan = Plan(
        claim=Claim.read(claim or claimed(target)),
        pair=target.subject.pair,
        runs=runs,
        alpha=str(alpha),
        seed=11,
    )
    return sample(target, plan)


DROPS = "pure,users=3,epsilon=1,honest_fraction=2/3"


@by_day(2)
@pytest.mark.parametrize(
    ("words", "functionality"),
    [*((words, "ideal") for words in PROTOCOLS), (DROPS, "masked"), (DROPS, "per-user")],
)
def test_rounds_do_not_refute_the_derived_guarantee(
    words: str, functionality: str, alpha: float
) -> None:
    target = instance(words, functionality)
    report = rounds(target, alpha, 400 if functionality == "masked" else RUNS)
    assert (report.error, report.verdict, report.repeatable) == (None, "not_refuted", True)
    exact = decided(target, claimed(target), target.subject.pair)
    assert join_layers(exact, report).verdict == "proven"


def test_a_round_that_ignores_dropouts_is_refuted() -> None:
    """The mutant: the round has two honest users, but the claim counts on eight."""
    words = "pure,users=8,epsilon=1"
    blind = target_of(replace(plan_of(words), honest=2), spelling="protocol:blind")
    assert isinstance(blind, Known)
    report = rounds(blind, 0.01, RUNS, "epsilon=1")
    assert report.verdict == "refuted"
    assert 1 < report.epsilon_lower < float(epsilon_at(*blind.laws(blind.subject.pair)).upper_float)
    assert decided(blind, "epsilon=1", (0, 1)).verdict == "refuted"
    assert rounds(instance(words), 0.01, RUNS, "epsilon=1").verdict == "not_refuted"


@pytest.mark.parametrize(
    ("words", "lowest"), [("pure,users=4,epsilon=1", -9), ("local,users=4,epsilon=1", 0)]
)
def test_outputs_of_a_round_are_the_view_of_the_server(words: str, lowest: int) -> None:
    target = instance(words)
    seen = target.function(1, 400, np.random.default_rng(3))
    again = target.function(1, 400, np.random.default_rng(3))
    assert seen.shape == (400,)
    assert np.array_equal(seen, again)
    # A decoded sum may be negative; a message is a residue.
    assert (seen.min() < 0) == (lowest < 0)


def test_a_vector_round_outputs_the_numbers_of_ones() -> None:
    protocol = VectorShuffle(users=3, noise_bits=2, probability="1/2", precision=2, coordinates=2)
    law = BinomialBox(trials=6, bounds=(2, 2))
    plan = replace(plan_of(PROTOCOLS[-1]), protocol=protocol, honest=3, guarantee=law)
    target = target_of(plan, spelling="protocol:vector")
    seen = target.function([1, 0], 300, np.random.default_rng(5))
    assert seen.shape == (300, 2)
    assert seen.min(axis=0).tolist() == [2, 0]
    assert seen.max(axis=0).tolist() == [8, 6]


def test_an_unmet_plan_claims_its_derived_guarantee() -> None:
    share = DiscreteLaplace(scale=2).share(4)
    protocol = AggregatedSum(users=4, precision=3, threshold=40, share=share)
    missed = replace(
        plan_of("pure,users=4,epsilon=1"),
        protocol=protocol,
        meets=False,
        guarantee=protocol_guarantee(protocol, 4),
    )
    target = target_of(missed, spelling="protocol:missed")
    assert isinstance(target, Known)
    assert target.subject.epsilon == Fraction(3, 2)
    assert decided(target, claimed(target), (0, 1)).verdict == "proven"


# -- pure shuffles -------------------------------------------------------------------------------


def test_the_command_audits_rounds(audit: Shell, alpha: float) -> None:
    words, drawn = "protocol:pure-shuffle,users=4,epsilon=2", ("-n", 600, "--seed", 3)
    kept = audit(words, *drawn, "--alpha", alpha, "--json")
    assert (kept.code, kept.json["verdict"]) == (0, "not_refuted")
    assert audit(words, *drawn, "--alpha", alpha, "--claim", "epsilon=1/8").code == 1
    proven = audit("protocol:pure,users=8,epsilon=1", "--layers", "exact", "--json")
    assert "8 honest users of 8" in json.dumps(proven.json["layers"])


# -- invalid input -------------------------------------------------------------------------------


def test_a_value_that_no_user_can_hold_is_refused() -> None:
    cases: list[tuple[int, Any, str]] = [
        (0, (0, 2), "dataset B = 2: must lie in"),
        (0, ([0], 1), r"dataset A = \[0\]"),
        (7, (0, "1/2"), "must be 0 or 1"),
        (8, ([0, 0], [1]), "must be a list of 2 numbers"),
    ]
    for place, pair, complaint in cases:
        with pytest.raises(InvalidParameter, match=complaint):
            instance(PROTOCOLS[place]).check(pair)


def test_a_value_between_two_steps_has_no_exact_layer() -> None:
    with pytest.raises(InvalidParameter, match="multiple of 1/3"):
        instance(PROTOCOLS[0]).laws((0, "1/2"))
    a, b = instance(PROTOCOLS[0]).laws((0, "1/3"))
    assert isinstance(a, Shifted)
    assert isinstance(b, Shifted)
    assert (a.shift, b.shift) == (0, 1)
