r"""Tests of `audit.search.neighbour_spaces`: candidates satisfy an independent definition."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.search.neighbour_spaces import DatasetPair, Space, key, read_space
from audit.testing.strategies import (
    neighbouring_datasets,
    neighbouring_histograms,
    neighbouring_integers,
    neighbouring_streams,
    neighbouring_vectors,
)
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation, Sensitivity
from tests.day_and_nightly import by_day

Neighbours = Callable[[Any, Any, str], bool]


def _changes(one: list[int], other: list[int]) -> list[int]:
    return [abs(x - y) for x, y in zip(one, other, strict=True)]


def _histograms(one: list[int], other: list[int], relation: str) -> bool:
    return (sum(_changes(one, other)), sum(one) - sum(other)) in (
        [(2, 0)] if relation == "replace" else [(1, 1), (1, -1)]
    )


def _without_one(records: list[Any]) -> list[list[Any]]:
    return [records[:i] + records[i + 1 :] for i in range(len(records))]


def _datasets(one: list[int], other: list[int], relation: str) -> bool:
    if relation == "add-remove":
        return one in _without_one(other) or other in _without_one(one)
    # Substitution: equal after one record at the same place is removed from both.
    both = zip(_without_one(one), _without_one(other), strict=True)
    return one != other and any(x == y for x, y in both)


def _streams(one: list[Any], other: list[Any], relation: str) -> bool:
    differ = [(x, y) for x, y in zip(one, other, strict=True) if x != y]
    users = {entry[0] for pair in differ for entry in pair if entry}
    shape = sorted({(x is None, y is None) for x, y in differ})
    wanted = [[(False, False)]] if relation == "replace" else [[(False, True)], [(True, False)]]
    return len(users) == 1 and shape in wanted


def _one_event(one: list[Any], other: list[Any], relation: str) -> bool:
    differ = sum(x != y for x, y in zip(one, other, strict=True))
    return _streams(one, other, relation) and differ == 1


def _one_user(one: list[Any], other: list[Any], relation: str) -> bool:
    if not _streams(one, other, relation) or relation == "replace":
        return _streams(one, other, relation)
    who = next(e[0] for p in zip(one, other, strict=True) if p[0] != p[1] for e in p if e)
    return any(all(e is None or e[0] != who for e in stream) for stream in (one, other))


def _within(dataset: Any, low: int, high: int) -> bool:
    if isinstance(dataset, list):
        return all(_within(each, low, high) for each in dataset)
    return dataset is None or (type(dataset) is int and low <= dataset <= high)


SPACES: dict[str, tuple[Neighbours, tuple[int, int]]] = {
    "integer:low=-3,high=10": (lambda x, y, _: abs(x - y) == 1, (-3, 10)),
    "integer:low=0,high=10,apart=4": (lambda x, y, _: 1 <= abs(x - y) <= 4, (0, 10)),
    "vector:dimension=5,low=0,high=2": (lambda x, y, _: max(_changes(x, y)) == 1, (0, 2)),
    "vector:dimension=1,low=0,high=1": (lambda x, y, _: max(_changes(x, y)) == 1, (0, 1)),
    "vector:dimension=3,low=-5,high=5,sensitivity=3": (
        lambda x, y, _: 1 <= max(_changes(x, y)) <= 3,
        (-5, 5),
    ),
    "vector:dimension=4,low=0,high=3,norm=l1": (lambda x, y, _: sum(_changes(x, y)) == 1, (0, 3)),
    "vector:dimension=4,low=0,high=1,sensitivity=9,norm=l1": (
        lambda x, y, _: 1 <= sum(_changes(x, y)) <= 9,
        (0, 1),
    ),
    "vector:dimension=4,low=-9,high=9,sensitivity=5,norm=l2-squared": (
        lambda x, y, _: 1 <= sum(d * d for d in _changes(x, y)) <= 5,
        (-9, 9),
    ),
    "histogram:bins=3,most=4": (_histograms, (0, 4)),
    "histogram:bins=2,most=1": (_histograms, (0, 1)),
    "dataset:low=0,high=2,most=4": (_datasets, (0, 2)),
    "dataset:low=0,high=1,most=1": (_datasets, (0, 1)),
    "stream:steps=4,users=2": (_one_event, (0, 1)),
    "stream:steps=1,users=1": (_one_event, (0, 1)),
    "stream:steps=4,users=2,low=-1,high=3,unit=user": (_one_user, (-1, 3)),
}
BOTH = ["replace", "add-remove"]


def _check(space: Space, pair: DatasetPair, relation: str) -> None:
    neighbours, bounds = SPACES[space.spelling]
    assert pair[0] != pair[1]
    assert neighbours(*pair, relation), pair
    assert space.neighbours(*pair)
    assert _within(list(pair), *bounds)


@by_day(8)
@pytest.mark.parametrize("relation", BOTH)
@pytest.mark.parametrize("text", SPACES)
@settings(max_examples=20)  # of many pairs each
@given(seed=st.integers(0, 2**32))
def test_candidates_are_neighbours(text: str, relation: str, seed: int) -> None:
    space = read_space(text, relation)
    rng = np.random.default_rng(seed)
    pair = space.draw(rng)
    for step in range(8):
        _check(space, pair, relation)
        assert space.neighbours(*pair[::-1])
        assert json.loads(json.dumps(pair)) == list(pair)
        pair = space.mutate(pair, rng) if step % 4 else space.draw(rng)


def test_patterns_are_different_neighbours_in_a_fixed_order() -> None:
    for text, relation in product(SPACES, BOTH):
        space = read_space(text, relation)
        found = list(space.patterns())
        assert found == list(space.patterns())
        assert len({key(pair) for pair in found}) == len(found) > 0
        for pair in found:
            _check(space, pair, relation)
    one_bin = read_space("histogram:bins=1,most=1", "add-remove")
    assert list(one_bin.patterns()) == [([0], [1])]


def test_the_patterns_of_the_literature_are_included() -> None:
    found = {key(pair) for pair in read_space("vector:dimension=5,low=0,high=2").patterns()}
    level = [1, 1, 1, 1, 1]
    for other in ([2, 1, 1, 1, 1], [0, 1, 1, 1, 1], [2, 0, 0, 0, 0], [0, 2, 2, 2, 2]):
        assert key((level, other)) in found
        assert key((level, other[::-1])) in found
    for other in ([2, 2, 2, 2, 2], [0, 0, 0, 0, 0], [2, 2, 0, 0, 0]):
        assert key((level, other)) in found
    assert key(([1, 1, 2, 2, 2], [2, 2, 1, 1, 1])) in found


def answers(relation: str) -> dict[str, st.SearchStrategy[Any]]:
    """Pairs from the Hypothesis strategies, by the space that must contain them."""
    bits, l1, l2 = st.integers(0, 1), Sensitivity.l1(2), Sensitivity.l2_squared(2)
    streams: dict[str, Any] = {"steps": 4, "users": 2, "relation": relation}
    return {
        "integer:low=-8,high=8,apart=3": neighbouring_integers(3, at_least=-8, at_most=8),
        "vector:dimension=3,low=-8,high=8": neighbouring_vectors(
            Sensitivity.box((1, 1, 1)), farthest=7
        ),
        "vector:dimension=3,low=-9,high=9,sensitivity=2,norm=l1": neighbouring_vectors(
            l1, dimension=3, farthest=7
        ),
        "vector:dimension=3,low=-9,high=9,sensitivity=2,norm=l2-squared": neighbouring_vectors(
            l2, dimension=3, farthest=7
        ),
        "histogram:bins=3,most=9": neighbouring_histograms(bins=3, relation=relation, most=8),
        "dataset:low=0,high=1,most=5": neighbouring_datasets(bits, relation=relation, most=5),
        "stream:steps=4": neighbouring_streams(bits, **streams),
        "stream:steps=4,unit=user": neighbouring_streams(bits, unit="user", **streams),
    }


@by_day(1)
@pytest.mark.parametrize("relation", BOTH)
@settings(max_examples=15)
@given(data=st.data())
def test_generated_neighbours_are_pairs_of_the_spaces(relation: str, data: st.DataObject) -> None:
    for text, pairs in answers(relation).items():
        pair = data.draw(pairs)
        assert read_space(text, relation).neighbours(*pair), (text, pair)


@pytest.mark.parametrize(
    ("text", "relation", "pair"),
    [
        ("integer:low=0,high=5", "replace", (0, 0)),
        ("integer:low=0,high=5", "replace", (0, 2)),
        ("integer:low=0,high=5", "replace", (5, 6)),
        ("integer:low=0,high=5", "replace", (True, 0)),
        ("vector:dimension=2,low=0,high=5", "replace", ([0, 0], [0, 2])),
        ("vector:dimension=2,low=0,high=5", "replace", ([0, 0], [0, 0, 1])),
        ("vector:dimension=2,low=0,high=5,norm=l1", "replace", ([0, 0], [1, 1])),
        ("histogram:bins=2", "add-remove", ([1, 0], [0, 1])),
        ("dataset:low=0,high=1", "replace", ([0], [0, 1])),
        ("dataset:low=0,high=1", "replace", ([0, 0], [1, 1])),
        ("dataset:low=0,high=1", "add-remove", ([0], [1])),
        ("dataset:low=0,high=1", "add-remove", ([0, 1], [1, 0, 0, 0])),
        ("stream:steps=2", "replace", ([[0, 0], None], [[1, 0], None])),
        ("stream:steps=2", "add-remove", ([[0, 0], None], [[0, 1], None])),
        ("stream:steps=2", "add-remove", ([[0, 0], [0, 0]], [None, None])),
        ("stream:steps=2,unit=user", "add-remove", ([[0, 0], None], [None, [0, 0]])),
    ],
)
def test_pairs_that_are_not_neighbours_are_rejected(
    text: str, relation: str, pair: tuple[Any, Any]
) -> None:
    assert not read_space(text, relation).neighbours(*pair)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must start with one of integer, vector, histogram, dataset, stream"),
        ("integer", "low is missing: write low=..."),
        ("integer:low=0,high=0", "high must be a whole number from 1 to"),
        ("integer:low=0,high=1/2", "high must be a whole number from 1 to"),
        ("integer:low=0,low=1,high=2", "low is given twice"),
        ("integer:low=0,high=2,apart=3", "apart must be a whole number from 1 to 2"),
        ("integer:low=0,high=2,far=3", "'far=3': integer has the parameters low, high, apart"),
        ("integer:low", "'low': integer has the parameters"),
        ("vector:dimension=0,low=0,high=1", "dimension must be a whole number from 1 to"),
        ("vector:dimension=2,low=0,high=1,norm=l2", "norm must be box or l1 or l2-squared"),
        ("vector:dimension=2,low=0,high=1,sensitivity=2", "sensitivity must be a whole number"),
        ("histogram:bins=1", "bins must be a whole number from 2 to"),
        ("stream:steps=3,unit=person", "unit must be contribution or user"),
    ],
)
def test_invalid_spaces_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        read_space(text, Relation.REPLACE)
    assert caught.value.argument == "--search"
    assert reason in caught.value.reason
