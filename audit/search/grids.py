r"""Spaces of integer points: a start within bounds, and a move that neighbours may make.

The classic patterns of moves are those of Ding, Wang, Wang, Zhang and Kifer 2018 (arXiv
1805.10559, table 1): one above, one below, one above and the rest below, one below and the rest
above, half and half, all above, all below, X shape; here with the one first or last, at several
starts, and as long as the sensitivity allows.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from audit.search.space import DatasetPair, Space, different
from dpcore.mechanism import Norm, Relation

_Point: TypeAlias = tuple[int, ...]

_OFTEN: Final = 0.75  # moves as long as they may be: a shorter one rarely tells more


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid(Space):
    # All coordinates from low to high.
    low: int
    high: int

    @property
    @abstractmethod
    def size(self) -> int:
        # The number of coordinates.
        ...

    @abstractmethod
    def _moves(self) -> Iterator[_Point]:
        # The classic moves.
        ...

    @abstractmethod
    def _move(self, rng: np.random.Generator) -> _Point:
        # A move drawn at random, not 0.
        ...

    @abstractmethod
    def _may(self, move: _Point) -> bool:
        # Whether neighbours may differ by it.
        ...

    def _shown(self, point: _Point) -> Any:
        return list(point)

    def _point(self, dataset: Any) -> _Point | None:
        # None where it is no dataset of this space.
        if not isinstance(dataset, list) or len(dataset) != self.size:
            return None
        inside = all(type(x) is int and self.low <= x <= self.high for x in dataset)
        return tuple(dataset) if inside else None

    def neighbours(self, one: Any, other: Any) -> bool:
        here, there = self._point(one), self._point(other)
        if here is None or there is None or here == there:
            return False
        return self._may(tuple(y - x for x, y in zip(here, there, strict=True)))

    def patterns(self) -> Iterator[DatasetPair]:
        return different(pair for pair in self._candidates() if self.neighbours(*pair))

    def _candidates(self) -> Iterator[DatasetPair]:
        middle = (self.low + self.high) // 2
        # At 0 where it lies within, since thresholds often are there.
        levels = (min(max(0, self.low), self.high), middle, self.low, self.high)
        for start in range(len(levels) + 1):
            for move in self._moves():
                # Level starts, and one where the ends change places (X shape).
                level = levels[min(start, len(levels) - 1)]
                wide = [middle + max(-step, 0) if start == len(levels) else level for step in move]
                yield self._fitted(wide, move)

    def _fitted(self, start: list[int], move: _Point) -> DatasetPair:
        # From the nearest start from which the move stays within bounds.
        here = tuple(
            min(max(x, self.low + max(-step, 0)), self.high - max(step, 0))
            for x, step in zip(start, move, strict=True)
        )
        there = tuple(x + step for x, step in zip(here, move, strict=True))
        return self._shown(here), self._shown(there)

    def draw(self, rng: np.random.Generator) -> DatasetPair:
        match rng.integers(3):
            case 0:  # the same everywhere
                start = np.full(self.size, rng.integers(self.low, self.high + 1))
            case 1:  # two levels, one after the other
                first, then = rng.integers(self.low, self.high + 1, size=2)
                start = np.where(np.arange(self.size) < rng.integers(self.size + 1), first, then)
            case _:
                start = rng.integers(self.low, self.high + 1, size=self.size)
        return self._fitted(start.tolist(), self._move(rng))

    def _step(self, pair: DatasetPair, rng: np.random.Generator) -> DatasetPair:
        here, there = self._point(pair[0]), self._point(pair[1])
        if here is None or there is None:
            return self.draw(rng)
        start, move = list(here), [y - x for x, y in zip(here, there, strict=True)]
        i, j = rng.integers(self.size, size=2).tolist()
        step = int(rng.integers(1, max(2, (self.high - self.low) // 4 + 1)))
        step = step if rng.random() < 0.5 else -step
        match rng.integers(6):
            case 0:  # everything moves up or down
                start = [x + step for x in start]
            case 1:  # one coordinate does
                start[i] += step
            case 2:  # two change places
                start[i], start[j], move[i], move[j] = start[j], start[i], move[j], move[i]
            case 3:  # one follows another
                start[i], move[i] = start[j], move[j]
            case 4:  # one changes otherwise
                move[i] = self._move(rng)[i]
            case _:  # they differ otherwise
                move = list(self._move(rng))
        return self._fitted(start, tuple(move))


@dataclass(frozen=True, slots=True, kw_only=True)
class Integers(_Grid):
    r"""Integers with 1 <= \|a - b\| <= ``apart``.

    >>> list(Integers(spelling="", low=0, high=2, apart=1).patterns())
    [(0, 1), (1, 2)]
    """

    apart: int

    @property
    def size(self) -> int:
        return 1

    def _shown(self, point: _Point) -> Any:
        return point[0]

    def _point(self, dataset: Any) -> _Point | None:
        return _Grid._point(self, [dataset])

    def _moves(self) -> Iterator[_Point]:
        yield from ((self.apart,), (-self.apart,))

    def _move(self, rng: np.random.Generator) -> _Point:
        step = self.apart if rng.random() < _OFTEN else int(rng.integers(1, self.apart + 1))
        return (step if rng.random() < 0.5 else -step,)

    def _may(self, move: _Point) -> bool:
        return abs(move[0]) <= self.apart


def _signs(size: int) -> Iterator[_Point]:
    one_first = (1, *(0,) * (size - 1))
    one_last = one_first[::-1]
    halves = tuple(1 if i < size // 2 else -1 for i in range(size))
    for signs in (
        (1,) * size,
        one_last,
        one_first,
        (*(-1,) * (size - 1), 1),
        (1, *(-1,) * (size - 1)),
        halves,
        tuple(1 if i % 2 else -1 for i in range(size)),
    ):
        yield signs
        yield tuple(-sign for sign in signs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors(_Grid):
    r"""Answers to ``dimension`` queries; neighbours move them by at most ``amount`` in ``norm``."""

    dimension: int
    amount: int
    norm: Norm

    @property
    def size(self) -> int:
        return self.dimension

    def _moves(self) -> Iterator[_Point]:
        for signs in _signs(self.size):
            changed = sum(map(abs, signs))
            match self.norm:
                case Norm.BOX:
                    step = self.amount
                case Norm.L1:
                    step = self.amount // changed
                case _:
                    step = math.isqrt(self.amount // changed)
            step = min(step, self.high - self.low)
            if step:
                yield tuple(step * sign for sign in signs)

    def _room(self, left: int) -> int:
        # How far one coordinate may move where ``left`` of the amount is left.
        most = math.isqrt(left) if self.norm is Norm.L2_SQUARED else left
        return min(most, self.high - self.low)

    def _move(self, rng: np.random.Generator) -> _Point:
        move = [0] * self.size
        left = self.amount
        still = rng.random() * (rng.random() < 0.5)  # how many coordinates stay where they are
        for place, i in enumerate(rng.permutation(self.size).tolist()):
            room = self._room(left)
            if place and (not room or rng.random() < still):
                continue
            far = rng.random() < _OFTEN
            step = room if far else int(rng.integers(0 if place else 1, room + 1))
            move[i] = step if rng.random() < 0.5 else -step
            if self.norm is not Norm.BOX:
                left -= step**2 if self.norm is Norm.L2_SQUARED else step
        return tuple(move)

    def _may(self, move: _Point) -> bool:
        match self.norm:
            case Norm.BOX:
                moved = max(map(abs, move))
            case Norm.L1:
                moved = sum(map(abs, move))
            case _:
                moved = sum(step * step for step in move)
        return moved <= self.amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Histograms(_Grid):
    r"""Counts of ``dimension`` bins: one person in another bin, or one more and one less."""

    dimension: int
    relation: Relation

    @property
    def size(self) -> int:
        return self.dimension

    def _moves(self) -> Iterator[_Point]:
        last = self.size - 1
        if self.relation is Relation.REPLACE:
            yield from (self._person(*ends) for ends in ((0, last), (last, 0), (0, 1), (1, 0)))
        else:
            yield from (self._person(*ends) for ends in ((0, 0), (last, last)))

    def _person(self, joined: int, left: int) -> _Point:
        # The same bin twice: one person more, who left nowhere.
        move = [0] * self.size
        move[left] = -1
        move[joined] = 1
        return tuple(move)

    def _move(self, rng: np.random.Generator) -> _Point:
        joined = int(rng.integers(self.size))
        if self.relation is Relation.ADD_REMOVE:
            return self._person(joined, joined)
        other = (joined + int(rng.integers(1, self.size))) % self.size
        return self._person(joined, other)

    def _may(self, move: _Point) -> bool:
        changes = sorted(step for step in move if step)
        if self.relation is Relation.ADD_REMOVE:
            return changes in ([1], [-1])
        return changes == [-1, 1]
