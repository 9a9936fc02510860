r"""Tests of `accounting.strategy_matrices`: sensitivities by all patterns of small cases."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from accounting import NotDerived
from accounting.strategy_matrices import (
    Banded,
    Dense,
    Participation,
    Strategy,
    Toeplitz,
    Tree,
    best_pattern,
    read_strategy,
    squared_sensitivity,
)
from dpcore import DiscreteLaplace, SeededRng
from dpcore.continual_sums import TreeSum
from tests.support.dpcore.refusals import refused

Matrix = Sequence[Sequence[Fraction]]


def patterns(rounds: int, most: int, apart: int) -> Iterator[tuple[int, ...]]:
    for count in range(1, most + 1):
        for chosen in itertools.combinations(range(rounds), count):
            if all(b - a >= apart for a, b in itertools.pairwise(chosen)):
                yield chosen


def moved(rows: Matrix, pattern: Sequence[int], signs: Sequence[int] | None = None) -> Fraction:
    given = signs or [1] * len(pattern)
    sums = (sum(row[i] * s for i, s in zip(pattern, given, strict=True)) for row in rows)
    return sum((Fraction(each) ** 2 for each in sums), Fraction(0))


def worst(rows: Matrix, most: int, apart: int) -> Fraction:
    return max(moved(rows, pattern) for pattern in patterns(len(rows), most, apart))


def lower(column: Sequence[Fraction]) -> Matrix:
    size = range(len(column))
    return [[column[i - j] if i >= j else Fraction(0) for j in size] for i in size]


def banded(rounds: int, bands: int) -> Matrix:
    r"""Return coefficients from the binomial coefficients, not from their recurrence."""
    ways = (
        Fraction(math.comb(2 * k, k), 4**k) if k < bands else Fraction(0) for k in range(rounds)
    )
    return lower([*ways])


@pytest.mark.parametrize(("most", "apart"), [(1, 1), (2, 1), (3, 2), (3, 3), (2, 5)])
def test_coefficients_of_the_square_root_and_its_bands_are_exact(most: int, apart: int) -> None:
    participation = Participation(most=most, apart=apart)
    for rounds in range(1, 9):
        for bands in range(1, rounds + 1):
            rows = banded(rounds, bands)
            truth = worst(rows, most, apart)
            found = squared_sensitivity(Banded(rounds=rounds, bands=bands), participation).squared
            searched = squared_sensitivity(Dense(rounds=rounds, rows=rows), participation).squared
            for ends in (found, searched):
                assert ends.lower <= truth <= ends.upper
                assert ends.upper - ends.lower < truth * Fraction(1, 10**9)


def test_a_search_finds_the_best_pattern_and_a_stopped_one_bounds_it() -> None:
    rng = random.Random(1)
    gaps = 0
    for _ in range(120):
        size, most, apart = rng.randint(1, 10), rng.randint(1, 4), rng.randint(1, 4)
        drawn = [[rng.randint(0, 4) for _ in range(size)] for _ in range(size)]
        matrix = np.tril(np.array(drawn))
        products = matrix.T @ matrix
        participation = Participation(most=most, apart=apart)
        truth, allowed = worst(matrix.tolist(), most, apart), {(), *patterns(size, most, apart)}
        pattern, bound = best_pattern(products, participation)
        assert pattern in allowed
        assert moved(matrix.tolist(), pattern) == bound == truth
        pattern, bound = best_pattern(products, participation, work=0)
        assert pattern in allowed
        assert moved(matrix.tolist(), pattern) <= truth <= bound
        gaps += bound > truth
    assert gaps > 0  # the stopped search left a gap


def test_the_strategy_tree_is_the_tree_of_running_sums() -> None:
    r"""Item i is 2^i: the exact sum of the block closed after t shows which items it contains."""
    for rounds in (1, 2, 5, 8, 13):
        setting = TreeSum(horizon=rounds, noise=DiscreteLaplace(scale=1), high=1 << rounds)
        state: Any = setting._begin()
        rows = []
        for t in range(1, rounds + 1):
            state, _ = setting._next(state, t, 1 << (t - 1), SeededRng(t))
            rows.append([Fraction(state[-1][0] >> i & 1) for i in range(rounds)])
        products, unit = Tree(rounds=rounds).gram()
        assert unit == 1
        truth = [
            [sum(row[i] * row[j] for row in rows) for j in range(rounds)] for i in range(rounds)
        ]
        assert products.tolist() == truth
        for most, apart in ((1, 1), (2, 1), (3, 2), (2, 4)):
            found = squared_sensitivity(Tree(rounds=rounds), Participation(most=most, apart=apart))
            assert found.squared.lower == found.squared.upper == worst(rows, most, apart)


def test_the_sensitivity_lies_within_both_bounds_if_products_are_negative() -> None:
    rng = random.Random(2)
    open_ends = 0
    for _ in range(40):
        size, most, apart = rng.randint(2, 6), rng.randint(1, 4), rng.randint(1, 3)
        rows = [
            [Fraction(rng.randint(-3, 3) if i > j else i == j) for j in range(size)]
            for i in range(size)
        ]
        truth = max(
            moved(rows, pattern, signs)
            for pattern in patterns(size, most, apart)
            for signs in itertools.product((1, -1), repeat=len(pattern))
        )
        found = squared_sensitivity(
            Dense(rounds=size, rows=rows), Participation(most=most, apart=apart)
        )
        assert found.squared.lower <= truth <= found.squared.upper
        assert found.exact == (found.squared.lower == found.squared.upper)
        open_ends += not found.exact
    assert open_ends > 0


def test_products_beyond_int64_are_rounded_outwards() -> None:
    huge = 10**30 + 1
    rows = [[Fraction(huge), Fraction(0)], [Fraction(1), Fraction(huge)]]
    found = squared_sensitivity(Dense(rounds=2, rows=rows), Participation(most=2))
    truth = moved(rows, [0, 1])
    assert found.squared.lower <= truth <= found.squared.upper
    assert found.squared.upper < truth * (1 + Fraction(1, 10**12))


def test_rising_coefficients_are_searched() -> None:
    for given in ([1, 3, 2], [2, 0, 1], [1, 1, 4, 1]):
        rows = lower([*map(Fraction, given), *([Fraction(0)] * (6 - len(given)))])
        strategy = Toeplitz(rounds=6, coefficients=given)
        assert strategy.first_column() is None
        for most, apart in ((1, 1), (2, 1), (3, 2)):
            found = squared_sensitivity(strategy, Participation(most=most, apart=apart)).squared
            assert found.lower == found.upper == worst(rows, most, apart)
    with pytest.raises(NotDerived, match="4096"):
        squared_sensitivity(Tree(rounds=5000), Participation(most=2))
    assert squared_sensitivity(Tree(rounds=5000), Participation()).squared.upper == 13


@pytest.mark.parametrize(
    ("kind", "given", "argument"),
    [
        (Tree, {"rounds": 0}, "rounds"),
        (Tree, {"rounds": 1 << 17}, "rounds"),
        (Tree, {"rounds": "many"}, "rounds"),
        (Banded, {"rounds": 4, "bands": 5}, "bands"),
        (Banded, {"rounds": 4, "bands": -1}, "bands"),
        (Banded, {"rounds": 4, "grid": 48}, "grid"),
        (Toeplitz, {"rounds": 2, "coefficients": ()}, "coefficients"),
        (Toeplitz, {"rounds": 2, "coefficients": "12"}, "coefficients"),
        (Toeplitz, {"rounds": 2, "coefficients": (1, 1, 1)}, "coefficients"),
        (Toeplitz, {"rounds": 2, "coefficients": (0, 1)}, "coefficients"),
        (Toeplitz, {"rounds": 2, "coefficients": (float("nan"),)}, "coefficients"),
        (Dense, {"rounds": 2, "rows": [[1, 0]]}, "rows"),
        (Dense, {"rounds": 2, "rows": [[1, 0], [1]]}, "rows"),
        (Dense, {"rounds": 2, "rows": [[1, 1], [0, 1]]}, "rows"),
        (Dense, {"rounds": 2, "rows": [[0, 0], [0, 0]]}, "rows"),
        (Dense, {"rounds": 1, "rows": "1"}, "rows"),
        (Dense, {"rounds": 3, "rows": np.array(1.0)}, "rows"),
        (Participation, {"most": 0}, "most"),
        (Participation, {"apart": 0}, "apart"),
    ],
    ids=str,
)
def test_bad_input_is_refused(kind: type[Any], given: dict[str, Any], argument: str) -> None:
    with refused(argument):
        kind(**given)


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ("square-root", Banded(rounds=9)),
        ("banded:bands=3,grid=32", Banded(rounds=9, bands=3, grid=32)),
        ("toeplitz:c=1 1/2", Toeplitz(rounds=9, coefficients=np.array([1, 0.5]))),
        ("tree", Tree(rounds=9)),
    ],
)
def test_the_text_of_a_strategy_survives_a_round_trip(text: str, again: Strategy) -> None:
    assert read_strategy("--strategy", text, 9) == again
    assert again.written == text
    assert again.to_json()["strategy"] == text
    rows = np.tril(np.ones((3, 3))) / 4
    assert Dense(rounds=3, rows=rows) == Dense(rounds=3, rows=rows.tolist())
