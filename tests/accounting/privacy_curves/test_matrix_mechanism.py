"""Tests of `matrix_mechanism`: rounds of one Gaussian, running sums, dp-accounting."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from accounting import PrivacyCurve, compose, guarantee
from accounting.descriptions.real_noise import Gaussian, Laplace
from accounting.interop.to_dp_accounting import to_dp_event
from accounting.privacy_curves.matrix_mechanism import MatrixMechanism
from accounting.privacy_curves.real_noise_curve import RealCurve
from accounting.strategy_matrices import Banded, Dense, Participation, Tree
from dpcore import DiscreteGaussian, DiscreteLaplace, Relation, Scope, Sensitivity, Skellam
from dpcore.continual_sums import ContinualSum, DoublingSum, SquareRootSum, TreeSum
from tests.day_and_nightly import by_day
from tests.support.accounting.bound_ends import ends
from tests.support.accounting.brute_force import excess, normal_delta, product, shifted
from tests.support.dpcore.refusals import refusal


def test_the_curve_of_correlated_noise_is_that_of_one_gaussian() -> None:
    rows: list[list[int | str]] = [[1, 0, 0], ["1/2", 1, 0], ["3/8", "1/2", 1]]
    training = MatrixMechanism(
        strategy=Dense(rounds=3, rows=rows),
        participation=Participation(most=2, apart=2),
        noise=Gaussian(sigma=2),
        sensitivity=Sensitivity.l2_squared(2),
    )
    # Rounds 0 and 2: C u = (1, 1/2, 11/8).
    squared = 2 * (1 + 0.25 + (11 / 8) ** 2) / 4
    curve = guarantee(training)
    for epsilon in (0, 1, 3):
        found = ends(curve.delta(epsilon))
        assert found.upper_float == pytest.approx(float(normal_delta(squared, epsilon)), rel=1e-12)
        assert found.lower <= found.upper
    assert float(curve.zcdp()) == pytest.approx(squared / 2, rel=1e-12)
    assert float(curve.renyi(3)) == pytest.approx(3 * squared / 2, rel=1e-12)
    assert curve.epsilon(0).lower == float("inf")
    assert curve.epsilon(1).upper == 0
    assert "floating-point" in curve.epsilon("1e-6").assumptions[0]
    tree = MatrixMechanism(strategy=Tree(rounds=100), noise=Gaussian(sigma=10))
    other = RealCurve(noise=Gaussian(sigma=5), sensitivity=1)
    total = compose(guarantee(tree), (other, 2)).delta(1)
    assert total.upper_float == pytest.approx(float(normal_delta(7 / 100 + 2 / 25, 1)), rel=1e-9)


def test_integer_noise_has_zcdp_and_an_upper_bound_on_epsilon() -> None:
    r"""rho of the tree equals that of its own guarantee; epsilon is an upper bound."""
    noise = DiscreteGaussian(sigma_squared=400)
    tree = MatrixMechanism(strategy=Tree(rounds=100), noise=noise)
    exact = guarantee(TreeSum(horizon=100, noise=noise))
    found = guarantee(tree)
    assert found.zcdp().upper == found.zcdp().lower == exact.zcdp().upper == Fraction(7, 800)
    assert found.epsilon("1e-6").lower is None
    assert exact.epsilon("1e-6").upper <= found.epsilon("1e-6").upper
    twice = MatrixMechanism(
        strategy=Tree(rounds=100), participation=Participation(most=2, apart=64), noise=noise
    )
    # Rounds 0 and 64 share no block: they are in 7 and 6 of them.
    assert guarantee(twice).zcdp().upper == Fraction(13, 800)
    total = compose((found, 3), PrivacyCurve(noise=noise, sensitivity=1))
    assert total.epsilon("1e-6").upper > found.epsilon("1e-6").upper


def test_a_tree_event_of_dp_accounting_agrees() -> None:
    dp = pytest.importorskip("dp_accounting")
    training = MatrixMechanism(
        strategy=Banded(rounds=100, bands=10),
        participation=Participation(most=3, apart=20),
        noise=Gaussian(sigma=5),
    )
    event = to_dp_event(guarantee(training))
    assert isinstance(event, dp.GaussianDpEvent)
    alone = RealCurve(noise=Gaussian(sigma=event.noise_multiplier), sensitivity=1).epsilon("1e-6")
    found = guarantee(training).epsilon("1e-6").upper_float
    assert found <= alone.upper_float < found * (1 + 1e-9)
    integers = MatrixMechanism(strategy=Tree(rounds=4), noise=DiscreteGaussian(sigma_squared=9))
    said = to_dp_event(guarantee(integers))
    assert isinstance(said, dp.ZCDpEvent)
    assert Fraction(1, 6) <= Fraction(said.rho) < Fraction(1, 6) * (1 + Fraction(1, 10**15))


def test_bad_input_is_refused() -> None:
    tree, noise = Tree(rounds=4), Gaussian(sigma=1)
    cases: list[dict[str, Any]] = [
        {"strategy": "tree", "noise": noise},
        {"strategy": tree, "noise": Laplace(scale=1)},
        {"strategy": tree, "noise": noise, "participation": 2},
        {"strategy": tree, "noise": noise, "sensitivity": Sensitivity.l1(2)},
        {"strategy": tree, "noise": noise, "scope": "replace"},
        {"strategy": Banded(rounds=4), "noise": DiscreteGaussian(sigma_squared=4)},
    ]
    for given in cases:
        refusal(partial(MatrixMechanism, **given))


# -- guarantees of running sums --------------------------------------------------------------------


@by_day(1)
@pytest.mark.parametrize(
    ("setting", "reach"),
    [
        (TreeSum(horizon=3, noise=DiscreteLaplace(scale=2)), 70),
        (TreeSum(horizon=2, noise=DiscreteGaussian(sigma_squared=9)), 40),
        (SquareRootSum(horizon=2, grid=16, noise=DiscreteGaussian(sigma_squared=400)), 130),
        (TreeSum(horizon=3, noise=Skellam(variance=9)), 50),
    ],
)
def test_delta_is_the_sum_over_all_outcomes(setting: ContinualSum, reach: int) -> None:
    mass = {k: setting.noise.pmf(k) for k in range(-reach, reach + 1)}
    world = product(shifted(mass, step) for step in setting.moves)
    for epsilon in (Fraction(1, 4), Fraction(3, 4)):
        found, truth = guarantee(setting).delta(epsilon, "1e-9"), excess(world, math.exp(epsilon))
        assert float(found.upper) == pytest.approx(float(truth), rel=1e-8)


@pytest.mark.parametrize("horizon", [1, 4, 5, 1024])
def test_the_largest_loss_of_a_tree_is_the_sum_over_its_levels(horizon: int) -> None:
    """Chan, Shi and Song have scale log2(T)/epsilon: at T = 4 that gives 3/2 of epsilon."""
    levels = len(range(horizon.bit_length()))
    tree = TreeSum(horizon=horizon, noise=DiscreteLaplace(scale=levels), high=3)
    assert guarantee(tree).pure().upper == 3
    assert guarantee(DoublingSum(horizon=horizon, noise=DiscreteLaplace(scale=1))).pure().upper == 1
    short = TreeSum(horizon=4, noise=DiscreteLaplace(scale=2))
    assert guarantee(short).pure().lower == Fraction(3, 2)


def test_the_guarantee_has_the_scope_of_the_stream_and_a_running_stream_has_none() -> None:
    scope, noise = Scope(relation=Relation.ADD_REMOVE), DiscreteLaplace(scale=2)
    both = guarantee(TreeSum(horizon=1, noise=noise, low=-1, scope=scope))
    assert (both.scope, both.pure().upper) == (scope, Fraction(1, 2))
    assert guarantee(TreeSum(horizon=1, noise=noise, low=-1)).pure().upper == 1
    stream: Any = TreeSum(horizon=9, noise=noise).start()
    assert "mechanism" in refusal(lambda: guarantee(stream))
