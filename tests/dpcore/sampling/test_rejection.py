r"""Rejection: floats decide only what the exact comparison decides the same way.

The exact decision is a comparison of V with e^-g by mpmath; words are chosen next to the border,
where the two cells of a word, the float's rounding and its margin meet. Mutants: no margin, the
cell of a word forgotten, a wrong centre.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpcore import DiscreteGaussian, DiscreteLaplace, Unrepresentable
from dpcore.noise import batch_of
from dpcore.sampling.rejection import GaussianByRejection
from dpcore.sampling.rng import SeededRng
from tests.effort import by_day
from tests.support.dpcore import second_path
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.scripted import Digits, leading

VARIANCES = [Fraction(2**22) + Fraction(1, 3), Fraction(2**24), Fraction(10**9, 7), Fraction(2**80)]
DISTANCES = [
    *(0, 0.1, 0.3, 0.5, 1, 1.01, 2, 2.2, 2.9, 3.1, 3.3, 3.5, 3.7, 4, 4.1, 4.3, 4.5, 5, 5.7),
    *(6, 7, 8, 8.5, 9, 9.3, 9.41, 9.42, 9.5, 9.9, 10, 11, 15, 29),
]


def sampler(variance: Fraction) -> GaussianByRejection:
    batch = batch_of(DiscreteGaussian(sigma_squared=variance))
    assert isinstance(batch, GaussianByRejection)
    return batch


def proposals(variance: Fraction) -> list[int]:
    sigma = math.isqrt(int(variance))
    return [sign * int(x * sigma) for x in DISTANCES for sign in (1, -1)]


def chance(variance: Fraction, proposed: int) -> Any:
    r"""exp(-(|y| - v/t)^2/(2v)), t = floor(sigma) + 1: Canonne, Kamath and Steinke, Algorithm 3."""
    t = math.isqrt(math.floor(variance)) + 1
    gap = abs(proposed) - variance / t
    return mp.exp(-second_path.real(gap * gap / (2 * variance)))


Decide = Callable[[GaussianByRejection, Fraction, int], Any]


def contradictions(variance: Fraction, decide: Decide, step: int = 1) -> list[Any]:
    r"""(y, V) where a decision is not the exact one."""
    found = []
    batch = sampler(variance)
    with second_path.digits(230):
        for y in proposals(variance)[::step]:
            border = chance(variance, y)
            found += [
                (y, v)
                for v in second_path.next_to(border)
                if bool(decide(batch, v, y)) != (second_path.real(v) < border)
            ]
    return found


def filtered(batch: GaussianByRejection, v: Fraction, y: int, code: Any = None) -> Any:
    accept = code or GaussianByRejection._accept
    return accept(batch, Digits([v]), np.array([y], dtype=np.int64))[0]


def exact(batch: GaussianByRejection, v: Fraction, y: int, code: Any = None) -> Any:
    return (code or GaussianByRejection.accepts)(batch, Digits.after(v), leading(v), y)


@by_day(2)
@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_floats_never_contradict_the_exact_decision(variance: Fraction) -> None:
    assert contradictions(variance, filtered) == []


@pytest.mark.parametrize("variance", VARIANCES[:2], ids=str)
def test_the_exact_decision_is_exact(variance: Fraction) -> None:
    assert contradictions(variance, exact, 2) == []


@given(st.integers(-(2**62), 2**62), st.integers(1, 2**200 - 1))
def test_any_proposal_and_any_number(y: int, n: int) -> None:
    variance, v = Fraction(2**110, 3), Fraction(n, 2**200)
    batch = sampler(variance)
    with second_path.digits(90):
        border = chance(variance, y)
        assert filtered(batch, v, y) == (second_path.real(v) < border)


ACCEPT_MUTANTS = {
    "no margin": ("_MARGIN * chance", "0.0"),
    "no grain": (" + _GRAIN", ""),
    "centre at 0": ("- self._centre", "- 0.0"),
    "never looks closer": ("np.flatnonzero(unsure)", "()"),
    "sign of the comparison": ("accepted = uniform < chance", "accepted = uniform >= chance"),
}


@by_day(1)
@pytest.mark.parametrize("name", ACCEPT_MUTANTS)
def test_a_mutant_of_accept_is_caught(name: str) -> None:
    mutant = mutated(GaussianByRejection._accept, *ACCEPT_MUTANTS[name])
    assert contradictions(Fraction(10**9, 7), partial(filtered, code=mutant))


ACCEPTS_MUTANTS = {
    "centre v instead of v/t": ("abs(proposed) * self._scale", "abs(proposed)"),
    "sigma for sigma squared": (
        "(2 * self._variance * self._scale * self._scale)",
        "(2 * self._scale * self._scale * self._scale)",
    ),
    "float exponent": ("gap * gap /", "Fraction(float(gap * gap)) /"),
}


@pytest.mark.parametrize("name", ACCEPTS_MUTANTS)
def test_a_mutant_of_accepts_is_caught(name: str) -> None:
    mutant = mutated(GaussianByRejection.accepts, *ACCEPTS_MUTANTS[name])
    assert contradictions(Fraction(10**9, 7), partial(exact, code=mutant))


def test_the_proposal_fits_int64_wherever_the_law_does() -> None:
    # A proposal that wraps around would be kept as a value it is not. The discrete Laplace has
    # heavier tails than the discrete Gaussian, so it is what decides who may draw batches.
    for exponent in range(100, 126):
        noise = DiscreteGaussian(sigma_squared=1 << exponent)
        try:
            batch = batch_of(noise)
        except Unrepresentable:
            continue
        assert isinstance(batch, GaussianByRejection)
        beyond = DiscreteLaplace(scale=batch._scale).enclose_tail((1 << 62) - 1)
        assert beyond.upper <= Fraction(1, 1 << 100), f"sigma_squared = 2^{exponent}"


def test_draws_fill_every_count() -> None:
    # The last piece of a block is filled by fewer proposals, and some of those are rejected.
    batch = sampler(Fraction(2**30))
    for count in (0, 1, 2, 17, 1000):
        drawn = batch.draw(SeededRng(count), count)
        assert drawn.shape == (count,)
        assert np.abs(drawn).max(initial=0) < 12 << 15
