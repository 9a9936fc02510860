"""Tests of `local_report_curve`: laws of all reports and of all lists of reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import permutations, product
from typing import Any

import mpmath
import pytest

from accounting import Bound, Pure, ZCdp, compose, guarantee
from accounting.composition.guarantee_from_json import guarantee_from_json
from accounting.ledger.charge_request import cost
from accounting.privacy_curves.local_report_curve import ReportCurve, ReportPair
from accounting.privacy_filters import filter_for
from dpcore.errors import InvalidParameter
from dpcore.local import (
    Encoding,
    HadamardResponse,
    LocalHashing,
    LocalReport,
    RandomisedResponse,
    SubsetSelection,
    UnaryEncoding,
)
from dpcore.mechanism import Relation, Scope, Unit
from tests.day_and_nightly import by_day, spread
from tests.support.accounting.bound_ends import ends
from tests.support.accounting.brute_force import close, hockey_stick, least_error, renyi
from tests.support.dpcore.mpmath_precision import real
from tests.support.dpcore.mutants import mutated

FAMILIES: tuple[Callable[..., LocalReport], ...] = (
    RandomisedResponse,
    UnaryEncoding,
    lambda **given: UnaryEncoding(encoding=Encoding.SYMMETRIC, **given),
    SubsetSelection,
    LocalHashing,
    HadamardResponse,
)


def lists_of(*reports: LocalReport) -> list[tuple[Fraction, Fraction]]:
    """Return the masses of each list of reports, of value 0 and of value 1."""
    each = [[(p, m.law(1)[x]) for x, p in m.law(0).items()] for m in reports]
    found = [(Fraction(1), Fraction(1))]
    for rows in each:
        merged: dict[Fraction, tuple[Fraction, Fraction]] = {}
        for (p, q), (a, b) in product(found, rows):
            here = merged.get(p * a / (q * b), (Fraction(0), Fraction(0)))
            merged[p * a / (q * b)] = (here[0] + p * a, here[1] + q * b)
        found = list(merged.values())
    return found


def tight(found: Bound, truth: Any, room: str = "1e-15") -> bool:
    """Whether a bound with a lower end contains the truth, and its upper end is close to it."""
    most = truth * (1 + real(room))
    return close(ends(found), truth, relative="0") and bool(real(Fraction(found.upper)) <= most)


@by_day(2)
@pytest.mark.parametrize("values", [2, 5])
@pytest.mark.parametrize("epsilon", ["1/10", "1", "4"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_pair_of_values_has_this_curve(
    family: Callable[..., LocalReport], values: int, epsilon: str
) -> None:
    made = family(epsilon=epsilon, values=values)
    found = guarantee(made)
    laws = [made.law(v) for v in {0, 1, values - 1}]
    with mpmath.workdps(60):
        for p, q in spread([*permutations(laws, 2)], 3):
            rows = [(p[x], q[x]) for x in p]
            for part in (0, Fraction(1, 3), Fraction(99, 100)):
                at = Fraction(epsilon) * part
                assert tight(found.delta(at), hockey_stick(rows, at))
            assert tight(found.renyi(3), renyi(rows, 3))
            assert tight(found.tradeoff("1/7"), real(least_error(rows, Fraction(1, 7))), "1")


@pytest.mark.parametrize(
    "reports",
    [
        [RandomisedResponse(epsilon=1, values=4)] * 6,
        [SubsetSelection(epsilon=2, values=5)] * 4 + [HadamardResponse(epsilon="1/2", values=3)],
        [UnaryEncoding(epsilon=1, values=3)] * 3 + [LocalHashing(epsilon=1, values=4)],
    ],
    ids=["response", "subsets", "unary"],
)
def test_lists_of_reports_compose_exactly(reports: list[LocalReport]) -> None:
    total = compose(*map(guarantee, reports))
    rows = lists_of(*reports)
    with mpmath.workdps(60):
        for epsilon in ("0", "1/2", "2", "3"):
            assert tight(total.delta(epsilon), hockey_stick(rows, Fraction(epsilon)), "1e-5")
    # The composition theorem for epsilon alone is weaker than the curve.
    stated = compose(*(Pure(each.epsilon) for each in reports))
    assert total.delta(1).upper < Fraction(19, 20) * stated.delta(1).upper


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/ (self.ratio - 1)", "/ (self.ratio + 1)"),
        ("(loss, high, low)", "(loss, low, high)"),
        ("least * self.ratio", "least"),
    ],
)
def test_a_wrong_pair_of_reports_is_detected(
    old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReportPair, "listed", mutated(ReportPair.listed, old, new))
    with pytest.raises(AssertionError):
        test_every_pair_of_values_has_this_curve(SubsetSelection, 5, "1")


def test_the_curve_is_not_cut_where_a_ball_touches_the_largest_loss() -> None:
    found = guarantee(RandomisedResponse(epsilon=1, values=10))
    largest = found.pure()
    assert largest.lower is not None
    assert found.delta(largest.lower).upper > 0
    assert found.delta(largest.upper).upper == 0
    tiny = found.epsilon("1e-300")
    assert tiny.lower is not None
    assert 0 < tiny.lower <= tiny.upper <= largest.upper
    for above_the_distance in ("1/2", "3/4", "0.99"):
        zero = ends(ReportCurve(ratio=3, distance="1/2").epsilon(above_the_distance))
        assert zero.lower == 0 <= zero.upper < Fraction(1, 10**18)


def test_a_report_does_not_hide_who_takes_part() -> None:
    scope = Scope(relation=Relation.ADD_REMOVE)
    with pytest.raises(InvalidParameter, match="replace"):
        guarantee(RandomisedResponse(epsilon=1, values=4, scope=scope))


def test_a_curve_is_written_read_and_charged() -> None:
    found = guarantee(LocalHashing(epsilon=2, values=50))
    assert isinstance(found, ReportCurve)
    assert guarantee_from_json(found.to_json()) == found
    total = compose((found, 7))
    assert guarantee_from_json(total.to_json()) == total
    for budget, each in ((Pure(7), found.pure()), (ZCdp(7), found.zcdp())):
        scope = Scope(unit=Unit.USER)
        (price,) = cost(filter_for(replace(budget, scope=scope)), found, 3)[0].costs
        assert abs(price - 3 * Fraction(each.upper)) < Fraction(1, 10**6)
    (alone,) = filter_for(Pure(7)).price(found).costs
    assert Fraction(199, 100) < alone <= 2
    assert alone == found.pure().upper


def test_equal_curves_of_two_mechanisms_have_no_name_of_one_of_them() -> None:
    one, other = RandomisedResponse(epsilon=1, values=2), SubsetSelection(epsilon=1, values=2)
    assert guarantee(one) == guarantee(other)
    for mechanisms, text in (
        ((one, one), "randomised-response:epsilon=1,values=2"),
        ((one, other, one), "a local report with epsilon 1"),
    ):
        ((part, rounds),) = compose(*mechanisms).parts
        assert (part.text, rounds) == (text, len(mechanisms))


@pytest.mark.parametrize(
    ("key", "value"), [("ratio", "1"), ("ratio", "1/2"), ("distance", "0"), ("distance", "2/3")]
)
def test_impossible_parameters_of_a_report_are_refused(key: str, value: str) -> None:
    given: dict[str, Any] = {"ratio": "3", "distance": "1/2"}
    assert tight(ReportCurve(**given).delta(0), mpmath.mpf("0.5"))
    with pytest.raises(InvalidParameter, match=key):
        ReportCurve(**{**given, key: value})
