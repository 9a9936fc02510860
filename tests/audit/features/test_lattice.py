"""The steps in which outputs lie apart: found where two answers lie on them differently."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from audit.features import lattice
from audit.features.lattice import step_of
from tests.support.dpcore.mutants import mutated, rewired

Floats: TypeAlias = NDArray[np.floating[Any]]
Noise: TypeAlias = Callable[[np.random.Generator], Floats]

RUNS = 32
SEEDS = range(20)


def cents(rng: np.random.Generator) -> Floats:
    found: Floats = np.round(rng.laplace(scale=100, size=RUNS), 2)
    return found


def of_step(step: float) -> Noise:
    return lambda rng: step * rng.integers(-9999, 9999, RUNS)


def between(noise: Noise, a: float, b: float) -> list[float | None]:
    """What is found of noise that is added to either of two answers."""
    found = []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        answers = np.where(rng.random(RUNS) < 0.5, a, b)
        found.append(step_of(answers + noise(rng)))
    return found


@pytest.mark.parametrize(
    ("noise", "step", "pair"),
    [
        pytest.param(cents, 0.01, (1 / 3, 2 / 3), id="noise rounded to cents"),
        pytest.param(cents, 0.01, (100.123, 101.456), id="answers of three decimals"),
        pytest.param(of_step(0.3), 0.3, (0.0, 1 / 7), id="one answer on the steps"),
        pytest.param(of_step(math.pi), math.pi, (1e6, 1e6 + 1), id="no decimal step"),
        pytest.param(of_step(2.0**-7), 2.0**-7, (0.1, 0.2), id="a binary step"),
    ],
)
def test_the_steps_of_noise_are_found(noise: Noise, step: float, pair: tuple[float, float]) -> None:
    found = [each for each in between(noise, *pair) if each is not None]
    assert len(found) >= 0.9 * len(SEEDS)
    for each in found:
        # A few steps at once tell as much; what is left of 10,000 of them is less than a 64th.
        times = round(each / step)
        assert 1 <= times <= 4
        assert abs(each / (times * step) - 1) < 1e-6


def test_half_of_the_outputs_may_lie_anywhere() -> None:
    found = []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        free = rng.laplace(scale=1000, size=RUNS)
        found.append(step_of(np.where(rng.random(RUNS) < 0.5, of_step(0.3)(rng), free)))
    assert sum(step is not None for step in found) >= 0.7 * len(SEEDS)


@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(lambda rng: rng.laplace(size=RUNS), id="Laplace"),
        pytest.param(lambda rng: 1e6 + rng.normal(size=RUNS), id="Gaussian, far away"),
        pytest.param(lambda rng: rng.random(RUNS), id="uniform"),
        pytest.param(lambda rng: np.zeros(RUNS), id="all alike"),
        pytest.param(lambda rng: rng.random(2), id="two numbers"),
        pytest.param(lambda rng: np.array([math.nan, 1.0, 2.0]), id="nan"),
    ],
)
def test_no_steps_are_found_where_there_are_none(noise: Noise) -> None:
    assert {step_of(noise(np.random.default_rng(seed))) for seed in SEEDS} == {None}


def test_steps_that_all_outputs_share_tell_nothing_and_are_left_out() -> None:
    shared: list[tuple[Any, float, float]] = [(of_step(2.0**-9), 0.0, 1.0), (cents, 3.25, 4.5)]
    for noise, a, b in shared:
        assert sum(step is not None for step in between(noise, a, b)) <= 0.1 * len(SEEDS)
        # A mutant that forgets what chance does to classes of a finer lattice takes them.
        careless = rewired(
            step_of,
            _more_than_chance=mutated(lattice._more_than_chance, "if not part:", "if part >= 0:"),
        )
        rng = np.random.default_rng(0)
        assert careless(a + noise(rng)) is not None
