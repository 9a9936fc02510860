r"""The header of a state file: everything that determines an audit, as JSON.

An audit goes on only from a file with the same header; what differs is said by name.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any, Final

from audit.evidence.verdict import versions
from audit.features.feature import Feature
from audit.outputs.stored import Unstorable, encode
from audit.runs.block import Plan
from audit.targets.content import content_of, files_of
from audit.targets.target import Target
from audit.wording.shorten import cut
from dpcore.command.terminal import printable
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import rational, write_rational

SCHEMA: Final = "dpcore-audit-state/1"
BEGINNING: Final = json.dumps({"schema": SCHEMA}, separators=(",", ":")).encode()[:-1]
_SHOWN: Final = 80
# What determines an audit, in the order in which a difference is said, and what it is called.
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


def refused(path: str | Path, reason: str) -> InvalidParameter:
    r"""The error that refuses a file; it names the option.

    >>> print(refused("a.state", "is not a plain file"))
    --resume = a.state: is not a plain file
    """
    return InvalidParameter("--resume", str(path), reason)


def hostile(path: Path, what: str) -> InvalidParameter:
    r"""The error that refuses a file whose checksums are right, and that no audit wrote.

    >>> print(hostile(Path("a.state"), "no seed"))
    --resume = a.state: is damaged or hostile: it holds no seed
    """
    return refused(path, f"is damaged or hostile: it holds {_plain(what)}")


def _plain(text: str) -> str:
    # Nothing that steers a terminal, and no more than is read.
    return cut(printable(text[: _SHOWN + 1]), _SHOWN)


def header(path: Path, target: Target, plan: Plan, search: dict[str, Any] | None) -> bytes:
    r"""The header of this audit: the same bytes for the same audit.

    Raises :class:`InvalidParameter` for a dataset that cannot be stored, and a feature whose file
    cannot be read.
    """
    found = versions()
    try:
        pairs = encode(list(plan.pairs))
    except Unstorable as error:
        reason = f"a dataset of type {error} cannot be stored without loss"
        raise refused(path, reason) from None
    fields = {
        "schema": SCHEMA,
        "target": target.spelling,
        "content": content_of(target),
        "seeded": target.seeded,
        "claim": {"text": str(plan.claim), **plan.claim.to_json()},
        "search": search,
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
    # A digest of the files that the user's own steps are written in, None where there are none.
    files = [file for step in feature.name.split("+") for file in files_of(step, feature)]
    digest = hashlib.sha256()
    for file in files:
        try:
            with Path(file).open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        except OSError as error:
            reason = f"feature {feature.name}: {file}: {error.strerror or error}"
            raise refused(path, reason) from None
    return digest.hexdigest() if files else None


def compare(path: Path, payload: bytes, expected: bytes) -> None:
    r"""Raises :class:`InvalidParameter` unless a stored header is the expected one."""
    if payload == expected:
        return
    stored, wanted = parsed(path, payload), json.loads(expected)
    for key in _KEYS:
        if stored.get(key) != wanted[key]:
            raise refused(path, _other(key, stored.get(key), wanted))
    raise refused(path, "was begun by another audit")


def _other(key: str, was: Any, wanted: dict[str, Any]) -> str:
    if key in {"content", "maps"}:
        whose = "the target's file"
        if key == "maps":
            names, now = wanted["features"], wanted["maps"]
            then = was if isinstance(was, list) and len(was) == len(now) else [None] * len(now)
            changed = [name for name, a, b in zip(names, then, now, strict=True) if a != b]
            whose = f"the file of feature {', '.join(changed)}"
        both = "runs of two versions are never counted together"
        return f"was begun with other contents of {whose}: {both}"
    words = _WORDS.get(key, key)
    return f"was begun with another {words}: {_shown(was)} there, {_shown(wanted[key])} here"


def _shown(value: Any) -> str:
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return _plain(f"{value['text']} ({value.get('relation')})")
    try:
        return _plain(json.dumps(value))
    except RecursionError:
        return "something nested deeply"


def parsed(path: Path, payload: bytes) -> dict[str, Any]:
    r"""The fields of a stored header. Raises :class:`InvalidParameter` if it is invalid."""
    try:
        held = json.loads(payload.decode(), parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise hostile(path, f"no JSON as its header ({error})") from None
    if not isinstance(held, dict) or held.get("schema") != SCHEMA:
        raise hostile(path, f"no header of schema {SCHEMA}")
    return held


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is no number of JSON")
    return number
