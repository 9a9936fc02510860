r"""Bugs in composition: several releases, running sums, sampling, order.

Sources: Dwork, Naor, Pitassi and Rothblum, "Differential Privacy under Continual Observation"
(2010); Chan, Shi and Song, "Private and Continual Release of Statistics" (2011). A tree over T
events has floor(log2 T) + 1 levels, and an event is in one node of each level.

A mechanism with cost epsilon on a Poisson sample of rate q costs ln(1 + q (e^epsilon - 1)) if
records are added or removed (Li, Qardaji and Su, "On Sampling, Anonymization, and Differential
Privacy", 2012).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Final

import numpy as np
from flint import arb

from audit.broken_mechanisms.catalogue_entry import Entry, Twin, laplace
from audit.broken_mechanisms.selection import VALUE, row_mass
from dpcore import Enclosure, Relation
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import narrow

# -- composition ----------------------------------------------------------------------------------

_ANSWERS: Final = ([-2, 1], [-1, 0])


def visits(bit: int, n: int, rng: np.random.Generator, *, scale: int = 1) -> Integers:
    r"""Count one user's bit in two batches, each at epsilon = 1/scale."""
    return bit + laplace(scale, (n, 2), rng)


def sparse_vector_twice(answers: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The number of answers before the first one above 0, at epsilon = 1 (scales 2 and 4), and
    that answer with fresh noise, at epsilon = 1 again (scale 1); if none is above, the number of
    answers and 0.
    """
    values = np.append(np.asarray(answers, dtype=np.int64), 0)
    above = values[:-1] + laplace(4, (n, len(answers)), rng) >= laplace(2, (n, 1), rng)
    below = np.where(above.any(axis=1), above.argmax(axis=1), len(answers))
    noisy = values[below] + laplace(1, n, rng)
    return np.column_stack((below, np.where(below < len(answers), noisy, 0)))


def _found_and_released() -> arb:
    # The worst event: the last answer is found, and its noisy value is at least 1 (a factor e).
    found = (row_mass([0, 1], answers, (2, 4)) for answers in _ANSWERS)
    return (next(found) / next(found)).log() + 1


_COMPOSITION: Final = (
    Entry(
        name="returning-user",
        number=20,
        sentence="A returning user is in two batches, each of which costs 1, but the claim counts "
        "one.",
        source="bandits and telemetry that account per batch instead of per user",
        run=visits,
        true_epsilon=Enclosure.exactly(2),
        runs=1000,
        twin=Twin(name="returning-user-composed", run=partial(visits, scale=2)),
    ),
    Entry(
        name="sparse-vector-told-for-free",
        number=38,
        sentence="Sparse vector finds the answer and also releases its value; each costs 1, but "
        "the claim counts one.",
        source="numerical sparse vector (Dwork and Roth 2014, section 3.6) with the budget of "
        "the version without values",
        run=sparse_vector_twice,
        pair=_ANSWERS,
        true_epsilon=narrow(_found_and_released, 64),
        runs=10_000,
        twin=VALUE,
    ),
)

# -- continual ------------------------------------------------------------------------------------

FIRST_EVENT: Final = ([0, 0, 0, 0], [1, 0, 0, 0])
r"""Streams that differ in the first of four events, which is in every sum and on every level."""


def prefix_sums(stream: Sequence[int], n: int, rng: np.random.Generator, *, scale: int) -> Integers:
    r"""Noisy sums of the first 1, 2, 3 and 4 events: each costs 1/scale and contains event 1."""
    return np.cumsum(stream) + laplace(scale, (n, 4), rng)


def tree(stream: Sequence[int], n: int, rng: np.random.Generator, *, scale: int) -> Integers:
    r"""Noisy sums of the first 1, 2 and 4 of four events (the left nodes of three levels): each
    level costs 1/scale.
    """
    return np.cumsum(stream)[[0, 1, 3]] + laplace(scale, (n, 3), rng)


TREE: Final = Twin(name="tree-sums", run=partial(tree, scale=3))

_CONTINUAL: Final = (
    Entry(
        name="prefix-sums-alone",
        number=23,
        sentence="Four running sums of the same events each have noise for one release.",
        source="a dashboard that publishes a noisy total every day",
        run=partial(prefix_sums, scale=1),
        pair=FIRST_EVENT,
        true_epsilon=Enclosure.exactly(4),
        runs=1500,
        twin=Twin(name="prefix-sums", run=partial(prefix_sums, scale=4)),
    ),
    Entry(
        name="tree-unsplit",
        number=24,
        sentence="The sums of a binary tree have noise for one level, but an event is in a node "
        "of every level.",
        source="the binary mechanism without the division of epsilon among log T levels",
        run=partial(tree, scale=1),
        pair=FIRST_EVENT,
        true_epsilon=Enclosure.exactly(3),
        runs=1000,
        twin=TREE,
    ),
)

# -- sampling -------------------------------------------------------------------------------------

_PAIR: Final = ([1, 0], [1, 0, 1])


def sampled(bits: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""A sum over a sample of rate 3/8, with noise of scale 1: epsilon = ln(1 + 3/8 (e - 1)) =
    0.4973...
    """
    taken = rng.integers(8, size=(n, len(bits))) < 3
    return taken @ np.asarray(bits, dtype=np.int64) + laplace(1, n, rng)


def everyone(bits: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""Like :func:`sampled`, but over all records, although the claim assumes a sample."""
    return sum(bits) + laplace(1, n, rng)


_SAMPLING: Final = (
    Entry(
        name="subsampling-forgotten",
        number=22,
        sentence="The claim assumes a random sample of the records, but the sum is over all of "
        "them.",
        source="minibatches drawn by shuffling, or a sample that is drawn and not used",
        run=everyone,
        pair=_PAIR,
        epsilon=Fraction(1, 2),
        relation=Relation.ADD_REMOVE,
        true_epsilon=Enclosure.exactly(1),
        runs=1000,
        twin=Twin(name="subsampled", run=sampled),
    ),
)

# -- release --------------------------------------------------------------------------------------

_USERS: Final = ([1, 0], [1, 0, 1])


def noisy_size(bits: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""Noisy number of records and noisy sum, each at epsilon = 1/2."""
    return np.array([len(bits), sum(bits)]) + laplace(2, (n, 2), rng)


def exact_size(bits: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The exact number of records, and a noisy sum: epsilon = 1."""
    size = np.full(n, len(bits), dtype=np.int64)
    return np.column_stack((size, sum(bits) + laplace(1, n, rng)))


_RELEASE: Final = (
    Entry(
        name="exact-size",
        number=27,
        sentence="A noisy sum is released with the exact number of records, which reveals "
        "whether a person is present.",
        source="means and rates that divide by the size of the table; it is public only if "
        "neighbours replace a record",
        run=exact_size,
        pair=_USERS,
        relation=Relation.ADD_REMOVE,
        true_epsilon=Enclosure.infinite(),
        runs=100,
        twin=Twin(name="noisy-size", run=noisy_size),
    ),
)

ENTRIES: Final = (*_COMPOSITION, *_CONTINUAL, *_SAMPLING, *_RELEASE)
