"""Tests of `verify_certificate` on changed certificates: each is rejected by name."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Status, verify
from accounting.certificates.canonical_text import digest_of
from accounting.certificates.certify import Certificate
from tests.accounting.certificates.test_certify import move, resealed
from tests.day_and_nightly import effort, spread
from tests.support.dpcore.refusals import refusal

GOLDEN = Path(__file__).parents[2] / "vectors" / "certificates"
CHEAP = "one_gaussian"


def golden(name: str = CHEAP) -> dict[str, Any]:
    found = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def test_a_changed_character_is_rejected_or_has_no_effect() -> None:
    text = (GOLDEN / f"{CHEAP}.json").read_text(encoding="utf-8")
    original = json.loads(text)
    tried = changed = 0
    places = spread(range(len(text)), 120)
    for i in places:
        old = text[i]
        for new in ("", old + old, "0", "7", "x", '"', ",", " ", "-"):
            mutant = text[:i] + new + text[i + 1 :]
            tried += 1
            found = verify(mutant)
            if found.holds:
                assert json.loads(mutant) == original, (i, old, new)
            else:
                changed += 1
                assert found.failures[0].reason
    assert changed > 0.7 * tried


@pytest.mark.parametrize("name", ["one_gaussian", "thousand_laplaces"])
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
    ("certificate", lambda d: d.update(note="trust me")),
    ("scope", lambda d: d["scope"].update(unit="planet")),
    ("parts", lambda d: d.update(parts=[])),
    ("parts", lambda d: d.update(parts=d["parts"] * 65)),
    ("parts", lambda d: d["parts"][0].update(rounds=0)),
    ("parts", lambda d: d["parts"][0].update(rounds=True)),
    ("parts", lambda d: d["parts"][0].update(rounds=10**9)),
    ("parts", lambda d: d["parts"][0].update(honest="0")),
    ("parts", lambda d: d["parts"][0].update(honest="2")),
    ("parts", lambda d: d["parts"][0].update(claim="pure")),
    ("parts", lambda d: d["parts"][0]["noise"].update(sigma_squared="800/2")),
    ("parts", lambda d: d["parts"][0]["noise"].update(sigma_squared="-400")),
    ("parts", lambda d: d["parts"][0]["noise"].update(sigma_squared="0")),
    ("parts", lambda d: d["parts"][0]["noise"].update(sigma_squared="9" * 2001)),
    ("parts", lambda d: d["parts"][0]["noise"].update(sigma_squared="4e2")),
    ("parts", lambda d: d["parts"][0]["noise"].update(sigma_squared=400)),
    ("parts", lambda d: d["parts"][0]["noise"].update(mean="1")),
    ("parts", lambda d: d["parts"][0]["sensitivity"].update(norm="max")),
    ("parts", lambda d: d["parts"][0]["sensitivity"].update(amount=0)),
    ("claims", lambda d: d.update(claims=[])),
    ("claims", lambda d: d["claims"].append(d["claims"][0])),
    ("claims", lambda d: d["claims"][0].update(quantity="guess")),
    ("claims", lambda d: d["claims"][0].update(theorem="folklore")),
    ("claims", lambda d: d["claims"][0].update(delta="0")),
    ("claims", lambda d: d["claims"][0].update(digits=7)),
    ("claims", lambda d: d["claims"][0].update(lower=".18")),
    ("claims", lambda d: d["claims"][0].update(upper="1" + d["claims"][0]["upper"])),
    ("claims", lambda d: d["claims"][0].update(lower=d["claims"][0]["upper"], upper="0.18920735")),
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
        "[]",
        '{"a": 1, "a": 2}',
        '{"schema": Infinity}',
        '{"schema": ' + "9" * 5000 + "}",
        "[" * 100_000,
        '{"schema": "\\ud800"}',
        b"\xff\xfe",
        " " * (1 << 19),
        7,
    ],
)
def test_hostile_text_is_reported_without_a_crash(text: Any) -> None:
    found = verify(text)
    assert not found.holds
    assert found.failures[0].reason


def test_hostile_text_is_not_read_as_a_certificate() -> None:
    for text in ("", "{}", '{"a": 1, "a": 2}'):
        refusal(partial(Certificate.from_text, text))
    changed = (GOLDEN / f"{CHEAP}.json").read_text(encoding="utf-8").replace("0.18", "0.19")
    assert "digest" in refusal(lambda: Certificate.from_text(changed))


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


@settings(max_examples=effort(20, 300), deadline=None)
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


def test_an_object_that_is_not_of_json_types_is_reported() -> None:
    document = golden()
    assert verify(MappingProxyType(document)).holds
    document["parts"][0] = MappingProxyType(document["parts"][0])
    assert str(verify(document)) == "parts[0]: fails: must be a JSON object"


def test_the_verdict_names_each_claim() -> None:
    document = golden()
    move(document["claims"][0], "lower", 1)
    move(document["claims"][0], "upper", 1)
    found = verify(resealed(document))
    assert [each.where for each in found.failures] == ["claims[0] (epsilon)"]
    assert [each.status for each in found.findings].count(Status.HOLDS) == 3
    assert found.to_json()["holds"] is False
    assert "claims[0] (epsilon): fails" in str(found)
    # `assert verify(text)` must not pass for a certificate that does not hold.
    with pytest.raises(TypeError, match=r"has no truth value: use verdict\.holds"):
        bool(found)
