"""Tests of pairs of sums of discrete Gaussians and of Skellam noise: published bounds, edges."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest
from flint import arb

from accounting import PrivacyCurve
from accounting.law_pairs.skellam import SkellamPair
from accounting.pairs.ball_arithmetic import as_ball
from accounting.pairs.symmetric_sum import renyi_by_sum
from dpcore import DiscreteGaussian
from dpcore.laws.discrete_gaussian_sum import DiscreteGaussianSum
from dpcore.laws.skellam import Skellam
from dpcore.numbers.enclosure import Enclosure, precision
from dpcore.numbers.parameter import RationalLike
from tests.effort import by_day
from tests.support.accounting.brute_force import close, real
from tests.support.accounting.brute_force_pairs import Worlds, skellam
from tests.support.dpcore.mutants import mutated


def curve(variance: RationalLike, shift: int) -> PrivacyCurve:
    return PrivacyCurve(noise=Skellam(variance=variance), sensitivity=shift)


def pair(variance: RationalLike, shift: int, kind: type[SkellamPair] = SkellamPair) -> SkellamPair:
    return kind(noise=Skellam(variance=variance), shift=shift)


def worlds(variance: str, shift: int, reach: int) -> Worlds:
    return Worlds(mass=skellam(variance), most=shift, low=-reach, high=reach)


def test_orders_known_from_elsewhere() -> None:
    assert curve(16, 4).enclose_renyi(32).lower_float == pytest.approx(5.82614, abs=5e-6)
    # Agarwal, Kairouz and Liu (2021), Theorem 3.5, as an upper bound.
    for variance, shift in ((16, 4), (400, 1), (50, 7)):
        for order in (Fraction(3, 2), Fraction(2), Fraction(32), Fraction(1000)):
            bound = order * shift**2 / Fraction(2 * variance) + min(
                ((2 * order - 1) * shift**2 + 6 * shift) / Fraction(4 * variance**2),
                Fraction(3 * shift, 2 * variance),
            )
            assert curve(variance, shift).renyi(order).upper <= bound


def test_the_loss_lies_above_its_bound_by_asinh() -> None:
    far = pair(4, 2)
    for m in (1, 100, 10**6):
        with precision(200):
            assert far.loss(m) >= 2 * (arb(2 * m + 1) / 8).asinh()


@pytest.mark.parametrize("variance", ["1/3", "5", "400", "100000"])
def test_amos_bounds_hold_the_ratio(variance: str) -> None:
    one = pair(variance, 1)
    with mpmath.workdps(60), precision(200):
        for n in (0, 1, 2, 7, 50, 1000):
            v = real(variance)
            ratio = mpmath.besseli(n + 1, v) / mpmath.besseli(n, v)
            low = v / (n + mpmath.mpf(1) / 2 + mpmath.sqrt((n + mpmath.mpf(3) / 2) ** 2 + v * v))
            top = v / (n + mpmath.mpf(1) / 2 + mpmath.sqrt((n + mpmath.mpf(1) / 2) ** 2 + v * v))
            assert low <= ratio <= top
            assert abs(one._amos(n, 1) / arb(str(v / top)) - 1) < arb("1e-40")


@pytest.mark.parametrize(("variance", "shift"), [("1", 1), ("16", 4), ("400", 1), ("3", 20)])
def test_the_bound_beyond_an_order_holds_and_falls(variance: str, shift: int) -> None:
    one = pair(variance, shift)
    before = None
    for order in map(Fraction, (2, 5, 20, 100, 700)):
        with precision(128):
            bound = Enclosure.of(one.bound_beyond(order))
        for later in (order, 2 * order):
            assert Enclosure.of(as_ball(one.renyi(later) / int(later))).lower <= bound.upper
        assert before is None or bound.upper <= before
        before = bound.upper


@by_day(6)
@pytest.mark.parametrize("delta", ["1/2", "1e-6", "1e-30", "1e-100"])
@pytest.mark.parametrize(
    ("variance", "shift"), [("27/500", 4), ("1/1000", 1), ("1/10", 30), ("16", 1)]
)
def test_far_from_a_real_gaussian_few_rays_are_tried(
    monkeypatch: pytest.MonkeyPatch, variance: str, shift: int, delta: str
) -> None:
    # Near the ray 10^14, where the real Gaussian suggests the start, one mass takes a second.
    tried = []

    def loss(self: SkellamPair, m: int) -> arb:
        tried.append(m)
        return plain(self, m)

    plain = SkellamPair.loss
    monkeypatch.setattr(SkellamPair, "loss", loss)
    found = curve(variance, shift).enclose_epsilon(delta)
    assert max(map(abs, tried)) < 10**4
    assert len(tried) < 500
    if delta == "1e-100":
        return  # beyond the digits of the sums below
    largest = worlds(variance, shift, shift + (160 if variance == "16" else 40))
    with mpmath.workdps(60):
        for end, wrong in ((found.lower, -1), (found.upper, 1)):
            if found.upper == 0 and wrong < 0:
                continue  # delta(0) may lie below the target
            difference = largest.delta(Fraction(end)) - real(delta)
            assert wrong * difference <= real(delta) * mpmath.mpf(10) ** -15


ENOUGH = "if max(left, right.rad()) <= total * arb(2) ** (-ctx.prec):"
WHOLE = "return (total + right + arb(left / 2, left / 2)).log() / ball(order - 1)"


class Short(SkellamPair):
    def reach(self, order: Fraction, bits: int) -> int:
        del order, bits
        return 12


def test_a_sum_that_forgets_its_rest_is_caught() -> None:
    # Cut far too early: with its remainder the sum is wide and true, without it narrow and wrong.
    brute, indent = worlds("4", 3, 70).renyi("2"), " " * 16
    hasty = mutated(renyi_by_sum, ENOUGH, "if True:")
    forgetful = mutated(
        renyi_by_sum,
        f"{ENOUGH}\n{indent}{WHOLE}",
        f"if True:\n{indent}return total.log() / ball(order - 1)",
    )
    with precision(96):
        for sum_of, right in ((renyi_by_sum, True), (hasty, True), (forgetful, False)):
            found = Enclosure.of(sum_of(pair(4, 3, Short), Fraction(2)))
            assert close(found, brute, relative="1e-25") is right


def sum_curve(count: int, sigma_squared: RationalLike, shift: int) -> PrivacyCurve:
    noise = DiscreteGaussianSum(count=count, sigma_squared=sigma_squared)
    return PrivacyCurve(noise=noise, sensitivity=shift)


def test_a_shift_of_one_in_every_draw_is_gaussian() -> None:
    whole, one = sum_curve(6, "3/7", 12), DiscreteGaussian(sigma_squared="3/7")
    rho = Fraction(144, 1) / (12 * Fraction(3, 7))
    assert whole.enclose_zcdp() == Enclosure.exactly(rho)
    assert whole.enclose_renyi(3) == Enclosure.exactly(3 * rho)
    # Six coordinates that all move by 2; the sum is a function of them.
    single = PrivacyCurve(noise=one, sensitivity=2)
    for order in ("5/4", "7/3"):
        assert whole.enclose_renyi(order).overlaps(
            Enclosure(6 * single.enclose_renyi(order).lower, 6 * single.renyi(order).upper)
        )


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
                real(Fraction(sum_curve(count, sigma_squared, shift).enclose_zcdp().lower))
                <= epsilon**2 / 2
            )


@pytest.mark.parametrize(("count", "sigma_squared"), [(16, 4), (1000, 2**20), (10**6, 9)])
def test_zcdp_is_as_good_as_gaussian_from_a_small_variance_on(
    count: int, sigma_squared: int
) -> None:
    found = sum_curve(count, sigma_squared, 1).enclose_zcdp()
    limit = Fraction(1, 2 * count * sigma_squared)
    assert found.lower == limit <= found.upper <= limit * (1 + Fraction(1, 10**9))
    assert sum_curve(count, sigma_squared, 1).enclose_renyi(5).lower <= 5 * found.upper
