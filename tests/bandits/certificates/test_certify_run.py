"""Tests of run certificates: the worst guarantee, each part recomputed, edited ones refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pytest

from accounting import Status
from accounting.certificates.canonical_text import digest_of
from accounting.certificates.worst_of_certificates import zcdp_keeps
from accounting.composition.compose import compose
from accounting.errors import NotDerived
from accounting.guarantees.guarantee import Guarantee
from accounting.guarantees.stated_guarantees import Pure, ZCdp
from bandits.certificates.certify_run import _worst, certificate_of
from bandits.certificates.recheck import SEEDED, SYSTEM, recheck
from bandits.play import Run, play, run_guarantee
from bandits.play_combinatorial import Coins, play_together
from bandits.policies.combinatorial_ucb import CucbName, cucb
from bandits.policies.linear_phased_elimination import PhasedElimination
from bandits.policies.policy import Policy
from bandits.policies.registry import Setting, read_algorithm
from bandits.policies.successive_elimination import BatchedElimination, DpSe, ShuffleElimination
from bandits.privatizers.batch_sums_by_trust_model import (
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
from tests.day_and_nightly import by_day, effort
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


def test_a_release_that_is_not_among_the_parts_and_bad_arguments_are_refused() -> None:
    run = run_of(POLICIES["pure"])
    alien = Release(
        mechanism=Mechanism(noise=DiscreteLaplace(scale=1), sensitivity=1), batch="alien"
    )
    with refused("releases"):
        certificate_of(replace(run, releases=(*run.releases, alien)))
    for deltas in ([], [0], [1], 2, ""):
        with refused("deltas"):
            certificate_of(run, deltas=deltas)
    with refused("most_steps"):
        certificate_of(run, most_steps=-1)


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


def linear(trust: LinearTrust, calibration: Calibrated, dimension: int, arms: int) -> Run:
    world = sphere_instance(1, arms, dimension=dimension)
    privatizer = AveragePrivatizer(trust=trust, epsilon=10, delta="1/4", calibration=calibration)
    policy = PhasedElimination(model=world.model, privatizer=privatizer)
    return played(policy, world, 20)


def combinatorial(
    release: StreamRelease, horizon: int, size: int, name: CucbName = "cucb-dp"
) -> Run:
    (world,) = preset_of("csb/topk").worlds(1, arms=2 * size, super_arm=size).environments
    assert isinstance(world, BitWorld)
    policy = cucb(name, world.of, horizon=horizon, epsilon=2, release=release)
    coins = [Coins(world=np.random.default_rng(1), rng=SeededRng(1))]
    return play_together(policy, [world], coins)[0]


MILLIONTH = "1/1000000"
TERMS = effort(20, 100)
RUNS: dict[str, tuple[Callable[[], Run], tuple[str, ...], float, float]] = {
    "pure": (lambda: run_of(POLICIES["pure"], horizon=SHORT), (DELTA, "1/100"), 0.49, 0.5),
    "shuffle": (lambda: run_of(POLICIES["pure-shuffle"], horizon=SHORT), (DELTA,), 0.49, 0.5),
    "central": (lambda: linear("central", "exact", 2, 3), ("1/4",), 9.9, 10),
    "local": (lambda: linear("local", "exact", 2, 3), ("1/4",), 9.9, 10),
    # For nine numbers total losses are not enumerated, but the largest loss is exact.
    "central, pure": (lambda: linear("central", "pure", 9, 12), (MILLIONTH,), 9.3, 10),
    "local, pure": (lambda: linear("local", "pure", 9, 12), (MILLIONTH,), 9.3, 10),
    "factorisation": (lambda: combinatorial("factorisation", TERMS, 2), (MILLIONTH,), 2, 2.2),
    # Ten levels for each of 8 base arms: 80 numbers.
    "tree": (lambda: combinatorial("tree", 1000, 8), (MILLIONTH,), 0.9, 2),
    "ldp2": (lambda: combinatorial("tree", 60, 2, "cucb-ldp2"), (MILLIONTH,), 1.9, 2),
    "doubling": (lambda: combinatorial("doubling", 1000, 8), (MILLIONTH,), 1, 2),
}
"""A run of each kind, the deltas of its certificate, and between what its epsilon lies."""


@cache
def text_of(name: str) -> str:
    run, deltas, *_ = RUNS[name]
    return certificate_of(run(), deltas=deltas).text()


@pytest.mark.parametrize("name", RUNS)
def test_runs_of_every_kind_are_certified(name: str) -> None:
    document, (_, _, least, most) = json.loads(text_of(name)), RUNS[name]
    assert least <= float(document["claims"][0]["epsilon"]) <= most
    assert {part["unchecked"] for part in document["parts"]} == {None}
    found = recheck(text_of(name)).findings
    assert {each.status for each in found} == {Status.HOLDS, Status.ASSUMED}
    assert "noise" in [each.where for each in found if each.status is Status.ASSUMED]  # from a seed


def test_a_pure_shuffle_assumes_a_shuffler_and_every_epsilon_is_recomputed() -> None:
    shuffled = json.loads(text_of("shuffle"))
    assumed = shuffled["assumptions"]
    assert shuffled["claims"][0]["epsilon"] == "0.5"
    assert not any("relaxed" in each for each in assumed)
    assert any("the shuffler shows the server only the bits" in each for each in assumed)
    fewer = [each for each in assumed if "the shuffler" not in each]
    assert not recheck(sealed({**shuffled, "assumptions": fewer})).holds
    assert len(shuffled["parts"]) > 1  # one for each number of users
    verdict = recheck(json.dumps(shuffled))
    found = [each for each in verdict.findings if each.where.startswith("parts")]
    assert verdict.holds
    assert {each.status.value for each in found} == {"holds"}
    assert all("honest users of a shuffle" in each.reason for each in found)


def test_a_plan_without_honest_users_is_refused() -> None:
    shuffled = json.loads(text_of("shuffle"))

    def planned(gone: str, told: str, words: tuple[str, str] = ("drop out", "reveal")) -> bool:
        plan = f"{SOME_HONEST}{gone} {words[0]}, and {told} break the protocol or {words[1]}"
        plan += " their noise"
        assumed = [plan if each == ALL_HONEST else each for each in shuffled["assumptions"]]
        assert plan in assumed
        return recheck(sealed({**shuffled, "assumptions": assumed})).holds

    assert planned("1/20", "1/10")
    assert planned("1/20", "1/10", ("vanish", "tell"))  # as an earlier version wrote it
    for gone, told in (("1/20", "1"), ("1/2", "1/2"), ("1", "0"), ("1/0", "0")):
        assert not planned(gone, told)


@pytest.mark.parametrize("name", ["central", "ldp2"])
def test_every_assumption_is_required(name: str) -> None:
    document = json.loads(text_of(name))
    for gone in document["assumptions"]:
        rest = [each for each in document["assumptions"] if each != gone]
        assert not recheck(sealed({**document, "assumptions": rest})).holds, gone


def test_the_factorisation_is_certified_by_its_zcdp() -> None:
    """Independent: rho from the column in floats, epsilon from the normal law, a lower bound."""
    document = json.loads(text_of("factorisation"))
    part = document["parts"][0]["is"]
    squares = sum(float(move) ** 2 for move in part["sensitivity"]["amount"])
    rho = squares / (2 * float(Fraction(part["noise"]["sigma_squared"])))
    assert float(document["claims"][0]["epsilon"]) <= rho + 2 * math.sqrt(rho * math.log(1e6))


Edit: TypeAlias = Callable[[Any], None]


def law(**change: Any) -> Edit:
    """Change noise or sensitivity of the first part in every place that states them."""

    def edit(document: Any) -> None:
        part, own = document["parts"][0], ("noise", "sensitivity")
        stated = [part["is"][key] for key in own]
        for each in (part["is"], *part["certificate"]["parts"], *document["released"]):
            if [each[key] for key in own] == stated:
                each |= {key: {**each[key], **more} for key, more in change.items()}

    return edit


def claim(epsilon: str, which: int = 0) -> Edit:
    """Claim this epsilon, for the run and for every part."""

    def edit(document: Any) -> None:
        for each in (document, *document["parts"]):
            each["claims"][which]["epsilon"] = epsilon

    return edit


def proven(quantity: str, key: str, value: str) -> Edit:
    """Change what the certificate of the first part claims of a quantity."""

    def edit(document: Any) -> None:
        claims = document["parts"][0]["certificate"]["claims"]
        (found,) = [each for each in claims if each["quantity"] == quantity]
        found[key] = value

    return edit


def foreign(document: Any) -> None:
    noise = {"law": "discrete-gaussian", "sigma_squared": "3"}
    document["released"] = [{**document["released"][0], "noise": noise}]


def shuffled(change: Callable[[Any], dict[str, Any]]) -> Edit:
    """Change fields of the last shuffle."""

    def edit(document: Any) -> None:
        held = document["parts"][-1]["is"]
        held |= change(held)

    return edit


def less(key: str, factor: str | Fraction) -> Edit:
    return shuffled(lambda held: {key: str(Fraction(held[key]) * Fraction(factor))})


SMALLER = "claims a smaller epsilon at {} than its certificate proves"
EDITED: list[tuple[str, Edit, str]] = [
    ("pure", law(noise={"scale": "1"}), "the value is"),
    ("pure", claim("0.1"), SMALLER.format(DELTA)),
    ("pure", claim("0.1", 1), SMALLER.format("1/100")),
    ("central", claim("9"), SMALLER.format("1/4")),
    ("central", foreign, "released[0]: fails"),
    ("local", claim("9"), SMALLER.format("1/4")),
    ("central, pure", claim("9.2"), SMALLER.format(MILLIONTH)),
    ("local, pure", claim("9.2"), SMALLER.format(MILLIONTH)),
    ("central, pure", proven("pure", "epsilon", "9"), "the value is 10"),
    ("local, pure", proven("pure", "epsilon", "9"), "the value is 10"),
    ("factorisation", law(noise={"sigma_squared": "1000000"}), "proven: the value is"),
    ("factorisation", law(sensitivity={"amount": [1] * 200}), "proven: the value is"),
    ("factorisation", proven("zcdp", "rho", "1/100"), "proven: the value is"),
    ("factorisation", claim("1.9"), SMALLER.format(MILLIONTH)),
    ("tree", law(noise={"scale": "36"}), "the value is"),
    ("doubling", law(noise={"scale": "18/5"}), "the value is"),
    ("shuffle", less("shape", "9/10"), "is too small for"),
    ("shuffle", less("scale", "99/100"), "is too small for"),
    ("shuffle", less("cover", Fraction(1, 2**20)), "is too small for"),
    ("shuffle", shuffled(lambda held: {"reach": held["reach"] // 2}), "is too small for"),
    ("shuffle", shuffled(lambda held: {"honest": held["users"] * 3 // 4}), "is too small for"),
    ("shuffle", shuffled(lambda _: {"precision": 2}), "is too small for"),
    ("shuffle", shuffled(lambda _: {"reach": 10**6}), "message bits (it has"),
    ("shuffle", shuffled(lambda held: {"honest": held["users"] + 1}), "must be <= users"),
    ("shuffle", shuffled(lambda _: {"cover": "0"}), "must be > 0"),
    ("shuffle", shuffled(lambda _: {"shape": "2"}), "must be <= 1"),
]


@pytest.mark.parametrize("which", range(len(EDITED)))
def test_an_edited_certificate_with_matching_digests_is_refused(which: int) -> None:
    name, edit, reason = EDITED[which]
    document = json.loads(text_of(name))
    edit(document)
    found = recheck(sealed(document))
    assert not found.holds
    assert reason in str(found)


@pytest.mark.parametrize("rho", ["1/1000", "1/50", "1/2", "7"])
@pytest.mark.parametrize("delta", ["1/1000000", "1/100", "1/3"])
def test_zcdp_is_converted_at_the_best_order(rho: str, delta: str) -> None:
    """Agrees with the accountant's conversion to 1e-6; a value 1% smaller is refused."""
    upper = Fraction(ZCdp(rho).epsilon(delta).upper)
    if upper > Fraction(rho):
        assert zcdp_keeps(Fraction(rho), upper + Fraction(1, 10**6), Fraction(delta))
    assert not zcdp_keeps(Fraction(rho), upper * Fraction(99, 100), Fraction(delta))
    assert not zcdp_keeps(Fraction(rho), upper, Fraction(0))
