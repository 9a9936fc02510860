r"""Broken mechanisms with correct twins: an audit must refute each mechanism, but not its twin.

``catalogue.toml`` describes the entries: the bug, its privacy cost, its source and the twin. The
mechanisms are functions in the modules of this package. Each entry has a fixed number. A new entry
needs a twin, and the output law that proves its true epsilon
(tests/audit/broken_mechanisms/test_catalogue.py requires both).
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from audit.claims import Claim, CurveClaim
from dpcore import DiscreteLaplace, Enclosure, Relation, SeededRng
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import narrow
from dpcore.numbers.parameter import RationalLike

if TYPE_CHECKING:
    ENTRIES: tuple[Entry, ...]

__all__ = ["ENTRIES", "Entry", "Layer", "Runnable", "Subject", "Twin", "find", "find_subject"]

Runnable: TypeAlias = Callable[[Any, int, np.random.Generator], NDArray[Any]]
r"""The type of ``run(dataset, n, rng)``: n independent outputs along the first axis."""

Call: TypeAlias = Callable[[Any, np.random.Generator], object]
r"""The type of ``call(dataset, rng)``, which returns one output."""

_CATALOGUE: Final = Path(__file__).with_name("catalogue.toml")
_SEEDS: Final = 1 << 63
_BITS: Final = 64


class Layer(Enum):
    r"""The layer of an audit that must detect a bug.

    ``TIME`` samples the durations of calls (``--feature time``), because the outputs satisfy the
    claim.
    """

    EXACT = "exact"
    FIT = "fit"
    REPLAY = "replay"
    SAMPLE = "sample"
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    r"""A mechanism with a privacy claim and a pair of neighbouring datasets.

    ``pair`` contains two JSON values, which are neighbours under ``relation``. The claim is
    (``epsilon``, ``delta``)-DP. By default the datasets are 0 and 1, and the claim is epsilon = 1.
    The other fields are optional:

    - ``curve``: a privacy curve as text, such as ``discrete-gaussian:sigma_squared=4@1``, that is
      claimed instead of (``epsilon``, ``delta``);
    - ``features``: the features that reveal the bug, such as ``lowest-bit``; if there are none, the
      outputs themselves are tested;
    - ``laws``: the laws of the output on both datasets, in the format of ``dpcore audit exact``;
    - ``call``: a function that makes one run with the same law as ``run``, so that the time of a
      call can be measured.
    """

    name: str
    run: Runnable
    pair: tuple[Any, Any] = (0, 1)
    epsilon: Fraction = Fraction(1)
    delta: Fraction = Fraction(0)
    relation: Relation = Relation.REPLACE
    curve: str | None = None
    features: tuple[str, ...] = ()
    laws: tuple[str, str] | None = None
    call: Call | None = None

    def claim(self, relation: Relation | str | None = None) -> Claim | CurveClaim:
        r"""Return the claimed curve or, without one, the point (``epsilon``, ``delta``).

        ``relation``, if given, replaces the relation of the subject.
        """
        of = relation or self.relation
        if self.curve is not None:
            return CurveClaim(spelling=self.curve, relation=of)
        return Claim(epsilon=self.epsilon, delta=self.delta, relation=of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin(Subject):
    r"""The correct implementation of a broken mechanism.

    The claim holds for every pair of neighbouring datasets, and is nearly tight on ``pair``.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Subject):
    r"""A broken mechanism: the bug, its privacy cost, its source, and the correct twin.

    ``true_epsilon`` encloses the smallest epsilon such that the two output distributions on
    ``pair`` are (epsilon, delta)-indistinguishable, where delta is that of the claim.
    ``true_epsilon`` is infinite if no finite epsilon suffices. For Skellam and Gaussian noise,
    ``true_epsilon`` may also be infinite if no finite epsilon suffices at delta = 0. For the layer
    ``TIME``, ``true_epsilon`` is at most the claimed epsilon, because the outputs satisfy the
    claim. ``number`` is the fixed number of the entry. With ``runs`` runs (both datasets together),
    95 of 100 audits at alpha = 0.05 refute the claim; for layers other than the sample layer,
    ``runs`` is a maximum and need not suffice.
    """

    number: int
    sentence: str
    source: str
    true_epsilon: Enclosure
    runs: int
    twin: Twin
    layer: Layer = Layer.SAMPLE


def seeded(rng: np.random.Generator) -> SeededRng:
    r"""A reproducible dpcore generator, seeded from ``rng``; for simulations only, not private."""
    return SeededRng(int(rng.integers(_SEEDS)))


def laplace(
    scale: RationalLike, shape: int | tuple[int, ...], rng: np.random.Generator
) -> Integers:
    r"""Exact discrete Laplace noise, so that an audit refutes only the deliberate bug."""
    return DiscreteLaplace(scale=scale).sample(shape, rng=seeded(rng))


@cache
def _tables() -> dict[str, dict[str, Any]]:
    return tomllib.loads(_CATALOGUE.read_text(encoding="utf-8"))


def _function(name: str) -> Callable[..., Any]:
    # Imported on demand: an audit of one entry needs one module, and other audits need none.
    module, _, function = name.partition(".")
    found: Callable[..., Any] = getattr(import_module(f"{__name__}.{module}"), function)
    return found


_READ: Final[dict[str, Callable[[Any], Any]]] = {
    "pair": tuple, "epsilon": Fraction, "delta": Fraction, "relation": Relation,
    "features": tuple, "laws": tuple, "call": _function, "layer": Layer,
}  # fmt: skip
# The fields that a twin takes from its entry by default.
_SHARED: Final[tuple[str, ...]] = ("run", "pair", "epsilon", "delta", "relation", "curve")


def _fields(table: dict[str, Any]) -> dict[str, Any]:
    found = {key: _READ.get(key, lambda value: value)(value) for key, value in table.items()}
    arguments = json.dumps(found.pop("arguments", {}))
    return {**found, "run": _run(found["run"], arguments)}


@cache
def _run(name: str, arguments: str) -> Runnable:
    # Cached, because two partial functions are never equal.
    given, function = json.loads(arguments), _function(name)
    return partial(function, **given) if given else function


def _true_epsilon(written: Any) -> Enclosure:
    match written:
        case "infinite":
            return Enclosure.infinite()
        case [lower, upper]:
            return Enclosure(Fraction(lower), Fraction(upper))
        case dict():
            arguments = dict(written)
            return narrow(partial(_function(arguments.pop("of")), **arguments), _BITS)
        case _:
            return Enclosure.exactly(Fraction(written))


@cache
def _entry(name: str) -> Entry:
    table = dict(_tables()[name])
    shared = {key: table[key] for key in _SHARED if key in table}
    twin = Twin(**_fields({**shared, **table.pop("twin")}))
    true_epsilon = _true_epsilon(table.pop("true_epsilon"))
    return Entry(name=name, twin=twin, true_epsilon=true_epsilon, **_fields(table))


@cache
def __getattr__(name: str) -> Any:
    # ``ENTRIES``: all entries, in the order of their numbers.
    if name == "ENTRIES":
        return tuple(sorted(map(_entry, _tables()), key=lambda entry: entry.number))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def find(name: str) -> Entry | None:
    r"""The catalogue entry called ``name``, or None if no entry has this name.

    >>> entry = find("half-scale")
    >>> entry.epsilon, entry.true_epsilon.lower, find("no-such-slip")
    (Fraction(1, 1), Fraction(2, 1), None)
    """
    return _entry(name) if name in _tables() else None


def find_subject(name: str) -> Subject | None:
    r"""The catalogue entry or correct twin called ``name``, or None if neither has this name.

    >>> find_subject("count"), find_subject("no-such-slip")
    (Twin(name='count', ...), None)
    """
    twins = (entry for entry, table in _tables().items() if table["twin"]["name"] == name)
    twin = next(twins, None)
    return find(name) if twin is None else _entry(twin).twin
