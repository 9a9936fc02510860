"""Tests of `complex_intervals`, floats with error bounds: unit circle and atoms, by mpmath."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.numerical_composition import error_bounds as contour_sum
from accounting.numerical_composition.complex_intervals import (
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
from accounting.numerical_composition.error_bounds import Window
from accounting.numerical_composition.factor import Grid
from dpcore.numbers.enclosure import precision
from tests.support.accounting.brute_force import real
from tests.support.accounting.small_laws import listed


@given(st.lists(st.integers(min_value=0, max_value=2**64 - 1), min_size=1, max_size=50))
def test_circle_is_as_near_as_it_says(turns: list[int]) -> None:
    found = circle(np.array(turns, dtype=np.uint64))
    with mpmath.workdps(40):
        for turn, value in zip(turns, found.tolist(), strict=True):
            truth = mpmath.expjpi(mpmath.mpf(turn) / 2**63)
            assert abs(mpmath.mpc(value) - truth) <= CIRCLE


@given(
    st.integers(min_value=0, max_value=2**128 - 1), st.integers(min_value=0, max_value=2**32 - 1)
)
def test_multiples_of_a_turn(turn: int, count: int) -> None:
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
def test_discs_hold_powers(values: list[complex], exponent: int) -> None:
    start = Discs(np.array(values), np.full(len(values), 2.0**-40))
    found = start.power(exponent)
    with mpmath.workdps(80):
        for value, centre, radius in zip(values, found.centres, found.radii, strict=True):
            for turn in (1, 1j, -1, -1j):
                truth = (mpmath.mpc(value) + turn * mpmath.mpf(2) ** -40) ** exponent
                assert abs(mpmath.mpc(complex(centre)) - truth) <= mpmath.mpf(float(radius))


@settings(max_examples=60)
@given(
    st.lists(st.floats(min_value=-1, max_value=1), min_size=1, max_size=70),
    st.integers(min_value=0, max_value=60),
)
def test_a_sum_is_as_near_as_it_says(values: list[float], scale: int) -> None:
    # Every value, its opposite and a small value: all but the small ones cancel.
    spread = [x * 2.0**scale for x in values]
    listed = np.array([*spread, *values, *[-x for x in spread]])
    total, error = Discs(listed.astype(np.complex128), np.zeros(len(listed))).real_sum()
    truth = sum(map(Fraction, listed.tolist()), Fraction(0))
    assert abs(Fraction(total) - truth) <= Fraction(error)
    assert error <= 4 * UNIT * abs(float(truth)) + 2.0**-80 * max(map(abs, listed)) + 2.0**-390


def test_adding_one_by_one_is_not_as_near() -> None:
    values = np.array([1e16, 1.0, -1e16] * 1000)
    total, error = Discs(values.astype(np.complex128), np.zeros(3000)).real_sum()
    assert abs(total - 1000) <= error < 1e-9
    assert abs(float(np.cumsum(values)[-1]) - 1000) > error


def test_the_gaussian_of_a_window_is_as_near_as_it_says() -> None:
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


def test_a_product_of_matrices_may_use_three_real_ones() -> None:
    turns = np.exp(1j * np.random.default_rng(1).uniform(0, 6.3, (2, 20_000)))
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
    found = Discs(values, np.zeros(1000)).times(Discs(values, np.zeros(1000)))
    with mpmath.workdps(40):
        worst = max(
            abs(mpmath.mpc(complex(v)) ** 2 - mpmath.mpc(complex(c)))
            for v, c in zip(values, found.centres, strict=True)
        )
    assert UNIT < worst <= found.radii.max() <= 1.01 * PRODUCT


def test_values_and_cover_of_atoms_hold() -> None:
    law = listed(("1/2", "1/4"), ("1/3", "-2/7"), ("1/6", "5/3"))
    tilt = Fraction(3, 2)
    grid = Grid(step=0.3125, depth=4, blocks=3000)
    with precision(128):
        factor = law.factor(tilt)
        sampled = factor.on(grid)
    blocks = np.array([0, 1, 130, 2999])
    values, cover = sampled.values(blocks), sampled.cover(np.arange(3000))[blocks]
    with mpmath.workdps(40), precision(128):
        scale = mpmath.mpf(str(factor.log_scale.exp().mid().str(40, radius=False)))
        for at, y in enumerate(grid.frequencies(blocks).tolist()):
            truth = sum(
                real(mass) * mpmath.exp(real(loss) * mpmath.mpc(1.5, y)) for mass, loss in law.atoms
            )
            truth /= scale
            assert abs(mpmath.mpc(complex(values.centres[at])) - truth) <= values.radii[at]
            assert abs(truth) <= cover[at // 16]
    assert values.radii.max() < 1e-12
