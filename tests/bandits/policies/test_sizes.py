"""The sizes that a policy names are those of the batches that some run completes, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bandits.play import play
from bandits.policies.elimination import BatchedElimination, DpSe, completed_sizes
from bandits.policies.policy import Policy
from bandits.policies.setting import PAPER, RELEASED, Schedule
from bandits.policies.shuffle_elimination import ShuffleElimination
from bandits.privatizers.privatizer import Unprotected
from bandits.privatizers.sums import BitPrivatizer
from bandits.worlds.environment import Bernoulli
from dpcore.sampling.rng import SeededRng
from tests.support.bandits.worlds import Given
from tests.support.dpcore.mutants import mutated

Length = Callable[[int, int], int]

SHUFFLED = BitPrivatizer(epsilon=1, delta="1e-2")


def by_every_path(arms: int, horizon: int, length: Length) -> set[int]:
    """The lengths of completed batches, over every way in which arms may be dropped."""
    found: set[int] = set()

    def follow(active: int, batch: int, left: int) -> None:
        each = length(batch, active)
        if active * each > left:
            return
        found.add(each)
        for kept in range(2, active + 1):
            follow(kept, batch + 1, left - active * each)

    if arms > 1:
        follow(arms, 1, horizon)
    return found


def growing(first: int, growth: int, each_arm: int) -> Length:
    return lambda batch, active: first * growth ** (batch - 1) + each_arm * (active - 2)


@given(
    arms=st.integers(1, 6),
    more=st.integers(0, 200),
    first=st.integers(1, 6),
    growth=st.integers(2, 4),
    each_arm=st.integers(0, 3),
)
def test_sizes_are_those_of_every_path(
    arms: int, more: int, first: int, growth: int, each_arm: int
) -> None:
    length, horizon = growing(first, growth, each_arm), arms + more
    assert completed_sizes(arms, horizon, length) == tuple(
        sorted(by_every_path(arms, horizon, length))
    )


def test_a_first_batch_of_two_arms_only_is_seen_to_name_too_many() -> None:
    loose = mutated(
        completed_sizes, "spent, batch = arms * length(1, arms), 2", "spent, batch = 2, 2"
    )
    length = growing(2, 2, 0)
    assert set(loose(10, 130, length)) > by_every_path(10, 130, length)
    short = mutated(completed_sizes, "range(2, arms + 1)", "range(arms, arms + 1)")
    assert set(short(10, 99, length)) < by_every_path(10, 99, length)


POLICIES: dict[str, Policy[Any]] = {
    "paper": BatchedElimination(privatizer=Unprotected(), schedule=PAPER),
    "released": BatchedElimination(privatizer=Unprotected(), schedule=RELEASED),
    "by three": BatchedElimination(privatizer=Unprotected(), schedule=Schedule(first=5, growth=3)),
    "dp-se": DpSe(epsilon=1, failure="1e-3"),
    "vb-sdp-ae": ShuffleElimination(privatizer=SHUFFLED),
    "sdp-ae": ShuffleElimination(privatizer=SHUFFLED, batch=7),
}


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_names_what_it_can_complete(name: str) -> None:
    policy = POLICIES[name]
    length: Length
    match policy:
        case BatchedElimination() | DpSe():
            length = policy.length
        case ShuffleElimination():
            size = policy.size
            length = lambda batch, _: size(batch)  # noqa: E731  # one line as the others
    for arms in (1, 2, 3, 5):
        for horizon in (5, 12, 30, 77, 1500, 5000):
            rounds = min(horizon, 200) if name == "sdp-ae" else horizon
            assert set(policy.sizes(arms, rounds)) == by_every_path(arms, rounds, length)


def test_a_first_batch_that_is_cut_is_not_named() -> None:
    assert POLICIES["paper"].sizes(10, 12) == ()  # the first batch asks for 20 rounds
    assert POLICIES["paper"].sizes(10, 20) == (2,)
    assert POLICIES["paper"].sizes(10, 27) == (2,)
    assert POLICIES["paper"].sizes(10, 28) == (2, 4)


@given(
    arms=st.integers(1, 5),
    more=st.integers(0, 300),
    beta=st.sampled_from([0.0, 0.05, 0.2, 1.0]),
    first=st.integers(1, 9),
    seed=st.integers(0, 99),
)
@settings(max_examples=40)
def test_play_never_meets_a_size_that_was_not_named(
    arms: int, more: int, beta: float, first: int, seed: int
) -> None:
    # play refuses a batch of another size, so a run that ends is the assertion.
    policy = BatchedElimination(
        privatizer=Unprotected(),
        schedule=Schedule(first=first, growth=2),
        radius=Given(beta=beta),
    )
    bits = ShuffleElimination(privatizer=SHUFFLED, batch=first)
    world = Bernoulli(means=np.random.default_rng(seed).random(arms).tolist())
    policies: tuple[Policy[Any], ...] = (policy, bits)
    for each in policies:
        coins = np.random.default_rng(seed)
        run = play(each, world, horizon=arms + more, world=coins, rng=SeededRng(seed))
        assert sum(run.pulls) == arms + more
