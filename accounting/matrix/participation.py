r"""The squared l2 sensitivity of a strategy over all participations of one unit.

A unit that takes part in the rounds of a pattern p, each time with a vector of l2 norm at most 1,
moves C x by at most the square root of sum_(i,j in p) |G_ij|, G = C^T C, and exactly by it if no
G_ij is negative.

For non-negative G the squared sensitivity of C is the largest sum of G_ij over i and j in a
pattern: a quadratic form, which dynamic programming maximises only if all products of different
rounds of a pattern are 0. Here branch and bound finds the best pattern, with bounds from dynamic
programming; both bounds are proven even if the search stops early. Choquette-Choo, McMahan, Rush
and Thakurta (2023), "Multi-Epoch Matrix Factorization Mechanisms for Private Machine Learning".
Proofs: docs/proofs/continual.md.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from flint import arb

from accounting.matrix.strategy import Strategy
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import Enclosure, precision
from dpcore.numbers.parameter import make_integers

_WORK: Final = 1 << 26
"""The array entries that a search may read: about a second. More entries give narrower bounds."""

_SWEEPS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Participation:
    r"""A unit takes part in at most ``most`` rounds, any two of them at least ``apart`` rounds
    apart.

    The default is one round. ``Participation(most=6, apart=342)`` is six epochs of 342 rounds each,
    whose order may change between epochs if a unit waits at least 342 rounds.
    """

    most: int = 1
    apart: int = 1

    def __post_init__(self) -> None:
        make_integers(self, "most", "apart")

    def patterns(self, rounds: int) -> int:
        r"""The largest number of rounds out of ``rounds`` in which one unit can participate."""
        return min(self.most, -(-rounds // self.apart))


def best_pattern(
    products: Integers, participation: Participation, work: int = _WORK
) -> tuple[tuple[int, ...], int]:
    r"""A pattern, and an upper bound on sum_(i,j in pattern) G_ij over all patterns.

    ``products`` is G, symmetric and >= 0, with sums that fit int64. The pattern attains the bound
    unless the search was stopped: ``work`` limits the entries of G that are read.
    """
    return _Search(products, participation, work).run()


class _Search:
    # Best-first search. A node is a list of chosen rounds, increasing, with a bound on extensions.

    def __init__(self, products: Integers, participation: Participation, work: int) -> None:
        self.products, self.apart = products, participation.apart
        self.rounds = len(products)
        self.count = participation.patterns(self.rounds)
        self.left = work
        self.alone = np.ascontiguousarray(products.diagonal())
        self.rows = self._rows()
        self.best: tuple[int, ...] = ()
        self.value = -1

    def run(self) -> tuple[tuple[int, ...], int]:
        self._try(tuple(range(0, self.rounds, self.apart))[: self.count])
        self._try(self._path(self.rows[self.count]))
        heap: list[tuple[int, tuple[int, ...], int]] = []
        self._branch(heap, (), 0, np.zeros(self.rounds, dtype=np.int64))
        while heap and -heap[0][0] > self.value:
            if self.left < 0:
                return self.best, -heap[0][0]
            _, chosen, value = heapq.heappop(heap)
            crossed = self.products[list(chosen)].sum(axis=0)
            if value > self.value:
                self.best, self.value = chosen, value
            if len(chosen) < self.count:
                self._branch(heap, chosen, value, crossed)
        return self.best, self.value

    def _branch(
        self,
        heap: list[tuple[int, tuple[int, ...], int]],
        chosen: tuple[int, ...],
        value: int,
        crossed: Integers,
    ) -> None:
        # A bound for each possible next round: its products with the chosen rounds, a bound on its
        # row, and the best sum of both over the rounds that may follow.
        rest = self.count - len(chosen)
        first = chosen[-1] + self.apart if chosen else 0
        after = self._tails(2 * crossed + self.rows[rest], rest)[rest - 1]
        gained = self.alone + 2 * crossed
        reached = value + 2 * crossed + self.rows[rest] + after[self.apart :][: self.rounds]
        self.left -= self.rounds * (rest + len(chosen) + 1)
        for at in np.flatnonzero(reached[first:] > self.value) + first:
            node = (*chosen, int(at))
            heapq.heappush(heap, (-int(reached[at]), node, value + int(gained[at])))

    def _tails(self, weights: Integers, count: int) -> list[Integers]:
        # For c = 0, 1, ...: the largest weight of c rounds from t on; 0 beyond the last round.
        size, apart = self.rounds, self.apart
        found = [np.zeros(size + apart, dtype=np.int64)]
        for _ in range(count):
            taken = np.zeros(size + apart, dtype=np.int64)
            taken[:size] = weights + found[-1][apart:]
            found.append(np.maximum.accumulate(taken[::-1])[::-1])
        return found

    def _path(self, weights: Integers) -> tuple[int, ...]:
        # The pattern of the largest weight, ignoring products of different rounds.
        tails = self._tails(weights, self.count)
        chosen: list[int] = []
        at = 0
        for c in range(self.count, 0, -1):
            best = tails[c][at]
            while at < self.rounds and weights[at] + tails[c - 1][at + self.apart] < best:
                at += 1
            if at >= self.rounds:
                break
            chosen.append(at)
            at += self.apart
            if at >= self.rounds:
                break
        return tuple(chosen)

    def _rows(self) -> list[Integers]:
        # rows[r][i]: the largest sum_(j in pattern) G_ij over patterns of r rounds that contain i.
        size, apart = self.rounds, self.apart
        at = np.arange(size)
        right, left = ([np.zeros(size, dtype=np.int64)] for _ in range(2))
        forward, backward = (np.zeros((size, size + apart), dtype=np.int64) for _ in range(2))
        for _ in range(self.count - 1):
            for table, found, flipped in ((forward, right, 1), (backward, left, -1)):
                table[:, :size] = self.products[:, ::flipped] + table[:, apart:]
                table[:, size:] = 0
                np.maximum.accumulate(table[:, ::-1], axis=1, out=table[:, ::-1])
                places = at if flipped == 1 else size - 1 - at
                found.append(table[at, np.minimum(places + apart, size)])
        found = [np.zeros(size, dtype=np.int64)]
        for r in range(1, self.count + 1):
            sides = [left[a] + right[r - 1 - a] for a in range(r)]
            found.append(self.alone + np.max(sides, axis=0))
        return found

    def _try(self, pattern: tuple[int, ...]) -> None:
        # Move one round at a time to its best position between its neighbours while this helps.
        chosen = list(pattern)
        for _ in range(_SWEEPS):
            before = list(chosen)
            for k in range(len(chosen)):
                low = chosen[k - 1] + self.apart if k else 0
                high = chosen[k + 1] - self.apart if k + 1 < len(chosen) else self.rounds - 1
                others = chosen[:k] + chosen[k + 1 :]
                gains = self.alone[low : high + 1] + 2 * self.products[others, low : high + 1].sum(
                    axis=0
                )
                chosen[k] = low + int(gains.argmax())
            if chosen == before:
                break
        value = int(self.products[np.ix_(chosen, chosen)].sum())
        if value > self.value:
            self.best, self.value = tuple(chosen), value


_BITS: Final = 256
_ROOM: Final = 62


@dataclass(frozen=True, slots=True, kw_only=True)
class SquaredSensitivity:
    r"""``squared`` encloses the squared sensitivity; ``how`` describes the method."""

    squared: Enclosure
    how: str

    @property
    def exact(self) -> bool:
        r"""Whether both bounds are equal up to rounding."""
        return self.how != _SEARCHED


_LONGEST: Final = "one round: the longest column"
_FALLING: Final = "the earliest rounds are the worst, as the coefficients are non-increasing"
_FOUND: Final = "the worst pattern of rounds"
_SEARCHED: Final = "from below by one pattern of rounds, from above by a bound on all patterns"


@lru_cache(maxsize=64)
def squared_sensitivity(strategy: Strategy, participation: Participation) -> SquaredSensitivity:
    r"""An enclosure of the max of ||C u||^2 over patterns and vectors u_i of norm <= 1."""
    with precision(_BITS):
        if participation.patterns(strategy.rounds) == 1:
            return SquaredSensitivity(squared=Enclosure.of(strategy.longest()), how=_LONGEST)
        column = strategy.first_column()
        if column is not None:
            return SquaredSensitivity(
                squared=Enclosure.of(_falling(column, participation)), how=_FALLING
            )
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


def _searched(strategy: Strategy, participation: Participation) -> SquaredSensitivity:
    products, unit = strategy.gram()
    # Products of two rounds that are too close for one pattern count as 0.
    at = np.arange(len(products))
    gap = np.abs(at[:, None] - at[None, :])
    signed = np.where((gap == 0) | (gap >= participation.apart), products, 0)
    most = int(np.abs(signed).max())
    # Sums of count^2 entries must fit int64; the bits shifted out are rounded up.
    count = participation.patterns(strategy.rounds)
    shift = max(most.bit_length() + 2 * count.bit_length() - _ROOM, 0)
    above: Integers = (-((-np.abs(signed)) >> shift)).astype(np.int64)
    pattern, upper = best_pattern(above, participation)
    chosen = np.ix_(pattern, pattern)
    lower = max(int(signed[chosen].sum()), int(signed.diagonal().max()))
    with precision(_BITS):
        ends = Enclosure(unit * lower, unit * (upper << shift))
    exact = shift == 0 and ends.lower == ends.upper
    return SquaredSensitivity(squared=ends, how=_FOUND if exact else _SEARCHED)
