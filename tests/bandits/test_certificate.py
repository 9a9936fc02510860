"""Certificates of runs: the worst of what may befall one user, each part computed a second time."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from accounting.checker.form import digest_of
from accounting.errors import NotDerived
from bandits.certificate import RunCertificate, certificate_of, recheck
from bandits.dp_se import DpSe
from bandits.elimination import BatchedElimination
from bandits.environment import Bernoulli
from bandits.play import NEW_USERS, Run, Users, play
from bandits.policy import Policy
from bandits.privatizer import Privatizer, Unprotected
from bandits.privatizer_bits import BitPrivatizer
from bandits.privatizer_sum import SumPrivatizer, Trust
from bandits.returning import Pool, SteadyPrivatizer
from bandits.shuffle_elimination import ShuffleElimination
from dpcore.discrete_laplace import DiscreteLaplace
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Mechanism, Release
from dpcore.rng import SeededRng

HORIZON = 2000
DELTA = "1/1000"


def summed(trust: Trust) -> SumPrivatizer:
    return SumPrivatizer(trust=trust, epsilon="1/2", failure="1e-3")


def run_of(policy: Policy[Any], users: Users = NEW_USERS, *, arms: int = 2) -> Run:
    return play(
        policy,
        Bernoulli(means=(0.8, 0.3)[:arms]),
        horizon=HORIZON,
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
    "bits": ShuffleElimination(privatizer=BitPrivatizer(epsilon="1/2", delta=DELTA)),
    "dp-se": DpSe(epsilon="1/2", failure="1e-3"),
}


def changed(certificate: RunCertificate, **edits: Any) -> str:
    """The text with some fields replaced, and a digest that fits."""
    document = {**json.loads(certificate.text()), **edits}
    return json.dumps({**document, "digest": digest_of(document)})


# -- every trust model ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
def test_a_run_is_certified_and_checked_along_the_second_path(name: str) -> None:
    run = run_of(POLICIES[name])
    certificate = certificate_of(run, deltas=[DELTA])
    verdict = recheck(certificate.text())
    assert verdict.holds, str(verdict)
    assert run.guarantee is not None
    claimed = Fraction(certificate.claims[0]["epsilon"])
    derived = run.guarantee.epsilon(DELTA)
    assert derived.upper <= claimed <= Fraction(derived.upper) * Fraction(10001, 10000)
    assert certificate.algorithm == run.policy
    assert sum(each["times"] for each in certificate.released) == len(run.releases)


def test_assumptions_are_named() -> None:
    shuffled = certificate_of(run_of(POLICIES["shuffled-pure"]), deltas=[DELTA]).assumptions
    assert any("(1/8, 1/1000)-relaxed aggregation" in each for each in shuffled)
    for each in (shuffled, certificate_of(run_of(POLICIES["pure"]), deltas=[DELTA]).assumptions):
        assert any("semi-honest" in text for text in each)
        assert any("users are new" in text for text in each)


def test_users_who_return_are_certified_for_all_their_visits() -> None:
    steady = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=4, failure="1e-3")
    pool = Pool(users=600, visits=3, privatizer=steady, arrivals=np.random.default_rng(2))
    certificate = certificate_of(run_of(elimination(steady), pool), deltas=[DELTA])
    assert recheck(certificate.text()).holds
    once = Fraction(4, 64)
    assert 2 * once < Fraction(certificate.claims[0]["epsilon"]) < 3 * once
    assert certificate.parts[0]["is"]["rounds_of"][0]["rounds"] == 3
    assert not any("users are new" in text for text in certificate.assumptions)


# -- what is refused -----------------------------------------------------------------------------


def test_no_protection_is_refused_by_name() -> None:
    with pytest.raises(NotDerived, match="a certificate of se"):
        certificate_of(run_of(elimination(Unprotected())))


def test_a_run_that_releases_nothing_is_refused() -> None:
    with pytest.raises(NotDerived, match="nothing is released"):
        certificate_of(run_of(elimination(summed("pure")), arms=1))


def test_a_release_that_was_not_promised_is_refused() -> None:
    run = run_of(POLICIES["pure"])
    alien = Release(
        mechanism=Mechanism(noise=DiscreteLaplace(scale=1), sensitivity=1), batch="alien"
    )
    with pytest.raises(InvalidParameter) as refused:
        certificate_of(replace(run, releases=(*run.releases, alien)))
    assert refused.value.argument == "releases"


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"deltas": []}, "deltas"),
        ({"deltas": [0]}, "delta"),
        ({"deltas": [1]}, "delta"),
        ({"most_steps": -1}, "most_steps"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        certificate_of(run_of(POLICIES["pure"]), **arguments)
    assert refused.value.argument == name


# -- what is not checked, or edited --------------------------------------------------------------


def test_what_was_not_checked_says_so_and_does_not_hold() -> None:
    certificate = certificate_of(run_of(POLICIES["pure"]), deltas=[DELTA], most_steps=4)
    unchecked = [part for part in certificate.parts if part["certificate"] is None]
    assert unchecked
    assert all(part["unchecked"] == "more than 4 steps" for part in unchecked)
    verdict = recheck(certificate.text())
    assert not verdict.holds
    assert {finding.status.value for finding in verdict.failures} == {"unchecked"}
    assert Fraction(certificate.claims[0]["epsilon"]) <= Fraction(1, 2)


def test_an_edit_without_a_new_digest_fails() -> None:
    text = certificate_of(run_of(POLICIES["pure"]), deltas=[DELTA]).text()
    assert not recheck(text.replace('"horizon": 2000', '"horizon": 10')).holds


def with_parts(document: dict[str, Any], **edits: Any) -> dict[str, Any]:
    return {"parts": [{**part, **edits} for part in document["parts"]]}


OTHER_NOISE = {"claim": "curve", "noise": {"law": "discrete-laplace", "scale": "9"}}


@pytest.mark.parametrize(
    "edits",
    [
        {"claims": [{"delta": DELTA, "epsilon": "0.1"}]},
        {"claims": []},
        {"parts": []},
        {"schema": "another"},
    ],
    ids=["less", "nothing claimed", "of nothing", "another schema"],
)
def test_an_edit_with_a_digest_that_fits_fails(edits: dict[str, Any]) -> None:
    certificate = certificate_of(run_of(POLICIES["pure"]), deltas=[DELTA])
    assert recheck(changed(certificate)).holds
    assert not recheck(changed(certificate, **edits)).holds


@pytest.mark.parametrize(
    "edits",
    [{"claims": []}, {"claims": [{"delta": DELTA, "epsilon": "0.01"}]}, {"is": OTHER_NOISE}],
    ids=["nothing claimed", "less", "another noise"],
)
def test_parts_that_do_not_fit_their_own_certificates_fail(edits: dict[str, Any]) -> None:
    certificate = certificate_of(run_of(POLICIES["pure"]), deltas=[DELTA])
    edited = with_parts(certificate.to_json(), **edits)
    assert not recheck(changed(certificate, **edited)).holds


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"schema": 1}', b"\xff"], ids=repr)
def test_text_that_is_no_certificate_is_a_finding(text: str | bytes) -> None:
    assert not recheck(text).holds
