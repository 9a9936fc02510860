"""Worlds of super arms: their joint laws, their presets, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bandits.combinatorial.decisions import Unions
from bandits.combinatorial.problem import AtLeastOne, Problem
from bandits.worlds import PRESETS, preset_of
from bandits.worlds.combinatorial import (
    GAP,
    BitWorld,
    coverage,
    hard_mab,
    hard_paths,
    hard_public,
    lower_bound,
    path,
    top_k,
    tree,
)
from dpcore.errors import InvalidParameter
from tests.purse import purse
from tests.support.dpcore.refusals import refused

CHANCES = (0.5, 0.5, 0.9, 0.2)
TOP = Problem(decisions=Unions.subsets(4, 2))
ANY = Problem(decisions=TOP.decisions, reward=AtLeastOne())
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
def test_outcomes_have_their_joint_law(together: tuple[int, ...]) -> None:
    alpha = purse.buy(f"joint law of base arms {together}", "1e-10")
    rounds = 20_000
    seen, wanted = joint(together, rounds), law(together)
    assert set(seen) <= set(wanted)
    cells = [cell for cell, chance in wanted.items() if chance * rounds > 5]
    observed = np.array([seen.get(cell, 0) for cell in cells])
    expected = np.array([wanted[cell] for cell in cells])
    expected *= observed.sum() / expected.sum()
    if len(cells) > 1:
        assert stats.chisquare(observed, expected).pvalue > alpha
    # The mutant: another dependence is seen at once.
    other = law((0, 1, 2, 3) if together != (0, 1, 2, 3) else (0, 0, 1, 1))
    share = np.array([other.get(cell, 0.0) for cell in cells])
    assert abs(share - observed / rounds).max() > 0.02


def test_alone_is_each_in_a_group_of_its_own() -> None:
    assert joint(None, 100) == joint((0, 1, 2, 3), 100)


@pytest.mark.parametrize("name", COMBINATORIAL)
def test_presets_have_worlds_of_one_problem(name: str) -> None:
    preset = preset_of(name)
    worlds = preset.worlds(3)
    first = worlds.environments[0].model
    assert isinstance(first, Problem)
    assert all(world.model == first for world in worlds.environments)
    assert (first.arms, first.most) == (preset.arms, preset.super_arm)
    assert worlds.digest() == preset.worlds(3).digest() != preset.worlds(2).digest()
    assert len({world.means for world in worlds.environments}) in (1, 3)


def test_the_grid_is_the_cheapest_road() -> None:
    problem = path(0, 24, 6).of
    assert len(problem.decisions.listed()) == 20  # binom(6, 3) roads through 4 by 4 crossings
    assert problem.best(np.full(24, 0.75)) == pytest.approx(-6 * 0.25)
    assert len(tree(0, 15, 5).of.decisions.listed()) == 6**4  # Cayley


@pytest.mark.parametrize(
    ("fields", "argument"),
    [
        ({"chances": (0.5, 0.5)}, "chances"),
        ({"chances": (0.5, 0.5, 1.5, 0)}, "chances"),
        ({"chances": (0.5, 0.5, float("nan"), 0)}, "chances"),
        ({"together": (0, 0)}, "together"),
        ({"together": (0, 0, 0, 4)}, "together"),
        ({"together": (0, 0, 1, 2), "of": ANY}, "together"),
    ],
    ids=range(6),
)  # fmt: skip
def test_what_is_no_world_is_refused_by_name(fields: dict[str, object], argument: str) -> None:
    with refused(argument):
        BitWorld(**{"of": TOP, "chances": CHANCES, **fields})  # type: ignore[arg-type]  # words of a Literal, or what is refused


def test_numbers_that_no_instance_has_are_refused_by_name() -> None:
    for make, arms, size, argument in (
        (top_k, 5, 6, "super_arm"),
        (coverage, 13, 4, "arms"),
        (coverage, 12, 3, "super_arm"),
        (path, 20, 6, "arms"),
        (path, 24, 5, "super_arm"),
        (tree, 14, 5, "arms"),
        (tree, 15, 4, "super_arm"),
    ):
        with refused(argument):
            make(0, arms, size)
    for name in ("cz/easy", "lzj/fig2"):
        with pytest.raises(InvalidParameter, match="super_arm = 3"):
            preset_of(name).worlds(1, super_arm=3)


# -- the hard instances -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "arms", "size"), [(hard_mab, 20, 1), (hard_paths, 20, 4), (hard_public, 20, 4)]
)
def test_all_super_arms_but_one_are_worse_by_one_gap(make: Any, arms: int, size: int) -> None:
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


def test_base_arms_of_a_path_have_one_outcome() -> None:
    rows = hard_paths(1, 12, 3).outcomes(200, np.random.default_rng(1)).reshape(200, 4, 3)
    assert (rows == rows[:, :, :1]).all()
    assert len(np.unique(rows[:, :, 0], axis=0)) == 16
    shared = hard_public(1, 12, 3).outcomes(200, np.random.default_rng(1))[:, 3:5]
    assert (shared[:, 0] == shared[:, 1]).all()


def test_lower_bounds_are_those_of_the_theorems() -> None:
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


def test_hard_instances_that_do_not_exist_are_refused_by_name() -> None:
    for make, arms, size, argument in (
        (hard_mab, 20, 2, "super_arm"),
        (hard_paths, 20, 3, "super_arm"),
        (hard_public, 7, 4, "arms"),
    ):
        with refused(argument):
            make(0, arms, size)
