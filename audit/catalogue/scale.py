r"""Noise of the right kind and the wrong size."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np

from audit.catalogue.entry import Entry, Twin, laplace
from dpcore import Enclosure, Relation
from dpcore.numbers.arrays import Integers

__all__ = ["COUNT", "ENTRIES", "count"]


def count(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""A count that one person moves by at most 1, released at epsilon = 1: scale 1/1."""
    return value + laplace(1, n, rng)


def half_scale(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The same with scale 1/2: the variance was taken for twice the scale."""
    return value + laplace(Fraction(1, 2), n, rng)


def ten_percent(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The same with scale 10/11: a rounded constant."""
    return value + laplace(Fraction(10, 11), n, rng)


def five_percent(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The same with scale 20/21."""
    return value + laplace(Fraction(20, 21), n, rng)


def histogram(records: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""How many records are 0 and how many are 1, at epsilon = 1/2: scale 1/epsilon = 2 a bin."""
    return np.bincount(records, minlength=2) + laplace(2, (n, 2), rng)


def inverted_histogram(records: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The same with scale epsilon = 1/2."""
    return np.bincount(records, minlength=2) + laplace(Fraction(1, 2), (n, 2), rng)


COUNT: Final = Twin(name="count", run=count)

ENTRIES: Final = (
    Entry(
        name="half-scale",
        number=1,
        sentence="The noise has half the scale that the claim needs, so epsilon is twice as large.",
        source="the plainest slip: a variance or a width taken for a scale",
        run=half_scale,
        true_epsilon=Enclosure.exactly(2),
        runs=300,
        twin=COUNT,
    ),
    Entry(
        name="ten-percent",
        number=2,
        sentence="The scale is 10/11 of what the claim needs: a small slip, and easy to overlook.",
        source="the plainest slip, as small as it comes",
        run=ten_percent,
        true_epsilon=Enclosure.exactly(Fraction(11, 10)),
        runs=20_000,
        twin=COUNT,
    ),
    Entry(
        name="five-percent",
        number=3,
        sentence="The scale is 20/21 of what the claim needs, which a thousand outputs do not "
        "show.",
        source="the plainest slip, smaller still",
        run=five_percent,
        true_epsilon=Enclosure.exactly(Fraction(21, 20)),
        runs=100_000,
        twin=COUNT,
    ),
    Entry(
        name="inverted-scale",
        number=8,
        sentence="Noise of scale epsilon where 1/epsilon belongs: the stricter the claim, the less "
        "noise.",
        source="Ding et al. 2018 (arXiv 1805.10559), histogram with the wrong scale",
        run=inverted_histogram,
        pair=([0, 0, 1], [0, 0, 1, 1]),
        epsilon=Fraction(1, 2),
        relation=Relation.ADD_REMOVE,
        true_epsilon=Enclosure.exactly(2),
        runs=200,
        twin=Twin(
            name="histogram",
            run=histogram,
            pair=([0, 0, 1], [0, 0, 1, 1]),
            epsilon=Fraction(1, 2),
            relation=Relation.ADD_REMOVE,
        ),
    ),
)
