"""Schedules are what they say; a policy's sizes are those of batches that some run completes."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bandits.play import play
from bandits.policies.elimination import BatchedElimination, DpSe, completed_sizes
from bandits.policies.policy import Policy
from bandits.policies.setting import (
    EXACT_GROWTH,
    EXACT_SCALING,
    PAPER,
    RELEASED,
    Schedule,
    _lengths,
    exact_schedule,
)
from bandits.policies.shuffle_elimination import ShuffleElimination
from bandits.privatizers.privatizer import Unprotected
from bandits.privatizers.sums import BitPrivatizer, SumPrivatizer
from bandits.radius.radius import DpSeRadius, ExactRadius, PaperRadius, Radius
from bandits.worlds.environment import Bernoulli
from dpcore import InvalidParameter
from dpcore.sampling.rng import SeededRng
from tests.support.bandits.worlds import Given
from tests.support.dpcore.mutants import mutated

ARMS, P = 10, Fraction(1, 10)


def _pure(epsilon: str, scaling: int = EXACT_SCALING) -> SumPrivatizer:
    return SumPrivatizer(trust="pure", epsilon=epsilon, failure="1e-7", scaling=scaling)


def test_lengths_and_batches() -> None:
    assert [PAPER.pulls(b) for b in (1, 2, 5)] == [2, 4, 32]
    assert [RELEASED.pulls(b) for b in (1, 2, 5)] == [4, 16, 1024]
    for schedule in (PAPER, RELEASED, Schedule(first=100, growth=3)):
        for horizon in (1, 1000, 10**6, 2 * (schedule.pulls(1) + schedule.pulls(2))):
            found = schedule.batches(horizon)
            rounds = [2 * schedule.pulls(b) for b in range(1, found + 2)]
            assert sum(rounds) > horizon
            assert sum(rounds[:-1]) <= horizon or found == 1


def test_lengths_are_powers_of_two_and_three_times_as_many() -> None:
    assert _lengths(12) == [1, 2, 3, 4, 6, 8, 12]
    assert _lengths(11) == [1, 2, 3, 4, 6, 8]
    assert _lengths(1) == [1]


def test_three_is_the_cheapest_growth() -> None:
    def overhead(growth: float) -> float:
        return growth / math.log(growth)

    assert min(range(2, 20), key=overhead) == EXACT_GROWTH
    # What the formula says, by laying the length that is enough at every place of a period.
    for growth in (2, 3, 4):
        enough = np.exp(np.linspace(0.0, math.log(growth), 2001)[1:])
        pulled = growth * growth / (growth - 1) / enough
        assert pulled.mean() == pytest.approx(overhead(growth), rel=2e-3)


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1"])
def test_rounding_does_not_show(epsilon: str) -> None:
    for pulls in (100, 10**4, 10**6):
        steps = _pure(epsilon).precision(pulls)
        paper = _pure(epsilon, 1).precision(pulls)
        assert EXACT_SCALING * (paper - 1) <= steps <= EXACT_SCALING * paper
        rounding = Fraction(pulls, 4 * steps * steps)
        assert rounding <= 2 / Fraction(epsilon) ** 2 / 128


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


def test_less_privacy_needs_less_and_a_short_horizon_is_not_overrun() -> None:
    firsts = [
        exact_schedule(_pure(e), arms=ARMS, horizon=10**6, failure=P).first for e in ("0.1", "1")
    ]
    assert firsts == sorted(firsts, reverse=True)
    floor = exact_schedule(Unprotected(), arms=ARMS, horizon=10**6, failure=P)
    assert floor.first <= firsts[-1]
    for horizon in (ARMS, 2000):
        found = exact_schedule(_pure("0.1"), arms=ARMS, horizon=horizon, failure=P)
        assert found.first * ARMS <= max(horizon // 2, ARMS)


# -- against DP-SE, in a simulation of its own ----------------------------------------------------


def _regret(
    means: np.ndarray[Any, Any],
    horizon: int,
    lengths: Any,
    radius: Radius,
    privatizer: SumPrivatizer,
    rng: np.random.Generator,
) -> float:
    """Elimination on normal rewards of deviation 0.1 and Laplace noise of scale 1/epsilon."""
    pulled, active, left, batch = np.zeros(len(means)), list(range(len(means))), horizon, 1
    while len(active) > 1:
        each = lengths(batch, len(active))
        if each * len(active) > left:
            break
        noise = rng.laplace(0, 1 / float(privatizer.epsilon), len(active)) / each
        seen = means[active] + rng.normal(0, 0.1 / math.sqrt(each), len(active)) + noise
        gap = radius.gap(privatizer, each, batch=batch, active=len(active), failure=P)
        pulled[active] += each
        left -= each * len(active)
        active = [arm for arm, mean in zip(active, seen, strict=True) if seen.max() - mean <= gap]
        batch += 1
    pulled[active] += left / len(active)
    return float(((means.max() - means) * pulled).sum())


@pytest.mark.parametrize("epsilon", ["0.1", "1"])
def test_not_behind_dp_se(epsilon: str) -> None:
    horizon, runs = 10**6, 12
    central = SumPrivatizer(trust="central", epsilon=epsilon, failure="1e-7")
    schedule = exact_schedule(_pure(epsilon), arms=ARMS, horizon=horizon, failure=P)
    exact = ExactRadius(batches=schedule.batches(horizon))
    e = float(epsilon)

    def epoch(batch: int, active: int) -> int:
        odds = 4 * active * batch**2 / float(P)
        gap = 2.0**-batch
        most = max(32 * math.log(2 * odds) / gap**2, 8 * math.log(odds) / (e * gap))
        return math.ceil(most) + 1

    rows: list[tuple[float, float, float]] = []
    for seed in range(5000, 5000 + runs):
        rng = np.random.default_rng(seed)
        means = 0.25 + 0.5 * rng.random(ARMS)
        rows.append(
            (
                _regret(means, horizon, epoch, DpSeRadius(), central, rng),
                _regret(means, horizon, lambda b, _: schedule.pulls(b), exact, _pure(epsilon), rng),
                _regret(
                    means, horizon, lambda b, _: RELEASED.pulls(b), PaperRadius(), central, rng
                ),
            )
        )
    dp_se, ours, paper = np.mean(rows, axis=0)
    assert ours <= 1.05 * dp_se
    # The twin that must be behind: the paper's radius and schedule.
    assert paper > 1.05 * dp_se


@pytest.mark.parametrize(
    ("argument", "edit"),
    [("arms", {"arms": 0}), ("horizon", {"horizon": 9}), ("failure", {"failure": 1})],
)
def test_bad_arguments(argument: str, edit: dict[str, Any]) -> None:
    given: dict[str, Any] = {"arms": 10, "horizon": 1000, "failure": "0.1"} | edit
    with pytest.raises(InvalidParameter, match=argument):
        exact_schedule(Unprotected(), **given)
    for name, wrong in (("first", {"first": 0}), ("growth", {"growth": 1})):
        with pytest.raises(InvalidParameter, match=name):
            Schedule(**({"first": 2, "growth": 2} | wrong))
    with pytest.raises(InvalidParameter, match="batch"):
        PAPER.pulls(0)
    with pytest.raises(InvalidParameter, match="horizon"):
        PAPER.batches(0)


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
