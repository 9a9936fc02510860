"""The linear form against the best direction, which is known where the noise is Gaussian."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from audit.features.additive import CANDIDATES, learn_parts
from audit.features.linear import Stretches, learn_linear
from audit.outputs.rows import Schema

RUNS, WIDTH = 4000, 60
ALIKE = np.full(WIDTH, WIDTH**-0.5)
APART = np.random.default_rng(7).normal(size=WIDTH) / WIDTH**0.5
PLAIN = np.eye(WIDTH)
SUMS = np.tril(np.ones((WIDTH, WIDTH))) @ np.tril(np.ones((WIDTH, WIDTH))).T


def drawn(moves: Any, covariance: Any) -> tuple[Any, Any, Any]:
    """Standardised columns, centred worlds, and the scales."""
    rng = np.random.default_rng(1)
    worlds = rng.random(RUNS) < 0.5
    outputs = rng.multivariate_normal(np.zeros(WIDTH), covariance, RUNS) + np.outer(worlds, moves)
    scale = outputs.std(axis=0)
    return (outputs - outputs.mean(axis=0)) / scale, worlds - worlds.mean(), scale


def efficiency(slope: Any, moves: Any, covariance: Any) -> float:
    """How far a direction tells the worlds apart, as a part of what the best one does."""
    best = math.sqrt(moves @ np.linalg.solve(covariance, moves))
    return float(slope @ moves / math.sqrt(slope @ covariance @ slope) / best)


@pytest.mark.parametrize(
    ("moves", "covariance", "reached", "by_means"),
    [
        (ALIKE, PLAIN, 0.999, 0.98),  # the sum of all: nothing to learn
        (APART, PLAIN, 0.95, 1.0),
        (SUMS[:, 0], SUMS, 0.93, 0.5),  # running sums, of which the first item moves
        (SUMS[:, 9], SUMS, 0.9, 0.75),
    ],
)
def test_the_direction_is_nearly_the_best_there_is(
    moves: Any, covariance: Any, reached: float, by_means: float
) -> None:
    columns, y, scale = drawn(moves, covariance)
    slope, _ = learn_linear(Stretches.of(columns), y, np.arange(RUNS) % 2 == 0)
    assert efficiency(slope / scale, moves, covariance) > reached
    assert efficiency(columns.T @ y / scale, moves, covariance) < by_means


def test_what_is_said_of_a_run_was_learned_from_others() -> None:
    rng = np.random.default_rng(2)
    columns = rng.normal(size=(400, 150))
    y: Any = (rng.random(400) < 0.5) - 0.5
    slope, crossed = learn_linear(Stretches.of(columns), y, np.arange(400) % 2 == 0)
    # Noise alone: five standard deviations, and what a learner that peeks would see.
    assert abs(np.corrcoef(crossed, y)[0, 1]) < 5 / 20
    assert np.corrcoef(columns @ slope, y)[0, 1] > 0.5


@pytest.mark.parametrize("moves", [np.full(12, 1.0), np.repeat([1.0, -1.0], 6)])
def test_the_sides_of_medians_are_the_likelihood_ratio_of_laplace_noise(moves: Any) -> None:
    # |x| - |x - 1| jumps at x = 1/2 and is flat elsewhere: a sum of signs, nearly.
    rng = np.random.default_rng(3)
    worlds = rng.random(30_000) < 0.5
    outputs = rng.laplace(0.0, 30.0, (30_000, 12)) + np.outer(worlds, moves)
    ratio = (np.abs(outputs) - np.abs(outputs - moves)).sum(axis=1)
    table = (schema := Schema()).read(outputs)
    parts = learn_parts(table, worlds, schema)
    found = parts.scores(table)
    told = dict(zip(CANDIDATES, np.corrcoef(found.T, ratio)[-1, :-1], strict=True))
    assert told["sides"] > 0.8
    assert told["sides"] > told["linear"] + 0.1
    # The score that is shown is what was tested.
    for place in (CANDIDATES.index("sides"), CANDIDATES.index("joint")):
        score = parts.score(np.eye(len(CANDIDATES))[place])
        np.testing.assert_allclose(score(table), found[:, place], atol=1e-9)
