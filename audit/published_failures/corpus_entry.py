r"""Entries of the corpus: a published package that violates a privacy claim, and how to test it.

Each entry is a TOML file; the name of the file is the name of the entry::

    package = "name"                        on the package index
    version = "1.2.0"                       the broken version
    failure = "..."                         the bug, in one sentence
    source = "https://..."                  the public issue, changelog or paper
    relation = "replace"                    or add-remove
    pair = [[0, 1], [0, 2]]                 two neighbouring datasets
    runs = 100000                           number of runs, both datasets together
    feature = "lowest-bit"                  optional, see dpcore audit --feature
    python = "3.12"                         optional: the newest Python the package supports
    alone = true                            optional: installed without its dependencies
    megabytes = 60                          the disk space of its environment

    [claimed]
    claim = "epsilon=1"                     in the syntax of dpcore audit --claim
    by = "..."                              where the package states the claim

    [true]                                  either epsilon or delta
    epsilon = "2"                           the true epsilon at the claimed delta, or "infinite"
    delta = "0.013"                         the true delta at the claimed epsilon
    known = "..."                           how the true value is known

    [broken]
    requires = ["name==1.2.0"]              the packages to install; the first has a fixed version
    seen = 1.9                              the lower bound on epsilon that was measured
    code = "..."                            Python code of the test, see the module ``worker``

    [twin]                                  omitted if the package was not repaired
    known = "..."                           the repair
    seen = 0.8                              the lower bound on epsilon that was measured
    requires, code, claim                   by default those of the broken package
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import files
from typing import Any, Final, Literal, TypeAlias

from audit.audit_spec import AuditSpec
from audit.claims import read_claim
from audit.features.parse_feature import read_feature
from audit.targets.check_neighbours import require_neighbours
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.mechanism import Relation
from dpcore.numbers.parameter import rational
from dpcore.spec_syntax import did_you_mean

Role: TypeAlias = Literal["broken", "twin"]
ROLES: Final[tuple[Role, ...]] = ("broken", "twin")

# The required and the optional keys of each table, with their types.
_Kinds: TypeAlias = Mapping[str, type]
_TABLES: Final[dict[str, tuple[_Kinds, _Kinds]]] = {
    "": (
        {
            "package": str, "version": str, "failure": str, "source": str, "relation": str,
            "pair": list, "runs": int, "megabytes": int, "claimed": dict, "true": dict,
            "broken": dict,
        },
        {"feature": str, "python": str, "alone": bool, "twin": dict},
    ),
    "claimed": ({"claim": str, "by": str}, {}),
    "true": ({"known": str}, {"epsilon": str, "delta": str}),
    "broken": ({"requires": list, "seen": float, "code": str}, {}),
    "twin": ({"seen": float, "known": str}, {"requires": list, "code": str, "claim": str}),
}  # fmt: skip
_PYTHON: Final = re.compile(r"3\.\d+")
_PINNED: Final = re.compile(r"[\w.\-\[\],]+(==[\w.+!]+|[<>!~]=?[\w.,<>=!*]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    r"""One of the two tests of an entry: that of the failure, or that of its corrected twin.

    ``known`` states how the true value of the failure is known, or how the twin was repaired.
    ``seen`` is the lower bound on epsilon that was measured with the number of runs of the entry.
    """

    requires: tuple[str, ...]
    code: str
    claim: str
    known: str
    seen: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    r"""A failure of a published package; the module docstring describes the fields.

    ``spec`` is the specification of its audit, without a target. ``true`` is the name of the true
    quantity that is known, "epsilon" or "delta", and its value as text.
    """

    name: str
    package: str
    version: str
    failure: str
    source: str
    spec: AuditSpec
    python: str | None
    alone: bool
    megabytes: int
    by: str
    true: tuple[str, str]
    broken: Side
    twin: Side | None

    @property
    def sides(self) -> dict[Role, Side]:
        found: dict[Role, Side] = {"broken": self.broken}
        return found if self.twin is None else {**found, "twin": self.twin}

    @property
    def relation(self) -> Relation:
        return Relation(self.spec.relation)

    @property
    def pair(self) -> tuple[Any, Any]:
        return self.spec.pair or (None, None)

    @property
    def runs(self) -> int:
        return self.spec.runs or 0

    @property
    def feature(self) -> str | None:
        return str(self.spec.features[0]) if self.spec.features else None

    @property
    def true_epsilon(self) -> float:
        r"""The true epsilon; infinity if only the true delta is known or no finite one suffices."""
        quantity, value = self.true
        if quantity == "delta" or value == "infinite":
            return math.inf
        return float(rational("epsilon", value))


@cache
def entries() -> tuple[Entry, ...]:
    r"""All entries of the corpus, sorted by name."""
    folder = files("audit.published_failures") / "entries"
    found = sorted(path.name for path in folder.iterdir() if path.name.endswith(".toml"))
    return tuple(
        read_entry(name.removesuffix(".toml"), (folder / name).read_text(encoding="utf-8"))
        for name in found
    )


def find(name: str) -> Entry:
    r"""Return the entry with this name.

    Raises :class:`InvalidParameter` if there is no such entry.
    """
    by_name = {entry.name: entry for entry in entries()}
    if name not in by_name:
        hint = did_you_mean(name, by_name)
        reason = f"{'it ' if hint else ''}must be an entry that dpcore audit corpus list prints"
        raise InvalidParameter("NAME", name, hint + reason)
    return by_name[name]


def read_entry(name: str, text: str) -> Entry:
    r"""Parse the text of a file as the entry ``name``."""
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidParameter(name, ABSENT, f"the file is not valid TOML: {error}") from None
    for table in _TABLES:
        if table in found or table in ("", *_TABLES[""][0]):
            _require_kinds(name, table, found.get(table, {}) if table else found)
    stated = {"known": found["true"]["known"], "claim": found["claimed"]["claim"]}
    broken = found["broken"] | stated
    spec = AuditSpec(
        claim=broken["claim"],
        relation=found["relation"],
        pair=found["pair"],
        runs=found["runs"],
        features=[found["feature"]] if "feature" in found else (),  # type: ignore[arg-type]  # any iterable, read by the spec
        timeout=None,
        # A failure may add no noise at all: each dataset then has one output.
        allow_constant=True,
    )
    entry = Entry(
        name=name,
        spec=spec,
        python=found.get("python"),
        alone=found.get("alone", False),
        megabytes=found["megabytes"],
        by=found["claimed"]["by"],
        true=_truth(name, found["true"]),
        broken=_side(f"{name}: broken", broken),
        twin=_side(f"{name}: twin", {**broken, **found["twin"]}) if "twin" in found else None,
        **{key: found[key] for key in ("package", "version", "failure", "source")},
    )
    _check(entry)
    return entry


def _require_kinds(name: str, table: str, found: dict[str, Any]) -> None:
    must, may = _TABLES[table]
    place = f"{name}: {table}." if table else f"{name}: "
    known = {**must, **may}
    for key, value in found.items():
        if key not in known:
            hint = did_you_mean(key, sorted(known))
            reason = f"is unknown: {hint}it must be one of {', '.join(sorted(known))}"
            raise InvalidParameter(place + key, value, reason)
    for key, kind in known.items():
        if key not in found and key in may:
            continue
        value = found.get(key, ABSENT)
        right = isinstance(value, int | float if kind is float else kind)
        empty = isinstance(value, str) and not value.strip()
        if not right or empty or (isinstance(value, bool) and kind is not bool):
            reason = "must not be empty" if right and empty else f"must be of type {kind.__name__}"
            raise InvalidParameter(place + key, value, reason)


def _side(place: str, found: dict[str, Any]) -> Side:
    requires, code, seen = found["requires"], found["code"], float(found["seen"])
    wrong = partial(InvalidParameter, f"{place}.requires", requires)
    if not requires or not all(isinstance(one, str) and _PINNED.fullmatch(one) for one in requires):
        raise wrong('must list requirements such as "name==1.2.0"')
    if "==" not in requires[0]:
        raise wrong("must pin the first requirement, the package itself, with ==")
    try:
        compile(code, f"{place}.code", "exec")
    except (SyntaxError, ValueError) as error:
        raise InvalidParameter(f"{place}.code", code, f"is not valid Python: {error}") from None
    if seen < 0 or math.isnan(seen):
        raise InvalidParameter(f"{place}.seen", seen, "must be a lower bound on epsilon, >= 0")
    own = {key: found[key] for key in ("code", "claim", "known")}
    return Side(requires=tuple(requires), seen=seen, **own)


def _truth(name: str, found: dict[str, Any]) -> tuple[str, str]:
    given = [key for key in ("epsilon", "delta") if key in found]
    if len(given) != 1:
        reason = "must contain exactly one of epsilon and delta"
        raise InvalidParameter(f"{name}: true", found, reason)
    value = found[given[0]]
    if value != "infinite" or given[0] == "delta":
        rational(f"{name}: true.{given[0]}", value)
    return given[0], value


def _check(entry: Entry) -> None:
    if entry.feature is not None:
        read_feature(entry.feature)
    try:
        json.dumps(entry.pair, allow_nan=False)
    except (TypeError, ValueError):
        raise InvalidParameter(f"{entry.name}: pair", entry.pair, "must be JSON") from None
    for side in entry.sides.values():
        replace(entry.spec, claim=side.claim)
    points, (quantity, value) = read_claim(entry.broken.claim).points, entry.true
    curve, endless = len(points) > 1, value == "infinite"
    exceeds = curve or endless or rational(quantity, value) > getattr(points[0], quantity)
    version = entry.python is None or _PYTHON.fullmatch(entry.python)
    checks: list[tuple[str, object, object, str]] = [
        ("source", entry.source, entry.source.startswith("https://"), "must be an https address"),
        ("megabytes", entry.megabytes, entry.megabytes >= 1, "must be >= 1"),
        ("python", entry.python, version, "must be a version such as 3.12"),
        ("pair", entry.pair, entry.pair[0] != entry.pair[1], "must be two different datasets"),
        (f"true.{quantity}", value, exceeds, "must exceed the claimed value"),
        ("broken.seen", entry.broken.seen, entry.broken.seen <= entry.true_epsilon,
         "must not exceed the true epsilon"),
    ]  # fmt: skip
    for key, given, right, reason in checks:
        if not right:
            raise InvalidParameter(f"{entry.name}: {key}", given, reason)
    require_neighbours(f"{entry.name}: pair", entry.pair, entry.relation)
