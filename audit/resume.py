r"""The state file of an audit, from which an audit continues after an interruption or ``kill -9``.

The file consists of records of :mod:`dpcore.cli.state_file`, with the schema
``dpcore-audit-state/1``. The first record is JSON and contains everything that determines the
audit. The other records are the finished blocks of runs, in order, and possibly a last record for a
failure of the target. Records are flushed to the disk at once, so only the last record can be
incomplete. An incomplete record is dropped, and its block is drawn again.

Only the outputs of a run are stored, because the dataset of each run and all other random choices
follow from the seed. Nothing in a file is executed, and content that no audit writes is refused. So
it is safe to read a file from an untrusted source, but its author can invent outputs. Error
messages name the argument ``--resume``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from audit.errors import TargetFailed
from audit.features.parse_feature import Feature
from audit.formats.shorten import cut
from audit.outputs.output_parser import Outputs
from audit.outputs.serialise import Unstorable, encode, pack, unpack
from audit.runs.draw_plan import Plan
from audit.statistical_tests.sample_outcome import versions
from audit.targets.target import Target
from audit.targets.target_syntax import content_of, digest_of, files_of
from dpcore.cli.files import parse_json, require_plain
from dpcore.cli.state_file import (
    MOST,
    Damaged,
    StateFile,
    open_state,
    read_records,
    started,
)
from dpcore.cli.terminal import printable
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import rational, write_rational

if TYPE_CHECKING:
    from audit.search.worst_pair_search import SearchResult

# -- the header -----------------------------------------------------------------------------------

SCHEMA: Final = "dpcore-audit-state/1"
_SHOWN: Final = 80
# The fields that determine an audit, in the order in which a difference is reported.
_KEYS: Final = (
    "target", "content", "seeded", "claim", "search", "pairs", "features", "floats", "maps", "runs",
    "sequential", "alpha", "seed", "dpcore", "numpy",
)  # fmt: skip
_WORDS: Final = {
    "seeded": "source of randomness",
    "runs": "number of runs",
    "sequential": "kind of test",
    "floats": "treatment of floats",
}


def refused(path: Path, reason: str) -> InvalidParameter:
    r"""Return the error, about ``--resume``, for a state file that an audit cannot use."""
    return InvalidParameter("--resume", str(path), reason)


def hostile(path: Path, what: str) -> InvalidParameter:
    r"""Return the error for a state file with valid checksums, but content that no audit writes."""
    return refused(path, f"is damaged or forged: {_plain(what)}")


def _plain(text: str) -> str:
    # The text without terminal control characters, shortened.
    return cut(printable(text[: _SHOWN + 1]), _SHOWN)


def header(path: Path, target: Target, plan: Plan, search: SearchResult | None) -> bytes:
    r"""Return the first record of a state file: everything that determines the audit."""
    found = versions()
    try:
        pairs = encode(list(plan.pairs))
    except Unstorable as error:
        reason = f"a dataset of type {error} cannot be stored without loss: omit --resume"
        raise refused(path, reason) from None
    fields = {
        "schema": SCHEMA,
        "target": target.spelling,
        "content": content_of(target),
        "seeded": target.seeded,
        "claim": {"text": str(plan.claim), **plan.claim.to_json()},
        "search": None if search is None else search.to_json(),
        "pairs": pairs,
        "features": [feature.name for feature in plan.features],
        "floats": plan.floats,
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
    # A digest of the files that define the user's own steps of a feature; None if there are none.
    files = [file for step in feature.name.split("+") for file in files_of(step, feature)]
    try:
        return digest_of(files)
    except OSError as error:
        file, why = error.filename, error.strerror or error
        reason = f"the file {file} of feature {feature.name} cannot be read: {why}"
        raise refused(path, reason) from None


def compare(path: Path, payload: bytes, expected: bytes) -> None:
    r"""Raise :class:`InvalidParameter` if a stored header differs from the expected header."""
    if payload == expected:
        return
    stored, wanted = parsed(path, payload), json.loads(expected)
    for key in _KEYS:
        if stored.get(key) != wanted[key]:
            raise refused(path, _difference(key, stored.get(key), wanted))
    raise refused(
        path, "was started by another audit: use the options of that audit, or a new file"
    )


def _difference(key: str, was: Any, wanted: dict[str, Any]) -> str:
    if key in {"content", "maps"}:
        whose = "the target's file"
        if key == "maps":
            names, now = wanted["features"], wanted["maps"]
            then = was if isinstance(was, list) and len(was) == len(now) else [None] * len(now)
            changed = [name for name, a, b in zip(names, then, now, strict=True) if a != b]
            whose = f"the file of feature {', '.join(changed)}"
        both = "runs of two versions are never counted together"
        return f"was started with a different version of {whose}: {both}"
    words = _WORDS.get(key, key)
    there, here = _format_field(was), _format_field(wanted[key])
    return f"was started with another {words}: {there} in the file, {here} now"


def _format_field(value: Any) -> str:
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return _plain(f"{value['text']} ({value.get('relation')})")
    try:
        return _plain(json.dumps(value))
    except RecursionError:
        return "a deeply nested value"


def parsed(path: Path, payload: bytes) -> dict[str, Any]:
    r"""Parse a stored header. Raises :class:`InvalidParameter` if the header is invalid."""
    try:
        held = parse_json(payload.decode())
    except ValueError as error:
        raise hostile(path, f"its header is not JSON ({error})") from None
    if not isinstance(held, dict) or held.get("schema") != SCHEMA:
        raise hostile(path, f"its header does not have schema {SCHEMA}")
    return held


_MOST_RUNS: Final = 10**12


@dataclass(slots=True, kw_only=True)
class State:
    r"""An open state file of an audit, with the stored blocks of runs.

    ``failed`` is the stored failure of the target, or None. ``closed`` is the reason why no further
    block can be stored, or None.
    """

    path: Path
    target: str
    file: StateFile
    blocks: list[Outputs] = field(default_factory=list)
    failed: TargetFailed | None = None
    closed: str | None = None

    def append(self, outputs: Outputs) -> None:
        r"""Store the next finished block on disk, or do nothing if ``closed`` is set.

        An unstorable first block raises :class:`InvalidParameter`; a later one sets ``closed``.
        """
        if self.closed is not None:
            return
        reason, data = None, b""
        try:
            data = pack(outputs)
        except Unstorable as error:
            reason = f"outputs of type {error} cannot be stored without loss"
        if len(data) >= MOST:
            reason = f"a block of {len(data):,} bytes cannot be stored: the limit is {MOST - 1:,}"
        if reason is None:
            self._write(b"B" + data)
            if self.closed is None:
                self.blocks.append(outputs)
        elif self.blocks:
            self.closed = reason
        else:
            raise refused(self.path, reason)

    def fail(self, error: TargetFailed) -> None:
        r"""Store ``error`` as the failure of the next block; a resumed audit raises it again."""
        if self.closed is None:
            failure = {"reason": error.reason, "dataset": error.dataset, "run": error.run}
            self._write(b"F" + json.dumps(failure).encode())

    def _write(self, payload: bytes) -> None:
        try:
            self.file.write(payload)
        except InvalidParameter as error:
            self.closed = error.reason


@contextmanager
def resume(
    path: Path, target: Target, plan: Plan, search: SearchResult | None = None
) -> Iterator[State]:
    r"""Open the state file of an audit as a context; the file is created if it does not exist.

    ``search`` is the result of the search for a pair, or None without a search.
    """
    expected = header(path, target, plan, search)
    with open_state("--resume", path, owner="audit") as file:
        state = State(path=path, target=target.spelling, file=file)
        begun = partial(compare, path, expected=expected)
        file.resume(SCHEMA, expected, begun, partial(_take, state))
        _check_sizes(state, plan)
        yield state


def _check_sizes(state: State, plan: Plan) -> None:
    blocks = plan.blocks()
    for outputs in state.blocks:
        block = next(blocks, None)
        if block is None:
            raise hostile(state.path, "it contains more blocks than the audit plans")
        if len(outputs) != block.runs:
            has = f"block {block.index} contains {len(outputs):,} runs"
            raise hostile(state.path, f"{has}, but the audit plans {block.runs:,} for this block")


# -- before an audit continues --------------------------------------------------------------------


def stored(path: Path) -> tuple[int, SearchResult | None] | None:
    r"""Return the seed and the search result that the state file of an audit contains.

    A resumed audit uses both values. The search result is None if the audit had no search. Return
    None if the file does not exist, contains no audit, or is not a state file. In the last case, a
    later call of :func:`resume` raises the error.
    """
    require_plain("--resume", path)
    try:
        with path.open("rb") as file:
            first = next(read_records(file, started(SCHEMA)), None)
    except (OSError, Damaged):
        return None
    except MemoryError:
        raise refused(path, "does not fit in memory") from None
    if first is None:
        return None
    held = parsed(path, first.payload)
    seed, search = held.get("seed"), held.get("search")
    if type(seed) is not int or seed < 0:
        raise hostile(path, "it has no valid seed")
    if search is None:
        return seed, None
    from audit.search.worst_pair_search import SearchResult

    try:
        return seed, SearchResult.of_json(search)
    except ValueError as error:
        raise hostile(path, f"its search result is invalid ({error})") from None


# -- reading --------------------------------------------------------------------------------------


def _take(state: State, payload: bytes) -> None:
    kind, data = payload[:1], payload[1:]
    try:
        if state.failed is not None:
            raise ValueError("it follows a failure, which must be the last record")
        if kind == b"B":
            state.blocks.append(unpack(data))
        elif kind == b"F":
            state.failed = _failure(state.target, parse_json(data.decode()))
        else:
            raise ValueError("its kind is unknown")
    except (ValueError, RecursionError) as wrong:
        raise hostile(state.path, f"a record is invalid ({wrong})") from None


def _failure(target: str, held: Any) -> TargetFailed:
    match held:
        case {"reason": str(reason), "dataset": None | "A" | "B" as dataset, "run": run} if (
            run is None or (type(run) is int and 0 < run <= _MOST_RUNS)
        ):
            return TargetFailed(target, reason, dataset=dataset, run=run)
    raise ValueError("its failure is invalid")
