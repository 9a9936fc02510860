"""Tests of run certificates: the worst guarantee, each part recomputed, edited ones refused."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from accounting import Status
from accounting.certificates.canonical_text import digest_of
from accounting.certificates.verify_certificate import Verdict
from accounting.certificates.worst_of_certificates import zcdp_keeps
from accounting.composition.compose import compose
from accounting.errors import NotDerived
from accounting.guarantees.guarantee import Guarantee
from accounting.guarantees.stated_guarantees import Pure, ZCdp
from bandits.certificates.certify_run import _worst, certificate_of
from bandits.certificates.recheck import SEEDED, SYSTEM, recheck
from bandits.play import Run, play, run_guarantee
from bandits.play_combinatorial import Coins, play_together
from bandits.policies.combinatorial_ucb import cucb
from bandits.policies.linear_phased_elimination import PhasedElimination
from bandits.policies.policy import Policy
from bandits.policies.registry import Setting, read_algorithm
from bandits.policies.successive_elimination import BatchedElimination, DpSe, ShuffleElimination
from bandits.privatizers.batch_sums import (
    BitPrivatizer,
    PureShufflePrivatizer,
    SumPrivatizer,
    Trust,
)
from bandits.privatizers.continual_sums_per_arm import StreamRelease
from bandits.privatizers.deployment import ALL_HONEST, SOME_HONEST
from bandits.privatizers.privatizer import Privatizer, Unprotected
from bandits.privatizers.returning_users import Pool, SteadyPrivatizer
from bandits.privatizers.run_guarantee import NEW_USERS, RunGuarantee, Users
from bandits.privatizers.vector_averages import AveragePrivatizer, Calibrated, LinearTrust
from bandits.worlds import preset_of
from bandits.worlds.arm_environments import Bernoulli
from bandits.worlds.combinatorial import BitWorld
from bandits.worlds.linear import sphere_instance
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.mechanism import Mechanism, Release
from dpcore.sampling.rng import SeededRng
from tests.day_and_nightly import by_day
from tests.support.bandits.worlds import not_none, played
from tests.support.dpcore.refusals import refused

HORIZON = 2000
SHORT = 60
DELTA = "1/1000"


def summed(trust: Trust) -> SumPrivatizer:
    return SumPrivatizer(trust=trust, epsilon="1/2", failure="1e-3")


def run_of(
    policy: Policy[Any], users: Users = NEW_USERS, *, arms: int = 2, horizon: int = HORIZON
) -> Run:
    return played(policy, (0.8, 0.3)[:arms], horizon, users=users)


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
def test_a_run_is_certified_and_verified_independently(name: str) -> None:
    run = run_of(POLICIES[name])
    certificate = certificate_of(run, deltas=[DELTA])
    verdict = recheck(certificate.text())
    assert verdict.holds, str(verdict)
    claimed, promised = Fraction(certificate.claims[0]["epsilon"]), not_none(run.guarantee)
    # The pure epsilon of a shuffle is checked, and claimed at every delta.
    derived = promised.pure() if name == "pure-shuffle" else promised.epsilon(DELTA)
    assert derived.upper <= claimed <= Fraction(derived.upper) * Fraction(10001, 10000)
    assert certificate.algorithm == run.policy
    assert sum(each["times"] for each in certificate.released) == len(run.releases)


@pytest.fixture(name="shuffled", scope="module")
def _shuffled() -> dict[str, Any]:
    """The certificate of a run over pure shuffles."""
    return document(DELTA, policy="pure-shuffle")


def test_a_pure_shuffle_assumes_a_shuffler_and_no_aggregation(shuffled: dict[str, Any]) -> None:
    assumed = shuffled["assumptions"]
    assert shuffled["claims"][0]["epsilon"] == "0.5"
    assert not any("relaxed" in each for each in assumed)
    assert any("the shuffler shows the server only the bits" in each for each in assumed)
    fewer = [each for each in assumed if "the shuffler" not in each]
    assert not recheck(sealed({**shuffled, "assumptions": fewer})).holds


def test_the_epsilon_of_every_shuffle_is_recomputed(shuffled: dict[str, Any]) -> None:
    assert len(shuffled["parts"]) > 1  # one for each number of users
    verdict = recheck(json.dumps(shuffled))
    found = [each for each in verdict.findings if each.where.startswith("parts")]
    assert verdict.holds
    assert {each.status.value for each in found} == {"holds"}
    assert all("honest users of a shuffle" in each.reason for each in found)


@pytest.mark.parametrize(
    ("gone", "told"), [("1/20", "1"), ("1/2", "1/2"), ("1", "0"), ("1/0", "0")]
)
def test_a_plan_without_honest_users_is_refused(
    gone: str, told: str, shuffled: dict[str, Any]
) -> None:
    def planned(gone: str, told: str, words: tuple[str, str] = ("drop out", "reveal")) -> bool:
        plan = f"{SOME_HONEST}{gone} {words[0]}, and {told} break the protocol or {words[1]}"
        plan += " their noise"
        assumed = [plan if each == ALL_HONEST else each for each in shuffled["assumptions"]]
        assert plan in assumed
        return recheck(sealed({**shuffled, "assumptions": assumed})).holds

    assert planned("1/20", "1/10")
    assert planned("1/20", "1/10", ("vanish", "tell"))  # as an earlier version wrote it
    assert not planned(gone, told)


def test_a_shuffle_with_less_noise_than_it_needs_is_refused(shuffled: dict[str, Any]) -> None:
    """Every parameter is edited, with a matching digest and a matching epsilon."""
    last = len(shuffled["parts"]) - 1
    held = shuffled["parts"][last]["is"]

    def changed(**fields: Any) -> Verdict:
        edited = copy.deepcopy(shuffled)
        edited["parts"][last]["is"] |= fields
        return recheck(sealed(edited))

    assert changed().holds
    users, shape = int(held["users"]), Fraction(held["shape"])
    for fields in (
        {"shape": str(shape * Fraction(9, 10))},
        {"scale": str(Fraction(held["scale"]) * Fraction(99, 100))},
        {"cover": str(Fraction(held["cover"]) / 2**20)},
        {"reach": held["reach"] // 2},
        {"honest": users - users // 4},
        {"precision": 2},
    ):
        found = changed(**fields).failures
        assert [each.where for each in found] == [f"parts[{last}]"], fields
        assert "is too small for" in found[0].reason
    for fields, reason in (
        ({"reach": 10**6}, "message bits (limit"),
        ({"honest": users + 1}, "must be <= users"),
        ({"cover": "0"}, "must be > 0"),
        ({"shape": "2"}, "must be <= 1"),
    ):
        assert reason in str(changed(**fields))


def test_returning_users_are_certified_for_all_visits() -> None:
    certificate = certificate_of(pooled_run(), deltas=[DELTA])
    assert recheck(certificate.text()).holds
    once = Fraction(4, 64)
    assert 2 * once < Fraction(certificate.claims[0]["epsilon"]) < 3 * once
    assert certificate.parts[0]["is"]["rounds_of"][0]["rounds"] == 3
    assert not any("users are new" in text for text in certificate.assumptions)
    assert sum("who is in a release" in text for text in certificate.assumptions) == 1


def test_what_cannot_be_certified_is_refused_by_name() -> None:
    short = run_of(POLICIES["pure"], horizon=SHORT)
    other = RunGuarantee(parts=(compose(Pure("1/10")),), assumptions=())
    neither = "not a release with noise, a composition, a pure shuffle or an assumption"
    for run, delta, why in (
        (run_of(elimination(Unprotected())), DELTA, "a certificate for se"),
        (run_of(elimination(summed("pure")), arms=1), DELTA, "releases nothing"),
        (replace(short, guarantee=other, releases=()), DELTA, neither),
        # The loss of bits is unbounded: for a delta below its tail no epsilon is finite.
        (run_of(POLICIES["bits"], horizon=SHORT), "1e-300", "epsilon at delta"),
    ):
        with pytest.raises(NotDerived, match=why):
            certificate_of(run, deltas=[delta])


def test_a_release_that_is_not_among_the_parts_is_refused() -> None:
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


def test_a_run_with_seeded_noise_says_so() -> None:
    policy, world = POLICIES["pure"], np.random.default_rng(1)
    real = play(policy, Bernoulli(means=(0.8, 0.3)), horizon=60, world=world)
    for run, found, missing in ((real, SYSTEM, SEEDED), (run_of(policy), SEEDED, SYSTEM)):
        assumptions = certificate_of(run, deltas=[DELTA]).assumptions
        assert found in assumptions
        assert missing not in assumptions
    names = {finding.where for finding in recheck(certificate_of(real).text()).findings}
    assert "noise" not in names


def test_an_unchecked_part_is_reported_and_does_not_hold() -> None:
    certificate = certificate_of(run_of(POLICIES["renyi"]), deltas=[DELTA], most_steps=4)
    unchecked = [part for part in certificate.parts if part["certificate"] is None]
    assert unchecked
    assert all(part["unchecked"] == "more than 4 steps" for part in unchecked)
    verdict = recheck(certificate.text())
    assert not verdict.holds
    assert {finding.status.value for finding in verdict.failures} == {"unchecked"}


def test_a_pure_epsilon_is_checked_for_any_number_of_steps() -> None:
    certificate = certificate_of(run_of(POLICIES["pure"]), deltas=[DELTA], most_steps=4)
    assert all(part["unchecked"] is None for part in certificate.parts)
    assert certificate.claims[0]["epsilon"] == "0.5"
    own = [part["certificate"]["claims"] for part in certificate.parts]
    # Certificates of more than 4 steps claim only pure epsilon.
    assert {"pure"} in [{claim["quantity"] for claim in claims} for claims in own]
    verdict = recheck(certificate.text())
    assert {finding.status.value for finding in verdict.findings} == {"holds", "assumed"}


@by_day(1)
@pytest.mark.parametrize("name", ["dist-dp-se", "dist-rdp-se", "dist-cdp-se", "dp-se"])
def test_the_largest_batches_of_a_long_run_are_checked_or_too_large(name: str) -> None:
    setting = Setting(epsilon="1/2", delta="1e-6", horizon=10**6, arms=2)
    policy = read_algorithm(name).policy(setting)
    promised = not_none(run_guarantee(policy, 2, 10**6))
    largest = replace(promised, parts=promised.parts[-2:])
    run = run_of(POLICIES["pure"], horizon=60)
    found = certificate_of(replace(run, guarantee=largest, releases=()))
    reasons = [part["unchecked"] for part in found.parts if part["unchecked"] is not None]
    assert bool(reasons) == (name in ("dist-rdp-se", "dist-cdp-se"))
    expected = "the table needs more values than the limit of 131072"
    assert all(expected in reason for reason in reasons)


DELTAS = (DELTA, "1/100")


def document(*deltas: str, policy: str = "pure") -> dict[str, Any]:
    return certificate_of(run_of(POLICIES[policy], horizon=SHORT), deltas=deltas).to_json()


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


def test_the_claim_is_that_of_the_worst_part_in_any_order() -> None:
    run = run_of(POLICIES["renyi"], horizon=SHORT)
    promised = not_none(run.guarantee)

    def claimed(parts: tuple[Guarantee, ...], **change: Any) -> Fraction:
        other = replace(run, guarantee=replace(promised, parts=parts), **change)
        return Fraction(certificate_of(other, deltas=[DELTA]).claims[0]["epsilon"])

    each = [claimed((part,), releases=()) for part in promised.parts]
    assert len(set(each)) > 1
    assert claimed(promised.parts) == claimed(promised.parts[::-1]) == max(each)


def test_reduced_noise_is_detected_by_recomputation() -> None:
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
def test_a_claim_that_is_too_small_is_detected_at_each_delta(which: int) -> None:
    original = document(*DELTAS)
    assert recheck(sealed(copy.deepcopy(original))).holds
    edited = copy.deepcopy(original)
    for each in (edited, *edited["parts"]):
        each["claims"][which]["epsilon"] = "0.1"
    verdict = recheck(sealed(edited))
    assert not verdict.holds
    reason = f"claims a smaller epsilon at {DELTAS[which]} than its certificate proves"
    assert {finding.reason for finding in verdict.failures} == {reason}


def linear_run(
    trust: LinearTrust, calibration: Calibrated = "exact", dimension: int = 2, arms: int = 3
) -> Run:
    world = sphere_instance(1, arms, dimension=dimension)
    privatizer = AveragePrivatizer(trust=trust, epsilon=10, delta="1/4", calibration=calibration)
    policy = PhasedElimination(model=world.model, privatizer=privatizer)
    return played(policy, world, 20)


MILLIONTH = "1/1000000"


def changed(text: str, **fields: Any) -> str:
    return sealed({**json.loads(text), **fields})


@pytest.mark.parametrize("trust", ["central", "local"])
def test_gaussian_releases_are_recomputed(trust: LinearTrust) -> None:
    text = certificate_of(linear_run(trust), deltas=["1/4"]).text()
    document = json.loads(text)
    assert float(document["claims"][0]["epsilon"]) <= 10
    assert float(document["claims"][0]["epsilon"]) > 9.9
    assert [part["unchecked"] for part in document["parts"]] == [None] * len(document["parts"])
    found = recheck(text).findings
    assert {finding.status for finding in found} == {Status.HOLDS, Status.ASSUMED}
    assert [f.where for f in found if f.status is Status.ASSUMED] == ["noise"]  # from a seed
    less = [{"delta": "1/4", "epsilon": "9"}]
    assert Status.FAILS in {each.status for each in recheck(changed(text, claims=less)).findings}


@pytest.mark.parametrize("trust", ["central", "local"])
def test_pure_releases_of_any_size_are_recomputed(trust: LinearTrust) -> None:
    """For nine numbers total losses are not enumerated, but the largest loss is exact."""
    run = linear_run(trust, "pure", dimension=9, arms=12)
    text = certificate_of(run, deltas=["1/1000000"]).text()
    document = json.loads(text)
    assert float(document["claims"][0]["epsilon"]) <= 10
    assert [part["unchecked"] for part in document["parts"]] == [None] * len(document["parts"])
    found = recheck(text)
    assert {each.status for each in found.findings} == {Status.HOLDS, Status.ASSUMED}
    # A part that claims slightly less than its own certificate proves, for either kind of claim.
    less = [
        {**part, "claims": [{"delta": "1/1000000", "epsilon": "9.2"}]} for part in document["parts"]
    ]
    assert "claims a smaller" in str(recheck(changed(text, parts=less)))
    # A part that states a smaller largest loss than its noise has.
    (own, *_) = (part["certificate"] for part in document["parts"])
    pure = [each for each in own["claims"] if each["quantity"] == "pure"]
    assert [each["epsilon"] for each in pure] == ["10"]
    pure[0]["epsilon"] = "9"
    assert "the value is 10" in str(recheck(changed(text, parts=document["parts"])))


def test_missing_assumptions_and_foreign_releases_fail() -> None:
    text = certificate_of(linear_run("central"), deltas=["1/4"]).text()
    document = json.loads(text)
    for assumption in document["assumptions"]:
        rest = [each for each in document["assumptions"] if each != assumption]
        found = recheck(changed(text, assumptions=rest)).findings
        assert Status.FAILS in {each.status for each in found}, assumption
    other = [
        {**document["released"][0], "noise": {"law": "discrete-gaussian", "sigma_squared": "3"}}
    ]
    assert Status.FAILS in {each.status for each in recheck(changed(text, released=other)).findings}


def document_of(release: StreamRelease, horizon: int, size: int = 2) -> Any:
    (world,) = preset_of("csb/topk").worlds(1, arms=2 * size, super_arm=size).environments
    assert isinstance(world, BitWorld)
    policy = cucb("cucb-dp", world.of, horizon=horizon, epsilon=2, release=release)
    coins = [Coins(world=np.random.default_rng(1), rng=SeededRng(1))]
    (run,) = play_together(policy, [world], coins)
    return json.loads(certificate_of(run, deltas=[MILLIONTH]).text())


@by_day(1)
@pytest.mark.parametrize("horizon", [20, 300, pytest.param(3000, marks=pytest.mark.nightly)])
def test_the_factorisation_is_certified_by_its_zcdp(horizon: int) -> None:
    document = document_of("factorisation", horizon)
    verdict = recheck(json.dumps(document))
    assert verdict.holds, str(verdict)
    assert document["parts"][0]["unchecked"] is None
    # Independent computation: rho from the column in floats, epsilon from the normal law, a lower
    # bound.
    part = document["parts"][0]["is"]
    squares = sum(float(move) ** 2 for move in part["sensitivity"]["amount"])
    rho = squares / (2 * float(Fraction(part["noise"]["sigma_squared"])))
    claimed = float(document["claims"][0]["epsilon"])
    assert claimed <= rho + 2 * math.sqrt(rho * math.log(1e6))
    assert 2 <= claimed < 2.2


def laws(document: Any) -> tuple[Any, ...]:
    """Every place that states the noise and the sensitivity of the only part."""
    (part,), (released,) = document["parts"], document["released"]
    return part["is"], released, part["certificate"]["parts"][0]


def less_noise(document: Any) -> None:
    for law in laws(document):
        law["noise"] = {**law["noise"], "sigma_squared": "1000000"}


def smaller_moves(document: Any) -> None:
    for law in laws(document):
        law["sensitivity"]["amount"] = [1] * len(law["sensitivity"]["amount"])


def smaller_epsilon(document: Any) -> None:
    for claims in (document["claims"], document["parts"][0]["claims"]):
        claims[0]["epsilon"] = "1.9"


def smaller_rho(document: Any) -> None:
    (claim,) = document["parts"][0]["certificate"]["claims"]
    claim["rho"] = str(Fraction(claim["rho"]) / 2)
    smaller_epsilon(document)


@pytest.mark.parametrize(
    ("twin", "reason"),
    [
        (less_noise, "proven: the value is"),
        (smaller_moves, "proven: the value is"),
        (smaller_rho, "proven: the value is"),
        (smaller_epsilon, "claims a smaller epsilon at"),
    ],
)
def test_an_edited_certificate_of_the_factorisation_is_refused(twin: Any, reason: str) -> None:
    """The edited certificate has matching digests."""
    document = document_of("factorisation", 300)
    twin(document)
    found = recheck(sealed(document))
    assert not found.holds
    assert reason in str(found)


@pytest.mark.parametrize("release", ["tree", "doubling"])
def test_pure_sums_of_any_size_are_certified(release: StreamRelease) -> None:
    """Ten levels for each of 8 base arms: 80 numbers, for which only the largest loss is exact."""
    document = document_of(release, 1000, 8)
    assert recheck(json.dumps(document)).holds
    noise = document["parts"][0]["is"]
    moved = sum(noise["sensitivity"]["amount"])
    assert moved / Fraction(noise["noise"]["scale"]) == 2
    less = str(Fraction(noise["noise"]["scale"]) * Fraction(9, 10))
    for law in laws(document):
        law["noise"]["scale"] = less
    assert not recheck(sealed(document)).holds


@pytest.mark.parametrize("rho", ["1/1000", "1/50", "1/2", "7"])
@pytest.mark.parametrize("delta", ["1/1000000", "1/100", "1/3"])
def test_zcdp_is_converted_at_the_best_order(rho: str, delta: str) -> None:
    """Agrees with the accountant's conversion to 1e-6; a value 1% smaller is refused."""
    upper = Fraction(ZCdp(rho).epsilon(delta).upper)
    if upper > Fraction(rho):
        assert zcdp_keeps(Fraction(rho), upper + Fraction(1, 10**6), Fraction(delta))
    assert not zcdp_keeps(Fraction(rho), upper * Fraction(99, 100), Fraction(delta))
    assert not zcdp_keeps(Fraction(rho), upper, Fraction(0))
