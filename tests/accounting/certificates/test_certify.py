"""Tests of `accounting.certificates.certify`: certificates verify, changed ones fail."""

from __future__ import annotations

import copy
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from accounting import NotDerived, PrivacyCurve, Pure, Rdp, ZCdp, verify
from accounting.certificates.canonical_text import digest_of, required_assumptions, with_decimals
from accounting.certificates.certify import Certificate, Disagreement, certify
from accounting.composition.compose import Composition, compose
from accounting.derive_guarantee import guarantee
from accounting.guarantees.bound import Bound
from dpcore import DiscreteLaplace
from dpcore.mechanism import Mechanism, Release, Scope, Sensitivity, Unit
from dpcore.parse_noise import read_noise
from dpcore.selection import Selection
from tests.day_and_nightly import by_day
from tests.support.dpcore.refusals import refusal


def curve(text: str, sensitivity: Sensitivity | int = 1) -> PrivacyCurve:
    return PrivacyCurve(noise=read_noise(text), sensitivity=sensitivity)


SINGLES: list[tuple[str, Sensitivity | int, list[str]]] = [
    ("discrete-gaussian:sigma_squared=400", 1, ["2", "5/2"]),
    ("discrete-gaussian:sigma_squared=100", Sensitivity.box((1, 2)), ["2"]),
    ("discrete-laplace:scale=20", 3, ["2"]),
    ("staircase:epsilon=1/2,sensitivity=5", 7, ["2"]),
    ("discrete-laplace:scale=20", Sensitivity.l1(3), []),
    ("discrete-gaussian-sum:count=5,sigma_squared=1/2", 1, ["2"]),
    ("skellam:variance=100", 2, ["3/2"]),
    ("skellam:variance=4000", 1, []),  # delta(1/3) is 1e-104
    ("polya-difference:shape=9/10,scale=5", 2, ["2"]),
    ("poisson:mean=100", 1, []),
    ("binomial:trials=268,probability=1/3", 1, []),
]


@by_day(2)
@pytest.mark.parametrize(("text", "sensitivity", "orders"), SINGLES, ids=str)
def test_the_certificate_of_one_release_holds_and_with_a_moved_end_fails(
    text: str, sensitivity: Sensitivity | int, orders: list[str]
) -> None:
    found = certify(curve(text, sensitivity), epsilons=["0", "1/3"], orders=orders)
    assert verify(found).holds
    assert Certificate.from_text(found.text()) == found
    document = found.to_json()
    for claim in document["claims"]:
        if "digits" not in claim:
            continue
        alone = sealed({**document, "claims": [claim]})
        assert verify(alone).holds
        # A wider interval around an exact value is also a true claim.
        shorter = () if claim["lower"] == claim["upper"] else ((0, 1), (-1, 0))
        for lower, upper in ((1, 1), (-1, -1), (1, 0), (0, -1), *shorter):
            moved = copy.deepcopy(alone)
            if not all(
                move(moved["claims"][0], end, by)
                for end, by in (("lower", lower), ("upper", upper))
            ):
                continue
            assert not verify(resealed(moved)).holds, (claim, lower, upper)


def move(claim: dict[str, Any], end: str, by: int) -> bool:
    scaled = int(Fraction(claim[end]) * 10 ** claim["digits"]) + by
    if scaled < 0:
        return False
    claim[end] = with_decimals(scaled, claim["digits"])
    return True


def resealed(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "digest": digest_of(document)}


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with the assumptions that its present claims require."""
    return resealed({**document, "assumptions": [*required_assumptions(document)]})


def test_the_certificate_of_many_releases_has_as_many_digits_as_are_proven() -> None:
    pure = certify(compose((curve("discrete-laplace:scale=20"), 1000)), deltas=["1e-6"], digits=12)
    assert pure.claims[0]["lower"] == "8.28357334601"
    assert (pure.claims[0]["digits"], pure.claims[-1]["epsilon"]) == (11, "50")
    gaussian = compose((curve("discrete-gaussian:sigma_squared=400"), 2))
    assert certify(gaussian, deltas=["1e-30"]).claims[-1]["rho"] == "1/400"


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
def test_the_certificate_of_a_run_covers_all_releases_of_one_person(
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


def test_a_guarantee_without_two_bounds_is_refused_with_the_reason() -> None:
    assert "upper bound" in refusal(lambda: certify(compose((ZCdp("1/10"), 2))), NotDerived)
    with pytest.raises(NotDerived, match="needs a lower bound: use a stated Pure"):
        certify(compose((guarantee(Selection(epsilon=1, sensitivity=1)), 2)))
    assert "verify supports only" in refusal(lambda: certify(compose(Rdp({2: "1/10"}))), NotDerived)
    with pytest.raises(NotDerived, match="direction"):
        certify(compose((curve("poisson:mean=400"), 2)))
    assert "infinite" in refusal(lambda: certify(curve("polya:shape=1/2,scale=10")), NotDerived)
    with pytest.raises(NotDerived, match="the table needs more values than"):
        certify(curve("discrete-gaussian:sigma_squared=1e12"))
    with pytest.raises(NotDerived, match="more than 300 decimals"):
        certify(curve("discrete-gaussian:sigma_squared=400"), deltas=["1e-300"])
    assert "twice" in refusal(lambda: certify([*releases((("ada",),)), *releases((("ada",),))]))
    with pytest.raises(NotDerived, match="list of 1 to 64"):
        certify(compose(*(Pure(Fraction(i, 100)) for i in range(1, 66))), deltas=[])


@pytest.mark.parametrize(
    "asked",
    [
        {"deltas": ["-1/2"]},
        {"deltas": ["1"]},
        {"deltas": ["1e-6", "1/1000000"]},
        {"epsilons": ["-1"]},
        {"orders": ["1"]},
        {"digits": 2},
        {"digits": 31},
    ],
)
def test_arguments_out_of_range_are_refused(asked: dict[str, Any]) -> None:
    refusal(lambda: certify(curve("discrete-gaussian:sigma_squared=400"), **asked))


def test_a_wrong_engine_certifies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    epsilon = Composition.epsilon

    def wrong(self: Composition, *asked: Any) -> Bound:
        """Return bounds that are wrong by one part in a million."""
        found, off = epsilon(self, *asked), Fraction(1000001, 1000000)
        return replace(found, upper=found.upper * off, lower=(found.lower or 0) * off)

    monkeypatch.setattr(Composition, "epsilon", wrong)
    with pytest.raises(Disagreement, match="epsilon"):
        certify(compose((curve("discrete-gaussian:sigma_squared=400"), 2)))
