"""One law of noise for every release: four laws, users who vanish, and bits in a pool."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from accounting.errors import NotDerived
from bandits.play import play
from bandits.policies.elimination import BatchedElimination
from bandits.policies.returning import PartedElimination
from bandits.policies.setting import Schedule
from bandits.privatizers import protocols
from bandits.privatizers.protocols import Deployment
from bandits.privatizers.returning import Pool, SteadyPrivatizer
from bandits.worlds.environment import Bernoulli
from dpcore.errors import InvalidParameter
from dpcore.laws.binomial import Binomial
from dpcore.laws.discrete_gaussian_sum import DiscreteGaussianSum
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.skellam import Skellam
from dpcore.sampling.rng import SeededRng

BITS = SteadyPrivatizer(law=Binomial(trials=500, probability="1/2"), steps=1, failure="1e-3")
GAUSSIANS = SteadyPrivatizer(
    law=DiscreteGaussianSum(count=64, sigma_squared=8), steps=4, failure="1e-3"
)
LAPLACE = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=8, failure="1e-3")
SKELLAM = SteadyPrivatizer(law=Skellam(variance=400), steps=4, failure="1e-3")

PLAN = Deployment(honest="9/10", dropouts="1/4")

each_law = pytest.mark.parametrize(
    "steady", [BITS, GAUSSIANS, LAPLACE, SKELLAM], ids=["bits", "gaussians", "laplace", "skellam"]
)


def spread_of(law: Any) -> float:
    """The standard deviation of a law, in steps."""
    return math.sqrt(float(getattr(law.variance, "upper", law.variance)))


def own_delta(steady: SteadyPrivatizer, visits: int, epsilon: float) -> float:
    """delta(epsilon) over ``visits`` releases, by convolution of a mass function of floats."""
    law: Any = steady.law
    reach = 14 * int(spread_of(law)) + 40
    centre = int(law.mean)
    points = np.arange(centre - reach, centre + reach + 1)
    match law:
        case Binomial(trials=trials):
            mass = stats.binom.pmf(points, int(trials), 0.5)
        case DiscreteGaussianSum(count=count, sigma_squared=v):
            # The sum of so many is a Gaussian on the integers but for e^(-2 pi^2 8).
            mass = np.exp(-((points - centre) ** 2) / (2 * count * float(v)))
        case Skellam(variance=variance):
            mass = stats.skellam.pmf(points, float(variance) / 2, float(variance) / 2)
        case _:
            mass = np.exp(-np.abs(points) / float(law.scale))
    mass = mass / mass.sum()
    shifted = np.concatenate([np.zeros(steady.steps), mass[: -steady.steps]])
    both = (mass > 0) & (shifted > 0)
    losses = np.log(mass[both] / shifted[both])
    grid, width = 4001, 0.02
    one = np.zeros(2 * grid + 1)
    for loss, chance in zip(losses, mass[both], strict=True):
        place = math.floor(loss / width) + grid
        if 0 <= place <= 2 * grid:
            one[place] += chance
    total = one
    for _ in range(visits - 1):
        total = np.convolve(total, one)
    values = (np.arange(len(total)) - visits * grid) * width
    above = values > epsilon
    lost = 1 - (mass[both].sum()) ** visits
    beyond = float(np.sum(total[above] * (1 - np.exp(epsilon - values[above]))))
    return beyond + float(lost)


@each_law
def test_every_release_has_the_law_at_least_and_promises_it(steady: SteadyPrivatizer) -> None:
    planned = replace(steady, deployment=PLAN)
    for n in (1, 3, 17, 100, 333):
        for each in (steady, planned):
            record = each.record(n, "b")
            assert record is not None
            assert record.mechanism.noise == steady.law
            protocol = each.protocol(n)
            left = protocol.observed_noise(each.deployment.counted_on(n))
            assert protocols._holds(left, steady.law) or left == steady.law
    assert {repr(each.guarantee(n)) for n in (1, 17, 333) for each in (steady, planned)} == {
        repr(steady.guarantee(5))
    }


def test_shares_for_everyone_do_not_hold_the_law_without_those_who_vanish() -> None:
    fewer = _ForEveryone(law=BITS.law, steps=1, failure="1e-3", deployment=PLAN)
    with pytest.raises(NotDerived, match="does not hold"):
        fewer.guarantee(250)
    assert BITS.guarantee(250) == replace(BITS, deployment=PLAN).guarantee(250)


class _ForEveryone(SteadyPrivatizer):
    """Bits for all users, though some of them vanish."""

    def protocol(self, pulls: int) -> Any:
        return BITS.protocol(pulls)


@each_law
@pytest.mark.parametrize("visits", [1, 3])
def test_the_promise_for_all_visits_against_floats(steady: SteadyPrivatizer, visits: int) -> None:
    pool = pool_of(steady, users=50, max_visits=visits)
    promised = pool.guarantee(steady, (16,))
    assert promised is not None
    at = float(promised.epsilon("1e-3").upper)
    # Losses rounded down to a grid of 0.02 give no more than the truth, 0.02 a visit at most less.
    assert own_delta(steady, visits, at) <= 1.02e-3
    assert own_delta(steady, visits, at - 0.03 * visits - 0.01) > 1e-3


@each_law
def test_a_release_is_the_sum_of_who_reports_and_its_noise(steady: SteadyPrivatizer) -> None:
    planned, rng = replace(steady, deployment=PLAN), SeededRng(4)
    noise = planned.noise(40)
    assert noise is not None
    assert planned.reporting(40) == 30
    spread = spread_of(noise) / steady.steps
    released = [float(planned.release(9 * steady.steps, 40, rng)) for _ in range(1500)]
    assert abs(np.mean(released) - 9) < 6 * spread / math.sqrt(1500)
    assert 0.85 < np.std(released) / spread < 1.15
    with pytest.raises(InvalidParameter, match="encoded_sum"):
        planned.release(31 * steady.steps, 40, rng)


# -- pools ---------------------------------------------------------------------------------------


def pool_of(steady: SteadyPrivatizer, *, users: int, max_visits: int) -> Pool:
    return Pool(
        users=users,
        max_visits=max_visits,
        privatizer=steady,
        arrivals=np.random.default_rng(3),
    )


@pytest.mark.parametrize("steady", [BITS, GAUSSIANS], ids=["bits", "gaussians"])
@pytest.mark.parametrize(
    "policy_of",
    [
        lambda steady: BatchedElimination(privatizer=steady),
        lambda steady: PartedElimination(
            privatizer=steady, schedule=Schedule(first=16, growth=3), most=30
        ),
    ],
    ids=["batched", "in parts"],
)
def test_a_pool_plays_and_nobody_comes_too_often(
    steady: SteadyPrivatizer, policy_of: Callable[[SteadyPrivatizer], Any]
) -> None:
    pool = pool_of(steady, users=200, max_visits=3)
    run = play(
        policy_of(steady),
        Bernoulli(means=(0.6, 0.5)),
        horizon=900,
        world=np.random.default_rng(1),
        rng=SeededRng(1),
        users=pool,
    )
    assert run.batches > 0
    assert pool.most_visits == 3
    assert {release.mechanism.noise for release in run.releases} == {steady.law}


def test_noise_of_parts_is_that_of_each_part_added_up() -> None:
    plan = Deployment(honest="9/10")
    for steady in (BITS, GAUSSIANS, LAPLACE, SKELLAM):
        planned = replace(steady, deployment=plan)
        together = planned.noise_of((21, 20))
        apart = [planned.noise(n) for n in (21, 20)]
        variance = sum(spread_of(each) ** 2 for each in apart)
        assert spread_of(together) ** 2 == pytest.approx(variance, rel=1e-9)
