r"""Releases that are each private and were never added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from flint import arb

from audit.catalogue.entry import Entry, Twin, laplace
from audit.catalogue.sparse_vector import VALUE, row_mass
from dpcore import Enclosure
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import narrow

__all__ = ["ENTRIES"]

_ANSWERS: Final = ([-2, 1], [-1, 0])


def visits_composed(bit: int, n: int, rng: np.random.Generator) -> Integers:
    r"""One user's bit counted in two batches, each at epsilon = 1/2: together 1."""
    return bit + laplace(2, (n, 2), rng)


def visits(bit: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The same with each batch at epsilon = 1."""
    return bit + laplace(1, (n, 2), rng)


def sparse_vector_twice(answers: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""How many answers are below the first one above 0, at epsilon = 1 (scales 2 and 4), and that
    answer with fresh noise, at epsilon = 1 again (scale 1); all of them and 0 if none is above.
    """
    values = np.append(np.asarray(answers, dtype=np.int64), 0)
    above = values[:-1] + laplace(4, (n, len(answers)), rng) >= laplace(2, (n, 1), rng)
    below = np.where(above.any(axis=1), above.argmax(axis=1), len(answers))
    told = values[below] + laplace(1, n, rng)
    return np.column_stack((below, np.where(below < len(answers), told, 0)))


def _found_and_told() -> arb:
    # The last answer is found, and told at a value of at least 1: e^1 between 0 and 1.
    found = (row_mass([0, 1], answers, (2, 4)) for answers in _ANSWERS)
    return (next(found) / next(found)).log() + 1


ENTRIES: Final = (
    Entry(
        name="returning-user",
        number=20,
        sentence="A user who comes back is in two batches; each costs 1 and the claim counts one.",
        source="bandits and telemetry that account for a batch and not for a user",
        run=visits,
        true_epsilon=Enclosure.exactly(2),
        runs=1000,
        twin=Twin(name="returning-user-composed", run=visits_composed),
    ),
    Entry(
        name="sparse-vector-told-for-free",
        number=38,
        sentence="Sparse vector finds the answer and tells it as well; each costs 1, and the claim "
        "counts one.",
        source="numerical sparse vector (Dwork and Roth 2014, section 3.6) under the budget of "
        "the one that tells no values",
        run=sparse_vector_twice,
        pair=_ANSWERS,
        true_epsilon=narrow(_found_and_told, 64),
        runs=10_000,
        twin=VALUE,
    ),
)
