"""Certificates of runs with another algorithm, mixed scopes, or one thing in two spellings."""

from __future__ import annotations

import copy
import json
import sys
from typing import Any

import pytest

from accounting import Status
from accounting.certificates.certificate import certify
from accounting.release.curve import PrivacyCurve
from bandits.certificates.certificate import certificate_of, recheck
from bandits.certificates.form import SEEDED, UNKNOWN, required_assumptions
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.mechanism import Relation, Scope
from tests.bandits.certificates.test_certificate import DELTA, POLICIES, elimination, run_of, summed
from tests.bandits.certificates.test_recheck import document, sealed
from tests.effort import by_day


def told(edited: dict[str, Any]) -> str:
    """With the sentences and digests that fit: whoever edits can write these too."""
    return sealed({**edited, "assumptions": [*required_assumptions(edited), SEEDED]})


def reason_of(text: str) -> tuple[str, str]:
    (failure,) = recheck(text).failures
    return failure.where, failure.reason


# -- the algorithm -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ldp-se", "cdp-se", "sdp-ae", "dp-se", "ucb", "Dist-dp-se"])
def test_another_name_needs_other_sentences(name: str) -> None:
    edited = {**document("pure"), "algorithm": name}
    for i, each in enumerate(edited["assumptions"]):
        edited["assumptions"][i] = each.replace(" dist-dp-se with", f" {name} with")
    verdict = recheck(sealed(edited))
    assert not verdict.holds
    assert all(each.reason.startswith("missing: ") for each in verdict.failures)


@pytest.mark.parametrize("name", ["ucb", "Dist-dp-se", "halves-se"])
def test_an_algorithm_that_nobody_knows_is_assumed(name: str) -> None:
    edited = {**document("pure"), "algorithm": name}
    verdict = recheck(told(edited))
    assert verdict.holds
    first = verdict.findings[0]
    assert (first.where, first.status, first.reason) == ("algorithm", Status.ASSUMED, UNKNOWN)
    assert UNKNOWN in required_assumptions(edited)
    assert UNKNOWN not in document("pure")["assumptions"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("se", "se protects nobody: it has no certificate"),
        ("dist-dp-se ", "must have no blanks at its ends"),
        (" dist-dp-se", "must have no blanks at its ends"),
        (" ", "must have no blanks at its ends"),
    ],
)
def test_names_that_are_refused(name: str, reason: str) -> None:
    edited = document("pure")
    text = sealed({**edited, "algorithm": name})
    assert reason_of(text) == ("algorithm", reason)


def test_the_local_model_has_a_sentence_of_its_own() -> None:
    run = run_of(elimination(summed("local")), horizon=60)
    text = certificate_of(run, deltas=[DELTA]).text()
    sentence = "each user adds the noise of the part alone"
    assert sentence in json.loads(text)["assumptions"]
    assert recheck(text).holds
    edited = json.loads(text)
    edited["assumptions"].remove(sentence)
    assert reason_of(sealed(edited)) == ("assumptions", f"missing: {sentence}")


# -- scopes and rounds ---------------------------------------------------------------------------


def of_scope(scope: Scope) -> dict[str, Any]:
    curve = PrivacyCurve(noise=DiscreteLaplace(scale=100), sensitivity=1, scope=scope)
    own = certify(curve, deltas=[DELTA]).to_json()
    upper = next(each["upper"] for each in own["claims"] if each["quantity"] == "epsilon")
    stated = {"claim": "curve", "scope": own["scope"]}
    law = {key: own["parts"][0][key] for key in ("noise", "sensitivity")}
    claims = [{"delta": DELTA, "epsilon": upper.rstrip("0")}]
    return {"is": {**stated, **law}, "claims": claims, "certificate": own, "unchecked": None}


def test_scopes_never_compose() -> None:
    edited = document("pure")
    other = of_scope(Scope(relation=Relation.ADD_REMOVE))
    edited["parts"].append(other)
    assert reason_of(told(edited)) == ("parts", "must have one scope: scopes never compose")


def test_rounds_are_those_of_a_user() -> None:
    edited = document("returning")
    edited["parts"][0]["is"]["unit"] = "contribution"
    where, reason = reason_of(told(edited))
    assert where == "parts[0].is.unit"
    assert reason.startswith("must be user")


def test_rounds_of_one_law_stand_together() -> None:
    edited = document("returning")
    part = edited["parts"][0]
    part["is"]["rounds_of"] = [{**part["is"]["rounds_of"][0], "rounds": k} for k in (1, 1)] + [
        {**part["is"]["rounds_of"][0], "rounds": 1}
    ]
    assert reason_of(told(edited))[1] == "must not repeat a law: add up its rounds"


# -- one thing, one spelling ---------------------------------------------------------------------


@pytest.mark.parametrize(("norm", "amount"), [("box", [4]), ("l1", 4), ("l2-squared", 16)])
def test_a_part_in_another_spelling_is_refused(norm: str, amount: Any) -> None:
    edited = document("pure")
    again = copy.deepcopy(edited["parts"][0])
    for each in (again["is"], again["certificate"]["parts"][0]):
        each["sensitivity"] = {"norm": norm, "amount": amount}
    edited["parts"].append(again)
    where, reason = reason_of(told(edited))
    assert where == f"parts[{len(edited['parts']) - 1}].is.sensitivity.norm"
    assert reason == "must be absolute, of one number, or box, of several"


def test_no_more_is_released_than_there_were_rounds() -> None:
    edited = document("pure")
    edited["released"][0]["times"] = 10**18
    assert reason_of(told(edited))[0] == "released[0].times"
    edited = document("pure")
    times = sum(each["times"] for each in edited["released"])
    edited.update(horizon=times)
    assert recheck(told(edited)).holds
    edited.update(horizon=times - 1)
    assert reason_of(told(edited)) == (
        "released",
        "must be one release a round at most: more than the horizon",
    )


# -- what a text may cost, and small deltas ------------------------------------------------------


def test_all_parts_share_one_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    text = certificate_of(run_of(POLICIES["renyi"], horizon=60), deltas=[DELTA]).text()
    assert recheck(text).holds
    monkeypatch.setattr(sys.modules["bandits.certificates.recheck"], "_MOST_VALUES", 10)
    failures = recheck(text).failures
    assert {each.status for each in failures} == {Status.UNCHECKED}
    assert all("more than 10 values in all" in each.reason for each in failures)


@by_day(1)
@pytest.mark.parametrize("delta", ["1e-10", "1e-12", "1e-15", "1e-25"])
def test_a_pure_run_is_certified_at_any_small_delta(delta: str) -> None:
    certificate = certificate_of(run_of(POLICIES["pure"], horizon=1000), deltas=["1e-6", delta])
    assert recheck(certificate.text()).holds
    assert certificate.claims[1]["epsilon"] == "0.5"


def test_a_pure_claim_that_is_stated_is_certified_at_a_small_delta() -> None:
    run = run_of(POLICIES["shuffled-pure"], horizon=60)
    assert recheck(certificate_of(run, deltas=["1e-12"]).text()).holds
