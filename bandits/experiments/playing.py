r"""Play the cells of an experiment in processes, each the same at every call; keep them in a file.

A state file (schema ``dpcore-bandit-state/1``) lets an experiment that was ended, even by
``kill -9``, go on. It has lines of JSON: the first says everything that determines the experiment,
each of the others is a finished cell, in order. The last field of a line is a SHA-256 over the line
and the one before it, so a line stands where it was written and in no other file. A cell is on the
disk before the next is stored: at any moment at most the last line is torn. It is dropped, and its
cell drawn again, to the same bytes. The first line also names the recipe of a cell and a digest of
the worlds: cells of other draws or of other worlds are refused, whatever the version says.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final

import numpy as np

from bandits.batch import arms_and_horizon
from bandits.combinatorial.cucb import Cucb
from bandits.experiments.experiment import RECIPE, Cell, Experiment, Task
from bandits.play import Run, play
from bandits.rounds import Coins, play_together
from bandits.worlds import Worlds, preset_of
from bandits.worlds.combinatorial import BitWorld
from bandits.worlds.environment import Environment
from dpcore.command.state_file import StateFile, open_state
from dpcore.command.workers import checked_jobs, in_processes, width_of
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Sensitivity
from dpcore.numbers.threads import one_thread
from dpcore.sampling.rng import SeededRng
from dpcore.spelling import write_noise, write_sensitivity

SCHEMA: Final = "dpcore-bandit-state/1"

_START: Final = hashlib.sha256(SCHEMA.encode()).hexdigest()
_CHECKED: Final = re.compile(rb'(\{.*),"sha256":"([0-9a-f]{64})"\}')
_SAME: Final = "preset delta horizon radius schedule seed dpcore numpy calibration alpha confidence"
_WORDS: Final = {
    **{name: name for name in f"{_SAME} dropouts aggregation".split()},
    "data": "data file",
    "algorithms": "list of algorithms",
    "epsilons": "list of epsilons",
    "instances": "number of instances",
    "arms": "number of arms",
    "super_arm": "size of a super arm",
    "release": "release of running sums",
    "checkpoints": "list of checkpoints",
    "recipe": "recipe of a cell",
    "worlds": "set of worlds",
    "users": "number of users",
    "renyi_tail": "tail of Renyi noise",
    "max_visits": "visits of a user",
    "sources": "source of a policy",
    "honest": "honest users",
}
_UNSHOWN: Final = ("data", "worlds", "checkpoints", "sources")
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
    r"""All cells in the order of ``experiment.tasks()``; the first of them may be ``done``.

    ``jobs`` processes draw (-1: one for each core), through joblib where it is not one. ``store``
    is given each new cell, in order, ``progress`` the number of cells there are.

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
    # What is played together: of a combinatorial preset all instances of a kind.
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
    r"""The runs of cells of one combinatorial algorithm and epsilon, as :func:`play_task` each."""
    bits = [world for world in worlds if isinstance(world, BitWorld)]
    policy = experiment.policy(tasks[0].algorithm, tasks[0].epsilon, bits[0].arms, bits[0].of)
    assert isinstance(policy, Cucb)  # noqa: S101  # its worlds are combinatorial
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
    policy = experiment.policy(task.algorithm, task.epsilon, world.arms, world.model)
    assert not isinstance(policy, Cucb)  # noqa: S101  # its worlds are not combinatorial
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


# -- the state file ---------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class State:
    r"""An open state file: the cells it holds, and where the next one goes."""

    path: Path
    file: StateFile
    chain: str
    cells: list[Cell] = field(default_factory=list)

    def append(self, cell: Cell) -> None:
        r"""Store the next finished cell; returns when it is on the disk.

        Raises :class:`InvalidParameter` where it cannot be written.
        """
        line, self.chain = _line(self.chain, cell.to_json())
        self.file.append(line)
        self.cells.append(cell)


@contextlib.contextmanager
def resume(path: str | Path, experiment: Experiment, worlds: Worlds) -> Iterator[State]:
    r"""Open the state of this experiment, or create its file.

    Raises :class:`InvalidParameter` for another experiment's file or another kind of file, and for
    one that is damaged before its end, in use, not regular, or cannot be written.
    """
    place = Path(path)
    with open_state("resume", place, owner="experiment") as file:
        state = _read(place, file, _header(experiment, worlds))
        tasks = [cell.task for cell in state.cells]
        if tasks != [task for task, _ in zip(experiment.tasks(), tasks, strict=False)]:
            raise InvalidParameter("resume", str(place), "holds cells in another order")
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


def _line(chain: str, content: dict[str, Any]) -> tuple[bytes, str]:
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)[:-1].encode()
    check = _digest(chain, text)
    return text + f',"sha256":"{check}"}}\n'.encode(), check


def _digest(chain: str, text: bytes) -> str:
    return hashlib.sha256(chain.encode() + text).hexdigest()


def _read(path: Path, file: StateFile, header: dict[str, Any]) -> State:
    data = file.contents()
    first, chain = _line(_START, header)
    state = State(path=path, file=file, chain=chain)
    if len(data) <= len(first) and first.startswith(data.rstrip(b"\0")):
        # Empty, or ended while the header was written: no cell is lost.
        file.restart(first)
        return state
    lines = data.split(b"\n")
    lines.pop()  # what follows the last line break is torn, or nothing
    at = 0
    for number, line in enumerate(lines):
        content, chain = _content(line, state.chain if number else _START)
        if content is None and number and number == len(lines) - 1:
            break
        if number == 0:
            _compare(path, content, header)
        else:
            state.cells.append(_cell_in(path, number, content))
        at += len(line) + 1
        state.chain = chain
    if not lines:
        raise InvalidParameter("resume", str(path), "is not the state of a bandit experiment")
    file.cut(at)
    return state


def _content(line: bytes, chain: str) -> tuple[Any, str]:
    # None for a line that is not as it was written.
    match = _CHECKED.fullmatch(line)
    if match is None or _digest(chain, match[1]) != match[2].decode():
        return None, chain
    try:
        return json.loads(match[1] + b"}"), match[2].decode()
    except (ValueError, RecursionError):
        return None, chain


def _compare(path: Path, stored: Any, wanted: dict[str, Any]) -> None:
    if not isinstance(stored, dict) or stored.get("schema") != SCHEMA:
        reason = f"is not of schema {SCHEMA}, or damaged in its first line"
        raise InvalidParameter("resume", str(path), reason)
    for key, words in _WORDS.items():
        if stored.get(key) != wanted.get(key):
            was, now = (json.dumps(side) for side in (stored.get(key), wanted.get(key)))
            reason = f"was begun with another {words}: {was} there, {now} here"
            if key in _UNSHOWN:
                reason = f"was begun with another {words}"
            raise InvalidParameter("resume", str(path), reason)


def _cell_in(path: Path, number: int, content: Any) -> Cell:
    if content is None:
        raise InvalidParameter("resume", str(path), f"is damaged in line {number + 1}")
    try:
        rows = {name: tuple(content[name]) for name in ("regret", "pulls", "active")}
        released = tuple((str(n), str(s), int(times)) for n, s, times in content["released"])
        cell = Cell(**{**content, **rows, "released": released})
        whole = [getattr(cell, name) for name in _COUNTS] + [*cell.pulls, *cell.active]
        if not all(type(value) is int for value in whole):
            raise TypeError("a count that is no integer")
        if not all(type(value) is float for value in (*cell.regret, cell.mean_bits_per_user)):
            raise TypeError("a mean that is no float")
    except (KeyError, TypeError, ValueError) as wrong:
        reason = f"holds what no experiment wrote ({wrong}) in line {number + 1}"
        raise InvalidParameter("resume", str(path), reason) from None
    return cell
