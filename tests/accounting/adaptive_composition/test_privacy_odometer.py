"""Tests of `accounting.adaptive_composition.privacy_odometer`: readings hold at all times, against
every path and the best strategy.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Approx, Pure, Rdp, ZCdp
from accounting.adaptive_composition import privacy_odometer
from accounting.adaptive_composition.privacy_filter import (
    SHARES,
    ApproxFilter,
    PureFilter,
    RdpFilter,
    ZCdpFilter,
)
from accounting.adaptive_composition.privacy_odometer import Odometer, _rate
from accounting.convert_guarantees import as_approx
from dpcore import InvalidParameter
from tests.support.accounting.bound_ends import epsilon
from tests.support.accounting.brute_force import real
from tests.support.dpcore.mutants import mutated, rewired


def test_a_pure_odometer_is_the_sum() -> None:
    opened = PureFilter(budget=Pure(2))
    read = Odometer(filter=opened).read((SHARES // 4,))
    assert (read.epsilon, read.delta) == (Fraction(1, 2), Fraction(0))
    with pytest.raises(InvalidParameter, match=r"^slack"):
        Odometer(filter=opened, slack="1e-6")


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
@settings(deadline=None, max_examples=30)
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


def crossing(each: Fraction, readings: Sequence[Fraction]) -> float:
    """P(the loss ever exceeds the reading of its step) over all paths of randomised response."""
    yes = float(1 / (1 + mpmath.exp(-real(each))))
    alive, crossed = {0: 1.0}, 0.0
    for limit in readings:
        moved: dict[int, float] = {}
        for ahead, mass in alive.items():
            moved[ahead + 1] = moved.get(ahead + 1, 0) + mass * yes
            moved[ahead - 1] = moved.get(ahead - 1, 0) + mass * (1 - yes)
        alive = {ahead: mass for ahead, mass in moved.items() if ahead * each <= limit}
        crossed += sum(moved.values()) - sum(alive.values())
    return crossed


@pytest.mark.nightly
def test_the_loss_exceeds_the_reading_with_at_most_the_stated_probability() -> None:
    each, steps, slack = Fraction(1, 10), 300, Fraction(1, 20)
    opened = ZCdpFilter(budget=ZCdp(steps * each**2 / 2))
    meter = Odometer(filter=opened, slack=slack)
    price = opened.price(Pure(each)).amounts[0]
    held = [step * price for step in range(1, steps + 1)]
    assert crossing(each, [meter.read((total,)).epsilon for total in held]) <= slack
    # Mutants: a line that is too low, and the bound of a filter at a fixed time read at all times.
    low = mutated(privacy_odometer._line, "ball(delta).log() /", "ball(delta).log() / 2 /")
    lines = rewired(Odometer._lines, _line=low)
    assert crossing(each, [lines(meter, *opened.held((total,))) for total in held]) > slack
    fixed = [epsilon(as_approx(opened.spent((total,)), slack)) for total in held]
    assert crossing(each, fixed) > slack


def test_odometer_refusals() -> None:
    for slack in (None, 0, 1, "-1/2"):
        with pytest.raises(InvalidParameter, match=r"^slack"):
            Odometer(filter=ZCdpFilter(budget=ZCdp(1)), slack=slack)
    with pytest.raises(InvalidParameter, match=r"^filter"):
        Odometer(filter=ZCdp(1), slack="1e-6")  # type: ignore[arg-type]  # what the types forbid
    approx = Odometer(filter=ApproxFilter(budget=Approx(1, "1e-6")), slack="1e-7")
    assert approx.read((1, 0)).delta == Fraction("1e-7") + Fraction("5e-7")
    # Beyond its limits the filter pays for no delta.
    for beyond in ((0, SHARES + 1), (SHARES + 1, 0)):
        with pytest.raises(InvalidParameter, match=r"^total"):
            approx.read(beyond)


def best_with_names(most: Any, rest: Any, at: Any, parts: int) -> float:
    """Return the largest delta of any strategy within both sums, by induction.

    A step of s tenths costs s^2/200 of ``most``; k of ``parts`` parts of ``rest`` is the
    probability that the step reveals the dataset, and otherwise the step is randomised response.
    """
    squares, part, at = math.floor(200 * most), float(rest) / parts, float(at)

    @cache
    def best(spent: int, named: int, loss: int) -> float:
        found = max(0.0, 1 - math.exp(at - loss / 10))
        for step, hidden in itertools.product((2, 3, 5, 7, 10, 20), (0, 1, parts)):
            after, more = spent + step * step, named + hidden
            if after <= squares and more <= parts:
                yes = 1 / (1 + math.exp(-step / 10))
                on = yes * best(after, more, loss + step)
                on += (1 - yes) * best(after, more, loss - step)
                found = max(found, hidden * part + (1 - hidden * part) * on)
        return found

    return best(0, 0, 0)


def test_the_best_adversary_stays_within_an_approximate_budget() -> None:
    budget = Approx("9/10", "1/4")
    opened = ApproxFilter(budget=budget)
    rho, rest = opened.budgets
    assert best_with_names(rho, rest, budget.stated_epsilon, 4) <= 0.25
    # Mutants: a filter that counts half of either sum.
    assert best_with_names(2 * rho, rest, budget.stated_epsilon, 4) > 0.25
    assert best_with_names(rho, 2 * rest, budget.stated_epsilon, 4) > 0.25


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

    @cache
    def read(rho: Fraction) -> Fraction:
        return meter.read(opened.price(ZCdp(rho)).amounts).epsilon

    assert most_crossings(budget, read) <= slack
    # The mutant halves the reading.
    assert most_crossings(budget, lambda rho: read(rho) / 2) > slack
