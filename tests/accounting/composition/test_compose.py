r"""Tests of `accounting.composition.compose` against enumeration in mpmath; mutants must fail."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import pytest

from accounting import (
    Approx,
    Assumed,
    Pure,
    Rdp,
    ZCdp,
    compose,
    filter_for,
    guarantee,
    per_user,
)
from accounting.composition.compose import Composition
from accounting.composition.guarantee_from_json import guarantee_from_json
from accounting.group_privacy import for_user
from accounting.guarantees.stated_guarantees import BoundedRange
from accounting.pairs import finite
from dpcore import (
    DiscreteGaussian,
    DiscreteLaplace,
    InvalidParameter,
    Mechanism,
    Relation,
    Scope,
    Sensitivity,
    Skellam,
    Unit,
)
from dpcore.errors import PrecisionExhausted
from dpcore.noise import Noise
from dpcore.numbers.enclosure import precision
from dpcore.selection import AboveThreshold, NoisyMax, Rule, Selection
from tests.day_and_nightly import by_day
from tests.support.accounting.bound_ends import ends
from tests.support.accounting.release_lists import curve
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refusal, refused

LAPLACE = DiscreteLaplace(scale=2)
NARROW = DiscreteGaussian(sigma_squared=1)
WIDE = DiscreteGaussian(sigma_squared=2)


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


@pytest.mark.parametrize(
    ("parts", "argument"),
    [
        ((), "parts"),
        ((3,), "parts"),
        (((Pure(1), 0),), "rounds"),
        (((Pure(1), 1.5),), "rounds"),
        ((Pure(1), Pure(1, scope=Scope(unit="user"))), "scope"),  # type: ignore[arg-type]  # read by value
    ],
)
def test_guarantees_that_cannot_be_composed_are_refused(
    parts: tuple[Any, ...], argument: str
) -> None:
    with refused(argument):
        compose(*parts)


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


@pytest.mark.parametrize(
    "total",
    [
        per_user(curve(LAPLACE), max_visits=3),
        compose(Assumed(Pure(1), "vendor's data sheet"), Pure(2)),
        compose((Mechanism(noise=LAPLACE, sensitivity=1), 3)),
    ],
    ids=["user", "assumed", "derived"],
)
def test_the_json_of_a_total_keeps_scope_and_assumptions(total: Composition) -> None:
    read = guarantee_from_json(json.loads(json.dumps(total.to_json())))
    assert isinstance(read, Composition)
    assert (read.parts, read.scope) == (total.parts, total.scope)
    assert all(any(said in each for each in read.assumptions) for said in total.assumptions)
    assert bool(read.assumptions) == bool(total.assumptions)
    assert guarantee_from_json(read.to_json()) == read


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


def delta_of_choices(at: float, count: int, epsilon: float) -> float:
    """Return delta of ``count`` choices with losses ``at`` and at - 1, the pair with range 1."""
    low, high = math.exp(-at), math.exp(1 - at)
    p = (1 - high) / (low - high)  # both laws sum to 1
    losses = [(i * at + (count - i) * (at - 1), i) for i in range(count + 1)]
    return sum(
        math.comb(count, i) * p**i * (1 - p) ** (count - i) * max(0.0, 1 - math.exp(epsilon - loss))
        for loss, i in losses
    )


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


def test_a_part_without_a_pure_epsilon_gives_no_sum_of_epsilons(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    total = compose((BoundedRange(10**300), 3))
    monkeypatch.setattr(Composition, "_sum_of_pure", lambda self: math.inf)
    with pytest.raises(PrecisionExhausted, match="range of floats"):
        total.epsilon("1e-6")


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
    worst = max(delta_of_choices(k / 40, count, float(Fraction(epsilon))) for k in range(41))
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
