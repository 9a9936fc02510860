r"""Spaces of records: lists of them, and streams of events by users."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from audit.search.space import DatasetPair, Space, different
from dpcore.mechanism import Relation, Unit

_Entry: TypeAlias = list[int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Datasets(Space):
    r"""At most ``most`` records from ``low`` to ``high``: one replaced, or one more or less."""

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
        # ``instead`` is in place of the record in the other dataset, or nothing is.
        one = [*rest[:place], record, *rest[place:]]
        if self.relation is Relation.ADD_REMOVE:
            return list(rest), one
        return one, [*rest[:place], instead, *rest[place:]]

    def patterns(self) -> Iterator[DatasetPair]:
        ends = (self.low, self.high)
        return different(
            self._pair([level] * size, place, record, self.low + self.high - record)
            for size in dict.fromkeys((0, self.most - 1, (self.most - 1) // 2))
            for level in ends
            for record in ends[::-1]
            for place in dict.fromkeys((0, size))
            if record != self.low + self.high - record
        )

    def _two(self, rng: np.random.Generator) -> tuple[int, int]:
        # Two different records, as far apart as there are half of the time.
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
    r"""``steps`` entries, each [user, event] or None.

    Two streams differ in one event, or for ``Unit.USER`` in any of the events of one user: another
    event in its place, or (add-remove) none; without a user, none of that user's events is left.
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
        if self.unit is Unit.CONTRIBUTION and len(differ) > 1:
            return False
        if len({entry[0] for step in differ for entry in step if entry is not None}) > 1:
            return False
        if self.relation is Relation.REPLACE:
            return all(x is not None and y is not None for x, y in differ)
        without = [one, other][all(y is None for _, y in differ)]
        if any(x is not None and y is not None for x, y in differ):
            return False
        if self.unit is Unit.CONTRIBUTION:
            return True
        who = next(entry[0] for step in differ for entry in step if entry is not None)
        return all(entry is None or entry[0] != who for entry in without)

    def _pair(self, one: list[_Entry], places: list[int]) -> DatasetPair:
        # The events at these places are replaced by the farthest ones, or left out.
        other = list(one)
        for i in places:
            entry = one[i]
            if entry is not None:
                replaced = [entry[0], self.low if entry[1] > self.low else self.high]
                other[i] = None if self.relation is Relation.ADD_REMOVE else replaced
        return one, other

    def patterns(self) -> Iterator[DatasetPair]:
        last = self.steps - 1
        return different(
            self._pair([list(event) if others or i in places else None for i in steps], places)
            for steps in (range(self.steps),)
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
            case 0:  # something else happens at a step
                one[i] = other[i] = self._entry(rng)
            case 1:  # two steps change places
                one[i], one[j], other[i], other[j] = one[j], one[i], other[j], other[i]
            case 2:  # a step joins the difference, or leaves it
                one[i], other[i] = one[j], other[j]
            case _:  # the difference is another one
                if one[i] is not None and other[i] is not None and one[i] != other[i]:
                    one[i], other[i] = self._entry(rng), self._entry(rng)
                elif one[i] != other[i]:
                    one[i], other[i] = other[i], one[i]
        return one, other
