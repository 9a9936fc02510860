r"""The spaces of neighbouring datasets in which ``--search`` looks for a pair.

    integer:low=0,high=10[,apart=1]
                            two integers that differ by at most ``apart``
    vector:dimension=5,low=0,high=2[,sensitivity=1][,norm=box]
                            answers to queries; between neighbours, ``sensitivity`` bounds the
                            change of each answer (norm=box), the sum of absolute changes (norm=l1)
                            or the sum of squared changes (norm=l2-squared)
    histogram:bins=5[,most=10]
                            counts up to ``most``; neighbours differ in one person, who is moved to
                            another bin, or added or removed
    dataset:low=0,high=1[,most=10]
                            up to ``most`` integer records; neighbours differ in one record, which
                            is replaced, or added or removed
    stream:steps=8[,users=2][,low=0,high=1][,unit=contribution]
                            [user, event] or null at each step; neighbours differ in one event, or
                            (unit=user) in any events of one user, which are replaced or left out

Under the relation "replace", a person, record or event is moved or replaced; under "add-remove", it
is added or removed. Integers and vectors are answers to queries, and have the same neighbours under
both relations. Neighbours are defined as in :mod:`audit.testing.strategies`. Datasets are integers
and lists, which every target accepts.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

import numpy as np

from dpcore.errors import InvalidParameter
from dpcore.mechanism import Norm, Relation, Unit
from dpcore.numbers.parameter import whole_number
from dpcore.spec_syntax import did_you_mean, read_keys, split_name

DatasetPair: TypeAlias = tuple[Any, Any]

_ATTEMPTS: Final = 30
FARTHEST: Final = 1 << 53  # exact in every JSON reader
LARGEST: Final = 10_000

# The keys of each space, with their default values; None means that the key must be given.
SPACES: Final[dict[str, dict[str, str | None]]] = {
    "integer": {"low": None, "high": None, "apart": "1"},
    "vector": {"dimension": None, "low": None, "high": None, "sensitivity": "1", "norm": "box"},
    "histogram": {"bins": None, "most": "10"},
    "dataset": {"low": None, "high": None, "most": "10"},
    "stream": {"steps": None, "users": "2", "low": "0", "high": "1", "unit": "contribution"},
}
NORMS: Final = (Norm.BOX, Norm.L1, Norm.L2_SQUARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space(ABC):
    r"""A set of candidate pairs of neighbouring datasets.

    The two datasets of a pair are different. The order of a pair does not matter, so each method
    yields only one of (a, b) and (b, a). ``spelling`` is the text from which the space was parsed.
    """

    spelling: str

    @abstractmethod
    def patterns(self) -> Iterator[DatasetPair]:
        r"""Yield the pairs to try first, at least one, without repetition and in a fixed order."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> DatasetPair:
        r"""Draw a random pair."""

    @abstractmethod
    def neighbours(self, one: Any, other: Any) -> bool:
        r"""Whether two datasets are in this space, and are different and neighbours."""

    @abstractmethod
    def _step(self, pair: DatasetPair, rng: np.random.Generator) -> DatasetPair:
        # A pair that is a small step away; it may lie outside the space.
        ...

    def mutate(self, pair: DatasetPair, rng: np.random.Generator) -> DatasetPair:
        r"""Return a pair slightly different from ``pair``, or a random pair if none is found."""
        for _ in range(_ATTEMPTS):
            found = self._step(pair, rng)
            if key(found) != key(pair) and self.neighbours(*found):
                return found
        return self.draw(rng)


def unique_pairs(pairs: Iterable[DatasetPair]) -> Iterator[DatasetPair]:
    r"""Yield each pair once, where (a, b) and (b, a) are the same pair."""
    seen = set()
    for pair in pairs:
        if key(pair) not in seen:
            seen.add(key(pair))
            yield pair


def key(pair: DatasetPair) -> str:
    r"""A text that identifies a pair of datasets, regardless of their order."""
    return " ".join(sorted(json.dumps(dataset) for dataset in pair))


_Point: TypeAlias = tuple[int, ...]

_OFTEN: Final = 0.75  # the fraction of maximal changes: smaller changes rarely reveal more


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid(Space):
    # Points with ``size`` coordinates from low to high.
    low: int
    high: int
    size: int = 1

    @abstractmethod
    def _moves(self) -> Iterator[_Point]:
        # The classic differences between neighbours.
        ...

    @abstractmethod
    def _move(self, rng: np.random.Generator) -> _Point:
        # A random difference between neighbours, not 0.
        ...

    @abstractmethod
    def _may(self, move: _Point) -> bool:
        # Whether neighbours may differ by ``move``.
        ...

    def _dataset(self, point: _Point) -> Any:
        return list(point)

    def _point(self, dataset: Any) -> _Point | None:
        # The point, or None if it is not a dataset of this space.
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
        return unique_pairs(pair for pair in self._candidates() if self.neighbours(*pair))

    def _candidates(self) -> Iterator[DatasetPair]:
        middle = (self.low + self.high) // 2
        # The first level is 0 if it is in range, because thresholds are often at 0.
        levels = (min(max(0, self.low), self.high), middle, self.low, self.high)
        # Constant starting points, and one from which ``move`` reverses the order of coordinates.
        for level in (*levels, None):
            for move in self._moves():
                wide = [middle + max(-step, 0) if level is None else level for step in move]
                yield self._fitted(wide, move)

    def _fitted(self, start: list[int], move: _Point) -> DatasetPair:
        # Use the nearest starting point for which start + move stays within bounds.
        here = tuple(
            min(max(x, self.low + max(-step, 0)), self.high - max(step, 0))
            for x, step in zip(start, move, strict=True)
        )
        there = tuple(x + step for x, step in zip(here, move, strict=True))
        return self._dataset(here), self._dataset(there)

    def draw(self, rng: np.random.Generator) -> DatasetPair:
        match rng.integers(3):
            case 0:  # constant
                start = np.full(self.size, rng.integers(self.low, self.high + 1))
            case 1:  # two levels
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
            case 0:  # all coordinates grow or fall
                start = [x + step for x in start]
            case 1:  # one coordinate changes
                start[i] += step
            case 2:  # two coordinates swap
                start[i], start[j], move[i], move[j] = start[j], start[i], move[j], move[i]
            case 3:  # one coordinate becomes a copy of another
                start[i], move[i] = start[j], move[j]
            case 4:  # the difference in one coordinate changes at random
                move[i] = self._move(rng)[i]
            case _:  # the whole difference changes at random
                move = list(self._move(rng))
        return self._fitted(start, tuple(move))


def _signs(size: int) -> Iterator[_Point]:
    zeros, minus = (0,) * (size - 1), (-1,) * (size - 1)
    halves = tuple(1 if i < size // 2 else -1 for i in range(size))
    turns = tuple(1 if i % 2 else -1 for i in range(size))
    ends = ((*zeros, 1), (1, *zeros), (*minus, 1), (1, *minus))
    for signs in ((1,) * size, *ends, halves, turns):
        yield signs
        yield tuple(-sign for sign in signs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors(_Grid):
    r"""Vectors of ``size`` answers; neighbours differ by at most ``amount`` in ``norm``."""

    amount: int
    norm: Norm

    def _moves(self) -> Iterator[_Point]:
        for signs in _signs(self.size):
            shared = 1 if self.norm is Norm.BOX else sum(map(abs, signs))
            if step := self._room(self.amount // shared):
                yield tuple(step * sign for sign in signs)

    def _cost(self, step: int) -> int:
        # The part of ``amount`` that a change of one coordinate by ``step`` uses.
        return step**2 if self.norm is Norm.L2_SQUARED else abs(step)

    def _room(self, left: int) -> int:
        # The largest change of one coordinate if ``left`` of ``amount`` remains.
        most = math.isqrt(left) if self.norm is Norm.L2_SQUARED else left
        return min(most, self.high - self.low)

    def _move(self, rng: np.random.Generator) -> _Point:
        move = [0] * self.size
        left = self.amount
        still = rng.random() * (rng.random() < 0.5)  # the fraction of unchanged coordinates
        for place, i in enumerate(rng.permutation(self.size).tolist()):
            room = self._room(left)
            if place and (not room or rng.random() < still):
                continue
            far = rng.random() < _OFTEN
            step = room if far else int(rng.integers(0 if place else 1, room + 1))
            move[i] = step if rng.random() < 0.5 else -step
            left -= 0 if self.norm is Norm.BOX else self._cost(step)
        return tuple(move)

    def _may(self, move: _Point) -> bool:
        costs = list(map(self._cost, move))
        return (max(costs) if self.norm is Norm.BOX else sum(costs)) <= self.amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Integers(Vectors):
    r"""Pairs of integers with 1 <= \|a - b\| <= ``amount``."""

    def _dataset(self, point: _Point) -> Any:
        return point[0]

    def _point(self, dataset: Any) -> _Point | None:
        return _Grid._point(self, [dataset])


@dataclass(frozen=True, slots=True, kw_only=True)
class Histograms(_Grid):
    r"""Histograms with ``size`` bins, whose neighbours differ in one person.

    The person is moved to another bin or, under add-remove, added or removed.
    """

    relation: Relation

    def _moves(self) -> Iterator[_Point]:
        last = self.size - 1
        if self.relation is Relation.REPLACE:
            yield from (self._person(*ends) for ends in ((0, last), (last, 0), (0, 1), (1, 0)))
        else:
            yield from (self._person(*ends) for ends in ((0, 0), (last, last)))

    def _person(self, joined: int, left: int) -> _Point:
        # The change of the counts if a person leaves one bin and joins another; if both are the
        # same bin, a person is added.
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


_Entry: TypeAlias = list[int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Datasets(Space):
    r"""Lists of at most ``most`` integers in [low, high]; neighbours differ in one integer.

    The integer is replaced or, under add-remove, added or removed.
    """

    low: int
    high: int
    most: int
    relation: Relation

    def _is_dataset(self, dataset: Any) -> bool:
        return (
            isinstance(dataset, list)
            and len(dataset) <= self.most
            and all(type(x) is int and self.low <= x <= self.high for x in dataset)
        )

    def neighbours(self, one: Any, other: Any) -> bool:
        if not self._is_dataset(one) or not self._is_dataset(other) or one == other:
            return False
        place = _first_difference(one, other)
        if self.relation is Relation.REPLACE:
            return len(one) == len(other) and one[place + 1 :] == other[place + 1 :]
        short, long = sorted((one, other), key=len)
        return len(long) == len(short) + 1 and long[place + 1 :] == short[place:]

    def _pair(self, rest: list[int], place: int, record: int, instead: int) -> DatasetPair:
        # The other dataset has ``instead`` in place of the record or, under add-remove, lacks the
        # record.
        one = [*rest[:place], record, *rest[place:]]
        if self.relation is Relation.ADD_REMOVE:
            return list(rest), one
        return one, [*rest[:place], instead, *rest[place:]]

    def patterns(self) -> Iterator[DatasetPair]:
        ends = (self.low, self.high)
        return unique_pairs(
            self._pair([level] * size, place, record, self.low + self.high - record)
            for size in dict.fromkeys((0, self.most - 1, (self.most - 1) // 2))
            for level in ends
            for record in ends[::-1]
            for place in dict.fromkeys((0, size))
            if record != self.low + self.high - record
        )

    def _two(self, rng: np.random.Generator) -> tuple[int, int]:
        # Two different records; with probability 1/2, the two extreme ones.
        if rng.random() < 0.5:
            return (self.low, self.high) if rng.random() < 0.5 else (self.high, self.low)
        record = int(rng.integers(self.low, self.high + 1))
        other = int(rng.integers(self.low, self.high))
        return record, other + (other >= record)

    def draw(self, rng: np.random.Generator) -> DatasetPair:
        size = int(rng.integers(self.most))
        rest = rng.integers(self.low, self.high + 1, size=size)
        if rng.random() < 0.5:
            rest = np.full(size, rng.integers(self.low, self.high + 1))
        return self._pair(rest.tolist(), int(rng.integers(size + 1)), *self._two(rng))

    def _step(self, pair: DatasetPair, rng: np.random.Generator) -> DatasetPair:
        one, other = sorted(pair, key=len, reverse=True)
        place = _first_difference(one, other)
        rest = [*one[:place], *one[place + 1 :]]
        record, instead = one[place], other[place] if len(one) == len(other) else one[place]
        some = int(rng.integers(self.low, self.high + 1))
        i = int(rng.integers(len(rest) + 1))
        match rng.integers(5):
            case 0:
                rest = rest[: i - 1] + rest[i:] if i else rest
            case 1:
                rest = [*rest[:i], some, *rest[i:]]
            case 2:
                rest = [*rest[:i], some, *rest[i + 1 :]]
            case 3:
                place = i
            case _:
                record, instead = self._two(rng)
        return self._pair(rest, min(place, len(rest)), record, instead)


def _first_difference(one: list[Any], other: list[Any]) -> int:
    both = zip(one, other, strict=False)
    return next((i for i, (x, y) in enumerate(both) if x != y), min(len(one), len(other)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams(Space):
    r"""Streams of ``steps`` entries, each of which is a pair [user, event], or None.

    Neighbours differ in one event or, for ``Unit.USER``, in any number of events of one user. Each
    of these events is replaced by another event of this user or, under add-remove, removed. A user
    who is removed has no events left.
    """

    low: int
    high: int
    steps: int
    users: int
    unit: Unit
    relation: Relation

    def _is_stream(self, dataset: Any) -> bool:
        return (
            isinstance(dataset, list)
            and len(dataset) == self.steps
            and all(entry is None or self._is_event(entry) for entry in dataset)
        )

    def _is_event(self, entry: Any) -> bool:
        return (
            isinstance(entry, list)
            and [type(x) for x in entry] == [int, int]
            and 0 <= entry[0] < self.users
            and self.low <= entry[1] <= self.high
        )

    def neighbours(self, one: Any, other: Any) -> bool:
        if not self._is_stream(one) or not self._is_stream(other) or one == other:
            return False
        differ = [(x, y) for x, y in zip(one, other, strict=True) if x != y]
        who = {entry[0] for step in differ for entry in step if entry is not None}
        single = self.unit is Unit.CONTRIBUTION
        if len(who) > 1 or (single and len(differ) > 1):
            return False
        replaced = [x is not None and y is not None for x, y in differ]
        if self.relation is Relation.REPLACE:
            return all(replaced)
        without = [one, other][all(y is None for _, y in differ)]
        gone = all(entry is None or entry[0] not in who for entry in without)
        return not any(replaced) and (single or gone)

    def _pair(self, one: list[_Entry], places: list[int]) -> DatasetPair:
        # The events at these steps are replaced by the extreme event that differs, or removed.
        other = list(one)
        for i in places:
            entry = one[i]
            if entry is not None:
                replaced = [entry[0], self.low if entry[1] > self.low else self.high]
                other[i] = None if self.relation is Relation.ADD_REMOVE else replaced
        return one, other

    def patterns(self) -> Iterator[DatasetPair]:
        last, steps = self.steps - 1, range(self.steps)
        return unique_pairs(
            self._pair([list(event) if others or i in places else None for i in steps], places)
            for others in (False, True)
            for event in ([0, self.high], [0, self.low])
            for places in self._places(last, others=others)
        )

    def _places(self, last: int, *, others: bool) -> Iterator[list[int]]:
        everywhere = list(range(last + 1))
        if self.unit is Unit.USER:
            yield everywhere
            if others and self.relation is Relation.ADD_REMOVE:
                return
        yield from ([place] for place in dict.fromkeys((0, last // 2, last)))

    def _entry(self, rng: np.random.Generator) -> _Entry:
        if rng.random() < 1 / 3:
            return None
        event = int(rng.integers(self.low, self.high + 1))
        return [int(rng.integers(self.users)), event]

    def draw(self, rng: np.random.Generator) -> DatasetPair:
        one = [self._entry(rng) for _ in range(self.steps)]
        place = int(rng.integers(self.steps))
        who, event = int(rng.integers(self.users)), int(rng.integers(self.low, self.high + 1))
        one[place] = [who, event]
        places = [place]
        if self.unit is Unit.USER:
            places = [i for i, entry in enumerate(one) if entry is not None and entry[0] == who]
        return self._pair(one, places)

    def _step(self, pair: DatasetPair, rng: np.random.Generator) -> DatasetPair:
        one, other = list(pair[0]), list(pair[1])
        i, j = rng.integers(self.steps, size=2).tolist()
        match rng.integers(4):
            case 0:  # another event at a step
                one[i] = other[i] = self._entry(rng)
            case 1:  # two steps are swapped
                one[i], one[j], other[i], other[j] = one[j], one[i], other[j], other[i]
            case 2:  # one step becomes a copy of another, in both streams
                one[i], other[i] = one[j], other[j]
            case _:  # the difference at a step changes
                if one[i] is not None and other[i] is not None and one[i] != other[i]:
                    one[i], other[i] = self._entry(rng), self._entry(rng)
                elif one[i] != other[i]:
                    one[i], other[i] = other[i], one[i]
        return one, other


def read_space(text: str, relation: Relation | str = Relation.REPLACE) -> Space:
    r"""Parse a space; the docstring of this module lists the syntax."""
    name, rest = split_name(text)
    if name not in SPACES:
        reason = f"must start with one of {', '.join(SPACES)}, e.g. integer:low=0,high=10"
        hint = did_you_mean(name, SPACES)
        raise InvalidParameter("--search", text, f"{hint}{'it ' if hint else ''}{reason}")
    known = SPACES[name]
    usual = {key: value for key, value in known.items() if value is not None}
    needed = [key for key in known if key not in usual]
    values = read_keys("--search", text, rest, known, owner=name, needed=needed)
    given = _SpaceKeys(text=text, values=usual | values)
    by = Relation(relation)
    low, high = (0, given.whole("most", 1, FARTHEST)) if name == "histogram" else given.range()
    ends: dict[str, Any] = {"spelling": text, "low": low, "high": high}
    match name:
        case "integer":
            return Integers(**ends, amount=given.whole("apart", 1, high - low), norm=Norm.BOX)
        case "vector":
            norm = Norm(given.word("norm", NORMS))
            # No answer can change by more than the range.
            most = high - low if norm is Norm.BOX else LARGEST**2
            size = given.whole("dimension", 1, LARGEST)
            return Vectors(**ends, size=size, amount=given.whole("sensitivity", 1, most), norm=norm)
        case "histogram":
            size = given.whole("bins", 2 if by is Relation.REPLACE else 1, LARGEST)
            return Histograms(**ends, size=size, relation=by)
        case "dataset":
            return Datasets(**ends, most=given.whole("most", 1, LARGEST), relation=by)
        case _:
            steps, users = (given.whole(key, 1, LARGEST) for key in ("steps", "users"))
            unit = Unit(given.word("unit", Unit))
            return Streams(**ends, steps=steps, users=users, unit=unit, relation=by)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SpaceKeys:
    text: str
    values: dict[str, str]

    def whole(self, word: str, least: int, most: int) -> int:
        try:
            return whole_number(word, self.values[word], at_least=least, at_most=most)
        except InvalidParameter:
            reason = f"{word} must be a whole number from {least} to {most}"
            raise InvalidParameter("--search", self.text, reason) from None

    def range(self) -> tuple[int, int]:
        low = self.whole("low", -FARTHEST, FARTHEST - 1)
        return low, self.whole("high", low + 1, FARTHEST)

    def word(self, word: str, members: Iterable[Enum]) -> str:
        known = [member.value for member in members]
        if self.values[word] not in known:
            raise InvalidParameter("--search", self.text, f"{word} must be {' or '.join(known)}")
        return self.values[word]
