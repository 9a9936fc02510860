r"""The state of an audit in a file, so that one that was ended, even by ``kill -9``, goes on.

Schema ``dpcore-audit-state/1``: records, each of them length, crc32 of the length, sha256, payload.
The first one is JSON and says everything that determines the audit; the others are the finished
blocks in order. Each sha256 covers the one before it, so a record stands where it was written and
in no other file. A block is flushed to the disk before the audit goes on: at any moment at most the
last record is torn. It is dropped, and drawn again as the same block.

Only outputs are stored: worlds and all other coins follow from the seed. Nothing in a file is ever
executed, so one may come from anywhere; whoever can write to it can of course invent outputs.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from audit.errors import TargetFailed
from audit.jobs import content_of
from audit.outputs import Outputs
from audit.plan import Plan
from audit.stored import Unstorable, encode, pack, unpack
from audit.target import Target
from audit.verdict import versions
from dpcore.errors import InvalidParameter
from dpcore.parameter import rational, write_rational

__all__ = ["SCHEMA", "State", "resume", "stored_seed"]

SCHEMA: Final = "dpcore-audit-state/1"

_LENGTH: Final = struct.Struct("<Q")
_HEAD: Final = struct.Struct("<QI32s")
_START: Final = hashlib.sha256(SCHEMA.encode()).digest()
_BEGINNING: Final = json.dumps({"schema": SCHEMA}, separators=(",", ":")).encode()[:-1]
_MOST_HEADER: Final = 1 << 26
_WORDS: Final = {
    "target": "target",
    "content": "target's file",
    "seeded": "source of randomness",
    "claim": "claim",
    "pairs": "pairs",
    "features": "features",
    "runs": "number of runs",
    "sequential": "kind of test",
    "alpha": "alpha",
    "seed": "seed",
    "dpcore": "dpcore",
    "numpy": "numpy",
}


@dataclass(slots=True, kw_only=True)
class State:
    r"""An open state file: what it held, and where the next block goes."""

    path: Path
    target: str
    file: BinaryIO
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
        except Unstorable as error:
            reason = f"outputs of type {error} cannot be stored without loss"
            if not self.blocks:
                raise InvalidParameter("resume", str(self.path), reason) from None
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
        record, self.chain = _record(self.chain, payload)
        try:
            self.file.write(record)
            self.file.flush()
            os.fsync(self.file.fileno())
        except OSError as error:
            self.closed = error.strerror or str(error)


@contextmanager
def resume(path: str | Path, target: Target, plan: Plan) -> Iterator[State]:
    r"""The state of this audit in the file, which is made where there is none.

    Raises :class:`InvalidParameter` for a file that is another audit's, none of ours, damaged
    before its end, in use, or that cannot be written.
    """
    place = Path(path)
    expected = _header(place, target, plan)
    try:
        # Never truncated by opening: what is there is looked at first.
        handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise InvalidParameter("resume", str(path), error.strerror or str(error)) from None
    with os.fdopen(handle, "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            state = _read(place, file, expected, target.spelling)
            _check_sizes(state, plan)
        except BlockingIOError:
            raise InvalidParameter("resume", str(path), "is in use by another audit") from None
        except OSError as error:
            raise InvalidParameter("resume", str(path), error.strerror or str(error)) from None
        yield state


def _check_sizes(state: State, plan: Plan) -> None:
    for block, outputs in zip(plan.blocks(), state.blocks, strict=False):
        if len(outputs) != block.runs:
            reason = f"holds {len(outputs):,} runs as block {block.index} of {block.runs:,}"
            raise InvalidParameter("resume", str(state.path), reason)


def stored_seed(path: str | Path) -> int | None:
    r"""The seed of the audit that a state file holds, None where it holds none (yet).

    Who goes on without naming a seed means this one.
    """
    try:
        with Path(path).open("rb") as file:
            head = file.read(_HEAD.size)
            data = head + file.read(_MOST_HEADER)
    except OSError:
        return None
    if len(head) < _HEAD.size:
        return None
    end = _HEAD.size + min(_HEAD.unpack(head)[0], _MOST_HEADER)
    first = next(_records(Path(path), data[:end]), None)
    if first is None or not first[1].startswith(_BEGINNING):
        return None
    seed = json.loads(first[1]).get("seed")
    return seed if isinstance(seed, int) else None


def _header(path: Path, target: Target, plan: Plan) -> bytes:
    # The same bytes for the same audit: a header that was torn is known by its beginning.
    found = versions()
    try:
        pairs = encode(list(plan.pairs))
    except Unstorable as error:
        reason = f"a dataset of type {error} cannot be stored without loss"
        raise InvalidParameter("resume", str(path), reason) from None
    fields = {
        "schema": SCHEMA,
        "target": target.spelling,
        "content": content_of(target),
        "seeded": target.seeded,
        "claim": {"text": str(plan.claim), **plan.claim.to_json()},
        "pairs": pairs,
        "features": [feature.name for feature in plan.features],
        "runs": plan.runs,
        "sequential": plan.sequential,
        "alpha": write_rational(rational("alpha", plan.alpha)),
        "seed": plan.seed,
        "dpcore": found["dpcore"],
        "numpy": found["numpy"],
    }
    payload = json.dumps(fields, separators=(",", ":"), default=str).encode()
    return _record(_START, payload)[0]


def _record(chain: bytes, payload: bytes) -> tuple[bytes, bytes]:
    length, digest = len(payload), _digest(chain, payload)
    return _HEAD.pack(length, zlib.crc32(_LENGTH.pack(length)), digest) + payload, digest


def _digest(chain: bytes, payload: bytes) -> bytes:
    return hashlib.sha256(chain + payload).digest()


def _read(path: Path, file: BinaryIO, expected: bytes, target: str) -> State:
    data = file.read()
    chain = _digest(_START, expected[_HEAD.size :])
    state = State(path=path, target=target, file=file, chain=chain)
    if expected.startswith(data) or _is_torn_header(data):
        # Empty, or ended while the header was written: no block is lost.
        file.seek(0)
        file.truncate()
        file.write(expected)
        file.flush()
        os.fsync(file.fileno())
        _sync_folder(path)
        return state
    records = _records(path, data)
    header = next(records, None)
    if header is None:
        raise InvalidParameter("resume", str(path), "is not the state of an audit")
    _compare(path, header[1], expected[_HEAD.size :])
    end = header[0]
    for at, payload, chain in records:
        _take(path, state, payload)
        end, state.chain = at, chain
    file.seek(end)
    file.truncate()
    return state


def _is_torn_header(data: bytes) -> bool:
    if len(data) < _HEAD.size or not data[_HEAD.size :].startswith(_BEGINNING):
        return False
    length, check, _ = _HEAD.unpack_from(data)
    return bool(zlib.crc32(_LENGTH.pack(length)) == check and _HEAD.size + length > len(data))


def _records(path: Path, data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    # Where each ends, what it holds, its digest. A torn one can only be the last.
    at, chain = 0, _START
    while at < len(data):
        # A power cut can leave the right size and zeros in place of the record.
        if at + _HEAD.size > len(data) or not any(data[at:]):
            return
        length, check, digest = _HEAD.unpack_from(data, at)
        sound = zlib.crc32(_LENGTH.pack(length)) == check
        end = at + _HEAD.size + length
        payload = data[at + _HEAD.size : end]
        if not sound or end > len(data) or _digest(chain, payload) != digest:
            if at == 0 or (sound and end >= len(data)):
                return
            raise InvalidParameter("resume", str(path), f"is damaged at byte {at:,}")
        yield end, payload, digest
        at, chain = end, digest


def _compare(path: Path, payload: bytes, expected: bytes) -> None:
    if payload == expected:
        return
    try:
        stored: Any = json.loads(payload)
    except ValueError:
        stored = None
    if not isinstance(stored, dict) or stored.get("schema") != SCHEMA:
        reason = f"is not of schema {SCHEMA}"
        raise InvalidParameter("resume", str(path), reason)
    wanted = json.loads(expected)
    for key, words in _WORDS.items():
        if stored.get(key) != wanted[key]:
            was, now = (_shown(side) for side in (stored.get(key), wanted[key]))
            reason = f"was begun with another {words}: {was} there, {now} here"
            if key == "content":
                reason = "was begun with other contents of the target's file: runs of two versions"
                reason += " are never counted together"
            raise InvalidParameter("resume", str(path), reason)
    raise InvalidParameter("resume", str(path), "was begun by another audit")


def _shown(value: Any) -> str:
    if isinstance(value, dict) and "text" in value:
        return f"{value['text']} ({value.get('relation')})"
    return json.dumps(value)


def _take(path: Path, state: State, payload: bytes) -> None:
    kind, data = payload[:1], payload[1:]
    try:
        if state.failed is not None:
            raise ValueError("a record after the end")
        if kind == b"B":
            state.blocks.append(unpack(data))
            return
        if kind != b"F":
            raise ValueError("a record of no known kind")
        error = json.loads(data)
        state.failed = TargetFailed(
            state.target, error["reason"], dataset=error["dataset"], run=error["run"]
        )
    except (ValueError, KeyError, TypeError, RecursionError) as wrong:
        reason = f"holds what no audit wrote ({wrong})"
        raise InvalidParameter("resume", str(path), reason) from None


def _sync_folder(path: Path) -> None:
    handle = os.open(path.resolve().parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
