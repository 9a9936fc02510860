r"""What is released beside the noisy number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from audit.catalogue.entry import Entry, Twin, laplace
from dpcore import Enclosure, Relation
from dpcore.numbers.arrays import Integers

__all__ = ["ENTRIES"]

_PAIR: Final = ([1, 0], [1, 0, 1])


def noisy_size(bits: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""How many records there are and their sum, each at epsilon = 1/2: scale 2."""
    return np.array([len(bits), sum(bits)]) + laplace(2, (n, 2), rng)


def exact_size(bits: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The same with the number of records as it is, and the sum at epsilon = 1."""
    size = np.full(n, len(bits), dtype=np.int64)
    return np.column_stack((size, sum(bits) + laplace(1, n, rng)))


ENTRIES: Final = (
    Entry(
        name="exact-size",
        number=27,
        sentence="A noisy sum comes with the exact number of records, and whether a person is "
        "among them is the secret.",
        source="means and rates that divide by the size of the table; it is public only where "
        "records are replaced",
        run=exact_size,
        pair=_PAIR,
        relation=Relation.ADD_REMOVE,
        true_epsilon=Enclosure.infinite(),
        runs=100,
        twin=Twin(name="noisy-size", run=noisy_size, pair=_PAIR, relation=Relation.ADD_REMOVE),
    ),
)
