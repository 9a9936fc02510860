r"""Tests of `accounting.pld_composition.discrete_factor` against mpmath, and mutants."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from accounting.pld.discretise_round import Focus, listed_above, listed_below
from accounting.pld.finite_pld import Listing
from accounting.pld.noise_density import NormalDensity
from accounting.pld.real_cells import RealPair
from accounting.pld_composition import contour_sum, discrete_factor
from accounting.pld_composition.complex_intervals import (
    CIRCLE,
    PRODUCT,
    UNIT,
    Discs,
    circle,
    fixed_point,
    gamma,
    multiples,
    product_error,
)
from accounting.pld_composition.contour_sum import Window
from accounting.pld_composition.discrete_factor import DiscreteFactor, tilted
from accounting.pld_composition.factor import Grid
from dpcore.numbers.enclosure import precision
from tests.day_and_nightly import by_day
from tests.support.accounting.brute_force import real
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
    discs, places = found.values(grid, blocks), grid.frequencies(blocks)
    errors = []
    with mp.workdps(40):
        for i in rng.integers(0, len(places), 5).tolist():
            error = abs(truth(found, law, float(places[i])) - complex(discs.centres[i]))
            errors.append(float(error) / float(discs.radii[i]))
    return max(errors)


@by_day(1)
@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: f"step {grid.step}")
def test_values_lie_in_their_discs(grid: Grid) -> None:
    # Few atoms are summed one by one; losses of +-60 wrap around the circle on coarse grids.
    few = Listing(np.linspace(-0.7, 3.1, 20), np.full(20, 0.05), 0.0)
    around = Listing(np.linspace(-60.0, 60.0, 3000), np.exp(-np.linspace(0, 602, 3000)), 0.0)
    for law in (listing(), listing(above=False), few, around):
        assert worst(law, grid) <= 1
    assert factor().values(GRIDS[0], np.arange(20)).radii.max() < 1e-12


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("turns", "np.where(negative, ~above, above)", "above"),
        ("turns", "low = low + below", "low = below"),
        ("_kernels", "found[_SIDE - i] * fall", "found[_SIDE - i]"),
        ("_kernels", "found[_SIDE - 2 + i] * rise", "found[_SIDE - 2 + i] * fall"),
        ("_kernel", "2 * arb.pi() ** 2", "arb.pi() ** 2"),
        ("_dft", "found *= _twiddles(radix, rest)", "pass"),
        ("summed_by_label", "within % 4 == 0", "within % 4 == 1"),
    ],
)
def test_broken_values_are_detected(
    name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = mutated(getattr(discrete_factor, name), old, new)
    monkeypatch.setattr(discrete_factor, name, broken)
    try:
        assert any(worst(listing(), grid) > 1 for grid in GRIDS)
    except (IndexError, ValueError):
        assert name == "summed_by_label"


def covered(grid: Grid, cover: Any = DiscreteFactor.cover) -> bool:
    found = factor()
    blocks = np.unique(np.random.default_rng(3).integers(0, grid.blocks, 12))
    places = (blocks[:, None] + np.linspace(0, 1, 17)) * grid.length
    sums = np.exp(1j * places[..., None] * found.losses) @ found.weights
    return bool((np.abs(sums).max(axis=1) <= cover(found, grid, blocks) + 1e-9).all())


def test_covers_bound_the_values_on_whole_blocks() -> None:
    assert all(map(covered, GRIDS))
    # The mutant: the cover of the middle of a block.
    assert not covered(GRIDS[0], mutated(DiscreteFactor.cover, "+ 0.5 * grid", "+ 0.0 * grid"))


def test_the_moment_at_another_tilt_is_an_upper_bound() -> None:
    found, law = factor(), listing()
    for lift in (Fraction(1), Fraction(1, 8)):
        c = mpf(5) * (1 + mpf(lift.numerator) / lift.denominator)
        with mp.workdps(30):
            pairs = zip(law.masses.tolist(), law.losses.tolist(), strict=True)
            moment = mp.log(mp.fsum(mpf(m) * mp.exp(c * mpf(l)) for m, l in pairs))
            bound = mpf(found.log_moment(lift).str(30, radius=False))
        assert moment <= bound <= moment + mpf(10) ** -11


# -- floats with error bounds ----------------------------------------------------------------------


@given(st.lists(st.integers(min_value=0, max_value=2**64 - 1), min_size=1, max_size=50))
def test_circle_is_within_its_stated_error(turns: list[int]) -> None:
    found = circle(np.array(turns, dtype=np.uint64))
    with mpmath.workdps(40):
        for turn, value in zip(turns, found.tolist(), strict=True):
            truth = mpmath.expjpi(mpmath.mpf(turn) / 2**63)
            assert abs(mpmath.mpc(value) - truth) <= CIRCLE


@given(
    st.integers(min_value=0, max_value=2**128 - 1), st.integers(min_value=0, max_value=2**32 - 1)
)
def test_multiples_of_a_turn_are_exact(turn: int, count: int) -> None:
    with precision(256):
        high, low = fixed_point([arb(turn)])
    found = int(multiples(high, low, np.array([count]))[0])
    exact = (turn * count % 2**128) >> 64
    assert (exact - found) % 2**64 <= 2


@settings(max_examples=50)
@given(
    st.lists(st.complex_numbers(max_magnitude=1.5), min_size=1, max_size=5),
    st.integers(min_value=1, max_value=300),
)
def test_discs_contain_powers(values: list[complex], exponent: int) -> None:
    start = Discs(np.array(values), np.full(len(values), 2.0**-40))
    found = start.power(exponent)
    with mpmath.workdps(80):
        for value, centre, radius in zip(values, found.centres, found.radii, strict=True):
            for turn in (1, 1j, -1, -1j):
                truth = (mpmath.mpc(value) + turn * mpmath.mpf(2) ** -40) ** exponent
                assert abs(mpmath.mpc(complex(centre)) - truth) <= mpmath.mpf(float(radius))


def exactly(values: Any) -> Discs:
    return Discs(values.astype(np.complex128), np.zeros(len(values)))


@settings(max_examples=60)
@given(
    st.lists(st.floats(min_value=-1, max_value=1), min_size=1, max_size=70),
    st.integers(min_value=0, max_value=60),
)
def test_a_sum_is_within_its_stated_error(values: list[float], scale: int) -> None:
    # Every value, its opposite and a small value: all but the small ones cancel.
    spread = [x * 2.0**scale for x in values]
    listed = np.array([*spread, *values, *[-x for x in spread]])
    total, error = exactly(listed).real_sum()
    truth = sum(map(Fraction, listed.tolist()), Fraction(0))
    assert abs(Fraction(total) - truth) <= Fraction(error)
    assert error <= 4 * UNIT * abs(float(truth)) + 2.0**-80 * max(map(abs, listed)) + 2.0**-390


def test_plain_summation_has_a_larger_error() -> None:
    values = np.array([1e16, 1.0, -1e16] * 1000)
    total, error = exactly(values).real_sum()
    assert abs(total - 1000) <= error < 1e-9
    assert abs(float(np.cumsum(values)[-1]) - 1000) > error


def test_the_gaussian_kernel_is_within_its_stated_error() -> None:
    window = Window(
        epsilon=1.0,
        tilt=1.0,
        smoothing=0.0004119873046875,
        lift=Fraction(1),
        grid=Grid(step=0.3125, depth=4, blocks=1 << 20),
        budget=1.0,
    )
    indices = np.array([0, 1, 2, 77, 7768, 40000, 200000, 290000, 300000, 10_000_000])
    found = contour_sum._gaussian(window, indices)
    rate = Fraction(window.smoothing) ** 2 * Fraction(window.grid.step) ** 2 / 2
    with mpmath.workdps(40):
        for j, centre, radius in zip(indices.tolist(), found.centres, found.radii, strict=True):
            truth = mpmath.exp(-real(rate * j * j)) * (2 if j else 1)
            off = abs(mpmath.mpc(complex(centre)) - truth)
            most = (truth * 2.0**-46 + mpmath.mpf(2) ** -440) * (1 + real(rate * j * j))
            assert off <= mpmath.mpf(float(radius)) <= most


def test_a_complex_matrix_product_may_use_three_real_products() -> None:
    turns = np.exp(1j * np.random.default_rng(1).uniform(0, 6.3, (2, 5_000)))
    (p, q), (r, s) = ((z.real, z.imag) for z in turns)
    first, second, third = p * r, q * s, (p + q) * (r + s)
    exact = [[Fraction(x) for x in part.tolist()] for part in (p, q, r, s)]
    worst = max(
        math.hypot(
            float(Fraction(real_part) - (a * c - b * d)),
            float(Fraction(imaginary) - (a * d + b * c)),
        )
        for real_part, imaginary, a, b, c, d in zip(
            (first - second).tolist(), (third - first - second).tolist(), *exact, strict=True
        )
    )
    # Four products, each with its own rounding, have a smaller error.
    assert math.sqrt(2) * gamma(3) < worst <= product_error(1)


def test_the_error_of_a_product_is_needed() -> None:
    values = np.exp(1j * np.linspace(0.1, 3, 1000))
    found = exactly(values).times(exactly(values))
    with mpmath.workdps(40):
        worst = max(
            abs(mpmath.mpc(complex(v)) ** 2 - mpmath.mpc(complex(c)))
            for v, c in zip(values, found.centres, strict=True)
        )
    assert UNIT < worst <= found.radii.max() <= 1.01 * PRODUCT
