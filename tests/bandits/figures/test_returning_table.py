"""What visits cost: the noise of each route, and regret when the same people come again."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any, get_args

import numpy as np
import pytest

from accounting.budget.returning import per_user, routes
from accounting.release.curve import PrivacyCurve
from accounting.totals.compose import compose
from bandits.experiments.summary import mean_and_error
from bandits.play import Run, play
from bandits.privatizers.returning import Pool, SteadyPrivatizer
from benchmarks.figures import returning_table as table
from benchmarks.figures.returning_table import Route, returning_table, visit_noise
from dpcore.laws.binomial import Binomial
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.numbers.enclosure import round_up
from tests.effort import by_day
from tests.support.dpcore.refusals import refused


@by_day(1)
@pytest.mark.parametrize("max_visits", [1, 4, 16])
def test_each_route_certifies_its_noise_and_looser_ones_need_more(max_visits: int) -> None:
    found = {
        route: visit_noise(
            law="discrete-laplace", epsilon=1, delta="1e-6", max_visits=max_visits, route=route
        )
        for route in get_args(Route)
    }
    scales = {
        route: SteadyPrivatizer(law=noise, steps=16, failure="1e-3").deviation
        for route, noise in found.items()
    }
    assert scales["exact"] <= scales["renyi"] * 1.01
    assert scales["exact"] <= scales["advanced"] * 1.01
    for route in ("exact", "renyi"):
        steady = SteadyPrivatizer(law=found[route], steps=16, failure="1e-3")
        bounds = {each.method: each.bound for each in routes(total_of(steady, max_visits), "1e-6")}
        bound = bounds[route]
        assert bound is not None
        assert bound.upper <= 1


def total_of(steady: SteadyPrivatizer, max_visits: int) -> Any:
    return per_user(steady.curve, max_visits=max_visits)


def test_less_noise_than_a_route_found_is_not_certified() -> None:
    noise = visit_noise(
        law="discrete-laplace", epsilon=1, delta="1e-6", max_visits=64, route="renyi"
    )
    assert isinstance(noise, DiscreteLaplace)
    less = DiscreteLaplace(scale=Fraction(noise.scale) * Fraction(99, 100))
    steady = SteadyPrivatizer(law=less, steps=16, failure="1e-3")
    bound = next(
        each.bound for each in routes(total_of(steady, 64), "1e-6") if each.method == "renyi"
    )
    assert bound is not None
    assert bound.upper > 1


def test_people_come_as_often_as_they_may() -> None:
    (row,) = returning_table(
        horizon=20_000,
        instances=2,
        max_visits=(16,),
        routes=("exact",),
        algorithms=("dist-dp-se",),
        gap="0.1",
    )
    assert row.users == 20_000 // 16
    assert row.most_visits == 16
    assert row.turned_away > 100
    assert 0 <= row.dry <= 2


@pytest.mark.nightly
def test_the_table_says_what_coming_back_costs() -> None:
    rows = returning_table(
        horizon=4000, instances=3, max_visits=(1, 16), algorithms=("dist-dp-se",), epsilon=2
    )
    assert [(row.max_visits, row.route) for row in rows] == [
        (b, route) for b in (1, 16) for route in get_args(Route)
    ]
    assert all(row.epsilon <= 2 for row in rows)
    assert all(row.epsilon_exact <= 2 for row in rows)
    once, often = rows[0], rows[3]
    assert (once.users, often.users, once.most_visits) == (4000, 250, 1)
    assert once.most_visits < often.most_visits <= 16
    assert often.deviation > 5 * once.deviation
    assert often.regret_per_round > once.regret_per_round
    assert rows == returning_table(
        horizon=4000, instances=3, max_visits=(1, 16), algorithms=("dist-dp-se",), epsilon=2
    )


def test_plain_sums_take_their_share_of_delta() -> None:
    noise, delta = DiscreteLaplace(scale=40), Fraction(1, 10**6)
    found = table._epsilon(noise, 16, 2, delta, "advanced")
    one = compose(PrivacyCurve(noise=noise, sensitivity=16))
    each = one.epsilon(delta / 2, Fraction(1, 10**5)).upper
    assert found == 2 * each
    assert each > one.epsilon(delta, Fraction(1, 10**5)).upper


def test_the_error_of_one_run_is_not_a_number() -> None:
    assert mean_and_error((0.0, 1.0, 2.0, 5.0))[1] == pytest.approx((14 / 3 / 4) ** 0.5)
    (row,) = returning_table(
        horizon=200, instances=1, max_visits=(1,), routes=("exact",), algorithms=("dist-dp-se",)
    )
    assert math.isnan(row.standard_error)


def test_every_instance_of_the_table_has_its_own_coins(monkeypatch: pytest.MonkeyPatch) -> None:
    # What each run begins with: its arms, and what its three streams give first.
    begun: list[tuple[object, ...]] = []
    found: list[tuple[Run, Pool]] = []

    def spied(policy: Any, environment: Any, **given: Any) -> Run:
        streams = (copy.deepcopy(given["world"]), copy.deepcopy(given["users"].arrivals))
        first = (each.random() for each in streams)
        begun.append((environment.centers, *first, given["rng"].seed))
        run, pool = play(policy, environment, **given), given["users"]
        # Instances that differ in what is the same in most of them.
        more = (1, 3, 2)[len(found)]
        run = replace(run, bits_per_user=run.bits_per_user + more)
        pool.visited[0] += 100 * more
        found.append((run, pool))
        return run

    monkeypatch.setattr(table, "play", spied)
    (row,) = returning_table(
        horizon=2000, instances=3, max_visits=(64,), algorithms=("dist-dp-se",), routes=("renyi",)
    )
    for column in zip(*begun, strict=True):
        assert len(set(column)) == 3
    assert not {rewards for _, rewards, _, _ in begun} & {came for _, _, came, _ in begun}
    each = [run.regret_per_round for run, _ in found]
    assert len({*each}) == 3
    assert row.regret_per_round == pytest.approx(np.mean(each))
    assert row.standard_error == pytest.approx(np.std(each, ddof=1) / 3**0.5)
    away = [pool.turned_away for _, pool in found]
    assert row.turned_away == pytest.approx(np.mean(away))
    assert row.turned_away > 0
    assert row.bits_per_user == max(run.bits_per_user for run, _ in found)
    assert row.most_visits == max(pool.most_visits for _, pool in found)
    assert {row.users} == {pool.users for _, pool in found} == {32}


def test_a_row_says_what_its_route_and_its_noise_cost() -> None:
    (row,) = returning_table(
        horizon=200, instances=1, max_visits=(64,), algorithms=("dist-dp-se",), routes=("renyi",)
    )
    noise = visit_noise(
        law="discrete-laplace", epsilon=1, delta="1e-6", max_visits=64, route="renyi"
    )
    assert isinstance(noise, DiscreteLaplace)
    assert row.per_visit == round_up(16 / Fraction(noise.scale))
    assert row.epsilon_exact < row.epsilon <= 1


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"law": "discrete-gaussian"}, "law"),
        ({"route": "basic"}, "route"),
        ({"delta": 0}, "delta"),
        ({"epsilon": 0}, "epsilon"),
        ({"max_visits": 0}, "max_visits"),
        ({"max_visits": (1, 2)}, "max_visits"),
        ({"max_visits": 1 << 40}, "max_visits"),
        ({"law": []}, "law"),
        ({"route": []}, "route"),
        ({"steps": 0}, "steps"),
    ],
    ids=lambda value: "-".join(map(str, value.items())) if isinstance(value, dict) else "",
)
def test_noise_of_nothing_is_refused(arguments: dict[str, Any], argument: str) -> None:
    given: dict[str, Any] = {
        "law": "discrete-laplace",
        "epsilon": 1,
        "delta": "1e-6",
        "max_visits": 4,
        "route": "exact",
        **arguments,
    }
    with refused(argument):
        visit_noise(**given)


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"algorithms": ("thompson",)}, "algorithm"),
        ({"algorithms": "dist-dp-se"}, "algorithms"),
        ({"routes": ("basic",)}, "route"),
        ({"routes": ()}, "routes"),
        ({"max_visits": 4}, "max_visits"),
        ({"max_visits": ()}, "max_visits"),
        ({"max_visits": (0,)}, "max_visits"),
        ({"max_visits": "4"}, "max_visits"),
        ({"horizon": 0}, "horizon"),
        ({"horizon": 1}, "horizon"),
        ({"horizon": "many"}, "horizon"),
        ({"instances": 0}, "instances"),
        ({"epsilon": 0}, "epsilon"),
        ({"delta": 1}, "delta"),
        ({"gap": 2}, "gap"),
        ({"seed": -1}, "seed"),
    ],
    ids=lambda value: "-".join(map(str, value.items())) if isinstance(value, dict) else "",
)
def test_a_table_of_nothing_is_refused(arguments: dict[str, Any], argument: str) -> None:
    given: dict[str, Any] = {"max_visits": (2,), "algorithms": ("dist-dp-se",), "horizon": 100}
    with refused(argument):
        returning_table(**{**given, **arguments})


@pytest.mark.nightly  # a search over compositions of binomial noise
def test_bits_by_advanced_composition_are_equation_14() -> None:
    given: dict[str, Any] = {"law": "binomial", "epsilon": 1, "delta": "1e-6", "max_visits": 64}
    bits = visit_noise(route="advanced", **given)
    exact = visit_noise(route="exact", **given)
    assert isinstance(bits, Binomial)
    assert isinstance(exact, Binomial)
    deviations = [math.sqrt(float(law.trials) / 4) for law in (bits, exact)]
    assert [round(each, 1) for each in deviations] == [193.2, 33.8]
    for trials, enough in ((bits.trials, True), (int(bits.trials * 0.97), False)):
        visit = PrivacyCurve(noise=Binomial(trials=trials, probability="1/2"), sensitivity=1)
        found = {each.method: each.bound for each in routes(per_user(visit, max_visits=64), "1e-6")}
        bounds = [found[way] for way in ("advanced", "basic")]
        assert (min(float(b.upper) for b in bounds if b is not None) <= 1) is enough
        assert found["renyi"] is None  # the support of bits is bounded: no divergence is finite
