r"""The exponential mechanism (McSherry and Talwar, "Mechanism Design via Differential Privacy",
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

from audit.catalogue.entry import Entry, Twin
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import ball, narrow

__all__ = ["ENTRIES"]

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


ENTRIES: Final = (
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
