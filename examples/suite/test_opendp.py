r"""Tests of OpenDP's mechanisms: each satisfies its proven guarantee and violates a stronger one.

OpenDP has its own entropy: ``--dp-seed`` repeats the dataset of each run, not the noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from audit.testing import Refuted
from audit.testing.pytest_plugin import Auditor
from dpcore import DiscreteGaussian, DiscreteLaplace

opendp = pytest.importorskip("opendp.prelude", reason="opendp: pip install 'dpcore[peers]'")
opendp.enable_features("contrib")

VECTORS = opendp.vector_domain(opendp.atom_domain(T=int))
LAPLACE = opendp.m.make_laplace(VECTORS, opendp.l1_distance(T=int), scale=1.0)
GAUSSIAN = opendp.m.make_gaussian(VECTORS, opendp.l2_distance(T=float), scale=1.0)
COIN = opendp.m.make_randomized_response_bool(prob=0.75)


def each(measurement: Any, value: int, n: int) -> np.ndarray:
    r"""Return n releases of ``value``: every entry of a vector of n copies has its own noise."""
    return np.array(measurement([value] * n) if n else [], dtype=np.int64)


def laplace(value: int, n: int, rng: np.random.Generator) -> np.ndarray:
    r"""Return n releases of ``value`` with discrete Laplace noise of scale 1."""
    del rng
    return each(LAPLACE, value, n)


def gaussian(value: int, n: int, rng: np.random.Generator) -> np.ndarray:
    r"""Return n releases of ``value`` with discrete Gaussian noise of sigma = 1."""
    del rng
    return each(GAUSSIAN, value, n)


def coin(bit: bool) -> bool:  # noqa: FBT001 - the dataset is a truth value
    r"""Return the bit with probability 3/4, and its complement otherwise."""
    answer: bool = COIN(bit)
    return answer


@pytest.mark.dp(epsilon=1, pair=(0, 1))
def test_laplace_satisfies_its_epsilon(dp: Auditor) -> None:
    assert LAPLACE.map(1) == 1.0
    dp.audit(laplace)


@pytest.mark.dp(epsilon="0.7", pair=(0, 1), runs=40_000)
def test_laplace_violates_a_smaller_epsilon(dp: Auditor) -> None:
    with pytest.raises(Refuted):
        dp.audit(laplace)


@pytest.mark.dp(runs=50_000)
def test_laplace_noise_has_its_law(dp: Auditor) -> None:
    dp.fits(lambda n, rng: laplace(0, n, rng), DiscreteLaplace(scale=1))


# P(X >= 2) - e^1.5 P(X >= 3) = 0.03808... for the discrete Gaussian of sigma = 1.
@pytest.mark.dp(epsilon="1.5", delta="0.0381", pair=(0, 1))
def test_gaussian_satisfies_a_point_of_its_curve(dp: Auditor) -> None:
    dp.audit(gaussian)


@pytest.mark.dp(runs=50_000)
def test_gaussian_noise_has_its_law(dp: Auditor) -> None:
    dp.fits(lambda n, rng: gaussian(0, n, rng), DiscreteGaussian(sigma_squared=1))


# The true bit is returned with probability 3/4: epsilon = ln 3 = 1.0986...
@pytest.mark.dp(epsilon="1.0987", pair=(False, True), runs=5_000)
def test_randomised_response_satisfies_its_epsilon(dp: Auditor) -> None:
    dp.audit(coin)
