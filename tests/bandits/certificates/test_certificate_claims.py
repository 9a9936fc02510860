"""What a certificate claims of its run, and lies about it that fit together."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from fractions import Fraction
from typing import Any, cast

import pytest

from accounting.checker.text.form import digest_of
from accounting.errors import NotDerived
from accounting.release.curve import PrivacyCurve
from bandits.certificates.certificate import _worst, certificate_of, recheck
from tests.bandits.certificates.test_certificate import DELTA, HORIZON, POLICIES, run_of

SHORT = 60
DELTAS = (DELTA, "1/100")


def document(*deltas: str) -> dict[str, Any]:
    return certificate_of(run_of(POLICIES["pure"], horizon=SHORT), deltas=deltas).to_json()


def sealed(edited: dict[str, Any]) -> str:
    """The text with digests that fit, also those of the certificates in it."""
    for part in edited["parts"]:
        part["certificate"]["digest"] = digest_of(part["certificate"])
    return json.dumps({**edited, "digest": digest_of(edited)})


def test_a_certificate_names_what_was_played() -> None:
    certificate = certificate_of(run_of(POLICIES["pure"]), deltas=[DELTA])
    found = (certificate.algorithm, certificate.arms, certificate.horizon)
    assert found == ("dist-dp-se", 2, HORIZON)
    assert certificate.text().startswith('{\n  "schema"')


def test_epsilons_are_compared_as_numbers() -> None:
    parts = tuple({"claims": [{"delta": "1/2", "epsilon": e}]} for e in ("9.5", "10.25", "2"))
    assert _worst(parts, Fraction(1, 2))["epsilon"] == "10.25"


def test_a_part_of_just_as_many_steps_is_checked() -> None:
    run = run_of(POLICIES["renyi"], horizon=SHORT)
    assert run.guarantee is not None
    curves = [cast(PrivacyCurve, part) for part in run.guarantee.parts]
    steps = [int(cast(Any, curve.sensitivity).amount) for curve in curves]
    assert min(steps) < max(steps)
    certificate = certificate_of(run, deltas=[DELTA], most_steps=min(steps))
    checked = [part["certificate"] is not None for part in certificate.parts]
    assert checked == [each == min(steps) for each in steps]


def test_an_infinite_epsilon_is_not_certified() -> None:
    # The loss of bits is unbounded: at a delta below its tail no epsilon is finite.
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


# -- lies that fit together --------------------------------------------------------------------


def test_noise_that_does_not_keep_its_promise_is_found_by_the_second_path() -> None:
    # Less noise wherever it is written, with digests that fit: only who computes again can tell.
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
    reason = f"claims less at {DELTAS[which]} than its own certificate proves"
    assert {finding.reason for finding in verdict.failures} == {reason}
