r"""Tests of totals with few large losses, against quadrature; mutants must fail."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest

from accounting.pld.finite_pld import Listing
from accounting.pld.noise_density import NormalDensity
from accounting.pld.real_cells import RealPair
from accounting.pld_composition.cell_refinement import TabledLoss
from accounting.pld_composition.few_large_losses import FewLargeLosses, Split
from tests.day_and_nightly import by_day
from tests.support.accounting.brute_force import two_samples
from tests.support.dpcore.mutants import mutated

RATE, NARROW = Fraction(3, 10000), Fraction(1, 10**6)


@cache
def exact(epsilon: str) -> Any:
    r"""The delta of two samples of Gaussian noise of deviation 2."""
    with mpmath.workdps(30):
        return two_samples("2", RATE, mpmath.mpf(epsilon), 1)


def wrong_bounds(epsilon: str, *, above: bool) -> bool:
    r"""Whether a bound on delta or epsilon is on the wrong side of the truth, or far from it."""
    part = TabledLoss.of(RealPair.sampled(NormalDensity(Fraction(4)), RATE), above=above)
    truth = Fraction(mpmath.nstr(exact(epsilon), 25))
    one = FewLargeLosses(part=part, rounds=2, near=(float(epsilon), float(truth)))
    found, back = one.delta(Fraction(epsilon), NARROW), one.epsilon(truth, NARROW)
    if found is None or back is None:
        return True
    for bounds, value in ((found, truth), (back, Fraction(epsilon))):
        excess = bounds.upper / value - 1 if above else 1 - bounds.lower / value
        if not -1e-9 <= excess <= 2e-6:
            return True
    return False


@by_day(1)
@pytest.mark.parametrize("epsilon", ["0.019", pytest.param("0.01", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("above", [True, False])
def test_two_samples_agree_with_quadrature(epsilon: str, above: bool) -> None:
    assert not wrong_bounds(epsilon, above=above)


MUTANTS = {
    "too few ways": (Split.terms, "math.comb(self.rounds, j)", "math.comb(self.rounds - 1, j)"),
    "all rounds small": (Split.parts, "self.rounds - large", "self.rounds"),
    "one more large loss": (Split.parts, "None), large)", "None), large + 1)"),
}


@by_day(1)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, old, new = MUTANTS[name]
    monkeypatch.setattr(Split, function.__name__, mutated(function, old, new))
    assert wrong_bounds("0.019", above=True) or wrong_bounds("0.019", above=False)


def test_the_rest_bounds_all_further_terms() -> None:
    listing = Listing(np.array([0.0, 1.0]), np.array([0.75, 0.25]), 0.0)
    split = Split(listing, 10, 0.5)
    for spare in (1e-1, 1e-3, 1e-5):
        found = split.terms(spare)
        assert found is not None
        terms, rest = found
        omitted = range(len(terms), 11)
        tail = sum(
            math.comb(10, j) * Fraction(1, 4) ** j * Fraction(3, 4) ** (10 - j) for j in omitted
        )
        assert [j for j, _ in terms] == [*range(len(terms))]
        assert tail <= rest < Fraction(spare) or (rest == tail == 0)
