"""Tests of linear and combinatorial worlds: covers, hard instances and their lower bounds."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.spatial import KDTree

from bandits.actions import Actions, LinearModel, Shape, cover
from bandits.batch import Ask, Encoding
from bandits.combinatorial_rewards_and_oracles import Problem
from bandits.super_arms import Unions
from bandits.worlds import PRESETS, preset_of
from bandits.worlds.combinatorial import (
    GAP,
    BitWorld,
    hard_mab,
    hard_paths,
    hard_public,
    lower_bound,
)
from bandits.worlds.linear import CoveredWorld, LinearWorld
from dpcore.numbers.arrays import Floats
from tests.alpha_budget import buy_alpha
from tests.support.dpcore.refusals import refused

CHANCES = (0.5, 0.5, 0.9, 0.2)
TOP = Problem(decisions=Unions.subsets(4, 2))
COMBINATORIAL = [preset.name for preset in PRESETS if preset.kind == "combinatorial"]


def joint(together: tuple[int, ...] | None, rounds: int) -> dict[tuple[int, ...], int]:
    world = BitWorld(of=TOP, chances=CHANCES, together=together)
    rows, counts = np.unique(
        world.outcomes(rounds, np.random.default_rng(9)), axis=0, return_counts=True
    )
    return {tuple(row.tolist()): int(n) for row, n in zip(rows, counts, strict=True)}


def law(together: tuple[int, ...]) -> dict[tuple[int, ...], float]:
    """The joint law, from intervals of the uniform number of each group."""
    found: dict[tuple[int, ...], float] = {}
    groups = sorted({*together})
    cuts = [sorted({0.0, 1.0, *(CHANCES[i] for i in range(4) if together[i] == g)}) for g in groups]
    for cell in np.ndindex(*(len(cut) - 1 for cut in cuts)):
        chance, row = 1.0, [0] * 4
        for g, place in zip(groups, cell, strict=True):
            low, high = cuts[g][place], cuts[g][place + 1]
            chance *= high - low
            for i in range(4):
                if together[i] == g:
                    row[i] = int(low < CHANCES[i])
        found[tuple(row)] = found.get(tuple(row), 0.0) + chance
    return found


@pytest.mark.parametrize("together", [(0, 1, 2, 3), (0, 0, 0, 0), (0, 0, 1, 1), (1, 0, 1, 0)])
def test_outcomes_have_their_joint_distribution(together: tuple[int, ...]) -> None:
    alpha = buy_alpha(f"joint law of base arms {together}", "1e-10")
    rounds = 20_000
    seen, wanted = joint(together, rounds), law(together)
    assert set(seen) <= set(wanted)
    cells = [cell for cell, chance in wanted.items() if chance * rounds > 5]
    observed = np.array([seen.get(cell, 0) for cell in cells])
    expected = np.array([wanted[cell] for cell in cells])
    expected *= observed.sum() / expected.sum()
    if len(cells) > 1:
        assert stats.chisquare(observed, expected).pvalue > alpha
    # The mutant: another dependence structure is rejected.
    other = law((0, 1, 2, 3) if together != (0, 1, 2, 3) else (0, 0, 1, 1))
    share = np.array([other.get(cell, 0.0) for cell in cells])
    assert abs(share - observed / rounds).max() > 0.02


@pytest.mark.parametrize("name", COMBINATORIAL)
def test_all_worlds_of_a_preset_share_one_problem(name: str) -> None:
    preset = preset_of(name)
    worlds = preset.worlds(3)
    first = worlds.environments[0].model
    assert isinstance(first, Problem)
    assert all(world.model == first for world in worlds.environments)
    assert (first.arms, first.most) == (preset.arms, preset.super_arm)
    assert worlds.digest() == preset.worlds(3).digest() != preset.worlds(2).digest()
    assert len({world.means for world in worlds.environments}) in (1, 3)


def test_a_world_without_super_arms_refuses_their_size() -> None:
    for name in ("cz/easy", "lzj/fig2"):
        with refused("super_arm"):
            preset_of(name).worlds(1, super_arm=3)


@pytest.mark.parametrize(
    ("make", "arms", "size"), [(hard_mab, 20, 1), (hard_paths, 20, 4), (hard_public, 20, 4)]
)
def test_all_super_arms_but_the_best_are_worse_by_one_gap(make: Any, arms: int, size: int) -> None:
    for seed in range(3):
        world = make(seed, arms, size)
        every = world.of.decisions.listed()
        rewards = np.sort(world.of.reward.of(np.array(world.means), every))
        gaps = rewards[-1] - rewards
        assert gaps[-1] == 0
        assert gaps[:-1] == pytest.approx(GAP * size)
        assert world.of.most == size
        assert (every.sum(axis=1) == size).all()
    assert len(hard_public(0, 20, 4).of.decisions.listed()) == 1 + 20 - 2 * 4 + 1


def test_lower_bounds_agree_with_the_theorems() -> None:
    at = {"horizon": 10**4, "epsilon": "1/2"}
    log, local = math.log(10**4), 64 * (math.exp(0.5) - 1) ** 2
    for name, arms, size, wanted in (
        ("csb/hard-mab", 20, 1, 19 / (local * GAP) * log),
        ("csb/hard-paths", 20, 4, 16 * 4 / (local * GAP * 4) * log),
        ("csb/hard-public", 20, 4, 80 * (1 / (GAP * 4) + 2) * log),
    ):
        found = lower_bound(name, arms=arms, super_arm=size, **at)  # type: ignore[arg-type]  # both are numbers
        assert found is not None
        assert found.regret == pytest.approx(wanted)
    assert lower_bound("csb/topk", arms=20, super_arm=2, **at) is None  # type: ignore[arg-type]  # as above


FINE = Encoding(precision=1 << 30, low=-64, high=64)


def sums(world: LinearWorld, ask: Ask, runs: int, seed: int) -> Floats:
    """Sums of unclipped rewards, one row per run."""
    coins = np.random.default_rng(seed)
    held = np.array([world.encoded_sums(ask, FINE, coins) for _ in range(runs)], dtype=np.float64)
    return held / (1 << 30) * 128 - 64 * ask.users


def test_shared_rounds_have_the_covariance_of_the_model() -> None:
    """Averages over T(x) rounds: 1/T(x) for the noise, sigma^2 <x, x'> for the clients."""
    points = np.array([[0.6, 0.8], [1.0, 0.0], [0.0, 0.5]])
    world = LinearWorld(of=LinearModel(actions=Actions(points), deviation="1/2"), theta=(0.3, -0.4))
    times, users, runs = (4, 1, 9), 5, 4000
    found = sums(world, Ask(users, (0, 1, 2), times), runs, 3)
    expected = users * (0.25 * points @ points.T + np.diag(1 / np.array(times)))
    mean = users * (points @ np.array(world.theta))
    spread = np.sqrt(np.diag(expected) / runs)
    assert (np.abs(found.mean(axis=0) - mean) < 6 * spread).all()
    seen = np.cov(found.T)
    off = np.abs(seen - expected).max()
    alone = users * np.diag(0.25 * (points**2).sum(axis=1) + 1 / np.array(times))
    assert off < 0.25
    assert np.abs(seen - alone).max() > 0.5  # detects clients who draw xi anew for each action


def test_own_rounds_have_the_variance_of_one_reward() -> None:
    world = LinearWorld(
        of=LinearModel(actions=Actions(np.array([[0.6, 0.0]])), deviation="1/2"), theta=(1.0, 0.0)
    )
    found = sums(world, Ask(8, (0,)), 3000, 5)[:, 0]
    alpha = buy_alpha("linear world: own rounds are normal", "1e-9")
    law = stats.norm(8 * 0.6, math.sqrt(8 * (1 + 0.25 * 0.36)))
    assert stats.kstest(found, law.cdf).pvalue > alpha
    assert stats.kstest(found, stats.norm(8 * 0.6, math.sqrt(8)).cdf).statistic > 0.01


def test_means_account_for_the_clipping_of_the_encoding() -> None:
    world = LinearWorld(
        of=LinearModel(actions=Actions(np.array([[1.0]])), deviation=0), theta=(1.0,)
    )
    encoding = Encoding(precision=1 << 20, low=-2, high=2)
    total = world.encoded_sums(Ask(200_000, (0,)), encoding, np.random.default_rng(1))[0]
    mean = total / 200_000 / (1 << 20) * 4 - 2
    # E clip(N(1, 1)) = 1 - E(Z - 1)^+ + E(-Z - 3)^+.
    above = stats.norm.pdf(1) - stats.norm.sf(1)
    below = stats.norm.pdf(3) - 3 * stats.norm.sf(3)
    assert mean == pytest.approx(1 - above + below, abs=0.01)
    assert abs(mean - 1) > 0.05


@pytest.mark.parametrize(("name", "size"), [("lzj/ball", 311), ("lzj/box", 64)])
def test_the_regret_of_a_cover_is_measured_against_the_whole_set(name: str, size: int) -> None:
    for world in preset_of(name).worlds(3, arms=size).environments:
        assert isinstance(world, CoveredWorld)
        theta = np.array(world.theta)
        # The best point, by a search over many points of the set.
        coins = np.random.default_rng(5)
        if world.shape == "ball":
            drawn = coins.standard_normal((200_000, 3))
            drawn /= np.sqrt((drawn * drawn).sum(axis=1))[:, None]
        else:
            drawn = np.array([*product((-1, 0.3, 1), repeat=3)]) / math.sqrt(3)
        best = float((drawn @ theta).max())
        gaps = np.array(world.gaps)
        assert np.abs(gaps - (best - np.array(world.means))).max() < 1e-3
        assert 0 <= gaps.min() <= 1 / 4
        # Relative to the best action of the cover, the smallest gap would be 0.
        alone = LinearWorld(of=world.of, theta=world.theta)
        assert min(alone.gaps) == 0 < min(world.gaps)


def somewhere(shape: Shape, dimension: int) -> Floats:
    """Points of the set, many of them on its boundary, where a cover fails first."""
    coins = np.random.default_rng(3)
    if shape == "box":
        points = coins.uniform(-1, 1, (4000, dimension)) / math.sqrt(dimension)
        points[:1000] = np.sign(points[:1000]) / math.sqrt(dimension)
        return points
    drawn = coins.standard_normal((4000, dimension))
    drawn /= np.sqrt((drawn * drawn).sum(axis=1))[:, None]
    drawn[2000:] *= coins.uniform(0, 1, (2000, 1))
    return drawn


def farthest(actions: Actions, points: Floats) -> float:
    return float(KDTree(actions.points).query(points)[0].max())


CASES: list[tuple[Shape, int, str]] = [
    ("ball", 1, "1/3"), ("ball", 2, "1/4"), ("ball", 3, "0.3"), ("ball", 4, "1/2"),
    ("box", 1, "1/10"), ("box", 2, "0.07"), ("box", 3, "1/5"), ("box", 5, "1/2"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "dimension", "radius"), CASES)
def test_every_point_is_near_an_action(shape: Shape, dimension: int, radius: str) -> None:
    actions = cover(shape, dimension, radius)
    far = float(Fraction(radius))
    assert farthest(actions, somewhere(shape, dimension)) <= far * (1 + 1e-12)
    # The cover is no cover for half the radius, and has at most as many actions as the remark
    # states.
    assert farthest(actions, somewhere(shape, dimension)) > far / 2
    assert actions.count <= (3 / far) ** dimension
    assert np.unique(actions.points, axis=0).shape == actions.points.shape
    if shape == "box":
        assert actions.count == math.ceil(1 / far * (1 - 1e-9)) ** dimension
        assert np.abs(actions.points).max() <= 1 / math.sqrt(dimension)
