"""Sums of discrete Gaussians: against repeated convolution over every shift, both ways."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest

from accounting import NotDerived, PrivacyCurve
from dpcore import DiscreteGaussian
from dpcore.laws.discrete_gaussian_sum import DiscreteGaussianSum
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.parameter import RationalLike
from tests.support.accounting.brute import EPSILONS, real


def curve(count: int, sigma_squared: RationalLike, shift: int) -> PrivacyCurve:
    noise = DiscreteGaussianSum(count=count, sigma_squared=sigma_squared)
    return PrivacyCurve(noise=noise, sensitivity=shift)


def test_a_shift_of_one_in_every_draw_is_gaussian() -> None:
    whole, one = curve(6, "3/7", 12), DiscreteGaussian(sigma_squared="3/7")
    rho = Fraction(144, 1) / (12 * Fraction(3, 7))
    assert whole.enclose_zcdp() == Enclosure.exactly(rho)
    assert whole.enclose_renyi(3) == Enclosure.exactly(3 * rho)
    # Six coordinates that all move by 2, of which the sum is a function.
    single = PrivacyCurve(noise=one, sensitivity=2)
    for order in ("5/4", "7/3"):
        assert whole.enclose_renyi(order).overlaps(
            Enclosure(6 * single.enclose_renyi(order).lower, 6 * single.renyi(order).upper)
        )


def test_one_draw_is_a_discrete_gaussian() -> None:
    summed = curve(1, "5/3", 2)
    single = PrivacyCurve(noise=DiscreteGaussian(sigma_squared="5/3"), sensitivity=2)
    for epsilon in EPSILONS:
        assert summed.enclose_delta(epsilon).overlaps(single.enclose_delta(epsilon))
    assert summed.enclose_zcdp() == single.enclose_zcdp()
    assert summed.enclose_epsilon("1e-9").overlaps(single.enclose_epsilon("1e-9"))


def test_a_published_bound_lies_above() -> None:
    # Kairouz, Liu and Steinke (arXiv 2102.06387), Proposition 13 and Corollary 12: a sum of n with
    # tau = 10 sum_{k<n} e^(-2 pi^2 sigma^2 k/(k+1)) is concentrated with at most this parameter.
    for count, sigma_squared, shift in ((2, 1, 1), (16, 1, 1), (16, 4, 3), (1000, 4, 5)):
        with mpmath.workdps(30):
            tau = 10 * mpmath.fsum(
                mpmath.exp(-2 * mpmath.pi**2 * sigma_squared * k / (k + 1)) for k in range(1, count)
            )
            limit = mpmath.mpf(shift**2) / (2 * count * sigma_squared)
            epsilon = mpmath.sqrt(2 * limit) + tau
            assert (
                real(Fraction(curve(count, sigma_squared, shift).enclose_zcdp().lower))
                <= epsilon**2 / 2
            )


@pytest.mark.parametrize(("count", "sigma_squared"), [(16, 4), (1000, 2**20), (10**6, 9)])
def test_zcdp_is_as_good_as_gaussian_from_a_small_variance_on(
    count: int, sigma_squared: int
) -> None:
    found = curve(count, sigma_squared, 1).enclose_zcdp()
    limit = Fraction(1, 2 * count * sigma_squared)
    assert found.lower == limit <= found.upper <= limit * (1 + Fraction(1, 10**9))
    assert curve(count, sigma_squared, 1).enclose_renyi(5).lower <= 5 * found.upper


def test_what_takes_too_long_is_refused_with_the_reason() -> None:
    with pytest.raises(NotDerived, match="residues"):
        curve(10**6, "1/10", 1).enclose_renyi("3/2")


def test_an_order_beyond_every_float_is_refused_by_name() -> None:
    law = DiscreteGaussianSum(count=7, sigma_squared="1/30")
    with pytest.raises(NotDerived, match="use epsilon"):
        PrivacyCurve(noise=law, sensitivity=1).enclose_renyi(10**400)
