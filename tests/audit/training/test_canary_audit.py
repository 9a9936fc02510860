"""Tests of one-run canary audits: refutations, false-alarm rates and invalid input."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import stats

from accounting import PoissonSampled, compose
from accounting.privacy_curves.release_curve import PrivacyCurve
from audit.claims import Claim
from audit.training import canary_audit as module
from audit.training.canary_audit import CanaryReport, canaries, planned_guesses
from dpcore import DiscreteGaussian
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation, Scope
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day, effort
from tests.support.dpcore.mutants import mutated, rewired

Scores: TypeAlias = NDArray[np.float64]
Coins: TypeAlias = NDArray[np.bool_]
Law: TypeAlias = Callable[[Coins, np.random.Generator], Scores]

CONFIDENCE = 0.8


def null(coins: Coins, rng: np.random.Generator) -> Scores:
    return rng.normal(size=len(coins))


def response(coins: Coins, rng: np.random.Generator) -> Scores:
    told = np.where(rng.random(len(coins)) < 1 / (1 + math.exp(-1)), coins, ~coins)
    return told.astype(np.float64)


def revealing(coins: Coins, rng: np.random.Generator) -> Scores:
    # (1, 1/50)-DP: one canary in fifty is revealed.
    shown = np.where(coins, 10.0, -10.0)
    return np.where(rng.random(len(coins)) < 0.02, shown, response(coins, rng))


def all_or_nothing(coins: Coins, rng: np.random.Generator) -> Scores:
    # (1, 1/10)-DP: with probability 1/10 all canaries are revealed and every guess is right.
    return coins.astype(np.float64) if rng.random() < 0.1 else response(coins, rng)


LAWS: dict[str, tuple[Law, str]] = {
    "null, epsilon": (null, "epsilon=0"),
    "null, delta": (null, "epsilon=0,delta=1e-5"),
    "response": (response, "epsilon=1"),
    "revealing": (revealing, "epsilon=1,delta=0.02"),
    "all or nothing": (all_or_nothing, "epsilon=1,delta=0.1"),
}


def repeated(law: Law, claim: str, *, repeats: int, total: int = 200) -> list[CanaryReport]:
    found = []
    for repeat in range(repeats):
        rng = np.random.default_rng([11, repeat])
        coins = rng.random(total) < 0.5
        found.append(canaries(law(coins, rng), coins, claim, confidence=CONFIDENCE))
    return found


def p_value(hits: int, repeats: int) -> float:
    # The p-value of the hypothesis that errors have probability at most 1 - CONFIDENCE.
    return float(stats.binom.sf(hits - 1, repeats, 1 - CONFIDENCE))


@by_day(2)
@pytest.mark.parametrize("name", list(LAWS))
def test_a_true_claim_is_refuted_at_most_as_often_as_stated(name: str) -> None:
    bought = buy_alpha(f"canaries, {name}", "1e-10")
    law, claim = LAWS[name]
    repeats = effort(40, 1500)
    reports = repeated(law, claim, repeats=repeats)
    assert p_value(sum(report.refuted for report in reports), repeats) > bought
    true = 0.0 if claim.startswith("epsilon=0") else 1.0
    assert p_value(sum(report.epsilon_lower > true for report in reports), repeats) > bought


def test_a_claim_without_its_delta_is_refuted_too_often() -> None:
    lost = repeated(revealing, "epsilon=1", repeats=25, total=2000)
    assert p_value(sum(report.refuted for report in lost), 25) < 1e-10


def test_ties_are_not_broken_by_the_order_of_the_file() -> None:
    coins = np.arange(1000) >= 500  # a file sorted by inclusion
    scores = np.zeros(1000)
    scores[::100] = 1.0
    assert not canaries(scores, coins, "epsilon=0").refuted
    by_file = mutated(
        module._ordered, "np.random.default_rng(seed).permutation(len(values))", "np.arange(1000)"
    )
    assert rewired(canaries, _ordered=by_file)(
        scores, coins, "epsilon=0", relation="add-remove", guesses=None, guess="both",
        confidence="0.999", seed=0, trace=False,
    ).refuted  # fmt: skip


def scored(mu: float, total: int = 10_000) -> tuple[Scores, Coins]:
    rng = np.random.default_rng(3)
    coins = rng.random(total) < 0.5
    return mu * coins + rng.normal(size=total), coins


def test_a_training_with_half_the_noise_is_refuted_as_a_curve_and_at_a_point() -> None:
    scores, coins = scored(2.0)
    curve, point = (
        canaries(scores, coins, claim, confidence="0.95")
        for claim in ("gdp=1", "epsilon=3,delta=1e-5")
    )
    assert [(each.refuted, each.exit_code) for each in (curve, point)] == [(True, 1)] * 2
    # The upper limit is the true curve: 9.997 at delta = 1e-5.
    assert 4.0 < point.epsilon_lower < 9.997
    assert curve.mu_lower is not None
    assert 1.2 < curve.mu_lower < 2.0
    assert canaries(scores, coins, "gdp=2").verdict == "not_refuted"


@pytest.mark.parametrize(
    "rounds", [1, pytest.param(8, marks=pytest.mark.nightly)]
)  # a composed delta takes seconds
def test_the_curve_of_a_training_run_can_be_the_claim(rounds: int) -> None:
    step = PrivacyCurve(
        noise=DiscreteGaussian(sigma_squared=400),
        sensitivity=20,
        scope=Scope(relation=Relation.ADD_REMOVE),
    )
    sampled = PoissonSampled(curve=step, rate="1/4")
    training = sampled if rounds == 1 else compose((sampled, rounds))
    point = training.epsilon("1e-5").upper
    scores, coins = scored(4.0)
    report = canaries(scores, coins, training)
    assert report.refuted
    assert not canaries(*scored(0.3), training).refuted
    assert report.epsilon_lower > (point if rounds == 1 else 5)  # the limit of 10,000 canaries
    assert json.loads(report.to_text())["claim"]


def test_guess_included_detects_scores_that_are_informative_at_one_end() -> None:
    rng = np.random.default_rng(5)
    coins = rng.random(4000) < 0.5
    scores = np.where(coins & (rng.random(4000) < 0.2), 1.0, rng.random(4000) / 2)
    both = canaries(scores, coins, "epsilon=1")
    side = canaries(scores, coins, "epsilon=1", guess="included")
    other = canaries(-scores, ~coins, "epsilon=1", guess="excluded")
    assert side.refuted
    assert side.epsilon_lower == other.epsilon_lower > both.epsilon_lower + 1


def test_too_few_canaries_measure_nothing_and_state_the_required_number() -> None:
    scores, coins = scored(8.0, 1000)
    report = canaries(scores, coins, "epsilon=8")
    assert (report.verdict, report.exit_code) == ("nothing_measured", 4)
    # All n guesses are right with probability (1 + e^-8)^-n.
    least = math.ceil(math.log(1000) / math.log1p(math.exp(-8)))
    assert report.needed == least
    assert f"{least:,} canaries could" in report.warnings[0]
    assert report.epsilon_lower > 2.5


@pytest.mark.parametrize("scale", [1.0, 2.0**60, 1e308])
def test_scores_in_the_wrong_direction_give_a_warning(scale: float) -> None:
    # Every score reveals its canary, but in the wrong direction (larger means not included), so the
    # claim is not refuted.
    coins = np.random.default_rng(1).random(500) < 0.5
    found = canaries(scale * (1 - 2.0 * coins), coins, claim="epsilon=1")
    assert found.verdict == "not_refuted"
    assert "fewer than by chance" in found.warnings[0]
    assert not canaries(scale * (2.0 * coins - 1), coins, claim="epsilon=1").warnings
    near = np.where(coins, np.nextafter(scale, math.inf), scale)
    report = canaries(near, coins, claim="epsilon=1")
    assert report.refuted
    assert sum(cell.included for cell in report.histogram) == coins.sum()
    equal = canaries(np.full(500, scale), coins, claim="epsilon=1")
    assert equal.verdict == "nothing_measured"
    (warning,) = equal.warnings
    assert warning == "all scores are equal: they contain no information about the canaries"


def test_numbers_of_guesses_are_planned_from_the_least_that_can_refute() -> None:
    first, *others = planned_guesses(10_000, lambda guesses: guesses >= 2000)
    assert (first in range(3000, 3800, 2), others) == (True, [10_000])
    assert planned_guesses(10_000, lambda guesses: guesses >= 10_000) == (10_000,)
    assert planned_guesses(1, lambda guesses: False) == (1,)
    for total in (2, 3, 33, 1001):
        sizes = planned_guesses(total, lambda guesses: False)
        assert all(size % 2 == 0 and 0 < size <= total for size in sizes)
        assert sorted(set(sizes)) == [*sizes]


def test_numbers_of_guesses_share_the_level() -> None:
    # Randomised response at epsilon = 1: all scores are equally informative.
    for repeat in range(effort(2, 60)):
        rng = np.random.default_rng([5, repeat])
        coins = rng.random(1000) < 0.5
        scores = response(coins, rng)
        report = canaries(scores, coins, "epsilon=0.73", confidence="0.95")
        assert [size for size, _, _ in report.tried] == [62, 250, 1000]
        assert (report.guesses, report.right, report.epsilon_lower) in report.tried
        each = [
            canaries(scores, coins, "epsilon=0.73", confidence=1 - Fraction(1, part), guesses=size)
            for size, part in ((62, 40), (250, 80), (1000, 80))
        ]
        assert report.refuted == any(one.refuted for one in each)
        assert report.epsilon_lower == max(one.epsilon_lower for one in each)


@pytest.mark.parametrize(
    ("scores", "included", "given", "named"),
    [
        ([], [], {}, "scores"),
        ([[1.0]], [[1]], {}, "scores"),
        (["x"], [1], {}, "scores"),
        ([10**400, 1], [0, 1], {}, "scores"),
        (np.ma.array([1.0, 2.0], mask=[True, False]), [0, 1], {}, "masked"),
        (pd.Series([1.0, 2.0], [1, 0]), pd.Series([0, 1]), {}, "index of scores"),
        ([1.0, math.nan], [0, 1], {}, r"scores\[1\]"),
        ([1.0, 2.0], [0, 1, 1], {}, "included"),
        ([1.0, 2.0], [0, 2], {}, r"included\[1\]"),
        ([1.0, 2.0], [1, 1], {}, "included"),
        ([0.0] * 1000, [1] * 800 + [0] * 200, {}, "fair coins"),
        ([1.0, 2.0], [0, 1], {"claim": "epsilon=-1"}, "epsilon"),
        ([1.0, 2.0], [0, 1], {"claim": "nonsense"}, "claim"),
        ([1.0, 2.0], [0, 1], {"confidence": 1}, "confidence"),
        ([1.0, 2.0], [0, 1], {"guesses": 3}, "guesses"),
        ([1.0, 2.0], [0, 1], {"guess": "all"}, "guess"),
        ([1.0, 2.0], [0, 1], {"relation": "x"}, "relation"),
        ([1.0, 2.0], [0, 1], {"seed": -1}, "seed"),
    ],
)
def test_invalid_scores_are_refused(
    scores: Any, included: Any, given: dict[str, Any], named: str
) -> None:
    claim = given.pop("claim", "epsilon=1")
    with pytest.raises(InvalidParameter, match=named):
        canaries(scores, included, claim, **given)


def test_the_report_has_consistent_numbers() -> None:
    scores, coins = scored(1.0, 2000)
    report = canaries(scores, coins, "epsilon=1,delta=1e-5", trace=True)
    found = json.loads(report.to_text())
    assert found["claim"] == Claim(epsilon=1, delta="1e-5", relation="add-remove").to_json()
    assert sum(cell[2] + cell[3] for cell in found["histogram"]) == 2000
    assert [size for size, _ in found["trace"]][-1] == 2000
    assert Fraction(found["at_delta"]) == Fraction(1, 100_000)
    assert str(report).startswith(("REFUTED", "NOT REFUTED"))
    assert str(report).count("assumed") == len(found["assumptions"])
