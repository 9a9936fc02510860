"""Tests of `release_curve` in one coordinate: general laws, known values, edges and refusals."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from accounting import NotDerived, PrivacyCurve, guarantee
from accounting.law_pairs.registry import pair_of
from accounting.pairs.pair import ClosedPair, ShiftedPair
from dpcore import DiscreteGaussian, DiscreteLaplace, Mechanism, Noise, Sensitivity
from dpcore.numbers.enclosure import Enclosure, precision
from tests.support.accounting.unregistered_law import Lopsided, Triangle
from tests.support.dpcore.refusals import refusal, refused


@pytest.mark.parametrize(
    "noise", [DiscreteGaussian(sigma_squared=7), DiscreteLaplace(scale="5/2")], ids=repr
)
def test_the_general_pair_inverts_its_curve_as_the_closed_form_does(noise: Noise) -> None:
    general, own = ShiftedPair(noise=noise, shift=70), pair_of(noise, 70)
    assert isinstance(own, ClosedPair)
    with precision(192):
        for delta in map(Fraction, ("1/3", "1/1000", "1e-10")):
            both = [pair.epsilon(delta, pair.guess(delta) or 0) for pair in (general, own)]
            assert both[0].overlaps(both[1])
            assert all(value.is_finite() for value in both)


TRIANGLE = PrivacyCurve(noise=Triangle(half=2), sensitivity=1)


def test_ties_are_enclosed_and_impossible_mass_costs_an_infinite_epsilon() -> None:
    assert TRIANGLE.enclose_delta(0).lower <= Fraction(1, 3) <= TRIANGLE.delta(0).upper
    at_corner = TRIANGLE.enclose_epsilon("1/3")
    assert at_corner.lower == 0
    assert at_corner.upper < Fraction(1, 2**64)
    # P(X = 2) = 1/9 is out of reach of X - 1.
    assert TRIANGLE.enclose_epsilon("1/10") == Enclosure.infinite()
    assert TRIANGLE.epsilon("1/8").upper < 1
    assert Fraction(1, 9) in TRIANGLE.enclose_delta(40)


def test_a_quantity_without_a_theorem_is_refused() -> None:
    with pytest.raises(NotDerived, match="worst shift"):
        guarantee(Mechanism(noise=Lopsided(half=2), sensitivity=Sensitivity(1)))
    for question in (
        partial(TRIANGLE.epsilon, 0),
        TRIANGLE.zcdp,
        TRIANGLE.pure,
        partial(TRIANGLE.renyi, 2),
        partial(TRIANGLE.tradeoff, 0),
    ):
        assert "cannot derive " in refusal(question, NotDerived)


@pytest.mark.parametrize("delta", ["1e-6", "1e-30", "1e-300", "1e-3000"])
def test_far_tails_are_enclosed_and_consistent(delta: str) -> None:
    curve = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=400), sensitivity=Sensitivity(1))
    found = curve.enclose_epsilon(delta)
    assert found.width <= found.upper / 2**64
    assert curve.delta(found.lower).upper >= Fraction(delta)
    assert curve.enclose_delta(found.upper).lower <= Fraction(delta)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("delta", ["1/4", "1/1000"])
@pytest.mark.parametrize(("variance", "kept"), [(1, False), (3, False), (64, True)])
def test_losses_beyond_floats_have_a_finite_bound(delta: str, variance: int, kept: bool) -> None:
    noise = DiscreteGaussian(sigma_squared=variance)
    found = PrivacyCurve(noise=noise, sensitivity=Sensitivity.box((64, 64))).epsilon(delta)
    assert found.lower is not None
    assert isinstance(found.upper, Fraction)
    assert (found.upper < found.lower * (1 + Fraction(1, 10**6))) == kept
    masses = {x: noise.pmf(x) for x in range(-99, 100)}

    def delta_at(epsilon: float) -> float:
        # The loss at x is (64^2 - 128 x)/2v.
        losses = {x: (64**2 - 128 * x) / (2 * variance) for x in masses}
        return sum(
            p * q * -math.expm1(min(epsilon - losses[x] - losses[y], 0))
            for x, p in masses.items()
            for y, q in masses.items()
        )

    assert delta_at(float(found.upper)) <= Fraction(delta) * (1 + Fraction(1, 10**6))
    assert delta_at(float(found.lower)) >= Fraction(delta) * (1 - Fraction(1, 10**4))


GAUSSIAN = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=4), sensitivity=1)


def test_trivial_points_of_the_curve_are_exact() -> None:
    assert GAUSSIAN.enclose_epsilon(1) == Enclosure.exactly(0)
    assert GAUSSIAN.enclose_epsilon("1/2") == Enclosure.exactly(0)
    assert GAUSSIAN.enclose_tradeoff(0) == Enclosure.exactly(1)
    assert GAUSSIAN.enclose_tradeoff(1) == Enclosure.exactly(0)
    assert GAUSSIAN.epsilon(GAUSSIAN.enclose_delta(0).upper).upper < Fraction(1, 2**50)
    assert float(GAUSSIAN.epsilon("1e-9")) >= GAUSSIAN.epsilon("1e-9").upper
    assert float(GAUSSIAN.delta(2)) >= GAUSSIAN.delta(2).upper
    assert math.isinf(float(GAUSSIAN.epsilon(0)))


@pytest.mark.parametrize("bits", [0, 7, 1 << 20, "many", 64.0, True])
def test_an_accuracy_out_of_range_is_refused_by_name(bits: Any) -> None:
    for ask in (
        partial(GAUSSIAN.enclose_delta, 1),
        partial(GAUSSIAN.enclose_epsilon, "1e-6"),
        partial(GAUSSIAN.enclose_tradeoff, "1/2"),
        partial(GAUSSIAN.enclose_renyi, 2),
        GAUSSIAN.enclose_zcdp,
    ):
        with refused("bits"):
            ask(bits=bits)


@pytest.mark.parametrize(
    ("argument", "value"),
    [("noise", 3), ("sensitivity", 0), ("sensitivity", 1.5), ("scope", "user")],
)
def test_a_curve_without_noise_is_refused_by_name(argument: str, value: object) -> None:
    given: dict[str, Any] = {"noise": DiscreteLaplace(scale=1), "sensitivity": 1, argument: value}
    with refused(argument):
        PrivacyCurve(**given)
    with refused("mechanism"):
        guarantee(given["noise"])
