"""Tests of the exponential mechanism and similar choices: law, sampler and privacy loss."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from accounting import guarantee
from audit.targets.local_and_selection import law_of
from dpcore import DiscreteLaplace, Mechanism, SeededRng, Sensitivity
from dpcore.errors import InvalidParameter
from dpcore.sampling.rng import Rng, Words
from dpcore.selection import AboveThreshold, MaxNoise, NoisyMax, NoisyThreshold, Rule, Selection
from dpcore.selection.exponential_and_permute_and_flip import _flip
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day, effort
from tests.support.dpcore.cells import least_p
from tests.support.enumerate_random_choices import exp_neg, unroll

SCORES = ([0, 1, 3], [5, 5, 5, 2], [7], [-2, 0])
BOTH = pytest.mark.parametrize("rule", list(Rule))


def by_listing(rule: Rule, scores: list[int], unit: Fraction) -> list[float]:
    """Sum over every order and every outcome of the coins."""
    coins = [math.exp(-(max(scores) - u) * unit) for u in scores]
    if rule is Rule.EXPONENTIAL:
        return [c / sum(coins) for c in coins]
    found, orders = [0.0] * len(scores), [*itertools.permutations(range(len(scores)))]
    for order in orders:
        left = 1.0
        for i in order:
            found[i] += left * coins[i] / len(orders)
            left *= 1 - coins[i]
    return found


@BOTH
@pytest.mark.parametrize("scores", SCORES)
def test_the_law_of_a_selection_agrees_with_the_papers(rule: Rule, scores: list[int]) -> None:
    choice = Selection(epsilon="3/2", sensitivity=2, rule=rule)
    found = [each.enclose(64).upper_float for each in choice.law(scores)]
    assert np.allclose(found, by_listing(rule, scores, choice.unit), rtol=1e-12)
    assert sum(choice.law(scores)) == 1


@by_day(1)
@BOTH
def test_the_reference_sampler_of_a_selection_has_its_law(rule: Rule) -> None:
    """Every path of the reference, with its exact weight: a false alarm is impossible."""
    choice = Selection(epsilon=1, sensitivity=1, rule=rule)
    scores = [0, 1]
    law = unroll(lambda rng: choice.reference(scores, rng))
    for index, mass in enumerate(choice.law(scores)):
        least = law.lower.get(index, Fraction(0))
        assert least <= mass <= least + law.leftover
    other = Selection(epsilon=2, sensitivity=1, rule=rule).law(scores)[1]
    assert not law.lower[1] <= other <= law.lower[1] + law.leftover  # the mutant


@BOTH
def test_the_fast_sampler_of_a_selection_has_its_law(rule: Rule) -> None:
    choice, scores, rng = Selection(epsilon=2, sensitivity=1, rule=rule), [0, 1, 3, 3], SeededRng(5)
    drawn: list[Any] = [choice.release(scores, rng=rng) for _ in range(1000)]
    alpha = buy_alpha(f"selection by {rule.value}: cells", "1e-9")

    def fits(epsilon: int) -> bool:
        law = Selection(epsilon=epsilon, sensitivity=1, rule=rule).law(scores)
        chances = {i: each.enclose(64).lower_float for i, each in enumerate(law)}
        return least_p(drawn, chances) > alpha

    assert fits(2)
    assert not fits(4)
    beyond_floats = Selection(epsilon=10**400, sensitivity=1, rule=rule)
    assert beyond_floats.release([0, 5, 9, 8], rng=SeededRng(1)) == 2


class Words1(Rng):
    """Returns the same word for every coin, and no other bits."""

    def __init__(self, word: int, more: int = 1) -> None:
        self.word, self.more, self.asked = word, more, 0

    def bits(self, count: int) -> int:
        self.asked += 1
        return self.more & ((1 << count) - 1)

    def words(self, count: int) -> Words:
        return np.full(count, self.word, dtype=np.uint64)


@pytest.mark.parametrize("unit", [Fraction(1, 3), Fraction(7, 2), Fraction(1, 10**9)])
def test_coins_are_decided_exactly(unit: Fraction) -> None:
    gaps = np.array([0, 1, 2, 5, 12, 40, 190, 400, 10**6], dtype=np.int64)
    words = [0, 1 << 11, (1 << 64) - 1, 1 << 63]
    for gap in gaps.tolist():
        chance = exp_neg(gap * unit, 128)
        near = math.floor(chance.lower * (1 << 53)) << 11
        words += [w for w in (near - (1 << 11), near, near + (1 << 11)) if 0 <= w < 1 << 64]
    for word in words:
        for more in (1, (1 << 64) - 1):  # never 0: an endless run of zeros decides nothing
            found = _flip(gaps, unit, Words1(word, more))
            # 53 bits of the word, then as many further bits as are requested, all equal.
            whole = ((word >> 11) << 640) | (sum(more << (64 * i) for i in range(10)))
            for gap, heads in zip(gaps.tolist(), found.tolist(), strict=True):
                chance = exp_neg(gap * unit, 900)
                assert heads == (Fraction(whole, 1 << 693) < Fraction(chance.lower))


def test_several_choices_are_distinct_and_share_epsilon() -> None:
    choice = Selection(epsilon=40, sensitivity=1, count=3)
    found: Any = choice.release([1, 90, 60, 30, 2], rng=SeededRng(2))
    assert found.tolist() == [1, 2, 3]
    assert choice.unit == Fraction(40, 6)
    four = Selection(epsilon=1, sensitivity=1, count=4)
    assert sorted(np.atleast_1d(four.release([0] * 4)).tolist()) == [0, 1, 2, 3]
    # A row of scores for each choice: each has its own selection, with its share of epsilon.
    rows, rng, same = [[0, 2, 1], [5, 4, 4]], SeededRng(3), SeededRng(3)
    both, one = Selection(epsilon=2, sensitivity=1, count=2), Selection(epsilon=1, sensitivity=1)
    for _ in range(50):
        found = both.release(rows, rng=rng)
        assert found.tolist() == [one.release(row, rng=same) for row in rows]


def test_invalid_selections_are_refused() -> None:
    wrong: tuple[dict[str, Any], ...] = (
        {"epsilon": 0, "sensitivity": 1},
        {"epsilon": 1, "sensitivity": 0},
        {"epsilon": 1, "sensitivity": 1, "count": 0},
        {"epsilon": 1, "sensitivity": 1, "rule": "best"},
        {"epsilon": 1, "sensitivity": 1, "monotonic": 1},
    )
    for given in wrong:
        with pytest.raises(InvalidParameter):
            Selection(**given)
    choice = Selection(epsilon=1, sensitivity=1, count=2)
    bad: list[Any] = [[], [1], [[1, 2]], [[1, 2]] * 3, [[], []], [[1, 2], [3]], [0.5, 1]]
    bad += [["a", "b"], [1 << 60, 0]]
    for scores in bad:
        with pytest.raises(InvalidParameter, match="value"):
            choice.release(scores)


def test_a_threshold_releases_the_counts_that_reach_it() -> None:
    noise = DiscreteLaplace(scale="1/100")  # e^-100: practically no noise
    held = Mechanism(noise=noise, sensitivity=Sensitivity.l1(1))
    release = NoisyThreshold(mechanism=held, threshold=5)
    assert release.release({"b": 5, "a": 9, "c": 4}) == {"a": 9, "b": 5}
    assert release.release({}) == {}
    for wrong in ({"a": 0}, {"a": 1.5}, [3]):
        with pytest.raises(InvalidParameter, match="value"):
            release.release(wrong)  # type: ignore[arg-type]  # deliberately of the wrong type


ONE: dict[str, Any] = {"epsilon": 1, "sensitivity": 1, "monotonic": True}
# Each with the number of scores, for which all changes are tried.
MECHANISMS: dict[str, tuple[Any, int]] = {
    "flip": (Selection(**ONE), 3),
    "lead": (NoisyMax(**ONE, noise=MaxNoise.LAPLACE, gap=True), 2),
    "gap": (AboveThreshold(**ONE, threshold=1, gap=True), 2),
    "exponential": (Selection(**ONE, rule=Rule.EXPONENTIAL), 3),
    "flip-two": (Selection(**ONE, count=2), 3),
    "exponential-noise": (NoisyMax(**ONE), 2),
    "laplace": (NoisyMax(**ONE, noise=MaxNoise.LAPLACE), 2),
    "above": (AboveThreshold(**ONE, threshold=1), 3),
    "above-two": (AboveThreshold(**ONE, threshold=1, count=2), effort(2, 3)),
}
WITH, AGAINST = (0, 1), (-1, 0, 1)


@cache
def law(mechanism: Any, scores: tuple[int, ...]) -> dict[Any, Fraction]:
    found = law_of(mechanism, [*scores], scores)
    return {outcome: Fraction(mass.enclose(96).upper) for outcome, mass in found.items()}


def largest_loss(mechanism: Any, size: int, steps: Sequence[int]) -> float:
    """The largest privacy loss over small scores, and all changes of each by one of ``steps``."""
    ratios = [Fraction(1)]
    for scores, move in product(product((0, 2), repeat=size), product(steps, repeat=size)):
        p, q = (
            law(mechanism, scores),
            law(mechanism, tuple(map(sum, zip(scores, move, strict=True)))),
        )
        ratios += [p[x] / q[x] for x in p] + [q[x] / p[x] for x in p]
    return math.log(max(ratios))


@by_day(4)
@pytest.mark.parametrize("name", MECHANISMS)
def test_no_neighbours_exceed_epsilon_and_half_of_the_noise_only_if_monotonic(name: str) -> None:
    half, size = MECHANISMS[name]
    whole = replace(half, monotonic=False)
    found, against = (largest_loss(half, size, steps) for steps in (WITH, AGAINST))
    assert 0.25 < found <= 1 + 1e-12
    assert against > 1.2 * found
    assert against > 1 or name in ("above-two", "gap")  # with more answers they exceed it
    assert guarantee(half).pure().upper == guarantee(whole).pure().upper == 1
    assert 0.25 < largest_loss(whole, effort(2, size), AGAINST) <= 1 + 1e-12


def test_the_noise_of_monotonic_scores_is_half_as_wide() -> None:
    assert Selection(**ONE, count=3).unit == Fraction(1, 3)
    assert NoisyMax(**ONE).scale == 1
    assert [*AboveThreshold(**ONE, threshold=0, count=3).scales] == [Fraction(5, 2), 5]
