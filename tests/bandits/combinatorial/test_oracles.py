"""Rewards by expectations over all outcomes; oracles by trying every super arm."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from bandits.combinatorial.decisions import Bools, Unions
from bandits.combinatorial.problem import (
    AtLeastOne,
    Coverage,
    Exhaustive,
    Failing,
    GreedyCoverage,
    Influence,
    LargestSum,
    Linear,
    Oracle,
    Problem,
    Reward,
)
from dpcore.errors import InvalidParameter
from dpcore.numbers.floating import Floats
from tests.support.dpcore.refusals import refused

CASCADE = ((0, 3), (1, 3), (1, 4), (2, 4), (3, 5), (4, 5))
TARGETS = (0, 1, 1, 2, 0, 2)
PAIRS = Unions(((0, 1), (2, 3), (4, 5)), 2)


def drawn(reward: Reward, outcome: np.ndarray, chosen: np.ndarray) -> float:
    """The reward of a super arm when outcomes are known, from what the words mean."""
    held = np.flatnonzero(chosen & (outcome == 1))
    match reward:
        case Linear(scale=scale, offset=offset):
            return float(scale) * float((outcome[chosen] + float(offset)).sum())
        case AtLeastOne():
            return float(len(held) > 0)
        case Coverage(targets=targets):
            return float(len({targets[arm] for arm in held}))
        case Influence(edges=edges):
            nodes = 1 + max(v for _, v in edges)
            there = np.zeros((nodes, nodes))
            for i in np.flatnonzero(outcome):
                there[edges[i]] = 1
            seeds = {edges[i][0] for i in np.flatnonzero(chosen)} & {*reward.sources}
            far = dijkstra(csr_array(there), indices=sorted(seeds), unweighted=True)
            return float(np.isfinite(far).any(axis=0).sum())
    raise AssertionError(reward)


REWARDS = [
    (Linear(scale="1/2", offset=-1), PAIRS),
    (AtLeastOne(), PAIRS),
    (Coverage(TARGETS), PAIRS),
    (Influence(CASCADE), Influence(CASCADE).super_arms(2)),
]


@pytest.mark.parametrize(("reward", "sets"), REWARDS, ids=lambda each: type(each).__name__)
def test_a_mean_reward_is_the_expectation_over_all_outcomes(reward: Reward, sets: object) -> None:
    means = np.array([0.1, 0.9, 0.4, 0.5, 1.0, 0.25])
    outcomes = [np.array(each) for each in itertools.product((0, 1), repeat=6)]
    chances = [math.prod(np.where(each == 1, means, 1 - means).tolist()) for each in outcomes]
    for chosen in sets.listed():  # type: ignore[attr-defined]  # of this kind of super arms or sums
        wanted = math.fsum(
            chance * drawn(reward, outcome, chosen)
            for chance, outcome in zip(chances, outcomes, strict=True)
        )
        assert float(reward.of(means, chosen[None, :])[0]) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(("reward", "sets"), REWARDS, ids=lambda each: type(each).__name__)
def test_rewards_are_monotone_and_as_smooth_as_they_say(reward: Reward, sets: object) -> None:
    world = np.random.default_rng(3)
    listed, most = sets.listed(), sets.most  # type: ignore[attr-defined]  # of this kind of super arms or sums
    steepest = 0.0
    for _ in range(200):
        low, more = world.random((2, 6))
        high = low + (1 - low) * more
        apart = (high - low) * listed
        risen = reward.of(high, listed) - reward.of(low, listed)
        assert (risen >= -1e-12).all()
        assert (risen <= reward.b1 * apart.sum(axis=1) + 1e-12).all()
        assert (risen <= reward.b_infinity(most) * apart.max(axis=1) + 1e-12).all()
        steepest = max(steepest, float((risen / apart.sum(axis=1)).max()))
    assert steepest > reward.b1 / 20  # a constant far too large would pass everything


def test_greedy_coverage_keeps_its_share_and_is_not_always_best() -> None:
    groups = Unions(tuple((i, i + 1) for i in range(0, 12, 2)), 3)
    reward = Coverage((0, 1, 1, 2, 2, 3, 3, 4, 4, 0, 0, 2))
    greedy = GreedyCoverage(groups, reward)
    values = np.random.default_rng(4).random((400, 12)) ** 0.2
    chosen = greedy.choose(values, np.zeros(400))
    assert groups.contains(chosen).all()
    every = groups.listed()
    best = np.array([reward.of(row, every).max() for row in values])
    found = reward.of(values, chosen)
    assert (found >= greedy.alpha * best).all()
    assert (found < best - 1e-9).any()
    exact = Exhaustive(groups, reward).choose(values, np.zeros(400))
    assert reward.of(values, exact) == pytest.approx(best)


def test_the_top_k_is_best_for_at_least_one() -> None:
    sets, reward = Unions.subsets(6, 3), AtLeastOne()
    problem = Problem(decisions=sets, reward=reward)
    values = np.random.default_rng(5).random((50, 6))
    found = reward.of(values, problem.choose(values, np.zeros(50)))
    assert found == pytest.approx([problem.best(row) for row in values])


def test_an_oracle_that_fails_succeeds_as_often_as_it_says() -> None:
    sets = Unions.subsets(4, 2)
    failing = Failing(of=LargestSum(sets), chance="3/4")
    values = np.tile([0.1, 0.2, 0.3, 0.4], (1000, 1))
    luck = (np.arange(1000) + 0.5) / 1000
    good = (failing.choose(values, luck) == LargestSum(sets).choose(values, luck)).all(axis=1)
    assert good.mean() == 0.75
    assert sets.contains(failing.choose(values, luck)).all()
    assert Problem(decisions=sets, oracle=failing).share == 0.75


class Wrong(Oracle):
    """An oracle that returns what it is told to."""

    def __init__(self, returned: object) -> None:
        self.decisions = Unions.subsets(3, 2)
        self.returned = returned

    def fits(self, reward: Reward) -> bool:
        return True

    def choose(self, values: Floats, luck: Floats) -> Bools:
        return self.returned  # type: ignore[return-value]  # what is refused


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (np.array([[True, False, False]]), "which are no super arm"),
        (np.array([[True, True, True]]), "[0, 1, 2], which are no super arm"),
        (np.array([[1, 1, 0]]), "a boolean for each base arm"),
        (np.array([True, True, False]), "a boolean for each base arm"),
        (None, "a boolean for each base arm"),
    ],
)
def test_an_infeasible_set_is_refused_by_name(returned: object, reason: str) -> None:
    problem = Problem(decisions=Unions.subsets(3, 2), oracle=Wrong(returned))
    with pytest.raises(InvalidParameter, match="oracle = Wrong") as caught:
        problem.choose(np.zeros((1, 3)), np.zeros(1))
    assert reason in str(caught.value)


def test_a_problem_is_refused_where_its_parts_do_not_fit() -> None:
    reward = Coverage(TARGETS)
    for argument, parts in (
        ("decisions", {"decisions": 3}),
        ("reward", {"decisions": PAIRS, "reward": "linear"}),
        ("oracle", {"decisions": PAIRS, "oracle": LargestSum(Unions.subsets(6, 4))}),
        ("oracle", {"decisions": PAIRS, "reward": reward}),
        ("oracle", {"decisions": PAIRS, "reward": AtLeastOne()}),
        ("oracle", {"decisions": PAIRS, "oracle": Exhaustive(PAIRS, reward)}),
        ("oracle", {"decisions": PAIRS, "oracle": LargestSum(PAIRS, -1)}),
    ):
        with refused(argument):
            Problem(**parts)
    for make, argument in (
        (lambda: Linear(scale=0), "scale"),
        (lambda: Coverage(()), "targets"),
        (lambda: Coverage((0, -1)), "targets"),
        (lambda: GreedyCoverage(PAIRS, Coverage((0,))), "targets"),
        (lambda: Influence(()), "edges"),
        (lambda: Influence(((0, 1), (1, 0))), "edges"),
        (lambda: Influence(tuple((0, i) for i in range(1, 14))), "edges"),
        (lambda: Failing(of=LargestSum(PAIRS), chance=1), "chance"),
    ):
        with refused(argument):
            make()
