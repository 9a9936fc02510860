r"""Tests of inversion: every word is decided as an exact comparison would; tables from masses."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpcore import PrecisionExhausted
from dpcore.numbers.enclosure import ball, precision
from dpcore.numbers.integer_search import least
from dpcore.sampling.inversion import (
    TABLE_BITS,
    InversionTable,
    Uniform,
    invert,
    table_of_masses,
)
from dpcore.sampling.rng import SeededRng
from tests.day_and_nightly import by_day
from tests.support.dpcore import mpmath_precision
from tests.support.dpcore.mutants import mutated, rewired
from tests.support.dpcore.refusals import names, refusal
from tests.support.dpcore.scripted_rng import Digits, leading
from tests.support.dpcore.tables import (
    TIES,
    WORDS,
    Cdf,
    case,
    hair,
    laplace_digits,
    misplaced,
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
    ("name", "old", "new"),
    [
        ("words above are taken as they fall", " | (index >= self._certain)", ""),
        ("one value too many is certain", "index >= self._certain", "index > self._certain"),
    ],
)
def test_a_mutant_of_the_truncated_end_is_detected(name: str, old: str, new: str) -> None:
    table, cdf = opened("gaussian 400")
    mutant = mutated(InversionTable.fill, old, new)
    with mpmath_precision.digits(110):
        assert wrong_draws(table, cdf, past_the_end(table, cdf), mutant)


def test_a_guide_that_decides_above_the_table_is_detected() -> None:
    # A guide cell without a threshold, above all thresholds, must not decide.
    broken = mutated(InversionTable.__init__, " & (below < self._certain)", "")
    table, cdf = opened("gaussian 400", left=4)

    class Mutant(InversionTable):
        __slots__ = ()

    Mutant.__init__ = broken  # type: ignore[method-assign]  # a mutant
    wrong = Mutant(table.first, table.thresholds.tolist(), table._cdf)
    with mpmath_precision.digits(110):
        assert wrong_draws(wrong, cdf, past_the_end(wrong, cdf))


def test_a_truncated_table_draws_the_same_batch_as_the_complete_one() -> None:
    # The same draws result; only words above the open end request more bits.
    whole, _, _ = case("gaussian 400")
    table, _ = opened("gaussian 400", left=6)
    source = SeededRng(5)
    numbers = [Fraction(2 * int(word) + 1, 2 * WORDS) for word in source.words(3000)]
    target = np.empty(len(numbers), dtype=np.int64)
    asked = []

    def refine(table: InversionTable, rng: Any, word: int) -> int:
        asked.append(word)
        rng.start(Fraction(2 * word + 1, 2 * WORDS))
        return InversionTable.refine(table, rng, word)

    class Counted(InversionTable):
        __slots__ = ()

    Counted.refine = refine  # type: ignore[assignment]  # counts what is refined
    counted = Counted(table.first, table.thresholds.tolist(), table._cdf)
    counted.fill(Digits(numbers), target)
    plain = np.searchsorted(
        whole.thresholds, np.array([leading(v) for v in numbers], dtype=np.uint64)
    )
    assert target.tolist() == (plain + whole.first).tolist()
    edge = int(table.thresholds[-1])
    assert sorted(asked) == sorted(w for w in map(leading, numbers) if w > edge)
    assert 10 < len(asked) < 120


def wrong_inversions(
    name: str, numbers: list[Fraction], guesses: list[int], code: Any = invert
) -> list[Fraction]:
    table, cdf, _ = case(name)
    wrong = []
    for v in numbers:
        for guess in guesses:
            k = code(Digits.after(v, 0), table._cdf, guess)
            if not cdf(k - 1) <= real(v) < cdf(k):
                wrong.append(v)
    return wrong


@by_day(6)
@pytest.mark.parametrize("name", TIES)
@pytest.mark.parametrize("guess", [0, -3, 7, 10**6, -(10**6)])
def test_inversion_is_exact_from_any_guess(name: str, guess: int) -> None:
    _, cdf, ks = case(name)
    numbers = [v for k in ks for depth in (64, 130, 250) for v in hair(cdf(k), depth)]
    with mpmath_precision.digits(110):
        assert wrong_inversions(name, numbers, [guess]) == []


INVERT_MUTANTS = {
    "half of the bits": ("rng.bits(64)", "rng.bits(32)"),
    "a constant": ("rng.bits(64)", "1 << 63"),
    "the last bit set": ("rng.bits(64)", "rng.bits(64) | 1"),
}
SEARCH_MUTANTS = {
    "never looks above": ("while not holds(high)", "while False"),
    "never looks below": ("while low == near - 1", "while False"),
    "bisects to the wrong side": ("if holds(center)", "if not holds(center)"),
    "off by one": ("return high", "return high - 1"),
}


@pytest.mark.parametrize("name", INVERT_MUTANTS)
def test_a_mutant_of_invert_is_detected(name: str) -> None:
    mutant = mutated(invert, *INVERT_MUTANTS[name])
    _, cdf, ks = case("gaussian 400")
    with mpmath_precision.digits(110):
        numbers = [v for k in ks for depth in (64, 130) for v in hair(cdf(k), depth)]
        assert wrong_inversions("gaussian 400", numbers, [0], mutant)


@pytest.mark.parametrize("name", SEARCH_MUTANTS)
def test_a_mutant_of_the_search_is_detected(name: str) -> None:
    mutant = rewired(invert, least=mutated(least, *SEARCH_MUTANTS[name]))
    _, cdf, ks = case("gaussian 400")
    with mpmath_precision.digits(110):
        numbers = [v for k in ks for v in hair(cdf(k), 130)]
        assert wrong_inversions("gaussian 400", numbers, [-90, 90], mutant)


def poisson_masses(mean: int, count: int) -> tuple[list[Any], list[arb]]:
    r"""Return F(k) of a Poisson law by mpmath, and balls of its masses."""
    with mpmath_precision.digits(90):
        masses = [mp.exp(-mean) * mp.mpf(mean) ** k / mp.factorial(k) for k in range(count)]
        sums = [mp.fsum(masses[: k + 1]) for k in range(count)]
    with precision(TABLE_BITS):
        balls = [(-arb(mean)).exp() * arb(mean) ** k / arb(k + 1).gamma() for k in range(count)]
    return sums, balls


def poisson_cdf(mean: int) -> Any:
    def cdf(k: int) -> arb:
        total, term = arb(0), (-arb(mean)).exp()
        for j in range(k + 1):
            total += term
            term = term * mean / (j + 1)
        return total

    return cdf


@pytest.mark.parametrize(("mean", "count"), [(1, 12), (3, 40), (3, 4), (40, 120)])
def test_thresholds_from_masses_agree_with_mpmath(mean: int, count: int) -> None:
    sums, masses = poisson_masses(mean, count)
    table = table_of_masses(0, arb(0), masses, poisson_cdf(mean))
    assert len(table) == count
    assert table.first == 0
    assert misplaced(table.thresholds.tolist(), 0, lambda k: sums[k]) == []


def inside(mean: int, count: int) -> tuple[int, arb, list[Any], list[arb]]:
    r"""Return the place where F first exceeds about 2^-64, and the mass below it."""
    sums, masses = poisson_masses(mean, count)
    start = next(k for k, f in enumerate(sums) if f * WORDS > 1) - 1
    with precision(TABLE_BITS):
        return start, sum(masses[1:start], masses[0]), sums, masses[start:]


@pytest.mark.parametrize("mean", [200, 300])
def test_a_table_of_masses_may_start_inside_the_law(mean: int) -> None:
    start, below, sums, masses = inside(mean, 2 * mean)
    table = table_of_masses(start, below, masses, poisson_cdf(mean))
    assert table.thresholds[0] == 0
    assert misplaced(table.thresholds.tolist(), start, lambda k: sums[k]) == []


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("what lies below is forgotten", "initial=below", "initial=arb(0)"),
        ("a mass is skipped", "accumulate(masses", "accumulate([*masses][:9] + [*masses][10:]"),
        ("one value late", "(first, sums, cdf)", "(first - 1, [arb(0), *sums], cdf)"),
    ],
)  # fmt: skip
def test_a_mutant_of_the_table_of_masses_is_detected(name: str, old: str, new: str) -> None:
    start, below, sums, masses = inside(300, 600)
    mutant = mutated(table_of_masses, old, new)
    table = mutant(start, below, masses, poisson_cdf(300))
    assert misplaced(table.thresholds.tolist(), start, lambda k: sums[min(k, 599)])


def test_invalid_tables_are_refused() -> None:
    cdf, word, half = poisson_cdf(1), arb(2) ** -64, arb(1) / 2
    for thresholds in ([], [5, 4], [1 << 63, 3, (1 << 64) - 1]):
        line = refusal(partial(InversionTable, 0, thresholds, cdf))
        assert names(line, "thresholds")
    for below in (word, arb(0, word), arb(half, half)):
        line = refusal(partial(table_of_masses, 7, below, [arb(0), half], cdf))
        assert names(line, "first", 7)
    assert names(refusal(lambda: table_of_masses(7, word / 2, [half], cdf)), "first", 7)
    assert names(refusal(lambda: table_of_masses(7, word / 2, [], cdf)), "first", 7)
    assert names(refusal(lambda: table_of_masses(0, arb(0), [], cdf)), "thresholds")
    # Valid tables are accepted.
    assert len(InversionTable(0, [5, 5, 6], cdf)) == 3
    assert len(table_of_masses(7, word / 2, [arb(0), half], lambda k: arb(k - 7) / 2)) == 2
