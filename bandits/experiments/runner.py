r"""Play the runs of an experiment in worker processes, and store the results in a state file.

A state file (schema ``dpcore-bandit-state/2``) makes it possible to resume an interrupted
experiment, even after ``kill -9``. The file contains JSON records in the format of
:mod:`dpcore.cli.state_file`. The first record defines the experiment, and each later record is the
result of the next run. A record is on disk before the next one is written, so only the last record
may be incomplete. An incomplete record is dropped, and the run is repeated. The result is the same,
because the draws of a run depend only on the experiment and the run. The first record also contains
the version of the random draws and a digest of the simulated worlds. A file is rejected if either
differs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from importlib.metadata import version
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final

import numpy as np

from bandits.batch import arms_and_horizon
from bandits.experiments.experiment import RECIPE, Cell, Experiment, Task
from bandits.play import Run, play
from bandits.play_combinatorial import Coins, play_together
from bandits.policies.combinatorial_ucb import Cucb
from bandits.policies.registry import read_algorithm
from bandits.worlds import Worlds, preset_of
from bandits.worlds.arm_environments import Environment
from bandits.worlds.combinatorial import BitWorld
from dpcore.cli.state_file import StateFile, open_state
from dpcore.cli.workers import checked_jobs, in_processes, width_of
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.mechanism import Sensitivity
from dpcore.numbers.arrays import one_thread
from dpcore.parse_noise import write_noise, write_sensitivity
from dpcore.sampling.rng import SeededRng

SCHEMA: Final = "dpcore-bandit-state/2"

_UNSHOWN: Final = ("data", "worlds", "checkpoints", "sources")
r"""Keys of the header whose values are too long for a message."""
_COUNTS: Final = ("instance", "batches", "bits_per_user", "numbers", "bits_sent", "out_of_users")


_OF_RUN: Final = [each.name for each in fields(Run) if each.name in Cell.__slots__]


def run_cells(
    experiment: Experiment,
    worlds: Worlds,
    *,
    jobs: int = 1,
    done: Sequence[Cell] = (),
    store: Callable[[Cell], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Cell]:
    r"""Play all runs of ``experiment`` that are not in ``done``; return all results in order.

    ``done`` contains the results of the first runs. ``jobs`` is the number of processes (-1 for one
    per core), which joblib runs unless it is 1. ``store`` is called with each new result, in order,
    and ``progress`` with the number of finished runs.

    Raises :class:`InvalidParameter` if ``jobs`` is neither -1 nor >= 1, if ``worlds`` do not match
    the experiment, or if ``done`` does not contain its first runs in order. Raises
    :class:`DpcoreError` if a worker process dies.
    """
    workers = width_of(checked_jobs(jobs))
    tasks = list(experiment.tasks())
    if len(worlds.environments) != experiment.instances:
        reason = f"must contain {experiment.instances} worlds, one per instance"
        raise InvalidParameter("worlds", ABSENT, reason)
    arms_and_horizon(worlds.arms, experiment.horizon)
    found = list(done)
    if [cell.task for cell in found] != tasks[: len(found)]:
        raise InvalidParameter(
            "done", ABSENT, "must contain the results of the first runs, in order"
        )
    left = [
        (experiment, [worlds.environments[t.instance] for t in group], group)
        for group in _groups(experiment, tasks[len(found) :])
    ]
    if progress is not None:
        progress(len(found))
    width = max(min(workers, len(left)), 1)
    with contextlib.closing(in_processes(_play_group, left, width)) as groups:
        for cell in chain.from_iterable(groups):
            if store is not None:
                store(cell)
            found.append(cell)
            if progress is not None:
                progress(len(found))
    return found


def _groups(experiment: Experiment, tasks: list[Task]) -> list[list[Task]]:
    # The groups of cells played together: for a combinatorial preset, all instances of a kind.
    if preset_of(experiment.preset).kind != "combinatorial":
        return [[task] for task in tasks]
    return [[*each] for _, each in groupby(tasks, key=lambda task: (task.algorithm, task.epsilon))]


def _play_group(experiment: Experiment, worlds: list[Environment], tasks: list[Task]) -> list[Cell]:
    with one_thread():
        if len(tasks) == 1:
            runs = [play_task(experiment, worlds[0], tasks[0])]
        else:
            runs = play_tasks(experiment, worlds, tasks)
    return [_cell_of(task, run) for task, run in zip(tasks, runs, strict=True)]


def _cell_of(task: Task, run: Run) -> Cell:
    shared = {name: getattr(run, name) for name in _OF_RUN}
    counts = Counter(release.mechanism for release in run.releases if not task.instance)
    released = [
        (write_noise(each.noise), write_sensitivity(Sensitivity.of(each.sensitivity)), times)
        for each, times in counts.items()
    ]
    return Cell(**asdict(task), **shared, released=tuple(released))


def play_tasks(
    experiment: Experiment, worlds: Sequence[Environment], tasks: Sequence[Task]
) -> list[Run]:
    r"""Play several runs of one combinatorial algorithm and epsilon in parallel."""
    bits = [world for world in worlds if isinstance(world, BitWorld)]
    policy = experiment.policy(tasks[0].algorithm, tasks[0].epsilon, bits[0].arms, bits[0].of)
    assert isinstance(policy, Cucb)  # noqa: S101  # its worlds are combinatorial
    rngs = [
        Coins(
            world=np.random.default_rng(_coins("rewards", experiment, task)),
            rng=SeededRng(_coins("noise", experiment, task)),
        )
        for task in tasks
    ]
    return [*play_together(policy, bits, rngs, checkpoints=experiment.checkpoints)]


def play_task(experiment: Experiment, world: Environment, task: Task) -> Run:
    r"""Play one run; the draws of the run depend only on ``experiment`` and ``task``."""
    if isinstance(world, BitWorld):
        return play_tasks(experiment, [world], [task])[0]
    policy = experiment.policy(task.algorithm, task.epsilon, world.arms, world.model)
    assert not isinstance(policy, Cucb)  # noqa: S101  # its worlds are not combinatorial
    with read_algorithm(task.algorithm).blamed():
        return play(
            policy,
            world,
            horizon=experiment.horizon,
            world=np.random.default_rng(_coins("rewards", experiment, task)),
            rng=SeededRng(_coins("noise", experiment, task)),
            checkpoints=experiment.checkpoints,
            users=experiment.users_of(policy, _coins("arrivals", experiment, task)),
        )


def _coins(use: str, experiment: Experiment, task: Task) -> int:
    cell = [experiment.preset, task.algorithm, task.epsilon, task.instance]
    words = json.dumps([use, experiment.seed, *cell])
    return int.from_bytes(hashlib.sha256(words.encode()).digest(), "big")


@dataclass(slots=True, kw_only=True)
class State:
    r"""An open state file and the cells that it contained when it was opened."""

    file: StateFile
    cells: list[Cell] = field(default_factory=list)

    def append(self, cell: Cell) -> None:
        r"""Store the result of the next run; return when it is on disk."""
        self.file.write(_json(cell.to_json()))


@contextlib.contextmanager
def resume(path: str | Path, experiment: Experiment, worlds: Worlds) -> Iterator[State]:
    r"""Open the state file of this experiment, or create it; refuse that of another one."""
    place, header = Path(path), _header(experiment, worlds)
    with open_state("resume", place, owner="experiment") as file:
        state = State(file=file)

        def taken(payload: bytes) -> None:
            state.cells.append(_cell_in(place, len(state.cells) + 1, payload))

        begun = partial(_compare, place, header)
        file.resume(SCHEMA, _json(header), begun, taken)
        tasks = [cell.task for cell in state.cells]
        if tasks != [task for task, _ in zip(experiment.tasks(), tasks, strict=False)]:
            reason = "contains runs in another order than this experiment: use another file"
            raise InvalidParameter("resume", str(place), reason)
        yield state


def _header(experiment: Experiment, worlds: Worlds) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        **experiment.to_json(),
        "data": worlds.data,
        "worlds": worlds.digest(),
        "recipe": RECIPE,
        "dpcore": version("dpcore"),
        "numpy": version("numpy"),
    }


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()


def _compare(path: Path, wanted: dict[str, Any], payload: bytes) -> None:
    try:
        stored = dict(json.loads(payload))
    except (TypeError, ValueError, RecursionError):
        raise InvalidParameter("resume", str(path), "contains invalid data") from None
    for key in {**wanted, **stored}:
        was, now = stored.get(key), wanted.get(key)
        if was != now:
            both = "" if key in _UNSHOWN else f": {json.dumps(was)} instead of {json.dumps(now)}"
            raise InvalidParameter(
                "resume", str(path), f"was started with another value of {key}{both}"
            )


def _cell_in(path: Path, number: int, payload: bytes) -> Cell:
    try:
        content = json.loads(payload)
        rows = {name: tuple(content[name]) for name in ("regret", "pulls", "active")}
        released = tuple((str(n), str(s), int(times)) for n, s, times in content["released"])
        cell = Cell(**{**content, **rows, "released": released})
        whole = [getattr(cell, name) for name in _COUNTS] + [*cell.pulls, *cell.active]
        if not all(type(value) is int for value in whole):
            raise TypeError("a count is not an integer")
        if not all(type(value) is float for value in (*cell.regret, cell.mean_bits_per_user)):
            raise TypeError("a mean is not a float")
    except (KeyError, TypeError, ValueError, RecursionError) as wrong:
        reason = f"contains invalid data ({wrong}) in run {number}"
        raise InvalidParameter("resume", str(path), reason) from None
    return cell
