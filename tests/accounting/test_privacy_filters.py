"""Tests of `accounting.privacy_filters`: prices, adversaries, readings at all times."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial
from typing import Any

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Approx, Assumed, NotDerived, PrivacyCurve, Pure, Rdp, ZCdp, privacy_filters
from accounting.composition.compose import compose
from accounting.convert_guarantees import as_approx, as_approx_at
from accounting.guarantees.stated_guarantees import Word
from accounting.privacy_filters import (
    SHARES,
    ApproxFilter,
    Filter,
    Odometer,
    Price,
    PureFilter,
    RdpFilter,
    ZCdpFilter,
    _rate,
    filter_for,
    filter_from_json,
)
from dpcore import DiscreteGaussian, Relation, Scope, Unit
from dpcore.laws.discrete_laplace import DiscreteLaplace
from tests.day_and_nightly import effort
from tests.support.accounting.bound_ends import amounts, delta, epsilon
from tests.support.accounting.brute_force import hockey_stick, product, real, response
from tests.support.dpcore.mutants import mutated, rewired
from tests.support.dpcore.refusals import refusal, refused

BUDGETS: list[Word] = [
    Pure(1),
    ZCdp("1/2"),
    Rdp({2: 1, "17/2": 3, 32: 9}),
    Approx(1, "1e-6"),
    Approx("1/10", "1/2"),
]
GAUSSIAN = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=400), sensitivity=1)
LAPLACE = PrivacyCurve(noise=DiscreteLaplace(scale=10), sensitivity=1)


@pytest.mark.parametrize("budget", BUDGETS, ids=repr)
def test_full_counters_represent_exactly_the_budget_and_admit_no_charge(budget: Word) -> None:
    opened = filter_for(budget)
    assert opened.budget == budget
    assert filter_from_json(json.loads(json.dumps(opened.to_json()))) == opened
    # A full counter plus one more price fits a signed 64-bit column.
    assert all(limit >= 0 and limit + (SHARES + 1) < 2**63 for limit in opened.limits)
    nothing, one = (0,) * len(opened.limits), Price(amounts=(1,) * len(opened.limits))
    promised = zip(amounts(opened.spent(opened.limits)), amounts(budget), strict=True)
    assert all(spent <= most * (1 + Fraction(1, 10**15)) for spent, most in promised)
    assert opened.remaining(opened.limits) == nothing
    assert opened.remaining(nothing) == opened.budgets
    assert opened.admits([limit - 1 for limit in opened.limits], one)
    for i, limit in enumerate(opened.limits):
        # One full counter is enough to refuse a charge.
        assert not opened.admits([limit if j == i else 0 for j in range(len(nothing))], one)
    if not isinstance(opened, RdpFilter):
        dear = opened.price(Pure(10**30))
        assert dear.amounts[0] == SHARES + 1
        assert not opened.admits(nothing, dear)
    lax = mutated(Filter.admits, "h + a <= most", "h <= most")
    assert lax(opened, opened.limits, one)


def test_prices_of_curves_and_claims() -> None:
    rho = ZCdpFilter(budget=ZCdp("1/2"))
    assert rho.price(GAUSSIAN) == rho.price(ZCdp("1/800")) == Price(amounts=(SHARES // 400,))
    assert rho.price(Pure("1/20")) == Price(amounts=(SHARES // 400,))
    assert PureFilter(budget=Pure(1)).price(LAPLACE) == Price(amounts=(SHARES // 10,))
    renyi = RdpFilter(budget=Rdp({2: 1, 8: 4}))
    assert renyi.price(GAUSSIAN) == Price(amounts=(SHARES // 400, SHARES // 400))
    assert renyi.price(ZCdp("1/800")) == renyi.price(GAUSSIAN)
    both = ApproxFilter(budget=Approx(1, "1e-6"))
    assert both.price(GAUSSIAN) == both.price(ZCdp("1/800"))
    assert both.price(GAUSSIAN).amounts[1] == 0
    approx = both.price(Approx("1/20", "1e-9"))
    assert approx.amounts == (both.price(Pure("1/20")).amounts[0], SHARES // 500)
    # Renyi points alone do not bound rho: they are converted at the delta of one charge.
    read = both.price(Rdp({20: "1/1000"}))
    assert read.amounts[1] == SHARES // 1000
    at = as_approx(Rdp({20: "1/1000"}), both.charge_delta or 0)
    assert read.amounts[0] == both.price(Pure(at.stated_epsilon)).amounts[0]
    down = mutated(
        privacy_filters._shares,
        "math.ceil(cost * SHARES / budget)",
        "math.floor(cost * SHARES / budget)",
    )
    assert down(Fraction(1, 13), Fraction(1)) * 13 < SHARES


@pytest.mark.parametrize("budget", BUDGETS, ids=repr)
def test_another_scope_or_another_curve_is_not_charged(budget: Word) -> None:
    class Total:
        """A composed list with its own curve, as a user could pass it."""

        scope = Scope()

        def epsilon(self, delta: Fraction) -> Fraction:
            return Fraction(0)

    opened = filter_for(budget)
    for charge, argument in (
        (Pure("1/9", scope=Scope(unit=Unit.USER)), "scope"),
        (Assumed(Pure(1, scope=Scope(relation=Relation.ADD_REMOVE)), "why"), "scope"),
        (Total(), "guarantee"),
    ):
        with refused(argument):
            opened.price(charge)  # type: ignore[arg-type]  # what the types forbid


def test_a_guarantee_without_a_price_is_refused_with_the_reason() -> None:
    for charge in (ZCdp(1), Rdp({2: 1}), Approx(1, 0), GAUSSIAN):
        with pytest.raises(NotDerived, match="a pure-DP cost"):
            PureFilter(budget=Pure(1)).price(charge)
    unbounded = "from 3 x discrete-gaussian:.*: its privacy loss is unbounded; use a ledger"
    with pytest.raises(NotDerived, match=unbounded):
        PureFilter(budget=Pure(1)).convert(compose((GAUSSIAN, 3)))
    for claim in (Approx("1/2", "1e-9"), Rdp({2: 1})):
        assert "no theorem" in refusal(partial(ZCdpFilter(budget=ZCdp(1)).price, claim), NotDerived)
    renyi = RdpFilter(budget=Rdp({2: 1, 8: 4}))
    assert "no theorem" in refusal(lambda: renyi.price(Approx("1/2", "1e-9")), NotDerived)
    assert "order 8" in refusal(lambda: renyi.price(Rdp({2: "1/10"})), NotDerived)


def test_budgets_and_counters_are_checked() -> None:
    for budget in (Pure(0), ZCdp(0), Rdp({2: 0, 3: 1}), Approx(0, "1e-6"), Approx(1, 0)):
        assert "admits no charge" in refusal(partial(filter_for, budget))
    opened, approx = PureFilter(budget=Pure(1)), partial(ApproxFilter, budget=Approx(1, "1e-6"))
    wrong: tuple[Any, ...] = (Assumed(Pure(1), "why"), GAUSSIAN, 1)
    bad: list[tuple[Callable[[], object], str]] = [
        *((partial(filter_for, budget), "budget") for budget in wrong),
        *((partial(opened.spent, total), "total") for total in ((), (1, 2))),
        (partial(opened.admits, (-1,), opened.price(Pure(1))), "total"),
        *((partial(approx, slack=slack), "slack") for slack in (0, "2e-6", -1)),
        (partial(approx, charge_delta="1e-6"), "charge_delta"),
        # Its JSON could not be read.
        (partial(filter_for, Approx("1e-300", "1e-300")), "rho"),
    ]
    for act, argument in bad:
        with refused(argument):
            act()
    for most, allowed in (("1/2", "(0, 1/2]"), (1, "(0, 1)")):
        said = refusal(partial(ApproxFilter, budget=Approx(1, most), slack=1))
        assert said == f"slack = 1: must lie in {allowed}"


def test_a_damaged_json_of_a_filter_is_refused() -> None:
    stored = ApproxFilter(budget=Approx(1, "1e-6"), slack="1e-7").to_json()
    assert filter_from_json(stored).to_json() == stored
    for change in (
        {"shares": "1"},
        {"filter": "pure"},
        {"filter": "zcdp"},
        {"more": 1},
        {"budget": Pure(1).to_json()},
        {"slack": "1"},
        {"rho": str(2 * Fraction(stored["rho"]))},
    ):
        refusal(partial(filter_from_json, {**stored, **change}))
    refusal(lambda: filter_from_json({key: stored[key] for key in ("filter", "budget", "shares")}))
    refusal(lambda: filter_from_json([stored]))  # type: ignore[arg-type]  # the twin passes what types forbid


@pytest.mark.parametrize("epsilon", ["1/10", "1", "8"])
@pytest.mark.parametrize("slack", ["1e-9", "1/4"])
def test_the_approximate_filter_admits_at_least_what_the_theorem_admits(
    epsilon: str, slack: str
) -> None:
    # Whitehouse et al. (2023), Theorem 1: epsilon >= sqrt(2 log(1/slack) S) + S/2, where S is the
    # sum of the squares; S = 2 rho.
    opened = ApproxFilter(budget=Approx(epsilon, "1/2"), slack=slack)
    with mpmath.workdps(30):
        log, e = mpmath.log(1 / real(slack)), real(epsilon)
        theorem = (2 * e / (mpmath.sqrt(2 * log + 2 * e) + mpmath.sqrt(2 * log))) ** 2
        rho = real(opened.budgets[0])
        assert 2 * rho >= theorem
        # Randomised response in equal parts of this total rho does not exceed the budget.
        for many in (1, 4, 40):
            each = mpmath.sqrt(2 * rho / many)
            assert hockey_stick(response(each, many), e) <= real(slack)


def test_the_rates_of_an_odometer_share_its_slack() -> None:
    rates = [_rate(Fraction(1, 2), Fraction("1e-6"), j) for j in range(1, 65)]
    assert sum(share for _, share in rates) < 1
    # Each line is close to the best line at the rate for which it was chosen.
    for j, (rate, share) in enumerate(rates, start=1):
        with mpmath.workdps(30):
            log = mpmath.log(1 / real(share * Fraction("1e-6")))
            best = mpmath.sqrt(log / real(Fraction(1, 2) / 2 ** (j - 1)))
            assert abs(real(rate) / best - 1) < 0.05


@given(st.integers(0, SHARES), st.integers(0, SHARES))
@settings(deadline=None, max_examples=effort(8, 30))
def test_an_odometer_rises_and_costs_more_than_the_filter(a: int, b: int) -> None:
    low, high = sorted((a, b))
    for opened in (
        ZCdpFilter(budget=ZCdp("1/2")),
        RdpFilter(budget=Rdp({2: 1, 8: 4})),
        ApproxFilter(budget=Approx(1, "1e-6")),
    ):
        meter = Odometer(filter=opened, slack="1e-7")
        many = len(opened.counters)
        there, here = meter.read((high,) * many), meter.read((low,) * many)
        assert here.epsilon <= there.epsilon
        assert here.delta == there.delta
        assert meter.read((0,) * many).epsilon == 0
        if isinstance(opened, ZCdpFilter) and high:
            spent = opened.spent((high,))
            fixed = as_approx(spent, there.delta)
            assert epsilon(fixed) <= there.epsilon
            # The grid of lines costs little compared with the best line for this single time.
            with mpmath.workdps(30):
                rho, log = real(opened.held((high,))[0]), mpmath.log(1 / real(there.delta))
                best = rho + 2 * mpmath.sqrt(rho * log)
                if high > SHARES // 2**20:
                    assert real(there.epsilon) <= best * mpmath.mpf("1.4")


def test_a_pure_odometer_is_the_sum_and_others_need_a_slack() -> None:
    read = Odometer(filter=PureFilter(budget=Pure(2))).read((SHARES // 4,))
    assert (read.epsilon, read.delta) == (Fraction(1, 2), Fraction(0))
    zcdp: Any = ZCdpFilter(budget=ZCdp(1))
    for opened, slack in (
        *((zcdp, bad) for bad in (None, 0, 1, "-1/2")),
        (PureFilter(budget=Pure(2)), "1e-6"),
    ):
        with refused("slack"):
            Odometer(filter=opened, slack=slack)
    with refused("filter"):
        Odometer(filter=ZCdp(1), slack="1e-6")  # type: ignore[arg-type]  # what the types forbid
    approx = Odometer(filter=ApproxFilter(budget=Approx(1, "1e-6")), slack="1e-7")
    assert approx.read((1, 0)).delta == Fraction("1e-7") + Fraction("5e-7")
    # Beyond its limits the filter pays for no delta.
    for beyond in ((0, SHARES + 1), (SHARES + 1, 0)):
        with refused("total"):
            approx.read(beyond)


def best_delta(most: Any, rest: Any, at: Any, parts: int) -> float:
    """Return the largest delta of any strategy within both sums, by induction.

    A step of s tenths costs s^2/200 of ``most``; k of ``parts`` parts of ``rest`` is the
    probability that the step reveals the dataset, and otherwise the step is randomised response.
    """
    squares, part, at = math.floor(200 * most), float(rest) / parts, float(at)

    @cache
    def best(spent: int, named: int, loss: int) -> float:
        found = max(0.0, 1 - math.exp(at - loss / 10))
        for step, hidden in itertools.product((2, 3, 5, 7, 10, 20), {0, 1, parts} if rest else {0}):
            after, more = spent + step * step, named + hidden
            if after <= squares and more <= parts:
                yes = 1 / (1 + math.exp(-step / 10))
                on = yes * best(after, more, loss + step)
                on += (1 - yes) * best(after, more, loss - step)
                found = max(found, hidden * part + (1 - hidden * part) * on)
        return found

    return best(0, 0, 0)


def test_the_best_adversary_stays_within_a_budget() -> None:
    budget, at = Approx("9/10", "1/4"), Fraction(9, 10)
    rho, rest = ApproxFilter(budget=budget).budgets
    assert best_delta(rho, rest, at, 4) <= 0.25
    # Mutants: a filter that counts half of either sum.
    assert best_delta(2 * rho, rest, at, 4) > 0.25
    assert best_delta(rho, 2 * rest, at, 4) > 0.25
    # A choice by the first answer exceeds both fixed lists, which have the same sum of squares: a
    # ledger that composed the list would admit each of them at 0.275.
    with mpmath.workdps(30):
        wrong, right = response("7/10")
        after_yes, after_no = [response(1)], [response("1/2")] * 4
        chosen = hockey_stick([*product([[right], *after_yes]), *product([[wrong], *after_no])], at)
        for rest_of_list in (after_yes, after_no):
            assert hockey_stick(product([[wrong, right], *rest_of_list]), at) < 0.275 < chosen
    opened = ZCdpFilter(budget=ZCdp("149/200"))
    promised = delta(as_approx_at(opened.spent(opened.limits), at))
    assert chosen - 1e-12 <= best_delta(Fraction(149, 200), 0, at, 1) <= promised


def most_crossings(budget: ZCdp, readings: Callable[[Fraction], Fraction]) -> float:
    """Return P(the loss ever exceeds the reading) of the best strategy, by induction over all."""
    unit = Fraction(1, 4)
    most = 2 * Fraction(str(budget.rho)) / unit**2
    odds = {step: 1 / (1 + math.exp(-step * unit)) for step in (1, 2, 3, 5, 8)}

    @cache
    def limit(squares: int) -> int:
        return math.floor(readings(squares * unit**2 / 2) / unit)

    @cache
    def crossed(squares: int, loss: int) -> float:
        if loss > limit(squares):
            return 1.0
        found = 0.0
        for step, yes in odds.items():
            after = squares + step * step
            if after <= most:
                up, down = crossed(after, loss + step), crossed(after, loss - step)
                found = max(found, yes * up + (1 - yes) * down)
        return found

    return crossed(0, 0)


def test_no_strategy_exceeds_the_reading_more_often_than_stated() -> None:
    budget, slack = ZCdp(2), Fraction(1, 2)
    opened = ZCdpFilter(budget=budget)
    meter = Odometer(filter=opened, slack=slack)
    low = mutated(privacy_filters._line, "ball(delta).log() /", "ball(delta).log() / 4 /")
    lines = rewired(Odometer._lines, _line=low)

    def held(rho: Fraction) -> tuple[int, ...]:
        return opened.price(ZCdp(rho)).amounts

    read = cache(lambda rho: meter.read(held(rho)).epsilon)
    assert most_crossings(budget, read) <= slack
    # Mutants: half of the reading, lines that are too low, and the bound of a filter at a fixed
    # time read at all times.
    assert most_crossings(budget, lambda rho: read(rho) / 2) > slack
    assert most_crossings(budget, lambda rho: lines(meter, *opened.held(held(rho)))) > slack
    fixed = cache(lambda rho: epsilon(as_approx(opened.spent(held(rho)), slack)))
    assert most_crossings(budget, fixed) > slack
