"""What a rule learns of scores, against the law they have."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import ndtr

from audit.evidence.event import Tally
from audit.evidence.rule import learn_rule
from audit.outputs.form import draw_worlds
from audit.outputs.reading import read


def right(rule: Any) -> float:
    """How often its zero cut guesses N(-1/2, 1) against N(1/2, 1) right, by their law."""
    ends = [-math.inf, *rule.cells.ends(integral=False), math.inf]
    of_a, of_b = (np.diff(ndtr(np.array(ends) - mean)) for mean in (-0.5, 0.5))
    to_b = rule.lean[: rule.cells.intervals] > 0
    return float(np.where(to_b, of_b, of_a).sum() / 2)


def test_odds_of_scores_never_fall_and_lose_next_to_nothing() -> None:
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
    # The best rule is one cut. Odds that go up and down with chance lose guesses.
    assert 0 <= 2 * np.mean(lost[True]) < np.mean(lost[False]), lost


def test_a_score_that_speaks_for_a_is_left_alone() -> None:
    # Odds that only rise say nothing of a number that falls: the mutant of the other direction.
    rng = np.random.default_rng(1)
    worlds = draw_worlds(3000, rng)
    tally = Tally.empty().add(read(0.5 - worlds + rng.normal(size=3000)), worlds)
    lean = learn_rule(tally, isotonic=True).lean[:-1]
    assert np.ptp(lean) < 0.5
    assert np.ptp(learn_rule(tally).lean[:-1]) > 2.0
