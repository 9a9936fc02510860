"""Tests of `accounting.convert_guarantees`: mpmath, brute force, round trips, refusals."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import mpmath
import pytest

from accounting import (
    Approx,
    Assumed,
    NotDerived,
    PrivacyCurve,
    Pure,
    Rdp,
    ZCdp,
    claim_from_json,
    compose,
)
from accounting.convert_guarantees import as_approx, as_approx_at, as_pure, as_rdp, as_zcdp
from accounting.guarantees import renyi_and_zcdp_to_epsilon
from accounting.guarantees import stated_guarantees as stated
from accounting.guarantees.renyi_and_zcdp_to_epsilon import (
    approx_from_renyi,
    delta_at_order,
    delta_from_renyi,
    epsilon_at_order,
    randomised_response_renyi,
    rho_within,
)
from accounting.guarantees.stated_guarantees import ApproxBound, PureBound, points_of
from accounting.privacy_filters import SHARES, ApproxFilter, PureFilter
from dpcore import DiscreteGaussian, Scope, Sensitivity, Unit
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.numbers.enclosure import Enclosure
from tests.support.accounting.bound_ends import amounts, epsilon
from tests.support.accounting.brute_force import (
    close,
    converted,
    hockey_stick,
    real,
    renyi,
    response,
)
from tests.support.dpcore.mutants import mutated, rewired
from tests.support.dpcore.refusals import refusal, refused


@pytest.mark.parametrize("e", ["1/100", "1", "5", "40"])
@pytest.mark.parametrize("order", ["101/100", "2", "30"])
def test_a_pure_claim_has_the_divergence_of_randomised_response(e: str, order: str) -> None:
    with mpmath.workdps(50):
        brute = renyi(response(e), order)
    found = randomised_response_renyi(e, order)
    assert close(found, brute, relative="1e-25")
    mutant = mutated(randomised_response_renyi, "-(2 * alpha - 1) * e", "-(2 * alpha + 1) * e")
    assert not mutant(1, 2).overlaps(randomised_response_renyi(1, 2))
    (_, promised) = points_of(as_rdp(Pure(e), [order]))[0]
    assert found.upper <= promised <= found.upper * (1 + Fraction(1, 2**64))
    # Bun and Steinke (2016), Proposition 1.4, and D_alpha <= D_oo.
    assert promised <= points_of(as_rdp(as_zcdp(Pure(e)), [order]))[0][1]


@pytest.mark.parametrize("e", ["1/10", "1", "6"])
@pytest.mark.parametrize("delta", ["1e-6", "1/20", "9/10"])
def test_a_pure_claim_at_a_delta_is_converted_exactly(e: str, delta: str) -> None:
    found = as_approx(Pure(e), delta)
    with mpmath.workdps(50):
        assert hockey_stick(response(e), epsilon(found)) <= real(delta)
        # No smaller epsilon is enough.
        less = epsilon(found) * (1 - Fraction(1, 10**12))
        assert epsilon(found) == 0 or hockey_stick(response(e), less) > real(delta)
    back = as_approx_at(Pure(e), epsilon(found))
    assert epsilon(found) == 0 or abs(Fraction(back.stated_delta) - Fraction(delta)) < Fraction(
        1, 10**15
    )


def test_an_approximate_claim_at_a_larger_delta_is_converted_exactly() -> None:
    # The worst pair: reveals the dataset with probability 1/10, otherwise randomised response.
    claim, delta = Approx(1, "1/10"), Fraction(1, 5)
    with mpmath.workdps(50):
        mixture = [(real("1/10"), 0), *(((p * 0.9), (q * 0.9)) for p, q in response("1"))]
        left = hockey_stick(mixture, epsilon(as_approx(claim, delta)))
        assert abs(left - real(delta)) < mpmath.mpf(10) ** -15
    assert as_approx(claim, "1/10") == claim
    assert as_approx(claim, 1) == ApproxBound(0, 1)
    assert "no theorem lowers the delta" in refusal(lambda: as_approx(claim, "1/11"), NotDerived)
    assert as_approx_at(claim, 5) == ApproxBound(5, "1/10")


@pytest.mark.parametrize(
    ("rho", "delta"), [("1/800", "1e-6"), ("5/4", "1e-6"), ("1/2", "1e-30"), ("1e-4", "1e-4")]
)
def test_zcdp_is_converted_at_the_best_real_order(rho: str, delta: str) -> None:
    found = epsilon(as_approx(ZCdp(rho), delta))
    with mpmath.workdps(40):
        start = mpmath.sqrt(mpmath.log(1 / real(delta)) / real(rho))
        grid = (1 + start * mpmath.mpf(2) ** (mpmath.mpf(n) / 256) for n in range(-256, 128))
        best = min(converted(real(rho) * a, a, real(delta)) for a in grid)
        # At least as good as every order of the grid, and better by no more than its spacing.
        assert best * (1 - mpmath.mpf(10) ** -5) <= real(found) <= best * (1 + mpmath.mpf("1e-15"))
    # The inverse gives delta back, and rho_within gives rho back.
    back = Fraction(as_approx_at(ZCdp(rho), found).stated_delta)
    assert abs(back / Fraction(delta) - 1) < Fraction(1, 10**9)
    inverse = rho_within(found, delta)
    assert abs(inverse / Fraction(rho) - 1) < Fraction(1, 10**9)
    assert epsilon(as_approx(ZCdp(inverse), delta)) <= found * (1 + Fraction(1, 10**15))


def test_renyi_points_are_converted_at_the_best_order() -> None:
    claim = Rdp({2: "1/400", 32: "1/25", 100: "1/8"})
    each = [epsilon_at_order(e, a, Fraction("1e-6")) for a, e in points_of(claim)]
    assert epsilon(as_approx(claim, "1e-6")) == min(each)
    with mpmath.workdps(40):
        for (a, e), upper in zip(points_of(claim), each, strict=True):
            truth = converted(real(e), real(a), real("1e-6"))
            assert 0 <= real(Fraction(upper)) - truth <= truth * mpmath.mpf(10) ** -18
    deltas = [delta_at_order(e, a, Fraction(1)) for a, e in points_of(claim)]
    assert Fraction(as_approx_at(claim, 1).stated_delta) == min(deltas)
    mutant = mutated(
        renyi_and_zcdp_to_epsilon._constant,
        "+ ball(1 - 1 / order).log()",
        "+ 2 * ball(1 - 1 / order).log()",
    )
    short = rewired(epsilon_at_order, _constant=mutant)
    assert short(Fraction(1, 400), Fraction(2), Fraction("1e-6")) < each[0]


def test_a_divergence_between_two_orders_is_at_most_the_chord() -> None:
    # Reference: a law whose divergence is known at every order.
    curve = PrivacyCurve(noise=DiscreteLaplace(scale=2), sensitivity=3)
    claim = as_rdp(curve, [Fraction(3, 2), 4, 9])
    for order in (Fraction(5, 4), Fraction(2), Fraction(4), Fraction(6), Fraction(9)):
        promised = points_of(as_rdp(claim, [order]))[0][1]
        assert curve.enclose_renyi(order).lower <= promised
        assert promised <= points_of(as_rdp(claim, [max(order, Fraction(4))]))[0][1] or order > 4
    assert "order 10" in refusal(lambda: as_rdp(claim, [10]), NotDerived)
    hasty = mutated(stated._between, "/ (order - 1)", "/ order")
    assert hasty(points_of(claim), Fraction(2)) < curve.enclose_renyi(2).lower


def test_a_curve_is_converted_from_its_own_bounds() -> None:
    curve = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=400), sensitivity=1)
    assert as_zcdp(curve) == ZCdp("1/800")
    assert as_rdp(curve, [2]) == Rdp({2: "1/400"})
    assert as_approx(curve, "1e-6").stated_epsilon == curve.epsilon("1e-6").upper
    assert epsilon(as_approx(curve, "1e-6")) < epsilon(as_approx(as_zcdp(curve), "1e-6"))
    refusal(lambda: as_approx(curve, 0), NotDerived)  # its loss is unbounded
    # No exact curve in many dimensions: the zCDP claim is used.
    many = PrivacyCurve(noise=DiscreteLaplace(scale=100), sensitivity=Sensitivity.l1(60))
    assert amounts(as_zcdp(many)) <= amounts(as_zcdp(as_pure(many)))


def test_any_renyi_curve_is_searched_over_real_orders() -> None:
    curve = PrivacyCurve(noise=DiscreteLaplace(scale=10), sensitivity=1)
    found = approx_from_renyi(curve.renyi, "1e-3")
    assert found.lower is None
    grid = [
        epsilon_at_order(curve.renyi(a).upper, a, Fraction(1, 1000))
        for a in (Fraction(n, 2) for n in range(3, 200, 9))
    ]
    assert curve.epsilon("1e-3").upper <= found.upper <= min(grid)
    assert delta_from_renyi(curve.renyi, "1/20").upper >= curve.enclose_delta("1/20").lower
    # If only small orders are finite, the search finds them; if no order is, it is refused.
    bounded = approx_from_renyi(
        lambda a: Enclosure.exactly(a / 8) if a < Fraction(3, 2) else Enclosure.infinite(), "1e-6"
    )
    assert bounded.upper_float < 40
    assert approx_from_renyi(lambda a: Enclosure.infinite(), "1e-6").upper == math.inf
    # A broken search gives a worse bound, not a wrong one.
    aimless = mutated(renyi_and_zcdp_to_epsilon._least, "place + 1, _STEPS", "place + 1, 0")
    broken = rewired(approx_from_renyi, _least=aimless)(lambda a: a / 800, "1e-6").upper
    assert broken > epsilon(as_approx(ZCdp("1/800"), "1e-6"))


def test_a_total_has_no_lower_bound_from_a_converted_claim() -> None:
    # Ten rounds of the curve have epsilon 2.56 at delta = 1/10; ten rounds of the worst mechanism
    # of the converted claim have 10.98.
    curve = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=4), sensitivity=1)
    truth = Fraction(compose((curve, 10)).epsilon("1/10").upper)
    laplace = PrivacyCurve(noise=DiscreteLaplace(scale=2), sensitivity=3)
    for claim in (
        as_approx(curve, "1e-3"),
        as_approx_at(curve, 1),
        as_approx(ZCdp("1/8"), "1e-3"),
        as_approx(Pure(1), "1/10"),
        as_approx_at(Pure(1), "1/2"),
        as_approx(Approx(1, "1e-6"), "1e-3"),
        as_pure(laplace),
        as_pure(compose((Pure(1), 3))),
        PureFilter(budget=Pure(9)).spent((SHARES // 3,)),
        PureFilter(budget=Pure(1)).together(3),
        ApproxFilter(budget=Approx(1, "1e-6")).spent((SHARES, SHARES)),
    ):
        assert isinstance(claim, (PureBound, ApproxBound))
        assert claim_from_json(claim.to_json()) == claim
        assert compose((claim, 10)).epsilon("1/10").lower is None
    assert truth < epsilon(as_approx(compose((as_approx(curve, "1e-3"), 10)), "1/10"))
    # An equal claim is as strong as the given one.
    for same in (Pure(1), PureBound(1)):
        assert as_pure(same) == same
    for pair in (Approx(1, "1e-6"), ApproxBound(1, "1e-6")):
        assert as_approx(pair, "1e-6") == pair == as_approx_at(pair, 1)


def test_scope_and_reason_survive_a_conversion() -> None:
    scope = Scope(unit=Unit.USER)
    claim = Assumed(Pure(1, scope=scope), "the vendor said so")
    for found in (
        as_zcdp(claim),
        as_rdp(claim, [2]),
        as_approx(claim, "1e-6"),
        as_approx_at(claim, "1/2"),
        as_approx(as_rdp(as_zcdp(claim), [2, 30]), "1e-6"),
    ):
        assert isinstance(found, Assumed)
        assert found.reason == "the vendor said so"
        assert found.scope == scope


def test_conversions_without_a_theorem_and_invalid_arguments_are_refused() -> None:
    for claim in (Approx(1, "1e-6"), Approx(1, 0), Assumed(Approx(1, 0), "believed")):
        for convert in (as_zcdp, partial(as_rdp, orders=[2]), as_pure):
            assert "no theorem" in refusal(partial(convert, claim), NotDerived)
    assert "no theorem" in refusal(lambda: as_zcdp(Rdp({2: 1})), NotDerived)
    for other in (ZCdp(1), Rdp({2: 1})):
        assert "delta = 0" in refusal(partial(as_approx, other, 0), NotDerived)
    assert as_approx(ZCdp(0), 0) == ApproxBound(0, 0) == as_approx(Rdp({2: 0}), 0)
    bad: list[tuple[Any, str]] = [
        *((partial(as_approx, Pure(1), delta), "delta") for delta in (-1, "3/2", math.nan)),
        *((partial(approx_from_renyi, lambda a: a, delta), "delta") for delta in (-1, "3/2")),
        (partial(as_approx_at, Pure(1), -1), "epsilon"),
        (partial(delta_from_renyi, lambda a: a, -1), "epsilon"),
        (partial(as_rdp, Pure(1), [1]), "order"),
        (partial(as_zcdp, 1), "claim"),
        (partial(rho_within, 1, 0), "delta"),
    ]
    for act, argument in bad:
        with refused(argument):
            act()
