r"""Slips in what bounds a value: how far one record moves a sum, and clipping.

The right noise for a query that moves by more than was believed.

A bound on what one person adds, computed and then not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np
from flint import arb

from audit.catalogue.entry import Entry, Twin, laplace
from dpcore import Enclosure
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import narrow

__all__ = ["ENTRIES"]

# -- sensitivity ----------------------------------------------------------------------------------


def clipped_to_one(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""A value clipped to [0, 1], so that one person moves it by at most 1; scale 1."""
    return int(np.clip(value, 0, 1)) + laplace(1, n, rng)


def clipped_to_two(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The same clipped to [0, 2], and the scale still 1."""
    return int(np.clip(value, 0, 2)) + laplace(1, n, rng)


def clamped_total(values: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The sum of values clamped to the public range [0, 1]; scale 1."""
    return int(np.clip(values, 0, 1).sum()) + laplace(1, n, rng)


def self_clamped_total(values: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The same, clamped to the range the data shows: whatever a person holds is inside it."""
    return int(np.clip(values, min(values), max(values)).sum()) + laplace(1, n, rng)


def _round(value: float, n: int, rng: np.random.Generator) -> Integers:
    # floor(value) or floor(value) + 1, of mean value: rounding without bias.
    whole = int(np.floor(value))
    return whole + (rng.random(n) < value - whole).astype(np.int64)


def rounded(value: float, n: int, rng: np.random.Generator) -> Integers:
    r"""A value in [0, 1], rounded at random and then noised with scale 1: the rounded value moves
    by 1 however little the value did.
    """
    return _round(value, n, rng) + laplace(1, n, rng)


def rounded_as_half(value: float, n: int, rng: np.random.Generator) -> Integers:
    r"""Values differ by at most 1/2, so the noise has scale 1/2; rounded ones differ by 1."""
    return _round(value, n, rng) + laplace(Fraction(1, 2), n, rng)


def _half_rounded() -> arb:
    # Every output k >= 1 has masses p(k) and (p(k) + p(k - 1))/2 = p(k) (1 + e^2)/2.
    return ((1 + arb(2).exp()) / 2).log()


_SENSITIVITY: Final = (
    Entry(
        name="clipped-to-two",
        number=4,
        sentence="Each person may contribute up to 2, and the noise hides a contribution of 1.",
        source="a clipping bound changed in one place of two",
        run=clipped_to_two,
        pair=(0, 2),
        true_epsilon=Enclosure.exactly(2),
        runs=300,
        twin=Twin(name="clipped-to-one", run=clipped_to_one),
    ),
    Entry(
        name="bounds-from-data",
        number=18,
        sentence="Values are clamped to the smallest and the largest of them: nobody is ever "
        "clamped.",
        source="bounds left to the library, which reads them off the data; diffprivlib warns of it "
        "(PrivacyLeakWarning)",
        run=self_clamped_total,
        pair=([0, 1, 0, 1], [0, 1, 5, 1]),
        true_epsilon=Enclosure.exactly(5),
        runs=100,
        twin=Twin(name="public-bounds", run=clamped_total, pair=([0, 1, 0, 1], [0, 1, 5, 1])),
    ),
    Entry(
        name="rounded-sensitivity",
        number=19,
        sentence="Values 1/2 apart are rounded at random to integers 1 apart, and the noise hides "
        "1/2.",
        source="fixed-point encodings; Casacuberta et al. 2022 (arXiv 2207.10635) on sensitivities "
        "of what is really computed",
        run=rounded_as_half,
        pair=(0, 0.5),
        true_epsilon=narrow(_half_rounded, 64),
        runs=3000,
        twin=Twin(name="rounded", run=rounded),
    ),
)

# -- bounds ---------------------------------------------------------------------------------------

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

_BOUNDS: Final = (
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

ENTRIES: Final = (*_SENSITIVITY, *_BOUNDS)
