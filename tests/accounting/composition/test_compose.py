r"""Tests of `accounting.composition.compose` against enumeration in mpmath; mutants must fail."""

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
    Assumed,
    Description,
    Gaussian,
    Ledger,
    PrivacyCurve,
    Pure,
    Rdp,
    ReportCurve,
    ZCdp,
    compose,
    filter_for,
    guarantee,
    per_user,
)
from accounting.composition.compose import Composition
from accounting.composition.guarantee_from_json import guarantee_from_json
from accounting.descriptions.sampling_schemes import Poisson
from accounting.group_privacy import for_user
from accounting.guarantees.stated_guarantees import BoundedRange
from accounting.interop.from_dp_accounting import from_dp_event
from accounting.pairs import finite
from accounting.published_noise_bounds import real_gaussian_delta
from dpcore import (
    Binomial,
    DiscreteGaussian,
    DiscreteGaussianSum,
    DiscreteLaplace,
    InvalidParameter,
    Mechanism,
    Relation,
    Scope,
    Sensitivity,
    Skellam,
    Unit,
)
from dpcore.continual_sums import TreeSum
from dpcore.errors import PrecisionExhausted
from dpcore.laws.poisson_and_binomial import Poisson as PoissonNoise
from dpcore.local import RandomisedResponse
from dpcore.noise import Noise
from dpcore.numbers.enclosure import precision
from dpcore.selection import AboveThreshold, NoisyMax, Rule, Selection
from tests.day_and_nightly import by_day
from tests.support.accounting.bound_ends import ends
from tests.support.accounting.brute_force import binomial, hockey_stick, product, shifted
from tests.support.accounting.release_lists import curve, sampled
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refusal, refused

LAPLACE = DiscreteLaplace(scale=2)
NARROW = DiscreteGaussian(sigma_squared=1)
WIDE = DiscreteGaussian(sigma_squared=2)
ADDED = Relation.ADD_REMOVE


def test_an_l2_sensitivity_lies_between_its_worst_shift_and_the_dominating_pair() -> None:
    square = Sensitivity.l2_squared(4)
    found = ends(compose((curve(WIDE, square), 2)).delta(1))
    single = ends(compose((curve(WIDE, Sensitivity.box((1, 1, 1, 1))), 2)).delta(1))
    double = ends(compose((curve(WIDE, 2), 2)).delta(1))
    assert found.upper >= max(single.lower, double.lower)
    assert found.lower >= max(single.lower, double.lower) - Fraction(1, 10**9)


@pytest.mark.parametrize(
    ("noise", "sensitivity", "rounds", "delta", "shown"),
    [
        (DiscreteGaussian(sigma_squared=400), 1, 1000, "1e-6", "8.306226"),
        (DiscreteGaussian(sigma_squared=400), 1, 100, "1e-6", "2.254087"),
        (DiscreteGaussian(sigma_squared=400), 1, 1000, "1e-30", "19.085"),
        (DiscreteLaplace(scale=20), 1, 1000, "1e-6", "8.28357334602"),
        (DiscreteLaplace(scale=20), 1, 100, "1e-6", "2.20753270093"),
        (Skellam(variance=400), 1, 1000, "1e-6", "8.3061"),
        (Skellam(variance=16**2 * 400), 16, 1000, "1e-6", "8.3062"),
    ],
)
def test_totals_agree_with_reference_values(
    noise: Noise, sensitivity: int, rounds: int, delta: str, shown: str
) -> None:
    found = ends(compose((curve(noise, sensitivity), rounds)).epsilon(delta, "1e-8"))
    known = Fraction(shown), Fraction(1, 10 ** len(shown.partition(".")[2]))
    assert found.lower - known[1] <= known[0] <= found.upper + known[1]
    assert found.upper - found.lower <= found.upper / 10**8


def test_at_delta_zero_the_largest_losses_add() -> None:
    assert compose((curve(DiscreteLaplace(scale=20)), 1000)).epsilon(0).upper == 50
    assert compose((curve(DiscreteLaplace(scale=20)), 1000)).epsilon(0).lower == 50
    assert compose((curve(NARROW), 2), curve(LAPLACE)).epsilon(0).upper == math.inf
    assert compose(Pure(1), Approx(1, "1e-9")).epsilon(0).lower == math.inf


def test_renyi_claims_add_order_by_order() -> None:
    total = compose((ZCdp("1/800"), 10), Rdp({2: 1, 3: 2}))
    assert total.renyi(2).upper == Fraction(10 * 2, 800) + 1
    assert total.renyi("5/2").lower is None
    found = total.epsilon("1e-6")
    assert found.lower is None
    assert total.delta(found.upper).upper <= Fraction("1.000001e-6")


def test_compositions_flatten_and_merge() -> None:
    inner = compose((curve(NARROW), 2), Pure(1))
    outer = compose((inner, 3), curve(NARROW))
    assert dict(outer.parts) == {curve(NARROW): 7, Pure(1): 3}
    assert outer.rounds == 10


def test_assumptions_and_stated_claims_stay_in_every_total() -> None:
    total = compose(Assumed(Pure(1), "data sheet"), (compose(curve(NARROW)), 2))
    assert any("data sheet" in reason for reason in compose((total, 2)).assumptions)
    assert "epsilon=1: taken as stated" in compose(Pure(1), curve(NARROW)).assumptions
    assert compose(curve(NARROW)).assumptions == ()


THREE, ONE = (Description(noise=DiscreteLaplace(scale=10), group=group) for group in (3, 1))
VISITS = per_user(curve(LAPLACE), max_visits=4)


@pytest.mark.parametrize(
    ("parts", "argument"),
    [
        ((), "parts"),
        ((3,), "parts"),
        (((Pure(1), 0),), "rounds"),
        (((Pure(1), 1.5),), "rounds"),
        ((Pure(1), Pure(1, scope=Scope(unit=Unit.USER))), "scope"),
        ((VISITS, curve(LAPLACE)), "scope"),
        ((curve(LAPLACE), VISITS), "scope"),
        (((THREE, 2), ONE), "scope"),
        ((compose(THREE), (guarantee(ONE), 3)), "scope"),
        ((compose((compose(ONE), 2)), THREE), "scope"),
        ((THREE, Mechanism(noise=LAPLACE, sensitivity=1)), "scope"),
        ((THREE, NoisyMax(epsilon=1, sensitivity=1)), "scope"),
        ((guarantee(THREE), Pure(1)), "scope"),
    ],
    ids=range(13),
)
def test_guarantees_that_cannot_be_composed_are_refused(
    parts: tuple[Any, ...], argument: str
) -> None:
    with refused(argument):
        compose(*parts)
    if argument == "scope":
        assert "different scopes do not compose" in refusal(lambda: compose(*parts))


def test_equal_scopes_compose_and_a_user_has_no_visits() -> None:
    assert compose(VISITS, VISITS).scope == VISITS.scope
    assert compose(THREE, THREE).pure().upper == Fraction(3, 5)
    assert "has unit user" in refusal(lambda: per_user(VISITS, max_visits=2))


@pytest.mark.parametrize(
    "mechanism",
    [
        NoisyMax(epsilon=1, sensitivity=1),
        AboveThreshold(epsilon=1, sensitivity=1, threshold=0),
        Selection(epsilon=1, sensitivity=1),
        Selection(epsilon=1, sensitivity=1, count=2, rule=Rule.EXPONENTIAL),
    ],
    ids=["noisy-max", "above-threshold", "flip", "exponential"],
)
def test_a_pure_bound_of_a_theorem_gives_totals_only_an_upper_bound(mechanism: Any) -> None:
    found = compose((guarantee(mechanism), 3))
    stated = compose((Pure(1), 3))
    for bound, whole in (
        (found.epsilon("1e-3"), stated.epsilon("1e-3")),
        (found.delta(1), stated.delta(1)),
        (found.renyi(2), stated.renyi(2)),
    ):
        assert not bound.lower
        assert whole.lower
        assert bound.upper <= whole.upper * (1 + 2**-20)
    assert not guarantee_from_json(found.to_json()).epsilon("1e-3").lower


NORMAL = Gaussian(sigma=5)
RARE = Description(noise=NORMAL, scheme=Poisson(rate="1/10"), group=3)
WHOLE = Description(noise=NORMAL, group=3, relation=RARE.relation)
ALONE = replace(WHOLE, group=1)
USER_OF_GROUPS: Any = for_user(compose(RARE, WHOLE), 2)
IN_GROUPS = compose(RARE, (WHOLE, 2), Pure("1/2", scope=RARE.scope))


@pytest.mark.parametrize(
    "total",
    [
        per_user(curve(LAPLACE), max_visits=3),
        compose(Assumed(Pure(1), "vendor's data sheet"), Pure(2)),
        compose((Mechanism(noise=LAPLACE, sensitivity=1), 3)),
        IN_GROUPS,
        USER_OF_GROUPS,
        replace(USER_OF_GROUPS, parts=((guarantee(WHOLE), 2), (guarantee(ALONE), 1))),
    ],
    ids=["user", "assumed", "derived", "groups", "user of groups", "groups of two sizes"],
)
def test_the_json_of_a_total_keeps_scope_and_assumptions(total: Composition) -> None:
    read = guarantee_from_json(json.loads(json.dumps(total.to_json())))
    assert isinstance(read, Composition)
    assert (read.parts, read.scope) == (total.parts, total.scope)
    assert all(any(said in each for each in read.assumptions) for said in total.assumptions)
    assert bool(read.assumptions) == bool(total.assumptions)
    assert guarantee_from_json(read.to_json()) == read
    again: Any = guarantee_from_json(json.loads(json.dumps(total.record())))
    assert (again.parts, again.scope) == (total.parts, total.scope)


@pytest.mark.parametrize(
    ("of_part", "of_whole"),
    [
        (Scope(relation=Relation.ADD_REMOVE), Scope()),
        (Scope(), Scope(unit=Unit.USER, relation=Relation.ADD_REMOVE)),
        (Scope(unit=Unit.USER), Scope()),
    ],
)
def test_the_scope_of_a_total_in_json_must_fit_its_parts(of_part: Scope, of_whole: Scope) -> None:
    parts = compose((Pure(1, scope=of_part), 2)).to_json()
    stated = {"claim": "composition", "parts": parts, "scope": of_whole.to_json()}
    assert "as for the parts" in refusal(lambda: guarantee_from_json(stated))
    of_users = Scope(unit=Unit.USER, relation=of_part.relation)
    assert guarantee_from_json({**stated, "scope": of_users.to_json()}).scope == of_users


def delta_of_choices(at: float, count: int, epsilon: str) -> float:
    """Return delta of ``count`` choices with losses ``at`` and at - 1, the pair with range 1."""
    low, high = math.exp(-at), math.exp(1 - at)
    p = (1 - high) / (low - high)  # both laws sum to 1
    laws = (binomial(count, chance).values() for chance in (p, p * low))
    return float(hockey_stick([*zip(*laws, strict=True)], epsilon))


def adaptive_delta(at: float, count: int, epsilon: float) -> float:
    """The first choice has losses ``at`` and at - 1, the next one the worst after its outcome."""
    if count == 0:
        return max(0.0, 1 - math.exp(epsilon))
    q = (1 - math.exp(at - 1)) / (math.exp(at) - math.exp(at - 1))
    ends = ((at, q * math.exp(at)), (at - 1, (1 - q) * math.exp(at - 1)))
    places = range(41) if count > 1 else (0,)
    return sum(
        mass * max(adaptive_delta(k / 40, count - 1, epsilon - loss) for k in places)
        for loss, mass in ends
    )


def covers(listed: Any, length: float) -> bool:
    """Whether the curve of the losses lies above those of all choices, and close to them."""
    with precision(128):
        rows = [(float(loss), float(q)) for loss, _, q in listed(Fraction(length), 128)]
    for epsilon in (0.0, 0.3 * length, 0.9 * length):
        found = sum(q * max(0.0, math.exp(loss) - math.exp(epsilon)) for loss, q in rows)
        tops = [math.exp(k / 400 * length) for k in range(1, 400)]
        low = math.exp(
            -length
        )  # the ratios are y and y e^-length: the mass of y makes their mean 1
        truth = max((1 - y * low) / (y - y * low) * (y - math.exp(epsilon)) for y in tops)
        if not truth <= found * (1 + 1e-9) <= truth * 1.001:
            return False
    return True


@pytest.mark.parametrize("length", [0.5, 1.0, 4.0])
def test_the_curve_of_bounded_range_covers_every_choice_and_mutants_do_not(length: float) -> None:
    listed = finite._of_chords
    assert covers(listed, length)
    for old, new in (
        ("expm1() ** 2", "expm1() ** 3"),
        ("(loss - epsilon) / 2", "(loss - epsilon)"),
        ("/ whole", "* whole"),
    ):
        assert not covers(mutated(listed.__wrapped__, old, new), length)


def test_a_wide_range_is_bounded_at_a_delta_close_to_one() -> None:
    # delta = (1 - x)^2 with x = 1e-100 is at epsilon = 1000 + 2 log x up to e^-1000.
    found = BoundedRange(1000).epsilon((1 - Fraction(1, 10**100)) ** 2)
    assert found.upper > 1000 - 461 > 0
    assert BoundedRange(1000).epsilon(1).upper == 0


@by_day(1)
@pytest.mark.parametrize(
    ("epsilon", "choices", "rounds"), [("1e300", 1, 1), ("1e6", 2, 1), ("1e300", 1, 3)]
)
def test_the_pure_epsilon_bounds_choices_beyond_floats(
    epsilon: str, choices: int, rounds: int
) -> None:
    total = compose((BoundedRange(epsilon, choices), rounds))
    found = total.epsilon("1e-6")
    # No choice loses less: the bound is within 1e-5 of randomised response, or its sum.
    assert 1 - 1e-5 <= found.upper / (Fraction(epsilon) * rounds) <= 1 + 1e-15
    assert (found.lower, total.delta(1).upper) == (None, 1)
    if rounds == 1:
        assert 0 <= (total.tradeoff("1/10").lower or 0) < Fraction(1, 10**6)


@pytest.mark.parametrize("rounds", [10, 10**9])
def test_the_largest_losses_bound_epsilon_beyond_floats_from_below(rounds: int) -> None:
    found = ends(compose((Pure(10**6), rounds)).epsilon("1e-2"))
    # Almost surely all losses are 10^6: epsilon is their sum plus log(0.99).
    assert found.upper - Fraction(11, 1000) <= found.lower <= found.upper - Fraction(10, 1000)


def test_a_part_without_a_pure_epsilon_gives_no_sum_of_epsilons(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    total = compose((BoundedRange(10**300), 3))
    monkeypatch.setattr(Composition, "_sum_of_pure", lambda self: math.inf)
    assert "range of floats" in refusal(lambda: total.epsilon("1e-6"), PrecisionExhausted)


def test_the_best_order_is_found_if_two_bounds_each_have_a_minimum() -> None:
    found = [compose((BoundedRange(1), count)).epsilon("1e-6").upper for count in (5, 10, 30, 300)]
    plain = [compose((ZCdp("1/8"), count)).epsilon("1e-6").upper for count in (5, 10, 30, 300)]
    assert all(one <= other for one, other in zip(found, plain, strict=True))
    assert found[0] < Fraction(463, 100)
    assert found[1] < Fraction(812, 100) < plain[1]


@pytest.mark.parametrize("count", [1, 2, 4, 30])
@pytest.mark.parametrize("epsilon", ["0", "3/10", "2"])
def test_choices_of_bounded_range_cost_the_lesser_of_two_theorems(count: int, epsilon: str) -> None:
    once = guarantee(Selection(epsilon=1, sensitivity=1, rule=Rule.EXPONENTIAL))
    found = float(compose((once, count)).delta(epsilon).upper)
    worst = max(delta_of_choices(k / 40, count, epsilon) for k in range(41))
    either = [compose((each, count)).delta(epsilon).upper for each in (Pure(1), ZCdp("1/8"))]
    assert worst <= found * (1 + 1e-9)
    assert found <= min(map(float, either)) * (1 + 1e-5)
    if count <= 2:  # one choice has its exact curve, and another may depend on its outcome
        at = float(Fraction(epsilon))
        truth = max(adaptive_delta(k / 400, count, at) for k in range(401))
        assert truth <= found * (1 + 1e-9)
        alone = float(once.delta(epsilon).upper)
        assert count == 2 or truth == pytest.approx(alone, rel=1e-4)
        assert count == 2 or alone <= found <= alone * (1 + 1e-3)


def test_a_list_of_different_choices_costs_the_lesser_of_two_theorems() -> None:
    once = guarantee(Selection(epsilon=1, sensitivity=1, rule=Rule.EXPONENTIAL))
    # Two choices of half the range each, composed.
    both = guarantee(Selection(epsilon=1, sensitivity=1, count=2, rule=Rule.EXPONENTIAL))
    assert (both.pure().upper, both.zcdp().upper) == (1, Fraction(1, 16))
    # The same for one part: many choices cost their zCDP bound, one choice its pure DP bound.
    many = BoundedRange(10, 100)
    assert many.epsilon("1e-6").upper <= ZCdp("1/8").epsilon("1e-6").upper
    assert many.delta(3).upper <= ZCdp("1/8").delta(3).upper
    assert (many.epsilon(0).upper, once.epsilon("1e-6").upper < 1) == (10, True)
    prices = [filter_for(budget).price(once).costs for budget in (Pure(3), ZCdp(1))]
    assert prices == [(1,), (Fraction(1, 8),)]
    assert for_user(BoundedRange(1), 2).zcdp().upper == Fraction(1, 2)
    for wrong in (0, "1/2", -1):
        with pytest.raises(InvalidParameter, match="choices"):
            BoundedRange(1, wrong)  # type: ignore[arg-type]  # read by value


def test_noise_too_large_for_floats_is_refused() -> None:
    found = compose((curve(DiscreteGaussian(sigma_squared="1e309")), 10), curve(NARROW))
    with pytest.raises(PrecisionExhausted, match="outside the range of floats"):
        found.epsilon("1e-5")


INF, TINY = math.inf, Fraction(1, 10**15)
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
        0.2049309, None, 0.2049316,
    ),
    "a sample of coins": (
        [(sampled(Binomial(trials=1000, probability="1/2"), "1/100"), 100)], "epsilon", "1e-6",
        0.0207753, None, 0.0207755,
    ),
    # Evaluating the losses of all 133,341 outcomes one by one takes a minute.
    "outcomes of coins below floats": (
        [curve(Binomial(trials=133_341, probability="2/5"), 7)], "epsilon", "1e-6",
        0.145816623, None, 0.14583,
    ),
    # Rare losses lie far beyond epsilon.
    "a small delta of a sample": (
        [(sampled(NARROW, "1/100"), 100)], "delta", 20, 7.4700e-76, None, 7.4704e-76
    ),
    "an epsilon of any size": (
        [curve(NARROW), Approx(1, "1e-6")], "delta", 10**10, 0, Fraction("1e-6"), 1.01e-6
    ),
    "large losses": ([(Pure(600), 2), Pure(1)], "delta", 1100, 1 - Fraction(1, 10**6), 1, 1),
    "losses beyond floats": (
        [(Pure(10**6), 2), Pure(1)], "epsilon", "1e-6", 2 * 680, 2 * 10**6 + 1, 2 * 10**6 + 1
    ),
    "a loss of any size": (
        [curve(DiscreteLaplace(scale=20), 10**15)], "epsilon", "1e-6",
        Fraction("0.99") * 10**15 / 20, None, Fraction(10**15, 20),
    ),
    # Nearly all mass is at 0, where the loss of each of two rounds is 10^1000/2.
    "noise too narrow for floats": (
        [(curve(DiscreteGaussian(sigma_squared="1e-1000")), 2), curve(NARROW)], "epsilon", "1e-5",
        1360, 10**1000, INF,
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


@pytest.mark.parametrize("rounds", [1, 3])
def test_the_largest_loss_of_a_sample_is_not_that_of_the_noise(rounds: int) -> None:
    one = sampled(DiscreteLaplace(scale=100), "9/10")
    total, single = ends(compose((one, rounds)).epsilon(0)), one.enclose_epsilon(0)
    assert total.lower <= rounds * single.upper
    assert rounds * single.lower <= total.upper
    assert total.upper - total.lower < Fraction(1, 10**15)


def test_a_group_is_part_of_the_scope() -> None:
    assert IN_GROUPS.scope == Scope(relation=ADDED, group=3)
    found: Any = guarantee(WHOLE)
    assert (found.sensitivity, found.description) == (Sensitivity(3), WHOLE)
    assert {part.scope.group for part, _ in USER_OF_GROUPS.parts} == {6}
    assert USER_OF_GROUPS.scope.unit is Unit.USER
    with refused("scope"):
        guarantee_from_json({**USER_OF_GROUPS.record(), "scope": RARE.scope.to_json()})


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
