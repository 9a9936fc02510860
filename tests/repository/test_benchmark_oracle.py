"""Tests of the benchmark oracle: likelihood ratios of the battery's twenty mechanisms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.auditing.battery import BATTERY, Case
from benchmarks.auditing.oracle import oracle, ratio
from tests.day_and_nightly import by_day

_RUNS = 20_000
_CUT = 1.0


def _apart(case: Case, *, factor: float = 1.0) -> float:
    # For the true ratio r, the mean of e^r where r < 1 on A is the probability of r < 1 on B:
    # return their distance, in standard errors.
    rng = np.random.default_rng(7)
    on_a, on_b = (factor * ratio(case, case.run(data, _RUNS, rng)) for data in case.pair)
    weights = np.exp(np.minimum(on_a, _CUT)) * (on_a < _CUT)
    below = on_b < _CUT
    spread = math.sqrt((weights.var() + below.var()) / _RUNS) + 1 / _RUNS
    return float(abs(weights.mean() - below.mean())) / spread


@by_day(8)
@pytest.mark.parametrize("case", BATTERY, ids=lambda case: case.name)
def test_the_true_likelihood_ratio_satisfies_its_identity(case: Case) -> None:
    assert _apart(case) < 4.0


@pytest.mark.parametrize("name", ["laplace", "prefix-sums", "sparse-vector-6", "one-time-rappor"])
def test_a_wrong_likelihood_ratio_is_detected(name: str) -> None:
    (case,) = (case for case in BATTERY if case.name == name)
    assert _apart(case, factor=2.0) > 4.0


@pytest.mark.nightly
def test_the_oracle_of_randomised_bits_agrees_with_its_closed_form() -> None:
    # Of six informative bits, the half-line of all six has the largest bound at 10^9 runs.
    (case,) = (case for case in BATTERY if case.name == "one-time-rappor")
    most = 6 * math.log(0.525 / 0.475)
    assert most - 0.01 < oracle(case, 10**9) < most
