"""Tests of super arms, rewards and oracles by brute force, and of the bonuses' coverage."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.signal import fftconvolve
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, dijkstra

from bandits.combinatorial_rewards_and_oracles import (
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
from bandits.policies.combinatorial_ucb import bonus_table, cucb, laplace_quantile
from bandits.privatizers.continual_sums_per_arm import StreamPrivatizer, Totals
from bandits.super_arms import Bools, Decisions, Listed, Paths, SpanningTrees, Unions
from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import Floats
from dpcore.sampling.rng import SeededRng
from tests.support.dpcore.refusals import refused

CASCADE = ((0, 3), (1, 3), (1, 4), (2, 4), (3, 5), (4, 5))
TARGETS = (0, 1, 1, 2, 0, 2)
PAIRS = Unions(((0, 1), (2, 3), (4, 5)), 2)


def drawn(reward: Reward, outcome: np.ndarray, chosen: np.ndarray) -> float:
    """The reward of a super arm for known outcomes, from the definitions."""
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


REWARDS: list[tuple[Reward, Decisions]] = [
    (Linear(scale="1/2", offset=-1), PAIRS),
    (AtLeastOne(), PAIRS),
    (Coverage(TARGETS), PAIRS),
    (Influence(CASCADE), Influence(CASCADE).super_arms(2)),
]


each_reward = pytest.mark.parametrize(
    ("reward", "sets"), REWARDS, ids=lambda each: type(each).__name__
)


@each_reward
def test_a_mean_reward_is_the_expectation_over_all_outcomes(
    reward: Reward, sets: Decisions
) -> None:
    means = np.array([0.1, 0.9, 0.4, 0.5, 1.0, 0.25])
    outcomes = [np.array(each) for each in itertools.product((0, 1), repeat=6)]
    chances = [math.prod(np.where(each == 1, means, 1 - means).tolist()) for each in outcomes]
    for chosen in sets.listed():
        wanted = math.fsum(
            chance * drawn(reward, outcome, chosen)
            for chance, outcome in zip(chances, outcomes, strict=True)
        )
        assert float(reward.of(means, chosen[None, :])[0]) == pytest.approx(wanted, abs=1e-12)


def test_greedy_coverage_attains_its_fraction_and_is_not_always_optimal() -> None:
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


def test_the_top_k_is_optimal_for_the_probability_of_at_least_one() -> None:
    sets, reward = Unions.subsets(6, 3), AtLeastOne()
    problem = Problem(decisions=sets, reward=reward)
    values = np.random.default_rng(5).random((50, 6))
    found = reward.of(values, problem.choose(values, np.zeros(50)))
    assert found == pytest.approx([problem.best(row) for row in values])


def test_a_failing_oracle_succeeds_with_its_stated_probability() -> None:
    sets = Unions.subsets(4, 2)
    failing = Failing(of=LargestSum(sets), chance="3/4")
    values = np.tile([0.1, 0.2, 0.3, 0.4], (1000, 1))
    luck = (np.arange(1000) + 0.5) / 1000
    good = (failing.choose(values, luck) == LargestSum(sets).choose(values, luck)).all(axis=1)
    assert good.mean() == 0.75
    assert sets.contains(failing.choose(values, luck)).all()
    assert Problem(decisions=sets, oracle=failing).share == 0.75


class Wrong(Oracle):
    """An oracle that returns a given object."""

    def __init__(self, returned: object) -> None:
        self.decisions = Unions.subsets(3, 2)
        self.returned = returned

    def fits(self, reward: Reward) -> bool:
        return True

    def choose(self, values: Floats, luck: Floats) -> Bools:
        return self.returned  # type: ignore[return-value]  # deliberately of the wrong type


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (np.array([[True, False, False]]), "which are not a super arm"),
        (np.array([[True, True, True]]), "[0, 1, 2], which are not a super arm"),
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


COMPLETE = tuple(itertools.combinations(range(5), 2))
ROADS = ((0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (2, 4), (3, 4))
EVERY: list[Decisions] = [
    Unions.subsets(7, 3),
    Unions.subsets(4, 4),
    Unions.subsets(1, 1),
    Unions(((0, 1), (2,), (3, 4, 5)), 2),
    Listed(4, ((0, 1), (2, 3), (1, 3, 0))),
    Paths(ROADS),
    SpanningTrees(COMPLETE),
]


def matrix(nodes: int, edges: list[tuple[int, int]], weights: object = None) -> csr_array:
    """A graph as a SciPy sparse matrix."""
    found = np.zeros((nodes, nodes))
    for (u, v), weight in zip(edges, weights or [1.0] * len(edges), strict=True):  # type: ignore[call-overload]  # weights, if any
        found[u, v] = weight
    return csr_array(found)


def allowed(sets: Decisions, chosen: tuple[int, ...]) -> bool:
    """Whether a set of base arms is a super arm, from the definitions."""
    match sets:
        case Unions(groups=groups, chosen=count):
            whole = [group for group in groups if {*group} <= {*chosen}]
            return len(whole) == count and sum(map(len, whole)) == len(chosen)
        case Listed(sets=given):
            return {*chosen} in map(set, given)
        case Paths(edges=edges):
            graph = matrix(sets.nodes, [edges[each] for each in chosen])
            reached, before = breadth_first_order(graph, 0)
            walk = [sets.nodes - 1]
            while walk[-1] > 0:
                walk.append(int(before[walk[-1]]))
            return {*walk} == {*reached.tolist()} and len(walk) == len(chosen) + 1
        case SpanningTrees(edges=edges):
            parts, _ = connected_components(matrix(sets.nodes, [edges[each] for each in chosen]))
            return parts == 1 and len(chosen) == sets.nodes - 1
    raise AssertionError(sets)


def row(arms: int, chosen: tuple[int, ...]) -> np.ndarray:
    return np.isin(np.arange(arms), chosen)


@pytest.mark.parametrize("sets", EVERY, ids=repr)
def test_super_arms_agree_with_their_definitions(sets: Decisions) -> None:
    every = [
        chosen
        for size in range(sets.arms + 1)
        for chosen in itertools.combinations(range(sets.arms), size)
    ]
    table = np.array([row(sets.arms, chosen) for chosen in every])
    wanted = [bool(chosen) and allowed(sets, chosen) for chosen in every]
    assert sets.contains(table).tolist() == wanted
    listed = {tuple(np.flatnonzero(each).tolist()) for each in sets.listed()}
    assert listed == {chosen for chosen, there in zip(every, wanted, strict=True) if there}
    assert sets.most == max(map(len, listed))


@pytest.mark.parametrize("sets", EVERY, ids=repr)
def test_the_best_super_arm_is_the_maximum_over_all(sets: Decisions) -> None:
    values = np.random.default_rng(1).standard_normal((200, sets.arms))
    best = sets.best(values)
    assert sets.contains(best).all()
    worth = (values * best).sum(axis=1)
    assert worth == pytest.approx((values @ sets.listed().T).max(axis=1))
    # The check can fail: the smallest value is rejected.
    if len(sets.listed()) > 1:
        assert (worth > (values * sets.best(-values)).sum(axis=1)).all()


def test_too_many_super_arms_are_not_listed() -> None:
    with refused("decisions"):
        Unions.subsets(40, 20).listed()


TOP = Problem(decisions=Unions.subsets(20, 4))


def tail(draws: int, scale: float, least: float) -> float:
    """P(sum of discrete Laplace draws >= least), by convolution of the law."""
    reach = int(least) + 400
    a = math.exp(-1 / scale)
    law = (1 - a) / (1 + a) * a ** np.abs(np.arange(-reach, reach + 1))
    total = law
    for _ in range(draws - 1):
        total = fftconvolve(total, law)
    middle = len(total) // 2
    return float(total[middle + math.ceil(least) :].sum())


@pytest.mark.parametrize("draws", [1, 2, 9, 40])
@pytest.mark.parametrize("scale", [0.5, 4.0, 17.0])
def test_a_quantile_is_valid_and_nearly_tight(draws: int, scale: float) -> None:
    rare = math.log(1e6)
    (found,) = laplace_quantile(np.array([draws]), scale, rare)
    assert tail(draws, scale, found) <= 1e-6
    assert tail(draws, scale, 0.7 * found - 1) > 1e-6  # a narrower bound fails


@pytest.mark.parametrize("release", ["tree", "doubling", "factorisation"])
def test_released_sums_stay_within_their_noise_bound(release: str) -> None:
    """No miss occurs, where a third of the bonus misses often."""
    horizon, runs = 128, 10
    setting = StreamPrivatizer(
        trust="central", epsilon=1, sent=2, horizon=horizon, release=release,  # type: ignore[arg-type]  # words of a Literal, or what is refused
    )  # fmt: skip
    sums = Totals(setting, 20, [SeededRng(i) for i in range(runs)])
    cells, none = np.arange(runs * 20), np.zeros(runs * 20, dtype=np.int64)
    bonus = bonus_table(setting, 20, "exact", 4)
    rewards = np.zeros(horizon + 1)
    rewards[1:] = np.sqrt(math.log(horizon) / np.arange(1, horizon + 1))
    missed = narrow = 0
    for t in range(1, horizon + 1):
        drawn = setting.draw((len(cells),), SeededRng(10**6 + t)) if sums.each else none
        sums.add(cells, none, drawn)
        width = (bonus[t] - rewards[t]) * t
        missed += int((sums.value[sums.count == t] > width).sum())
        narrow += int((sums.value[sums.count == t] > width / 3).sum())
    assert missed == 0  # at most 200 * 128 T^-2 = 2 are expected for the weakest bound
    assert narrow > 20


def test_the_papers_bonuses_agree_with_their_formulas() -> None:
    n, log = 50, math.log(1000)
    for name, wanted in (
        ("cucb", math.sqrt(3 * log / (2 * n))),
        ("cucb-ldp1", 4 * math.sqrt(16 * log / (4 * n))),
        ("cucb-ldp2", 4 * math.sqrt(log / (4 * n))),
        ("cucb-dp", math.sqrt(4 * math.log(20 * 1000) / n) + 12 * 4 * log**3 / (2 * n)),
        ("cucb-dp2", math.sqrt(4 * math.log(20 * 1000) / n) + 12 * log**3 / (2 * n)),
    ):
        policy = cucb(name, TOP, horizon=1000, epsilon=2, radius="paper")  # type: ignore[arg-type]  # words of a Literal, or what is refused
        assert policy.bonuses()[n] == pytest.approx(wanted)
    twice = cucb("cucb-ldp2", TOP, horizon=1000, epsilon=2, radius="paper", c=8).bonuses()
    assert twice[n] == pytest.approx(8 * math.sqrt(log / (4 * n)))
