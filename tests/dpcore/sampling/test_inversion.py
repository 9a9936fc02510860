r"""Tests of inversion: every word is decided as an exact comparison would; tables from masses."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

from dpcore import PrecisionExhausted
from dpcore.numbers.enclosure import ball
from dpcore.sampling.inversion import InversionTable, Uniform, invert, table_of_masses
from tests.day_and_nightly import by_day
from tests.support.dpcore import mpmath_precision
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import names, refusal
from tests.support.dpcore.scripted_rng import Digits, leading
from tests.support.dpcore.tables import (
    TIES,
    WORDS,
    Cdf,
    case,
    hair,
    laplace_digits,
    next_to_thresholds,
    real,
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
def test_ties_and_unbounded_cells_are_decided_exactly(name: str) -> None:
    table, cdf, ks = case(name)
    numbers = []
    for depth in (64, 70, 130, 260):
        # At words 0 and 2^64 - 1 the tails begin, which a table cannot hold.
        tiny = Fraction(1, 1 << depth)
        numbers += [tiny, 1 - tiny, tiny * Fraction(2, 3), 1 - tiny * Fraction(2, 3)]
    with mpmath_precision.digits(110):
        assert wrong_draws(table, cdf, numbers + next_to_thresholds(cdf, ks)) == []
    # Every cell border of the guide: the result equals a search in the table.
    shift = int(table._shift)
    borders = [(cell << shift) + off for cell in range(0, 1 << (64 - shift), 7) for off in (0, 1)]
    words = [word for word in borders if word not in set(table.thresholds.tolist())]
    target = np.empty(len(words), dtype=np.int64)
    table.fill(Digits([Fraction(word, WORDS) for word in words]), target)
    plain = np.searchsorted(table.thresholds, np.array(words, dtype=np.uint64)) + table.first
    assert target.tolist() == plain.tolist()


def test_a_tail_of_probability_two_to_the_minus_thirty_thousand_is_drawn() -> None:
    # P(X <= -1) = e^(-20000)/(1 + e^(-20000)) = 2^-28853.9: F(-2) = 2^-57707.8.
    table = laplace_digits(Fraction(1, 20_000))._top
    target = np.empty(1, dtype=np.int64)
    for zeros, drawn in ((28_853, 0), (28_854, -1), (57_707, -1), (57_708, -2)):
        table.fill(Digits([Fraction(1, 1 << zeros)]), target)
        assert target.tolist() == [drawn]


def opened(name: str, left: int = 20) -> tuple[InversionTable, Cdf]:
    r"""Return the same table, cut where about 2^-left of the mass remains above."""
    table, cdf, _ = case(name)
    kept = [c for c in table.thresholds.tolist() if c < WORDS - (WORDS >> left)]
    return InversionTable(table.first, kept, table._cdf), cdf


def past_the_end(table: InversionTable, cdf: Cdf) -> list[Fraction]:
    r"""Return V next to the last threshold, slightly above, far above, and at the last cell."""
    last = table.first + len(table) - 1
    numbers = next_to_thresholds(cdf, [last - 2, last - 1, last, last + 1, last + 2, last + 30])
    edge = int(table.thresholds[-1])
    words = [edge + off for off in (-2, -1, 0, 1, 2, 1000)] + [(WORDS + edge) // 2, WORDS - 1]
    halves = [Fraction(2 * word + 1, 2 * WORDS) for word in words]
    return [v for v in dict.fromkeys(numbers + halves) if 0 < v < 1]


@by_day(6)
@pytest.mark.parametrize("name", TIES)
@pytest.mark.parametrize("left", [1, 8, 20, 60])
def test_a_word_above_a_truncated_table_is_refined(name: str, left: int) -> None:
    table, cdf = opened(name, left)
    with mpmath_precision.digits(110):
        assert wrong_draws(table, cdf, past_the_end(table, cdf)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self._thresholds[index] == searched", "index < 0"),
        (" | (index >= self._certain)", ""),
        ("index >= self._certain", "index > self._certain"),
    ],
    ids=["ties as they fall", "ends as they fall", "one value too many"],
)
def test_a_mutant_of_fill_is_detected(old: str, new: str) -> None:
    (whole, cdf, ks), (cut, _) = case("gaussian 400"), opened("gaussian 400")
    mutant = mutated(InversionTable.fill, old, new)
    with mpmath_precision.digits(110):
        assert wrong_draws(whole, cdf, next_to_thresholds(cdf, ks), mutant) or wrong_draws(
            cut, cdf, past_the_end(cut, cdf), mutant
        )


@by_day(6)
@pytest.mark.parametrize("name", TIES)
@pytest.mark.parametrize("guess", [0, -3, 7, 10**6, -(10**6)])
def test_inversion_is_exact_from_any_guess(name: str, guess: int) -> None:
    table, cdf, ks = case(name)
    with mpmath_precision.digits(110):
        for v in (v for k in ks for depth in (64, 130, 250) for v in hair(cdf(k), depth)):
            drawn = invert(Digits.after(v, 0), table._cdf, guess)
            assert cdf(drawn - 1) <= real(v) < cdf(drawn)


def test_invalid_tables_are_refused() -> None:
    word, half = arb(2) ** -64, arb(1) / 2

    def cdf(k: int) -> arb:
        return arb(k - 7) / 2

    for thresholds in ([], [5, 4], [1 << 63, 3, (1 << 64) - 1]):
        line = refusal(partial(InversionTable, 0, thresholds, cdf))
        assert names(line, "thresholds")
    for below in (word, arb(0, word), arb(half, half)):
        line = refusal(partial(table_of_masses, 7, below, [arb(0), half], cdf))
        assert names(line, "first", 7)
    for masses in ([half], []):
        assert names(refusal(partial(table_of_masses, 7, word / 2, masses, cdf)), "first", 7)
    assert names(refusal(lambda: table_of_masses(0, arb(0), [], cdf)), "thresholds")
    # Valid tables are accepted.
    assert len(InversionTable(0, [5, 5, 6], cdf)) == 3
    assert len(table_of_masses(7, word / 2, [arb(0), half], cdf)) == 2
