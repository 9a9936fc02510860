"""Tests of the trade-off band: it lies above the true curve with the stated confidence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from audit.claims import Claim
from audit.outputs.output_parser import draw_worlds
from audit.report.figure_data import TradeoffBand, _hull, claimed_tradeoff, tradeoff_band
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day, effort
from tests.support.dpcore.mutants import mutated

GRID = np.linspace(0, 1, 401)
ALPHA = 0.2


def true_curve(mu: float) -> NDArray[np.float64]:
    found: NDArray[np.float64] = stats.norm.cdf(stats.norm.ppf(1 - GRID) - mu)
    return found


def below(band: TradeoffBand, mu: float) -> bool:
    """Whether the drawn curve is below the true one somewhere, so that the band is wrong."""
    drawn = np.interp(GRID, *np.array(band.points).T)
    return bool((drawn < true_curve(mu) - 1e-12).any())


def wrong(make: Any, *, repeats: int, mu: float = 1.0, runs: int = 600, learned: int = 200) -> int:
    found = 0
    for repeat in range(repeats):
        rng = np.random.default_rng([3, repeat])
        worlds = draw_worlds(runs, rng)
        outputs = mu * worlds + rng.normal(size=runs)
        found += below(make(outputs, worlds, learned=learned, alpha=ALPHA), mu)
    return found


@by_day(1)
@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_the_true_curve_is_below_the_band_as_often_as_stated(mu: float) -> None:
    bought = buy_alpha(f"trade-off band, mu = {mu}", "1e-10")
    repeats = effort(90, 4000)
    errors = wrong(tradeoff_band, repeats=repeats, mu=mu)
    assert float(stats.binom.sf(errors - 1, repeats, ALPHA)) > bought


def test_the_band_is_valid_at_every_number_of_runs_simultaneously() -> None:
    bought = buy_alpha("trade-off band, watched as runs come", "1e-10")
    repeats, errors = effort(12, 600), 0
    for repeat in range(repeats):
        rng = np.random.default_rng([4, repeat])
        worlds = draw_worlds(1200, rng)
        outputs = worlds + rng.normal(size=1200)
        bands = (
            tradeoff_band(outputs[:n], worlds[:n], learned=200, alpha=ALPHA)
            for n in range(220, 1201, 70)
        )
        errors += any(below(band, 1.0) for band in bands if band is not None)
    assert float(stats.binom.sf(errors - 1, repeats, ALPHA)) > bought


# A mutant: one pointwise bound per event, without the mixture that allows repeated looks.
POINTWISE = mutated(
    tradeoff_band, "(2 * len(events))", "1",
    _upper=lambda hits, runs, level: hits / runs
    + stats.norm.isf(float(level)) * np.sqrt(hits * (runs - hits) / runs) / runs,
)  # fmt: skip
# A mutant that learns events on the runs it counts, with any number of cells.
SEEN = mutated(
    tradeoff_band, "events = _events(cells[:learned], truth[:learned])",
    "cells = np.arange(len(cells)); events = _own(truth)",
    _own=lambda truth: np.append(truth, False)[None, :],
)  # fmt: skip


@by_day(1)
@pytest.mark.parametrize("mutant", [POINTWISE, SEEN], ids=["pointwise", "learned on the tested"])
def test_a_band_that_is_not_uniform_or_reuses_runs_over_claims(mutant: Any) -> None:
    errors = wrong(mutant, repeats=120, mu=0.0)
    assert float(stats.binom.sf(errors - 1, 120, ALPHA)) < 1e-10


def test_the_band_is_close_to_the_true_curve_with_many_runs() -> None:
    rng = np.random.default_rng(5)
    worlds = draw_worlds(100_000, rng)
    band = tradeoff_band(worlds + rng.normal(size=100_000), worlds, learned=20_000)
    assert band is not None
    drawn = np.interp(GRID, *np.array(band.points).T)
    assert float((drawn - true_curve(1.0)).max()) < 0.045
    assert band.runs == 80_000


def test_the_tradeoff_band_accepts_outputs_that_are_labels() -> None:
    rng = np.random.default_rng(6)
    worlds = draw_worlds(4000, rng)
    told = np.where(rng.random(4000) < 0.75, worlds, ~worlds)
    labels = ["yes" if one else "no" for one in told]
    labels[3900] = "never before"
    band = tradeoff_band(labels, worlds, learned=1000)
    assert band is not None
    middle = min(band.points, key=lambda point: abs(point[0] - point[1]))
    assert middle[0] == pytest.approx(0.25, abs=0.06)
    assert middle[1] == pytest.approx(0.25, abs=0.06)


def test_the_hull_is_convex_and_the_claimed_curve_passes_through_its_points() -> None:
    points = [(0.2, 0.6), (0.3, 0.55), (0.5, 0.2), (0.5, 0.4), (0.9, 0.3)]
    assert _hull(points) == [(0.0, 1.0), (0.2, 0.6), (0.5, 0.2), (1.0, 0.0)]
    found = claimed_tradeoff([Claim(epsilon=1, delta="0.1"), Claim(epsilon=0, delta="0.3")])
    for x, y in found:
        lines = [0.0, 0.9 - math.e * x, (0.9 - x) / math.e, 0.7 - x]
        assert y == pytest.approx(max(lines))
    assert claimed_tradeoff([]) == []
    for learned in (0, 2):  # too few runs give no band
        assert tradeoff_band([1.0, 2.0], [False, True], learned=learned) is None
