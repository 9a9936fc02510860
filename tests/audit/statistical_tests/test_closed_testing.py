"""Tests of multiple testing against closed testing by brute force; mutants must fail."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from audit.claims.curve_claim import CurveClaim
from audit.claims.tested_claim import Claim
from audit.outputs.output_parser import draw_worlds
from audit.outputs.reading import read
from audit.statistical_tests import multiple_testing
from audit.statistical_tests.event import Tally
from audit.statistical_tests.fixed_sample_test import gather
from audit.statistical_tests.multiple_testing import by_averages, holm, weigh_views
from audit.statistical_tests.sample_outcome import Outcome, reported_row
from audit.statistical_tests.view import View
from tests.alpha_budget import buy_alpha
from tests.effort import effort

ALPHA = Fraction(1, 20)


def closed(values: Sequence[float], reject: Callable[[Sequence[float]], bool]) -> list[bool]:
    """Closed testing by brute force: i is rejected if every subset that contains i is rejected."""
    places = range(len(values))
    sets = [s for k in range(1, len(values) + 1) for s in itertools.combinations(places, k)]
    kept = {s for s in sets if not reject([values[i] for i in s])}
    return [all(i not in s for s in kept) for i in places]


# A multiple of k/1009 never equals 1/20, so no case depends on rounding.
@given(st.lists(st.integers(0, 200).map(lambda k: k / 1009), min_size=1, max_size=7))
def test_holm_is_closed_testing_by_bonferroni(p_values: list[float]) -> None:
    by_hand = closed(p_values, lambda some: min(some) * len(some) <= 0.05)
    assert [q <= 0.05 for q in holm(p_values)] == by_hand
    assert all(q >= p for p, q in zip(p_values, holm(p_values), strict=True))


@given(st.lists(st.integers(0, 1500).map(lambda k: k / 10.03), min_size=1, max_size=7))
def test_averages_are_closed_testing(e_values: list[float]) -> None:
    by_hand = closed(e_values, lambda some: sum(some) / len(some) >= 20)
    with np.errstate(divide="ignore"):
        found = by_averages(np.log(e_values))
    assert (found >= math.log(20)).tolist() == by_hand
    assert bool(np.all(found <= np.log(np.maximum(e_values, 1e-300)) + 1e-9))


def test_both_hold_at_extremes() -> None:
    assert by_averages(np.array([-math.inf, -math.inf])).tolist() == [-math.inf, -math.inf]
    found = by_averages(np.array([1e5, -1e5, 1e5 - 1]))
    assert found[0] == pytest.approx(1e5 + math.log((1 + math.exp(-1)) / 3))
    assert found[1] <= -1e5
    assert holm([0.03]) == [0.03]
    assert holm([0.9, 0.8, 0.7]) == [1.0, 1.0, 1.0]
    assert all(Fraction(q) >= 3 * Fraction(0.1) for q in holm([0.1, 0.1, 0.1]))


SEEN = Tally.empty().add(read([0, 1] * 50), np.arange(100) < 50)


@dataclass(frozen=True, kw_only=True)
class Chance:
    """Evidence with exactly uniform p-values, as at the boundary of the claim."""

    coins: Any
    tally: Tally = SEEN

    def p_value(self, epsilon: Any, delta: Any, *, spend: Any) -> float:
        return float(next(self.coins))

    def epsilon_lower(self, alpha: Any, delta: Any, *, known: float) -> float:
        return 0.0

    def followed(self, epsilon: Any, delta: Any, *, spend: Any) -> tuple[int, None]:
        return 0, None


def false_alarms(monkeypatch: pytest.MonkeyPatch, repeats: int) -> int:
    """The number of audits that refute a point; each has three views and three true points."""
    rng = np.random.default_rng(5)
    empty = np.zeros(0, dtype=bool)
    views = [View(pair=pair, outputs=empty, worlds=empty) for pair in range(3)]
    claim = CurveClaim(spelling="rho=1e-9")
    count = 0
    for _ in range(repeats):
        coins = iter(rng.random(9))
        monkeypatch.setattr(
            multiple_testing, "gather", lambda *_, coins=coins, **__: Chance(coins=coins)
        )
        found = weigh_views(views, claim, ALPHA, seed=0, allow_constant=False)
        assert (found.verdict == "refuted") == any(row.refuted for row in found.outcomes)
        count += found.verdict == "refuted"
    return count


def test_a_family_shares_one_level_and_a_test_that_does_not_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alpha, repeats = buy_alpha("family of tests: Holm", "1e-9"), 300
    wrong = false_alarms(monkeypatch, repeats)
    assert stats.binom.sf(wrong - 1, repeats, 0.05) > alpha
    # The procedure is not too conservative: 1 - (1 - 1/180)^9 = 4.89% is expected for independent
    # tests.
    assert stats.binom.cdf(wrong, repeats, 0.0489) > alpha
    # Two mutants: the level is not shared, or shared only within each view.
    monkeypatch.setattr(multiple_testing, "holm", lambda found, _: list(found))
    assert stats.binom.sf(false_alarms(monkeypatch, 100) - 1, 100, 0.05) < 1e-6

    def per_view(found: list[float], _: object) -> list[float]:
        return [q for i in (0, 3, 6) for q in holm(found[i : i + 3])]

    monkeypatch.setattr(multiple_testing, "holm", per_view)
    assert stats.binom.sf(false_alarms(monkeypatch, repeats) - 1, repeats, 0.05) < 1e-6


def test_the_largest_bound_at_the_point_of_the_surest_test_is_reported() -> None:
    def row(bound: float, *, refuted: bool = True, delta: str = "0") -> Outcome:
        point = Claim(epsilon="0.1", delta=delta)
        return Outcome(claim=point, epsilon_lower=bound, refuted=refuted)

    rows = [row(bound) for bound in (0.3, 0.7, 0.7)]
    assert [reported_row(rows, i) for i in range(3)] == [1, 1, 2]
    # A bound at another delta does not count, and neither does a row without the refuted flag.
    assert reported_row([row(3.0, delta="0.01"), row(3.0, refuted=False), rows[0]], 2) == 2
    assert reported_row([row(bound, refuted=False) for bound in (0.3, 0.2, 0.5)], 0) == 2


@pytest.mark.nightly
def test_the_largest_bound_holds_and_one_of_unshared_levels_does_not() -> None:
    alpha, repeats = buy_alpha("the largest of several bounds", "1e-9"), effort(100, 400)
    level, wrong, unshared = Fraction(1, 4), 0, 0
    for seed in range(repeats):
        # Two features and two pairs, each exactly ln 2-DP; more runs on the second pair.
        rng, views = np.random.default_rng([5, seed]), []
        for pair, runs in ((0, 100), (1, 160)):
            worlds = draw_worlds(runs, rng)
            for feature in ("x", "y"):
                told = np.where(rng.random(runs) < 2 / 3, worlds, ~worlds)
                views.append(View(pair=pair, feature=feature, outputs=told, worlds=worlds))
        found = weigh_views(views, Claim(epsilon="0.6"), level, seed=seed)
        wrong += found.epsilon_lower > math.log(2)
        bounds = [gather(v.outputs, v.worlds, seed=seed).epsilon_lower(level) for v in views]
        unshared += max(bounds) > math.log(2)
    assert stats.binom.sf(wrong - 1, repeats, float(level)) > alpha
    assert stats.binom.sf(unshared - 1, repeats, float(level)) < 0.01
