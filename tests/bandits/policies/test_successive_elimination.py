"""Tests of batched elimination and DP-SE: regret against round-by-round play, epochs, and p."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bandits.batch import Commit, Pulls, Released, ReleasedSum
from bandits.play import play
from bandits.policies.batch_schedule import RELEASED, Schedule
from bandits.policies.policy import Policy
from bandits.policies.successive_elimination import (
    BatchedElimination,
    DpSe,
    EliminationState,
    means_of,
    surviving,
)
from bandits.privatizers.batch_sums import SumPrivatizer
from bandits.privatizers.privatizer import Privatizer, Unprotected
from bandits.privatizers.returning_users import SteadyPrivatizer
from bandits.radius.radius import DpSeRadius, ExactRadius, PaperRadius, Radius
from bandits.worlds.arm_environments import Bernoulli
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.skellam import Skellam
from dpcore.sampling.rng import SeededRng
from tests.alpha_budget import buy_alpha
from tests.effort import by_day
from tests.support.bandits.worlds import Given, same_law
from tests.support.dpcore.mutants import mutated

PLAIN = Unprotected()


def released(sums: Sequence[Fraction | int | None]) -> Released:
    return Released(tuple(None if s is None else ReleasedSum(Fraction(s)) for s in sums))


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
    # UCB >= max LCB, also with equality: 1/2 = 1 - 2/4.
    means = {0: Fraction(1), 1: Fraction(1, 2), 2: Fraction(1, 2) - Fraction(1, 10**9)}
    assert surviving(means, 0.5) == (0, 1)
    assert surviving(means, math.inf) == (0, 1, 2)
    assert surviving(means, 0.0) == (0,)
    strict = mutated(surviving, "mean >= least", "mean > least")
    assert strict(means, 0.5) == (0,)


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


MEANS = (0.3, 0.8, 0.6)


def by_rounds(horizon: int, gap: float, world: np.random.Generator) -> tuple[int, ...]:
    """Algorithm 1 without noise, one round at a time; the pulls of every arm."""
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
    alpha = buy_alpha(f"bandits: elimination round by round, T = {horizon}", "1e-9")
    one, two = np.random.default_rng(1), np.random.default_rng(2)
    rounds = Counter(by_rounds(horizon, 0.45, one) for _ in range(1000))
    batches = Counter(in_batches(horizon, 0.225, two) for _ in range(1000))
    assert len(rounds) > 3
    assert same_law(rounds, batches) > alpha
    other = Counter(in_batches(horizon, 0.3, two) for _ in range(1000))
    assert same_law(rounds, other) < 1e-9


def losses(radius: Radius, privatizer: Privatizer, runs: int) -> int:
    """How often the best of five arms is dropped in 2000 rounds."""
    policy = BatchedElimination(privatizer=privatizer, radius=radius, failure_probability="1/10")
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
@pytest.mark.parametrize("radius", [ExactRadius(), PaperRadius()], ids=lambda r: type(r).__name__)
def test_the_best_arm_is_kept_with_the_stated_chance(trust: str, radius: Radius) -> None:
    alpha = buy_alpha(f"bandits: the best arm is kept, {trust}, {type(radius).__name__}", "1e-9")
    privatizer: Privatizer = PLAIN
    if trust != "none":
        privatizer = SumPrivatizer(trust=trust, epsilon=1, failure="1/2000")  # type: ignore[arg-type]  # a name of it
    lost = losses(radius, privatizer, 40)
    assert stats.binomtest(lost, 40, 0.1, alternative="greater").pvalue > alpha


def test_a_width_that_is_too_small_is_caught() -> None:
    private = SumPrivatizer(trust="pure", epsilon=1, failure="1/2000")
    lost = losses(Given(beta=0.05), private, 40)
    assert stats.binomtest(lost, 40, 0.1, alternative="greater").pvalue < 1e-9


def test_a_missing_sum_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="released"):
        means_of((0, 1), released([1, None]), 2)
    with pytest.raises(InvalidParameter, match="released"):
        means_of((0, 1), released([1]), 2)


DP_SE = DpSe(epsilon="1/2", failure="1e-6", radius=DpSeRadius())


@pytest.mark.parametrize("epsilon", ["0.01", "1/2", 3])
@pytest.mark.parametrize("active", [2, 10])
@pytest.mark.parametrize("epoch", [1, 2, 6])
def test_an_epoch_is_as_long_as_the_paper_says(epoch: int, active: int, epsilon: object) -> None:
    gap, odds = mpmath.mpf(2) ** -epoch, active * epoch**2 / mpmath.mpf("0.1")
    eps = mpmath.mpf(Fraction(str(epsilon)).numerator) / Fraction(str(epsilon)).denominator
    reward = 32 * mpmath.log(8 * odds) / gap**2
    noise = 8 * mpmath.log(4 * odds) / (eps * gap)
    expected = int(mpmath.ceil(max(reward, noise))) + 1
    policy = DpSe(epsilon=epsilon, failure="1e-6")  # type: ignore[arg-type]  # all rationals
    assert policy.length(epoch, active) == expected


def test_an_arm_goes_when_it_is_two_widths_below_the_best() -> None:
    state = DP_SE.init(3, 10**6)
    n = DP_SE.length(1, 3)
    width = DP_SE.radius.width(DP_SE.privatizer, n, batch=1, active=3, failure="1/10")
    h, c = mpmath.sqrt(mpmath.log(240) / (2 * n)), mpmath.log(120) * 2 / n
    assert width == pytest.approx(float(h + c), rel=1e-12)
    below = Fraction(2 * width) * n
    edge = [Fraction(n), n - below, n - below - Fraction(1, 10**6)]
    after = DP_SE.observe(state, Released(tuple(map(ReleasedSum, edge))))
    assert (after.active, after.batch) == ((0, 1), 2)
    assert DP_SE.choose(after) == Pulls((DP_SE.length(2, 2),) * 2 + (0,))
    assert DP_SE.choose(EliminationState(arms=3, active=(2,), batch=4)) == Commit(2)


LAPLACE = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=8, failure="1e-9")
SKELLAM = SteadyPrivatizer(law=Skellam(variance=4000), steps=8, failure="1e-9")
SCHEDULE = Schedule(first=40, growth=3)


def policy_of(batches: int | None = None, **given: Any) -> BatchedElimination:
    usual = {"privatizer": LAPLACE, "schedule": SCHEDULE, "radius": ExactRadius(batches=batches)}
    return BatchedElimination(**{**usual, "most": 4, **given})


def sums(*values: int) -> Released:
    return Released(tuple(ReleasedSum(Fraction(value)) for value in values))


def test_a_batch_is_judged_when_its_last_part_is_there() -> None:
    quiet = SteadyPrivatizer(law=DiscreteLaplace(scale=1), steps=8, failure="1e-9")
    policy = policy_of(most=25, privatizer=quiet)
    state = policy.init(2, 1000)
    assert policy.choose(state) == Pulls((20, 20))
    state = policy.observe(state, sums(20, 0))
    assert (state.part, state.batch, state.active) == (1, 1, (0, 1))
    # The second part alone would drop the other arm than both parts together.
    after = policy.observe(state, sums(0, 15))
    assert (after.part, after.batch, after.active, after.sums) == (0, 2, (0, 1), ())
    after = policy.observe(state, sums(20, 0))
    assert policy.choose(after) == Commit(0)


def test_one_part_is_batched_elimination() -> None:
    one, none = (policy_of(2, most=most, privatizer=SKELLAM) for most in (1000, None))
    assert pulls_of(one, 2000) == pulls_of(none, 2000)
    assert (one.name, none.name) == ("dist-rdp-se-in-parts", "dist-rdp-se")
    # Two parts have twice the noise variance, but the same rewards.
    together, parted = (
        one.radius.gap(SKELLAM, pulls, batch=1, active=3, failure="1/10")
        for pulls in (40, (20, 20))
    )
    twice = SteadyPrivatizer(law=Skellam(variance=8000), steps=8, failure="1e-9")
    wider = one.radius.gap(twice, 40, batch=1, active=3, failure="1/10")
    assert together < parted == pytest.approx(wider, rel=1e-3)


def pulls_of(policy: Policy[Any], horizon: int) -> tuple[int, ...]:
    world = np.random.default_rng(2)
    arms = Bernoulli(means=(0.9, 0.5, 0.1))
    return play(policy, arms, horizon=horizon, world=world, rng=SeededRng(2)).pulls


RUNS = 600


def dropped(policy: BatchedElimination, steady: SteadyPrivatizer, seed: int) -> int:
    """The number of runs in which one of two arms of equal rewards is dropped in a batch."""
    rng = SeededRng(seed)
    parts, found = policy.parts(1), 0
    start = EliminationState(arms=2, active=(0, 1))
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
    alpha = buy_alpha(f"parted gap {privatizer.name}", "1e-9")
    most = stats.binom.isf(alpha, RUNS, 0.4)
    policy = policy_of(1, privatizer=privatizer, failure_probability="0.4")
    assert dropped(policy, privatizer, 5) <= most

    class OfOneNoise(ExactRadius):
        gap = mutated(ExactRadius.gap, "    noise,\n", "    privatizer.law,\n")

    narrow = replace(policy, radius=OfOneNoise(batches=1))
    assert dropped(narrow, privatizer, 5) > most
