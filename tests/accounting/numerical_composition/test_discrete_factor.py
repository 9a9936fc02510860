r"""Tests of `numerical_composition.discrete_factor` against mpmath; mutants must fail."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from mpmath import mp, mpf

from accounting.numerical_composition import discrete_factor, nonuniform_fft
from accounting.numerical_composition.discrete_factor import (
    DiscreteFactor,
    DiscreteOnGrid,
    tilted,
    turns,
)
from accounting.numerical_composition.factor import Grid
from accounting.pld.loss_atoms import Listing
from accounting.pld.loss_table import Focus
from accounting.pld.noise_density import NormalDensity
from accounting.pld.pessimistic_discretisation import listed_above, listed_below
from accounting.pld.real_cells import RealPair
from tests.effort import by_day
from tests.support.dpcore.mutants import mutated

PAIR = RealPair.sampled(NormalDensity(Fraction(1)), Fraction(1, 20))
GRIDS = (
    Grid(step=0.15625, depth=5, blocks=3000),
    Grid(step=3.0, depth=2, blocks=900),
    Grid(step=0.0009765625, depth=1, blocks=50),
    Grid(step=0.001953125, depth=1, blocks=1 << 28),
)


TILT = Fraction(5)


@cache
def listing(*, above: bool = True) -> Listing:
    edges = PAIR.edges(Focus(float(TILT)), 160)
    return (listed_above if above else listed_below)((1.0, PAIR.cells(edges)))


def factor() -> DiscreteFactor:
    return tilted(listing(), TILT)


def truth(found: DiscreteFactor, law: Listing, frequency: float) -> Any:
    r"""Return the whole sum over S, including omitted atoms."""
    scale = mp.exp(mpf(found.log_scale.str(40, radius=False)))
    z = int(TILT) + 1j * mpf(frequency)
    pairs = zip(law.masses.tolist(), law.losses.tolist(), strict=True)
    return mp.fsum(mpf(m) * mp.exp(z * mpf(l)) for m, l in pairs) / scale


def worst(law: Listing, grid: Grid) -> float:
    r"""Return the largest error of some values, over the radius."""
    rng, found = np.random.default_rng(1), tilted(law, TILT)
    blocks = np.unique(np.concatenate(([0, 1], rng.integers(0, grid.blocks, 6))))
    discs, places = found.on(grid).values(blocks), grid.frequencies(blocks)
    errors = []
    with mp.workdps(40):
        for i in rng.integers(0, len(places), 5).tolist():
            error = abs(truth(found, law, float(places[i])) - complex(discs.centres[i]))
            errors.append(float(error) / float(discs.radii[i]))
    return max(errors)


def few() -> Listing:
    r"""A law with so few atoms that they are summed one by one."""
    return Listing(np.linspace(-0.7, 3.1, 20), np.full(20, 0.05), 0.0)


def around() -> Listing:
    r"""Losses that wrap around the circle many times on the coarse grids."""
    return Listing(np.linspace(-60.0, 60.0, 3000), np.exp(-np.linspace(0, 602, 3000)), 0.0)


@by_day(2)
@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: f"step {grid.step}")
def test_values_lie_in_their_discs(grid: Grid) -> None:
    assert worst(listing(), grid) <= 1
    assert worst(listing(above=False), grid) <= 1
    assert worst(few(), grid) <= 1
    assert worst(around(), grid) <= 1


def test_radii_are_small() -> None:
    discs = factor().on(GRIDS[0]).values(np.arange(20))
    assert discs.radii.max() < 1e-12


@pytest.mark.parametrize(
    ("module", "name", "old", "new"),
    [
        (discrete_factor, "turns", "np.where(negative, ~above, above)", "above"),
        (discrete_factor, "turns", "low = low + below", "low = below"),
        (nonuniform_fft, "_kernels", "found[_SIDE - i] * fall", "found[_SIDE - i]"),
        (nonuniform_fft, "_kernels", "found[_SIDE - 2 + i] * rise", "found[_SIDE - 2 + i] * fall"),
        (nonuniform_fft, "_kernel", "2 * arb.pi() ** 2", "arb.pi() ** 2"),
        (nonuniform_fft, "_dft", "found *= _twiddles(radix, rest)", "pass"),
        (nonuniform_fft, "summed_by_label", "within % 4 == 0", "within % 4 == 1"),
    ],
)
def test_broken_values_are_seen(
    module: ModuleType, name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, mutated(getattr(module, name), old, new))
    try:
        assert any(worst(listing(), grid) > 1 for grid in GRIDS)
    except (IndexError, ValueError):
        assert name == "summed_by_label"


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: f"step {grid.step}")
def test_covers_hold_over_whole_blocks(grid: Grid) -> None:
    found = factor()
    blocks = np.unique(np.random.default_rng(3).integers(0, grid.blocks, 12))
    bounds = found.on(grid).cover(blocks)
    places = (blocks[:, None] + np.linspace(0, 1, 17)) * grid.length
    sums = np.exp(1j * places[..., None] * found.losses) @ found.weights
    assert (np.abs(sums).max(axis=1) <= bounds + 1e-9).all()


def test_a_cover_of_middles_alone_is_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = mutated(DiscreteOnGrid.cover, "+ 0.5 * self", "+ 0.0 * self")
    monkeypatch.setattr(DiscreteOnGrid, "cover", broken)
    with pytest.raises(AssertionError):
        test_covers_hold_over_whole_blocks(GRIDS[0])


def test_the_moment_at_a_lift_is_an_upper_bound() -> None:
    found, law = factor(), listing()
    for lift in (Fraction(1), Fraction(1, 8)):
        c = mpf(5) * (1 + mpf(lift.numerator) / lift.denominator)
        with mp.workdps(30):
            pairs = zip(law.masses.tolist(), law.losses.tolist(), strict=True)
            moment = mp.log(mp.fsum(mpf(m) * mp.exp(c * mpf(l)) for m, l in pairs))
            bound = mpf(found.log_moment(lift).str(30, radius=False))
        assert moment <= bound <= moment + mpf(10) ** -11


def test_turns_are_exact_for_losses_of_either_sign() -> None:
    losses = np.array([1e-18, -1e-18, 0.3, -0.3, 27.9, -1e-9, 0.0])
    step = Fraction(5, 32)
    high, low = turns(losses, step)
    with mp.workdps(60):
        for l, a, b in zip(losses.tolist(), high.tolist(), low.tolist(), strict=True):
            exact = mpf(l) * 5 / 32 / (2 * mp.pi)
            found = (mpf(int(a)) + mpf(int(b)) / mpf(2) ** 64) / mpf(2) ** 64
            apart = (found - exact) % 1
            assert min(apart, 1 - apart) < mpf(2) ** -120


def test_a_law_of_one_atom_is_a_pure_phase() -> None:
    one = Listing(np.array([0.25]), np.array([1.0]), 0.0)
    discs = tilted(one, Fraction(3)).on(GRIDS[1]).values(np.array([0, 7]))
    exact = np.exp(0.25j * GRIDS[1].frequencies(np.array([0, 7])))
    assert np.abs(discs.centres - exact).max() < 1e-12
