"""Tests of `noisy_threshold_guarantee`: delta against every spread of a user's rows over keys."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from accounting.composition.partition_selection_guarantee import (
    appearance,
    least_threshold,
    threshold_guarantee,
)
from dpcore import (
    DiscreteGaussian,
    DiscreteLaplace,
    InvalidParameter,
    Mechanism,
    Noise,
    Sensitivity,
)
from dpcore.selection import NoisyThreshold
from tests.day_and_nightly import by_day
from tests.support.accounting.brute_force import worse

NOISES = (DiscreteLaplace(scale=1), DiscreteLaplace(scale=4), DiscreteGaussian(sigma_squared=9))


def spreads(rows: int, largest: int) -> Iterator[list[int]]:
    yield []
    for first in range(min(rows, largest), 0, -1):
        for rest in spreads(rows - first, first):
            yield [first, *rest]


@cache
def seen(noise: Noise, least: int) -> float:
    return sum(noise.pmf(k) for k in range(least, least + 300))


def appears(noise: Noise, threshold: int, counts: list[int]) -> float:
    """Return P(a key with these counts has a noisy count >= threshold), from the masses."""
    return 1 - math.prod(1 - seen(noise, threshold - count) for count in counts)


@by_day(5)
@pytest.mark.parametrize("noise", NOISES, ids=repr)
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_delta_is_that_of_the_worst_spread_of_rows_over_keys(noise: Noise, rows: int) -> None:
    threshold = least_threshold(noise, "1/1000", rows)
    found = appearance(noise, threshold, rows)
    worst = max(appears(noise, threshold, counts) for counts in spreads(rows, rows))
    assert math.isclose(found, worst, rel_tol=1e-8)
    assert found <= Fraction(1, 1000) < appearance(noise, threshold - 1, rows)
    # Mutants: a count must exceed the threshold (opendp issue 2922), or only one key is considered.
    assert float(appearance(noise, threshold + 1, rows)) < worst * (1 - 1e-6)
    if rows > 1:
        alone = appears(noise, threshold, [1])
        assert alone < worst * (1 - 1e-6)


def test_the_guarantee_covers_new_keys_and_changed_counts() -> None:
    noise = DiscreteLaplace(scale=2)
    held = Mechanism(noise=noise, sensitivity=Sensitivity.l1(1))
    whole = threshold_guarantee(NoisyThreshold(mechanism=held, threshold=9))
    assert not whole.assumptions
    delta = appearance(noise, 9, 1)
    at = whole.delta(Fraction(1, 2))
    assert delta <= at.upper  # the counts use all of epsilon, so all of delta is needed
    # A row is in a key of its own or in a shared one: no user attains the sum of both.
    assert at.lower is None
    # Two datasets, one key with n or n + 1 users: the output is the noisy count, or nothing.
    for n in (0, 1, 5):
        p, q = ({k: noise.pmf(k - c) for k in range(9, 200)} for c in (n, n + 1))
        if n == 0:
            p = dict.fromkeys(p, 0.0)
        nothing = 1 - sum(p.values()), 1 - sum(q.values())
        lost = worse([nothing, *((p[k], q[k]) for k in p)], "1/2")
        assert lost <= at.upper_float * (1 + 1e-9)


def test_keys_that_cannot_be_sorted_are_refused_without_their_counts() -> None:
    held = Mechanism(noise=DiscreteLaplace(scale=1), sensitivity=Sensitivity.l1(1))
    release = NoisyThreshold(mechanism=held, threshold=9)
    keys: dict[Any, int] = {"a": 1234567, 1: 2}
    with pytest.raises(InvalidParameter, match="keys that can be sorted") as refused:
        release.release(keys)
    assert "1234567" not in str(refused.value)
    # The order of sets and of nan in the release would be that of the rows.
    for partial in ({frozenset("b"): 10**6, frozenset("a"): 10**6}, {2.0: 3, math.nan: 3, 1.0: 3}):
        with pytest.raises(InvalidParameter, match="keys that can be sorted"):
            release.release(partial)  # type: ignore[arg-type]  # keys are strings in the signature
    keys = {2: 10**6, 1: 10**6}
    assert {*release.release(keys)} == keys.keys()
