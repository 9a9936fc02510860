"""Tests of `bandits.play`: regret, releases, charged users and the guarantee of a run."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandits.batch import Commit, Pulls
from bandits.play import Run, play
from bandits.policies.successive_elimination import BatchedElimination
from bandits.privatizers.batch_sums_by_trust_model import SumPrivatizer, Trust
from bandits.regret import ArmRegret
from bandits.worlds.arm_environments import Bernoulli, Environment
from dpcore.sampling.rng import SYSTEM, Rng, SeededRng
from tests.support.bandits.worlds import Counted, Script, played
from tests.support.dpcore.mutants import mutated

EASY = Bernoulli(means=(0.25, 0.75, 0.5))


def private(trust: Trust = "pure") -> SumPrivatizer:
    return SumPrivatizer(trust=trust, epsilon=1, failure="1e-9")


def run_of(policy: Script, horizon: int, *checkpoints: int, world: Environment = EASY) -> Run:
    return played(policy, world, horizon, checkpoints=checkpoints)


def by_hand(order: list[int], gaps: tuple[float, ...], checkpoints: tuple[int, ...]) -> list[float]:
    return [sum(gaps[arm] for arm in order[:t]) for t in checkpoints]


@given(
    batches=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)).filter(any),
        min_size=1,
        max_size=6,
    ),
    horizon=st.integers(3, 60),
    marks=st.sets(st.integers(1, 60), max_size=5),
)
def test_numbers_of_a_run_are_consistent(
    batches: list[tuple[int, int, int]], horizon: int, marks: set[int]
) -> None:
    checkpoints = tuple(sorted({mark for mark in marks if mark <= horizon} | {horizon}))
    script = Script(batches=(*map(Pulls, batches), Commit(0)))
    run = run_of(script, horizon, *checkpoints)
    order = [arm for counts in batches for arm, n in enumerate(counts) for _ in range(n)]
    order = (order + [0] * horizon)[:horizon]
    assert sum(run.pulls) == horizon
    assert run.pulls == tuple(order.count(arm) for arm in range(3))
    assert list(run.regret) == by_hand(order, EASY.gaps, checkpoints)
    assert list(run.regret) == sorted(run.regret)
    sizes, whole, left = 0, 0, horizon
    for counts in batches:
        if (left := left - sum(counts)) < 0:
            break
        whole, sizes = whole + 1, sizes + sum(map(bool, counts))
    assert run.batches == whole
    assert run.regret_per_round == run.regret[-1] / horizon
    private_run = run_of(replace(script, privatizer=private()), horizon)
    assert len(private_run.releases) == sizes


def test_the_plot_of_a_run_has_its_regret_at_the_checkpoints() -> None:
    pytest.importorskip("matplotlib", reason="the extra 'plot' is not installed")
    from matplotlib.figure import Figure

    world = np.random.default_rng(1)
    policy = BatchedElimination(privatizer=private())
    run = play(policy, EASY, horizon=2000, world=world, rng=SeededRng(1), checkpoints=(500, 2000))
    axes = cast("Any", Figure().add_subplot())
    assert (run.plot(axes) is axes) is True
    drawn = axes.lines[0].get_xydata().tolist()
    assert drawn == [[500, run.regret[0]], [2000, run.regret[1]]]


def test_a_regret_that_omits_earlier_pulls_is_detected() -> None:
    broken = mutated(ArmRegret.add, "before + checkpoint - self.rounds", "checkpoint - self.rounds")
    score = ArmRegret((0.5, 0.0), (2, 6))
    for counts in ((2, 0), (4, 0)):
        broken(score, counts)
    assert score.regret != by_hand([0] * 6, (0.5, 0.0), (2, 6))


@pytest.mark.parametrize(("horizon", "whole"), [(5, 0), (6, 1), (7, 1), (13, 1), (14, 2), (99, 2)])
def test_a_batch_cut_by_the_horizon_releases_nothing_and_charges_nobody(
    horizon: int, whole: int
) -> None:
    batches = (Pulls((4, 2, 0)), Pulls((0, 3, 5)), Pulls((100, 100, 100)))
    counted = Counted(of=EASY)
    run = run_of(Script(batches=batches, privatizer=private()), horizon, world=counted)
    g = [private().precision(n) for n in (4, 2, 3, 5)]
    assert counted.drawn == [(0, 4, g[0]), (1, 2, g[1]), (1, 3, g[2]), (2, 5, g[3])][: 2 * whole]
    assert len(run.releases) == 2 * whole
    assert run.batches == whole
    assert sum(run.pulls) == horizon
    assert run.mean_bits_per_user == pytest.approx(
        sum(n * private().bits(n) for n in (4, 2, 3, 5)[: 2 * whole]) / max([0, 6, 14][whole], 1)
    )
    names = ["batch 1/arm 0", "batch 1/arm 1", "batch 2/arm 1", "batch 2/arm 2"]
    assert [release.batch for release in run.releases] == [
        f"script/{name}" for name in names[: 2 * whole]
    ]


def test_noise_is_private_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Rng] = []

    def release(self: SumPrivatizer, encoded_sum: int, pulls: int, rng: Rng) -> Fraction:
        asked.append(rng)
        return Fraction(0)

    monkeypatch.setattr(SumPrivatizer, "release", release)
    script = Script(batches=(Pulls((1, 1, 1)), Commit(0)), privatizer=private())
    play(script, EASY, horizon=9, world=np.random.default_rng(1))
    assert asked == [SYSTEM] * 3
