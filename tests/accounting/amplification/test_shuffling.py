"""Tests of shuffled reports: all multisets of reports, for all values of the other users."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import combinations, combinations_with_replacement, product
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.stats import binom

from accounting import Approx, ShuffledCurve, as_approx, compose, guarantee
from accounting.amplification import shuffling
from accounting.composition.guarantee_from_json import guarantee_from_json
from accounting.privacy_filters import filter_for
from dpcore import SeededRng
from dpcore.errors import InvalidParameter
from dpcore.local import FAMILIES, LocalReport, RandomisedResponse, ShuffledReports, UnaryEncoding
from dpcore.local.local_report import Outcome
from dpcore.numbers.enclosure import ball
from tests.day_and_nightly import by_day
from tests.support.accounting.bound_ends import ends
from tests.support.accounting.brute_force import hockey_stick, renyi
from tests.support.dpcore.mpmath_precision import real
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.protocol_laws import summed
from tests.support.dpcore.refusals import refusal

ROOM = mpmath.mpf(10) ** -9

Law = Mapping[Any, Fraction]


def in_any_order(laws: list[Law]) -> Law:
    """Return the law of the multiset of independent draws, one of each law."""
    found: dict[tuple[Any, ...], Fraction] = {(): Fraction(1)}
    for law in laws:
        longer: dict[tuple[Any, ...], Fraction] = defaultdict(Fraction)
        for seen, mass in found.items():
            for report, chance in law.items():
                longer[tuple(sorted((*seen, report)))] += mass * chance
        found = longer
    return found


def truth(pairs: Sequence[tuple[Law, Law]], epsilon: Fraction) -> Any:
    """Return the largest hockey-stick divergence over the pairs."""
    return max(hockey_stick([(p[seen], q[seen]) for seen in p], epsilon) for p, q in pairs)


def views(report: LocalReport, users: int) -> list[tuple[Law, Law]]:
    """Return the server's views of a user with value 0 or 1, for all values of the other users."""
    laws = [report.law(v) for v in range(report.values)]
    others = combinations_with_replacement(laws, users - 1)
    return [(in_any_order([laws[0], *o]), in_any_order([laws[1], *o])) for o in others]


def between(report: LocalReport, *users: int) -> None:
    """Check that both bounds enclose the exact value."""
    for count in users:
        pairs, found = views(report, count), guarantee(ShuffledReports(report=report, users=count))
        with mpmath.workdps(40):
            for each in ("0", "1/10", "1"):
                bound, exact = ends(found.delta(each)), truth(pairs, Fraction(each))
                assert real(Fraction(bound.lower)) <= exact * (1 + ROOM)
                assert exact * (1 - ROOM) <= real(Fraction(bound.upper))
                if count == 1:  # nothing hides the report: both bounds are those of one report
                    assert real(Fraction(bound.upper)) <= exact * (1 + 1 / mpmath.mpf(500))


@by_day(6)
@pytest.mark.parametrize("users", [1, 2, 3])
@pytest.mark.parametrize(
    ("family", "given"),
    [
        ("unary-encoding", {"epsilon": 2, "values": 3, "encoding": "symmetric"}),
        ("randomised-response", {"epsilon": "1/2", "values": 2}),
        ("randomised-response", {"epsilon": 3, "values": 3}),
        ("randomised-response", {"epsilon": "1/2", "values": 4}),
        ("hadamard-response", {"epsilon": 3, "values": 2}),
        ("hadamard-response", {"epsilon": "1/2", "values": 3}),
        ("hadamard-response", {"epsilon": 3, "values": 4}),
        ("local-hashing", {"epsilon": "1/2", "values": 2}),
        ("local-hashing", {"epsilon": "1/2", "values": 4}),
        ("unary-encoding", {"epsilon": 2, "values": 3, "encoding": "optimised"}),
        ("subset-selection", {"epsilon": "1/2", "values": 4}),
    ],
)
def test_bounds_enclose_the_loss_of_every_multiset_of_reports(
    family: str, given: dict[str, Any], users: int
) -> None:
    between(FAMILIES[family](**given), users)


@pytest.mark.parametrize(("values", "epsilon"), [(3, 1), (10, "1/2"), (50, 3)])
def test_many_users_with_one_other_value_are_enclosed(values: int, epsilon: Any) -> None:
    """The sum over the counts of both values, in floats, where all others have a third value."""
    report, users = RandomisedResponse(epsilon=epsilon, values=values), 300
    own, other = float(report.own), float(report.other)
    a = np.arange(users + 1)[:, None]
    b = np.arange(users + 1)[None, :]
    found = guarantee(ShuffledReports(report=report, users=users))

    def others(x: Any, y: Any) -> Any:
        rest = binom.pmf(y, users - 1 - x, other / (1 - other))
        return binom.pmf(x, users - 1, other) * np.where((x >= 0) & (y >= 0), rest, 0)

    here, there, nowhere = others(a - 1, b), others(a, b - 1), others(a, b)
    p = own * here + other * there + (1 - own - other) * nowhere
    q = other * here + own * there + (1 - own - other) * nowhere
    for level in ("1/20", "1/10"):
        exact = float(np.maximum(np.nan_to_num(p - math.exp(Fraction(level)) * q), 0).sum())
        bound = ends(found.delta(level))
        # The server also observes how many reports support the third value, and the others.
        assert exact * (1 - 1e-6) <= float(bound.lower)
        assert float(bound.lower) <= exact * (1 + 1e-6 if values == 3 else 1.1)
        assert bound.lower <= bound.upper <= bound.lower * Fraction(5, 4)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("_values", "ball(mass))", "2 * ball(mass))"),
        ("_blanket", "one + 1 - own", "Fraction(1)"),
        ("_blanket", "(ratio - 1)", "(ratio + 1)"),
        ("_delta", "/ reports.users", "/ (reports.users + 1)"),
        ("mean_positive_part", "moment**count", "moment"),
        ("mean_positive_part", "=listing, above=above), count)", "=listing, above=above), 1)"),
        ("mean_positive_part", "grown = [m * (scale * w).exp()", "grown = [m"),
    ],
)
def test_a_wrong_curve_of_shuffled_reports_is_detected(
    name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shuffling._delta.cache_clear()
    of_mean = name == "mean_positive_part"
    if of_mean:
        monkeypatch.setattr(shuffling, "_TILT", 5)
    written = getattr(shuffling, name)
    changed = mutated(getattr(written, "__wrapped__", written), old, new)
    monkeypatch.setattr(shuffling, name, changed)
    report = RandomisedResponse(epsilon=3, values=3)
    check = partial(positive_mean, 12, changed) if of_mean else partial(between, report, 3, 1)
    with pytest.raises((AssertionError, ValueError)):
        check()
    shuffling._delta.cache_clear()


@pytest.mark.parametrize("family", [*FAMILIES])
def test_the_probability_that_a_report_supports_three_values_is_exact(family: str) -> None:
    for values, epsilon in product((3, 4, 5), ("1/2", 2)):
        given: dict[str, Any] = {"epsilon": epsilon, "values": values}
        report = FAMILIES[family](**given)
        law = report.law(0)
        kinds: dict[Outcome, Any] = {x: report.supports(np.array([x])) > 0 for x in law}
        found = {
            sum((law[x] for x in law if kinds[x][[0, v, w]].all()), Fraction(0))
            for v, w in combinations(range(1, values), 2)
        }
        assert report.triple in found


@by_day(2)
@pytest.mark.parametrize(
    ("values", "epsilon", "users", "delta", "width"),
    [(100, 4, 10**6, "1e-8", "1e-6"), (10, 8, 1000, "1e-6", "1e-4"), (3, 1, 1000, "1e-6", "1e-4")],
)
def test_randomised_response_has_a_lower_and_an_upper_bound(
    values: int, epsilon: int, users: int, delta: str, width: str
) -> None:
    report = RandomisedResponse(epsilon=epsilon, values=values)
    found = ends(guarantee(ShuffledReports(report=report, users=users)).epsilon(delta, width))
    assert 0 < found.width < found.upper / (90 if users == 1000 else 10**5)
    # Two values have the blanket of any report with this epsilon: its clones (Feldman, McMillan and
    # Talwar 2023).
    clones = ShuffledReports(report=RandomisedResponse(epsilon=epsilon, values=2), users=users)
    assert found.upper < guarantee(clones).epsilon(delta, "1e-3").upper


def test_epsilon_is_the_inverse_of_delta() -> None:
    found = guarantee(ShuffledReports(report=UnaryEncoding(epsilon=2, values=20), users=30))
    for delta in ("1e-3", "1e-20"):
        bound = ends(found.epsilon(delta))
        assert found.delta(bound.upper).upper <= Fraction(delta)
        assert (found.delta(bound.lower).lower or 0) >= Fraction(delta)
    assert found.epsilon("0.9").upper == 0
    assert isinstance(found, ShuffledCurve)
    assert found.pure().upper == found.reports.report.loss.upper
    assert found.delta(2).upper == 0


def test_a_total_of_shuffles_is_above_the_loss_of_all_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shuffling, "_DOTS", 40)
    report = RandomisedResponse(epsilon=2, values=3)
    found, pairs = guarantee(ShuffledReports(report=report, users=3)), views(report, 3)
    total = compose((found, 2))

    def squared(law: Law) -> Law:
        return {(x, y): a * b for (x, a), (y, b) in product(law.items(), law.items())}

    products = [(squared(p), squared(q)) for p, q in pairs]
    with mpmath.workdps(40):
        for level in ("0", "1/2", "2"):
            exact = truth(products, Fraction(level))
            bound = total.delta(level)
            # Below, the total is at least one shuffle.
            one, low = Fraction(ends(found.delta(level)).lower), Fraction(ends(bound).lower)
            assert one * Fraction(999, 1000) <= low <= one
            assert real(low) <= exact
            assert (low > 0) == (level != "2")  # the largest loss of a report
            assert exact <= real(Fraction(bound.upper)) <= exact * mpmath.mpf("1.3")
    alone = compose(found).delta("1/2").upper
    assert found.delta("1/2").upper <= alone <= found.delta("1/2").upper * Fraction(11, 10)


def test_the_pure_epsilon_of_a_total_is_that_of_the_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("accounting.amplification.shuffling._DOTS", 3)
    report = RandomisedResponse(epsilon=1, values=3)
    total = compose((guarantee(ShuffledReports(report=report, users=10**6)), 3))
    assert total.pure().upper == pytest.approx(3 * report.loss.upper_float, rel=1e-9)


def test_a_shuffle_is_written_read_and_charged() -> None:
    found = guarantee(ShuffledReports(report=UnaryEncoding(epsilon=1, values=9), users=1000))
    total = compose((found, 4))
    assert guarantee_from_json(total.to_json()) == total
    keeper = filter_for(Approx(1, "1e-6"))
    assert keeper.price(as_approx(found, "1e-9")).costs[0] <= Fraction(1, 50)
    assert "as_approx" in refusal(lambda: keeper.price(found))
    written = found.to_json()
    for key, value in (("own", "1/3"), ("mechanism", "guess"), ("values", 1), ("spare", 1)):
        changed = {**written, "report": {**written["report"], key: value}}
        with pytest.raises(InvalidParameter):
            guarantee_from_json(changed)


@pytest.mark.parametrize("order", ["3/2", "2", "20"])
def test_renyi_divergences_of_a_shuffle_are_at_most_those_of_one_report(order: str) -> None:
    report = RandomisedResponse(epsilon=2, values=3)
    found = guarantee(ShuffledReports(report=report, users=3))
    with mpmath.workdps(40):
        truths = [renyi([(p[k], q[k]) for k in p], order) for p, q in views(report, 3)]
        assert max(truths) <= real(Fraction(found.renyi(order).upper))
        # The bound is that of one report, which shuffles with one user attain.
        assert found.renyi(order).upper == guarantee(report).renyi(order).upper


def test_the_released_reports_are_those_of_the_users() -> None:
    votes = ShuffledReports(report=RandomisedResponse(epsilon=3, values=5), users=50)
    values = np.arange(60) % 5
    seen = votes.release(values, rng=SeededRng(4))
    sent = votes.report.report(values, rng=SeededRng(4))
    assert Counter(seen.tolist()) == Counter(sent.tolist())
    assert seen.tolist() != sent.tolist()
    assert "at least 50 users" in refusal(lambda: votes.release(values[:49]))
    assert "report" in refusal(lambda: ShuffledReports(report=1, users=3))  # type: ignore[arg-type]  # on purpose


STEPS = {3: Fraction(1, 2), -1: Fraction(1, 4), 0: Fraction(1, 4)}


def positive_mean(count: int, compute: Any = shuffling.mean_positive_part) -> None:
    """Check both bounds of the mean over all sums, where k need not be small."""
    law = summed([STEPS] * count)
    exact = sum(mass * max(total, 0) for total, mass in law.items())
    values = [(ball(w), ball(m)) for w, m in STEPS.items()]
    low, high = (compute(values, count, Fraction(1, 1000), above=a) for a in (False, True))
    assert low <= exact <= high <= 3 * low


def test_the_mean_positive_part_is_enclosed_for_every_scale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for bits in (1, 3, 20):
        monkeypatch.setattr(shuffling, "_TILT", bits)
        for count in (1, 2, 12):
            positive_mean(count)
    nothing = [(ball(Fraction(-1)), ball(Fraction(1)))]
    assert shuffling.mean_positive_part(nothing, 5, Fraction(1, 1000), above=True) == 0


def test_bounds_on_delta_hold_far_beyond_the_local_epsilon() -> None:
    report = RandomisedResponse(epsilon="3.9", values=2)
    found = guarantee(ShuffledReports(report=report, users=10**5)).delta("1.1")
    assert (found.lower or 0) <= found.upper < Fraction(1, 10**100)
