r"""Choosing among answers: sparse vector and noisy maximum.

Sources: Lyu, Su and Li, "Understanding the Sparse Vector Technique for Differential Privacy"
(arXiv 1603.01699), Figure 1; Dwork and Roth, "The Algorithmic Foundations of Differential
Privacy" (2014), section 3.3 (report noisy max).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np

from audit.catalogue.entry import Entry, Twin, laplace
from dpcore import Enclosure
from dpcore.inversion import Integers

__all__ = ["ENTRIES"]


def sparse_vector(answers: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""Which answer is the first at or above 0, at epsilon = 1 (Algorithm 1 with c = 1).

    Half of epsilon noises the threshold (scale 2), half each answer (scale 2 c/(1/2) = 4). A row
    is 0 for "below", 1 for the one "above" after which it stops, -1 for what is not answered.
    """
    threshold = laplace(2, (n, 1), rng)
    noisy = np.asarray(answers) + laplace(4, (n, len(answers)), rng)
    above = (noisy >= threshold).astype(np.int64)
    stopped = np.cumsum(above, axis=1) - above > 0
    return np.where(stopped, -1, above)


def sparse_vector_stoddard(answers: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""Only the threshold is noised, and it never stops (Algorithm 5)."""
    threshold = laplace(2, (n, 1), rng)
    return (np.asarray(answers) >= threshold).astype(np.int64)


def noisy_max(counts: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The index of the largest noisy count, the first if several: scale 2/epsilon = 2."""
    noisy: Integers = np.asarray(counts) + laplace(2, (n, len(counts)), rng)
    first: Integers = noisy.argmax(axis=1)
    return first


def noisy_max_value(counts: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The same noise, but the largest noisy count itself is returned."""
    noisy: Integers = np.asarray(counts) + laplace(2, (n, len(counts)), rng)
    largest: Integers = noisy.max(axis=1)
    return largest


ENTRIES: Final = (
    Entry(
        name="sparse-vector-noiseless-answers",
        number=11,
        sentence="Only the threshold is noisy: answers on both sides of it pin it down, and two of "
        "them in order show which world it is.",
        source="Stoddard et al. 2014, as Algorithm 5 of Lyu et al. (arXiv 1603.01699)",
        run=sparse_vector_stoddard,
        pair=([0, 1], [1, 0]),
        epsilon=Fraction(1),
        true_epsilon=Enclosure.infinite(),
        runs=500,
        # Each answer below the threshold adds to the cost: 0.93 with five, towards 1 with more.
        twin=Twin(
            name="sparse-vector",
            run=sparse_vector,
            pair=([0, 0, 0, 0, 0, 1], [1, 1, 1, 1, 1, 0]),
            epsilon=Fraction(1),
        ),
    ),
    Entry(
        name="noisy-max-value",
        number=13,
        sentence="The noise pays for the index of the largest count, and its value is returned.",
        source="Ding et al. 2018 (arXiv 1805.10559), noisy max that returns the maximum",
        run=noisy_max_value,
        pair=([0, 0, 0, 0, 0], [1, 1, 1, 1, 1]),
        epsilon=Fraction(1),
        # max <= v, v < 0, needs all five noises <= v: (e^(1/2))^5 between the worlds.
        true_epsilon=Enclosure.exactly(Fraction(5, 2)),
        runs=5000,
        twin=Twin(
            name="noisy-max",
            run=noisy_max,
            pair=([0, 1, 1, 1, 1], [1, 0, 0, 0, 0]),
            epsilon=Fraction(1),
        ),
    ),
)
