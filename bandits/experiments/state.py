r"""Store the cells of an experiment, so that one that was ended, even by ``kill -9``, goes on.

Schema ``dpcore-bandit-state/1``: lines of JSON. The first says everything that determines the
experiment, each of the others is a finished cell, in order. The last field of a line is a SHA-256
over the line and the one before it, so a line stands where it was written and in no other file. A
cell is on the disk before the next is stored: at any moment at most the last line is torn. It is
dropped, and its cell drawn again, to the same bytes.

The first line also names the recipe of a cell and a digest of the worlds: cells of other draws or
of other worlds are refused, whatever the version says.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from bandits.experiments.experiment import RECIPE, Cell, Experiment
from bandits.worlds import Worlds
from dpcore.command.state_file import StateFile, open_state
from dpcore.errors import InvalidParameter

__all__ = ["SCHEMA", "State", "resume"]

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
    "honest": "honest users",
}
_UNSHOWN: Final = ("data", "worlds", "checkpoints")
_COUNTS: Final = ("instance", "batches", "bits_per_user", "numbers", "bits_sent", "out_of_users")


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


@contextmanager
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
            state.cells.append(_cell(path, number, content))
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


def _cell(path: Path, number: int, content: Any) -> Cell:
    if content is None:
        raise InvalidParameter("resume", str(path), f"is damaged in line {number + 1}")
    try:
        rows = {name: tuple(content[name]) for name in ("regret", "pulls", "active")}
        cell = Cell(**{**content, **rows})
        whole = [getattr(cell, name) for name in _COUNTS] + [*cell.pulls, *cell.active]
        if not all(type(value) is int for value in whole):
            raise TypeError("a count that is no integer")
        if not all(type(value) is float for value in (*cell.regret, cell.mean_bits_per_user)):
            raise TypeError("a mean that is no float")
    except (KeyError, TypeError) as wrong:
        reason = f"holds what no experiment wrote ({wrong}) in line {number + 1}"
        raise InvalidParameter("resume", str(path), reason) from None
    return cell
