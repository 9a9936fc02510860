r"""Slips in choosing one of several: noisy max, and the exponential mechanism.

Choosing the largest of several counts by noise.

Source: Dwork and Roth, "The Algorithmic Foundations of Differential Privacy" (2014), section 3.3
(report noisy max).

The exponential mechanism (McSherry and Talwar, "Mechanism Design via Differential Privacy",
2007): a candidate of score u is chosen with a chance proportional to e^(epsilon u/2).

Scores move by at most 1 and are 0 or 1 here. Weights are whole thousandths, e^(epsilon/2) rounded
down, and drawn from integers: the law is exact and costs a little less.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np
from flint import arb

from audit.catalogue.entry import Entry, Twin, laplace
from audit.catalogue.sparse_vector import row_mass
from dpcore import Enclosure
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import ball, narrow

__all__ = ["ENTRIES"]

# -- selection ------------------------------------------------------------------------------------


def noisy_max(counts: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The index of the largest noisy count, the first if several: scale 2/epsilon = 2."""
    noisy: Integers = np.asarray(counts) + laplace(2, (n, len(counts)), rng)
    first: Integers = noisy.argmax(axis=1)
    return first


def half_noisy_max(counts: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The index again, with scale 1: enough if counts only grew, and between neighbours one may
    grow while the others fall.
    """
    noisy: Integers = np.asarray(counts) + laplace(1, (n, len(counts)), rng)
    first: Integers = noisy.argmax(axis=1)
    return first


def one_draw_max(counts: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The index again, with one draw of scale 2 for all counts."""
    noisy: Integers = np.asarray(counts) + laplace(2, (n, 1), rng)
    first: Integers = noisy.argmax(axis=1)
    return first


def noisy_max_value(counts: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The same noise, but the largest noisy count itself is returned."""
    noisy: Integers = np.asarray(counts) + laplace(2, (n, len(counts)), rng)
    largest: Integers = noisy.max(axis=1)
    return largest


def _half_noise() -> arb:
    # The first wins where none of the others exceeds it: its own noise is the threshold, and each
    # of the others lacks its lead and the 1 more that would exceed it.
    def wins(counts: Sequence[int]) -> arb:
        behind = [other - counts[0] - 1 for other in counts[1:]]
        return row_mass([0] * len(behind), behind, (1, 1))

    first, second = _HALF_PAIR
    return (wins(second) / wins(first)).log()


_HALF_PAIR: Final = ([0, 2, 2, 2, 2], [1, 1, 1, 1, 1])

_INDEX: Final = Twin(name="noisy-max", run=noisy_max, pair=([0, 1, 1, 1, 1], [1, 0, 0, 0, 0]))

_SELECTION: Final = (
    Entry(
        name="noisy-max-value",
        number=13,
        sentence="The noise pays for the index of the largest count, and its value is returned.",
        source="Ding et al. 2018 (arXiv 1805.10559), noisy max that returns the maximum",
        run=noisy_max_value,
        pair=([0, 0, 0, 0, 0], [1, 1, 1, 1, 1]),
        # max <= v, v < 0, needs all five noises <= v: (e^(1/2))^5 between the worlds.
        true_epsilon=Enclosure.exactly(Fraction(5, 2)),
        runs=5000,
        twin=_INDEX,
    ),
    Entry(
        name="noisy-max-half-noise",
        number=14,
        sentence="The noise is for counts that all move the same way, and here one rises while the "
        "others fall.",
        source="report noisy max with the scale for counts that move one way; Dwork and Roth 2014, "
        "section 3.3",
        run=half_noisy_max,
        pair=_HALF_PAIR,
        true_epsilon=narrow(_half_noise, 64),
        runs=2000,
        twin=_INDEX,
    ),
    Entry(
        name="noisy-max-one-draw",
        number=15,
        sentence="All arms get the same draw of noise, which cancels when they are compared.",
        source="a draw of one number where one of the shape of the counts was meant",
        run=one_draw_max,
        pair=([0, 1, 1, 1, 1], [1, 0, 0, 0, 0]),
        true_epsilon=Enclosure.infinite(),
        runs=100,
        twin=_INDEX,
    ),
)

# -- exponential ----------------------------------------------------------------------------------

_UNIT: Final = 1000
_HALF: Final = 1648
_WHOLE: Final = 2718
_OTHERS: Final = 8
# The first candidate falls behind the eight others: its score and theirs cross.
_PAIR: Final = ([1] + [0] * _OTHERS, [0] + [1] * _OTHERS)


def _choose(scores: Sequence[int], weight: int, n: int, rng: np.random.Generator) -> Integers:
    ends = np.cumsum([weight if score else _UNIT for score in scores])
    chosen: Integers = np.searchsorted(ends, rng.integers(ends[-1], size=n), side="right")
    return chosen.astype(np.int64)


def exponential(scores: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""A candidate at epsilon = 1: weights 1.648 and 1, e^(1/2) for each point of the score."""
    return _choose(scores, _HALF, n, rng)


def exponential_undivided(scores: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The same with weights 2.718 and 1: e^1 for each point, and the sum of weights moves too."""
    return _choose(scores, _WHOLE, n, rng)


def _true_epsilon() -> arb:
    # Of the first candidate: w/(w + 8) against 1/(1 + 8 w).
    w = Fraction(_WHOLE, _UNIT)
    return ball(w * (1 + _OTHERS * w) / (w + _OTHERS)).log()


_EXPONENTIAL: Final = (
    Entry(
        name="exponential-undivided",
        number=26,
        sentence="The exponential mechanism at epsilon in place of epsilon/2: the weights of all "
        "others move as well.",
        source="the factor 2 of the exponential mechanism left out where scores rise and fall",
        run=exponential_undivided,
        pair=_PAIR,
        true_epsilon=narrow(_true_epsilon, 64),
        runs=3000,
        twin=Twin(name="exponential", run=exponential, pair=_PAIR),
    ),
)

ENTRIES: Final = (*_SELECTION, *_EXPONENTIAL)
