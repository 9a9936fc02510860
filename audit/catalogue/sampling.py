r"""Privacy amplified by subsampling, which needs a subsample.

A mechanism at epsilon on a Poisson sample of rate q costs ln(1 + q (e^epsilon - 1)) where records
are added or removed (Li, Qardaji and Su, "On Sampling, Anonymization, and Differential Privacy",
2012).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np

from audit.catalogue.entry import Entry, Twin, laplace
from dpcore import Enclosure, Relation
from dpcore.numbers.arrays import Integers

__all__ = ["ENTRIES"]

_PAIR: Final = ([1, 0], [1, 0, 1])


def sampled(bits: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""A sum over a sample of rate 3/8, with noise of scale 1: ln(1 + 3/8 (e - 1)) = 0.4973..."""
    taken = rng.integers(8, size=(n, len(bits))) < 3
    return taken @ np.asarray(bits, dtype=np.int64) + laplace(1, n, rng)


def everyone(bits: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The same over all records: the sample was drawn and the whole table summed."""
    return sum(bits) + laplace(1, n, rng)


ENTRIES: Final = (
    Entry(
        name="subsampling-forgotten",
        number=22,
        sentence="The claim counts on a random sample of the records, and the sum is over all of "
        "them.",
        source="minibatches drawn by shuffling, or a sample that is drawn and not used",
        run=everyone,
        pair=_PAIR,
        epsilon=Fraction(1, 2),
        relation=Relation.ADD_REMOVE,
        true_epsilon=Enclosure.exactly(1),
        runs=1000,
        twin=Twin(
            name="subsampled",
            run=sampled,
            pair=_PAIR,
            epsilon=Fraction(1, 2),
            relation=Relation.ADD_REMOVE,
        ),
    ),
)
