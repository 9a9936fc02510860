"""Tests of `bandits.certificates.recheck`: every edit is found, even with a matching digest."""

from __future__ import annotations

import copy
import json
import pathlib
import sys
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from accounting import Status
from accounting.certificates.canonical_text import digest_of
from accounting.certificates.canonical_text import required_assumptions as ordinary
from accounting.certificates.certify import certify
from accounting.cli.certificate import verdict_of
from accounting.composition.compose import compose
from accounting.guarantees.guarantee import Guarantee
from accounting.guarantees.stated_guarantees import Pure
from accounting.privacy_curves.release_curve import PrivacyCurve
from bandits.certificates.certify_run import certificate_of
from bandits.certificates.recheck import (
    SEEDED,
    SYSTEM,
    UNKNOWN,
    read,
    recheck,
    required_assumptions,
)
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.mechanism import Relation, Scope
from tests.bandits.certificates.test_certify_run import (
    DELTA,
    POLICIES,
    SHORT,
    pooled_run,
    run_of,
    sealed,
)
from tests.day_and_nightly import effort, spread

NAMES = ("pure", "renyi", "shuffled-pure", "bits", "returning")
WRITTEN = pathlib.Path(__file__).parents[2] / "vectors" / "bandit_certificates"
VALUES: tuple[Any, ...] = (
    None, True, 0, 1, 2, 3, 10**19, "", "0", "1", "2", "1/2", "64", "0.1", "0.001", "1e-9", "abc",
    " 0.5 ", "1_0", "\u0660.\u0665", "1e20000000", "user", "contribution", "add-remove", "l1",
    "zcdp", "pure", "delta", "discrete-gaussian", [], {},
)  # fmt: skip
Path = tuple[str | int, ...]


@cache
def text_of(name: str) -> str:
    run = pooled_run() if name == "returning" else run_of(POLICIES[name], horizon=SHORT)
    return certificate_of(run, deltas=[DELTA]).text()


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text_of(name))
    return found


def paths(value: Any, at: Path = ()) -> Iterator[Path]:
    if at:
        yield at
    inner = value.items() if isinstance(value, dict) else []
    for key, each in enumerate(value) if isinstance(value, list) else inner:
        yield from paths(each, (*at, key))


def place(edited: Any, path: Path) -> Any:
    for key in path[:-1]:
        edited = edited[key]
    return edited


def edits(original: dict[str, Any], path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Edits of the field at ``path``: replaced, removed and, in a list, duplicated."""
    old, last = place(original, path)[path[-1]], path[-1]
    for value in VALUES:
        if value != old or type(value) is not type(old):
            edited = copy.deepcopy(original)
            place(edited, path)[last] = value
            yield f"{value!r}", edited
    edited = copy.deepcopy(original)
    del place(edited, path)[last]
    yield "removed", edited
    if isinstance(last, int):
        edited = copy.deepcopy(original)
        place(edited, path).insert(last, copy.deepcopy(old))
        yield "twice", edited


def harmless(path: Path, what: str, original: dict[str, Any]) -> bool:
    """Whether an edit may leave the verdict unchanged; each case states why."""
    match path:
        case ("claims", int(), "epsilon"):
            # A larger upper bound is valid too.
            return Fraction(what.strip("'")) > Fraction(original["claims"][0]["epsilon"])
        case ("parts", int(i), "claims", int(), "epsilon"):
            # A larger upper bound of a part is valid if the certificate claims no less.
            mine = Fraction(original["parts"][i]["claims"][0]["epsilon"])
            return mine < Fraction(what.strip("'")) <= Fraction(original["claims"][0]["epsilon"])
        case ("parts", int(), "certificate", "software", "name" | "version"):
            # The name of the software affects no number.
            return True
        case ("parts", int(i), "certificate", "claims", int(k)):
            # A removed pure or zCDP parameter does not affect epsilon. A removed epsilon is implied
            # if the pure epsilon is no larger than the claimed epsilon.
            part = original["parts"][i]
            own, claimed = part["certificate"]["claims"], Fraction(part["claims"][0]["epsilon"])
            pure = [Fraction(each["epsilon"]) for each in own if each["quantity"] == "pure"]
            follows = any(each <= claimed for each in pure)
            return what == "removed" and (own[k]["quantity"] in ("pure", "zcdp") or follows)
        case ("parts", int(i), "certificate", "assumptions", int(k)):
            # The outer certificate states the same assumption on returning users.
            own = original["parts"][i]["certificate"]["assumptions"][k]
            return str(own).startswith("a user takes part in at most")
    return False


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_every_edit_of_a_field_is_detected(name: str) -> None:
    original = document(name)
    assert recheck(sealed(copy.deepcopy(original))).holds
    tried = held = 0
    for path in spread(list(paths(original)), 100):
        for what, edited in edits(original, path):
            if path[-1] == "digest" and what != "removed":
                continue  # digests match again here; another test covers wrong digests
            tried += 1
            if recheck(sealed(edited)).holds:
                held += 1
                assert harmless(path, what, original), (path, what)
    assert tried > effort(300, 1500)
    assert held


@pytest.mark.parametrize("name", ["pure", "returning"])
def test_a_repeated_field_is_refused(name: str) -> None:
    original = document(name)
    tried = 0
    for path in paths(original):
        last = path[-1]
        if not isinstance(last, str):
            continue
        edited = copy.deepcopy(original)
        place(edited, path)["?twice"] = "0.0001"
        text = json.dumps(edited).replace('"?twice"', json.dumps(last))
        (failure,) = recheck(text).failures
        assert failure.reason == "is given twice"
        tried += 1
    assert tried > 50


@pytest.mark.parametrize("name", ["pure", "shuffled-pure", "bits", "returning"])
def test_a_certificate_of_an_older_version_holds(name: str) -> None:
    # Written before parts were checked by ``worst``; the edited copy claims less.
    text = (WRITTEN / f"{name}.json").read_text(encoding="utf-8")
    assert recheck(text).holds, str(recheck(text))
    assert verdict_of(text.encode()) == recheck(text)
    edited = json.loads(text)
    edited["claims"][0]["epsilon"] = "0.0001"
    assert not recheck(sealed(edited)).holds


def test_a_reason_with_words_of_an_older_version_stays_as_it_is() -> None:
    reason = "an (1/8, 1/1000)-relaxed aggregation (CZ Theorem 3)"
    text = text_of("shuffled-pure").replace(reason, "users never tell their noise")
    assert not read(json.loads(sealed(json.loads(text)))).complaints


def test_a_wrong_digest_is_named() -> None:
    for own, where in ((False, "digest"), (True, "parts[0].certificate.digest")):
        edited = document("pure")
        (edited["parts"][0]["certificate"] if own else edited)["digest"] = "sha256:" + "0" * 64
        text = json.dumps({**edited, "digest": digest_of(edited)} if own else edited)
        (failure,) = recheck(text).failures
        assert failure.where == where


def without_worst() -> dict[str, Any]:
    edited = document("renyi")
    best = min(edited["parts"], key=lambda part: Fraction(part["claims"][0]["epsilon"]))
    return {**edited, "parts": [best], "claims": best["claims"]}


def of_curve(claimed: Guarantee, **stated: Any) -> dict[str, Any]:
    """A part with a certificate of its own."""
    own = certify(claimed, deltas=[DELTA]).to_json()
    upper = next(each["upper"] for each in own["claims"] if each["quantity"] == "epsilon")
    shown = {key: own["parts"][0][key] for key in ("noise", "sensitivity") if not stated}
    claims = [{"delta": DELTA, "epsilon": upper.rstrip("0")}]
    law = {"claim": "curve", **({"scope": own["scope"]} if not stated else {}), **shown, **stated}
    return {"is": law, "claims": claims, "certificate": own, "unchecked": None}


def stated() -> dict[str, Any]:
    part = of_curve(compose(Pure("1/10000")), epsilon="1/10000")
    return {**document("pure"), "parts": [part], "claims": part["claims"]}


def decoy(key: str, real: Any) -> dict[str, Any]:
    edited = document("pure")
    for part in edited["parts"]:
        shown = {**part["is"], "noise": {"law": "discrete-laplace", "scale": "1/1000"}}
        part["is"] = {**shown, key: real(part["is"])}
    return edited


def told(edited: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """With matching sentences, so that other checks must detect what wrong counts would reveal."""
    edited = {**edited, **fields}
    return {**edited, "assumptions": [*required_assumptions(edited), SEEDED]}


def twice(key: str) -> dict[str, Any]:
    edited = document("pure")
    return told(edited, **{key: [*edited[key], edited[key][0]]})


def both_users() -> dict[str, Any]:
    edited = document("returning")
    users = "users are new: each takes part in one release at most"
    return {**edited, "assumptions": [*edited["assumptions"], users]}


def both_kinds() -> dict[str, Any]:
    one, other = document("pure"), document("returning")
    return told(one, parts=[*one["parts"], *other["parts"]], claims=one["claims"])


def two_relations() -> dict[str, Any]:
    edited = document("returning")
    rounds = copy.deepcopy(edited["parts"][0]["is"]["rounds_of"])
    rounds[0]["part"]["scope"]["relation"] = "add-remove"
    own = edited["parts"][0]["certificate"]
    edited["parts"][0]["is"]["rounds_of"] += rounds
    own["parts"] *= 2
    own["assumptions"] = [*ordinary(own), *own["assumptions"]]
    return edited


def with_part(part: dict[str, Any]) -> dict[str, Any]:
    edited = document("pure")
    return told(edited, parts=[*edited["parts"], part])


def two_scopes() -> dict[str, Any]:
    scope = Scope(relation=Relation.ADD_REMOVE)
    curve = PrivacyCurve(noise=DiscreteLaplace(scale=100), sensitivity=1, scope=scope)
    return with_part(of_curve(curve))


def in_notation(norm: str, amount: Any) -> dict[str, Any]:
    again = copy.deepcopy(document("pure")["parts"][0])
    for each in (again["is"], again["certificate"]["parts"][0]):
        each["sensitivity"] = {"norm": norm, "amount": amount}
    return with_part(again)


def with_rounds(rounds: tuple[int, ...] = (), **change: Any) -> dict[str, Any]:
    edited = document("returning")
    stated = edited["parts"][0]["is"]
    if rounds:
        stated["rounds_of"] = [{**stated["rounds_of"][0], "rounds": count} for count in rounds]
    stated.update(change)
    return told(edited)


def released_times(times: int = 0, shorter: int = 0) -> dict[str, Any]:
    """With a first release of so many times, or a horizon below the number of releases."""
    edited = document("pure")
    edited["released"][0]["times"] = times or edited["released"][0]["times"]
    total = sum(each["times"] for each in edited["released"])
    return told(edited, horizon=total - shorter if shorter else edited["horizon"])


def without(name: str, sentence: str) -> dict[str, Any]:
    edited = document(name)
    edited["assumptions"].remove(sentence)
    return edited


def by_another(name: str) -> dict[str, Any]:
    edited = {**document("pure"), "algorithm": name}
    for i, each in enumerate(edited["assumptions"]):
        edited["assumptions"][i] = each.replace(" dist-dp-se with", f" {name} with")
    return edited


NOTATION = "is.sensitivity.norm: fails: must be absolute for one number, or box for several"
FORGED: dict[str, tuple[Callable[[], dict[str, Any]], str | None]] = {
    "a part twice": (lambda: twice("parts"), "must not repeat a part"),
    "a release twice": (lambda: twice("released"), "is listed twice"),
    "users both new and returning": (both_users, "does not follow from the parts: users are new"),
    "releases and rounds": (both_kinds, "must all be releases, or all be rounds of releases"),
    "two relations": (
        two_relations,
        "must all have one relation: guarantees of different scopes do not compose",
    ),
    "two scopes": (two_scopes, "must all have one scope"),
    "rounds of a contribution": (lambda: with_rounds(unit="contribution"), "must be user"),
    "a law listed more than once": (
        lambda: with_rounds(rounds=(1, 1, 1)),
        "must not repeat a law; add its rounds instead",
    ),
    "a box of one": (lambda: in_notation("box", [4]), NOTATION),
    "an l1 norm": (lambda: in_notation("l1", 4), NOTATION),
    "an l2 norm": (lambda: in_notation("l2-squared", 16), NOTATION),
    "too many releases": (lambda: released_times(10**18), "released[0].times: fails"),
    "more releases than rounds": (
        lambda: released_times(shorter=1),
        "released: fails: must not contain more releases than rounds",
    ),
    "local, without its assumption": (
        lambda: without("local", "each user alone adds all the noise of the part"),
        "assumptions: fails: missing: each user alone adds all the noise of the part",
    ),
    **{
        f"by {name}": (lambda name=name: by_another(name), None)  # type: ignore[misc]  # bound now
        for name in ("ldp-se", "cdp-se", "sdp-ae", "dp-se", "ucb", "Dist-dp-se")
    },
    "the worst parts omitted": (without_worst, None),
    "a stated claim as the only part": (stated, None),
    "other noise beside the real part": (lambda: decoy("guarantee", lambda part: part), None),
    "other noise before the real rounds": (
        lambda: decoy("rounds_of", lambda part: [{"part": part, "rounds": 1}]),
        None,
    ),
    "an extra field": (lambda: {**document("pure"), "promise": "0-DP"}, None),
    "no assumptions": (lambda: {**document("shuffled-pure"), "assumptions": []}, None),
    "returning users assumed to be new": (
        lambda: {**document("returning"), "assumptions": document("pure")["assumptions"]},
        None,
    ),
    "nothing released": (lambda: {**document("pure"), "released": []}, None),
    "no arms": (lambda: {**document("pure"), "arms": -1}, None),
}
"""Invented certificates, and the only failure of those that have one."""


@pytest.mark.parametrize("name", FORGED)
def test_an_invented_certificate_fails(name: str) -> None:
    forged, reason = FORGED[name]
    verdict = recheck(sealed(forged()))
    assert not verdict.holds
    assert Status.FAILS in {finding.status for finding in verdict.failures}
    if reason is not None:
        (failure,) = verdict.failures
        assert reason in str(failure)


def test_as_many_releases_as_rounds_are_allowed() -> None:
    edited = document("pure")
    edited["horizon"] = sum(each["times"] for each in edited["released"])
    assert recheck(sealed(told(edited))).holds


def test_facts_that_only_the_writer_knows_are_stated_as_assumptions() -> None:
    # With these sentences rewritten, the certificate describes another run, and no reader can
    # detect it.
    edited = document("renyi")
    count = len(edited["parts"])
    assert any(each.startswith(f"parts: {count}, which cover") for each in edited["assumptions"])
    assert any(each.startswith("released: ") for each in edited["assumptions"])
    assert SEEDED in edited["assumptions"]
    edited["assumptions"][edited["assumptions"].index(SEEDED)] = SYSTEM
    assert recheck(sealed(edited)).holds


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"schema": 1}', b"\xff", "[" * 100_000,
     '{"schema": ' + "1" * 5000 + "}", '{"schema": NaN}', None],
    ids=lambda text: repr(text)[:20],
)  # fmt: skip
def test_text_that_is_not_a_certificate_is_reported(text: Any) -> None:
    (failure,) = recheck(text).findings
    assert failure.status is Status.FAILS


def test_a_huge_number_is_refused_at_once() -> None:
    edited, start = document("pure"), time.process_time()
    for epsilon in ("1e999999999", "9" * 2001):
        edited["claims"][0]["epsilon"] = epsilon
        assert not recheck(sealed(edited)).holds
    assert time.process_time() - start < 1


def test_printed_text_has_no_control_characters() -> None:
    edited = document("pure")
    edited["\x1b[2Jevery claim holds"] = 1
    for each in (edited, {**document("pure"), "algorithm": "x\nevery claim holds"}):
        verdict = recheck(sealed(each))
        assert not verdict.holds
        assert str(verdict).isprintable()


@pytest.mark.parametrize("name", ["ucb", "Dist-dp-se"])
def test_an_unknown_algorithm_is_reported_as_assumed(name: str) -> None:
    edited = {**document("pure"), "algorithm": name}
    verdict = recheck(sealed(told(edited)))
    assert verdict.holds
    first = verdict.findings[0]
    assert (first.where, first.status, first.reason) == ("algorithm", Status.ASSUMED, UNKNOWN)
    assert UNKNOWN in required_assumptions(edited)
    assert UNKNOWN not in document("pure")["assumptions"]


def test_all_parts_share_one_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    text = text_of("renyi")
    assert recheck(text).holds
    monkeypatch.setattr(sys.modules["bandits.certificates.recheck"], "_MOST_VALUES", 10)
    failures = recheck(text).failures
    assert {each.status for each in failures} == {Status.UNCHECKED}
    assert all("more values than the limit of 10" in each.reason for each in failures)
