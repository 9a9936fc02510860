"""Certificates: what certify states is verified, and nothing that was changed is."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Approx, NotDerived, PrivacyCurve, Pure, Rdp, ZCdp
from accounting.bound import Bound
from accounting.certificate import Certificate, Disagreement, certify
from accounting.checker import Status, verify
from accounting.checker.form import digest_of
from accounting.checker.verdict import _checked
from accounting.compose import compose
from accounting.stated import _cell, _decimal
from dpcore import DiscreteGaussian, DiscreteLaplace
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Mechanism, Release, Scope, Sensitivity, Unit
from dpcore.parameter import RationalLike
from dpcore.spelling import read_noise

GOLDEN = Path(__file__).parents[1] / "vectors" / "certificates"
CHEAP = "one_gaussian"


def golden(name: str = CHEAP) -> dict[str, Any]:
    found = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def curve(text: str, sensitivity: Sensitivity | int = 1) -> PrivacyCurve:
    return PrivacyCurve(noise=read_noise(text), sensitivity=sensitivity)


# -- what is certified holds ---------------------------------------------------------------------


SINGLES: list[tuple[str, Sensitivity | int, list[str]]] = [
    ("discrete-gaussian:sigma_squared=400", 1, ["2", "5/2"]),
    ("discrete-gaussian:sigma_squared=100", Sensitivity.box((1, 2)), ["2"]),
    ("discrete-gaussian:sigma_squared=9", Sensitivity.l2_squared(3), []),
    ("discrete-laplace:scale=20", 3, ["2"]),
    ("discrete-laplace:scale=20", Sensitivity.l1(3), []),
    ("discrete-gaussian-sum:count=5,sigma_squared=1/2", 1, ["2"]),
    ("skellam:variance=100", 2, ["3/2"]),
    ("polya-difference:shape=9/10,scale=5", 2, ["2"]),
    ("polya-difference:shape=3/2,scale=5", 2, ["2"]),
    ("poisson:mean=100", 1, []),
    ("binomial:trials=268,probability=1/2", 1, []),
    ("binomial:trials=268,probability=1/3", 1, []),
]


@pytest.mark.parametrize(("text", "sensitivity", "orders"), SINGLES, ids=str)
def test_one_release(text: str, sensitivity: Sensitivity | int, orders: list[str]) -> None:
    found = certify(curve(text, sensitivity), epsilons=["0", "1/3"], orders=orders)
    assert verify(found).holds
    assert verify(found.text()).holds
    assert Certificate.from_text(found.text()) == found


@pytest.mark.parametrize(("text", "sensitivity", "orders"), SINGLES, ids=str)
def test_every_end_moved_by_a_unit_fails(
    text: str, sensitivity: Sensitivity | int, orders: list[str]
) -> None:
    document = certify(curve(text, sensitivity), epsilons=["1/3"], orders=orders).to_json()
    for i, claim in enumerate(document["claims"]):
        if "digits" not in claim:
            continue
        for lower, upper in ((1, 1), (-1, -1), (1, 0), (0, 1), (-1, 0), (0, -1)):
            moved = copy.deepcopy(document)
            if not all(
                move(moved["claims"][i], end, by)
                for end, by in (("lower", lower), ("upper", upper))
            ):
                continue
            assert not verify(resealed(moved)).holds, (claim, lower, upper)


def move(claim: dict[str, Any], end: str, by: int) -> bool:
    scaled = int(Fraction(claim[end]) * 10 ** claim["digits"]) + by
    if scaled < 0:
        return False
    claim[end] = _decimal(scaled, claim["digits"])
    return True


def resealed(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "digest": digest_of(document)}


def test_many_releases() -> None:
    gaussian = curve("discrete-gaussian:sigma_squared=400")
    found = certify(compose((gaussian, 1000)), deltas=["1e-6", "1e-30"], orders=["2"], digits=12)
    assert found.claims[0]["lower"].startswith("8.306226")
    assert found.claims[1]["lower"].startswith("19.085")
    assert found.claims[0]["digits"] == 11
    assert found.claims[-1]["rho"] == "5/4"
    pure = certify(compose((curve("discrete-laplace:scale=20"), 1000)), deltas=["1e-6"], digits=12)
    assert pure.claims[0]["lower"] == "8.28357334601"
    assert pure.claims[-1]["epsilon"] == "50"


def test_claims_are_parts_too_and_say_that_they_are_stated() -> None:
    found = certify(compose((Pure("1/10"), 100)), digits=10)
    assert "claim: pure with epsilon 1/10 is stated, not derived" in found.assumptions
    assert found.claims[-2]["epsilon"] == "10"
    assert certify(compose((ZCdp("1/10"), 2)), deltas=[]).claims[0]["rho"] == "1/5"


USER = Scope(unit=Unit.USER)


def releases(people: tuple[tuple[str, ...], ...], honest: str = "9/10") -> list[Release]:
    mechanism = Mechanism(noise=DiscreteLaplace(scale=20), sensitivity=1, scope=USER)
    return [
        Release(mechanism=mechanism, batch=str(i), participants=there, honest=Fraction(honest))
        for i, there in enumerate(people)
    ]


@pytest.mark.parametrize(
    ("people", "most"),
    [
        ((("ada",), ("bob",), ("eve",)), 1),
        ((("ada", "bob"), ("bob",), ("eve", "bob")), 3),
        ((("ada",), ("bob",), ()), 3),
    ],
)
def test_a_run_is_what_one_person_may_have_taken_part_in(
    people: tuple[tuple[str, ...], ...], most: int
) -> None:
    found = certify(releases(people))
    assert found.parts[0]["rounds"] == most
    assert found.parts[0]["honest"] == "9/10"
    assert found.claims[-1]["epsilon"] == str(Fraction(most, 20))
    text = "\n".join(found.assumptions)
    assert ("unique users" in text) is (most == 1)
    assert "honest parties: they added 9/10" in text
    assert "secure aggregation: ideal" in text


def test_a_batch_released_twice_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="twice"):
        certify([*releases((("ada",),)), *releases((("ada",),))])


# -- what is not certified -----------------------------------------------------------------------


def test_what_has_no_two_sided_number_is_refused_with_the_reason() -> None:
    with pytest.raises(NotDerived, match="upper bound"):
        certify(compose((ZCdp("1/10"), 2)))
    with pytest.raises(NotDerived, match="knows no such part"):
        certify(compose(Rdp({2: "1/10"})))
    with pytest.raises(NotDerived, match="direction"):
        certify(compose((curve("poisson:mean=400"), 2)))
    with pytest.raises(NotDerived, match="infinite"):
        certify(curve("polya:shape=1/2,scale=10"))
    with pytest.raises(NotDerived, match="values matter"):
        certify(curve("discrete-gaussian:sigma_squared=1e12"))
    with pytest.raises(NotDerived, match="list of 1 to 64"):
        certify(compose(*(Pure(Fraction(i, 100)) for i in range(1, 66))), deltas=[])


@pytest.mark.parametrize(
    "asked",
    [
        {"deltas": ["0"]},
        {"deltas": ["1"]},
        {"deltas": ["1e-6", "1/1000000"]},
        {"epsilons": ["-1"]},
        {"orders": ["1"]},
        {"digits": 2},
        {"digits": 31},
        {"deltas": [math.nan]},
    ],
)
def test_arguments_out_of_range_are_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        certify(curve("discrete-gaussian:sigma_squared=400"), **asked)


@dataclass(frozen=True)
class Wrong:
    """A composition whose engine is off by one part in a million."""

    parts: tuple[tuple[Any, int], ...] = ((curve("discrete-gaussian:sigma_squared=400"), 1),)
    scope: Scope = USER
    assumptions: tuple[str, ...] = ("said by hand",)

    def epsilon(self, delta: RationalLike, relative: RationalLike) -> Bound:
        found = self.parts[0][0].epsilon(delta)
        off = Fraction(1000001, 1000000)
        return Bound(upper=found.upper * off, lower=found.lower * off, method="", theorem="")

    delta = epsilon

    def renyi(self, order: RationalLike) -> Bound:
        raise NotImplementedError


def test_an_engine_that_is_wrong_certifies_nothing() -> None:
    with pytest.raises(Disagreement, match="epsilon"):
        certify(Wrong())


@given(
    st.fractions(min_value=0, max_value=50, max_denominator=10**9),
    st.fractions(min_value=0, max_value=Fraction(1, 10**6), max_denominator=10**12),
    st.integers(min_value=0, max_value=9),
)
def test_a_cell_holds_the_enclosure_with_room(low: Fraction, width: Fraction, digits: int) -> None:
    cell = _cell(low, low + width, digits)
    unit = Fraction(1, 10**digits)
    if cell is None:
        return
    left, right = (Fraction(_decimal(end, digits)) for end in cell)
    if left == right:
        assert width == 0
        assert left == low
    else:
        assert right - left == unit
        assert left + unit / 16 <= low <= low + width <= right - unit / 16


# -- what was changed ----------------------------------------------------------------------------


def test_any_character_changed_is_rejected_or_changes_nothing() -> None:
    text = (GOLDEN / f"{CHEAP}.json").read_text(encoding="utf-8")
    original = json.loads(text)
    tried = changed = 0
    for i, old in enumerate(text):
        for new in ("", old + old, "0", "7", "x", '"', ",", " ", "-"):
            mutant = text[:i] + new + text[i + 1 :]
            tried += 1
            found = verify(mutant)
            if found.holds:
                assert json.loads(mutant) == original, (i, old, new)
            else:
                changed += 1
                assert found.failures[0].reason
    assert tried > 10_000
    assert changed > 0.7 * tried


PARAMETERS: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("variance", lambda d: d["parts"][0]["noise"].update(sigma_squared="401")),
    ("law", lambda d: d["parts"][0].update(noise={"law": "skellam", "variance": "400"})),
    ("sensitivity", lambda d: d["parts"][0]["sensitivity"].update(amount=2)),
    ("delta", lambda d: d["claims"][0].update(delta="1/1000001")),
    ("epsilon", lambda d: d["claims"][1].update(epsilon="1/11")),
    ("order", lambda d: d["claims"][2].update(order="3")),
    ("rho", lambda d: d["claims"][3].update(rho="1/801")),
]


@pytest.mark.parametrize(("what", "change"), PARAMETERS, ids=[what for what, _ in PARAMETERS])
def test_a_changed_number_with_a_new_digest_is_caught(what: str, change: Any) -> None:
    document = golden()
    change(document)
    found = verify(resealed(document))
    assert not found.holds
    assert all(each.status is not Status.HOLDS for each in found.failures)


def test_changed_rounds_with_everything_else_made_to_fit_are_caught() -> None:
    document = golden("thousand_gaussians")
    document["parts"][0]["rounds"] = 999
    document["assumptions"] = [
        each.replace("at most 1000 rounds", "at most 999 rounds")
        for each in document["assumptions"]
    ]
    found = verify(resealed(document))
    assert len(found.failures) == len(document["claims"])


@pytest.mark.parametrize("name", ["one_gaussian", "thousand_gaussians", "thousand_laplaces"])
def test_a_missing_assumption_is_named(name: str) -> None:
    document = golden(name)
    for i, text in enumerate(document["assumptions"]):
        less = copy.deepcopy(document)
        del less["assumptions"][i]
        assert any(f.where == "digest" for f in verify(less).failures)
        (failure,) = verify(resealed(less)).failures
        assert (failure.where, text in failure.reason) == ("assumptions", True)


REFUSED: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("schema", lambda d: d.update(schema="dpcore-certificate/2")),
    ("schema", lambda d: d.pop("schema")),
    ("certificate", lambda d: d.update(note="trust me")),
    ("certificate", lambda d: d.pop("software")),
    ("scope", lambda d: d["scope"].update(unit="planet")),
    ("scope", lambda d: d["scope"].pop("relation")),
    ("parts", lambda d: d.update(parts=[])),
    ("parts", lambda d: d.update(parts=d["parts"] * 65)),
    ("parts", lambda d: d["parts"][0].update(rounds=0)),
    ("parts", lambda d: d["parts"][0].update(rounds=True)),
    ("parts", lambda d: d["parts"][0].update(rounds="1")),
    ("parts", lambda d: d["parts"][0].update(rounds=10**9)),
    ("parts", lambda d: d["parts"][0].update(honest="0")),
    ("parts", lambda d: d["parts"][0].update(honest="2")),
    ("parts", lambda d: d["parts"][0].update(claim="pure")),
    ("parts", lambda d: d["parts"][0]["noise"].update(law="laplace")),
    ("parts", lambda d: d["parts"][0]["noise"].update(sigma_squared="800/2")),
    ("parts", lambda d: d["parts"][0]["noise"].update(sigma_squared="0400")),
    ("parts", lambda d: d["parts"][0]["noise"].update(sigma_squared="4e2")),
    ("parts", lambda d: d["parts"][0]["noise"].update(sigma_squared="-400")),
    ("parts", lambda d: d["parts"][0]["noise"].update(sigma_squared="0")),
    ("parts", lambda d: d["parts"][0]["noise"].update(sigma_squared="NaN")),
    ("parts", lambda d: d["parts"][0]["noise"].update(sigma_squared="9" * 2001)),
    ("parts", lambda d: d["parts"][0]["noise"].update(sigma_squared=400)),
    ("parts", lambda d: d["parts"][0]["noise"].update(mean="1")),
    ("parts", lambda d: d["parts"][0]["sensitivity"].update(norm="max")),
    ("parts", lambda d: d["parts"][0]["sensitivity"].update(amount=0)),
    ("claims", lambda d: d.update(claims=[])),
    ("claims", lambda d: d["claims"].append(d["claims"][0])),
    ("claims", lambda d: d["claims"][0].update(quantity="guess")),
    ("claims", lambda d: d["claims"][0].update(theorem="folklore")),
    ("claims", lambda d: d["claims"][0].update(delta="0")),
    ("claims", lambda d: d["claims"][0].update(delta="0.000001")),
    ("claims", lambda d: d["claims"][0].update(digits=7)),
    ("claims", lambda d: d["claims"][0].update(digits=-1)),
    ("claims", lambda d: d["claims"][0].update(lower=".18")),
    ("claims", lambda d: d["claims"][0].update(upper="1" + d["claims"][0]["upper"])),
    ("claims", lambda d: d["claims"][0].update(lower=d["claims"][0]["upper"], upper="0.18920735")),
    ("assumptions", lambda d: d.update(assumptions="none")),
    ("assumptions", lambda d: d["assumptions"].append(d["assumptions"][0])),
    ("assumptions", lambda d: d["assumptions"].append("\u0430")),
    ("software", lambda d: d["software"].update(author="me")),
    ("digest", lambda d: d.update(digest=7)),
]


@pytest.mark.parametrize(
    ("where", "change"), REFUSED, ids=[f"{where}-{i}" for i, (where, _) in enumerate(REFUSED)]
)
def test_bad_fields_are_refused_by_name(where: str, change: Any) -> None:
    document = golden()
    change(document)
    assert any(where in failure.where for failure in verify(document).failures)
    again = {**document, "digest": digest_of(document)} if where != "digest" else document
    assert not verify(again).holds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "1",
        "NaN",
        '{"a": 1, "a": 2}',
        '{"schema": 1e999}',
        '{"schema": Infinity}',
        '{"schema": ' + "9" * 5000 + "}",
        "[" * 100_000,
        '{"schema": "\\ud800"}',
        b"\xff\xfe",
        " " * (1 << 19),
        "{}{}",
        7,
    ],
)
def test_hostile_text_is_a_finding_and_no_crash(text: Any) -> None:
    found = verify(text)
    assert not found.holds
    assert found.failures[0].reason


@pytest.mark.parametrize("text", ["", "{}", '{"a": 1, "a": 2}'])
def test_a_certificate_is_not_read_from_such_text(text: str) -> None:
    with pytest.raises(InvalidParameter):
        Certificate.from_text(text)
    changed = (GOLDEN / f"{CHEAP}.json").read_text(encoding="utf-8").replace("0.18", "0.19")
    with pytest.raises(InvalidParameter, match="digest"):
        Certificate.from_text(changed)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["1/2", "0", "1e9999", "9" * 30, "pure", "skellam", "NaN", "-1", "0.5"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)


def paths(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield here
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(inner, (*here, key))


PATHS = [path for path in paths(golden()) if path]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(PATHS), JSON, st.booleans())
def test_no_value_anywhere_crashes_the_checker(path: Any, value: Any, sealed: bool) -> None:
    document = golden()
    at = document
    for key in path[:-1]:
        at = at[key]
    before = at[path[-1]]
    at[path[-1]] = value
    text = json.dumps(document)
    if sealed and path[0] != "digest":
        try:
            document = json.loads(text, parse_constant=lambda _: 0)
            text = json.dumps(resealed(document))
        except ValueError:
            return
    found = verify(text)
    if found.holds:
        assert value == before or path[:1] in (("software",), ("assumptions",))


@given(st.binary(max_size=200) | st.text(max_size=200) | JSON.map(json.dumps))
def test_noise_is_no_certificate(text: str | bytes) -> None:
    assert not verify(text).holds


def test_the_verdict_names_each_claim() -> None:
    document = golden()
    move(document["claims"][0], "lower", 1)
    move(document["claims"][0], "upper", 1)
    found = verify(resealed(document))
    assert [each.where for each in found.failures] == ["claims[0] (epsilon)"]
    assert [each.status for each in found.findings].count(Status.HOLDS) == 3
    assert found.to_json()["holds"] is False
    assert "claims[0] (epsilon): fails" in str(found)


def test_what_the_second_path_cannot_decide_does_not_hold() -> None:
    document = golden()
    document["parts"][0]["noise"]["sigma_squared"] = "4" + "0" * 30
    found = verify(resealed(document))
    assert not found.holds
    assert found.findings[0].status is Status.UNCHECKED


def test_verdicts_are_remembered_only_for_equal_claims() -> None:
    _checked.cache_clear()
    assert verify(golden()).holds
    misses = _checked.cache_info().misses
    assert verify(golden()).holds
    assert _checked.cache_info().misses == misses
    assert certify(curve("discrete-gaussian:sigma_squared=400")).claims
    assert isinstance(DiscreteGaussian(sigma_squared=1), DiscreteGaussian)
    assert Approx(1, "1e-6").delta == Fraction(1, 10**6)
