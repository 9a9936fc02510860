"""Batches released in parts: lengths, sums, the certified gap of all noises, and runs in a pool."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bandits.batch import Commit, Pulls, Released, ReleasedSum
from bandits.play import play
from bandits.policies.elimination import BatchedElimination
from bandits.policies.policy import Policy
from bandits.policies.returning import PartedElimination, PartedState
from bandits.policies.setting import Schedule
from bandits.privatizers.returning import Pool, SteadyPrivatizer
from bandits.radius.radius import ExactRadius
from bandits.worlds.environment import Bernoulli
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.skellam import Skellam
from dpcore.sampling.rng import SeededRng
from tests.effort import by_day
from tests.purse import purse
from tests.support.dpcore.mutants import mutated

LAPLACE = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=8, failure="1e-9")
SKELLAM = SteadyPrivatizer(law=Skellam(variance=4000), steps=8, failure="1e-9")
SCHEDULE = Schedule(first=40, growth=3)


def policy_of(**given: Any) -> PartedElimination:
    return PartedElimination(**{"privatizer": LAPLACE, "schedule": SCHEDULE, "most": 4, **given})


@pytest.mark.parametrize("most", [1, 7, 39, 40, 41, 1000])
def test_parts_are_nearly_equal_and_make_a_batch(most: int) -> None:
    for batch in (1, 2, 3):
        parts = policy_of(most=most).parts(batch)
        assert sum(parts) == SCHEDULE.pulls(batch)
        assert max(parts) <= most
        assert max(parts) - min(parts) <= 1
        assert len(parts) == -(-SCHEDULE.pulls(batch) // most)


def sums(*values: int) -> Released:
    return Released(tuple(ReleasedSum(Fraction(value)) for value in values))


def test_a_batch_is_judged_when_its_last_part_is_there() -> None:
    quiet = SteadyPrivatizer(law=DiscreteLaplace(scale=1), steps=8, failure="1e-9")
    policy = policy_of(most=25, privatizer=quiet)
    state = policy.init(2, 1000)
    assert policy.choose(state) == Pulls((20, 20))
    state = policy.observe(state, sums(20, 0))
    assert (state.part, state.batch, state.active) == (1, 1, (0, 1))
    # The second part alone says the opposite of both together.
    after = policy.observe(state, sums(0, 15))
    assert (after.part, after.batch, after.active, after.sums) == (0, 2, (0, 1), ())
    after = policy.observe(state, sums(20, 0))
    assert policy.choose(after) == Commit(0)


def test_one_part_is_batched_elimination() -> None:
    policy, horizon = policy_of(most=1000, privatizer=SKELLAM), 2000
    batches = SCHEDULE.batches(horizon)
    whole = BatchedElimination(
        privatizer=SKELLAM, schedule=SCHEDULE, radius=ExactRadius(batches=batches)
    )
    for batch in (1, 2):
        gap = ExactRadius(batches=batches).gap(
            SKELLAM, SCHEDULE.pulls(batch), batch=batch, active=3, failure="1/10"
        )
        assert policy.gap(batch, active=3, batches=batches) == pytest.approx(gap, rel=1e-3)
    assert pulls_of(policy, horizon) == pulls_of(whole, horizon)


def pulls_of(policy: Policy[Any], horizon: int) -> tuple[int, ...]:
    world = np.random.default_rng(2)
    arms = Bernoulli(means=(0.9, 0.5, 0.1))
    return play(policy, arms, horizon=horizon, world=world, rng=SeededRng(2)).pulls


# -- coverage ------------------------------------------------------------------------------------

RUNS = 600


def dropped(policy: PartedElimination, seed: int) -> int:
    """Runs of a batch of two arms of equal rewards in which one of them is dropped."""
    rng, steady = SeededRng(seed), policy.privatizer
    parts, found = policy.parts(1), 0
    start = PartedState(arms=2, active=(0, 1), batches=1)
    for _ in range(RUNS):
        state = start
        for part in parts:
            encoded = part * steady.steps // 2
            released = tuple(steady.release(encoded, part, rng) for _ in range(2))
            state = policy.observe(state, Released(released))
        found += len(state.active) == 1
    return found


@pytest.mark.nightly
@by_day(1)
@pytest.mark.parametrize("privatizer", [LAPLACE, SKELLAM], ids=["laplace", "skellam"])
def test_the_gap_covers_the_noise_of_all_parts(privatizer: SteadyPrivatizer) -> None:
    alpha = purse.buy(f"parted gap {privatizer.name}", "1e-9")
    most = stats.binom.isf(alpha, RUNS, 0.4)
    policy = policy_of(privatizer=privatizer, confidence="0.4")
    assert dropped(policy, 5) <= most

    class OfOneNoise(PartedElimination):
        gap = mutated(
            PartedElimination.gap,
            "self.privatizer.noise_of(parts)",
            "self.privatizer.law",
        )

    narrow = OfOneNoise(privatizer=privatizer, schedule=SCHEDULE, most=4, confidence="0.4")
    assert dropped(narrow, 5) > most


# -- runs ----------------------------------------------------------------------------------------


def test_a_run_in_a_pool_goes_on_beyond_the_people_there_are() -> None:
    pool = Pool(users=50, max_visits=64, privatizer=SKELLAM, arrivals=np.random.default_rng(3))
    policy = policy_of(privatizer=SKELLAM, most=25)
    run = play(
        policy,
        Bernoulli(means=(0.9, 0.1)),
        horizon=4000,
        world=np.random.default_rng(1),
        rng=SeededRng(1),
        users=pool,
    )
    assert run.pulls[0] > run.pulls[1]
    assert run.batches >= 7
    assert pool.most_visits <= 64
    assert len(run.releases) == 2 * run.batches
    # Without parts the second batch would need more people than there are.
    whole = Pool(users=50, max_visits=64, privatizer=SKELLAM, arrivals=np.random.default_rng(3))
    short = play(
        BatchedElimination(privatizer=SKELLAM, schedule=SCHEDULE),
        Bernoulli(means=(0.9, 0.1)),
        horizon=4000,
        world=np.random.default_rng(1),
        rng=SeededRng(1),
        users=whole,
    )
    assert (short.batches, whole.dry) == (1, True)


@pytest.mark.parametrize("horizon", [10, 79, 81, 100, 321, 1000])
def test_sizes_name_every_part_that_is_released(horizon: int) -> None:
    # ``play`` refuses any other; a batch that the horizon cuts has released its first parts.
    policy = policy_of(privatizer=SKELLAM, most=7)
    run = play(
        policy,
        Bernoulli(means=(0.5, 0.5)),
        horizon=horizon,
        world=np.random.default_rng(1),
        rng=SeededRng(1),
    )
    assert sum(run.pulls) == horizon
    assert set(policy.sizes(2, horizon)) <= {each for b in range(1, 5) for each in policy.parts(b)}
    assert policy.sizes(1, horizon) == ()


def test_a_batch_without_a_share_of_p_has_no_gap() -> None:
    policy = policy_of()
    for batch, active, batches, named in (
        (3, 2, 2, "batch"),
        (9, 2, 2, "batch"),
        (1, -3, 2, "active"),
        (1, 2.5, 2, "active"),
        (1, 2, 0, "batches"),
        (1, 2, Fraction(1, 10), "batches"),
    ):
        with pytest.raises(InvalidParameter) as refused:
            policy.gap(batch, active=active, batches=batches)  # type: ignore[arg-type]  # what is refused
        assert refused.value.argument == named
