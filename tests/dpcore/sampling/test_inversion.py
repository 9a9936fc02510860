r"""Tests of inversion: batch samplers decide every word as an exact rational comparison would."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

from dpcore import PrecisionExhausted
from dpcore.numbers.enclosure import ball
from dpcore.sampling.inversion import (
    InversionTable,
    Uniform,
    symmetric_table,
)
from dpcore.sampling.rng import SeededRng
from tests.support.dpcore import mpmath_precision
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.scripted_rng import Digits, leading
from tests.support.dpcore.tables import (
    TIES,
    WORDS,
    case,
    laplace_digits,
    next_to_thresholds,
    wrong_draws,
)


@given(
    st.fractions(min_value=0, max_value=1, max_denominator=10**12),
    st.integers(-3, 3),
    st.sampled_from([64, 65, 127, 128, 129, 200, 256, 700]),
)
def test_a_uniform_number_is_compared_exactly(x: Fraction, off: int, depth: int) -> None:
    v = Fraction(int(x * 2**depth) + off, 2**depth)
    if not 0 <= v < 1 or v == x:
        return
    rng = Digits.after(v)
    assert Uniform(rng, leading(v)).below(lambda: ball(x)) == (v < x)


def test_a_uniform_number_draws_only_necessary_bits() -> None:
    rng = Digits([])
    assert Uniform(rng, 5).below(lambda: ball(Fraction(7, WORDS)))
    assert not Uniform(rng, 5).below(lambda: ball(Fraction(5, WORDS)))
    assert Uniform(rng, 5).below(lambda: ball(Fraction(6, WORDS)))
    assert rng.asked == 0


def test_a_uniform_number_remembers_its_bits() -> None:
    v = Fraction(1, 3)
    rng = Digits.after(v)
    uniform = Uniform(rng, leading(v))
    for depth in (70, 100, 150, 300, 100, 70):
        near = Fraction(int(v * 2**depth), 2**depth)
        assert not uniform.below(partial(ball, near))
        assert uniform.below(partial(ball, near + Fraction(1, 2**depth)))


def test_an_undecidable_comparison_is_refused() -> None:
    class Zeros(Digits):
        __slots__ = ()

        def bits(self, count: int) -> int:
            return 0

    with pytest.raises(PrecisionExhausted):
        Uniform(Zeros([]), 0).below(lambda: arb(0, 1))


@pytest.mark.parametrize("name", TIES)
def test_a_tie_is_decided_exactly(name: str) -> None:
    table, cdf, ks = case(name)
    with mpmath_precision.digits(110):
        assert wrong_draws(table, cdf, next_to_thresholds(cdf, ks)) == []


@pytest.mark.parametrize("name", TIES)
@pytest.mark.parametrize("depth", [64, 70, 130, 260])
def test_the_first_and_the_last_cell_are_unbounded(name: str, depth: int) -> None:
    # At words 0 and 2^64 - 1 the tails begin, which a table cannot hold.
    table, cdf, _ = case(name)
    with mpmath_precision.digits(110):
        tiny = Fraction(1, 1 << depth)
        numbers = [tiny, 1 - tiny, tiny * Fraction(2, 3), 1 - tiny * Fraction(2, 3)]
        assert wrong_draws(table, cdf, numbers) == []


def test_a_tail_of_probability_two_to_the_minus_thirty_thousand_is_drawn() -> None:
    # P(X <= -1) = e^(-20000)/(1 + e^(-20000)) = 2^-28853.9: F(-2) = 2^-57707.8.
    table = laplace_digits(Fraction(1, 20_000))._top
    target = np.empty(1, dtype=np.int64)
    for zeros, drawn in ((28_853, 0), (28_854, -1), (57_707, -1), (57_708, -2)):
        table.fill(Digits([Fraction(1, 1 << zeros)]), target)
        assert target.tolist() == [drawn]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("a tie decided without looking", "self._thresholds[index] == searched", "index < 0"),
        (
            "ties only where the word is larger",
            "index = np.searchsorted(self._thresholds, searched, side=\"left\")",
            "index = np.searchsorted(self._thresholds[:-1], searched, side=\"right\")",
        ),
        ("refined with another word", "int(searched[tie])", "int(searched[tie]) ^ 1"),
    ],
)  # fmt: skip
def test_a_mutant_of_fill_is_detected(name: str, old: str, new: str) -> None:
    table, cdf, ks = case("gaussian 400")
    mutant = mutated(InversionTable.fill, old, new)
    with mpmath_precision.digits(110):
        assert wrong_draws(table, cdf, next_to_thresholds(cdf, ks), mutant)


@pytest.mark.parametrize("name", TIES)
def test_a_guide_table_does_not_change_the_result(name: str) -> None:
    # Every cell border of the guide, and random words: the result equals a search in the table.
    table, _, _ = case(name)
    shift = int(table._shift)
    borders = [(cell << shift) + off for cell in range(0, 1 << (64 - shift), 7) for off in (0, 1)]
    words = [word for word in borders if word not in set(table.thresholds.tolist())]
    target = np.empty(len(words), dtype=np.int64)
    table.fill(Digits([Fraction(word, WORDS) for word in words]), target)
    plain = np.searchsorted(table.thresholds, np.array(words, dtype=np.uint64)) + table.first
    assert target.tolist() == plain.tolist()


def weight(k: int) -> int:
    return max(4 - abs(k), 0)


def cdf(k: int) -> arb:
    return arb(sum(weight(j) for j in range(-9, min(k, 9) + 1))) / 16


def support(build: Callable[..., InversionTable] = symmetric_table) -> list[int]:
    masses = [arb(weight(k)) / 16 for k in range(5)]
    return sorted(set(build(masses, arb(0), cdf).draw(SeededRng(1), 4096).tolist()))


def test_half_of_the_masses_determine_a_symmetric_table() -> None:
    assert support() == [-3, -2, -1, 0, 1, 2, 3]


def test_a_table_shifted_by_one_is_detected() -> None:
    assert support(mutated(symmetric_table, "1 - len(masses)", "-len(masses)")) != support()
