"""Certificates of linear runs: checked by the second path, refused where something was changed."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from accounting.checker import Status
from accounting.checker.text.form import digest_of
from accounting.errors import NotDerived
from bandits.certificates.certificate import certificate_of, recheck
from bandits.play import Run, play
from bandits.policies.phased_elimination import PhasedElimination
from bandits.privatizers.averages import AveragePrivatizer, Calibrated, LinearTrust
from bandits.worlds.linear import LinearWorld, sphere_instance
from dpcore.sampling.rng import SeededRng


def run_of(
    trust: LinearTrust, calibration: Calibrated = "exact", dimension: int = 2, arms: int = 3
) -> Run:
    world: LinearWorld = sphere_instance(1, arms, dimension=dimension)
    privatizer = AveragePrivatizer(
        trust=trust,
        epsilon=10,
        delta="1/4",
        calibration=calibration,
    )
    policy = PhasedElimination(model=world.model, privatizer=privatizer)
    coins = np.random.default_rng(1)
    return play(policy, world, horizon=20, world=coins, rng=SeededRng(1))


def changed(text: str, **fields: Any) -> str:
    document = {**json.loads(text), **fields}
    return json.dumps({**document, "digest": digest_of(document)})


@pytest.mark.parametrize("trust", ["central", "local"])
def test_gaussian_releases_are_computed_again(trust: LinearTrust) -> None:
    text = certificate_of(run_of(trust), deltas=["1/4"]).text()
    document = json.loads(text)
    assert float(document["claims"][0]["epsilon"]) <= 10
    assert float(document["claims"][0]["epsilon"]) > 9.9
    assert [part["unchecked"] for part in document["parts"]] == [None] * len(document["parts"])
    found = recheck(text).findings
    assert {finding.status for finding in found} == {Status.HOLDS, Status.ASSUMED}
    assert [f.where for f in found if f.status is Status.ASSUMED] == ["noise"]  # of a seed
    less = [{"delta": "1/4", "epsilon": "9"}]
    assert Status.FAILS in {each.status for each in recheck(changed(text, claims=less)).findings}


def test_the_papers_noise_is_certified_with_what_it_keeps() -> None:
    document = json.loads(certificate_of(run_of("central", "paper", 1), deltas=["1/4"]).text())
    assert float(document["claims"][0]["epsilon"]) > 15


@pytest.mark.parametrize("trust", ["central", "local"])
def test_pure_releases_are_computed_again_whatever_their_size(trust: LinearTrust) -> None:
    """Of nine numbers no total of losses is listed, but their largest is exact."""
    run = run_of(trust, "pure", dimension=9, arms=12)
    text = certificate_of(run, deltas=["1/1000000"]).text()
    document = json.loads(text)
    assert float(document["claims"][0]["epsilon"]) <= 10
    assert [part["unchecked"] for part in document["parts"]] == [None] * len(document["parts"])
    found = recheck(text)
    assert {each.status for each in found.findings} == {Status.HOLDS, Status.ASSUMED}
    # A part that claims a little less than its own certificate proves, by either kind of claim.
    less = [
        {**part, "claims": [{"delta": "1/1000000", "epsilon": "9.2"}]} for part in document["parts"]
    ]
    assert "claims less" in str(recheck(changed(text, parts=less)))
    # And a part that states a smaller largest loss than its noise has.
    (own, *_) = (part["certificate"] for part in document["parts"])
    pure = [each for each in own["claims"] if each["quantity"] == "pure"]
    assert [each["epsilon"] for each in pure] == ["10"]
    pure[0]["epsilon"] = "9"
    own["digest"] = digest_of(own)
    assert "the second path finds 10" in str(recheck(changed(text, parts=document["parts"])))


def test_shuffled_bits_of_several_numbers_say_that_they_are_unchecked() -> None:
    text = certificate_of(run_of("shuffle"), deltas=["1/4"]).text()
    document = json.loads(text)
    assert float(document["claims"][0]["epsilon"]) <= 10
    assert "second path" in document["parts"][0]["unchecked"]
    assert Status.UNCHECKED in {each.status for each in recheck(text).findings}


def test_missing_assumptions_and_foreign_releases_fail() -> None:
    text = certificate_of(run_of("central"), deltas=["1/4"]).text()
    document = json.loads(text)
    for assumption in document["assumptions"]:
        rest = [each for each in document["assumptions"] if each != assumption]
        found = recheck(changed(text, assumptions=rest)).findings
        assert Status.FAILS in {each.status for each in found}, assumption
    other = [
        {**document["released"][0], "noise": {"law": "discrete-gaussian", "sigma_squared": "3"}}
    ]
    assert Status.FAILS in {each.status for each in recheck(changed(text, released=other)).findings}


def test_without_privacy_nothing_is_certified() -> None:
    with pytest.raises(NotDerived, match="nothing is claimed"):
        certificate_of(run_of("none"))
