"""Tests of run certificates: the worst guarantee over users, each part recomputed independently."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from accounting.certificates.canonical_text import digest_of
from accounting.composition.compose import compose
from accounting.errors import NotDerived
from accounting.guarantees.stated_guarantees import Pure
from bandits.certificates.certificate import _worst, certificate_of
from bandits.certificates.recheck import SEEDED, SYSTEM, recheck
from bandits.play import Run, play, run_guarantee
from bandits.policies.policy import Policy
from bandits.policies.policy_settings import Setting
from bandits.policies.registry import read_algorithm
from bandits.policies.shuffle_elimination import ShuffleElimination
from bandits.policies.successive_elimination import BatchedElimination, DpSe
from bandits.privatizers.batch_sums import (
    BitPrivatizer,
    PureShufflePrivatizer,
    SumPrivatizer,
    Trust,
)
from bandits.privatizers.deployment import ALL_HONEST, SOME_HONEST
from bandits.privatizers.privatizer import NEW_USERS, Privatizer, RunGuarantee, Unprotected, Users
from bandits.privatizers.returning_users import Pool, SteadyPrivatizer
from bandits.worlds.arm_environments import Bernoulli
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.mechanism import Mechanism, Release
from dpcore.sampling.rng import SeededRng
from tests.effort import by_day
from tests.support.dpcore.refusals import refused

HORIZON = 2000
DELTA = "1/1000"


def summed(trust: Trust) -> SumPrivatizer:
    return SumPrivatizer(trust=trust, epsilon="1/2", failure="1e-3")


def run_of(
    policy: Policy[Any], users: Users = NEW_USERS, *, arms: int = 2, horizon: int = HORIZON
) -> Run:
    return play(
        policy,
        Bernoulli(means=(0.8, 0.3)[:arms]),
        horizon=horizon,
        world=np.random.default_rng(1),
        rng=SeededRng(1),
        users=users,
    )


def elimination(privatizer: Privatizer) -> BatchedElimination:
    return BatchedElimination(privatizer=privatizer)


POLICIES: dict[str, Policy[Any]] = {
    **{
        trust: elimination(summed(trust))
        for trust in ("central", "local", "pure", "renyi", "concentrated", "shuffled-pure")
    },
    "pure-shuffle": elimination(PureShufflePrivatizer(epsilon="1/2", failure="1e-3")),
    "bits": ShuffleElimination(privatizer=BitPrivatizer(epsilon="1/2", delta=DELTA)),
    "dp-se": DpSe(epsilon="1/2", failure="1e-3"),
}


def pooled_run() -> Run:
    steady = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=4, failure="1e-3")
    pool = Pool(users=600, max_visits=3, privatizer=steady, arrivals=np.random.default_rng(2))
    return run_of(elimination(steady), pool)


@by_day(1)
@pytest.mark.parametrize("name", POLICIES)
def test_a_run_is_certified_and_checked_along_the_second_path(name: str) -> None:
    run = run_of(POLICIES[name])
    certificate = certificate_of(run, deltas=[DELTA])
    verdict = recheck(certificate.text())
    assert verdict.holds, str(verdict)
    assert run.guarantee is not None
    claimed = Fraction(certificate.claims[0]["epsilon"])
    derived = run.guarantee.epsilon(DELTA)
    if name == "pure-shuffle":  # a pure epsilon is checked, and claimed at every delta
        derived = run.guarantee.pure()
    assert derived.upper <= claimed <= Fraction(derived.upper) * Fraction(10001, 10000)
    assert certificate.algorithm == run.policy
    assert sum(each["times"] for each in certificate.released) == len(run.releases)


def test_a_pure_shuffle_assumes_its_shuffler_and_no_aggregation() -> None:
    certificate = certificate_of(run_of(POLICIES["pure-shuffle"], horizon=60), deltas=[DELTA])
    assert certificate.claims[0]["epsilon"] == "0.5"
    assert not any("relaxed" in each for each in certificate.assumptions)
    verdict = recheck(certificate.text())
    assert verdict.holds
    bare = certificate.to_json()
    assert any("the shuffler shows the server the bits only" in e for e in bare["assumptions"])
    bare["assumptions"] = [each for each in bare["assumptions"] if "the shuffler" not in each]
    bare["digest"] = digest_of(bare)
    assert not recheck(json.dumps(bare)).holds


def test_the_epsilon_of_every_shuffle_is_computed_again() -> None:
    text = certificate_of(run_of(POLICIES["pure-shuffle"], horizon=60), deltas=[DELTA]).text()
    document = json.loads(text)
    assert len(document["parts"]) > 1  # one for each number of users
    found = [each for each in recheck(text).findings if each.where.startswith("parts")]
    assert {each.status.value for each in found} == {"holds"}
    assert all("honest users of a shuffle" in each.reason for each in found)


@pytest.mark.parametrize(
    ("gone", "told"), [("1/20", "1"), ("1/2", "1/2"), ("1", "0"), ("1/0", "0")]
)
def test_a_plan_without_honest_users_assumes_nothing(gone: str, told: str) -> None:
    whole = certificate_of(run_of(POLICIES["pure-shuffle"], horizon=60), deltas=[DELTA]).to_json()

    def planned(gone: str, told: str) -> bool:
        plan = f"{SOME_HONEST}{gone} vanish, and {told} break the protocol or tell their noise"
        assumed = [plan if each == ALL_HONEST else each for each in whole["assumptions"]]
        assert plan in assumed
        text = {**whole, "assumptions": assumed}
        return recheck(json.dumps({**text, "digest": digest_of(text)})).holds

    assert planned("1/20", "1/10")
    assert not planned(gone, told)


def as_if(document: Any, part: int, **fields: Any) -> str:
    changed = json.loads(json.dumps(document))
    changed["parts"][part]["is"] |= fields
    changed["digest"] = digest_of(changed)
    return json.dumps(changed)


def test_a_shuffle_with_less_noise_than_it_needs_is_refused() -> None:
    """Every parameter is edited, with a matching digest and a matching epsilon."""
    document = json.loads(
        certificate_of(run_of(POLICIES["pure-shuffle"], horizon=60), deltas=[DELTA]).text()
    )
    last = len(document["parts"]) - 1
    held = document["parts"][last]["is"]
    assert recheck(as_if(document, last)).holds
    users, shape = int(held["users"]), Fraction(held["shape"])
    for fields in (
        {"shape": str(shape * Fraction(9, 10))},
        {"scale": str(Fraction(held["scale"]) * Fraction(99, 100))},
        {"cover": str(Fraction(held["cover"]) / 2**20)},
        {"reach": held["reach"] // 2},
        {"honest": users - users // 4},
        {"precision": 2},
    ):
        found = recheck(as_if(document, last, **fields)).failures
        assert [each.where for each in found] == [f"parts[{last}]"], fields
        assert "is too small for" in found[0].reason
    for fields, reason in (
        ({"reach": 10**6}, "message bits (limit"),
        ({"honest": users + 1}, "must be <= users"),
        ({"cover": "0"}, "must be > 0"),
        ({"shape": "2"}, "must be <= 1"),
    ):
        assert reason in str(recheck(as_if(document, last, **fields)))


def test_users_who_return_are_certified_for_all_their_visits() -> None:
    certificate = certificate_of(pooled_run(), deltas=[DELTA])
    assert recheck(certificate.text()).holds
    once = Fraction(4, 64)
    assert 2 * once < Fraction(certificate.claims[0]["epsilon"]) < 3 * once
    assert certificate.parts[0]["is"]["rounds_of"][0]["rounds"] == 3
    assert not any("users are new" in text for text in certificate.assumptions)
    assert sum("who is in a release" in text for text in certificate.assumptions) == 1


def test_no_protection_is_refused_by_name() -> None:
    with pytest.raises(NotDerived, match="a certificate for se"):
        certificate_of(run_of(elimination(Unprotected())))


def test_a_run_that_releases_nothing_is_refused() -> None:
    with pytest.raises(NotDerived, match="releases nothing"):
        certificate_of(run_of(elimination(summed("pure")), arms=1))


def test_a_release_that_was_not_promised_is_refused() -> None:
    run = run_of(POLICIES["pure"])
    alien = Release(
        mechanism=Mechanism(noise=DiscreteLaplace(scale=1), sensitivity=1), batch="alien"
    )
    with refused("releases"):
        certificate_of(replace(run, releases=(*run.releases, alien)))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"deltas": []}, "deltas"),
        ({"deltas": [0]}, "deltas"),
        ({"deltas": [1]}, "deltas"),
        ({"deltas": 2}, "deltas"),
        ({"deltas": ""}, "deltas"),
        ({"most_steps": -1}, "most_steps"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any], name: str) -> None:
    with refused(name):
        certificate_of(run_of(POLICIES["pure"]), **arguments)


def test_a_part_that_is_neither_a_law_nor_assumed_is_refused() -> None:
    run = run_of(POLICIES["pure"], horizon=60)
    other = RunGuarantee(parts=(compose(Pure("1/10")),), assumptions=())
    with pytest.raises(NotDerived, match="neither a noise law nor an assumption"):
        certificate_of(replace(run, guarantee=other, releases=()), deltas=[DELTA])


def test_a_run_with_seeded_noise_says_so() -> None:
    policy, world = POLICIES["pure"], np.random.default_rng(1)
    real = play(policy, Bernoulli(means=(0.8, 0.3)), horizon=60, world=world)
    for run, found, missing in ((real, SYSTEM, SEEDED), (run_of(policy), SEEDED, SYSTEM)):
        assumptions = certificate_of(run, deltas=[DELTA]).assumptions
        assert found in assumptions
        assert missing not in assumptions
    names = {finding.where for finding in recheck(certificate_of(real).text()).findings}
    assert "noise" not in names


def test_what_was_not_checked_says_so_and_does_not_hold() -> None:
    certificate = certificate_of(run_of(POLICIES["renyi"]), deltas=[DELTA], most_steps=4)
    unchecked = [part for part in certificate.parts if part["certificate"] is None]
    assert unchecked
    assert all(part["unchecked"] == "more than 4 steps" for part in unchecked)
    verdict = recheck(certificate.text())
    assert not verdict.holds
    assert {finding.status.value for finding in verdict.failures} == {"unchecked"}


def test_a_pure_epsilon_is_checked_whatever_the_number_of_steps() -> None:
    certificate = certificate_of(run_of(POLICIES["pure"]), deltas=[DELTA], most_steps=4)
    assert all(part["unchecked"] is None for part in certificate.parts)
    assert certificate.claims[0]["epsilon"] == "0.5"
    quantities = [{c["quantity"] for c in part["certificate"]["claims"]}
                  for part in certificate.parts]  # fmt: skip
    assert {"pure"} in quantities  # certificates of more than 4 steps claim only pure epsilon
    verdict = recheck(certificate.text())
    assert {finding.status.value for finding in verdict.findings} == {"holds", "assumed"}


@by_day(1)
@pytest.mark.parametrize("name", ["dist-dp-se", "dist-rdp-se", "dist-cdp-se", "dp-se"])
def test_the_largest_batches_of_a_long_run_are_checked_or_too_large(name: str) -> None:
    setting = Setting(epsilon="1/2", delta="1e-6", horizon=10**6, arms=2)
    policy = read_algorithm(name).policy(setting)
    promised = run_guarantee(policy, 2, 10**6)
    assert promised is not None
    largest = replace(promised, parts=promised.parts[-2:])
    run = run_of(POLICIES["pure"], horizon=60)
    found = certificate_of(replace(run, guarantee=largest, releases=()))
    reasons = [part["unchecked"] for part in found.parts if part["unchecked"] is not None]
    assert bool(reasons) == (name in ("dist-rdp-se", "dist-cdp-se"))
    assert all("the table needs more than 131072 values" in reason for reason in reasons)


SHORT = 60
DELTAS = (DELTA, "1/100")


def document(*deltas: str) -> dict[str, Any]:
    return certificate_of(run_of(POLICIES["pure"], horizon=SHORT), deltas=deltas).to_json()


def sealed(edited: dict[str, Any]) -> str:
    """The certificate as text with recomputed digests, including those of nested certificates."""
    for part in edited["parts"] if isinstance(edited.get("parts"), list) else []:
        own = part.get("certificate") if isinstance(part, dict) else None
        if isinstance(own, dict) and "digest" in own:
            own["digest"] = digest_of(own)
    if "digest" in edited:
        edited["digest"] = digest_of(edited)
    return json.dumps(edited)


def test_epsilons_are_compared_as_numbers() -> None:
    parts = tuple({"claims": [{"delta": "1/2", "epsilon": e}]} for e in ("9.5", "10.25", "2"))
    assert _worst(parts, Fraction(1, 2))["epsilon"] == "10.25"


def test_an_infinite_epsilon_is_not_certified() -> None:
    # The loss of bits is unbounded: for a delta below its tail no epsilon is finite.
    with pytest.raises(NotDerived, match="epsilon at delta"):
        certificate_of(run_of(POLICIES["bits"], horizon=SHORT), deltas=["1e-300"])


def test_the_claim_is_that_of_the_worst_part_wherever_it_stands() -> None:
    run = run_of(POLICIES["renyi"], horizon=SHORT)
    assert run.guarantee is not None
    parts = run.guarantee.parts
    each = [
        Fraction(certificate_of(one, deltas=[DELTA]).claims[0]["epsilon"])
        for part in parts
        for one in [replace(run, guarantee=replace(run.guarantee, parts=(part,)), releases=())]
    ]
    assert len(set(each)) > 1
    for turned in (parts, parts[::-1]):
        other = replace(run, guarantee=replace(run.guarantee, parts=turned))
        claimed = certificate_of(other, deltas=[DELTA]).claims[0]["epsilon"]
        assert Fraction(claimed) == max(each)


def test_noise_that_does_not_keep_its_promise_is_found_by_the_second_path() -> None:
    # The noise is reduced in every place and the digests match; only a recomputation detects it.
    edited = document(DELTA)
    part = edited["parts"][0]
    law = {key: part["is"][key] for key in ("noise", "sensitivity")}
    less = {**law["noise"], "scale": "1"}
    assert less != law["noise"]
    for each in (part["is"], *part["certificate"]["parts"], *edited["released"]):
        if {key: each[key] for key in law} == law:
            each["noise"] = less
    verdict = recheck(sealed(edited))
    assert not verdict.holds
    places = {finding.where for finding in verdict.failures}
    assert all(where.startswith("parts[0].certificate.claims") for where in places), places


@pytest.mark.parametrize("which", range(len(DELTAS)))
def test_a_claim_that_is_too_small_is_found_at_each_delta(which: int) -> None:
    original = document(*DELTAS)
    assert recheck(sealed(copy.deepcopy(original))).holds
    edited = copy.deepcopy(original)
    for each in (edited, *edited["parts"]):
        each["claims"][which]["epsilon"] = "0.1"
    verdict = recheck(sealed(edited))
    assert not verdict.holds
    reason = f"claims a smaller epsilon at {DELTAS[which]} than its certificate proves"
    assert {finding.reason for finding in verdict.failures} == {reason}
