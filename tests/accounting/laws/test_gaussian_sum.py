"""Sums of discrete Gaussians: against repeated convolution over every shift, both ways."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

import mpmath
import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import NotDerived, PrivacyCurve
from accounting.laws.gaussian_sum import GaussianSumPair
from accounting.pairs.ball_arithmetic import as_ball
from accounting.pairs.enclose import narrowed
from accounting.pairs.monotone import Cell
from dpcore import DiscreteGaussian
from dpcore.laws.discrete_gaussian_sum import DiscreteGaussianSum
from dpcore.numbers.enclosure import Enclosure, precision
from dpcore.numbers.parameter import RationalLike
from tests.effort import by_day
from tests.support.accounting.brute import EPSILONS, real
from tests.support.accounting.worlds import Worlds, agrees, gaussian_sum, inverts

CASES = [(2, "1/4", 3, 12), (3, "1/2", 2, 15), (5, "1/3", 4, 12), (2, "2", 2, 28), (4, "1", 4, 20)]


def curve(count: int, sigma_squared: RationalLike, shift: int) -> PrivacyCurve:
    noise = DiscreteGaussianSum(count=count, sigma_squared=sigma_squared)
    return PrivacyCurve(noise=noise, sensitivity=shift)


def pair(
    count: int, sigma_squared: str, shift: int, kind: type[GaussianSumPair] = GaussianSumPair
) -> GaussianSumPair:
    noise = DiscreteGaussianSum(count=count, sigma_squared=sigma_squared)
    return kind(noise=noise, shift=shift)


def worlds(count: int, sigma_squared: str, shift: int, reach: int) -> Worlds:
    mass = gaussian_sum(count, sigma_squared)
    return Worlds(mass=mass, most=shift, low=-2 * reach, high=2 * reach)


@by_day(1)
@pytest.mark.parametrize(("count", "sigma_squared", "shift", "reach"), CASES)
def test_the_curve_is_the_worst_over_all_shifts(
    count: int, sigma_squared: str, shift: int, reach: int
) -> None:
    ours, brute = curve(count, sigma_squared, shift), worlds(count, sigma_squared, shift, reach)
    assert agrees(ours.enclose_delta, brute.delta, EPSILONS)
    assert agrees(ours.enclose_tradeoff, brute.tradeoff, ("1/20", "1/2", "99/100"))
    assert agrees(ours.enclose_renyi, brute.renyi, ("11/10", "3/2", "2"))
    for delta in ("1/5", "1e-6"):
        assert inverts(ours.enclose_epsilon(delta), brute, delta)


@pytest.mark.parametrize(("count", "sigma_squared", "shift", "reach"), CASES)
def test_zcdp_bounds_every_order_and_is_near_one(
    count: int, sigma_squared: str, shift: int, reach: int
) -> None:
    ours = curve(count, sigma_squared, shift)
    found = ours.enclose_zcdp()
    limit = Fraction(shift**2) / (2 * count * Fraction(sigma_squared))
    assert limit <= found.upper <= Fraction(found.lower) * (1 + Fraction(11, 10**5))
    best = max(real(limit), worlds(count, sigma_squared, shift, reach).divergence())
    with mpmath.workdps(50):
        for order in ("1001/1000", "9/8", "3/2", "2", "5/2", "3", "7", "30"):
            at = real(Fraction(ours.enclose_renyi(order).lower) / Fraction(order))
            assert at <= real(Fraction(found.upper))
            best = max(best, at)
        assert real(Fraction(found.lower)) <= best * mpmath.mpf("1.001")


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


def test_the_loss_is_never_bounded() -> None:
    ours = curve(3, 1, 1)
    assert ours.pure().lower == math.inf
    assert ours.enclose_epsilon(0) == Enclosure.infinite()
    assert ours.enclose_tradeoff(0) == Enclosure.exactly(1)


def test_what_takes_too_long_is_refused_with_the_reason() -> None:
    with pytest.raises(NotDerived, match="residues"):
        curve(10**6, "1/10", 1).enclose_renyi("3/2")


@pytest.mark.nightly
@settings(max_examples=40)
@given(
    st.integers(min_value=1, max_value=9),
    st.fractions(min_value=Fraction(1, 4), max_value=30, max_denominator=20),
    st.integers(min_value=1, max_value=12),
    st.fractions(min_value=0, max_value=4, max_denominator=100),
)
def test_inverse_and_order_of_shifts(
    count: int, sigma_squared: Fraction, shift: int, epsilon: Fraction
) -> None:
    ours = curve(count, sigma_squared, shift)
    at = ours.enclose_delta(epsilon)
    assert at.lower <= curve(count, sigma_squared, shift + 1).delta(epsilon).upper
    if at.lower > Fraction(1, 10**30):
        assert ours.enclose_epsilon(at.upper).lower <= epsilon <= ours.epsilon(at.lower).upper


# -- mutants -----------------------------------------------------------------------------------


class LateRay(GaussianSumPair):
    def ray(self, epsilon: Fraction) -> Cell | None:
        cell = GaussianSumPair.ray(self, epsilon)
        return cell and (cell[0] + 1, cell[1] + 1)


class NoRipple(GaussianSumPair):
    """Takes the law for a discrete Gaussian of the same variance."""

    def _excess(self, m: int) -> arb:
        return arb(0)

    def _log_phi(self, m: int) -> arb:
        return GaussianSumPair._log_phi(self, 0)


class WrongDirection(GaussianSumPair):
    def tails(self, m: int) -> tuple[arb, arb]:
        return GaussianSumPair.tails(self, m)[0], self.noise.sf_ball(m - self.shift - 1)


def holds(one: GaussianSumPair) -> bool:
    brute = worlds(3, "1/4", 2, 12)

    def delta(epsilon: str) -> Enclosure:
        return narrowed(partial(one.delta, Fraction(epsilon)), 64)

    def renyi(order: str) -> Enclosure:
        return narrowed(lambda: as_ball(one.renyi(Fraction(order))), 64)

    return agrees(delta, brute.delta, EPSILONS) and agrees(renyi, brute.renyi, ("3/2", "2"))


@pytest.mark.parametrize("kind", [LateRay, WrongDirection, NoRipple])
def test_a_broken_pair_is_caught(kind: type[GaussianSumPair]) -> None:
    assert holds(pair(3, "1/4", 2))
    assert not holds(pair(3, "1/4", 2, kind))
    assert not holds(pair(3, "1/4", 1))
    assert not holds(pair(3, "0.25000001", 2))
    with precision(64):
        assert pair(3, "1/4", 2).loss(1).is_finite()  # type: ignore[union-attr]  # 3 does not divide 2


def test_an_order_beyond_every_float_is_refused_by_name() -> None:
    law = DiscreteGaussianSum(count=7, sigma_squared="1/30")
    with pytest.raises(NotDerived, match="use epsilon"):
        PrivacyCurve(noise=law, sensitivity=1).enclose_renyi(10**400)
