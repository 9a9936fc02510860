r"""Where ``--search`` looks for the pair of neighbouring datasets that tells most.

    integer:low=0,high=10[,apart=1]
                            two integers at most ``apart`` apart
    vector:dimension=5,low=0,high=2[,sensitivity=1][,norm=box]
                            answers to queries; between neighbours every one may change by at most
                            ``sensitivity`` (norm=box), or their sum of changes (norm=l1), or of
                            squared changes (norm=l2-squared) is at most that
    histogram:bins=5[,most=10]
                            counts up to ``most``; one person in another bin, or more or less
    dataset:low=0,high=1[,most=10]
                            up to ``most`` integer records; one replaced, or more or less
    stream:steps=8[,users=2][,low=0,high=1][,unit=contribution]
                            [user, event] or null at each step; one event, or (unit=user) any of
                            the events of one user, replaced or left out

Replaced or left out is what the claim's relation says (replace, add-remove); integers and vectors
are answers to queries, and have the same neighbours under both. What neighbours are agrees with
:mod:`audit.strategies`. Datasets are integers and lists, so that any target can be given them.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from dpcore.errors import InvalidParameter
from dpcore.mechanism import Norm, Relation, Unit
from dpcore.parameter import rational

__all__ = ["Pair", "Space", "key", "read_space"]

Pair: TypeAlias = tuple[Any, Any]

_ATTEMPTS: Final = 30
_FARTHEST: Final = 1 << 53  # every JSON reader holds such an integer exactly
_LARGEST: Final = 10_000

# The keys of each space, with a default where one is known.
_SPACES: Final[dict[str, dict[str, str | None]]] = {
    "integer": {"low": None, "high": None, "apart": "1"},
    "vector": {"dimension": None, "low": None, "high": None, "sensitivity": "1", "norm": "box"},
    "histogram": {"bins": None, "most": "10"},
    "dataset": {"low": None, "high": None, "most": "10"},
    "stream": {"steps": None, "users": "2", "low": "0", "high": "1", "unit": "contribution"},
}
_NORMS: Final = (Norm.BOX, Norm.L1, Norm.L2_SQUARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space(ABC):
    r"""A set of pairs of different, neighbouring datasets.

    ``spelling`` is how it was written. An audit treats its two worlds alike, so (a, b) and (b, a)
    are one candidate and each method yields it one way round.
    """

    spelling: str

    @abstractmethod
    def patterns(self) -> Iterator[Pair]:
        r"""The classic candidates, each once, always in the same order; at least one."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> Pair:
        r"""A pair drawn at random."""

    @abstractmethod
    def neighbours(self, one: Any, other: Any) -> bool:
        r"""Whether the two datasets are of this space, different, and neighbours."""

    @abstractmethod
    def _step(self, pair: Pair, rng: np.random.Generator) -> Pair:
        # A pair a small step away, which may lie outside of the space.
        ...

    def mutate(self, pair: Pair, rng: np.random.Generator) -> Pair:
        r"""Another pair, a small step away from ``pair``; one drawn afresh where none is found."""
        for _ in range(_ATTEMPTS):
            found = self._step(pair, rng)
            if key(found) != key(pair) and self.neighbours(*found):
                return found
        return self.draw(rng)


def key(pair: Pair) -> str:
    r"""A text that is the same for a pair and its mirror image, and for no other pair.

    >>> key(([0], [1])) == key(([1], [0])) == "[0] [1]"
    True
    """
    return " ".join(sorted(json.dumps(dataset) for dataset in pair))


def read_space(text: str, relation: Relation | str = Relation.REPLACE) -> Space:
    r"""The space that ``text`` spells; see the module.

    Raises :class:`InvalidParameter` for an unknown space, and for a key that is missing, unknown,
    given twice or out of range.

    >>> space = read_space("vector:dimension=3,low=0,high=1")
    >>> next(space.patterns()), space.neighbours([0, 0, 0], [1, 1, 0])
    (([0, 0, 0], [1, 1, 1]), True)
    """
    from audit.space_grid import Histograms, Integers, Vectors
    from audit.space_records import Datasets, Streams

    name, _, rest = text.partition(":")
    given = _Given(text=text, values=_parts(name.strip(), rest, text))
    match name.strip():
        case "integer":
            low, high = given.range()
            apart = given.whole("apart", 1, high - low)
            return Integers(spelling=text, low=low, high=high, apart=apart)
        case "vector":
            low, high = given.range()
            norm = given.word("norm", tuple(norm.value for norm in _NORMS))
            # A step beyond the range can never be taken.
            most = _LARGEST**2 if norm != Norm.BOX.value else high - low
            return Vectors(
                spelling=text,
                low=low,
                high=high,
                dimension=given.whole("dimension", 1, _LARGEST),
                amount=given.whole("sensitivity", 1, most),
                norm=Norm(norm),
            )
        case "histogram":
            replaced = Relation(relation) is Relation.REPLACE
            return Histograms(
                spelling=text,
                low=0,
                high=given.whole("most", 1, _FARTHEST),
                dimension=given.whole("bins", 2 if replaced else 1, _LARGEST),
                relation=Relation(relation),
            )
        case "dataset":
            low, high = given.range()
            return Datasets(
                spelling=text,
                low=low,
                high=high,
                most=given.whole("most", 1, _LARGEST),
                relation=Relation(relation),
            )
        case _:
            low, high = given.range()
            return Streams(
                spelling=text,
                low=low,
                high=high,
                steps=given.whole("steps", 1, _LARGEST),
                users=given.whole("users", 1, _LARGEST),
                unit=Unit(given.word("unit", tuple(unit.value for unit in Unit))),
                relation=Relation(relation),
            )


def _parts(name: str, rest: str, text: str) -> dict[str, str]:
    if name not in _SPACES:
        reason = f"must start with one of {', '.join(_SPACES)}, e.g. integer:low=0,high=10"
        raise InvalidParameter("--search", text, reason)
    known = _SPACES[name]
    found: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        word, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or word not in known:
            reason = f"{part!r}: {name} takes {', '.join(known)}, each as key=value"
            raise InvalidParameter("--search", text, reason)
        if word in found:
            raise InvalidParameter("--search", text, f"{word} is given twice")
        found[word] = value
    for word, default in known.items():
        if word not in found:
            if default is None:
                raise InvalidParameter("--search", text, f"{word} is missing: write {word}=...")
            found[word] = default
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    text: str
    values: dict[str, str]

    def whole(self, word: str, least: int, most: int) -> int:
        try:
            exact = rational(word, self.values[word])
        except InvalidParameter:
            exact = None
        if exact is None or exact.denominator != 1 or not least <= exact <= most:
            reason = f"{word} must be a whole number from {least} to {most}"
            raise InvalidParameter("--search", self.text, reason)
        return int(exact)

    def range(self) -> tuple[int, int]:
        low = self.whole("low", -_FARTHEST, _FARTHEST - 1)
        return low, self.whole("high", low + 1, _FARTHEST)

    def word(self, word: str, known: tuple[str, ...]) -> str:
        if self.values[word] not in known:
            raise InvalidParameter("--search", self.text, f"{word} must be {' or '.join(known)}")
        return self.values[word]
