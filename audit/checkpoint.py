r"""The state of an audit in a file, so that one that was ended, even by ``kill -9``, goes on.

Schema ``dpcore-audit-state/1``: records of :mod:`audit.state_records`. The first one is JSON and
says everything that determines the audit; the others are the finished blocks in order. A block is
flushed to the disk before the audit goes on: at any moment at most the last record is torn. It is
dropped, and drawn again as the same block.

Only outputs are stored: worlds and all other coins follow from the seed. Nothing in a file is ever
executed, and what no audit writes is refused, so one may come from anywhere; whoever can write to
it can of course invent outputs. Errors name the argument as the command does, ``--resume``.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from audit.errors import TargetFailed
from audit.feature import FEATURES, Feature
from audit.jobs import content_of
from audit.outputs import Outputs
from audit.plan import Plan
from audit.state_records import MOST, Damaged, is_torn, next_record, read_records, started
from audit.stored import Unstorable, encode, pack, unpack
from audit.target import Target
from audit.verdict import versions
from dpcore.errors import InvalidParameter
from dpcore.parameter import rational, write_rational

__all__ = ["SCHEMA", "State", "resume", "stored_search", "stored_seed"]

SCHEMA: Final = "dpcore-audit-state/1"

_START: Final = started(SCHEMA)
_BEGINNING: Final = json.dumps({"schema": SCHEMA}, separators=(",", ":")).encode()[:-1]
_SHOWN: Final = 80
_MOST_RUNS: Final = 10**12
_WORDS: Final = {
    "target": "target",
    "content": "target's file",
    "seeded": "source of randomness",
    "claim": "claim",
    "search": "search",
    "pairs": "pairs",
    "features": "features",
    "maps": "features' files",
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
            if len(data) >= MOST:
                raise Unstorable(f"a block of {len(data):,} bytes")
        except Unstorable as error:
            reason = f"outputs of type {error} cannot be stored without loss"
            if not self.blocks:
                raise _refused(self.path, reason) from None
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
            self.file.write(record)
            self.file.flush()
            os.fsync(self.file.fileno())
        except OSError as error:
            self.closed = error.strerror or str(error)


@contextmanager
def resume(
    path: str | Path, target: Target, plan: Plan, search: dict[str, Any] | None = None
) -> Iterator[State]:
    r"""The state of this audit in the file, which is made where there is none.

    ``search`` is what a search for the pair found, as JSON, where there was one.

    Raises :class:`InvalidParameter` for a file that is another audit's, none of ours, damaged
    before its end, in use, not a plain file, or that cannot be written.
    """
    try:
        import fcntl
    except ImportError:
        raise _refused(path, "needs locks of files, which this system has not") from None
    place = Path(path)
    expected = _header(place, target, plan, search)
    _require_plain(place)
    try:
        # Never truncated by opening: what is there is looked at first.
        handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from None
    with os.fdopen(handle, "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            state = _read(place, file, expected, target.spelling)
            _check_sizes(state, plan)
        except BlockingIOError:
            raise _refused(path, "is in use by another audit") from None
        except OSError as error:
            raise _refused(path, error.strerror or str(error)) from None
        except MemoryError:
            raise _refused(path, "holds more than the memory does") from None
        yield state


def _refused(path: str | Path, reason: str) -> InvalidParameter:
    return InvalidParameter("--resume", str(path), reason)


def _hostile(path: Path, what: str) -> InvalidParameter:
    return _refused(path, f"is damaged or hostile: it holds {_plain(what)}")


def _plain(text: str) -> str:
    # Nothing that steers a terminal, and no more than is read.
    shown = "".join(
        letter if letter.isascii() and letter.isprintable() else ascii(letter)[1:-1]
        for letter in text[: _SHOWN + 1]
    )
    return shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "..."


def _require_plain(path: Path) -> None:
    # A pipe or a device may never answer, or have effects when it is opened.
    with suppress(OSError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise _refused(path, "is not a plain file")


def _check_sizes(state: State, plan: Plan) -> None:
    blocks = plan.blocks()
    for outputs in state.blocks:
        block = next(blocks, None)
        if block is None:
            raise _hostile(state.path, "more blocks than the audit has")
        if len(outputs) != block.runs:
            what = f"{len(outputs):,} runs as block {block.index} of {block.runs:,}"
            raise _hostile(state.path, what)


# -- what is known before an audit goes on --------------------------------------------------------


def stored_seed(path: str | Path) -> int | None:
    r"""The seed of the audit that a state file holds, None where it holds none (yet).

    Who goes on without naming a seed means this one.

    Raises :class:`InvalidParameter` for a header that no audit wrote, and what is no plain file.
    """
    held = _stored(Path(path))
    if held is None:
        return None
    seed = held.get("seed")
    if type(seed) is not int or seed < 0:
        raise _hostile(Path(path), "no seed")
    return seed


def stored_search(path: str | Path) -> dict[str, Any] | None:
    r"""What the search of a stored audit found, None where it had none, or nothing is stored (yet).

    It is the JSON of an :class:`audit.search.Found`. Who goes on tests its pair.

    Raises :class:`InvalidParameter` for a header that no audit wrote, and what is no plain file.
    """
    from audit.search import Found

    held = _stored(Path(path))
    if held is None or held.get("search") is None:
        return None
    try:
        return Found.of_json(held["search"]).to_json()
    except ValueError as error:
        raise _hostile(Path(path), f"a search that found nothing ({error})") from None


def _stored(path: Path) -> dict[str, Any] | None:
    # The header; of a file that is none of ours, resume says what is wrong.
    _require_plain(path)
    try:
        with path.open("rb") as file:
            first = next(read_records(file, _START), None)
    except (OSError, Damaged):
        return None
    except MemoryError:
        raise _refused(path, "holds more than the memory does") from None
    return None if first is None else _parsed(path, first.payload)


def _parsed(path: Path, payload: bytes) -> dict[str, Any]:
    try:
        held = json.loads(payload.decode())
    except (ValueError, RecursionError) as error:
        raise _hostile(path, f"no JSON as its header ({error})") from None
    if not isinstance(held, dict) or held.get("schema") != SCHEMA:
        raise _hostile(path, f"no header of schema {SCHEMA}")
    return held


# -- the header -----------------------------------------------------------------------------------


def _header(path: Path, target: Target, plan: Plan, search: dict[str, Any] | None) -> bytes:
    # The same bytes for the same audit: a header that was torn is known by its beginning.
    found = versions()
    try:
        pairs = encode(list(plan.pairs))
    except Unstorable as error:
        reason = f"a dataset of type {error} cannot be stored without loss"
        raise _refused(path, reason) from None
    fields = {
        "schema": SCHEMA,
        "target": target.spelling,
        "content": content_of(target),
        "seeded": target.seeded,
        "claim": {"text": str(plan.claim), **plan.claim.to_json()},
        "search": search,
        "pairs": pairs,
        "features": [feature.name for feature in plan.features],
        "maps": [_content(path, feature) for feature in plan.features],
        "runs": plan.runs,
        "sequential": plan.sequential,
        "alpha": write_rational(rational("alpha", plan.alpha)),
        "seed": plan.seed,
        "dpcore": found["dpcore"],
        "numpy": found["numpy"],
    }
    return json.dumps(fields, separators=(",", ":"), default=str).encode()


def _content(path: Path, feature: Feature) -> str | None:
    # A digest of the files that the user's own steps are written in, None where there are none.
    files = [file for step in feature.name.split("+") for file in _files(step, feature)]
    digest = hashlib.sha256()
    for file in files:
        try:
            digest.update(hashlib.sha256(Path(file).read_bytes()).digest())
        except OSError as error:
            reason = f"feature {feature.name}: {file}: {error.strerror or error}"
            raise _refused(path, reason) from None
    return digest.hexdigest() if files else None


def _files(step: str, feature: Feature) -> list[str]:
    # Of a map in a module, the module's file and that of the function, which it may only import.
    if step.partition(":")[0] in FEATURES:
        return []
    place, _, attribute = step.rpartition(":")
    if place.endswith(".py"):
        return [place]
    function: Any = feature.apply
    files = []
    if module := sys.modules.get(place):
        files.append(getattr(module, "__file__", None))
        function = functools.reduce(
            lambda held, name: getattr(held, name, None), attribute.split("."), module
        )
    with suppress(TypeError):  # what is not written in Python has no source
        files.append(inspect.getsourcefile(inspect.unwrap(function)))
    return [file for file in dict.fromkeys(files) if file is not None]


def _compare(path: Path, payload: bytes, expected: bytes) -> None:
    if payload == expected:
        return
    stored, wanted = _parsed(path, payload), json.loads(expected)
    for key, words in _WORDS.items():
        if stored.get(key) != wanted[key]:
            raise _refused(path, _other(key, words, stored.get(key), wanted))
    raise _refused(path, "was begun by another audit")


def _other(key: str, words: str, was: Any, wanted: dict[str, Any]) -> str:
    if key in {"content", "maps"}:
        whose = "the target's file"
        if key == "maps":
            names, now = wanted["features"], wanted["maps"]
            then = was if isinstance(was, list) and len(was) == len(now) else [None] * len(now)
            changed = [name for name, a, b in zip(names, then, now, strict=True) if a != b]
            whose = f"the file of feature {', '.join(changed)}"
        both = "runs of two versions are never counted together"
        return f"was begun with other contents of {whose}: {both}"
    return f"was begun with another {words}: {_shown(was)} there, {_shown(wanted[key])} here"


def _shown(value: Any) -> str:
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return _plain(f"{value['text']} ({value.get('relation')})")
    try:
        return _plain(json.dumps(value))
    except RecursionError:
        return "something nested deeply"


# -- reading --------------------------------------------------------------------------------------


def _read(path: Path, file: BinaryIO, expected: bytes, target: str) -> State:
    written, digest = next_record(_START, expected)
    state = State(path=path, target=target, file=file, chain=digest)
    if is_torn(file, written, _BEGINNING):
        file.seek(0)
        file.truncate()
        file.write(written)
        file.flush()
        os.fsync(file.fileno())
        _sync_folder(path)
        return state
    end = 0
    try:
        for record in read_records(file, _START):
            if end:
                _take(path, state, record.payload)
            else:
                _compare(path, record.payload, expected)
            end, state.chain = record.end, record.digest
    except Damaged as error:
        if end:
            raise _refused(path, f"is damaged at {error}") from None
    if not end:
        raise _refused(path, "is not the state of an audit")
    file.seek(end)
    file.truncate()
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
        raise _hostile(path, f"what no audit wrote ({wrong})") from None


def _failure(target: str, held: Any) -> TargetFailed:
    match held:
        case {"reason": str(reason), "dataset": None | "A" | "B" as dataset, "run": run} if (
            run is None or (type(run) is int and 0 < run <= _MOST_RUNS)
        ):
            return TargetFailed(target, reason, dataset=dataset, run=run)
    raise ValueError("a failure that is none")


def _sync_folder(path: Path) -> None:
    handle = os.open(path.resolve().parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
