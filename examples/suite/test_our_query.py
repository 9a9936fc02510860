r"""A test suite of one's own code: what the query may move by, its noise, and the whole release.

    pip install 'dpcore[suite]'
    pytest examples/suite -p audit.testing.pytest_plugin

The whole run refutes a correct mechanism with probability at most ``--dp-alpha``; its last line
says how many tests share that, and how to repeat them.
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

MOST = 5  # nobody counts for more
NOISE = DiscreteLaplace(scale=MOST)


def clipped_sum(visits: list[int]) -> int:
    r"""How often people came, nobody more than five times."""
    return sum(min(max(count, 0), MOST) for count in visits)


def released(visits: list[int], n: int, rng: np.random.Generator) -> np.ndarray:
    r"""n releases: the sum with two-sided geometric noise of scale 5."""
    rate = -np.expm1(-1 / MOST)
    return clipped_sum(visits) + rng.geometric(rate, n) - rng.geometric(rate, n)


@given(neighbouring_datasets(st.integers(-100, 100), relation="add-remove"))
def test_one_person_moves_the_sum_by_five_at_most(pair: tuple[list[int], list[int]]) -> None:
    assert_sensitivity(clipped_sum, [pair], MOST)


@pytest.mark.dp
def test_the_noise_is_discrete_laplace(dp: Auditor) -> None:
    dp.fits(lambda n, rng: released([], n, rng), NOISE)


# Two audits share what this test may spend, and every pair of an audit takes a part of it.
@pytest.mark.dp(epsilon=1, relation="add-remove", pairs=[([3, 9], [3]), ([], [9])], audits=2)
def test_a_release_is_private_and_an_unclipped_one_is_not(dp: Auditor) -> None:
    dp.audit(released)
    with pytest.raises(Refuted):  # the control: these runs do find what is wrong
        dp.audit(lambda visits, n, rng: released([], n, rng) + sum(visits))
