"""Tests of sparse vector: output masses are enclosed, and two variants have infinite epsilon."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise, product

import pytest
from flint import arb
from mpmath import mpf

from audit.broken_mechanisms.selection import row_mass
from dpcore.numbers.enclosure import Enclosure, precision
from tests.support.audit.catalogue_laws import epsilon_between
from tests.support.audit.laws import rows, value_reused
from tests.support.dpcore.mutants import mutated

ANSWERS = [1, -2, 0]
SCALES = (4, Fraction(4, 3))
ROWS = tuple(product((0, 1), repeat=len(ANSWERS)))


def total(of: Callable[..., arb] = row_mass) -> Enclosure:
    with precision(128):
        return Enclosure.of(sum((of(row, ANSWERS, SCALES) for row in ROWS), arb(0)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("threshold.tail_ball(_REACH) * arb(0.5, 0.5)", "arb(0)"),
        ("range(-_REACH, _REACH + 1)", "range(-_REACH, _REACH // 16)"),
        ("mass *= 1 - under", "mass *= under"),
        ("noise.cdf_ball(k)", "noise.cdf_ball(k + 1)"),
    ],
    ids=["no tail", "half a sum", "above is below", "one off"],
)
def test_a_wrong_mass_of_an_output_row_is_detected(old: str, new: str) -> None:
    wrong = mutated(row_mass, old, new)
    with precision(128):
        missed = [
            row
            for row, mass in rows(4, mpf(4) / 3, None)(ANSWERS).items()
            if not Enclosure.of(wrong(row, ANSWERS, SCALES)).overlaps(law_of(mass))
        ]
    assert missed or Fraction(1) not in total(wrong)


def law_of(mass: object) -> Enclosure:
    # Forty decimals, with the law truncated at 60 scales: accurate to 20 decimals.
    value = Fraction(str(mass))
    return Enclosure(lower=value - Fraction(1, 10**20), upper=value + Fraction(1, 10**20))


def test_the_masses_of_all_rows_are_enclosed_and_sum_to_one() -> None:
    assert Fraction(1) in total()
    assert total().width < Fraction(1, 2**80)
    law = rows(4, mpf(4) / 3, None)(ANSWERS)
    assert set(law) == set(ROWS)
    with precision(128):
        for row, mass in law.items():
            assert Enclosure.of(row_mass(row, ANSWERS, SCALES)).overlaps(law_of(mass))


@pytest.mark.parametrize("below", [1, 2, 4])
def test_releasing_the_compared_value_has_an_unbounded_cost(below: int) -> None:
    first, second = [-1] * below + [0], [0] * below + [-1]
    found = epsilon_between(value_reused(first), value_reused(second))
    assert abs(found - mpf(below + 1) / 2) < mpf(2) ** -60


def test_a_threshold_that_never_stops_has_infinite_epsilon() -> None:
    law = rows(2, 2, None)
    found = [epsilon_between(law([-1] * m + [0] * m), law([0] * m + [-1] * m)) for m in (1, 2, 3)]
    assert all(longer > shorter + mpf(3) / 4 for shorter, longer in pairwise(found))
