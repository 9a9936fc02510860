"""Tests of sampler frequencies: seeded vectors, exact binomial tests of every sampler and law."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import dpcore
from dpcore import Noise, SeededRng, read_noise
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day
from tests.support.laws import EXAMPLES, SPELLED, centre

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


def test_every_law_has_seeded_vectors() -> None:
    assert {text.partition(":")[0] for text in VECTORS["draws"]} == set(EXAMPLES)
    assert list(VECTORS["draws"]) == list(VECTORS["reference"])


Cell = tuple[str, int]
KINDS: dict[str, Callable[[Any, int], Any]] = {
    "X <= k": lambda x, k: x <= k,
    "|X| > k": lambda x, k: np.abs(x) > k,
    "X = k": lambda x, k: x == k,
}


@cache
def cells(noise: Noise) -> list[Cell]:
    r"""Half-lines at quantiles, and values next to 0 and to the mean."""
    values = {0, 1, -1, *(centre(noise) + off for off in (-1, 0, 1))}
    found: list[Cell] = [("X = k", k) for k in values]
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
        case _:
            return noise.enclose_pmf(cell[1], 64).upper_float


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
TINY_ALPHA = "1e-10"


@by_day(3)
@pytest.mark.parametrize("text", SPELLED)
def test_draws_have_the_law(text: str) -> None:
    alpha = buy_alpha(f"cells: {text}", TINY_ALPHA)
    noise, source = read_noise(text), SeededRng(12)
    assert worst(noise, noise.sample(DRAWN, rng=SeededRng(11))) > alpha / 2
    single = [noise.sample(rng=source) for _ in range(2000)]
    assert worst(noise, np.array(single)) > alpha / 2


@pytest.mark.parametrize(
    ("text", "other", "trials"),
    [
        ("discrete-laplace:scale=10", "discrete-laplace:scale=52/5", DRAWN),
        ("discrete-gaussian:sigma_squared=400", "discrete-gaussian:sigma_squared=416", DRAWN),
        ("poisson:mean=50", "poisson:mean=52", 6000),
    ],
)
def test_a_changed_parameter_and_a_doubled_mass_are_detected(
    text: str, other: str, trials: int
) -> None:
    noise = read_noise(text)
    assert worst(noise, read_noise(other).sample(trials, rng=SeededRng(11))) < 1e-9
    # A sampler of signs that does not reject the pair (-, 0): zero has twice its mass.
    middle = centre(noise)
    mass = float(noise.enclose_pmf(middle).upper)
    again = np.random.default_rng(1).random(trials) < mass / (1 + mass)
    drawn = noise.sample(trials, rng=SeededRng(11))
    assert worst(noise, np.where(again, middle, drawn)) < 1e-9


def test_draws_from_the_system_have_the_law_roughly() -> None:
    # Not seeded: the check fails with probability below 10^-300; half lies on either side.
    noise = dpcore.DiscreteLaplace(scale=1000)
    for drawn in (noise.sample(4000), np.array([noise.sample() for _ in range(4000)])):
        assert 1000 < np.count_nonzero(drawn > 0) < 3000
        assert abs(drawn).max() < 10**6
