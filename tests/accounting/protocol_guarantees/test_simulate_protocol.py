r"""Tests of `simulate_protocol`: size of the errors; the guarantee of the remaining users.

With Y = X + R in steps, X the noise and R the rounding of the encodings: values are uniform, so
each user's rounding error has the density 1 - |r| on (-1, 1), of variance 1/6, and E e^(tR) <=
e^(t^2 v/2) for v = users/6. The mean of N squares is then bounded without a normal approximation:
from above by Chernoff (X is truncated, and the alpha covers the omitted mass), from below by E
e^(-c Y^2) <= e^(-c V + c^2 E[Y^4]/2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from typing import Any, cast, get_args

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from accounting.protocol_guarantees.plan_protocol import Instance, Plan, choose, protocol_guarantee
from accounting.protocol_guarantees.simulate_protocol import Kind, Simulation, simulate
from dpcore import DiscreteGaussian, DiscreteLaplace, SeededRng
from dpcore.laws.skellam import Skellam
from dpcore.protocols.noisy_sums import AggregatedSum, ModularSum
from dpcore.protocols.shuffled_bits import BinaryShuffle, VectorShuffle
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day
from tests.support.dpcore.mutants import mutated

Masses = npt.NDArray[np.float64]

RUNS, USERS, GONE = 1200, 12, 3
ALPHA = buy_alpha("errors of simulated protocols", "1e-9") / 16
INSTANCES: tuple[Instance, ...] = tuple(x for x in get_args(Instance) if x != "pure-shuffle")


def plan_of(instance: Instance) -> Plan:
    pure = instance in ("pure", "central", "local", "shuffled-pure")
    more = {"precision": 2, "coordinates": 2} if instance == "vector-shuffle" else {}
    return choose(
        instance=instance,
        users=USERS,
        epsilon=1,
        delta=0 if pure else "1e-6",
        failure="1e-14",
        **cast("dict[str, Any]", more),
    )


def played(plan: Plan, seed: int = 5, run: Callable[..., Any] = simulate, **given: Any) -> Any:
    world, rng = np.random.default_rng(seed), SeededRng(seed)
    given = {"dropouts": GONE, "runs": RUNS, **given}
    return run(plan, world=world, rng=rng, **given)


def masses(plan: Plan, present: int) -> Masses:
    r"""P(X = x) for x = -R..R, X centred, from closed forms and convolutions."""
    x = np.arange(-2000, 2001)
    protocol = plan.protocol
    if isinstance(protocol, (BinaryShuffle, VectorShuffle)):
        assert protocol.probability == Fraction(1, 2)
        count = protocol.noise_bits * present
        assert count % 2 == 0  # so that the mean is an integer
        return np.asarray(stats.binom.pmf(x + count // 2, count, 0.5))
    noise = protocol.planned_noise
    if isinstance(noise, Skellam):
        half = float(noise.variance) * present / USERS / 2
        return np.asarray(stats.skellam.pmf(x, half, half))
    if isinstance(protocol, AggregatedSum) and isinstance(protocol.share, DiscreteGaussian):
        one = np.exp(-(np.arange(-150, 151) ** 2) / (2 * float(protocol.share.sigma_squared)))
        return cast("Masses", reduce(np.convolve, [one / one.sum()] * present))
    if plan.instance in ("central", "local"):
        assert isinstance(protocol.observed_noise(1), DiscreteLaplace)
        scale = float(cast("DiscreteLaplace", protocol.observed_noise(1)).scale)
        one = np.tanh(0.5 / scale) * np.exp(-np.abs(np.arange(-200, 201)) / scale)
        return cast(
            "Masses", reduce(np.convolve, [one] * (present if plan.instance == "local" else 1))
        )
    # Every user adds a difference of two negative binomial variables of shape 1/n.
    scale = float(cast("DiscreteLaplace", noise).scale)
    polya = stats.nbinom.pmf(np.arange(1000), present / USERS, -math.expm1(-1 / scale))
    return np.convolve(polya, polya[::-1])


def window(law: Masses, rounding: float, count: int) -> tuple[float, float, float]:
    r"""(Var X, low, high): a mean of ``count`` squares of Y leaves [low, high] by ALPHA at most."""
    reach = len(law) // 2
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    second, fourth = float((law * x**2).sum()), float((law * x**4).sum())
    whole = second + rounding
    kurtosis = (fourth + 6 * second * rounding + 3 * rounding**2) / whole**2
    low = whole * (1 - math.sqrt(2 * kurtosis * math.log(4 / ALPHA) / count))
    far = np.cumsum(law) * 2 * count < ALPHA / 4
    kept, x = law[~(far | far[::-1])], x[~(far | far[::-1])]

    def bound(high: float) -> float:
        logs: list[float] = []
        for rate in np.geomspace(1e-3, 1, 60) / (2 * whole):
            shrunk = 1 - 2 * rate * rounding
            if shrunk > 0:
                moment = float((kept * np.exp(rate * x**2 / shrunk)).sum())
                logs.append(count * (math.log(moment) - math.log(shrunk) / 2 - rate * high))
        return min(logs)

    high = whole
    while bound(high) > math.log(ALPHA / 4):
        high *= 1.01
    return second, low, high


def agrees(plan: Plan, result: Simulation) -> bool:
    r"""Whether the measured error and the printed deviation are those of the exact law."""
    present = plan.protocol.users - result.dropouts
    protocol = plan.protocol
    g = 1 if isinstance(protocol, BinaryShuffle) else protocol.precision
    count = result.runs * (protocol.coordinates if isinstance(protocol, VectorShuffle) else 1)
    rounding = 0.0 if plan.instance == "binary-shuffle" else present / 6
    second, low, high = window(masses(plan, present), rounding, count)
    printed = (result.noise_deviation * g) ** 2
    return (
        second * (1 - 1e-9) <= printed <= second * (1 + 1e-9)
        and low <= (result.root_mean_square_error * g) ** 2 <= high
    )


@by_day(1)
@pytest.mark.parametrize("instance", INSTANCES)
def test_errors_have_the_size_of_the_exact_law(instance: Instance) -> None:
    plan = plan_of(instance)
    gone = 4 if instance in ("binary-shuffle", "vector-shuffle") else GONE
    result = played(plan, dropouts=gone)
    assert agrees(plan, result)
    assert result.mean_absolute_error <= result.root_mean_square_error
    assert (result.present, result.runs) == (USERS - gone, RUNS)
    # The mutants: the same errors with the deviation of everyone's noise, or of half of it.
    assert not agrees(plan, replace(result, dropouts=gone - 2)) or instance == "central"
    assert not agrees(plan, replace(result, root_mean_square_error=1.7 * result.noise_deviation))
    assert not agrees(plan, replace(result, root_mean_square_error=0.5 * result.noise_deviation))


def test_mutants_of_the_error_are_detected() -> None:
    everyone = mutated(simulate, "values[stayed].sum(axis=0)", "values.sum(axis=0)")
    assert not agrees(plan_of("pure"), played(plan_of("pure"), run=everyone))
    plan = plan_of("renyi")
    unit = mutated(ModularSum.square_error, "precision**2", "precision")
    wrong = mutated(
        simulate,
        "deviation(plan",
        "mutant(plan",
        mutant=lambda protocol, present: math.sqrt(unit(protocol, present)),
    )
    assert not agrees(plan, played(plan, run=wrong))
    protocol = plan.protocol
    assert isinstance(protocol, AggregatedSum)
    assert isinstance(protocol.share, Skellam)
    twice = replace(protocol, share=Skellam(variance=2 * Fraction(protocol.share.variance)))
    loud = played(replace(plan, protocol=twice))
    assert not agrees(plan, replace(loud, plan=plan))


@by_day(1)
@pytest.mark.parametrize("kind", ["ideal", "ideal-per-user", "masked", "masked-neighbours"])
def test_every_aggregation_gives_the_same_distribution(kind: Kind) -> None:
    plan = plan_of("concentrated")
    runs = 40 if kind.startswith("masked") else RUNS
    assert agrees(plan, played(plan, runs=runs, aggregation=kind))


@by_day(3)
@pytest.mark.parametrize("instance", INSTANCES)
def test_the_remaining_guarantee_is_that_of_the_remaining_users(instance: Instance) -> None:
    plan = plan_of(instance)
    result = played(plan, runs=2)
    delta = plan.delta
    assert result.kept == protocol_guarantee(plan.protocol, USERS - GONE)
    planned, kept = result.plan.guarantee.epsilon(delta), result.kept.epsilon(delta)
    if instance in ("central", "local"):
        assert kept == planned
    else:
        # Fewer shares hide strictly less: the enclosures are disjoint.
        assert kept.lower > planned.upper


def test_the_remaining_guarantee_counts_no_user_beyond_the_honest_ones() -> None:
    plan = choose(instance="pure", users=USERS, epsilon=1, honest_fraction="1/2")
    assert (result := played(plan, runs=1)).kept == plan.guarantee
    assert (result.honest, result.present) == (plan.honest, USERS - GONE)


def test_progress_is_reported() -> None:
    told: list[int] = []
    played(plan_of("pure"), runs=3, progress=told.append)
    assert told == [1, 2, 3]
