"""Tests of sums of many discrete Gaussians: deviation and rejection decisions against mpmath."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from mpmath import mp

from dpcore import DiscreteGaussian, DiscreteGaussianSum, SeededRng
from dpcore.analysis.theta import ThetaSum
from dpcore.laws import discrete_gaussian as module
from dpcore.laws.discrete_gaussian import GaussianSumBatch, deviation_from_gaussian
from dpcore.noise import batch_of
from dpcore.numbers.enclosure import Enclosure, precision
from tests.day_and_nightly import by_day
from tests.support.dpcore import mpmath_precision
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.scripted_rng import Digits
from tests.support.laws import second

# Small sigma_squared: the deviation is large enough to be detected.
WIDE_RIPPLES = [(3, Fraction(1, 4)), (2, Fraction(1, 3)), (5, Fraction(2, 5)), (4, Fraction(1))]
FAR = 24


def chance(count: int, variance: Fraction, k: int) -> Any:
    r"""P(X = k) e^(k^2/2V) / P(X = 0)."""
    law = partial(second, DiscreteGaussianSum(count=count, sigma_squared=variance), "pmf")
    return law(k) / law(0) * mp.exp(mpmath_precision.real(Fraction(k * k, 2 * count) / variance))


@pytest.mark.parametrize(("count", "variance"), WIDE_RIPPLES)
def test_the_deviation_bounds_every_acceptance_probability(count: int, variance: Fraction) -> None:
    most = Enclosure.of(deviation_from_gaussian(ThetaSum(variance=variance, count=count)))
    upper, lower = Fraction(most.upper), Fraction(most.lower)
    with mpmath_precision.digits(50):
        found = [chance(count, variance, k) for k in range(-2 * count, 2 * count + 1)]
        low = (1 - mpmath_precision.real(upper)) / (1 + mpmath_precision.real(upper))
        assert all(low <= value + mp.mpf(10) ** -25 for value in found)
        assert all(value <= 1 + mp.mpf(10) ** -25 for value in found)
        # The bound is tight: half of it would be refuted.
        half = mpmath_precision.real(lower) / 2
        assert min(found) < (1 - half) / (1 + half)


@by_day(1)
@pytest.mark.parametrize(("count", "variance"), WIDE_RIPPLES)
def test_each_decision_agrees_with_mpmath(count: int, variance: Fraction) -> None:
    assert wrong_decisions(count, variance, GaussianSumBatch.keeps) == []


@by_day(1)
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("log_factor", "% law.count", "% (law.count + 1)"),
        ("_log_factor", "2 * law.count", "law.count"),
        ("_log_factor", "+ ball(lift)", ""),
    ],
)
def test_a_mutant_of_the_acceptance_probability_is_detected(
    name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, mutated(getattr(module, name), old, new))
    assert wrong_decisions(3, Fraction(1, 4), GaussianSumBatch.keeps), name


def wrong_decisions(count: int, variance: Fraction, keeps: Any) -> list[tuple[int, int]]:
    law = ThetaSum(variance=variance, count=count)
    batch = GaussianSumBatch(
        law, batch_of(DiscreteGaussian(sigma_squared=count * variance)), Fraction(2, 5)
    )
    wrong = []
    with mpmath_precision.digits(50):
        for k in range(-2 * count, 2 * count + 1):
            border = chance(count, variance, k)
            for word in words_near(border):
                rng = Digits.after(Fraction(word, 1 << 64))
                expected = mp.mpf(word) / 2**64 < border
                if keeps(batch, rng, word, k) != expected:
                    wrong.append((k, word))
    return wrong


def words_near(border: Any) -> list[int]:
    place = int(mp.floor(border * 2**64))
    near = [place + off for off in (-(1 << 40), -1, 1, 1 << 40)]
    return [word for word in [*near, 1 << 62] if 0 <= word < 1 << 64]


def test_words_are_accepted_at_once_only_below_every_acceptance_probability() -> None:
    law = ThetaSum(variance=Fraction(1, 4), count=3)
    most = Fraction(Enclosure.of(deviation_from_gaussian(law)).upper)
    batch = GaussianSumBatch(law, batch_of(DiscreteGaussian(sigma_squared=Fraction(3, 4))), most)
    with mpmath_precision.digits(50):
        least = min(chance(3, Fraction(1, 4), k) for k in range(3))
        assert int(batch._sure) < least * 2**64
        bold = GaussianSumBatch(law, batch._proposal, most / 4)
        assert int(bold._sure) > least * 2**64, "a smaller deviation would be seen"


def test_one_draw_has_deviation_zero() -> None:
    with precision(200):
        assert Enclosure.of(
            deviation_from_gaussian(ThetaSum(variance=Fraction(9), count=1))
        ).upper < Fraction(1, 1 << 70)


@pytest.mark.parametrize(
    ("count", "variance"),
    [(2**28, Fraction(1, 64)), (2**40, Fraction(1, 10**6)), (2**20, Fraction(2**40))],
)
def test_sums_of_very_many_draws_are_drawn_at_once(count: int, variance: Fraction) -> None:
    # These did not terminate when sums were drawn term by term, or tables built from far masses.
    drawn = DiscreteGaussianSum(count=count, sigma_squared=variance).sample(64, rng=SeededRng(1))
    spread = float(count * variance) ** 0.5 if variance > 1 else 1.0
    assert float(np.abs(drawn).max()) < 6 * spread
