"""The words: exact, printable, readable back, and refused when they cannot be meant."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from accounting import Approx, Assumed, Pure, Rdp, StatedGuarantee, ZCdp, claim_from_json
from accounting.claims.claim import ApproxBound, PureBound, read_claim
from dpcore import Enclosure, InvalidParameter, Relation, Scope, Unit

USER = Scope(unit=Unit.USER, relation=Relation.ADD_REMOVE)
CLAIMS: list[StatedGuarantee] = [
    Pure(0),
    Pure("1/3"),
    Pure(Decimal("0.1"), scope=USER),
    ZCdp("1/800"),
    Approx(1, "1e-30"),
    Approx("0.5", 0, scope=USER),
    Rdp({2: "1/400", "3/2": "3/1600"}),
    Rdp([(32, 5)], scope=USER),
    Assumed(Approx(1, "1e-6"), reason='the vendor said "trust us"'),
]


@pytest.mark.parametrize("claim", CLAIMS, ids=repr)
def test_a_claim_reads_back(claim: StatedGuarantee) -> None:
    names: dict[str, object] = {
        kind.__name__: kind for kind in (Pure, ZCdp, Approx, Rdp, Assumed, Scope)
    }
    assert eval(repr(claim), names) == claim  # noqa: S307 - our own repr
    assert claim_from_json(json.loads(json.dumps(claim.to_json()))) == claim
    assert hash(claim) == hash(claim_from_json(claim.to_json()))
    with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
        claim.stated_epsilon = 3  # type: ignore[union-attr,misc]  # the twin tries what frozen forbids


def test_an_enclosed_order_promises_its_upper_end() -> None:
    claim = Rdp({2: Enclosure(Fraction(1, 4), Fraction(1, 3))})
    assert claim == Rdp({2: "1/3"})
    with pytest.raises(InvalidParameter, match=r"^epsilon"):
        Rdp({2: Enclosure.infinite()})


@pytest.mark.parametrize(
    ("kind", "arguments", "argument"),
    [
        (Pure, (-1,), "epsilon"),
        (Pure, (float("inf"),), "epsilon"),
        (Pure, (float("nan"),), "epsilon"),
        (Pure, (True,), "epsilon"),
        (Pure, ("one",), "epsilon"),
        (Pure, (None,), "epsilon"),
        (ZCdp, ("-1/9",), "rho"),
        (ZCdp, ([1],), "rho"),
        (Approx, (-1, 0), "epsilon"),
        (Approx, (1, "1.0000001"), "delta"),
        (Approx, (1, -1), "delta"),
        (Rdp, ({},), "points"),
        (Rdp, ([1, 2],), "points"),
        (Rdp, (3,), "points"),
        (Rdp, ({1: 1},), "order"),
        (Rdp, ({float("inf"): 1},), "order"),
        (Rdp, ([(2, 1), ("2", 1)],), "order"),
        (Rdp, ({2: -1},), "epsilon"),
        (Assumed, (Pure(1), ""), "reason"),
        (Assumed, (Pure(1), "  \n"), "reason"),
        (Assumed, (Pure(1), None), "reason"),
        (Assumed, (1, "because"), "guarantee"),
        (Assumed, (Assumed(Pure(1), "x"), "because"), "guarantee"),
    ],
    ids=str,
)
def test_a_claim_that_cannot_be_meant_is_refused_by_name(
    kind: Any, arguments: tuple[object, ...], argument: str
) -> None:
    with pytest.raises(InvalidParameter) as refused:
        kind(*arguments)
    assert refused.value.argument == argument


@pytest.mark.parametrize("bound", [PureBound("1/3"), ApproxBound(0, "1e-6")], ids=repr)
def test_a_bound_is_read_back_as_a_bound(bound: Any) -> None:
    assert claim_from_json(bound.to_json()) == bound
    with pytest.raises(InvalidParameter, match="needs the fields"):
        claim_from_json(bound.to_json() | {"attained": True})


@pytest.mark.parametrize(
    ("data", "argument"),
    [
        ([], "claim"),
        ({}, "claim"),
        ({"claim": "perfect"}, "claim"),
        ({"claim": ["pure"]}, "claim"),
        ({"claim": "pure", "epsilon": "1"}, "claim"),
        ({**Pure(1).to_json(), "delta": "0"}, "claim"),
        ({**Pure(1).to_json(), "epsilon": "-1"}, "epsilon"),
        ({**Pure(1).to_json(), "scope": "user"}, "scope"),
        ({**Pure(1).to_json(), "scope": {"unit": "planet", "relation": "replace"}}, "unit"),
        ({**Assumed(Pure(1), "x").to_json(), "reason": ""}, "reason"),
        ({**Assumed(Pure(1), "x").to_json(), "guarantee": 3}, "claim"),
        (
            {**Assumed(Pure(1), "x").to_json(), "guarantee": Assumed(Pure(1), "x").to_json()},
            "guarantee",
        ),
        ({**Rdp({2: 1}).to_json(), "points": 3}, "points"),
    ],
    ids=str,
)
def test_json_that_no_claim_wrote_is_refused_by_name(data: Any, argument: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        claim_from_json(data)
    assert refused.value.argument == argument


def test_a_claim_is_read_from_the_text_of_a_budget() -> None:
    for text, claim in (
        ("epsilon=1/2", Pure("1/2")),
        ("epsilon=1,delta=1e-6", Approx(1, "1e-6")),
        ("delta=1e-6,epsilon=1", Approx(1, "1e-6")),
        ("rho=1/2", ZCdp("1/2")),
    ):
        assert read_claim("--budget", text, Scope()) == claim
    for text in ("delta=1e-6", "rho=1,epsilon=1", "epsilon=-1", "epsilon"):
        with pytest.raises(InvalidParameter, match="--budget"):
            read_claim("--budget", text, Scope())
