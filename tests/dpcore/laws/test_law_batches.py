r"""Tests of rejection in batch samplers: Polya jumps by words, sums of many Gaussians by words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from mpmath import mp

from dpcore import (
    DiscreteGaussian,
    DiscreteGaussianSum,
    DiscreteLaplace,
    SeededRng,
    Unrepresentable,
)
from dpcore.analysis.theta import ThetaSum
from dpcore.laws import polya
from dpcore.laws.discrete_gaussian import GaussianSumBatch, deviation_from_gaussian
from dpcore.laws.polya import LogJumps, Polya, PolyaDifference
from dpcore.noise import batch_of
from dpcore.numbers.enclosure import Enclosure
from dpcore.sampling.rng import below
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day
from tests.dpcore.sampling.test_goodness_of_fit import worst
from tests.support.dpcore import mpmath_precision
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.scripted_rng import Dealt, Digits
from tests.support.laws import second


class Scripted(Digits):
    r"""Deals the given cells, low bits and runs; the last words are the uniforms compared."""

    __slots__ = ("_written",)

    def __init__(self, cell: int, low: int, run: int, number: Fraction) -> None:
        super().__init__([number])
        self._written = [cell << 32, low, run]

    def words(self, count: int) -> Any:
        if self._written and (count or len(self._written) == 1):
            return np.full(count, self._written.pop(0), dtype=np.uint64)
        return super().words(count)


def chance(scale: Fraction, cell: int, size: int) -> Any:
    r"""Return the probability that gives the rate e^(-m/s)/m, from the candidate's own rate."""
    last = (math.ceil(scale) - 1).bit_length()
    hat = mp.mpf(1) / (1 << cell)
    if cell == last:
        hat /= 2 ** ((size >> cell) - 1 + 1)
    return mp.exp(-size / mpmath_precision.real(scale)) / size / hat


def contradictions(code: Callable[..., Any] = LogJumps.jumps) -> Iterator[Any]:
    with mpmath_precision.digits(230):
        for scale in (Fraction(1 << 20), Fraction(10**9, 7), Fraction(3)):
            batch = LogJumps(Fraction(1, 3), scale)
            last = batch._cells - 1
            for cell, run in ((0, 0), (1, 0), (last - 1, 0), (last, 0), (last, 1), (last, 5)):
                for low in (0, (1 << 63) + (1 << 40) + 12345, (1 << 64) - 1):
                    size = (1 << cell) + (low >> (64 - cell)) + (run << cell)
                    border = chance(scale, cell, size)
                    for v in mpmath_precision.next_to(border):
                        rng = Scripted(cell, low, 1 << run, v)
                        if cell != last:
                            rng._written.pop()
                        got = int(code(batch, rng, 1)[0])
                        kept = mpmath_precision.real(v) < border
                        if got != (size if kept else 0):
                            yield scale, cell, run, low, v


def test_floats_never_contradict_the_exact_decision() -> None:
    assert [*contradictions()] == []


JUMPS_MUTANTS = {
    "never looks closer": ("np.flatnonzero(unsure).tolist()", "[]"),
    "wrong chance of a jump": ("run + 1)\n", "run + 0)\n"),
}


@by_day(1)
@pytest.mark.parametrize("name", JUMPS_MUTANTS)
def test_a_mutant_of_the_jumps_is_detected(name: str) -> None:
    assert any(contradictions(mutated(LogJumps.jumps, *JUMPS_MUTANTS[name])))


def test_long_runs_are_counted_bit_by_bit() -> None:
    # A byte of zeros in the last cell: eight and more; two flips of one, then a zero.
    batch, last = LogJumps(Fraction(1, 3), Fraction(3)), 2

    flips: list[int] = []

    class Runs(Scripted):
        __slots__ = ()

        def flip(self) -> int:
            return flips.pop(0)

    size = (1 << last) * (1 + 10)
    with mpmath_precision.digits(60):
        border = mpmath_precision.floor_to(chance(Fraction(3), last, size), 190)
    for v, kept in ((border - Fraction(1, 1 << 100), size), (border + Fraction(1, 1 << 100), 0)):
        rng = Runs(last, 0, 256, v)
        flips[:] = [1, 1, 0]
        assert batch.jumps(rng, 1).tolist() == [kept]


@pytest.mark.parametrize("bound", [1, 2, 3, 23, 58])
def test_below_is_uniform(bound: int) -> None:
    # Half words of complete cycles are kept: the first one beyond them is drawn again.
    edge = (1 << 32) // bound * bound
    over = [edge, (1 << 32) - 1] if edge < 1 << 32 else []
    halves = [half << 32 for half in (*over, edge - 1, 0, 5, 6, 7, 8)]
    wanted = [bound - 1, 0, 5 % bound, 6 % bound]
    assert below(Dealt(*halves), bound, 4).tolist() == wanted
    for wrong in (("halves < whole", "halves <= whole"), ("// bound * bound", "")):
        assert not over or mutated(below, *wrong)(Dealt(*halves), bound, 4).tolist() != wanted


def test_jumps_agree_with_the_table_at_small_scales() -> None:
    # At scales where every value occurs: the table of the law and its jumps agree.
    for scale in ("1/3", "17/2"):
        noise = Polya(shape="3/4", scale=scale)
        drawn = LogJumps(Fraction(3, 4), Fraction(scale)).draw(SeededRng(22), 100_000)
        assert worst(noise, drawn) > buy_alpha(f"Polya jumps at scale {scale}", "1e-9")
        other = LogJumps(Fraction(3, 4), Fraction(scale) * Fraction(11, 10))
        assert worst(noise, other.draw(SeededRng(22), 100_000)) < 1e-9


def test_geometric_draws_use_both_signs_of_a_laplace_draw() -> None:
    noise = Polya(shape=1, scale=9)
    batch = polya._Geometric(Fraction(9))
    drawn = batch.draw(SeededRng(23), 100_000)
    assert worst(noise, drawn) > buy_alpha("Polya geometrics", "1e-9")
    folded = np.abs(batch_of(DiscreteLaplace(scale=9)).draw(SeededRng(23), 100_000))
    assert worst(noise, folded) < 1e-9  # the mutant: |X| halves the mass of 0


def test_a_batch_that_could_leave_int64_is_refused() -> None:
    for law in (Polya, PolyaDifference):
        with pytest.raises(Unrepresentable):
            batch_of(law(shape="1/2", scale=2**60))
    with pytest.raises(Unrepresentable):
        LogJumps(Fraction(1, 2**300), Fraction(2**59))


# Small sigma_squared: the deviation is large enough to be detected.
WIDE_RIPPLES = [(3, Fraction(1, 4)), (2, Fraction(1, 3)), (5, Fraction(2, 5)), (4, Fraction(1))]


def kept_chance(count: int, variance: Fraction, k: int) -> Any:
    r"""P(X = k) e^(k^2/2V) / P(X = 0)."""
    law = partial(second, DiscreteGaussianSum(count=count, sigma_squared=variance), "pmf")
    return law(k) / law(0) * mp.exp(mpmath_precision.real(Fraction(k * k, 2 * count) / variance))


@pytest.mark.parametrize(("count", "variance"), WIDE_RIPPLES)
def test_the_deviation_bounds_every_acceptance_probability(count: int, variance: Fraction) -> None:
    most = Enclosure.of(deviation_from_gaussian(ThetaSum(variance=variance, count=count)))
    upper, lower = Fraction(most.upper), Fraction(most.lower)
    with mpmath_precision.digits(50):
        found = [kept_chance(count, variance, k) for k in range(-2 * count, 2 * count + 1)]
        low = (1 - mpmath_precision.real(upper)) / (1 + mpmath_precision.real(upper))
        assert all(low <= value + mp.mpf(10) ** -25 for value in found)
        assert all(value <= 1 + mp.mpf(10) ** -25 for value in found)
        # The bound is tight: half of it would be refuted.
        half = mpmath_precision.real(lower) / 2
        assert min(found) < (1 - half) / (1 + half)


@by_day(1)
@pytest.mark.parametrize(("count", "variance"), WIDE_RIPPLES)
def test_each_decision_agrees_with_mpmath(count: int, variance: Fraction) -> None:
    law = ThetaSum(variance=variance, count=count)
    proposal = batch_of(DiscreteGaussian(sigma_squared=count * variance))
    batch = GaussianSumBatch(law, proposal, Fraction(2, 5))
    with mpmath_precision.digits(50):
        for k in range(-2 * count, 2 * count + 1):
            border = kept_chance(count, variance, k)
            place = int(mp.floor(border * 2**64))
            near = [place + off for off in (-(1 << 40), -1, 1, 1 << 40)]
            for word in (word for word in [*near, 1 << 62] if 0 <= word < 1 << 64):
                rng = Digits.after(Fraction(word, 1 << 64))
                assert batch.keeps(rng, word, k) == (mp.mpf(word) / 2**64 < border), (k, word)


def test_words_are_accepted_at_once_only_below_every_acceptance_probability() -> None:
    law = ThetaSum(variance=Fraction(1, 4), count=3)
    most = Fraction(Enclosure.of(deviation_from_gaussian(law)).upper)
    batch = GaussianSumBatch(law, batch_of(DiscreteGaussian(sigma_squared=Fraction(3, 4))), most)
    with mpmath_precision.digits(50):
        least = min(kept_chance(3, Fraction(1, 4), k) for k in range(3))
        assert int(batch._sure) < least * 2**64
        bold = GaussianSumBatch(law, batch._proposal, most / 4)
        assert int(bold._sure) > least * 2**64, "a smaller deviation would be seen"


@pytest.mark.parametrize(
    ("count", "variance"),
    [(2**28, Fraction(1, 64)), (2**40, Fraction(1, 10**6)), (2**20, Fraction(2**40))],
)
def test_sums_of_very_many_draws_are_drawn_at_once(count: int, variance: Fraction) -> None:
    # These did not terminate when sums were drawn term by term, or tables built from far masses.
    drawn = DiscreteGaussianSum(count=count, sigma_squared=variance).sample(64, rng=SeededRng(1))
    spread = float(count * variance) ** 0.5 if variance > 1 else 1.0
    assert float(np.abs(drawn).max()) < 6 * spread
