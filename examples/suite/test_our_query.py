r"""A test suite for your own code: it tests the query's sensitivity, the noise and the release.

    pip install 'dpcore[suite]'
    pytest examples/suite -p audit.testing.pytest_plugin

The whole run refutes a correct mechanism with probability at most ``--dp-alpha``; its last line
states the number of tests that share this probability, and the seed that repeats them.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.testing import Refuted, assert_sensitivity
from audit.testing.pytest_plugin import Auditor
from audit.testing.strategies import neighbouring_datasets
from dpcore import DiscreteLaplace

MOST = 5  # the largest contribution of one person
NOISE = DiscreteLaplace(scale=MOST)


def clipped_sum(visits: list[int]) -> int:
    r"""The number of visits, with at most five visits per person."""
    return sum(min(max(count, 0), MOST) for count in visits)


def released(visits: list[int], n: int, rng: np.random.Generator) -> np.ndarray:
    r"""Return n releases of the sum with two-sided geometric noise of scale 5."""
    rate = -np.expm1(-1 / MOST)
    return clipped_sum(visits) + rng.geometric(rate, n) - rng.geometric(rate, n)


@given(neighbouring_datasets(st.integers(-100, 100), relation="add-remove"))
def test_one_person_changes_the_sum_by_at_most_five(pair: tuple[list[int], list[int]]) -> None:
    assert_sensitivity(clipped_sum, [pair], MOST)


@pytest.mark.dp
def test_the_noise_is_discrete_laplace(dp: Auditor) -> None:
    dp.fits(lambda n, rng: released([], n, rng), NOISE)


# Two audits share the false-alarm probability of this test; the pairs of an audit share its part.
@pytest.mark.dp(epsilon=1, relation="add-remove", pairs=[([3, 9], [3]), ([], [9])], audits=2)
def test_a_release_is_private_and_an_unclipped_one_is_not(dp: Auditor) -> None:
    dp.audit(released)
    with pytest.raises(Refuted):  # the control: this number of runs detects a missing clip
        dp.audit(lambda visits, n, rng: released([], n, rng) + sum(visits))
