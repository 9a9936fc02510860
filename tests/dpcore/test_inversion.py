r"""The batch samplers decide every word as an exact rational comparison would.

Thresholds are derived a second time by mpmath; words at, next to and beyond thresholds are forced
with continuations a hair on either side, and what comes out is the k with F(k-1) <= V < F(k).
Mutants: a threshold moved by two, thresholds from float64, a tie decided without looking.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpcore import DiscreteGaussian, DiscreteLaplace, PrecisionExhausted
from dpcore.discrete_laplace import _Digits
from dpcore.enclosure import ball
from dpcore.inversion import BLOCK, InversionTable, Uniform, certified_threshold, in_blocks
from dpcore.noise import batch_of
from dpcore.rng import SeededRng
from tests.dpcore import second_path
from tests.dpcore.mutants import mutated
from tests.dpcore.scripted import Digits, leading

WORDS = 1 << 64
LAST = WORDS - 1
Cdf = Callable[[int], Any]


# -- the tables, and what they tabulate --------------------------------------------------------


def laplace_digits(scale: Fraction) -> _Digits:
    sampler = batch_of(DiscreteLaplace(scale=scale))
    assert isinstance(sampler, _Digits)
    return sampler


def top_cdf(scale: Fraction, unit: int) -> Cdf:
    r"""P(H <= k) for X = unit H + L, X discrete Laplace: P(X < unit (k + 1))."""
    return lambda k: 1 - second_path.laplace_sf(scale, unit * (k + 1) - 1)


def digit_cdf(scale: Fraction, start: int, size: int) -> Cdf:
    r"""P(D <= k) for the digit of weight 2^start: a plain sum of e^(-d 2^start/s)."""
    with second_path.digits(80):
        ratio = mp.exp(-real(Fraction(2**start) / scale))
        sums = [ratio * 0]
        for d in range(size):
            sums.append(sums[-1] + ratio**d)
    return lambda k: sums[min(max(k + 1, 0), size)] / sums[size]


def gaussian_cdf_table(variance: Fraction, reach: int) -> Cdf:
    r"""F(k) for |k| <= reach, by one running sum from far outside."""
    with second_path.digits(80):
        far = reach + 10 + int(mp.sqrt(400 * real(variance)))
        total, sums, step = mp.mpf(0), {}, -1 / (2 * real(variance))
        for k in range(-far, reach + 1):
            total += mp.exp(step * (k * k))
            sums[k] = total
        whole = second_path.gaussian_total(variance)
    return lambda k: sums[k] / whole


real = second_path.real

LAPLACE_SCALES = [Fraction(s) for s in ("1/1000000", "1/3", "1", "10", "64", "129/2")]
LARGE_SCALES = [Fraction(s) for s in ("1000000", "3000000.7", "1099511627776", "36028797018963967")]
VARIANCES = [Fraction(v) for v in ("1/1000000", "1/4", "1", "31/2", "16", "400", "1000000")]


def table_of(variance: Fraction) -> InversionTable:
    table = batch_of(DiscreteGaussian(sigma_squared=variance))
    assert isinstance(table, InversionTable)
    return table


def misplaced(thresholds: list[int], first: int, cdf: Cdf) -> list[int]:
    r"""The k whose threshold c does not separate at F(k), that is c <= 2^64 F(k) <= c + 1."""
    with second_path.digits(70):
        slack = mp.mpf(10) ** -40
        wrong = []
        for k, c in enumerate(thresholds, first):
            scaled = cdf(k) * WORDS
            if not c - slack <= scaled <= c + 1 + slack:
                wrong.append(k)
    return wrong


def check_table(table: InversionTable, cdf: Cdf) -> None:
    thresholds = table.thresholds.tolist()
    assert thresholds == sorted(thresholds)
    assert thresholds[-1] == LAST, "a word above every threshold would be decided by nobody"
    assert misplaced(thresholds, table.first, cdf) == []


@pytest.mark.parametrize("scale", LAPLACE_SCALES, ids=str)
def test_every_laplace_threshold(scale: Fraction) -> None:
    sampler = laplace_digits(scale)
    unit = 1 << sampler._low_bits
    check_table(sampler._top, top_cdf(scale, unit))
    assert sampler._top.thresholds[0] == 0 or scale > 64


@pytest.mark.parametrize("scale", LARGE_SCALES, ids=str)
def test_every_threshold_of_every_digit(scale: Fraction) -> None:
    sampler = laplace_digits(scale)
    check_table(sampler._top, top_cdf(scale, 1 << sampler._low_bits))
    covered = 0
    for start, table in sampler._low:
        assert start == covered
        assert table.first == 0
        check_table(table, digit_cdf(scale, start, len(table)))
        covered += len(table).bit_length() - 1
    assert covered == sampler._low_bits > 0


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_every_gaussian_threshold(variance: Fraction) -> None:
    table = table_of(variance)
    check_table(table, gaussian_cdf_table(variance, len(table)))
    assert table.thresholds[0] == 0


@pytest.mark.parametrize("moved", [-2, 2])
@pytest.mark.parametrize("place", [1, 40, -2])
def test_a_moved_threshold_is_caught(place: int, moved: int) -> None:
    table = table_of(Fraction(400))
    thresholds = table.thresholds.tolist()
    thresholds[place] += moved
    wrong = misplaced(thresholds, table.first, gaussian_cdf_table(Fraction(400), len(table)))
    assert wrong == [table.first + place % len(table)]


def test_thresholds_from_float64_are_caught() -> None:
    noise = DiscreteLaplace(scale=10)
    first = -200
    thresholds = [min(int(noise.cdf(k) * 2.0**64), LAST) for k in range(first, 201)]
    assert len(misplaced(thresholds, first, top_cdf(Fraction(10), 1))) > 100


@given(
    st.integers(0, 2**130).map(lambda n: Fraction(n, 2**130)),
    st.integers(0, 2**100),
    st.integers(0, 2**100),
)
def test_a_certified_threshold_separates(f: Fraction, below: int, above: int) -> None:
    # A wide interval is narrowed, a tight one is taken; at integers either neighbour is right.
    scaled = int(f * 2**192)
    low, high = max(scaled - below, 0), min(scaled + above, 1 << 192)
    c = certified_threshold(low, high, 192, lambda: ball(f))
    assert 0 <= c <= LAST
    assert c <= f * WORDS <= c + 1


def test_a_threshold_nobody_can_place_is_refused() -> None:
    blind = arb(0.5, 0.5)
    with pytest.raises(PrecisionExhausted):
        certified_threshold(0, 1 << 192, 192, lambda: blind)


# -- one uniform real against one value ----------------------------------------------------------


@given(
    st.fractions(min_value=0, max_value=1, max_denominator=10**12),
    st.integers(-3, 3),
    st.sampled_from([64, 65, 127, 128, 129, 200, 256, 700]),
)
def test_uniform_decides_as_rationals_do(x: Fraction, off: int, depth: int) -> None:
    v = Fraction(int(x * 2**depth) + off, 2**depth)
    if not 0 <= v < 1 or v == x:
        return
    rng = Digits([])
    rng.start(v)
    assert Uniform(rng, leading(v)).below(lambda: ball(x)) == (v < x)


def test_uniform_draws_no_bit_it_does_not_need() -> None:
    rng = Digits([])
    assert Uniform(rng, 5).below(lambda: ball(Fraction(7, WORDS)))
    assert not Uniform(rng, 5).below(lambda: ball(Fraction(5, WORDS)))
    assert Uniform(rng, 5).below(lambda: ball(Fraction(6, WORDS)))
    assert rng.asked == 0


def test_uniform_remembers_the_bits_it_has_drawn() -> None:
    v = Fraction(1, 3)
    rng = Digits([])
    rng.start(v)
    uniform = Uniform(rng, leading(v))
    for depth in (70, 100, 150, 300, 100, 70):
        near = Fraction(int(v * 2**depth), 2**depth)
        assert not uniform.below(lambda near=near: ball(near))  # type: ignore[misc]
        assert uniform.below(lambda near=near, d=depth: ball(near + Fraction(1, 2**d)))  # type: ignore[misc]


def test_uniform_refuses_rather_than_guess() -> None:
    class Zeros(Digits):
        __slots__ = ()

        def bits(self, count: int) -> int:
            return 0

    with pytest.raises(PrecisionExhausted):
        Uniform(Zeros([]), 0).below(lambda: arb(0, 1))


# -- draws at, next to and beyond the thresholds -------------------------------------------------


def hair(value: Any, depth: int) -> list[Fraction]:
    r"""Three numbers of 2^-depth below, at, and above a real number in (0, 1)."""
    cell = int(mp.floor(mp.ldexp(value, depth)))
    return [Fraction(n, 1 << depth) for n in (cell - 1, cell, cell + 1) if 0 < n < 1 << depth]


def wrong_draws(table: Any, cdf: Cdf, numbers: list[Fraction], draw: Any = None) -> list[Fraction]:
    r"""The V for which the table's draw is not the k with F(k-1) <= V < F(k)."""
    wrong = []
    for v in numbers:
        rng = Digits([v])
        target = np.empty(1, dtype=np.int64)
        (draw or InversionTable.fill)(table, rng, target)
        k, exact = int(target[0]), real(v)
        if not cdf(k - 1) <= exact < cdf(k):
            wrong.append(v)
    return wrong


def next_to_thresholds(cdf: Cdf, ks: list[int]) -> list[Fraction]:
    return [v for k in ks for depth in (64, 66, 128, 192, 250) for v in hair(cdf(k), depth)]


def case(name: str) -> tuple[InversionTable, Cdf, list[int]]:
    law, _, text = name.partition(" ")
    value = Fraction(text)
    if law == "laplace":
        ks = [0] if value < Fraction(1, 100) else [-30, -7, -1, 0, 1, 2, 9, 40]
        return laplace_digits(value)._top, top_cdf(value, 1), ks
    table = table_of(value)
    ks = [-1, 0, 1] if value <= 1 else [-50, -3, -1, 0, 1, 2, 60]
    return table, lambda k: 1 - second_path.gaussian_sf(value, k), ks


TIES = ["laplace 1/3", "laplace 10", "gaussian 1/4", "gaussian 400"]


@pytest.mark.parametrize("name", TIES)
def test_a_tie_is_decided_exactly(name: str) -> None:
    table, cdf, ks = case(name)
    with second_path.digits(110):
        assert wrong_draws(table, cdf, next_to_thresholds(cdf, ks)) == []


@pytest.mark.parametrize("name", TIES)
@pytest.mark.parametrize("depth", [64, 70, 130, 260])
def test_the_first_and_the_last_cell_have_no_end(name: str, depth: int) -> None:
    # Words 0 and 2^64 - 1 are where the tails begin that a table cannot hold.
    table, cdf, _ = case(name)
    with second_path.digits(110):
        tiny = Fraction(1, 1 << depth)
        numbers = [tiny, 1 - tiny, tiny * Fraction(2, 3), 1 - tiny * Fraction(2, 3)]
        assert wrong_draws(table, cdf, numbers) == []


def test_a_tail_that_starts_at_two_to_the_minus_thirty_thousand_is_drawn() -> None:
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
            "index = np.minimum(np.searchsorted(self._thresholds, searched, side=\"right\"), "
            "len(self) - 1)",
        ),
        ("refined with another word", "int(searched[tie])", "int(searched[tie]) ^ 1"),
    ],
)  # fmt: skip
def test_a_mutant_of_fill_is_caught(name: str, old: str, new: str) -> None:
    table, cdf, ks = case("gaussian 400")
    mutant = mutated(InversionTable.fill, old, new)
    with second_path.digits(110):
        assert wrong_draws(table, cdf, next_to_thresholds(cdf, ks), mutant)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("off by one", "return high", "return high - 1"),
        ("new bits for every comparison", "return uniform.below(", "return Uniform(rng, word).below("),
        ("the table's own cell", "while not reached(high)", "while False"),
    ],
)  # fmt: skip
def test_a_mutant_of_refine_is_caught(name: str, old: str, new: str) -> None:
    table, cdf, ks = case("laplace 10")
    refine = mutated(InversionTable.refine, old, new)

    class Mutant(InversionTable):
        __slots__ = ()

    Mutant.refine = refine  # type: ignore[method-assign]
    broken = Mutant(table.first, table.thresholds.tolist(), table._cdf)
    with second_path.digits(110):
        assert wrong_draws(broken, cdf, next_to_thresholds(cdf, ks))


@pytest.mark.parametrize("name", TIES)
def test_a_guide_changes_nothing(name: str) -> None:
    # Every cell border of the guide, and random words: the same as a search in the table.
    table, _, _ = case(name)
    shift = int(table._shift)
    borders = [(cell << shift) + off for cell in range(0, 1 << (64 - shift), 7) for off in (0, 1)]
    words = [word for word in borders if word not in set(table.thresholds.tolist())]
    target = np.empty(len(words), dtype=np.int64)
    table.fill(Digits([Fraction(word, WORDS) for word in words]), target)
    plain = np.searchsorted(table.thresholds, np.array(words, dtype=np.uint64)) + table.first
    assert target.tolist() == plain.tolist()


def test_blocks_cover_every_count() -> None:
    for count in (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7):
        seen: list[int] = []

        def fill(piece: Any, seen: list[int] = seen) -> None:
            piece[:] = np.arange(len(piece)) + sum(seen)
            seen.append(len(piece))

        assert in_blocks(count, fill).tolist() == list(range(count))
        assert all(size <= BLOCK for size in seen)


# -- digits ------------------------------------------------------------------------------------


def digits_of(x: int, sampler: _Digits) -> tuple[int, list[int]]:
    r"""The top and the low digits that must be drawn for x: those of x, or of ~x below 0."""
    magnitude = x if x >= 0 else ~x
    low = [(magnitude >> start) & (len(table) - 1) for start, table in sampler._low]
    high = magnitude >> sampler._low_bits
    return (high if x >= 0 else ~high), low


def inside(table: InversionTable, k: int) -> Fraction:
    r"""A number in the middle of the cell of k."""
    above = int(table.thresholds[k - table.first])
    below = int(table.thresholds[k - table.first - 1]) if k > table.first else 0
    return Fraction(above + below, 2 * WORDS)


INTEGERS = [0, 1, -1, 2, -2, 1023, 1024, -1024, -1025, 123_456_789, -987_654_321, 5 * 10**9]


@pytest.mark.parametrize("scale", LARGE_SCALES, ids=str)
def test_digits_put_together_are_the_law(scale: Fraction) -> None:
    # P(X = x) must be the product of the masses of the digits that give x, and they must give x.
    sampler = laplace_digits(scale)
    unit = 1 << sampler._low_bits
    for x in (*INTEGERS, int(3 * scale), -int(5 * scale) - 1):
        if abs(x) > 40 * scale:
            continue
        top, low = digits_of(x, sampler)
        numbers = [inside(sampler._top, top)]
        with second_path.digits(60):
            head = top_cdf(scale, unit)
            mass = head(top) - head(top - 1)
            for (start, table), digit in zip(sampler._low, low, strict=True):
                numbers.append(inside(table, digit))
                part = digit_cdf(scale, start, len(table))
                mass *= part(digit) - part(digit - 1)
            assert abs(mass / second_path.laplace_pmf(scale, x) - 1) < mp.mpf(10) ** -40
        assert sampler.draw(Digits(numbers), 1).tolist() == [x]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("low digits not complemented below 0", "(target >> 63)", "(target & 0)"),
        ("digits overlap", "digit <<= start", "digit <<= start // 2"),
    ],
)
def test_a_mutant_of_the_digits_is_caught(name: str, old: str, new: str) -> None:
    sampler = laplace_digits(Fraction(2**40))
    fill = mutated(_Digits._fill, old, new)
    target = np.empty(1, dtype=np.int64)
    missed = 0
    for x in (-1025, -(10**9) - 7, 10**9 + 7):
        top, low = digits_of(x, sampler)
        tables = [table for _, table in sampler._low]
        numbers = [inside(sampler._top, top), *map(inside, tables, low)]
        fill(sampler, Digits(numbers), target)
        missed += target.tolist() != [x]
    assert missed


def test_two_draws_share_no_digit() -> None:
    # Draws of one block are independent: no digit of one repeats where the next one has it.
    drawn = batch_of(DiscreteLaplace(scale=2**40)).draw(SeededRng(3), 4096)
    assert len(np.unique(drawn)) > 4090
