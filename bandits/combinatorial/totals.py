r"""Running sums of many runs and base arms at once, as ``dpcore.continual`` makes them one by one.

A table has a row for each run and a column for each base arm; cells are numbered row by row. What
is released of a cell is its ``value``, an estimate of the sum of its first ``count`` outcomes. The
tests hold the tables against ``TreeSum``, ``DoublingSum`` and ``SquareRootSum`` with the same
draws. Proofs: docs/proofs/radius.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bandits.combinatorial.streams import StreamPrivatizer
from dpcore.continual.square_root import column, series
from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import Integers
from dpcore.numbers.floating import Floats
from dpcore.sampling.rng import Rng

__all__ = ["Totals", "totals_of"]


class Totals:
    r"""Released sums without noise, and what all kinds share.

    What is released at once, of all that came, is ``taken`` and ``exact`` under other names.
    ``each`` says whether every outcome takes a fresh draw when it comes; other draws are made at
    the start, from ``rngs``, one for each run. ``rare`` says whether most outcomes release nothing
    (:meth:`left`): what came until then may be added at once, to ``taken`` and ``exact``.
    """

    each = False
    rare = False

    def __init__(self, privatizer: StreamPrivatizer, arms: int, rngs: Sequence[Rng]) -> None:
        shape = (len(rngs), arms)
        self.privatizer = privatizer
        self.taken = np.zeros(shape[0] * shape[1], dtype=np.int64)
        self.exact = np.zeros(shape[0] * shape[1], dtype=np.int64)
        self.count = self.taken.reshape(shape)
        self.value: Integers | Floats = self.exact.reshape(shape)
        self._begin(shape, rngs)

    def add(self, cells: Integers, outcomes: Integers, drawn: Integers) -> Integers:
        r"""Take one outcome in each of ``cells``, which are distinct; the cells newly released.

        ``drawn`` are fresh draws for them where ``each`` says so; nothing else reads them.
        """
        self.taken[cells] += 1
        self.exact[cells] += outcomes
        return self._release(cells, drawn)

    def left(self, counts: Integers) -> Integers:
        r"""How many outcomes after so many a sum is released, for each."""
        return np.ones(counts.shape, dtype=np.int64)

    def release(self, cells: Integers) -> None:
        r"""Release the sums of ``cells``, all that came."""

    def _begin(self, shape: tuple[int, int], rngs: Sequence[Rng]) -> None:
        pass

    def _release(self, cells: Integers, drawn: Integers) -> Integers:
        del drawn
        return cells


class _Each(Totals):
    # Sums of noisy outcomes: of the outcomes themselves nothing is kept.
    each = True

    def add(self, cells: Integers, outcomes: Integers, drawn: Integers) -> Integers:
        return super().add(cells, outcomes + drawn, drawn)


class _Apart(Totals):
    # What is released is not what came.
    def _begin(self, shape: tuple[int, int], rngs: Sequence[Rng]) -> None:
        del rngs
        self.count = np.zeros(shape, dtype=np.int64)
        self.value = np.zeros(shape, dtype=np.float64)

    def _set(self, cells: Integers, values: Integers | Floats) -> Integers:
        self.value.ravel()[cells] = values
        self.count.ravel()[cells] = self.taken[cells]
        return cells


class _Tree(_Apart):
    # totals[cell, j] is the noise of the sum when t last ended in j zeros: the draws of the blocks
    # of the binary form of t. The last column is that of t = 0.
    each = True

    def _begin(self, shape: tuple[int, int], rngs: Sequence[Rng]) -> None:
        super()._begin(shape, rngs)
        levels = len(self.privatizer.moves)
        self.totals = np.zeros((shape[0] * shape[1], levels + 1), dtype=np.int64)

    def _release(self, cells: Integers, drawn: Integers) -> Integers:
        taken = self.taken[cells]
        # As many blocks as t ends in zeros are merged with the outcome: the block of 2^level. The
        # others are those of t less 2^level, when it was the number of outcomes.
        rest = taken & (taken - 1)
        level = np.bitwise_count((taken ^ rest) - 1)
        others = np.bitwise_count((rest & -rest) - 1)
        others[rest == 0] = self.totals.shape[1] - 1
        noise = self.totals[cells, others] + self.drawn(level, drawn)
        self.totals[cells, level] = noise
        return self._set(cells, self.exact[cells] + noise)

    def drawn(self, level: Integers, drawn: Integers) -> Integers:
        r"""The noise of blocks of 2^level outcomes."""
        del level
        return drawn


class _Rare(_Apart):
    rare = True

    def _release(self, cells: Integers, drawn: Integers) -> Integers:
        del drawn
        closed: Integers = cells[self.left(self.taken[cells] - 1) == 1]
        if len(closed):
            self.release(closed)
        return closed


class _Doubling(_Rare):
    # A block closes when t is a power of two; noise[cell, j] is the sum of the first j + 1 draws.
    def _begin(self, shape: tuple[int, int], rngs: Sequence[Rng]) -> None:
        super()._begin(shape, rngs)
        blocks = self.privatizer.horizon.bit_length()
        drawn = np.array([self.privatizer.draw((shape[1], blocks), rng) for rng in rngs])
        self.noise = np.cumsum(drawn, axis=2).reshape(-1, blocks)

    def left(self, counts: Integers) -> Integers:
        found: Integers = (1 << np.frexp(counts)[1].astype(np.int64)) - counts
        return found

    def release(self, cells: Integers) -> None:
        level = np.bitwise_count(self.taken[cells] - 1)
        self._set(cells, self.exact[cells] + self.noise[cells, level])


class _Factorisation(_Rare):
    # Items are sums of blocks. y = C x + z in integers; what is released is a function of y alone,
    # A C^-1 y in floats: errors of floats are errors of the estimate, not of the promise.
    def _begin(self, shape: tuple[int, int], rngs: Sequence[Rng]) -> None:
        super()._begin(shape, rngs)
        held = self.privatizer
        self.block = held.block
        drawn = np.array([held.draw((shape[1], held.items), rng) for rng in rngs])
        self.noised = drawn.reshape(-1, held.items)
        self.items = np.zeros(self.noised.shape, dtype=np.int64)
        self.before = np.zeros(len(self.noised), dtype=np.int64)
        # Reversed, so that the last i + 1 of them are the weights of item i and those before it.
        self.column = np.array(column(held.items, held.grid)[::-1], dtype=np.int64)
        self.inverse = inverse(held.items, held.grid)[::-1]

    def left(self, counts: Integers) -> Integers:
        found: Integers = self.block - counts % self.block
        return found

    def release(self, cells: Integers) -> None:
        estimates = []
        for cell in cells.tolist():
            i = int(self.taken[cell]) // self.block - 1
            items, noised = self.items[cell], self.noised[cell]
            items[i] = self.exact[cell] - self.before[cell]
            self.before[cell] = self.exact[cell]
            noised[i] += self.column[-i - 1 :] @ items[: i + 1]
            estimates.append(self.inverse[-i - 1 :] @ noised[: i + 1])
        self._set(cells, np.array(estimates))


def inverse(items: int, grid: int) -> Floats:
    r"""The coefficients of 1/((1 - q) c(q)), c the column of C: A C^-1, as floats."""
    return np.array([float(h.mid()) for h in series(items, grid)]) / grid


_KINDS = {
    "plain": Totals,
    "each": _Each,
    "tree": _Tree,
    "doubling": _Doubling,
    "factorisation": _Factorisation,
}


def totals_of(privatizer: StreamPrivatizer, arms: int, rngs: Sequence[Rng]) -> Totals:
    r"""Empty tables for as many runs as there are ``rngs``.

    >>> from dpcore import SeededRng
    >>> plain = StreamPrivatizer(trust="none", sent=2, horizon=10)
    >>> sums = totals_of(plain, 3, [SeededRng(1)])
    >>> sums.add(np.array([0, 2]), np.array([1, 0]), np.array([0, 0]))
    array([0, 2])
    >>> sums.value, sums.count
    (array([[1, 0, 0]]), array([[1, 0, 1]]))

    Raises :class:`InvalidParameter` for no run.
    """
    if not rngs:
        raise InvalidParameter("rngs", len(rngs), "must be one for each run, and some")
    return _KINDS[privatizer.kind](privatizer, arms, rngs)
