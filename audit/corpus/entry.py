r"""An entry of the corpus: which published package broke which promise, and how to see it.

One TOML file an entry, named after it::

    package = "name"                        on the package index
    version = "1.2.0"                       the broken one
    failure = "..."                         one sentence: what went wrong
    source = "https://..."                  the public thread, changelog or paper
    relation = "replace"                    or add-remove
    pair = [[0, 1], [0, 2]]                 two neighbouring datasets
    runs = 100000                           of both datasets together
    feature = "lowest-bit"                  optional, see dpcore audit --feature
    python = "3.12"                         optional: the newest Python that it installs on
    alone = true                            optional: installed without what it depends on
    megabytes = 60                          what its environment takes on disk

    [claimed]
    claim = "epsilon=1"                     as dpcore audit --claim takes it
    by = "..."                              where the package says so

    [true]
    epsilon = "2"                           at the claimed delta; or "infinite"; or
    delta = "0.013"                         at the claimed epsilon
    known = "..."                           how this is known

    [broken]
    requires = ["name==1.2.0"]              what is installed, every package pinned that matters
    seen = 1.9                              the lower bound of epsilon that was measured
    code = "..."                            Python for that environment, see audit.corpus.worker

    [twin]                                  left out where nothing was repaired
    known = "..."                           what repaired it
    seen = 0.8
    requires, code, claim                   those of the broken one where they are left out
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal, TypeAlias

from audit.claims.curve_claim import read_claim
from audit.outputs.features.feature import read_feature
from audit.search.neighbours import require_neighbours
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation
from dpcore.numbers.parameter import rational
from dpcore.spec import did_you_mean

__all__ = ["ROLES", "Entry", "Role", "Side", "entries", "find", "read_entry"]

Role: TypeAlias = Literal["broken", "twin"]
ROLES: Final[tuple[Role, ...]] = ("broken", "twin")

_TEXT: Final = ("package", "version", "failure", "source", "relation")
_TABLES: Final = {
    "claimed": {"claim", "by"},
    "true": {"epsilon", "delta", "known"},
    "broken": {"requires", "seen", "code"},
    "twin": {"requires", "seen", "code", "claim", "known"},
}
_TOP: Final = {*_TEXT, "pair", "runs", "feature", "python", "alone", "megabytes", *_TABLES}
_PYTHON: Final = re.compile(r"3\.\d+")
_PINNED: Final = re.compile(r"[\w.\-\[\],]+(==[\w.+!]+|[<>!~]=?[\w.,<>=!*]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    r"""What is installed, run and tested: the failure, or its twin.

    ``known`` says how the truth about it is known, ``seen`` is the lower bound of epsilon that was
    measured with the entry's runs.
    """

    requires: tuple[str, ...]
    code: str
    claim: str
    known: str
    seen: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    r"""A failure of a published package; the module says what its fields mean.

    ``true`` is the quantity that is known, "epsilon" or "delta", and its value as text.
    """

    name: str
    package: str
    version: str
    failure: str
    source: str
    relation: Relation
    pair: tuple[Any, Any]
    runs: int
    feature: str | None
    python: str | None
    alone: bool
    megabytes: int
    by: str
    true: tuple[str, str]
    broken: Side
    twin: Side | None

    @property
    def sides(self) -> dict[Role, Side]:
        r"""The failure and, where there is one, its twin."""
        found: dict[Role, Side] = {"broken": self.broken}
        return found if self.twin is None else {**found, "twin": self.twin}

    @property
    def true_epsilon(self) -> float:
        r"""What no valid lower bound exceeds: the true epsilon where it is known, else infinity."""
        quantity, value = self.true
        if quantity == "delta" or value == "infinite":
            return math.inf
        return float(rational("epsilon", value))


@cache
def entries() -> tuple[Entry, ...]:
    r"""The corpus, by name."""
    folder = files("audit.corpus") / "entries"
    found = sorted(path.name for path in folder.iterdir() if path.name.endswith(".toml"))
    return tuple(
        read_entry(name.removesuffix(".toml"), (folder / name).read_text(encoding="utf-8"))
        for name in found
    )


def find(name: str) -> Entry:
    r"""The entry of that name.

    Raises :class:`InvalidParameter` where there is none.
    """
    by_name = {entry.name: entry for entry in entries()}
    if name not in by_name:
        hint = did_you_mean(name, [*by_name])
        raise InvalidParameter(
            "NAME", name, f"{hint}must be an entry that dpcore audit corpus list shows"
        )
    return by_name[name]


def read_entry(name: str, text: str) -> Entry:
    r"""The entry that a file holds.

    Raises :class:`InvalidParameter`, naming the file and the key, for a key that is missing,
    unknown or of the wrong type, a claim, a relation or a feature that no audit takes, a pair that
    cannot be neighbours, a truth that the claim covers, and a source without an address.
    """
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidParameter(name, "(the file)", f"is not TOML: {error}") from None
    read = _Keys(name=name, found=found)
    read.known("", found, _TOP)
    for table, keys in _TABLES.items():
        if table != "twin" or table in found:
            read.known(f"{table}.", read.of(table, dict), keys)
    texts = {key: read.of(key, str) for key in _TEXT}
    if not texts["source"].startswith("https://"):
        raise read.wrong("source", "must be an https address: no failure without a public thread")
    relation = _relation(read, texts.pop("relation"))
    claim = read.of("claimed.claim", str)
    broken = Side(
        requires=_requires(read, "broken.requires"),
        code=_code(read, "broken.code"),
        claim=claim,
        known=read.of("true.known", str),
        seen=float(read.of("broken.seen", float, int)),
    )
    entry = Entry(
        name=name,
        relation=relation,
        pair=_pair(read, relation),
        runs=read.of("runs", int),
        feature=read.of("feature", str) if "feature" in found else None,
        python=read.of("python", str) if "python" in found else None,
        alone=read.switch("alone"),
        megabytes=read.of("megabytes", int),
        by=read.of("claimed.by", str),
        true=_truth(read),
        broken=broken,
        twin=_twin(read, broken) if "twin" in found else None,
        **texts,
    )
    _check(read, entry)
    return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keys:
    name: str
    found: dict[str, Any]

    def wrong(self, key: str, reason: str) -> InvalidParameter:
        return InvalidParameter(f"{self.name}: {key}", self.get(key), reason)

    def get(self, key: str) -> Any:
        value: Any = self.found
        for word in key.split("."):
            value = value.get(word) if isinstance(value, dict) else None
        return value

    def known(self, place: str, table: dict[str, Any], keys: set[str]) -> None:
        for key in table:
            if key not in keys:
                raise self.wrong(place + key, f"is unknown: {did_you_mean(key, sorted(keys))}")

    def switch(self, key: str) -> bool:
        value = self.found.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, "must be true or false")
        return value

    def of(self, key: str, *kinds: type) -> Any:
        value = self.get(key)
        empty = isinstance(value, str) and not value.strip()
        if not isinstance(value, kinds) or isinstance(value, bool) or empty:
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise self.wrong(key, f"must be given: of type {wanted}, and not empty")
        return value


def _relation(read: _Keys, text: str) -> Relation:
    try:
        return Relation(text)
    except ValueError:
        choices = " or ".join(relation.value for relation in Relation)
        raise read.wrong("relation", f"must be {choices}") from None


def _pair(read: _Keys, relation: Relation) -> tuple[Any, Any]:
    pair = read.of("pair", list)
    if len(pair) != 2 or pair[0] == pair[1]:
        raise read.wrong("pair", "must be two different datasets")
    try:
        json.dumps(pair, allow_nan=False)
    except (TypeError, ValueError):
        raise read.wrong("pair", "must be values of JSON") from None
    require_neighbours(f"{read.name}: pair", (pair[0], pair[1]), relation)
    return pair[0], pair[1]


def _requires(read: _Keys, key: str) -> tuple[str, ...]:
    listed = read.of(key, list)
    if not listed or not all(isinstance(one, str) and _PINNED.fullmatch(one) for one in listed):
        raise read.wrong(key, 'must list requirements such as "name==1.2.0"')
    if "==" not in listed[0]:
        raise read.wrong(key, "must pin the first one, the package itself, with ==")
    return tuple(listed)


def _code(read: _Keys, key: str) -> str:
    text: str = read.of(key, str)
    try:
        compile(text, f"{read.name}:{key}", "exec")
    except (SyntaxError, ValueError) as error:
        raise read.wrong(key, f"is not Python: {error}") from None
    return text


def _truth(read: _Keys) -> tuple[str, str]:
    given = [key for key in ("epsilon", "delta") if key in read.of("true", dict)]
    if len(given) != 1:
        raise read.wrong("true", "must give either epsilon or delta")
    value: str = read.of(f"true.{given[0]}", str)
    if value != "infinite" or given[0] == "delta":
        rational(f"{read.name}: true.{given[0]}", value)
    return given[0], value


def _twin(read: _Keys, broken: Side) -> Side:
    own = read.of("twin", dict)
    return Side(
        requires=_requires(read, "twin.requires") if "requires" in own else broken.requires,
        code=_code(read, "twin.code") if "code" in own else broken.code,
        claim=read.of("twin.claim", str) if "claim" in own else broken.claim,
        known=read.of("twin.known", str),
        seen=float(read.of("twin.seen", float, int)),
    )


def _check(read: _Keys, entry: Entry) -> None:
    if entry.runs < 1:
        raise read.wrong("runs", "must be >= 1")
    if entry.megabytes < 1:
        raise read.wrong("megabytes", "must be >= 1")
    if entry.python is not None and not _PYTHON.fullmatch(entry.python):
        raise read.wrong("python", "must be a version such as 3.12")
    if entry.feature is not None:
        read_feature(entry.feature)
    for side in entry.sides.values():
        points = read_claim(side.claim, entry.relation).points
        if side.seen < 0 or math.isnan(side.seen):
            raise read.wrong("seen", "must be a lower bound of epsilon, >= 0")
        if side is not entry.broken or len(points) > 1:
            continue
        quantity, value = entry.true
        if value != "infinite" and rational(quantity, value) <= getattr(points[0], quantity):
            raise read.wrong(f"true.{quantity}", "must exceed what is claimed")
        if not entry.broken.seen <= entry.true_epsilon:
            raise read.wrong("broken.seen", "must not exceed the true epsilon")
