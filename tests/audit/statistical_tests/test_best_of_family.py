"""Tests of the leader of a family of views: level, power, and guesses recomputed by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, ndtr

from audit.claims import Claim
from audit.outputs.output_parser import draw_worlds
from audit.outputs.reading import read
from audit.statistical_tests import prequential_fixed_runs_test as fixed
from audit.statistical_tests.choose_event import Trial, follow, learn_rule
from audit.statistical_tests.event import Tally
from audit.statistical_tests.multiple_testing import (
    LEADER,
    View,
    gather_views,
    view_seeds,
    weigh_views,
)
from audit.statistical_tests.prequential_fixed_runs_test import GRID, LED, Evidence, gather
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import effort
from tests.support.dpcore.mutants import mutated

ALPHA = Fraction(1, 20)


def responses(runs: int, views: int, seed: int, *, epsilon: float = 1.0) -> list[View]:
    """Randomised response at exactly epsilon, with independent answers for each view."""
    rng = np.random.default_rng([11, seed])
    worlds = draw_worlds(runs, rng)
    right = rng.random((views, runs)) < expit(epsilon)
    return [
        View(feature=f"bit {i}", outputs=np.where(each, worlds, ~worlds), worlds=worlds)
        for i, each in enumerate(right)
    ]


def leader_of(views: list[View], seed: int = 1) -> Evidence:
    seeds = [*view_seeds(seed, len(views)), seed]
    return gather_views(views, Claim(epsilon=1), seeds=seeds).evidence[-1]


PEEKING = mutated(
    follow,
    "did + _BELIEVED * promised + ahead",
    "(seen['right'] - (guesses := seen['right'] + seen['wrong']) * q) / np.sqrt(guesses + 1.0)",
)


def test_a_leader_is_valid_at_the_boundary_but_a_peeking_mutant_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alpha, repeats = buy_alpha("leader at the boundary", "1e-9"), effort(12, 1500)
    level = 0.25
    leaders = [leader_of(responses(150, 3, seed), seed) for seed in range(repeats)]
    wrong = sum(each.p_value(1) <= level for each in leaders)
    assert {len(each.beside) for each in leaders} == {2}
    assert stats.binom.sf(wrong - 1, repeats, level) > alpha
    # The test is not too conservative: at the boundary the p-value is nearly uniform.
    assert stats.binom.cdf(sum(each.p_value(1) <= 0.9 for each in leaders), repeats, 0.7) > alpha
    # The mutant also uses the tested block to choose the expert that it follows.
    monkeypatch.setattr(fixed, "follow", PEEKING)
    wrong = sum(replace(each).p_value(1) <= level for each in leaders)
    assert stats.binom.sf(wrong - 1, repeats, level) < 1e-3


def promised_by_hand(trial: Trial, e: int, q: float) -> float | None:
    """The score that an expert predicts for itself, from its guesses and its training runs."""
    guesses = trial.rule.experts[e].guesses(math.log(q / (1 - q)))
    learned = guesses * trial.rule.lean
    odds = {2: learned, 3: np.abs(trial.rule.experts[e].signed), 4: learned}.get(e)
    if odds is None:
        return None
    past, on = trial.rule.cells.counts.sum(axis=0), guesses != 0
    seen = int(past[on].sum())
    return float((past * expit(odds))[on].sum() - q * seen) / math.sqrt(seen * q * (1 - q) or 1)


def followed_by_hand(leader: Evidence, epsilon: float, delta: float) -> list[tuple[int, int]]:
    """Right and wrong guesses of each block, in plain Python, from the guesses of each expert."""
    q, found = 1 / (1 + math.exp(-epsilon)), []
    past: dict[tuple[int, int], list[tuple[int, int, int, int]]] = {}
    runs = [trial.runs for trial in leader.trials]
    for j in range(len(runs)):
        now, score = dict[tuple[int, int], tuple[int, int, int, int]](), {}
        for i, trials in enumerate((leader.trials, *leader.beside)):
            trial = trials[j]
            for e, expert in enumerate(trial.rule.experts):
                guesses = expert.guesses(epsilon)
                in_a, in_b = trial.counts
                right = int(in_a[guesses < 0].sum() + in_b[guesses > 0].sum())
                wrong = int(in_b[guesses < 0].sum() + in_a[guesses > 0].sum())
                sides = int((guesses < 0).any()) + int((guesses > 0).any())
                now[i, e] = right, wrong, sides, trial.runs
                rows = past.get((i, e), [])
                did = sum(
                    r - (r + w) * q - (1 - q) * delta * n * s / 2 for r, w, s, n in rows
                ) / math.sqrt(1 + sum((r + w) * q * (1 - q) for r, w, _, _ in rows))
                said = promised_by_hand(trial, e, q)
                promised = did if said is None else min(said, did + 2)
                score[i, e] = did + promised / 2 + {0: 2.5, 4: 1.0}.get(e, 0.0)
        best = max(now, key=lambda key: (round(score[key], 9), (-key[0], -key[1])))
        silent = 20 * sum(runs[: j + 1]) <= sum(runs)
        found.append((0, 0) if silent else now[best][:2])
        for key, each in now.items():
            past.setdefault(key, []).append(each)
    assert found[0] == (0, 0)
    return found


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (1.0, 0.02), (2.0, 0.0)])
def test_the_expert_that_the_leader_follows_is_recomputed_by_hand(
    epsilon: float, delta: float
) -> None:
    views = [*responses(400, 2, 3), *responses(400, 1, 3, epsilon=3.0)]
    leader = leader_of([View(outputs=v.outputs, worlds=views[0].worlds) for v in views])
    votes, _ = follow([leader.trials, *leader.beside], np.array([epsilon, epsilon]), delta)
    hand = followed_by_hand(leader, epsilon, delta)
    assert [(int(v.right[1]), int(v.wrong[1])) for v in votes] == hand
    assert len({pair for pair in hand if sum(pair)}) > 2


def telling(runs: int, seed: int) -> list[View]:
    """Three views of noise, and one that reveals the dataset by a rare output."""
    rng = np.random.default_rng(seed)
    worlds = draw_worlds(runs, rng)
    rare = np.where(rng.random(runs) < 0.05 + 0.05 * worlds, 1, 0)
    noise = [rng.integers(0, 9, runs) for _ in range(3)]
    return [
        View(feature=f"view {i}", outputs=o, worlds=worlds) for i, o in enumerate((*noise, rare))
    ]


def test_a_leader_detects_more_than_views_that_share_the_level() -> None:
    views = telling(6000, 5)
    led = weigh_views(views, Claim(epsilon="0.2"), ALPHA, seed=1)
    row = led.outcomes[led.row]
    assert (row.feature, led.verdict) == (LEADER, "refuted")
    assert led.witness is not None
    assert led.witness.feature == "view 3"
    assert led.epsilon_lower < math.log(2)
    left = [replace(view, followed=False) for view in views]
    alone = weigh_views(left, Claim(epsilon="0.2"), ALPHA, seed=1)
    assert len(alone.outcomes) == len(led.outcomes) - 1
    assert alone.epsilon_lower < led.epsilon_lower - 0.01
    rare = gather(views[3].outputs, views[3].worlds, seed=1)
    assert replace(rare, weights=LED).epsilon_lower(ALPHA / 4) < led.epsilon_lower - 0.02


@pytest.mark.parametrize("delta", ["0", "0.01"])
def test_the_bound_of_a_leader_agrees_with_a_plain_scan(delta: str) -> None:
    leader = leader_of(responses(1500, 2, 3, epsilon=0.3))
    bound = leader.epsilon_lower("0.02", delta)
    spend = Fraction("0.02") / 50
    place = int(np.searchsorted(GRID, bound))
    assert 20 < place < len(GRID) - 1
    assert bound == GRID[place]
    below = np.linspace(0, place, 5).astype(int)
    p_values = [leader.p_value(float(GRID[i]), delta, spend=spend) for i in (*below, place + 1)]
    assert [p <= 0.02 for p in p_values] == [True] * 5 + [False]
    # The scan starts at the known bound of another test, and never returns less.
    assert leader.epsilon_lower("0.02", delta, known=bound / 2) == bound
    assert leader.epsilon_lower("0.02", delta, known=3.0) == 3.0


def test_only_pairs_with_several_followed_views_have_a_leader() -> None:
    none: dict[str, Any] = {"outputs": [], "worlds": np.zeros(0, bool)}
    views = [
        View(pair=0, feature="a", weight=Fraction(3), **none),
        View(pair=0, feature="b", weight=Fraction(1), **none),
        View(pair=1, feature="a", weight=Fraction(3), followed=False, **none),
        View(pair=1, feature="b", weight=Fraction(1), followed=False, **none),
        View(pair=2, feature="a", weight=Fraction(2), **none),
    ]
    family = gather_views(views, Claim(epsilon=1), seeds=range(9))
    assert (family.tests[len(views) :], family.followed[-1]) == (((0, LEADER),), (0, 1))
    leader = family.evidence[-1]
    assert leader.p_value(1) == 1.0
    assert leader.epsilon_lower() == 0.0
    assert leader.followed(1) == (0, None)
    tenth = Fraction(1, 10)
    assert family.parts == (
        tenth * 3 / 5, tenth / 5, tenth * 3, tenth, tenth * 2, tenth * 4 * 4 / 5
    )  # fmt: skip
    found = weigh_views(views[:2], Claim(epsilon=1), ALPHA, seed=1)
    assert (found.verdict, found.p_value, found.witness) == ("nothing_measured", 1.0, None)


def right(rule: Any) -> float:
    """The exact probability that the zero cut guesses N(-1/2, 1) against N(1/2, 1) correctly."""
    ends = [-math.inf, *rule.cells.ends(integral=False), math.inf]
    of_a, of_b = (np.diff(ndtr(np.array(ends) - mean)) for mean in (-0.5, 0.5))
    to_b = rule.lean[: rule.cells.intervals] > 0
    return float(np.where(to_b, of_b, of_a).sum() / 2)


def test_isotonic_odds_of_scores_lose_almost_nothing() -> None:
    lost: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(12):
        rng = np.random.default_rng(seed)
        worlds = draw_worlds(3000, rng)
        tally = Tally.empty().add(read(worlds - 0.5 + rng.normal(size=3000)), worlds)
        for isotonic, found in lost.items():
            rule = learn_rule(tally, isotonic=isotonic)
            steps = np.diff(rule.lean[: rule.cells.intervals])
            assert bool((steps >= 0).all()) == isotonic
            found.append(float(ndtr(0.5)) - right(rule))
    # The best rule is one cut. Odds that fluctuate by chance lose correct guesses.
    assert 0 <= 2 * np.mean(lost[True]) < np.mean(lost[False]), lost


def test_a_decreasing_score_teaches_isotonic_odds_nothing() -> None:
    # Isotonic odds learn nothing from a score that decreases; unconstrained odds do.
    rng = np.random.default_rng(1)
    worlds = draw_worlds(3000, rng)
    tally = Tally.empty().add(read(0.5 - worlds + rng.normal(size=3000)), worlds)
    lean = learn_rule(tally, isotonic=True).lean[:-1]
    assert np.ptp(lean) < 0.5
    assert np.ptp(learn_rule(tally).lean[:-1]) > 2.0
