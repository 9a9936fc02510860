"""Floats with a bound: unit circle, turns, discs, and the phases of atoms, against mpmath."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.atom_factor import Atoms
from accounting.line_discs import (
    CIRCLE,
    PRODUCT,
    UNIT,
    Discs,
    circle,
    fixed_point,
    multiples,
)
from accounting.line_factor import Grid
from dpcore.enclosure import precision
from tests.accounting.brute import real
from tests.accounting.lines import listed


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
        factor = Atoms(listing=law.losses(tilt, 60)).factor(tilt)
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
