"""Tests of batch schedules against enumeration, and of SDP-AE and VB-SDP-AE on all data."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bandits.batch import Commit, Released, ReleasedSum
from bandits.play import play
from bandits.policies.batch_schedule import EXACT_GROWTH, PAPER, RELEASED, Schedule, exact_schedule
from bandits.policies.policy import Policy
from bandits.policies.shuffle_elimination import ShuffleElimination, joint_width
from bandits.policies.successive_elimination import (
    BatchedElimination,
    DpSe,
    Elimination,
    completed_sizes,
)
from bandits.privatizers.batch_sums import BitPrivatizer, SumPrivatizer
from bandits.privatizers.privatizer import Unprotected
from bandits.radius.radius import ExactRadius
from bandits.worlds.arm_environments import Bernoulli
from dpcore.laws.binomial import Binomial
from dpcore.sampling.rng import SeededRng
from tests.support.bandits.worlds import Given
from tests.support.dpcore.mutants import mutated

ARMS, P = 10, Fraction(1, 10)


def test_lengths_and_batches() -> None:
    assert [PAPER.pulls(b) for b in (1, 2, 5)] == [2, 4, 32]
    assert [RELEASED.pulls(b) for b in (1, 2, 5)] == [4, 16, 1024]
    for schedule in (PAPER, RELEASED, Schedule(first=100, growth=3)):
        for horizon in (1, 1000, 10**6, 2 * (schedule.pulls(1) + schedule.pulls(2))):
            found = schedule.batches(horizon)
            rounds = [2 * schedule.pulls(b) for b in range(1, found + 2)]
            assert sum(rounds) > horizon
            assert sum(rounds[:-1]) <= horizon or found == 1


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1"])
@pytest.mark.parametrize("trust", ["pure", "renyi"])
def test_the_first_batch_is_the_shortest_that_is_sure(epsilon: str, trust: str) -> None:
    privatizer = SumPrivatizer(trust=trust, epsilon=epsilon, failure="1e-6")  # type: ignore[arg-type]  # two of the literals
    found = exact_schedule(privatizer, arms=ARMS, horizon=10**6, failure=P)
    assert found.growth == EXACT_GROWTH

    def sure(length: int) -> bool:
        batches = Schedule(first=length, growth=EXACT_GROWTH).batches(10**6)
        radius = ExactRadius(batches=batches)
        return 2 * radius.gap(privatizer, length, batch=1, active=ARMS, failure=P) <= 0.5

    shorter = found.first // 3 * 2 if found.first % 3 == 0 else found.first // 4 * 3
    assert sure(found.first)
    assert not sure(shorter)


Length = Callable[[int, int], int]

SHUFFLED = BitPrivatizer(epsilon=1, delta="1e-2")


def by_every_path(arms: int, horizon: int, length: Length) -> set[int]:
    """The lengths of completed batches, over every order in which arms may be dropped."""
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


POLICIES: dict[str, Elimination] = {
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
    for arms in (1, 2, 3, 5):
        for horizon in (5, 12, 30, 77, 1500, 5000):
            rounds = min(horizon, 200) if name == "sdp-ae" else horizon
            assert set(policy.sizes(arms, rounds)) == by_every_path(arms, rounds, policy.length)


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
    # play refuses a batch of a size that was not named, so a run that ends is the assertion.
    policy = BatchedElimination(
        privatizer=Unprotected(), schedule=Schedule(first=first, growth=2), radius=Given(beta=beta)
    )
    bits = ShuffleElimination(privatizer=SHUFFLED, batch=first)
    world = Bernoulli(means=np.random.default_rng(seed).random(arms).tolist())
    policies: tuple[Policy[Any], ...] = (policy, bits)
    for each in policies:
        coins = np.random.default_rng(seed)
        run = play(each, world, horizon=arms + more, world=coins, rng=SeededRng(seed))
        assert sum(run.pulls) == arms + more


BITS = BitPrivatizer(epsilon=1, delta="1e-6")
VB = ShuffleElimination(privatizer=BITS)
CONSTANT = ShuffleElimination(privatizer=BITS, batch=50)


def released(*sums: int | None) -> Released:
    return Released(tuple(None if s is None else ReleasedSum(Fraction(s)) for s in sums))


def test_means_are_over_all_data_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShuffleElimination, "width", lambda *_: 0.1)
    state = CONSTANT.observe(CONSTANT.init(2, 1000), released(30, 25))
    assert (sum(state.sums), state.active) == (55, (0, 1))
    state = CONSTANT.observe(state, released(20, 25))
    assert set(state.sums) == {Fraction(50)}
    assert (state.active, state.batch) == ((0, 1), 3)
    state = CONSTANT.observe(state, released(0, 50))
    assert state.active == (1,)
    assert CONSTANT.choose(state) == Commit(1)


def test_the_width_is_that_of_the_phase_and_the_horizon(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def width(policy: ShuffleElimination, phase: int, horizon: int) -> float:
        asked.append((phase, horizon))
        return 1.0

    monkeypatch.setattr(ShuffleElimination, "width", width)
    state = CONSTANT.observe(CONSTANT.init(2, 1000), released(30, 25))
    CONSTANT.observe(state, released(30, 25))
    assert asked == [(1, 1000), (2, 1000)]


def test_either_side_of_the_noise_is_covered() -> None:
    few, many = (Binomial(trials=900, probability=p) for p in ("1/9", "8/9"))
    chance = Fraction(1, 1000)
    assert joint_width((few,), 400, chance) == joint_width((many,), 400, chance)


def test_the_papers_width_is_the_papers() -> None:
    paper = ShuffleElimination(privatizer=BITS, batch=50, radius="paper")
    variance = float(Fraction(BITS.protocol(50).planned_noise.variance))
    for phase in (1, 7):
        n = 50 * phase
        expected = (2 * math.sqrt(phase * variance) / n + 1 / math.sqrt(n)) * math.sqrt(
            2 * math.log(10**5)
        )
        assert paper.width(phase, 10**5) == pytest.approx(expected, rel=1e-12)
    doubling = ShuffleElimination(privatizer=BITS, radius="paper")
    largest = max(float(Fraction(BITS.protocol(2**t).planned_noise.variance)) for t in range(1, 6))
    expected = (2 * math.sqrt(5 * largest) / 62 + 1 / math.sqrt(62)) * math.sqrt(2 * math.log(999))
    assert doubling.width(5, 999) == pytest.approx(expected, rel=1e-12)


def miss(laws: tuple[Binomial, ...], pulls: int, mean: float, width: float) -> float:
    # P(|released mean - mean| > width) for Bernoulli rewards, by convolution.
    total = stats.binom.pmf(np.arange(pulls + 1), pulls, mean)
    center = pulls * mean
    for law in laws:
        n, p = int(law.trials), float(Fraction(law.probability))
        total = np.convolve(total, stats.binom.pmf(np.arange(n + 1), n, p))
        center += n * p
    off = np.abs(np.arange(len(total)) - center) > width * pulls
    return float(total[off].sum())


LAWS = (
    Binomial(trials=200, probability="1/2"),
    Binomial(trials=900, probability="1/9"),
    Binomial(trials=3000, probability="1/50"),
)


@pytest.mark.parametrize("failure", ["1/10", "1e-3", "1e-9"])
@pytest.mark.parametrize("mean", [0.5, 0.1, 1.0])
def test_the_joint_width_covers_and_is_not_much_too_long(mean: float, failure: str) -> None:
    chance = float(Fraction(failure))
    width = joint_width(LAWS, 400, Fraction(failure))
    assert miss(LAWS, 400, mean, width) <= chance
    if mean == 0.5:
        # Chernoff's bound is loosest for a large failure probability.
        assert miss(LAWS, 400, mean, (0.8 if chance < 0.01 else 0.6) * width) > chance


def test_a_width_without_the_noise_does_not_cover() -> None:
    short = joint_width((Binomial(trials=1, probability="1/2"),), 400, Fraction(1, 1000))
    assert miss(LAWS, 400, 0.5, short) > 1 / 1000
