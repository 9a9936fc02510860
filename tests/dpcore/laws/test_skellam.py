r"""The Skellam law: its reference unrolled, every threshold by mpmath, its Bessel identities.

What every law promises is asked by the contract suite; here stands what belongs to this law alone.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from dpcore import Enclosure, SeededRng
from dpcore.laws import skellam as module
from dpcore.laws.skellam import Skellam
from dpcore.noise import batch_of
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import precision
from dpcore.sampling.inversion import BLOCK, InversionTable
from tests.effort import by_day
from tests.support.dpcore import second_path
from tests.support.dpcore.mutants import mutated, rewired
from tests.support.dpcore.scripted import NeverAsked
from tests.support.dpcore.tables import Cdf, check_table, misplaced
from tests.support.laws import reach
from tests.support.laws import skellam as second

# -- the table -----------------------------------------------------------------------------------


def table_of(noise: Skellam) -> InversionTable:
    batch = batch_of(noise)
    assert isinstance(batch, InversionTable)
    return batch


@cache
def cdf_table(noise: Skellam, last: int) -> Cdf:
    r"""F(k) for |k| <= last, by one downward recurrence from far outside."""
    with second_path.digits(80):
        v = second_path.real(Fraction(noise.variance))
        far = last + 40 + int(mp.sqrt(400 * v))
        above, here, masses = mp.besseli(far + 1, v), mp.besseli(far, v), []
        for k in range(far, -1, -1):
            masses.append(here)
            above, here = here, above + 2 * k / v * here
        # Terms are in the order of I_far, ..., I_0, and they add up to (e^v - I_0)/2 + I_0.
        sums, total = [], mpf(0)
        for mass in masses[:-1]:
            total += mass
            sums.append(total)
        sums.reverse()  # sums[k - 1] = sum of I_j for j >= k
        whole = 2 * total + masses[-1]
    return lambda k: sums[-k - 1] / whole if k < 0 else 1 - sums[k] / whole


TABLED = ["1/1000000000", "1/50", "10/3", "100", "20000"]


@pytest.mark.parametrize("variance", TABLED)
def test_every_threshold(variance: str) -> None:
    noise = Skellam(variance=variance)
    table = table_of(noise)
    check_table(table, cdf_table(noise, max(-table.first, len(table) + table.first)))
    assert table.thresholds[0] == 0


@by_day(1)
@pytest.mark.parametrize("variance", ["1000003", "4194304"])
def test_thresholds_of_the_largest_tables(variance: str) -> None:
    noise = Skellam(variance=variance)
    table = table_of(noise)
    thresholds = table.thresholds.tolist()
    for place in range(3, len(table), len(table) // 7):
        k = table.first + place
        assert misplaced([thresholds[place]], k, lambda k: second.cdf(noise, k)) == []
        assert misplaced([thresholds[place] + 2], k, lambda k: second.cdf(noise, k)) == [k]


TABLE_MUTANTS = {
    "another recurrence": ("_ratios", "slope = n * top", "slope = (n + 1) * top"),
    "half the slope": ("_ratios", "(2 << FIXED_BITS)", "(1 << FIXED_BITS)"),
    "ratios from outside in": (
        *("_table", "reversed([*_ratios(noise, reach)])", "_ratios(noise, reach)"),
    ),
    "a wrong start": ("_table", "noise.pmf_ball(0)", "noise.pmf_ball(1)"),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE_MUTANTS)
def test_a_mutant_of_the_table_is_caught(name: str) -> None:
    where, old, new = TABLE_MUTANTS[name]
    broken = mutated(getattr(module, where), old, new)
    build = broken if where == "_table" else rewired(module._table, _ratios=broken)
    noise = Skellam(variance=100)
    table = build(noise)
    last = max(-table.first, len(table) + table.first)
    assert misplaced(table.thresholds.tolist(), table.first, cdf_table(noise, last))


# -- batches beyond the table --------------------------------------------------------------------


class Counting:
    r"""A batch that deals 0, 1, 2, ... on and on."""

    def __init__(self) -> None:
        self.dealt = 0

    def draw(self, rng: Any, count: int) -> Integers:
        start, self.dealt = self.dealt, self.dealt + count
        return np.arange(start, self.dealt, dtype=np.int64)


def pairs_are_right(draw: Any, count: int) -> bool:
    r"""Whether every value is a difference of two draws, each used once."""
    source = Counting()
    found = draw(module._Difference(source), NeverAsked(), count).tolist()
    expected: list[int] = []
    left = count
    while left:
        size = min(left, BLOCK)
        expected += [-size] * size
        left -= size
    return found == expected and source.dealt == 2 * count


@pytest.mark.parametrize("count", [0, 1, 7, BLOCK, BLOCK + 3])
def test_a_wide_draw_is_the_difference_of_two(count: int) -> None:
    assert pairs_are_right(module._Difference.draw, count)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("one half twice", "both[len(piece) :]", "both[: len(piece)]"),
        ("a sum", "np.subtract", "np.add"),
        ("half the draws", "2 * len(piece)", "len(piece) + 1"),
    ],
)
def test_a_mutant_of_the_difference_is_caught(name: str, old: str, new: str) -> None:
    mutant = mutated(module._Difference.draw, old, new)
    try:
        assert not pairs_are_right(mutant, 7)
    except ValueError:  # shapes that do not fit are a way of being caught
        assert name == "half the draws"


# -- Bessel functions ----------------------------------------------------------------------------


def breaks_the_recurrence(noise: Skellam, variance: Fraction, k: int) -> bool:
    r"""v (P(k-1) - P(k+1)) = 2 k P(k), from I_(k-1) - I_(k+1) = (2k/v) I_k (DLMF 10.29.1)."""
    before, here, after = (noise.enclose_pmf(j, 200) for j in (k - 1, k, k + 1))
    left = Enclosure(
        variance * (before.lower - after.upper), variance * (before.upper - after.lower)
    )
    return not left.overlaps(Enclosure(2 * k * here.lower, 2 * k * here.upper))


@pytest.mark.parametrize("variance", ["1/50", "10/3", "65", "401", "1000003", "1e24"])
def test_the_recurrence_of_bessel_functions(variance: str) -> None:
    noise, exact = Skellam(variance=variance), Fraction(variance)
    for k in {1, 2, reach(noise), 4 * reach(noise), 9 * reach(noise)}:
        assert not breaks_the_recurrence(noise, exact, k)
        assert breaks_the_recurrence(noise, exact * Fraction(1000001, 1000000), k)


@pytest.mark.parametrize("variance", ["65", "401", "40000"])
def test_bessel_series_and_contour_sums_agree(variance: str) -> None:
    noise = Skellam(variance=variance)
    series = mutated(Skellam.pmf_ball, "self.variance > _SERIES_VARIANCE and", "False and")
    contour = mutated(
        Skellam.pmf_ball, "self.variance > _SERIES_VARIANCE and k * k > 16 * self.variance", "True"
    )
    with precision(200):
        for k in (1, 4 * reach(noise), 5 * reach(noise), 12 * reach(noise)):
            one, other = series(noise, k), contour(noise, k)
            assert one.overlaps(other)
            assert min(one.rel_accuracy_bits(), other.rel_accuracy_bits()) > 150


@given(
    st.fractions(min_value=-29, max_value=14, max_denominator=100),
    st.floats(0, 25),
    st.sampled_from(["pmf", "log_pmf", "cdf", "sf"]),
)
def test_floats_at_any_variance(octave: Fraction, x: float, function: str) -> None:
    noise = Skellam(variance=Fraction(2.0 ** float(octave)))
    k = round(x * reach(noise))
    value = getattr(noise, function)(k)
    with second_path.digits(40):
        exact = getattr(second, function)(noise, k)
        assert abs(value - exact) <= abs(exact) * mpf(10) ** -13 or abs(exact) < mpf("1e-300")


@pytest.mark.parametrize("variance", ["1e-60", "1e-300"])
def test_a_variance_next_to_nothing_is_served(variance: str) -> None:
    # r(0) would divide 0 by 0, and t/v is beyond every float.
    noise = Skellam(variance=variance)
    assert noise.sample(5, rng=SeededRng(1)).tolist() == [0] * 5
    assert noise.enclose_tail(0).upper <= Fraction(variance) * (1 + Fraction(1, 10**30))
    assert noise.enclose_tail((1 << 62) - 1).upper < Fraction(1, 1 << 4000)
