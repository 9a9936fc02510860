r"""The Skellam law: differences of two halves, and its Bessel identities.

What every law promises is asked by the contract suite; here stands what belongs to this law alone.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpcore import Enclosure
from dpcore.laws.skellam import Skellam
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import precision
from dpcore.sampling.inversion import Difference
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.scripted import NeverAsked
from tests.support.laws import reach


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
    found = draw(Difference(source), NeverAsked(), count).tolist()
    return found == [-count] * count and source.dealt == 2 * count


def test_a_wide_draw_is_the_difference_of_two() -> None:
    assert all(pairs_are_right(Difference.draw, count) for count in (0, 1, 7))
    assert not pairs_are_right(mutated(Difference.draw, "drawn -=", "drawn +="), 7)


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
