r"""Store the state of an audit, so that one that was ended, even by ``kill -9``, goes on.

Schema ``dpcore-audit-state/1``: records of :mod:`dpcore.command.records`. The first one is JSON and
says everything that determines the audit; the others are the finished blocks in order. A block is
flushed to the disk before the audit goes on: at any moment at most the last record is torn. It is
dropped, and drawn again as the same block.

Only outputs are stored: worlds and all other coins follow from the seed. Nothing in a file is ever
executed, and what no audit writes is refused, so one may come from anywhere; whoever can write to
it can of course invent outputs. Errors name the argument as the command does, ``--resume``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from audit.errors import TargetFailed
from audit.outputs.form import Outputs
from audit.outputs.stored import Unstorable, pack, unpack
from audit.resume.header import BEGINNING, SCHEMA, compare, header, hostile, parsed, refused
from audit.runs.block import Plan
from audit.targets.target import Target
from dpcore.command.input_file import require_plain
from dpcore.command.records import MOST, Damaged, is_torn, next_record, read_records, started
from dpcore.command.state_file import StateFile, open_state
from dpcore.errors import InvalidParameter

_START: Final = started(SCHEMA)
_MOST_RUNS: Final = 10**12


@dataclass(slots=True, kw_only=True)
class State:
    r"""An open state file: what it held, and where the next block goes."""

    path: Path
    target: str
    file: StateFile
    chain: bytes
    blocks: list[Outputs] = field(default_factory=list)
    failed: TargetFailed | None = None
    closed: str | None = None

    def append(self, outputs: Outputs) -> None:
        r"""Store the next finished block; returns when it is on the disk.

        Raises :class:`InvalidParameter` where the outputs cannot be stored: with the first block.
        Of a later one, ``closed`` says why nothing is stored from there on.
        """
        if self.closed is not None:
            return
        try:
            data = pack(outputs)
            if len(data) >= MOST:
                raise Unstorable(f"a block of {len(data):,} bytes")
        except Unstorable as error:
            reason = f"outputs of type {error} cannot be stored without loss"
            if not self.blocks:
                raise refused(self.path, reason) from None
            self.closed = reason
            return
        self._write(b"B" + data)
        self.blocks.append(outputs)

    def fail(self, error: TargetFailed) -> None:
        r"""Store that the target failed in the block that would be next: nothing more is drawn."""
        if self.closed is None:
            told = {"reason": error.reason, "dataset": error.dataset, "run": error.run}
            self._write(b"F" + json.dumps(told).encode())

    def _write(self, payload: bytes) -> None:
        record, self.chain = next_record(self.chain, payload)
        try:
            self.file.append(record)
        except InvalidParameter as error:
            self.closed = error.reason


@contextmanager
def resume(
    path: str | Path, target: Target, plan: Plan, search: dict[str, Any] | None = None
) -> Iterator[State]:
    r"""Open the state of this audit, or create its file.

    ``search`` is what a search for the pair found, as JSON, where there was one.

    Raises :class:`InvalidParameter` for another audit's file or another kind of file, and for one
    that is damaged before its end, in use, not regular, or cannot be written.
    """
    place = Path(path)
    expected = header(place, target, plan, search)
    with open_state("--resume", place, owner="audit") as file:
        try:
            state = _read(place, file, expected, target.spelling)
            _check_sizes(state, plan)
        except OSError as error:
            raise file.refused(error) from None
        except MemoryError:
            raise refused(path, "holds more than the memory does") from None
        yield state


def _check_sizes(state: State, plan: Plan) -> None:
    blocks = plan.blocks()
    for outputs in state.blocks:
        block = next(blocks, None)
        if block is None:
            raise hostile(state.path, "more blocks than the audit has")
        if len(outputs) != block.runs:
            what = f"{len(outputs):,} runs as block {block.index} of {block.runs:,}"
            raise hostile(state.path, what)


# -- what is known before an audit goes on --------------------------------------------------------


def stored_seed(path: str | Path) -> int | None:
    r"""The seed of the audit that a state file holds, None where it holds none (yet).

    Who goes on without naming a seed means this one.

    Raises :class:`InvalidParameter` for an invalid header, and a path that is not a regular file.
    """
    held = _stored(Path(path))
    if held is None:
        return None
    seed = held.get("seed")
    if type(seed) is not int or seed < 0:
        raise hostile(Path(path), "no seed")
    return seed


def stored_search(path: str | Path) -> dict[str, Any] | None:
    r"""What the search of a stored audit found, None where it had none, or nothing is stored (yet).

    It is the JSON of an :class:`audit.search.search.Found`. Who goes on tests its pair.

    Raises :class:`InvalidParameter` for an invalid header, and a path that is not a regular file.
    """
    from audit.search.search import Found

    held = _stored(Path(path))
    if held is None or held.get("search") is None:
        return None
    try:
        return Found.of_json(held["search"]).to_json()
    except ValueError as error:
        raise hostile(Path(path), f"a search that found nothing ({error})") from None


def _stored(path: Path) -> dict[str, Any] | None:
    # The header; what is wrong with another kind of file is for resume to say.
    require_plain("--resume", path)
    try:
        with path.open("rb") as file:
            first = next(read_records(file, _START), None)
    except (OSError, Damaged):
        return None
    except MemoryError:
        raise refused(path, "holds more than the memory does") from None
    return None if first is None else parsed(path, first.payload)


# -- reading --------------------------------------------------------------------------------------


def _read(path: Path, file: StateFile, expected: bytes, target: str) -> State:
    written, digest = next_record(_START, expected)
    state = State(path=path, target=target, file=file, chain=digest)
    if is_torn(file.reader, written, BEGINNING):
        file.restart(written)
        return state
    end = 0
    try:
        for record in read_records(file.reader, _START):
            if end:
                _take(path, state, record.payload)
            else:
                compare(path, record.payload, expected)
            end, state.chain = record.end, record.digest
    except Damaged as error:
        if end:
            raise refused(path, f"is damaged at {error}") from None
    if not end:
        raise refused(path, "is not the state of an audit")
    file.cut(end)
    return state


def _take(path: Path, state: State, payload: bytes) -> None:
    kind, data = payload[:1], payload[1:]
    try:
        if state.failed is not None:
            raise ValueError("a record after the end")
        if kind == b"B":
            state.blocks.append(unpack(data))
        elif kind == b"F":
            state.failed = _failure(state.target, json.loads(data.decode()))
        else:
            raise ValueError("a record of no known kind")
    except (ValueError, RecursionError) as wrong:
        raise hostile(path, f"what no audit wrote ({wrong})") from None


def _failure(target: str, held: Any) -> TargetFailed:
    match held:
        case {"reason": str(reason), "dataset": None | "A" | "B" as dataset, "run": run} if (
            run is None or (type(run) is int and 0 < run <= _MOST_RUNS)
        ):
            return TargetFailed(target, reason, dataset=dataset, run=run)
    raise ValueError("an invalid failure")
