r"""Spaces of neighbouring datasets in which ``--search`` looks for a pair.

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
:mod:`audit.testing.strategies`. Datasets are integers and lists, so that any target can be given
them.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from dpcore.mechanism import Norm

DatasetPair: TypeAlias = tuple[Any, Any]

_ATTEMPTS: Final = 30
FARTHEST: Final = 1 << 53  # every JSON reader holds such an integer exactly
LARGEST: Final = 10_000

# The keys of each space, with a default where one is known.
SPACES: Final[dict[str, dict[str, str | None]]] = {
    "integer": {"low": None, "high": None, "apart": "1"},
    "vector": {"dimension": None, "low": None, "high": None, "sensitivity": "1", "norm": "box"},
    "histogram": {"bins": None, "most": "10"},
    "dataset": {"low": None, "high": None, "most": "10"},
    "stream": {"steps": None, "users": "2", "low": "0", "high": "1", "unit": "contribution"},
}
NORMS: Final = (Norm.BOX, Norm.L1, Norm.L2_SQUARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space(ABC):
    r"""A set of pairs of different, neighbouring datasets.

    ``spelling`` is how it was written. An audit treats its two worlds alike, so (a, b) and (b, a)
    are one candidate and each method yields it one way round.
    """

    spelling: str

    @abstractmethod
    def patterns(self) -> Iterator[DatasetPair]:
        r"""The classic candidates, each once, always in the same order; at least one."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> DatasetPair:
        r"""A pair drawn at random."""

    @abstractmethod
    def neighbours(self, one: Any, other: Any) -> bool:
        r"""Whether the two datasets are of this space, different, and neighbours."""

    @abstractmethod
    def _step(self, pair: DatasetPair, rng: np.random.Generator) -> DatasetPair:
        # A pair a small step away, which may lie outside of the space.
        ...

    def mutate(self, pair: DatasetPair, rng: np.random.Generator) -> DatasetPair:
        r"""Another pair, a small step away from ``pair``; one drawn afresh where none is found."""
        for _ in range(_ATTEMPTS):
            found = self._step(pair, rng)
            if key(found) != key(pair) and self.neighbours(*found):
                return found
        return self.draw(rng)


def different(pairs: Iterable[DatasetPair]) -> Iterator[DatasetPair]:
    r"""Each pair once: a mirror image of one that came before is left out.

    >>> list(different([(0, 1), (1, 0), (0, 2)]))
    [(0, 1), (0, 2)]
    """
    seen = set()
    for pair in pairs:
        if key(pair) not in seen:
            seen.add(key(pair))
            yield pair


def key(pair: DatasetPair) -> str:
    r"""A text that is the same for a pair and its mirror image, and for no other pair.

    >>> key(([0], [1])) == key(([1], [0])) == "[0] [1]"
    True
    """
    return " ".join(sorted(json.dumps(dataset) for dataset in pair))
