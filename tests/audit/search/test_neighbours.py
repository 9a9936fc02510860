r"""Pairs against the relation: what no reading allows is refused, what is unusual is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import audit
from audit.catalogue import ENTRIES
from audit.search.neighbours import doubts, require_neighbours
from audit.search.spelling import read_space
from audit.testing.assertions import assert_private
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation

SPACES = (
    "integer:low=-3,high=9,apart=4",
    "vector:dimension=4,low=0,high=9",
    "histogram:bins=4",
    "dataset:low=0,high=9,most=5",
    "stream:steps=5,users=2",
)


class Frame:
    # What a DataFrame shows of itself here.
    columns = ("age",)

    def __init__(self, ages: list[int]) -> None:
        self.ages = ages

    def to_numpy(self) -> Any:
        return np.array(self.ages).reshape(-1, 1)


@pytest.mark.parametrize(
    ("pair", "relation", "said"),
    [
        (([1, 2, 3], [4, 5, 6]), "replace", "differ in 3 of 3 items"),
        ((np.array([1, 2, 3]), np.array([1, 5, 6])), "replace", "differ in 2 of 3 items"),
        ((["ada", "ben"], ["eve", "bob"]), "replace", "differ in 2 of 2 items"),
        (([{"age": 3}, {"age": 4}], [{"age": 30}, {"age": 40}]), "replace", "in 2 of 2 items"),
        (({"age": [3, 4], "of": [0, 1]}, {"age": [7, 9], "of": [0, 1]}), "replace", "2 of 2 items"),
        (({"rows": [3, 9], "top": 1}, {"rows": [7, 5], "top": 1}), "replace", "rows: the datasets"),
        (({"ada": 3, "ben": 9}, {"ada": 7, "ben": 5}), "replace", "differ in 2 of 2 items"),
        ((Frame([1, 9]), Frame([5, 3])), "replace", "differ in 2 of 2 items"),
        (([1, 2, 3], [1, 2, 6]), "add-remove", "differ in 1 of 3 items"),
        ((["ada"], ["ben"]), "add-remove", "with one record more"),
        (({"ada": 3, "ben": 9}, {"ada": 7, "ben": 5}), "add-remove", "differ in 2 of 2 items"),
        ((3, [1, 2]), "replace", "dataset A is a number, dataset B a list"),
        (("three", {"a": 1}), "replace", "dataset A is text, dataset B a table by names"),
    ],
)
def test_what_a_usual_reading_does_not_allow_is_said(pair: Any, relation: str, said: str) -> None:
    require_neighbours("--pair", pair, relation)
    for both in (pair, pair[::-1]):
        (found,) = doubts(both, relation)
        assert said in found or both is not pair


@pytest.mark.parametrize(
    ("pair", "relation"),
    [
        ((0, 5), "replace"),
        ((0.5, -7.5), "add-remove"),
        (("one text", "another"), "replace"),
        (([0, 0, 0], [1, 1, 1]), "replace"),  # answers to counting queries
        (([3, 0, 2], [3, 1, 1]), "replace"),  # a histogram
        (([3, 0, 2], [3, 0, 3]), "add-remove"),
        (([1, 2, 3], [1, 2, 99]), "replace"),
        (([1, 2], [2, 9]), "replace"),  # one record replaced, in another order
        (([1, 2, 3], [1, 3]), "add-remove"),
        (([], ["ada"]), "add-remove"),
        ((None, [1]), "add-remove"),
        (([[0, 5], None], [None, None]), "add-remove"),  # a stream: an event left out
        (({"ada": 1}, {"ada": 1, "ben": 1}), "add-remove"),
        (({"ada": 40}, {"ada": 40, "ben": 77}), "add-remove"),
        (({"ada": [1, 2, 3]}, {"ada": [1, 2]}), "replace"),  # the events of one person
        ((np.array([1, 2]), np.array([1, 9])), "replace"),
        ((Frame([1, 2]), Frame([1, 9])), "replace"),
    ],
)
def test_nothing_is_said_of_usual_pairs(pair: Any, relation: str) -> None:
    for both in (pair, pair[::-1]):
        require_neighbours("--pair", both, relation)
        assert doubts(both, relation) == []


@pytest.mark.parametrize(
    "pair",
    [
        (np.arange(3), np.arange(2)),
        ((1, 2, 3), (1, 2)),
        (Frame([1, 2]), Frame([1])),
        ({"age": [3, 4], "of": [0, 1]}, {"age": [3], "of": [0]}),
    ],
)
def test_arrays_and_tables_are_held_to_it_as_lists_are(pair: Any) -> None:
    with pytest.raises(InvalidParameter, match=r"lists of . and . items"):
        require_neighbours("pair", pair, "replace")
    require_neighbours("pair", pair, "add-remove")


def test_the_record_more_may_stand_anywhere_and_must_be_the_only_difference() -> None:
    require_neighbours("pair", ([3, 1, 2], [2, 1]), "add-remove")
    with pytest.raises(InvalidParameter, match="one record more"):
        require_neighbours("pair", ([3, 1, 2], [1, 4]), "add-remove")
    many = list(range(20_000))
    require_neighbours("pair", (many, many[:7] + many[8:]), "add-remove")


@pytest.mark.parametrize("relation", ["replace", "add-remove"])
@pytest.mark.parametrize("text", SPACES)
def test_pairs_of_the_spaces_are_taken(text: str, relation: str) -> None:
    # The predicates of the spaces are another reading of the same relation.
    space, rng = read_space(text, relation), np.random.default_rng(7)
    pairs = [*space.patterns(), *(space.draw(rng) for _ in range(100))]
    for pair in pairs:
        require_neighbours("--search", pair, relation)
        assert doubts(pair, relation) == []


def test_the_catalogue_contradicts_nothing() -> None:
    for entry in ENTRIES:
        for one in (entry, entry.twin):
            require_neighbours("--pair", one.pair, one.relation)


def _noisy(rows: Any, n: int, rng: np.random.Generator) -> Any:
    return np.rint(rng.laplace(scale=50, size=n)) + len(rows)


def test_every_door_refuses_and_warns() -> None:
    far: Any = ([1, 2, 3], [1, 2])
    with pytest.raises(InvalidParameter, match="must be neighbours under replace"):
        audit.audit(_noisy, "epsilon=1", pair=far)
    with pytest.raises(InvalidParameter, match="must be neighbours under replace"):
        assert_private(_noisy, "epsilon=1", pairs=[far])
    claim = audit.Claim(epsilon=1)
    with pytest.raises(InvalidParameter, match="is not that of the claim"):
        assert_private(_noisy, claim, pairs=[far], relation=Relation.ADD_REMOVE)
    near = assert_private(_noisy, "epsilon=1", pairs=[far], relation="add-remove", seed=7)
    assert near[0].claim.relation is Relation.ADD_REMOVE
    both = ([1, 2, 3], [4, 5, 6])
    reports = [
        audit.audit(_noisy, "epsilon=1", pair=both, runs=2000, seed=7),
        *assert_private(_noisy, "epsilon=1", pairs=[both], seed=7),
    ]
    for report in reports:
        assert report.warnings[0].startswith("the datasets differ in 3 of 3 items")


def test_of_several_pairs_a_warning_names_its_own() -> None:
    pairs = [([1], [2]), ([1, 2, 3], [4, 5, 6])]
    report = audit.audit(_noisy, "epsilon=1", pairs=pairs, runs=2000, seed=7)
    (said,) = [warning for warning in report.warnings if "differ in" in warning]
    assert said.startswith("pair 2: ")
