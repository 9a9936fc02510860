r"""Regression tests of composition: lists that once had wide, slow or wrong bounds."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from accounting import (
    Approx,
    Description,
    Gaussian,
    Ledger,
    PrivacyCurve,
    Pure,
    ReportCurve,
    compose,
    guarantee,
    guarantee_from_json,
    per_user,
    routes,
)
from accounting.descriptions.sampling_schemes import Poisson
from accounting.group_privacy import for_user
from accounting.interop.from_dp_accounting import from_dp_event
from accounting.law_pairs.registry import pair_of
from accounting.pld.discretise_round import Focus
from accounting.pld.integer_cells import IntegerPair
from accounting.pld_composition.cell_refinement import TabledLoss
from accounting.pld_composition.contour_integral import ContourIntegral
from accounting.published_noise_bounds import real_gaussian_delta
from dpcore import (
    Binomial,
    DiscreteGaussian,
    DiscreteGaussianSum,
    DiscreteLaplace,
    InvalidParameter,
    Mechanism,
    PolyaDifference,
    Relation,
    Scope,
    Sensitivity,
    Skellam,
    Unit,
)
from dpcore.continual_sums import TreeSum
from dpcore.laws.poisson_and_binomial import Poisson as PoissonNoise
from dpcore.local import RandomisedResponse
from dpcore.selection import NoisyMax
from tests.day_and_nightly import by_day
from tests.support.accounting.bound_ends import ends
from tests.support.accounting.brute_force import (
    binomial,
    hockey_stick,
    product,
    shifted,
)
from tests.support.accounting.release_lists import curve, sampled
from tests.support.dpcore.refusals import refusal, refused

ADDED = Relation.ADD_REMOVE
INF, TINY = math.inf, Fraction(1, 10**15)
NARROW = DiscreteGaussian(sigma_squared=1)
NIGHT = pytest.mark.nightly
# Parts, the quantity and its point; both bounds lie between least and most, around a reference.
EDGES: dict[str, tuple[list[Any], str, Any, Any, Any, Any]] = {
    # All three rounds hide the dataset only if each draws 3 or more.
    "hidden masses add up to 1 and a rounding": (
        [(curve(PoissonNoise(mean="1/602"), 3), 3)], "delta", 0, 0.99999, 1 - Fraction(1, 10**29), 1
    ),
    "a claim at its own delta": ([Approx(1, "1e-6")], "epsilon", "1e-6", 1, 1, 1),
    "a claim of 0 at its own delta": ([Approx(0, "1e-3")], "epsilon", "1e-3", 0, 0, 0),
    "a claim with delta 1": ([Approx(1, 1)], "epsilon", "1/2", INF, INF, INF),
    "a claim below its own delta": ([Approx(1, "1/10")], "epsilon", "1/20", INF, INF, INF),
    "a tiny delta": (
        [Approx(1, "1e-60")], "delta", 2, Fraction("1e-60") * (1 - TINY), Fraction("1e-60"),
        Fraction("1e-60") * (1 + TINY),
    ),
    # Reference: an FFT on a grid of 2e-5, computed elsewhere.
    "a small sample": (
        [(sampled(DiscreteGaussian(sigma_squared=4), "1e-3"), 10**4)], "epsilon", "1e-6",
        0.20492, None, 0.20494,
    ),
    "large losses": ([(Pure(600), 2), Pure(1)], "delta", 1100, 1 - Fraction(1, 10**6), 1, 1),
    "losses beyond floats": (
        [(Pure(10**6), 2), Pure(1)], "epsilon", "1e-6", 2 * 680, 2 * 10**6 + 1, 2 * 10**6 + 1
    ),
    "a loss of any size": (
        [curve(DiscreteLaplace(scale=20), 10**15)], "epsilon", "1e-6",
        Fraction("0.99") * 10**15 / 20, None, Fraction(10**15, 20),
    ),
    # Nearly all mass is at 0, where the loss of each of ten rounds is 10^1000/2.
    "noise too narrow for floats": (
        [(curve(DiscreteGaussian(sigma_squared="1e-1000")), 10), curve(NARROW)], "epsilon", "1e-5",
        6800, 5 * 10**1000, INF,
    ),
    # Reference: three times the largest loss.
    "losses too large for the integral": (
        [(curve(DiscreteLaplace(scale=10), 10**6), 3)], "epsilon", "1e-6", 99_999, None, 300_000
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EDGES)
def test_a_list_at_the_edge_has_both_bounds(name: str) -> None:
    parts, question, at, least, truth, most = EDGES[name]
    found = getattr(compose(*parts), question)(at)
    assert least <= found.lower <= found.upper <= most
    assert truth is None or found.lower <= truth <= found.upper
    assert len(repr(found)) < 200


def test_very_wide_laws_have_the_total_of_a_real_gaussian() -> None:
    """The squared shift is the sum of rounds times shifts squared over variances."""
    parts = [(curve(DiscreteGaussian(sigma_squared=v * 10**10)), 10**9) for v in (1, 2)]
    found, shift, room = ends(compose(*parts).epsilon("1e-6")), math.sqrt(3 / 20), Fraction(1, 100)
    assert found.upper / Fraction(found.lower) - 1 < room / 10
    assert real_gaussian_delta(1 / shift, found.upper).lower <= (1 + room) / 10**6
    assert real_gaussian_delta(1 / shift, found.lower).upper >= (1 - room) / 10**6


@pytest.mark.parametrize(
    ("parts", "relative"),
    [
        ((sampled(Binomial(trials=1000, probability="1/2"), "1/100"), 100), "1e-5"),
        ((sampled(DiscreteGaussian(sigma_squared=4), "1e-3"), 10**4), "4e-6"),
        pytest.param((curve(PolyaDifference(shape=2, scale=1000), 10), 1000), "1e-7", marks=NIGHT),
    ],
)
def test_samples_and_wide_polya_differences_have_narrow_bounds(
    parts: tuple[Any, int], relative: str
) -> None:
    found = ends(compose(parts).epsilon("1e-6", min(Fraction(relative), Fraction(1, 10**6))))
    assert found.upper - found.lower < found.upper * Fraction(relative)


@pytest.mark.parametrize("rounds", [1, 3])
def test_the_largest_loss_of_a_sample_is_not_that_of_the_noise(rounds: int) -> None:
    one = sampled(DiscreteLaplace(scale=100), "9/10")
    total, single = ends(compose((one, rounds)).epsilon(0)), one.enclose_epsilon(0)
    assert total.lower <= rounds * single.upper
    assert rounds * single.lower <= total.upper
    assert total.upper - total.lower < Fraction(1, 10**15)


def test_outcomes_of_coins_below_floats_are_put_into_a_tail() -> None:
    # Evaluating the losses of all 133,341 outcomes one by one takes a minute.
    coins = curve(Binomial(trials=133_341, probability="2/5"), 7)
    table = IntegerPair(pair=pair_of(coins.noise, 7))
    assert len(table.cells(table.edges(Focus(1.0), 10**6)).p.value) < 20_000
    found, single = ends(compose(coins).epsilon("1e-6")), ends(coins.epsilon("1e-6"))
    assert found.lower <= single.upper
    assert single.lower <= found.upper <= single.lower * Fraction(1001, 1000)


def test_many_rounds_with_few_losses_use_the_contour_integral() -> None:
    found = compose((sampled(DiscreteLaplace(scale=1), "1/100"), 6400)).epsilon("1e-6")
    assert found.method == "contour"


def test_the_guarantee_of_a_user_does_not_compose_with_that_of_a_contribution() -> None:
    visit = curve(Skellam(variance=400))
    user = per_user(visit, max_visits=4)
    assert compose(user, user).scope == user.scope
    for mixed in ((user, visit), (visit, user)):
        with pytest.raises(InvalidParameter, match="scopes do not compose"):
            compose(*mixed)
    assert "has unit user" in refusal(lambda: per_user(user, max_visits=2))


def test_groups_of_different_sizes_do_not_compose() -> None:
    laplace = DiscreteLaplace(scale=10)
    one, three = (Description(noise=laplace, group=group) for group in (1, 3))
    assert compose(three, three).pure().upper == Fraction(3, 5)
    for mixed in (
        ((three, 2), one),
        (compose(three), (guarantee(one), 3)),
        (compose((compose(one), 2)), three),
        (three, Mechanism(noise=laplace, sensitivity=1)),
        (three, NoisyMax(epsilon=1, sensitivity=1)),
        (guarantee(three), Pure(1)),
    ):
        with pytest.raises(InvalidParameter, match=r"group=.*different scopes do not compose"):
            compose(*mixed)


def test_a_group_is_part_of_the_scope() -> None:
    rare = Description(noise=Gaussian(sigma=5), scheme=Poisson(rate="1/10"), group=3)
    whole = Description(noise=Gaussian(sigma=5), group=3, relation=rare.relation)
    stated = Pure("1/2", scope=rare.scope)
    total = compose(rare, (whole, 2), stated)
    assert total.scope == Scope(relation=ADDED, group=3)
    assert guarantee_from_json(json.loads(json.dumps(total.to_json()))) == total
    found: Any = guarantee(whole)
    assert (found.sensitivity, found.description) == (Sensitivity(3), whole)
    user: Any = for_user(compose(rare, whole), 2)
    again: Any = guarantee_from_json(json.loads(json.dumps(user.record())))
    assert (again, {each.scope.group for each, _ in again.parts}) == (user, {6})
    one = replace(user, parts=(*user.parts, (guarantee(replace(whole, group=1)), 1)))
    mixed: Any = guarantee_from_json(one.to_json())
    assert (mixed.parts, mixed.scope) == (one.parts, Scope(unit=Unit.USER, relation=ADDED))
    with refused("scope"):
        guarantee_from_json({**one.record(), "scope": rare.scope.to_json()})


def test_a_group_is_refused_where_a_mechanism_is_for_one_unit() -> None:
    pair = Scope(group=2)
    for made in (
        lambda: Mechanism(noise=DiscreteLaplace(scale=1), sensitivity=2, scope=pair),
        lambda: RandomisedResponse(epsilon=1, values=3, scope=pair),
        lambda: ReportCurve(ratio=2, distance="1/3", scope=pair),
        lambda: TreeSum(horizon=4, noise=DiscreteLaplace(scale=1), scope=pair),
        lambda: NoisyMax(epsilon=1, sensitivity=1, scope=pair),
        lambda: from_dp_event({"class_name": "NoOpDpEvent"}, pair),
        lambda: Ledger.create("sqlite://", budget=Pure(1, scope=replace(pair, unit=Unit.USER))),
    ):
        with pytest.raises(InvalidParameter, match=r"^(scope|budget) = "):
            made()
    with refused("sensitivity"):
        PrivacyCurve(noise=DiscreteLaplace(scale=1), sensitivity=3, scope=pair)


def test_routes_accept_any_guarantee() -> None:
    assert routes(Pure("1/10"), "1e-6") == routes(compose(Pure("1/10")), "1e-6")


@pytest.mark.parametrize("bounds", [(1, 1), (1, 2), (2, 1, 1)])
def test_the_worst_signs_of_a_box_give_the_lower_bound(bounds: tuple[int, ...]) -> None:
    # With equal bounds, mixed signs are worse than aligned ones, once the only ones tried.
    p = Fraction(11, 25)

    def apart(shift: tuple[int, ...]) -> float:
        world = product(shifted(binomial(3, p), step) for step in shift)
        return float(hockey_stick(world, "0.617"))

    signed = [
        tuple(s * d for s, d in zip(signs, bounds, strict=True))
        for signs in itertools.product((1, -1), repeat=len(bounds))
    ]
    truth, aligned = max(map(apart, signed)), max(apart(signed[0]), apart(signed[-1]))
    box = curve(Binomial(trials=3, probability=p), Sensitivity.box(bounds))
    found = ends(compose(box).delta("0.617"))
    assert math.isclose(found.lower, truth, rel_tol=1e-7)
    assert (aligned < truth - 1e-3) is (bounds == (1, 1))
    assert truth <= found.upper


def test_rare_losses_far_beyond_epsilon_keep_a_small_delta_narrow() -> None:
    pair = TabledLoss(
        kinds=sampled(DiscreteGaussian(sigma_squared=1), "1/100").directions[0], above=True
    )
    found = ContourIntegral(parts=((pair, 100),)).delta(20, "1e-8")
    assert found.upper < Fraction("1e-75")
    assert found.width < found.upper / 10**4


@pytest.mark.parametrize("rounds", [1, 3])
def test_laws_without_a_common_output_reveal_the_dataset(rounds: int) -> None:
    bare = PrivacyCurve(noise=Binomial(trials=1, probability="1/20"), sensitivity=2)
    other = PrivacyCurve(noise=DiscreteLaplace(scale=3), sensitivity=1)
    for total in (compose((bare, rounds)), compose((bare, rounds), (other, 2))):
        assert (total.delta(5).lower, total.delta(5).upper) == (1, 1)
        assert (total.epsilon("1e-6").upper, total.pure().upper) == (math.inf, math.inf)


@pytest.mark.parametrize("variance", [1, 400])
def test_a_delta_below_every_enclosure_has_the_lower_bound_zero(variance: int) -> None:
    # At 30 delta is proven to be below 10^-1000000, so at 100 no positive lower bound exists.
    release = curve(Skellam(variance=variance))
    assert compose(release).delta(30).upper < Fraction(1, 10**10000)
    for found in (compose(release).delta(100), release.delta(100)):
        assert found.lower == 0
        assert found.upper < Fraction(1, 10**300)


def test_a_narrower_request_gives_no_wider_bounds() -> None:
    total = compose((curve(DiscreteLaplace(scale="1/186")), 30))
    found = [ends(total.delta(3600, width)) for width in ("1/2", "1e-6", "1e-12")]
    assert all(each.lower > 1 - TINY * 10**4 for each in found)
    little = DiscreteGaussian(sigma_squared="1/100")
    large = sampled(DiscreteLaplace(scale="1/10"), "1")
    mixed = compose((large, 1000), (sampled(little, "1/100"), 1000))
    assert ends(mixed.delta(5, "1e-6")).lower > ends(mixed.delta(5, "1/2")).lower > 0.99


@pytest.mark.nightly
@pytest.mark.parametrize("width", ["1e-6", "1/2"])
def test_a_delta_close_to_one_is_at_most_one(width: str) -> None:
    r"""The mass of losses counted as infinite is known only from above; the sum exceeded 1."""
    parts = (Gaussian(sigma=Fraction(1000, 3)), 16), (Gaussian(sigma=1000), 2000)
    wide = ((guarantee(Description(noise=n, sensitivity=1, relation=ADDED)), k) for n, k in parts)
    total = compose((sampled(DiscreteGaussian(sigma_squared="1/100"), "1/10"), 2000), *wide)
    found = ends(total.delta(3, width))
    assert 1 - 10 * Fraction(width) <= found.lower <= found.upper == 1


@pytest.mark.parametrize("rounds", [16, 20])
def test_rare_outcomes_are_not_counted_as_infinite_losses(rounds: int) -> None:
    r"""Outcomes below 1e-20 have more mass together than this delta, and matter only there."""
    narrow = DiscreteGaussian(sigma_squared="17/100")
    found = ends(compose((curve(narrow), rounds)).epsilon("1e-20"))
    assert found.width <= found.upper / 10**6
    # The loss is a function of the sum of all outputs, which is one release with one pair.
    summed = DiscreteGaussianSum(count=rounds, sigma_squared="17/100")
    one = ends(curve(summed, rounds).epsilon("1e-20"))
    assert max(one.lower, found.lower) <= min(one.upper, found.upper)


@by_day(1)
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("sigma", "delta"), [(1000, "1e-200"), (10000, "1e-30")])
def test_few_samples_of_wide_noise_have_narrow_bounds(
    sigma: int, delta: str, relation: Relation
) -> None:
    r"""The loss of a removed unit is bounded, but far above epsilon: it is cut as well."""
    noise, scheme = Gaussian(sigma=sigma), Poisson(rate="1/100")
    one = guarantee(Description(noise=noise, sensitivity=1, scheme=scheme, relation=relation))
    found = ends(compose((one, 3)).epsilon(delta))
    assert found.width <= found.upper / 10**6
    assert ends(one.epsilon(delta)).lower < found.upper < 3 * ends(one.epsilon(delta)).upper
