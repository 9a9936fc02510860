"""Tests of combinatorial runs: against plain Python, batched against single, degenerate inputs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from bandits import play_combinatorial
from bandits.combinatorial_rewards_and_oracles import Problem
from bandits.play import Run
from bandits.play_combinatorial import Coins, Game, play_together
from bandits.policies.combinatorial_ucb import Cucb, CucbName, cucb
from bandits.privatizers.continual_sums_per_arm import StreamRelease, Tables
from bandits.super_arms import Unions
from bandits.worlds.combinatorial import (
    BitWorld,
    correlated,
    coverage,
    hard_paths,
    influence,
    path,
    top_k,
    tree,
)
from dpcore.errors import InvalidParameter
from dpcore.sampling.rng import SeededRng, SystemRng
from tests.day_and_nightly import by_day

EVERY: tuple[CucbName, ...] = ("cucb", "cucb-ldp1", "cucb-ldp2", "cucb-dp", "cucb-dp2")


def coins(seed: int) -> Coins:
    return Coins(world=np.random.default_rng(seed), rng=SeededRng(seed))


def played(policy: Cucb, world: BitWorld, seed: int = 1, **more: object) -> Run:
    return play_together(policy, [world], [coins(seed)], **more)[0]  # type: ignore[arg-type]  # words of a Literal, or what is refused


def by_hand(policy: Cucb, world: BitWorld, seed: int) -> tuple[list[int], float]:
    """Pulls and regret by Algorithms 1 to 3, round by round in plain Python, with local noise or
    none.

    Coins are read in the same blocks, so that both results are comparable.
    """
    m, horizon, own = world.arms, policy.privatizer.horizon, coins(seed)
    outcomes = world.outcomes(horizon, own.world)
    lots = own.world.random((horizon, m + 1))
    sent = policy.privatizer.sent
    local = policy.privatizer.trust == "local"
    noise = policy.privatizer.draw((horizon, sent), own.rng) if local else np.zeros((horizon, sent))
    sums, counts, pulls, regret = [0.0] * m, [0] * m, [0] * m, 0.0
    bonus, best = policy.bonuses(), policy.problem.best(np.array(world.means))
    for t in range(horizon):
        if 0 in counts:
            bounds = [float(count == 0) for count in counts]
        else:
            bounds = [min(sums[i] / counts[i] + bonus[counts[i]], 1.0) for i in range(m)]
        score = bounds + lots[t, :m] * 1e-9
        chosen = sorted(sorted(range(m), key=lambda i: -score[i])[: policy.problem.most])
        if policy.least:
            told = [min(chosen, key=lambda i: counts[i] + lots[t, i] * 1e-9)]
        else:
            told = chosen
        for place, arm in enumerate(told):
            sums[arm] += int(outcomes[t, arm]) + int(noise[t, place])
            counts[arm] += 1
        for arm in chosen:
            pulls[arm] += 1
        regret += best - sum(world.means[i] for i in chosen)
    return pulls, regret


UNEVEN = Problem(decisions=Unions(((0,), (4, 2), (3, 1, 5)), 2))


@by_day(2)
@pytest.mark.parametrize("release", ["tree", "doubling", "factorisation"])
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    "problem", [top_k(0, 9, 4).of, hard_paths(0, 8, 2).of, UNEVEN], ids=["top", "paths", "uneven"]
)
def test_compiled_rounds_equal_those_of_the_tables(
    name: CucbName, release: StreamRelease, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal numbers, also with ties. Without numba the source of the loop is interpreted."""
    monkeypatch.setattr(play_combinatorial, "find_spec", lambda _: True)
    policy = cucb(name, problem, horizon=1500, epsilon=4, release=release)
    chances = (0.9, 0.5, 0.5, 0.4, 0.1, 0.1, 0.2, 0.3, 0.8)[: problem.arms]
    world = BitWorld(of=problem, chances=chances)

    def games(tie: float) -> list[Game]:
        monkeypatch.setattr(play_combinatorial, "_TIE", tie)
        both = [
            Game(policy, [world] * 2, [coins(seed) for seed in range(2)], compiled=compiled)
            for compiled in (False, True)
        ]
        for size in (300, 100, 50):
            one, other = (game.play(size) for game in both)
            assert np.array_equal(one, other)
        return both

    for tie in (1e-9, 0.0):
        tables, loop = games(tie)
        assert loop.compiled
        assert not loop.waiting  # the compiled loop was used
        assert np.array_equal(tables.bounds, loop.bounds)
        assert np.array_equal(tables.sent, loop.sent)
        for table in Tables._fields:
            one, other = (getattr(game.sums.tables(), table) for game in (tables, loop))
            assert np.array_equal(one, other)


def test_without_numba_or_unions_the_tables_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiles(of: BitWorld) -> bool:
        game = Game(cucb("cucb", of.of, horizon=600), [of], [coins(1)], compiled=True)
        game.play(600)
        return game.compiled

    assert not compiles(path(0, 12, 4))
    monkeypatch.setattr(play_combinatorial, "find_spec", lambda _: None)
    assert not compiles(top_k(0, 5, 2))


@pytest.mark.parametrize("name", ["cucb", "cucb-ldp1", "cucb-ldp2"])
def test_a_run_equals_the_algorithm_round_by_round(name: CucbName) -> None:
    world = top_k(3, 6, 3)
    policy = cucb(name, world.of, horizon=500, epsilon=2, radius="paper", c=2)
    pulls, regret = by_hand(policy, world, 5)
    run = played(policy, world, 5)
    assert list(run.pulls) == pulls
    assert run.regret[-1] == pytest.approx(regret)
    other = played(replace(policy, clip=2), world, 5)
    assert list(other.pulls) != pulls  # the clipping is part of the algorithm


@by_day(2)
@pytest.mark.parametrize("release", ["tree", "doubling", "factorisation"])
@pytest.mark.parametrize("name", EVERY)
def test_runs_played_together_equal_single_runs(name: CucbName, release: str) -> None:
    worlds = [top_k(i, 6, 3) for i in range(2)]
    policy = cucb(name, worlds[0].of, horizon=530, release=release)  # type: ignore[arg-type]  # words of a Literal, or what is refused
    at = (1, 100, 512, 513, 530)
    together = play_together(policy, worlds, [coins(i) for i in range(2)], checkpoints=at)
    alone = [played(policy, world, i, checkpoints=at) for i, world in enumerate(worlds)]
    assert list(together) == alone
    assert len({run.pulls for run in together}) == 2
    for run in together:
        assert list(run.regret) == sorted(run.regret)
        assert sum(run.pulls) == 3 * 530
        assert run.numbers == 530 * policy.privatizer.sent


@by_day(3)
@pytest.mark.parametrize(
    ("make", "arms", "size"),
    [
        (top_k, 10, 2), (correlated, 10, 2), (coverage, 12, 4), (path, 12, 4), (tree, 6, 3),
        (influence, 10, 6),
    ],
    ids=["top-k", "correlated", "coverage", "path", "tree", "influence"],
)  # fmt: skip
def test_regret_decreases_in_every_world(
    make: Callable[[int, int, int], BitWorld], arms: int, size: int
) -> None:
    """The second half of a run has less regret than the first half, and than random play."""
    worlds = [make(i, arms, size) for i in range(3)]
    policy = cucb("cucb", worlds[0].of, horizon=1500)
    runs = play_together(policy, worlds, [coins(i) for i in range(3)], checkpoints=(750, 1500))
    first = math.fsum(run.regret[0] for run in runs)
    both = math.fsum(run.regret[1] for run in runs)
    assert both - first < first
    share = worlds[0].of.share
    for world, run in zip(worlds, runs, strict=True):
        every = world.of.decisions.listed()
        rewards = world.of.reward.of(np.array(world.means), every)
        assert run.regret[-1] / 1500 < share * rewards.max() - rewards.mean()


@by_day(1)
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    ("arms", "size", "horizon"), [(1, 1, 1), (1, 1, 50), (4, 4, 4), (3, 3, 60)]
)
def test_degenerate_instances_are_played(
    name: CucbName, arms: int, size: int, horizon: int
) -> None:
    world = top_k(0, arms, size)
    for release in ("tree", "doubling", "factorisation"):
        policy = cucb(name, world.of, horizon=horizon, release=release)
        run = played(policy, world)
        assert run.regret == (0.0,)  # all arms are always played
        assert run.pulls == (horizon,) * arms


def test_noise_from_the_system_is_reported_as_private() -> None:
    world = top_k(0, 4, 2)
    policy = cucb("cucb-dp", world.of, horizon=20)
    real = Coins(world=np.random.default_rng(1), rng=SystemRng())
    assert not play_together(policy, [world], [real])[0].simulated
    assert played(policy, world).simulated


def test_worlds_and_generators_that_do_not_fit_are_refused() -> None:
    world, other = top_k(0, 4, 2), top_k(0, 4, 1)
    policy = cucb("cucb-dp", world.of, horizon=20)
    for worlds, generators, message in (
        ([], [], "worlds = []: must contain at least one world"),
        ([world, other], [coins(1)] * 2, "worlds: each world must have the policy's problem"),
        ([world], [], "coins: must contain 1 pairs of generators, one for each world"),
    ):
        with pytest.raises(InvalidParameter, match=f"^{re.escape(message)}$"):
            play_together(policy, worlds, generators)
