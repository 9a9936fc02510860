"""Tests of experiments: each cell has its own seed, which changes with ``RECIPE``."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from bandits.experiments import runner as module
from bandits.experiments.experiment import RECIPE, Cell, Experiment, Task
from bandits.experiments.runner import _coins, play_task, run_cells
from bandits.experiments.summary import guarantee_json, guarantees_of, mean_and_error, rows_of
from bandits.worlds import Worlds
from bandits.worlds.arm_environments import Bernoulli, Environment, Reordered, Table
from dpcore.errors import DpcoreError
from tests.day_and_nightly import effort, spread
from tests.support.dpcore.mutants import mutated, rewired


def small(**more: Any) -> Experiment:
    given: dict[str, Any] = {
        "preset": "cz/easy",
        "algorithms": ("cdp-se", "dist-dp-se"),
        "epsilons": ("1/2", 1),
        "horizon": 3_000,
        "instances": 2,
        "arms": 4,
    }
    return Experiment(**{**given, **more})


def played(experiment: Experiment, **more: Any) -> list[Cell]:
    return run_cells(experiment, experiment.worlds(), **more)


@pytest.fixture(name="cells", scope="module")
def _cells() -> list[Cell]:
    return played(small())


def test_cells_are_in_the_order_of_the_plan(cells: list[Cell]) -> None:
    wanted = [
        Task(algorithm=algorithm, epsilon=epsilon, instance=instance)
        for algorithm in ("cdp-se", "dist-dp-se")
        for epsilon in ("1/2", "1")
        for instance in (0, 1)
    ]
    assert [cell.task for cell in cells] == wanted
    assert small().size == len(wanted)
    for cell in cells:
        assert sum(cell.pulls) == 3_000
        assert len(cell.regret) == len(small().checkpoints)
        assert list(cell.regret) == sorted(cell.regret)


def test_a_cell_does_not_depend_on_other_cells(cells: list[Cell]) -> None:
    assert played(small()) == cells
    assert played(small(algorithms=("dist-dp-se",), epsilons=(1,))) == cells[6:]
    assert played(small(algorithms=("se", "cdp-se"), instances=1))[2:] == cells[:3:2]
    assert played(small(), done=cells[:5]) == cells


def test_every_part_of_the_name_of_a_cell_changes_its_seed(cells: list[Cell]) -> None:
    task = Task(algorithm="cdp-se", epsilon="1/2", instance=0)
    names = [
        ("rewards", small(), task),
        ("noise", small(), task),
        ("rewards", small(seed=2), task),
        ("rewards", small(preset="cz/hard"), task),
        ("rewards", small(), replace(task, algorithm="dist-dp-se")),
        ("rewards", small(), replace(task, epsilon="1")),
        ("rewards", small(), replace(task, instance=1)),
    ]
    assert len({_coins(*name) for name in names}) == len(names)
    # Radii and schedules are compared on the same rewards.
    paper = small(radius="paper", schedule="paper")
    assert _coins("rewards", paper, task) == _coins("rewards", small(), task)
    assert played(small(seed=2)) != cells
    # Policies with the same noise law need different coins, or their runs would be identical.
    central, shared = (
        [(c.regret, c.pulls) for c in cells if c.algorithm == name]
        for name in ("cdp-se", "dist-dp-se")
    )
    assert central != shared


def test_algorithms_that_share_random_numbers_are_detected() -> None:
    same = mutated(_coins, "experiment.preset, task.algorithm, ", "experiment.preset, ")
    broken = rewired(module.play_task, _coins=same)
    experiment = small(epsilons=(1,), instances=1)
    world = experiment.worlds().environments[0]
    runs = [broken(experiment, world, task) for task in experiment.tasks()]
    assert runs[0].regret == runs[1].regret


def test_several_processes_give_the_same_results(cells: list[Cell]) -> None:
    seen: list[int] = []
    stored: list[Cell] = []
    found = played(small(), jobs=2, progress=seen.append, store=stored.append)
    assert found == stored == cells
    assert seen == [*range(9)]


def test_a_worker_that_dies_gives_a_one_line_error(monkeypatch: pytest.MonkeyPatch) -> None:
    kills = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731  # sent by value
    monkeypatch.setattr(module, "_play_group", kills)
    with pytest.raises(DpcoreError, match="a worker process was lost"):
        played(small(), jobs=2)


def test_rows_are_means_over_instances(cells: list[Cell]) -> None:
    rows = rows_of(small(), cells, guarantees_of(small(), 4))
    assert [(row.algorithm, row.epsilon) for row in rows] == [
        ("cdp-se", 0.5),
        ("cdp-se", 1.0),
        ("dist-dp-se", 0.5),
        ("dist-dp-se", 1.0),
    ]
    for row, pair in zip(rows, zip(cells[::2], cells[1::2], strict=True), strict=True):
        a, b = (cell.regret[-1] / 3_000 for cell in pair)
        assert row.by_instance == (a, b)
        assert row.regret_per_round == pytest.approx((a + b) / 2)
        assert row.standard_error == pytest.approx(abs(a - b) / 2)
        assert row.bits_per_user == max(cell.bits_per_user for cell in pair)
        assert row.guarantee["pure"] == {0.5: "1/2", 1.0: "1"}[row.epsilon]
        assert row.guarantee["epsilon_upper"] <= row.epsilon
    assert mean_and_error((3.0,)) == (3.0, None)


def test_a_guarantee_without_a_finite_epsilon_says_so() -> None:
    wide = small(algorithms=("dist-rdp-se", "se", "vb-sdp-ae"), epsilons=("1/2",))
    for name, delta, least, most, words in (
        ("dist-rdp-se", "1e-6", 2, 2.3, "(2."),
        ("vb-sdp-ae", "1e-6", 0, 0.5, "("),
        ("vb-sdp-ae", 0, None, None, "no finite epsilon"),
        ("se", "1e-6", None, None, "none: rewards are released"),
    ):
        promised = guarantee_json(wide.guarantee(name, "1/2", 4), delta)
        upper = promised["epsilon_upper"]
        assert upper is None if most is None else least < upper <= most
        assert promised["text"].startswith(words)
        assert (promised["pure"], bool(promised["assumptions"])) == (None, name != "se")


NAMES = ("cdp-se", "ldp-se", "dist-dp-se", "dist-rdp-se", "dist-cdp-se", "dp-se", "se")
SMALL = Experiment(
    preset="cz/easy",
    algorithms=(*NAMES, "shuffled-se", "vb-sdp-ae", "sdp-ae:m=500"),
    epsilons=(1,),
    horizon=3_000,
    instances=1,
)

DAY, WHOLE = "ea5ad3f216ac31c2ed7e44a095b7d618", "0d940e6efeb17cf64b642dba700ab9ee"
KNOWN = ("dpcore-bandit-cell/3", (DAY, WHOLE)[effort(1, 2) - 1])
"""``RECIPE``, and the digest of the draws under it. Changed draws need a new pair of both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words(Environment):
    """Rewards 0 or 1, drawn from the words of the bit stream."""

    chances: tuple[float, ...] = (0.9, 0.5, 0.1)

    @property
    def means(self) -> tuple[float, ...]:
        return self.chances

    def _encoded_sum(self, arm: int, pulls: int, precision: int, world: np.random.Generator) -> int:
        words: Any = world.bit_generator.random_raw(pulls)
        return int((words < self.chances[arm] * 2.0**64).sum()) * precision


def digest(played: Any = play_task, *, only: tuple[str, ...] = SMALL.algorithms) -> str:
    found = hashlib.sha256()
    for task in SMALL.tasks():
        if task.algorithm in only:
            run = played(SMALL, Words(), task)
            found.update(json.dumps([task.algorithm, run.pulls, run.active, run.batches]).encode())
    return found.hexdigest()[:32]


def test_draws_change_only_with_the_recipe_name() -> None:
    assert (RECIPE, digest(only=tuple(spread(SMALL.algorithms, 4)))) == KNOWN


def test_a_changed_stream_of_bits_changes_the_draws() -> None:
    other = mutated(_coins, "[use, experiment.seed, *cell]", "[use, *cell, experiment.seed]")
    played = rewired(module.play_task, _coins=other)
    assert digest(played, only=("sdp-ae:m=500",)) != digest(only=("sdp-ae:m=500",))
    task = Task(algorithm="se", epsilon="1", instance=0)
    assert _coins("rewards", SMALL, task) != other("rewards", SMALL, task)


def test_the_digest_of_worlds_covers_all_their_parameters() -> None:
    table = Table(rewards=([0, 1, "1/2", "1/2"], [1, 0]))
    worlds: list[Environment] = [
        Bernoulli(means=(0.5, 0.5)),
        Bernoulli(means=(0.5, 0.25)),
        Words(chances=(0.5, 0.5)),
        table,
        Table(rewards=([0, 1], [1, 0])),
        Table(rewards=([1, 0], [0, 1, "1/2", "1/2"])),
        Reordered(world=table, order=(0, 1)),
        Reordered(world=table, order=(1, 0)),
    ]
    assert len({Worlds(environments=(world,)).digest() for world in worlds}) == len(worlds)
    both = [Worlds(environments=tuple(worlds[:2])), Worlds(environments=tuple(worlds[1::-1]))]
    assert both[0].digest() != both[1].digest()
    again = Table(rewards=(["1/2", 0, "1/2", 1], [0, 1]))
    assert Worlds(environments=(again,)).digest() == Worlds(environments=(table,)).digest()
