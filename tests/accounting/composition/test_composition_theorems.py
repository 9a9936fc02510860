r"""Tests of `accounting.composition.composition_theorems`: each method against its reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from mpmath import mp, mpf

import accounting.composition.composition_theorems as module
from accounting import Approx, Assumed, NotDerived, Pure, Rdp, ZCdp, compose, per_user, routes
from accounting.composition.composition_theorems import Route, advanced_over_splits
from accounting.derive_guarantee import PoissonSampled
from accounting.privacy_curves.release_curve import PrivacyCurve
from dpcore import (
    Binomial,
    DiscreteGaussian,
    DiscreteGaussianSum,
    DiscreteLaplace,
    InvalidParameter,
    PolyaDifference,
    Scope,
    Skellam,
)
from tests.day_and_nightly import by_day
from tests.support.accounting.brute_force import hockey_stick, real, response
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refusal

DELTA = Fraction(1, 10**6)
REPLACE = Scope()
ADD_REMOVE = Scope(relation="add-remove")  # type: ignore[arg-type]  # read by value


def visit(noise: Any, sensitivity: Any = 1, scope: Scope = REPLACE) -> PrivacyCurve:
    return PrivacyCurve(noise=noise, sensitivity=sensitivity, scope=scope)


SKELLAM, GAUSSIAN = visit(Skellam(variance=40)), visit(DiscreteGaussian(sigma_squared=400))
LAPLACE = visit(DiscreteLaplace(scale=20))
POLYA = visit(PolyaDifference(shape="0.9", scale=2))
SAMPLED = PoissonSampled(
    curve=visit(DiscreteGaussian(sigma_squared=4), scope=ADD_REMOVE), rate="1/100"
)


def upper(found: Sequence[Route], method: str) -> Fraction | float:
    (route,) = (each for each in found if each.method == method)
    assert route.bound is not None, route.reason
    return route.bound.upper


def table(guarantee: Any, visits: int, delta: Fraction = DELTA) -> tuple[Route, ...]:
    return routes(per_user(guarantee, max_visits=visits), delta)


@pytest.mark.parametrize("visits", [2, 16, 64])
def test_exact_and_optimal_routes_of_a_pure_claim_equal_a_binomial_sum(visits: int) -> None:
    found = table(Pure("1/10"), visits)
    for method in ("exact", "optimal"):
        total = real(Fraction(upper(found, method)))
        with mp.workdps(40):
            at = hockey_stick(response("1/10", visits), total)
        assert at <= real(DELTA) * (1 + mpf(10) ** -6)
        assert at >= real(DELTA) * (1 - mpf(10) ** -4)
    # Randomised response at 1/10 needs slightly less than 1/10 at delta/B.
    assert Fraction(999, 10000) < upper(found, "basic") / visits <= Fraction(1, 10)


@pytest.mark.parametrize("visits", [1, 64])
def test_basic_composition_divides_delta_equally(visits: int) -> None:
    truth = visits * Fraction(GAUSSIAN.epsilon(DELTA / visits).upper)
    found = Fraction(upper(table(GAUSSIAN, visits), "basic"))
    assert truth * (1 - Fraction(1, 10**12)) <= found <= truth * (1 + Fraction(1, 10**4))


def test_published_bounds_of_sums_are_reproduced() -> None:
    # 16 terms of variance 1 under a step of 4 are 1/2-concentrated, up to xi (Chowdhury and Zhou,
    # Lemma 4).
    total = per_user(visit(DiscreteGaussianSum(count=16, sigma_squared=1), 4), max_visits=3)
    bound = module._paper(total, DELTA).upper
    assert (
        upper(table(ZCdp("3/2"), 1), "zcdp")
        <= bound
        < Fraction("1.0005") * Fraction(upper(table(ZCdp("3/2"), 1), "zcdp"))
    )
    low = per_user(visit(DiscreteGaussianSum(count=16, sigma_squared="1/5")), max_visits=2)
    assert "sigma_squared >= 1/4" in refusal(lambda: module._paper(low, DELTA), NotDerived)


@by_day(3)
@pytest.mark.parametrize(
    ("guarantee", "without"),
    [
        (SKELLAM, set()),
        (LAPLACE, {"paper"}),
        (POLYA, {"paper"}),
        (Pure("1/10"), {"paper"}),
        (Approx("1/10", "1e-9"), {"renyi", "paper", "zcdp"}),
        (ZCdp("1/800"), {"exact", "paper"}),
        (Rdp({2: "1/400", 8: "1/100"}), {"exact", "paper", "zcdp"}),
        (SAMPLED, {"paper"}),
        (visit(Binomial(trials=100, probability="1/2")), {"renyi", "paper", "zcdp"}),
        (Assumed(Pure("1/10"), "said so"), {"paper"}),
    ],
)
def test_each_route_gives_a_bound_or_a_reason(guarantee: Any, without: set[str]) -> None:
    found = table(guarantee, 2)
    assert {route.method for route in found if route.bound is None} == without
    for route in found:
        assert (route.bound is None) == bool(route.reason)
        data = route.to_json()
        assert (data["epsilon"] is None) == (route.bound is None)
    if "exact" not in without:
        exact = upper(found, "exact")
        best = min(route.bound.upper for route in found if route.bound is not None)
        assert best >= exact * Fraction(999, 1000)


def test_assumptions_stay_and_infinite_routes_and_bad_input_are_named() -> None:
    total = per_user(Assumed(Pure("1/10"), "said so"), max_visits=3)
    for said in ("said so", "at most 3 batches"):
        assert any(said in reason for reason in total.assumptions)
    assert total.scope.unit.value == "user"
    found = {each.method: each for each in table(Approx("1/10", "1e-3"), 4)}
    assert found["exact"].bound is not None
    assert found["exact"].bound.upper == math.inf
    assert (found["basic"].bound, found["basic"].reason) == (
        None,
        "no finite epsilon at this delta",
    )
    assert "max_visits" in refusal(lambda: per_user(SKELLAM, max_visits=0))
    for delta in (0, 1, -1, 2):
        with pytest.raises(InvalidParameter, match="delta"):
            routes(per_user(SKELLAM, max_visits=2), delta)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("_renyi", "rounds * _divergence", "_divergence"),
        ("_zcdp", "rounds * _rho", "_rho"),
        ("_optimal", "compose((claim, rounds))", "compose((claim, 1))"),
        ("_basic", "rounds * compose(source)", "compose(source)"),
    ],
)
def test_a_route_that_omits_rounds_is_detected(
    monkeypatch: pytest.MonkeyPatch, name: str, old: str, new: str
) -> None:
    def orderly() -> bool:
        found = table(Pure("1/10"), 64)
        exact = Fraction(upper(found, "exact"))
        return all(
            route.bound is None or route.bound.upper >= exact * Fraction(999999, 1000000)
            for route in found
        )

    assert orderly()
    monkeypatch.setattr(module, name, mutated(getattr(module, name), old, new))
    assert not orderly()


@pytest.mark.parametrize("e", ["1/1000", "1/20", "1"])
@pytest.mark.parametrize("rounds", [1, 30, 1000])
@pytest.mark.parametrize("slack", ["1e-6", "1/2"])
def test_advanced_composition_is_its_formula_and_above_the_exact_total(
    e: str, rounds: int, slack: str
) -> None:
    each, left = Fraction(e), Fraction(slack)
    found = Fraction(module._forward(each, rounds, left))
    with mpmath.workdps(40):
        truth = real(each) * mpmath.sqrt(2 * rounds * mpmath.log(1 / real(left)))
        truth += rounds * real(each) * mpmath.expm1(real(each))
        assert 0 <= real(found) - truth <= truth * mpmath.mpf(10) ** -18
    assert compose((Pure(e), rounds)).epsilon(left).upper <= found
    low = mutated(module._forward, "each * spread + rounds * each * each.expm1()", "each * spread")
    assert low(each, rounds, left) < found


def test_the_search_over_splits_is_at_least_as_good_as_an_even_grid() -> None:
    def epsilon_of(delta: Fraction) -> Fraction | float:
        return GAUSSIAN.epsilon(delta).upper

    found, total = advanced_over_splits(epsilon_of, 64, "1e-6"), Fraction(1, 10**6)
    assert (found.lower, found.upper) == (None, upper(table(GAUSSIAN, 64), "advanced"))
    parts = [Fraction(n, 40 * 10**6) for n in range(1, 40)]
    grid = [module._forward(Fraction(epsilon_of(d / 64)), 64, total - d) for d in parts]
    assert min(grid) * Fraction(99, 100) < found.upper <= min(grid)
    assert advanced_over_splits(lambda d: math.inf, 3, "1e-6").upper == math.inf
    # A pure round needs no part of delta.
    pure = advanced_over_splits(lambda d: Fraction(1, 20), 1000, "1e-6").upper
    assert pure == module._forward(Fraction(1, 20), 1000, total)
    assert module._forward(Fraction(10**6), 5, total) == math.inf
    for rounds, delta in ((0, "1e-6"), (3, 0), (3, 1)):
        with pytest.raises(InvalidParameter, match="rounds" if rounds < 1 else "delta"):
            advanced_over_splits(epsilon_of, rounds, delta)
