"""Tests of guarantees of running sums: sums over outcomes and closed forms."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from accounting import NotDerived, certify, guarantee, verify
from dpcore import DiscreteGaussian, DiscreteLaplace, Relation, Scope, Skellam
from dpcore.continual import ContinualSum, DoublingSum, SquareRootSum, TreeSum
from tests.support.dpcore.refusals import refusal


def hockey_stick(setting: ContinualSum, epsilon: float, reach: int) -> float:
    """Return delta(epsilon) of two noisy numbers, outcome by outcome."""
    one, two = setting.moves
    mass = {k: setting.noise.pmf(k) for k in range(-reach - max(one, two), reach + 1)}
    total = 0.0
    for i in range(-reach, reach + 1):
        for j in range(-reach, reach + 1):
            excess = mass[i] * mass[j] - math.exp(epsilon) * mass[i - one] * mass[j - two]
            total += max(excess, 0.0)
    return total


@pytest.mark.parametrize(
    ("setting", "reach"),
    [
        (TreeSum(horizon=3, noise=DiscreteLaplace(scale=2)), 70),
        (TreeSum(horizon=2, noise=DiscreteGaussian(sigma_squared=9)), 40),
        (SquareRootSum(horizon=2, grid=16, noise=DiscreteGaussian(sigma_squared=400)), 170),
    ],
)
def test_delta_is_the_sum_over_all_outcomes(setting: ContinualSum, reach: int) -> None:
    for epsilon in (Fraction(1, 4), Fraction(3, 4)):
        found = guarantee(setting).delta(epsilon)
        assert float(found.upper) == pytest.approx(
            hockey_stick(setting, float(epsilon), reach), rel=1e-8
        )


@pytest.mark.parametrize("horizon", [1, 4, 5, 1024])
def test_the_largest_loss_is_a_levels_share_for_each_level(horizon: int) -> None:
    """Chan, Shi and Song have scale log2(T)/epsilon: at T = 4 that gives 3/2 of epsilon."""
    levels = len(range(horizon.bit_length()))
    tree = TreeSum(horizon=horizon, noise=DiscreteLaplace(scale=levels), high=3)
    assert guarantee(tree).pure().upper == 3
    assert guarantee(DoublingSum(horizon=horizon, noise=DiscreteLaplace(scale=1))).pure().upper == 1
    short = TreeSum(horizon=4, noise=DiscreteLaplace(scale=2))
    assert guarantee(short).pure().lower == Fraction(3, 2)


def test_zcdp_of_the_square_root_is_half_the_squared_column_over_the_variance() -> None:
    setting = SquareRootSum(horizon=100, noise=DiscreteGaussian(sigma_squared=10**6), high=2)
    column = sum(move**2 for move in setting.moves)
    assert guarantee(setting).zcdp().upper == Fraction(4 * column, 2 * 10**6)


def test_the_guarantee_has_the_scope_of_the_stream() -> None:
    scope = Scope(relation=Relation.ADD_REMOVE)
    noise = DiscreteLaplace(scale=2)
    both = TreeSum(horizon=1, noise=noise, low=-1, scope=scope)
    assert guarantee(both).scope == scope
    assert guarantee(both).pure().upper == Fraction(1, 2)
    assert guarantee(TreeSum(horizon=1, noise=noise, low=-1)).pure().upper == 1


def test_several_levels_of_a_law_without_products_are_refused() -> None:
    skellam = Skellam(variance=100)
    assert guarantee(DoublingSum(horizon=9, noise=skellam)).zcdp().upper > 0
    with pytest.raises(NotDerived, match="several coordinates"):
        guarantee(TreeSum(horizon=9, noise=skellam))
    stream: Any = TreeSum(horizon=9, noise=skellam).start()
    assert "mechanism" in refusal(lambda: guarantee(stream))


def test_a_certificate_of_a_tree_is_checked_by_the_second_path() -> None:
    tree = TreeSum(horizon=1000, noise=DiscreteLaplace(scale=10))
    certificate = certify(tree, deltas=["0"], epsilons=["1/2"])
    assert verify(certificate).holds
    (part,) = certificate.parts
    shorter = {**part, "sensitivity": {"norm": "box", "amount": [1] * 9}}
    assert len(part["sensitivity"]["amount"]) == 10
    assert not verify(replace(certificate, parts=(shorter,))).holds
