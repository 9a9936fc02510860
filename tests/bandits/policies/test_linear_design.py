"""Designs: their stated value against exact rational arithmetic and Kiefer and Wolfowitz."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import fmpq, fmpq_mat

from bandits.actions import Actions, LinearModel
from bandits.policies import linear_design
from bandits.policies.linear_design import (
    Design,
    _certified,
    most_support,
    near_optimal_design,
)
from dpcore.errors import DpcoreError, InvalidParameter
from dpcore.numbers.floating import Floats
from tests.support.dpcore.mutants import mutated


def on_sphere(seed: int, count: int, dimension: int) -> Actions:
    drawn = np.random.default_rng(seed).standard_normal((count, dimension))
    return Actions(drawn / np.sqrt((drawn * drawn).sum(axis=1))[:, None])


def exact_value(held: Floats, weights: Floats) -> Fraction:
    """max x^T V^-1 x, by rational elimination."""

    def rational(value: float) -> fmpq:
        exact = Fraction(value)
        return fmpq(exact.numerator, exact.denominator)

    count, d = held.shape
    rows = [[rational(v) for v in row] for row in held.tolist()]
    pi = [rational(v) for v in weights.tolist()]
    v = fmpq_mat(
        d, d, [sum((pi[i] * rows[i][a] * rows[i][b] for i in range(count)), fmpq(0))
               for a in range(d) for b in range(d)],
    )  # fmt: skip
    inverse = v.inv()
    values = []
    for row in rows:
        x = fmpq_mat(1, d, row)
        found = (x * inverse * x.transpose())[0, 0]
        values.append(Fraction(int(found.p), int(found.q)))
    return max(values)


def spread(actions: Actions, design: Design) -> tuple[Floats, Floats]:
    held = actions.points @ design.basis
    weights = np.zeros(actions.count)
    weights[list(design.support)] = design.weights
    return held, weights


SETS = [(3, 1), (1, 1), (4, 2), (9, 3), (30, 4), (20, 20), (60, 6)]


@pytest.mark.parametrize(("count", "dimension"), SETS)
def test_the_value_is_above_the_exact_one_and_at_most_twice_the_rank(
    count: int, dimension: int
) -> None:
    actions = on_sphere(count, count, dimension)
    design = near_optimal_design(actions, tuple(range(count)))
    truth = exact_value(*spread(actions, design))
    rank = design.rank
    assert rank == min(count, dimension)
    assert Fraction(design.value) >= truth
    assert design.value <= 2 * rank
    assert design.value <= float(truth) * (1 + 1e-9)
    # Kiefer and Wolfowitz: no design has a value below the rank.
    assert truth >= Fraction(rank) * (1 - Fraction(1, 10**9))
    assert len(design.support) <= most_support(rank)
    assert math.fsum(design.weights.tolist()) == pytest.approx(1, abs=1e-12)
    assert (design.weights > 0).all()


def optimal_value(held: Floats, steps: int = 4000) -> float:
    """The least value, by multiplicative updates (Titterington 1978): another way to find it."""
    count, d = held.shape
    weights = np.full(count, 1 / count)
    for _ in range(steps):
        inverse = np.linalg.inv((held * weights[:, None]).T @ held)
        values = ((held @ inverse) * held).sum(axis=1)
        weights *= values / d
    return float(values.max())


@pytest.mark.parametrize("seed", range(4))
def test_random_sets_are_within_twice_the_least_value(seed: int) -> None:
    d = (2, 3, 5, 8)[seed]
    actions = on_sphere(seed, 12 * d, d)
    design = near_optimal_design(actions, tuple(range(actions.count)))
    least = optimal_value(actions.points @ design.basis)
    assert least == pytest.approx(d, rel=0.02)  # Kiefer and Wolfowitz: the least is d
    assert d * (1 - 1e-9) <= design.value <= 2 * least


def test_actions_that_do_not_span_are_worked_in_their_span() -> None:
    plane = (
        on_sphere(1, 40, 3).points
        @ np.linalg.qr(np.random.default_rng(2).standard_normal((8, 3)))[0].T
    )
    actions = Actions(plane)
    design = near_optimal_design(actions, tuple(range(40)))
    assert design.rank == 3
    assert design.value <= 6
    # Nothing of an action lies outside of the basis.
    assert np.abs(plane - plane @ design.basis @ design.basis.T).max() < 1e-12


def test_duplicates_opposites_and_zeros_change_no_value() -> None:
    points = np.array([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 0.5], [0.0, 0.0]])
    design = near_optimal_design(Actions(points), (0, 1, 2, 3, 4))
    assert design.rank == 2
    assert design.value <= 4


def test_one_action_is_played_always() -> None:
    design = near_optimal_design(Actions(np.array([[0.3, 0.4]])), (0,))
    assert (design.support, design.times(7)) == ((0,), (7,))


def test_some_of_the_actions_may_be_active() -> None:
    actions = on_sphere(5, 50, 4)
    active = tuple(range(3, 50, 5))
    assert {*near_optimal_design(actions, active).support} <= {*active}


@pytest.mark.parametrize("scale", [1e-90, 1e-5])
def test_sizes_of_actions_do_not_matter(scale: float) -> None:
    small = Actions(on_sphere(3, 20, 3).points * scale)
    assert near_optimal_design(small, tuple(range(20))).value <= 6


@pytest.mark.parametrize("thin", [1e-3, 1e-5, 1e-7, 3e-9])
def test_actions_that_hardly_leave_a_line_have_a_design(thin: float) -> None:
    actions = Actions(np.array([[1, 0], [0.9, thin], [0.5, 0], [0.7, -thin / 2]]))
    design = near_optimal_design(actions, (0, 1, 2, 3))
    assert design.rank == 2
    assert exact_value(*spread(actions, design)) <= Fraction(design.value) <= 4


def test_actions_too_small_for_floats_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="of size 1e-100 or more"):
        near_optimal_design(Actions(np.eye(2) * 1e-160), (0, 1))


def supports(seed: int, last_bits: int) -> tuple[int, ...]:
    actions = on_sphere(seed, 300, 8)
    bits = np.random.default_rng(last_bits).uniform(-2e-16, 2e-16, actions.points.shape)
    moved = Actions(actions.points * (1 + bits))
    return near_optimal_design(moved, tuple(range(300))).support


def test_last_bits_of_sums_choose_no_action(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processors add in different orders, and actions on a sphere are all of one length."""
    for seed in range(5):
        assert len({supports(seed, last_bits) for last_bits in range(5)}) == 1
    monkeypatch.setattr(linear_design, "_ALIKE", 0.0)
    assert len({supports(0, last_bits) for last_bits in range(5)}) > 1


def test_no_active_action_and_only_zeros_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="active"):
        near_optimal_design(Actions(np.eye(2)), ())
    with pytest.raises(InvalidParameter, match="other than 0"):
        near_optimal_design(Actions(np.zeros((2, 2))), (0, 1))


def test_a_design_that_is_not_good_enough_is_never_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lopsided(held: Floats) -> Floats:
        weights = np.full(len(held), 1e-3 / (len(held) - 1))
        weights[0] = 1 - 1e-3
        return weights

    monkeypatch.setattr(linear_design, "_weights", lopsided)
    with pytest.raises(DpcoreError, match="twice the rank"):
        near_optimal_design(on_sphere(1, 12, 3), tuple(range(12)))


def test_a_wrong_inverse_gives_a_bound_that_still_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is checked by the residual; without that a wrong inverse would pass."""
    real = np.linalg.inv
    monkeypatch.setattr(np.linalg, "inv", lambda matrix: 0.9 * real(matrix))
    bare = mutated(_certified, "values += far / (1 - far) * norm * lengths", "pass")
    for seed in range(5):
        held = np.random.default_rng(seed).standard_normal((9, 3))
        weights = np.full(9, 1 / 9)
        truth = exact_value(held, weights)
        assert Fraction(_certified(held, weights)) >= truth
        assert Fraction(bare(held, weights)) < truth


def test_actions_of_very_different_sizes_get_a_bound_that_holds_or_none() -> None:
    found = []
    for seed in range(8):
        held = np.random.default_rng(seed).standard_normal((6, 4))
        held *= np.array([1.0, 1e-2, 1e-4, 10.0 ** -(2 * seed + 4)])
        weights = np.full(6, 1 / 6)
        value = _certified(held, weights)
        found.append(math.isfinite(value))
        assert value == math.inf or Fraction(value) >= exact_value(held, weights)
    assert found[0]
    assert not found[-1]


@pytest.mark.parametrize(
    ("points", "reason"),
    [
        (np.array([[math.nan, 0.0]]), "finite"),
        (np.array([[math.inf, 0.0]]), "finite"),
        (np.array([[1.0, 1.0]]), "norms"),
        (np.zeros((0, 3)), "1 to 65536"),
        (np.zeros((3, 0)), "1 to 65536"),
        (np.zeros(3), "a table"),
        (np.array([["a"]]), "a table"),
        ([[1.0]], "a table"),
    ],
)
def test_what_is_no_set_of_actions_is_refused(points: Floats, reason: str) -> None:
    with pytest.raises(InvalidParameter, match=reason):
        Actions(points)


@pytest.mark.parametrize(
    ("changed", "name"),
    [({"bound": "1/2"}, "bound"), ({"deviation": 2}, "deviation"), ({"deviation": "nan"}, "devia")],
)
def test_models_out_of_range_are_refused(changed: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidParameter, match=name):
        LinearModel(actions=Actions(np.eye(2)), **{"deviation": "0.1", **changed})


def test_actions_are_equal_where_their_numbers_are() -> None:
    one, two = Actions(np.eye(2)), Actions(np.eye(2))
    assert one == two
    assert hash(one) == hash(two)
    assert str(one) == two.digest
    assert one != Actions(np.eye(2) / 2)
