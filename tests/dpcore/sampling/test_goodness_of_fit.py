"""Tests of sampler frequencies: seeded vectors, exact binomial tests of every sampler and law."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpmath import mp
from scipy import stats

import dpcore
from dpcore import Noise, SeededRng, read_noise
from dpcore.noise import batch_of
from dpcore.sampling.inversion import InversionTable
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day
from tests.support.dpcore import mpmath_precision
from tests.support.laws import EXAMPLES, SPELLED, centre, second

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "seeded.json").read_text())


@by_day(6)
@pytest.mark.parametrize("text", list(VECTORS["draws"]))
def test_seeded_draws_are_the_same_on_every_platform(text: str) -> None:
    noise = read_noise(text)
    for seed, drawn in VECTORS["draws"][text].items():
        assert noise.sample(len(drawn), rng=SeededRng(int(seed))).tolist() == drawn
    for seed, drawn in VECTORS["reference"][text].items():
        source = SeededRng(int(seed))
        assert [noise.sample_reference(source) for _ in drawn] == drawn


def one_table(text: str) -> bool:
    r"""Whether a batch uses one inversion table, so that one word determines one draw."""
    noise = read_noise(text)
    batch = batch_of(noise)
    return isinstance(batch, InversionTable) or (
        isinstance(noise, dpcore.DiscreteLaplace) and noise.scale <= 64
    )


@by_day(6)
@pytest.mark.parametrize("text", [text for text in VECTORS["draws"] if one_table(text)])
def test_seeded_draws_invert_the_distribution_function(text: str) -> None:
    # An independent implementation: SHA-256 and AES to words (test_rng), words to V, and the least
    # k with V < F(k) by mpmath. It holds for laws that fit one table.
    noise = read_noise(text)
    with mpmath_precision.digits(30):
        for seed, drawn in VECTORS["draws"][text].items():
            words = SeededRng(int(seed)).words(len(drawn)).tolist()
            for word, k in zip(words, drawn, strict=True):
                v = mp.mpf(word) / 2**64
                assert second(noise, "cdf", k - 1) < v < second(noise, "cdf", k)


def test_every_law_has_seeded_vectors() -> None:
    assert {text.partition(":")[0] for text in VECTORS["draws"]} == set(EXAMPLES)
    assert list(VECTORS["draws"]) == list(VECTORS["reference"])


Cell = tuple[str, int]
KINDS: dict[str, Callable[[Any, int], Any]] = {
    "X <= k": lambda x, k: x <= k,
    "|X| > k": lambda x, k: np.abs(x) > k,
    "X = k": lambda x, k: x == k,
    "X even": lambda x, _: x % 2 == 0,
}


@cache
def cells(noise: Noise) -> list[Cell]:
    r"""Half-lines at quantiles, values next to 0 and to the mean, and parity."""
    values = {0, 1, -1, *(centre(noise) + off for off in (-1, 0, 1))}
    found: list[Cell] = [("X = k", k) for k in values]
    if even(noise) is not None:
        found.append(("X even", 0))
    for level in (0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.45, 0.55, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999):
        k = noise.quantile(level)
        assert isinstance(k, int)
        found += [("X <= k", k), ("|X| > k", abs(k))]
    return [cell for cell in found if 1e-12 < chance(noise, cell) < 1 - 1e-12]


@cache
def chance(noise: Noise, cell: Cell) -> float:
    r"""Return the probability of a cell under a law, from its enclosures."""
    match cell:
        case ("X <= k", k):
            return noise.enclose_cdf(k, 64).upper_float
        case ("|X| > k", k):
            return noise.tail(k)
        case ("X = k", k):
            return noise.enclose_pmf(k, 64).upper_float
        case _:
            parity = even(noise)
            assert parity is not None
            return parity


@cache
def even(noise: Noise) -> float | None:
    # Parity tests the lowest digit, which no half-line of a large scale resolves. For a wide law
    # with one peak it is 1/2 within half the peak.
    low, high = noise.quantile(1e-14), noise.quantile(1 - 1e-14)
    assert isinstance(low, int)
    assert isinstance(high, int)
    if high - low > 20_000:
        return 0.5 if noise.log_concave else None
    first = 2 * low - high
    return float(np.sum(noise.pmf(np.arange(first - first % 2, 2 * high - low + 1, 2))))


def binomial_p(seen: int, trials: int, probability: float) -> float:
    r"""Two-sided and exact: twice the smaller tail."""
    below = stats.binom.cdf(seen, trials, probability)
    above = stats.binom.sf(seen - 1, trials, probability)
    return float(min(1.0, 2 * min(below, above)))


def worst(noise: Noise, drawn: Any) -> float:
    r"""Return the least p-value of all cells, times their number (Bonferroni)."""
    rows = cells(noise)
    return len(rows) * min(
        binomial_p(
            int(np.count_nonzero(KINDS[kind](drawn, k))), len(drawn), chance(noise, (kind, k))
        )
        for kind, k in rows
    )


DRAWN = 400_000
# Number of reference draws where 1000 take too long: enough to detect a wrong place or scale.
REFERENCE = {
    "discrete-gaussian-sum:count=1000,sigma_squared=400.5": 25,
    "skellam:variance=1000003": 60,
    "skellam:variance=16777216.5": 40,
    "skellam:variance=1e12": 40,
    "polya:shape=1/1024,scale=1000": 500,
    "polya-difference:shape=1/1024,scale=1000": 200,
    "poisson:mean=1000003": 60,
    "poisson:mean=16777216.5": 60,
    "poisson:mean=1e12": 40,
    "binomial:trials=5000003,probability=3/10": 60,
    "binomial:trials=1e8,probability=1/3": 40,
}
TINY_ALPHA = "1e-10"


WAYS: dict[str, Callable[[Noise, str], Any]] = {
    "batch": lambda noise, _: noise.sample(DRAWN, rng=SeededRng(11)),
    "single": lambda noise, _: one_by_one(noise.sample, SeededRng(12), 2000),
    "reference": lambda noise, text: one_by_one(
        lambda *, rng: noise.sample_reference(rng), SeededRng(13), REFERENCE.get(text, 1000)
    ),
}


def one_by_one(draw: Callable[..., int], rng: SeededRng, count: int) -> Any:
    return np.array([draw(rng=rng) for _ in range(count)])


@by_day(7)
@pytest.mark.parametrize("text", SPELLED)
@pytest.mark.parametrize("way", WAYS)
def test_draws_have_the_law(way: str, text: str) -> None:
    alpha = buy_alpha(f"cells: {way} {text}", TINY_ALPHA)
    noise = read_noise(text)
    assert worst(noise, WAYS[way](noise, text)) > alpha


CHANGES = tuple(map(Fraction, ("1.04", "1.25", "2", "4")))


def changed(noise: Noise, name: str, factor: Fraction) -> Noise:
    r"""Return the law with one parameter multiplied by a factor; a probability by its odds."""
    value = Fraction(noise.parameters[name]) * factor
    if name == "probability":
        value /= value + 1 - noise.parameters[name]
    return type(noise)(**{**noise.parameters, name: value})


def power_of(noise: Noise, mutant: Noise, trials: int, alpha: float) -> float:
    r"""A lower bound on the probability of rejecting the mutant: that of the best single cell."""
    rows, best = cells(noise), 0.0
    for cell in rows:
        p, q = chance(noise, cell), chance(mutant, cell)
        least = stats.binom.ppf(alpha / len(rows) / 2, trials, p)
        most = stats.binom.isf(alpha / len(rows) / 2, trials, p)
        missed = stats.binom.cdf(most, trials, q) - stats.binom.cdf(least - 1, trials, q)
        best = max(best, 1 - float(missed))
    return best


# The tiny parameters of each law give too few nonzero values for so small a change.
WIDE_ENOUGH = [f"{law}:{parameters}" for law, rows in EXAMPLES.items() for parameters in rows[1:]]


@by_day(1)
@pytest.mark.parametrize("text", WIDE_ENOUGH)
def test_a_changed_parameter_is_detected(text: str) -> None:
    # The least change of each parameter at which the cells have power 0.999: 4% for one of them.
    noise, least = read_noise(text), []
    for name in (name for name, value in noise.parameters.items() if isinstance(value, Fraction)):
        for factor in CHANGES:
            mutant = changed(noise, name, factor)
            if power_of(noise, mutant, DRAWN, 1e-9) > 0.999:
                assert worst(noise, mutant.sample(DRAWN, rng=SeededRng(11))) < 1e-9
                least.append(factor)
                break
        else:
            raise AssertionError(f"the cells do not see {name}")
    # A law with P(X = 0) >= 9/10 needs larger changes.
    often = noise.enclose_pmf(0, 16).lower < Fraction(9, 10)
    assert min(least) <= (Fraction(104, 100) if often else Fraction(5, 4))


@pytest.mark.parametrize(
    ("text", "trials"),
    [("discrete-laplace:scale=10", DRAWN), ("discrete-gaussian:sigma_squared=400", 6000)],
)
def test_a_doubled_mass_at_zero_is_detected(text: str, trials: int) -> None:
    # The mutant does not reject the pair (-, 0): zero has twice its mass.
    noise = read_noise(text)
    zero = float(noise.enclose_pmf(0).upper)
    drawn = noise.sample(trials, rng=SeededRng(11))
    again = np.random.default_rng(1).random(trials) < zero / (1 + zero)
    assert worst(noise, np.where(again, 0, drawn)) < 1e-9


def test_draws_from_the_system_have_the_law_roughly() -> None:
    # Not seeded: the check fails with probability below 10^-300; half lies on either side.
    noise = dpcore.DiscreteLaplace(scale=1000)
    for drawn in (noise.sample(4000), np.array([noise.sample() for _ in range(4000)])):
        assert 1000 < np.count_nonzero(drawn > 0) < 3000
        assert abs(drawn).max() < 10**6
