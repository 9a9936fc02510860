"""Tests of `accounting.guarantees.stated_guarantees` and `bound`: parsing, refusals, comparison."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import Approx, Assumed, Bound, Pure, Rdp, StatedGuarantee, ZCdp, claim_from_json
from accounting.guarantees.stated_guarantees import ApproxBound, PureBound, read_claim
from dpcore import Enclosure, InvalidParameter, Relation, Scope, Unit
from dpcore.errors import Undecided
from tests.support.dpcore.mutants import rewired
from tests.support.dpcore.refusals import refusal, refused

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
def test_a_claim_survives_a_round_trip(claim: StatedGuarantee) -> None:
    names: dict[str, object] = {
        kind.__name__: kind for kind in (Pure, ZCdp, Approx, Rdp, Assumed, Scope)
    }
    assert eval(repr(claim), names) == claim  # noqa: S307 - our own repr
    assert claim_from_json(json.loads(json.dumps(claim.to_json()))) == claim
    assert hash(claim) == hash(claim_from_json(claim.to_json()))
    with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
        claim.stated_epsilon = 3  # type: ignore[union-attr,misc]  # the twin tries what frozen forbids


@pytest.mark.parametrize(
    ("kind", "arguments", "argument"),
    [
        (Pure, (-1,), "epsilon"),
        (Pure, (float("nan"),), "epsilon"),
        (ZCdp, ("-1/9",), "rho"),
        (Approx, (1, "1.0000001"), "delta"),
        (Approx, (1, -1), "delta"),
        (Rdp, ({},), "points"),
        (Rdp, ([1, 2],), "points"),
        (Rdp, (3,), "points"),
        (Rdp, ({1: 1},), "order"),
        (Rdp, ([(2, 1), ("2", 1)],), "order"),
        (Rdp, ({2: -1},), "epsilon"),
        (Rdp, ({2: Enclosure.infinite()},), "epsilon"),
        (Assumed, (Pure(1), ""), "reason"),
        (Assumed, (Pure(1), "  \n"), "reason"),
        (Assumed, (1, "because"), "guarantee"),
        (Assumed, (Assumed(Pure(1), "x"), "because"), "guarantee"),
    ],
    ids=str,
)
def test_an_impossible_claim_is_refused_by_name(
    kind: Any, arguments: tuple[object, ...], argument: str
) -> None:
    with refused(argument):
        kind(*arguments)


@pytest.mark.parametrize("bound", [PureBound("1/3"), ApproxBound(0, "1e-6")], ids=repr)
def test_a_bound_survives_a_round_trip(bound: Any) -> None:
    assert claim_from_json(bound.to_json()) == bound
    with pytest.raises(InvalidParameter, match="needs exactly the fields"):
        claim_from_json(bound.to_json() | {"attained": True})
    # An enclosed Renyi value is stated by its upper end.
    assert Rdp({2: Enclosure(Fraction(1, 4), Fraction(1, 3))}) == Rdp({2: "1/3"})


@pytest.mark.parametrize(
    ("data", "argument"),
    [
        ([], "claim"),
        ({}, "claim"),
        ({"claim": "perfect"}, "claim"),
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
def test_invalid_json_of_a_claim_is_refused_by_name(data: Any, argument: str) -> None:
    with refused(argument):
        claim_from_json(data)


def test_a_budget_can_be_stated_as_text() -> None:
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
    with pytest.raises(InvalidParameter, match="budget = 1: must be a claim, or text such as"):
        read_claim("budget", cast("Any", 1), Scope())


def bound(lower: Any, upper: Any, **others: Any) -> Bound:
    return Bound(lower=lower, upper=upper, method="m", theorem="t", **others)


ENDS = st.fractions(min_value=-20, max_value=20, max_denominator=10**6)


@given(ENDS, st.integers(min_value=0, max_value=12), st.sampled_from("fe%"))
def test_printed_decimals_are_rounded_to_the_safe_side(
    end: Fraction, places: int, kind: str
) -> None:
    above, below = bound(end, end), bound(end, end, safe="lower")
    scale = 100 if kind == "%" else 1
    for shown, sign in ((above, 1), (below, -1)):
        text = format(shown, f".{places}{kind}").rstrip("%")
        error = sign * (Fraction(text) / scale - end)
        grain = Fraction(1, 10**places) * (1 + 10 * abs(end))
        unit = grain / (1 if kind == "e" else scale)
        assert 0 <= error <= unit + Fraction(1, 10**12)
        assert sign * (Fraction(float(shown)) - end) >= 0


def test_a_mutant_that_rounds_to_nearest_is_detected() -> None:
    third = bound(None, Fraction(1, 3))
    for shown, spec, text in (
        (third, ".3f", "0.334"),
        (bound(1, 1, safe="lower"), ".3f", "1.000"),
        (bound(Fraction(2, 3), 1, safe="lower"), ".3f", "0.666"),
        (bound(None, Fraction(2, 3)), ".2e", "6.67e-1"),
        (bound(None, Fraction(1, 10)), ".3f", "0.100"),
        (bound(None, math.inf), ">8.3f", "     inf"),
        (third, "", "Bound(at most 0.33333333333333334, 'm')"),
    ):
        assert format(shown, spec) == text
    floor = rewired(Bound.__format__, ROUND_CEILING="ROUND_FLOOR")
    assert floor(third, ".3f") == "0.333"
    with pytest.raises(ValueError, match="format"):
        f"{third:d}"


@pytest.mark.parametrize("one", [bound(1, 2), Enclosure(Fraction(1), Fraction(2))], ids=repr)
def test_a_comparison_is_decided_if_it_holds_for_the_whole_interval(one: Any) -> None:
    other, open_ended = Enclosure(Fraction(2), Fraction(5)), bound(None, 2)
    for holds in (
        one < 3,
        one <= 2,
        one > 0.5,
        one >= Decimal(1),
        0 < one < 2.5,  # also with the bound on the right
        one <= other,
        open_ended <= 2,
        open_ended < math.inf,
    ):
        assert holds
    for fails in (one < 1, one <= Fraction(1, 2), one > 2, one >= math.inf, other < one):
        assert not fails
    assert not open_ended > 2
    undecided: list[Callable[[], object]] = [
        lambda: one < 2,
        lambda: one <= 1,
        lambda: one > 1.5,
        lambda: one >= 2,
        lambda: one >= other,
        lambda: open_ended >= 0,
        lambda: open_ended < 2,
        lambda: open_ended > 0,
        lambda: open_ended >= 1,
    ]
    for asked in undecided:
        assert "is undecided" in refusal(asked, Undecided)


@pytest.mark.parametrize("one", [bound(1, 1), Enclosure.exactly(1)], ids=repr)
def test_a_bound_has_no_truth_value_and_equals_no_number(one: Any) -> None:
    asked: list[Callable[[], object]] = [
        lambda: one == 1,
        lambda: one == 1.0,
        lambda: one != Fraction(1),
        lambda: bool(one),
        lambda: one and 3,
        lambda: one < "2",
        lambda: one < None,
    ]
    for call in asked:
        with pytest.raises(TypeError):
            call()
    assert one != "1"
    with pytest.raises(InvalidParameter):
        assert one < Decimal("nan")


def test_equal_bounds_have_equal_values_and_hashes() -> None:
    assert bound(1, 2) == bound(1, 2)
    assert hash(bound(1, 2)) == hash(bound(1, 2))
    for other in (bound(None, 2), bound(1, 3), bound(1, 2, safe="lower"), Enclosure(1.0, 2.0)):
        assert bound(1, 2) != other
    assert "lower" in refusal(lambda: bound(2, 1))
    assert "is reported" in refusal(lambda: bound(None, 1, safe="lower"))
