r"""Tests of diffprivlib's mechanisms, with one call per run."""

from __future__ import annotations

import numpy as np
import pytest

from audit.testing import Auditable, Refuted
from audit.testing.pytest_plugin import Auditor
from dpcore import DiscreteLaplace

mechanisms = pytest.importorskip(
    "diffprivlib.mechanisms", reason="diffprivlib: pip install 'dpcore[peers]'"
)

# Each run is a Python call, so these tests have fewer runs than those of vectorised mechanisms.
pytestmark = pytest.mark.dp(pair=(0, 1), runs=4_000)


def seed_of(rng: np.random.Generator) -> int:
    r"""A value for diffprivlib's ``random_state``."""
    return int(rng.integers(1 << 31))


def geometric(value: int, n: int, rng: np.random.Generator) -> np.ndarray:
    r"""Return n outputs of the two-sided geometric mechanism at epsilon = 1."""
    mechanism = mechanisms.Geometric(epsilon=1.0, sensitivity=1, random_state=seed_of(rng))
    return np.array([mechanism.randomise(value) for _ in range(n)], dtype=np.int64)


def truncated(value: int, n: int, rng: np.random.Generator) -> np.ndarray:
    r"""Return n outputs of the two-sided geometric mechanism, truncated to 0..3."""
    mechanism = mechanisms.GeometricTruncated(
        epsilon=1.0, sensitivity=1, lower=0, upper=3, random_state=seed_of(rng)
    )
    return np.array([mechanism.randomise(value) for _ in range(n)], dtype=np.int64)


def binary(value: int, n: int, rng: np.random.Generator) -> list[str]:
    r"""Return n outputs of randomised response between two words."""
    mechanism = mechanisms.Binary(epsilon=1.0, value0="no", value1="yes", random_state=seed_of(rng))
    return [mechanism.randomise("yes" if value else "no") for _ in range(n)]


@pytest.mark.dp(epsilon=1)
@pytest.mark.parametrize("mechanism", [geometric, truncated, binary])
def test_a_mechanism_satisfies_its_epsilon(dp: Auditor, mechanism: Auditable) -> None:
    dp.audit(mechanism)


@pytest.mark.dp(epsilon="0.5")
@pytest.mark.parametrize("mechanism", [geometric, binary])
def test_a_mechanism_violates_a_smaller_epsilon(dp: Auditor, mechanism: Auditable) -> None:
    with pytest.raises(Refuted):
        dp.audit(mechanism)


@pytest.mark.dp
def test_geometric_noise_is_discrete_laplace(dp: Auditor) -> None:
    dp.fits(lambda n, rng: geometric(0, n, rng), DiscreteLaplace(scale=1))
