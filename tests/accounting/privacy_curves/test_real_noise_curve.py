r"""Tests of `real_noise_curve`: quadrature of one or many rounds, published values, tools."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from accounting import NotDerived, PrivacyCurve, compose
from accounting.descriptions.real_noise import Gaussian
from accounting.privacy_curves.real_noise_curve import RealCurve
from dpcore import DiscreteGaussian, DiscreteLaplace
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Sensitivity
from tests.support.accounting import subsampled_releases as releases
from tests.support.accounting.bound_ends import ends
from tests.support.dpcore.refusals import refusal


def test_a_vector_costs_what_its_l2_length_costs() -> None:
    one = releases.gaussian(1).epsilon("1e-6")
    for noise, moves in ((4, Sensitivity.l2_squared(16)), (5, Sensitivity.box((3, 4)))):
        found = releases.gaussian(noise, moves).epsilon("1e-6")
        assert (found.lower, found.upper) == (one.lower, one.upper)
    # The mutant: an l2 shift is used as an l1 shift: 7 for (3, 4).
    assert releases.gaussian(5, Sensitivity.l1(7)).epsilon("1e-6") > one.upper


def test_laplace_noise_agrees_with_its_closed_form() -> None:
    found = releases.laplace(2).delta("1/4")
    assert float(found.upper) == pytest.approx(-math.expm1((0.25 - 0.5) / 2), rel=1e-15)
    assert releases.laplace(2).epsilon(0).upper == Fraction(1, 2)
    assert releases.laplace(2).delta("1/2").upper == 0
    # At order 2: log((2 e^l + e^-2l)/3).
    l = 0.5
    renyi = math.log((2 * math.exp(l) + math.exp(-2 * l)) / 3)
    assert float(releases.laplace(2).renyi(2).upper) == pytest.approx(renyi)
    # Many rounds against integer noise on a fine grid.
    real = compose((releases.laplace(20), 200)).epsilon("1e-6", "1e-6")
    fine = PrivacyCurve(noise=DiscreteLaplace(scale=800), sensitivity=40, scope=releases.ADD_REMOVE)
    whole = compose((fine, 200)).epsilon("1e-6", "1e-6")
    assert float(whole.upper) == pytest.approx(float(real.upper), rel=1e-3)


def test_unsupported_samples_are_refused() -> None:
    integers: Any = DiscreteGaussian(sigma_squared=1)
    assert "noise" in refusal(lambda: RealCurve(noise=integers, sensitivity=1))
    assert "l1" in refusal(lambda: releases.laplace(1, Sensitivity.l2_squared(2)), NotDerived)
    with pytest.raises(InvalidParameter, match=r"scale = .*must be at least the sensitivity"):
        releases.laplace("1e-6")
    assert releases.laplace("1/2048").epsilon(0).upper == 2048
    assert not hasattr(Gaussian(sigma=1), "sample")


@pytest.mark.parametrize("sigma", ["1e300", "1e20", "1e-11", "1e-20"])
def test_scales_beyond_floats_cost_between_one_round_and_no_sampling(sigma: str) -> None:
    moved = releases.gaussian(sigma)
    for kind in (releases.poisson, releases.replaced):
        step = kind(curve=moved, rate="1/100")
        for found, one, everybody in (
            (compose((step, 100)).epsilon("1e-6"), step.epsilon("1e-6", "1e-6"), math.inf),
            (compose((step, 100)).delta(1), step.delta(1, "1e-6"), 1),
        ):
            assert ends(one).lower <= ends(found).lower <= found.upper <= everybody
    whole = compose((moved, 100)).epsilon("1e-6")
    step = releases.poisson(moved, "1/100")
    assert compose((step, 100)).epsilon("1e-6").upper <= whole.upper < math.inf
    for make, given in (
        (releases.poisson, {"rate": "1/100", "members": 2}),
        (releases.allocated, {"rounds": 10}),
    ):
        with pytest.raises(InvalidParameter, match="between 1e-10 and 1e15"):
            make(curve=moved, **given)
