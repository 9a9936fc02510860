r"""Play the cells of an experiment, in processes, each the same at every call."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Sequence
from itertools import chain, groupby

import numpy as np

from bandits.batch import arms_and_horizon
from bandits.experiments.cells import Cell, Task, cell_of
from bandits.experiments.experiment import Experiment
from bandits.play import Run, play
from bandits.policies.registry import read_algorithm
from bandits.rounds import Coins, cucb_of, play_together
from bandits.worlds import Worlds, preset_of
from bandits.worlds.combinatorial import BitWorld
from bandits.worlds.environment import Environment
from dpcore.command.workers import checked_jobs, in_processes, width_of
from dpcore.errors import InvalidParameter
from dpcore.numbers.threads import one_thread
from dpcore.sampling.rng import SeededRng

__all__ = ["play_task", "play_tasks", "run_cells"]


def run_cells(
    experiment: Experiment,
    worlds: Worlds,
    *,
    jobs: int = 1,
    done: Sequence[Cell] = (),
    store: Callable[[Cell], None] | None = None,
    progress: Callable[[int], None] | None = None,
    runs: dict[tuple[str, str], Run] | None = None,
) -> list[Cell]:
    r"""All cells in the order of ``experiment.tasks()``; the first of them may be ``done``.

    ``jobs`` processes draw (-1: one for each core), through joblib where it is not one. ``store``
    is given each new cell, in order, ``progress`` the number of cells there are, ``runs`` the run
    of instance 0 of each kind that is played here, with the records of its releases.

    Raises :class:`InvalidParameter` for jobs that are neither -1 nor >= 1, worlds that do not match
    the experiment and cells that are not its first; :class:`DpcoreError` where a worker died.
    """
    workers = width_of(checked_jobs(jobs))
    tasks = list(experiment.tasks())
    if len(worlds.environments) != experiment.instances:
        reason = f"must be as many as instances, {experiment.instances}"
        raise InvalidParameter("worlds", len(worlds.environments), reason)
    arms_and_horizon(worlds.arms, experiment.horizon)
    found = list(done)
    if [cell.task for cell in found] != tasks[: len(found)]:
        raise InvalidParameter("done", len(found), "must be the first cells, in order")
    whole = runs is not None
    left = [
        (experiment, [worlds.environments[t.instance] for t in group], group, whole)
        for group in _groups(experiment, tasks[len(found) :])
    ]
    if progress is not None:
        progress(len(found))
    width = max(min(workers, len(left)), 1)
    with contextlib.closing(in_processes(_play_group, left, width)) as groups:
        for cell, run in chain.from_iterable(groups):
            if runs is not None and run is not None:
                runs[cell.algorithm, cell.epsilon] = run
            if store is not None:
                store(cell)
            found.append(cell)
            if progress is not None:
                progress(len(found))
    return found


def _groups(experiment: Experiment, tasks: list[Task]) -> list[list[Task]]:
    # What is played together: of a combinatorial preset all instances of a kind.
    if preset_of(experiment.preset).kind != "combinatorial":
        return [[task] for task in tasks]
    return [[*each] for _, each in groupby(tasks, key=lambda task: (task.algorithm, task.epsilon))]


def _play_group(
    experiment: Experiment,
    worlds: list[Environment],
    tasks: list[Task],
    whole: bool,  # noqa: FBT001  # a call of another process
) -> list[tuple[Cell, Run | None]]:
    # The cells, and of instance 0 the whole run, where it is asked for.
    with one_thread():
        if len(tasks) == 1:
            runs = [play_task(experiment, worlds[0], tasks[0])]
        else:
            runs = play_tasks(experiment, worlds, tasks)
    return [
        (cell_of(task, run), run if whole and not task.instance else None)
        for task, run in zip(tasks, runs, strict=True)
    ]


def play_tasks(
    experiment: Experiment, worlds: Sequence[Environment], tasks: Sequence[Task]
) -> list[Run]:
    r"""The runs of cells of one combinatorial algorithm and epsilon, as :func:`play_task` each."""
    bits = [world for world in worlds if isinstance(world, BitWorld)]
    policy = cucb_of(
        read_algorithm(tasks[0].algorithm),
        experiment.setting(tasks[0].epsilon, bits[0].arms, bits[0].of),
    )
    coins = [
        Coins(
            world=np.random.default_rng(_coins("rewards", experiment, task)),
            rng=SeededRng(_coins("noise", experiment, task)),
        )
        for task in tasks
    ]
    return [*play_together(policy, bits, coins, checkpoints=experiment.checkpoints)]


def play_task(experiment: Experiment, world: Environment, task: Task) -> Run:
    r"""The run of a cell, with the records of its releases; the same at every call."""
    if isinstance(world, BitWorld):
        return play_tasks(experiment, [world], [task])[0]
    policy = read_algorithm(task.algorithm).policy(
        experiment.setting(task.epsilon, world.arms, world.model)
    )
    return play(
        policy,
        world,
        horizon=experiment.horizon,
        world=np.random.default_rng(_coins("rewards", experiment, task)),
        rng=SeededRng(_coins("noise", experiment, task)),
        checkpoints=experiment.checkpoints,
        users=experiment.visitors.of_run(
            policy, experiment.horizon, _coins("arrivals", experiment, task)
        ),
    )


def _coins(use: str, experiment: Experiment, task: Task) -> int:
    cell = [experiment.preset, task.algorithm, task.epsilon, task.instance]
    words = json.dumps([use, experiment.seed, *cell])
    return int.from_bytes(hashlib.sha256(words.encode()).digest(), "big")
