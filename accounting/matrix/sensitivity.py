r"""How far one unit moves C x: the squared l2 sensitivity of a strategy, over all participations.

A unit that takes part in the rounds of a pattern p, each time with a vector of l2 norm at most 1,
moves C x by at most the root of sum_(i,j in p) |G_ij|, G = C^T C, and by just that where no G_ij is
negative. Proofs: docs/proofs/continual.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from flint import arb

from accounting.matrix.patterns import Participation, best_pattern
from accounting.matrix.strategy import Strategy
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import Enclosure, precision

__all__ = ["Moved", "squared_sensitivity"]

_BITS: Final = 256
_ROOM: Final = 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    r"""``squared``: both ends of the squared sensitivity; ``how`` says how they were found."""

    squared: Enclosure
    how: str

    @property
    def exact(self) -> bool:
        r"""Whether the two ends are one number, but for what is rounded."""
        return self.how != _SEARCHED


_LONGEST: Final = "one round: the longest column"
_FALLING: Final = "the earliest rounds are the worst, as the coefficients never rise"
_FOUND: Final = "the worst pattern of rounds"
_SEARCHED: Final = "from below by one pattern of rounds, from above by a bound of all"


@lru_cache(maxsize=64)
def squared_sensitivity(strategy: Strategy, participation: Participation) -> Moved:
    r"""max over patterns and vectors u_i of norm <= 1 of ||C u||^2, enclosed.

    >>> from accounting.matrix.strategy import Banded, Tree
    >>> squared_sensitivity(Banded(rounds=8, bands=2), Participation(most=3, apart=2)).squared
    Enclosure([3.75, 3.75])
    >>> squared_sensitivity(Tree(rounds=8), Participation(most=2, apart=3))
    Moved(squared=Enclosure([10, 10]), how='the worst pattern of rounds')

    Raises :class:`NotDerived` as ``Strategy.gram`` does.
    """
    with precision(_BITS):
        if participation.patterns(strategy.rounds) == 1:
            return Moved(squared=Enclosure.of(strategy.longest()), how=_LONGEST)
        column = strategy.first_column()
        if column is not None:
            return Moved(squared=Enclosure.of(_falling(column, participation)), how=_FALLING)
    return _searched(strategy, participation)


def _falling(column: list[arb], participation: Participation) -> arb:
    # ||C u||^2 for u = 1 in rounds 0, b, ..., (k-1) b: entry t is the sum of c_(t - jb).
    apart = participation.apart
    width = apart * participation.patterns(len(column))
    sums: list[arb] = []
    for t, each in enumerate(column):
        total = each + (sums[t - apart] if t >= apart else 0)
        sums.append(total - column[t - width] if t >= width else total)
    return sum((each * each for each in sums), arb(0))


def _searched(strategy: Strategy, participation: Participation) -> Moved:
    products, unit = strategy.gram()
    # Rounds that are too near to be in one pattern count as 0.
    at = np.arange(len(products))
    gap = np.abs(at[:, None] - at[None, :])
    signed = np.where((gap == 0) | (gap >= participation.apart), products, 0)
    most = int(np.abs(signed).max())
    # Sums of count^2 entries stay within int64; what is shifted out is rounded up.
    count = participation.patterns(strategy.rounds)
    shift = max(most.bit_length() + 2 * count.bit_length() - _ROOM, 0)
    above: Integers = (-((-np.abs(signed)) >> shift)).astype(np.int64)
    pattern, upper = best_pattern(above, participation)
    chosen = np.ix_(pattern, pattern)
    lower = max(int(signed[chosen].sum()), int(signed.diagonal().max()))
    with precision(_BITS):
        ends = Enclosure(unit * lower, unit * (upper << shift))
    exact = shift == 0 and ends.lower == ends.upper
    return Moved(squared=ends, how=_FOUND if exact else _SEARCHED)
