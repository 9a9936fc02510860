"""Tests of eliminations and their schedules: against round-by-round play, enumeration, and p."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats

from bandits.batch import Commit, Pulls, Released, ReleasedSum
from bandits.elimination_radii import DpSeRadius, ExactRadius
from bandits.policies.successive_elimination import (
    EXACT_GROWTH,
    PAPER,
    RELEASED,
    BatchedElimination,
    DpSe,
    Elimination,
    EliminationState,
    Schedule,
    ShuffleElimination,
    completed_sizes,
    exact_schedule,
    joint_width,
    means_of,
    surviving,
)
from bandits.privatizers.batch_sums_by_trust_model import BitPrivatizer, SumPrivatizer
from bandits.privatizers.privatizer import Unprotected
from bandits.privatizers.returning_users import SteadyPrivatizer
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.laws.skellam import Skellam
from tests.day_and_nightly import by_day
from tests.support.accounting.brute_force import real
from tests.support.bandits.worlds import Given, played
from tests.support.dpcore.mutants import mutated

PLAIN = Unprotected()


def released(sums: Sequence[Fraction | int | None]) -> Released:
    return Released(tuple(None if s is None else ReleasedSum(Fraction(s)) for s in sums))


def test_batches_pull_active_arms_according_to_the_schedule() -> None:
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


def test_an_arm_stays_active_while_its_interval_overlaps_the_best() -> None:
    # UCB >= max LCB, also with equality: 1/2 = 1 - 2/4.
    means = {0: Fraction(1), 1: Fraction(1, 2), 2: Fraction(1, 2) - Fraction(1, 10**9)}
    assert surviving(means, 0.5) == (0, 1)
    assert surviving(means, math.inf) == (0, 1, 2)
    assert surviving(means, 0.0) == (0,)
    strict = mutated(surviving, "mean >= least", "mean > least")
    assert strict(means, 0.5) == (0,)


def test_a_missing_sum_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="released"):
        means_of((0, 1), released([1, None]), 2)
    with pytest.raises(InvalidParameter, match="released"):
        means_of((0, 1), released([1]), 2)


DP_SE = DpSe(epsilon="1/2", failure="1e-6", radius=DpSeRadius())


@pytest.mark.parametrize("epsilon", ["0.01", "1/2", 3])
@pytest.mark.parametrize("active", [2, 10])
@pytest.mark.parametrize("epoch", [1, 2, 6])
def test_the_length_of_an_epoch_is_that_of_the_paper(epoch: int, active: int, epsilon: str) -> None:
    gap, odds = mpmath.mpf(2) ** -epoch, active * epoch**2 / mpmath.mpf("0.1")
    reward = 32 * mpmath.log(8 * odds) / gap**2
    noise = 8 * mpmath.log(4 * odds) / (real(epsilon) * gap)
    expected = int(mpmath.ceil(max(reward, noise))) + 1
    policy = DpSe(epsilon=epsilon, failure="1e-6")
    assert policy.length(epoch, active) == expected


def test_an_arm_is_dropped_two_widths_below_the_best() -> None:
    state = DP_SE.init(3, 10**6)
    n = DP_SE.length(1, 3)
    width = DP_SE.radius.width(DP_SE.privatizer, n, batch=1, active=3, failure="1/10")
    h, c = mpmath.sqrt(mpmath.log(240) / (2 * n)), mpmath.log(120) * 2 / n
    assert width == pytest.approx(float(h + c), rel=1e-12)
    below = Fraction(2 * width) * n
    edge = [Fraction(n), n - below, n - below - Fraction(1, 10**6)]
    after = DP_SE.observe(state, released(edge))
    assert (after.active, after.batch) == ((0, 1), 2)
    assert DP_SE.choose(after) == Pulls((DP_SE.length(2, 2),) * 2 + (0,))
    assert DP_SE.choose(EliminationState(arms=3, active=(2,), batch=4)) == Commit(2)


LAPLACE = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=8, failure="1e-9")
SKELLAM = SteadyPrivatizer(law=Skellam(variance=4000), steps=8, failure="1e-9")
SCHEDULE = Schedule(first=40, growth=3)


def policy_of(batches: int | None = None, **given: Any) -> BatchedElimination:
    usual = {"privatizer": LAPLACE, "schedule": SCHEDULE, "radius": ExactRadius(batches=batches)}
    return BatchedElimination(**{**usual, "most": 4, **given})


def test_a_batch_is_evaluated_after_its_last_part() -> None:
    quiet = SteadyPrivatizer(law=DiscreteLaplace(scale=1), steps=8, failure="1e-9")
    policy = policy_of(most=25, privatizer=quiet)
    state = policy.init(2, 1000)
    assert policy.choose(state) == Pulls((20, 20))
    state = policy.observe(state, released([20, 0]))
    assert (state.part, state.batch, state.active) == (1, 1, (0, 1))
    # The second part alone would drop the other arm than both parts together.
    after = policy.observe(state, released([0, 15]))
    assert (after.part, after.batch, after.active, after.sums) == (0, 2, (0, 1), ())
    after = policy.observe(state, released([20, 0]))
    assert policy.choose(after) == Commit(0)


def test_batches_of_one_part_equal_batched_elimination() -> None:
    one, none = (policy_of(2, most=most, privatizer=SKELLAM) for most in (1000, None))
    first, second = (played(each, (0.9, 0.5, 0.1), 2000, seed=2).pulls for each in (one, none))
    assert first == second
    assert (one.name, none.name) == ("dist-rdp-se-in-parts", "dist-rdp-se")
    # Two parts have twice the noise variance, but the same rewards.
    together, parted = (
        one.radius.gap(SKELLAM, pulls, batch=1, active=3, failure="1/10")
        for pulls in (40, (20, 20))
    )
    twice = SteadyPrivatizer(law=Skellam(variance=8000), steps=8, failure="1e-9")
    wider = one.radius.gap(twice, 40, batch=1, active=3, failure="1/10")
    assert together < parted == pytest.approx(wider, rel=1e-3)


ARMS, P = 10, Fraction(1, 10)


def test_lengths_of_batches_follow_the_schedule() -> None:
    assert [PAPER.pulls(b) for b in (1, 2, 5)] == [2, 4, 32]
    assert [RELEASED.pulls(b) for b in (1, 2, 5)] == [4, 16, 1024]
    for schedule in (PAPER, RELEASED, Schedule(first=100, growth=3)):
        for horizon in (1, 1000, 10**6, 2 * (schedule.pulls(1) + schedule.pulls(2))):
            found = schedule.batches(horizon)
            rounds = [2 * schedule.pulls(b) for b in range(1, found + 2)]
            assert sum(rounds) > horizon
            assert sum(rounds[:-1]) <= horizon or found == 1


@by_day(3)
@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1"])
@pytest.mark.parametrize("trust", ["pure", "renyi"])
def test_the_first_batch_is_the_shortest_that_can_decide(epsilon: str, trust: str) -> None:
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


def test_a_mutant_that_names_too_many_sizes_is_detected() -> None:
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
    "tripling": BatchedElimination(privatizer=Unprotected(), schedule=Schedule(first=5, growth=3)),
    "dp-se": DpSe(epsilon=1, failure="1e-3"),
    "vb-sdp-ae": ShuffleElimination(privatizer=SHUFFLED),
    "sdp-ae": ShuffleElimination(privatizer=SHUFFLED, batch=7),
}


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_names_the_sizes_that_it_can_complete(name: str) -> None:
    policy = POLICIES[name]
    for arms in (1, 2, 3, 5):
        for horizon in (5, 12, 30, 77, 1500, 5000):
            rounds = min(horizon, 200) if name == "sdp-ae" else horizon
            assert set(policy.sizes(arms, rounds)) == by_every_path(arms, rounds, policy.length)


BITS = BitPrivatizer(epsilon=1, delta="1e-6")
CONSTANT = ShuffleElimination(privatizer=BITS, batch=50)


def test_means_are_over_all_data_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def width(policy: ShuffleElimination, phase: int, horizon: int) -> float:
        asked.append((phase, horizon))
        return 0.1

    monkeypatch.setattr(ShuffleElimination, "width", width)
    state = CONSTANT.observe(CONSTANT.init(2, 1000), released([30, 25]))
    assert (sum(state.sums), state.active) == (55, (0, 1))
    state = CONSTANT.observe(state, released([20, 25]))
    assert set(state.sums) == {Fraction(50)}
    assert (state.active, state.batch) == ((0, 1), 3)
    state = CONSTANT.observe(state, released([0, 50]))
    assert CONSTANT.choose(state) == Commit(1)
    assert asked == [(1, 1000), (2, 1000), (3, 1000)]


def test_both_sides_of_the_noise_are_covered() -> None:
    few, many = (Binomial(trials=900, probability=p) for p in ("1/9", "8/9"))
    chance = Fraction(1, 1000)
    assert joint_width((few,), 400, chance) == joint_width((many,), 400, chance)


def test_the_papers_width_agrees_with_its_formula() -> None:
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
def test_the_joint_width_covers_and_is_nearly_the_least(mean: float, failure: str) -> None:
    chance = float(Fraction(failure))
    width = joint_width(LAWS, 400, Fraction(failure))
    assert miss(LAWS, 400, mean, width) <= chance
    if mean == 0.5:
        # Chernoff's bound is loosest for a large failure probability.
        assert miss(LAWS, 400, mean, (0.8 if chance < 0.01 else 0.6) * width) > chance


def test_a_width_without_the_noise_does_not_cover() -> None:
    short = joint_width((Binomial(trials=1, probability="1/2"),), 400, Fraction(1, 1000))
    assert miss(LAWS, 400, 0.5, short) > 1 / 1000
