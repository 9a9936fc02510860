r"""Tests of pairs against the neighbour relation: impossible pairs raise, unusual ones warn."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import audit
from audit.broken_mechanisms import ENTRIES
from audit.search.neighbour_spaces import read_space
from audit.targets.check_neighbours import doubts, read_pairs_file, require_neighbours
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


def frame(*ages: int) -> pd.DataFrame:
    return pd.DataFrame({"age": ages})


@pytest.mark.parametrize(
    ("pair", "relation", "said"),
    [
        (([1, 2, 3], [4, 5, 6]), "replace", "differ in 3 of 3 items"),
        ((np.array([1, 2, 3]), np.array([1, 5, 6])), "replace", "differ in 2 of 3 items"),
        ((["ada", "ben"], ["eve", "bob"]), "replace", "differ in 2 of 2 items"),
        (([{"age": 3}, {"age": 4}], [{"age": 30}, {"age": 40}]), "replace", "in 2 of 2 items"),
        (({"age": [3, 4], "of": [0, 1]}, {"age": [7, 9], "of": [0, 1]}), "replace", "2 of 2 items"),
        (({"rows": [3, 9], "top": 1}, {"rows": [7, 5], "top": 1}), "replace", "rows: the datasets"),
        ((frame(1, 9), frame(5, 3)), "replace", "differ in 2 of 2 items"),
        (([1, 2, 3], [1, 2, 6]), "add-remove", "differ in 1 of 3 items"),
        ((["ada"], ["ben"]), "add-remove", "the other plus one record"),
        (({"ada": 3, "ben": 9}, {"ada": 7, "ben": 5}), "add-remove", "differ in 2 of 2 items"),
        ((3, [1, 2]), "replace", "dataset A is a number, dataset B a list"),
        (("three", {"a": 1}), "replace", "dataset A is text, dataset B a mapping"),
    ],
)
def test_an_unusual_pair_gives_a_warning_with_both_readings(
    pair: Any, relation: str, said: str
) -> None:
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
        ((None, [1]), "add-remove"),
        (([[0, 5], None], [None, None]), "add-remove"),  # a stream without one event
        (({"ada": 1}, {"ada": 1, "ben": 1}), "add-remove"),
        (({"ada": 40}, {"ada": 40, "ben": 77}), "add-remove"),
        (({"ada": [1, 2, 3]}, {"ada": [1, 2]}), "replace"),  # the events of one person
        ((np.array([1, 2]), np.array([1, 9])), "replace"),
    ],
)
def test_usual_pairs_give_no_warning(pair: Any, relation: str) -> None:
    for both in (pair, pair[::-1]):
        require_neighbours("--pair", both, relation)
        assert doubts(both, relation) == []


def test_arrays_and_tables_are_checked_like_lists() -> None:
    pairs: list[Any] = [
        (np.arange(3), np.arange(2)),
        ((1, 2, 3), (1, 2)),
        (frame(1, 2), frame(1)),
        ({"age": [3, 4], "of": [0, 1]}, {"age": [3], "of": [0]}),
    ]
    for pair in pairs:
        with pytest.raises(InvalidParameter, match=r"lists of . and . items"):
            require_neighbours("pair", pair, "replace")
        require_neighbours("pair", pair, "add-remove")


def test_one_additional_record_at_any_position_is_the_only_allowed_difference() -> None:
    require_neighbours("pair", ([3, 1, 2], [2, 1]), "add-remove")
    with pytest.raises(InvalidParameter, match="plus one record"):
        require_neighbours("pair", ([3, 1, 2], [1, 4]), "add-remove")
    many = list(range(20_000))
    require_neighbours("pair", (many, many[:7] + many[8:]), "add-remove")


def test_pairs_of_the_search_spaces_and_of_the_catalogue_are_accepted() -> None:
    # The predicates of the search spaces are an independent definition of the relation.
    for text, relation in product(SPACES, ("replace", "add-remove")):
        space, rng = read_space(text, relation), np.random.default_rng(7)
        for pair in [*space.patterns(), *(space.draw(rng) for _ in range(30))]:
            require_neighbours("--search", pair, relation)
            assert doubts(pair, relation) == []
    for entry in ENTRIES:
        for one in (entry, entry.twin):
            require_neighbours("--pair", one.pair, one.relation)


def _noisy(rows: Any, n: int, rng: np.random.Generator) -> Any:
    return np.rint(rng.laplace(scale=50, size=n)) + len(rows)


def test_every_entry_point_checks_the_relation() -> None:
    far: Any = ([1, 2, 3], [1, 2])
    with pytest.raises(InvalidParameter, match="must be neighbours under replace"):
        audit.audit(_noisy, "epsilon=1", pair=far)
    with pytest.raises(InvalidParameter, match="must be neighbours under replace"):
        assert_private(_noisy, "epsilon=1", pairs=[far])
    claim = audit.Claim(epsilon=1)
    with pytest.raises(InvalidParameter, match="must be replace, the relation of the claim"):
        assert_private(_noisy, claim, pairs=[far], relation=Relation.ADD_REMOVE)
    near = assert_private(_noisy, "epsilon=1", pairs=[far], relation="add-remove", seed=7)
    assert near[0].claim.relation is Relation.ADD_REMOVE
    # An unusual pair gives a warning, which names it if there are several.
    both: Any = ([1, 2, 3], [4, 5, 6])
    options: Any = {"runs": 500, "seed": 7}
    for pairs, start in (([both], ""), ([([1], [2]), both], "pair 2: ")):
        report = audit.audit(_noisy, "epsilon=1", pairs=pairs, **options)
        (said,) = [warning for warning in report.warnings if "differ in" in warning]
        assert said.startswith(f"{start}the datasets differ in 3 of 3 items")


def test_two_equal_datasets_of_any_length_are_refused() -> None:
    # An assertion on equal datasets could not fail, whatever the code does.
    for target in ("discrete-laplace:scale=1", "half-scale"):
        with pytest.raises(InvalidParameter, match="must be two different datasets"):
            assert_private(target, "epsilon=1", pairs=[(0, 1), (1, 1)])
    for same in (([1, 2], [1, 2]), (np.zeros(5000), np.zeros(5000))):
        with pytest.raises(InvalidParameter, match="must be two different datasets"):
            audit.audit(_noisy, "epsilon=1", pair=same)
    long = np.zeros(5000, dtype=int)
    long[2500] = 1  # its repr omits this entry
    audit.audit(_noisy, "epsilon=1", pair=(np.zeros(5000, dtype=int), long), runs=100, seed=7)


TOML = """
[[pair]]
a = [0, 0.5, "x"]
b = {age = [3, true]}

[[pair]]
a = 3
b = 4
"""


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def test_pairs_are_read_from_toml_and_from_json(tmp_path: Path) -> None:
    pairs = read_pairs_file(written(tmp_path, "pairs.toml", TOML))
    assert pairs == (([0, 0.5, "x"], {"age": [3, True]}), (3, 4))
    pairs = read_pairs_file(written(tmp_path, "pairs.JSON", "[[[[0, 1], null], [null, null]]]"))
    assert pairs == (([[0, 1], None], [None, None]),)


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("pairs.txt", "", "must be a file that ends in .toml or .json"),
        ("pairs.toml", "", "contains no pair"),
        ("pairs.toml", "[[pair]]\na = 1\nb = \n", "is not TOML: Invalid value (at line 3"),
        ("pairs.json", "[[1, 2],]", "is not JSON: "),
        ("pairs.json", "[" * 100_000, "is not JSON: "),
        ("pairs.toml", "pair = 3\n", "must contain [[pair]] tables"),
        ("pairs.toml", "pair = [3]\n", "pair 1: the file must"),
        ("pairs.toml", "[[pair]]\na = 1\nb = 2\n[[pair]]\na = 1\n", "pair 2: the file must"),
        ("pairs.toml", "[[pair]]\na = 1\nb = 2\nc = 3\n", "pair 1: the file must"),
        ("pairs.toml", "[[pair]]\na = 1\nb = [0, {x = nan}]\n", "pair 1: b[1].x = nan is not a"),
        ("pairs.toml", "[[pair]]\na = 1e999\nb = 2\n", "pair 1: a = inf is not a JSON value"),
        ("pairs.toml", "[[pair]]\na = [2020-01-01]\nb = 2\n", "pair 1: a[0] = 2020-01-01 is no"),
        ("pairs.json", "[[1, 2], [NaN, 1]]", "pair 2: a = nan is not a JSON"),
        ("pairs.json", "[[1, 2, 3]]", "pair 1: the file must contain a list of pairs [a, b]"),
        ("pairs.json", '{"a": 1, "b": 2}', "the file must contain a list of pairs [a, b]"),
    ],
)
def test_invalid_files_of_pairs_are_refused(
    tmp_path: Path, name: str, text: str, place: str
) -> None:
    with pytest.raises(InvalidParameter) as caught:
        read_pairs_file(written(tmp_path, name, text))
    assert str(caught.value).startswith("--pairs = ")
    assert place in caught.value.reason


def test_a_toml_key_of_very_many_parts_is_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "deep.toml"
    for text in (".".join("a" * 50_000) + " = 1\n", "[" + " . ".join("a" * 50_000) + "]\n"):
        file.write_text(text)
        with pytest.raises(InvalidParameter, match=r"toml: has a dotted key of more than 64 parts"):
            read_pairs_file(file)
    file.write_text(f"[[pair]]\na = [{', '.join(['0.5'] * 1000)}]\nb = 'a.b'\n")
    assert read_pairs_file(file)[0][1] == "a.b"
