r"""A bound on what one person adds, computed and then not used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from audit.catalogue.entry import Entry, Twin, laplace
from dpcore import Enclosure
from dpcore.numbers.arrays import Integers

__all__ = ["ENTRIES"]

_LOWER: Final = 0
_UPPER: Final = 2
_PAIR: Final = ([1, 0], [1, 6])


def clipped_sum(values: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""A sum of values clipped to [0, 2], with noise of scale 2: epsilon = 1."""
    clipped = np.clip(values, _LOWER, _UPPER)
    return int(clipped.sum()) + laplace(_UPPER - _LOWER, n, rng)


def unclipped_sum(values: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The same, but the clipped copy is thrown away and the values are summed."""
    np.clip(values, _LOWER, _UPPER)
    return sum(values) + laplace(_UPPER - _LOWER, n, rng)


def lower_twice(values: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The sensitivity is taken between the lower bound and itself: 0, so no noise is added."""
    bounds = (_LOWER, _LOWER)
    sensitivity = bounds[1] - bounds[0]
    total = int(np.clip(values, _LOWER, _UPPER).sum())
    return total + (laplace(sensitivity, n, rng) if sensitivity else np.zeros(n, dtype=np.int64))


_CLIPPED: Final = Twin(name="clipped-sum", run=clipped_sum, pair=_PAIR)

ENTRIES: Final = (
    Entry(
        name="clipped-copy-unused",
        number=41,
        sentence="Values are clipped into a new array, and the old one is summed: a person adds "
        "whatever they like.",
        source="array functions that return a copy where the caller expects a change in place",
        run=unclipped_sum,
        pair=_PAIR,
        true_epsilon=Enclosure.exactly(3),
        runs=200,
        twin=_CLIPPED,
    ),
    Entry(
        name="lower-bound-twice",
        number=42,
        sentence="The lower bound is passed for both ends, so the sensitivity is 0 and no noise "
        "is added.",
        source="a pair of bounds unpacked or copied wrongly; scale 0 must be refused, not obeyed",
        run=lower_twice,
        pair=_PAIR,
        true_epsilon=Enclosure.infinite(),
        runs=100,
        twin=_CLIPPED,
    ),
)
