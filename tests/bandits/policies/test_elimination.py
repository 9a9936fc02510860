"""Batched elimination: Algorithm 1, its regret against play round by round, and its confidence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bandits.batch import Commit, Pulls, Released, ReleasedSum
from bandits.play import play
from bandits.policies.elimination import (
    NAMES,
    BatchedElimination,
    EliminationState,
    means_of,
    surviving,
)
from bandits.policies.setting import RELEASED, Schedule
from bandits.privatizers.privatizer import Privatizer, Unprotected
from bandits.privatizers.sums import BitPrivatizer, PureShufflePrivatizer, SumPrivatizer, Trust
from bandits.radius.radius import ExactRadius, PaperRadius, Radius
from bandits.worlds.environment import Bernoulli
from dpcore.errors import InvalidParameter
from dpcore.sampling.rng import SeededRng
from tests.effort import by_day
from tests.purse import purse
from tests.support.bandits.worlds import Given, Told, same_law
from tests.support.dpcore.mutants import mutated

PLAIN = Unprotected()


def released(sums: Sequence[Fraction | int | None]) -> Released:
    return Released(tuple(None if s is None else ReleasedSum(Fraction(s)) for s in sums))


# -- one batch ---------------------------------------------------------------------------------


def test_batches_pull_the_active_arms_as_often_as_the_schedule_says() -> None:
    policy = BatchedElimination(privatizer=PLAIN, radius=Given(beta=0.1))
    state = policy.init(3, 1000)
    assert policy.choose(state) == Pulls((2, 2, 2))
    state = policy.observe(state, released([2, 1, 2]))
    assert (state.active, state.batch) == ((0, 2), 2)
    assert policy.choose(state) == Pulls((4, 0, 4))
    state = policy.observe(state, released([0, None, 4]))
    assert policy.choose(state) == Commit(2)
    four = BatchedElimination(privatizer=PLAIN, schedule=RELEASED)
    assert four.choose(EliminationState(arms=2, active=(0, 1), batch=3)) == Pulls((64, 64))


def test_an_arm_stays_while_its_interval_meets_the_best() -> None:
    # UCB >= max LCB, at the very edge too: 1/2 = 1 - 2/4.
    means = {0: Fraction(1), 1: Fraction(1, 2), 2: Fraction(1, 2) - Fraction(1, 10**9)}
    assert surviving(means, 0.5) == (0, 1)
    assert surviving(means, math.inf) == (0, 1, 2)
    assert surviving(means, 0.0) == (0,)
    strict = mutated(surviving, "mean >= least", "mean > least")
    assert strict(means, 0.5) == (0,)


def test_a_batch_counts_alone() -> None:
    # Means are from this batch only: what an arm had before does not help it.
    policy = BatchedElimination(privatizer=PLAIN, radius=Given(beta=0.3))
    state = policy.observe(policy.init(2, 100), released([2, 1]))
    assert state.active == (0, 1)
    assert policy.observe(state, released([0, 3])).active == (1,)


def test_the_radius_is_told_the_batch_the_active_arms_and_the_confidence() -> None:
    radius = Told()
    policy = BatchedElimination(privatizer=PLAIN, radius=radius, confidence="1/20")
    state = policy.observe(policy.init(3, 1000), released([2, 1, 2]))
    policy.observe(state, released([4, None, 4]))
    assert radius.asked == [(2, 1, 3, Fraction(1, 20)), (4, 2, 2, Fraction(1, 20))]


@given(
    sums=st.lists(st.lists(st.fractions(-3, 9), min_size=4, max_size=4), min_size=1, max_size=6),
    beta=st.floats(0, 1),
)
def test_an_eliminated_arm_never_comes_back(sums: list[list[Fraction]], beta: float) -> None:
    policy = BatchedElimination(privatizer=PLAIN, radius=Given(beta=beta))
    state = policy.init(4, 10**6)
    for batch in sums:
        choice = policy.choose(state)
        if isinstance(choice, Commit):
            assert state.active == (choice.arm,)
            return
        assert {a for a, n in enumerate(choice.counts) if n} == set(state.active)
        best = max(state.active, key=lambda arm: batch[arm])
        after = policy.observe(
            state, released([x if a in state.active else None for a, x in enumerate(batch)])
        )
        assert set(after.active) <= set(state.active)
        assert best in after.active
        state = after


# -- the regret against play round by round ----------------------------------------------------

MEANS = (0.3, 0.8, 0.6)


def by_rounds(horizon: int, gap: float, world: np.random.Generator) -> tuple[int, ...]:
    """Algorithm 1 without noise, one round after the other; the pulls of every arm."""
    pulls, active, batch, rounds = [0, 0, 0], [0, 1, 2], 1, 0
    while len(active) > 1:
        mean = {}
        for arm in active:
            total = 0
            for _ in range(2**batch):
                total += world.random() < MEANS[arm]
                pulls[arm] += 1
                rounds += 1
                if rounds == horizon:
                    return tuple(pulls)
            mean[arm] = total / 2**batch
        active = [arm for arm in active if mean[arm] >= max(mean.values()) - gap]
        batch += 1
    pulls[active[0]] += horizon - rounds
    return tuple(pulls)


def in_batches(horizon: int, beta: float, world: np.random.Generator) -> tuple[int, ...]:
    policy = BatchedElimination(privatizer=PLAIN, radius=Given(beta=beta))
    return play(policy, Bernoulli(means=MEANS), horizon=horizon, world=world).pulls


@pytest.mark.parametrize("horizon", [17, 60])
def test_pulls_have_the_law_of_play_round_by_round(horizon: int) -> None:
    alpha = purse.buy(f"bandits: elimination round by round, T = {horizon}", "1e-9")
    one, two = np.random.default_rng(1), np.random.default_rng(2)
    rounds = Counter(by_rounds(horizon, 0.45, one) for _ in range(1000))
    batches = Counter(in_batches(horizon, 0.225, two) for _ in range(1000))
    assert len(rounds) > 3
    assert same_law(rounds, batches) > alpha
    other = Counter(in_batches(horizon, 0.3, two) for _ in range(1000))
    assert same_law(rounds, other) < 1e-9


# -- the confidence ----------------------------------------------------------------------------


def losses(radius: Radius, privatizer: Privatizer, runs: int) -> int:
    """How often the best of five arms is dropped in 2000 rounds."""
    policy = BatchedElimination(privatizer=privatizer, radius=radius, confidence="1/10")
    environment, rng, lost = Bernoulli(means=(0.6, 0.5, 0.5, 0.4, 0.5)), SeededRng(3), 0
    for seed in range(runs):
        world, left, state = np.random.default_rng([4, seed]), 2000, policy.init(5, 2000)
        while 0 in state.active:
            choice = policy.choose(state)
            if isinstance(choice, Commit) or choice.total > left:
                break
            left -= choice.total
            sums: list[ReleasedSum | None] = []
            for arm, n in enumerate(choice.counts):
                steps = n and environment.encoded_sum(arm, n, privatizer.precision(n), world)
                sums.append(privatizer.release(steps, n, rng) if n else None)
            state = policy.observe(state, Released(tuple(sums)))
        lost += 0 not in state.active
    return lost


@by_day(2)
@pytest.mark.parametrize("trust", ["none", "pure", "concentrated"])
@pytest.mark.parametrize("radius", [ExactRadius(), PaperRadius()], ids=lambda r: r.name)
def test_the_best_arm_is_kept_with_the_stated_chance(trust: str, radius: Radius) -> None:
    alpha = purse.buy(f"bandits: the best arm is kept, {trust}, {radius.name}", "1e-9")
    privatizer: Privatizer = PLAIN
    if trust != "none":
        privatizer = SumPrivatizer(trust=trust, epsilon=1, failure="1/2000")  # type: ignore[arg-type]  # a name of it
    lost = losses(radius, privatizer, 40)
    assert stats.binomtest(lost, 40, 0.1, alternative="greater").pvalue > alpha


def test_a_width_that_is_too_small_is_caught() -> None:
    private = SumPrivatizer(trust="pure", epsilon=1, failure="1/2000")
    lost = losses(Given(beta=0.05), private, 40)
    assert stats.binomtest(lost, 40, 0.1, alternative="greater").pvalue < 1e-9


# -- names, sizes, refusals --------------------------------------------------------------------


CALLED = {
    "none": "se",
    "central": "cdp-se",
    "local": "ldp-se",
    "pure": "dist-dp-se",
    "renyi": "dist-rdp-se",
    "concentrated": "dist-cdp-se",
    "shuffled-pure": "shuffled-se",
    "pure-shuffle": "shuffled-se",
    "binary-shuffle": "bit-se",
}


@pytest.mark.parametrize("trust", CALLED)
def test_every_trust_model_has_its_name(trust: str) -> None:
    privatizer: Privatizer
    if trust == "none":
        privatizer = PLAIN
    elif trust == "binary-shuffle":
        privatizer = BitPrivatizer(epsilon=1, delta="1e-6")
    elif trust == "pure-shuffle":
        privatizer = PureShufflePrivatizer(epsilon=1, failure="1e-6")
    else:
        privatizer = SumPrivatizer(trust=trust, epsilon=1, failure="1e-6")  # type: ignore[arg-type]  # a name of it
    assert BatchedElimination(privatizer=privatizer).name == CALLED[trust]


def test_every_trust_model_has_a_name() -> None:
    assert {*CALLED} == {*NAMES} == {"none", "binary-shuffle", "pure-shuffle", *get_args(Trust)}


@pytest.mark.parametrize("horizon", [2, 11, 12, 13, 1000])
def test_sizes_cover_every_batch_of_a_run(horizon: int) -> None:
    policy = BatchedElimination(privatizer=PLAIN, radius=Given(beta=0.2))
    sizes = policy.sizes(2, horizon)
    assert policy.sizes(1, horizon) == ()
    for seed in range(20):
        state, left, world = policy.init(2, horizon), horizon, np.random.default_rng(seed)
        while isinstance(choice := policy.choose(state), Pulls) and choice.total <= left:
            assert max(choice.counts) in sizes
            left -= choice.total
            each = max(choice.counts)
            state = policy.observe(
                state,
                released([int(world.integers(0, each + 1)) if n else None for n in choice.counts]),
            )


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("confidence", {"confidence": 0}),
        ("confidence", {"confidence": 1}),
        ("confidence", {"confidence": "-0.1"}),
        ("confidence", {"confidence": "0.95"}),
        ("confidence", {"confidence": "1/2"}),
        ("privatizer", {"privatizer": None}),
        ("radius", {"radius": "paper"}),
        ("schedule", {"schedule": 2}),
    ],
    ids=str,
)
def test_policies_that_are_none_are_refused_by_name(name: str, change: dict[str, object]) -> None:
    with pytest.raises(InvalidParameter) as refused:
        BatchedElimination(**{"privatizer": PLAIN, **change})  # type: ignore[arg-type]  # what is refused
    assert refused.value.argument == name


def test_slow_growth_no_arms_and_short_horizons_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="growth"):
        Schedule(first=2, growth=1)
    policy = BatchedElimination(privatizer=PLAIN)
    with pytest.raises(InvalidParameter, match="arms"):
        policy.init(0, 10)
    with pytest.raises(InvalidParameter, match="horizon"):
        policy.init(10, 9)


def test_a_missing_sum_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="released"):
        means_of((0, 1), released([1, None]), 2)
    with pytest.raises(InvalidParameter, match="released"):
        means_of((0, 1), released([1]), 2)
