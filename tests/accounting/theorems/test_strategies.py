"""The best strategy against a filter and an odometer, by induction over all strategies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

from accounting.claims.claim import Approx, ZCdp
from accounting.theorems.filter import ApproxFilter, ZCdpFilter
from accounting.theorems.odometer import Odometer


def best_with_names(most: Any, rest: Any, at: Any, parts: int) -> float:
    """The best of every strategy whose steps may name the world, within these sums, by induction.

    A step of s tenths costs s^2/200 of ``most``, and k of ``parts`` parts of ``rest``: with that
    probability it names the world, else it is randomised response.
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
    # The twins: a filter that counts half of either sum.
    assert best_with_names(2 * rho, rest, budget.stated_epsilon, 4) > 0.25
    assert best_with_names(rho, 2 * rest, budget.stated_epsilon, 4) > 0.25


def most_crossings(budget: ZCdp, readings: Callable[[Fraction], Fraction]) -> float:
    """P(the loss ever exceeds the reading) under the best strategy, by induction over all."""
    unit, most = Fraction(1, 4), Fraction(str(budget.rho))

    @cache
    def limit(squares: int) -> Fraction:
        return readings(squares * unit**2 / 2)

    @cache
    def crossed(squares: int, loss: int) -> float:
        if loss * unit > limit(squares):
            return 1.0
        found = 0.0
        for step in (1, 2, 3, 5, 8):
            after = squares + step * step
            if after * unit**2 / 2 <= most:
                yes = 1 / (1 + math.exp(-step * unit))
                up, down = crossed(after, loss + step), crossed(after, loss - step)
                found = max(found, yes * up + (1 - yes) * down)
        return found

    return crossed(0, 0)


def test_no_strategy_crosses_the_reading_more_often_than_said() -> None:
    budget, slack = ZCdp(2), Fraction(1, 2)
    opened = ZCdpFilter(budget=budget)
    meter = Odometer(filter=opened, slack=slack)

    @cache
    def read(rho: Fraction) -> Fraction:
        return meter.read(opened.price(ZCdp(rho)).amounts).epsilon

    assert most_crossings(budget, read) <= slack
    # The twin reads half of it.
    assert most_crossings(budget, lambda rho: read(rho) / 2) > slack
