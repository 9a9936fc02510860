"""Running sums at one guarantee: what each adds, and its error against formulas of its own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from accounting import guarantee
from accounting.budget.continual import CalibratedSum, calibrate_sum, compare_sums
from dpcore import DiscreteGaussian, DiscreteLaplace, InvalidParameter, Relation, Scope
from dpcore.continual import SquareRootSum


def laplace_variance(scale: float) -> float:
    return 1 / (2 * math.sinh(1 / (2 * scale)) ** 2)


def factorised(found: CalibratedSum) -> tuple[float, float]:
    """Mean and largest variance of A C^-1 z, from dense matrices of floats."""
    setting = found.setting
    assert isinstance(setting, SquareRootSum)
    T, noise = setting.horizon, setting.noise
    if isinstance(noise, DiscreteGaussian):
        each = float(noise.sigma_squared)
    else:
        assert isinstance(noise, DiscreteLaplace)
        each = laplace_variance(float(noise.scale))
    C = sum(c * np.eye(T, k=-k) for k, c in enumerate(setting.moves))
    errors = each * ((np.tril(np.ones((T, T))) @ np.linalg.inv(C)) ** 2).sum(axis=1)
    return float(errors.mean()), float(errors.max())


def near(found: CalibratedSum, mean: float, largest: float, rel: float) -> None:
    for ends, expected in ((found.mean, mean), (found.largest, largest)):
        assert ends.lower <= expected * (1 + 1e-12)
        assert expected * (1 - 1e-12) <= ends.upper
        assert float(ends.upper) == pytest.approx(expected, rel=rel)


@pytest.mark.parametrize("horizon", [1, 6, 64, 100])
def test_pure_errors_are_those_of_the_blocks_and_of_the_matrices(horizon: int) -> None:
    tree, doubling, root = compare_sums(horizon=horizon, epsilon="1/2")
    levels = math.floor(math.log2(horizon)) + 1
    ones = [t.bit_count() for t in range(1, horizon + 1)]
    each = laplace_variance(2 * levels)
    near(tree, each * sum(ones) / horizon, each * max(ones), 1e-9)
    blocks = [math.floor(math.log2(t)) + 1 for t in range(1, horizon + 1)]
    each = laplace_variance(2)
    near(doubling, each * sum(blocks) / horizon, each * max(blocks), 1e-9)
    near(root, *factorised(root), 0.05)
    assert (tree.behind, root.behind) == (0, 0)
    assert doubling.behind == max(t - 2 ** int(math.log2(t)) for t in range(1, horizon + 1))


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_each_keeps_the_promise_and_one_step_less_is_shown_not_to(delta: str) -> None:
    for found in compare_sums(horizon=64, epsilon=1, delta=delta):
        assert guarantee(found.setting).epsilon(delta).upper <= 1
        calibration = found.calibration
        assert calibration.sensitivity == found.setting.sensitivity
        assert calibration.found_less is not None
        limit = calibration.delta or calibration.epsilon
        assert calibration.found_less.lower is not None
        assert calibration.found_less.lower > limit


def test_with_gaussian_noise_the_square_root_beats_the_tree_and_with_laplace_it_loses() -> None:
    tree, doubling, root = compare_sums(horizon=256, epsilon=1, delta="1e-6")
    assert root.mean.upper * 4 < tree.mean.lower
    near(root, *factorised(root), 0.01)
    assert isinstance(doubling.setting.noise, DiscreteLaplace)  # one draw: pure noise is less
    tree, _, root = compare_sums(horizon=256, epsilon=1)
    assert tree.mean.upper < root.mean.lower


def test_items_and_scope_enter_the_noise() -> None:
    items: dict[str, Any] = {"horizon": 8, "epsilon": 1, "low": -1, "high": "1/2", "unit": "1/4"}
    assert calibrate_sum("tree", **items).setting.noise == DiscreteLaplace(scale=24)
    scope = Scope(relation=Relation.ADD_REMOVE)
    less = calibrate_sum("tree", **items, scope=scope)
    assert less.setting.noise == DiscreteLaplace(scale=16)
    near(less, laplace_variance(16) / 16 * 13 / 8, laplace_variance(16) / 16 * 3, 1e-9)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"mechanism": "trie"}, "mechanism"),
        ({"horizon": 0}, "horizon"),
        ({"horizon": 2**14 + 1}, "horizon"),
        ({"epsilon": 0}, "epsilon"),
        ({"delta": 1}, "delta"),
        ({"delta": "nan"}, "delta"),
        ({"high": 0}, "high"),
    ],
)
def test_bad_arguments_are_refused_by_name(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        calibrate_sum(**{"mechanism": "tree", "horizon": 4, "epsilon": 1, **change})
    assert refused.value.argument == named
