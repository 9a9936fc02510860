r"""Tests of `dpcore.numbers.arrays`: e^(-x) within its bound, error-free products and sums."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mp, mpf

from dpcore.numbers.arrays import (
    EXP_NEG_ERROR,
    LOG1P_ERROR,
    Split,
    compensated_sum,
    exp_neg,
    log1p,
    pair_of,
    product,
    two_product,
    two_sum,
)
from tests.support.dpcore.mutants import mutated

WHOLE = st.integers(-(2**63), 2**63 - 1)
MODERATE = st.floats(1e-30, 1e30).map(float) | st.floats(-1e30, -1e-30)


def floats(*values: float) -> Any:
    return np.array(values, dtype=np.float64)


def exact(pair: Split) -> list[Fraction]:
    return [Fraction(float(h)) + Fraction(float(l)) for h, l in zip(*pair, strict=True)]


def exp_errors(places: list[float], function: Any = exp_neg) -> float:
    r"""Return the largest relative error of e^(-x) over its stated bound."""
    found = function(np.array(places)).tolist()
    with mp.workdps(40):
        errors = [abs(v / mp.exp(-mpf(x)) - 1) for x, v in zip(places, found, strict=True)]
        return float(max(errors)) / EXP_NEG_ERROR


def grid() -> list[float]:
    # The borders of the table's cells, where the remaining argument is largest or 0.
    found = [0.0, 5e-324, 1e-300, 1e-17, 1e-8, 699.999, 700.0]
    for cell in (*range(1, 200), *range(200, 700 * 64, 997)):
        edge = cell / 64
        found += [math.nextafter(edge, 0), edge, math.nextafter(edge, 1e9), edge + 1 / 128]
    return [x for x in found if x <= 700]


def test_exp_neg_is_within_its_bound_at_every_cell_border() -> None:
    random = np.random.default_rng(1).uniform(0, 700, 300).tolist()
    assert exp_errors([*grid(), *random]) <= 1
    # A shorter series, and a table of rounded arguments.
    short = ("series = rest * (-1 / 5040) + 1 / 720", "series = rest * 0.0")
    moved = ("rest = clipped - cell / _STEPS", "rest = (x - cell / 63.9999999)")
    for edit in (short, moved):
        assert exp_errors(grid(), mutated(exp_neg, *edit)) > 1


def test_exp_neg_stays_in_its_range() -> None:
    far = exp_neg(floats(700, 720, 745, 745.0000001, 746, 1e4, 1e300, math.inf))
    assert np.all(far >= 0)
    assert np.all(far <= math.exp(-699))
    assert far[3:].tolist() == [0] * 5
    near = exp_neg(floats(0, 5e-324))
    assert near.tolist() == [1, 1]


@given(MODERATE, MODERATE)
@example(1 + 2.0**-52 + 2.0**-30, 1 + 2.0**-52 + 2.0**-30)  # wrong without the last term
def test_sums_and_products_of_two_floats_are_exact(a: float, b: float) -> None:
    assert exact(two_sum(floats(a), floats(b))) == [Fraction(a) + Fraction(b)]
    assert exact(two_product(floats(a), floats(b))) == [Fraction(a) * Fraction(b)]


@given(st.fractions(min_value=Fraction(1, 10**30), max_value=10**30))
def test_a_rational_is_a_pair_of_floats_to_a_hundred_bits(x: Fraction) -> None:
    (near,) = exact(pair_of(x))
    assert abs(near - x) <= x / 2**105


@given(WHOLE, st.fractions(min_value=Fraction(1, 10**13), max_value=10**13))
@example(2**62 + 1, Fraction(1, 3))  # wrong in plain floats
def test_products_of_pairs_keep_a_hundred_bits(n: int, x: Fraction) -> None:
    pair = pair_of(np.array([n], dtype=np.int64))
    assert exact(pair) == [n]
    (near,) = exact(product(pair, pair_of(x)))
    assert abs(near - n * x) <= abs(n * x) / 2**100
    (near,) = exact(product(pair, pair))
    assert abs(near - n * n) <= Fraction(n * n) / 2**100


def log_errors(places: list[float], function: Any = log1p) -> float:
    r"""Return the largest relative error of log(1 + x) over its stated bound."""
    found = function(np.array(places)).tolist()
    with mp.workdps(40):
        errors = [
            abs(v / mp.log1p(mpf(x)) - 1) for x, v in zip(places, found, strict=True) if x != 0
        ]
        return float(max(errors)) / LOG1P_ERROR


def log_places() -> list[float]:
    rng = np.random.default_rng(7)
    near = [-0.25, -0.2500001, 0.5, 0.5000001, -0.2929, -0.2928, 0.4142, 1.0, -0.5, -0.75]
    wide = [*10 ** rng.uniform(-300, 300, 300), *-(10 ** rng.uniform(-300, -0.001, 300))]
    return [float(x) for x in (*near, *wide, *rng.uniform(-0.99, 4, 300))]


def test_log1p_is_within_its_bound() -> None:
    assert log_errors(log_places()) <= 1
    assert log1p(np.array([0.0])).tolist() == [0.0]
    # Mutants: a shorter series, and the plain sum 1 + x for small x.
    assert log_errors(log_places(), mutated(log1p, "range(23, 2, -2)", "range(15, 2, -2)")) > 1
    assert log_errors(log_places(), mutated(log1p, "(x >= -0.25)", "(x >= 0.4)")) > 1


@given(st.lists(MODERATE, min_size=1, max_size=40))
def test_compensated_sums_are_within_their_bound(values: list[float]) -> None:
    found, error = compensated_sum(np.array(values))
    exact_sum = sum((Fraction(x) for x in values), Fraction(0))
    assert abs(Fraction(found) - exact_sum) <= Fraction(error)
