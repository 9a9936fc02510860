"""Tests of pairs of laws that are sums: Skellam, sums of Gaussians, Polya differences."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath
import pytest
from flint import arb

from accounting.convert_guarantees import as_pure
from accounting.guarantees.stated_guarantees import PureBound
from accounting.law_pairs.skellam_and_polya import (
    PolyaDifferenceAboveOne,
    PolyaDifferenceBelowOne,
    SkellamPair,
    SummedPair,
)
from accounting.pairs.enclose_curve import as_ball
from accounting.pairs.pair import Offsets
from accounting.pld.integer_cells import table_of
from accounting.pld_composition.cell_refinement import TabledLoss
from accounting.privacy_curves.release_curve import PrivacyCurve
from dpcore import Noise
from dpcore.laws.discrete_gaussian import DiscreteGaussianSum
from dpcore.laws.polya import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.numbers.enclosure import Enclosure, precision
from dpcore.numbers.parameter import RationalLike
from tests.day_and_nightly import by_day
from tests.support.accounting.brute_force import (
    Worlds,
    agrees,
    close,
    inverts,
    least_error,
    mass_of,
    real,
)
from tests.support.accounting.release_lists import curve
from tests.support.dpcore.mutants import mutated


def pair(variance: RationalLike, shift: int, kind: type[SkellamPair] = SkellamPair) -> SkellamPair:
    return kind(noise=Skellam(variance=variance), shift=shift)


LEAN = PolyaDifferenceBelowOne(noise=PolyaDifference(shape="1/2", scale=1), shift=2)


@pytest.mark.parametrize(
    "one", [pair(1, 1), pair(16, 4), pair(400, 1), pair(3, 20), LEAN], ids=repr
)
def test_the_bound_beyond_an_order_holds_and_falls(one: SummedPair) -> None:
    before = None
    for order in map(Fraction, (2, 5, 20, 100, 700)):
        with precision(128):
            bound = Enclosure.of(as_ball(one.bound_beyond(order)))
        for later in (order, 2 * order):
            assert Enclosure.of(as_ball(one.renyi(later) / int(later))).lower <= bound.upper
        assert before is None or bound.upper <= before
        before = bound.upper


SKELLAMS = [("27/500", 4), ("1/1000", 1), ("1/10", 30), ("16", 1)]
DELTAS = ("1/2", "1e-6", "1e-30", "1e-100")
FAR = PolyaDifference(shape="1221/997", scale="4/7")


@by_day(7)
@pytest.mark.parametrize(
    ("noise", "shift", "delta"),
    [
        *((Skellam(variance=v), d, t) for t in DELTAS for v, d in SKELLAMS),
        (FAR, 1, "1e-100"),
    ],
    ids=repr,
)
def test_few_rays_are_tried(
    monkeypatch: pytest.MonkeyPatch, noise: Noise, shift: int, delta: str
) -> None:
    # Near the ray 10^14, where the real Gaussian suggests the start, one mass takes a second; the
    # deciding ray of the Polya difference is the 125th, behind all rays of a sequential search.
    tried = list[int]()
    far = noise == FAR
    kind, method = (PolyaDifferenceAboveOne, "tails") if far else (SkellamPair, "loss")
    plain = getattr(kind, method)

    def counted(self: Any, m: int) -> Any:
        tried.append(m)
        return plain(self, m)

    monkeypatch.setattr(kind, method, counted)
    ours = curve(noise, shift)
    found = ours.enclose_epsilon(delta)
    assert 125 in tried or not far
    assert max(map(abs, tried)) < 10**4
    assert len(tried) < (60 if far else 500)
    if delta == "1e-100":  # beyond the digits of the sums
        low, high = ours.enclose_delta(found.upper).lower, ours.delta(found.lower).upper
        assert low <= Fraction(delta) <= high
    else:
        reach = shift + (160 if noise.variance == 16 else 40)
        largest = Worlds(noise=noise, most=shift, low=-reach, high=reach)
        assert inverts(found, largest, delta)


ENOUGH = "if max(left, right.rad()) <= total * arb(2) ** (-ctx.prec):"
WHOLE = "return (total + right + arb(left / 2, left / 2)).log() / ball(order - 1)"


class Short(SkellamPair):
    def reach(self, order: Fraction, bits: int) -> int:
        del order, bits
        return 12


def test_a_sum_without_its_remainder_is_detected() -> None:
    # Cut far too early: with its remainder the sum is wide and true, without it narrow and wrong.
    worlds = Worlds(noise=Skellam(variance=4), most=3, low=-70, high=70)
    brute, indent = worlds.renyi("2"), " " * 16
    renyi_by_sum = SummedPair.renyi
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
    return curve(DiscreteGaussianSum(count=count, sigma_squared=sigma_squared), shift)


def test_a_shift_of_every_draw_costs_what_one_gaussian_does() -> None:
    whole = sum_curve(6, "3/7", 12)
    rho = Fraction(144, 1) / (12 * Fraction(3, 7))
    assert whole.enclose_zcdp() == Enclosure.exactly(rho)
    assert whole.enclose_renyi(3) == Enclosure.exactly(3 * rho)


@pytest.mark.parametrize(("count", "sigma_squared"), [(16, 4), (1000, 2**20), (10**6, 9)])
def test_zcdp_is_close_to_that_of_one_gaussian_above_a_small_variance(
    count: int, sigma_squared: int
) -> None:
    found = sum_curve(count, sigma_squared, 1).enclose_zcdp()
    limit = Fraction(1, 2 * count * sigma_squared)
    assert found.lower == limit <= found.upper <= limit * (1 + Fraction(1, 10**9))
    assert sum_curve(count, sigma_squared, 1).enclose_renyi(5).lower <= 5 * found.upper


def difference(shape: RationalLike, scale: RationalLike, shift: int) -> PrivacyCurve:
    return curve(PolyaDifference(shape=shape, scale=scale), shift)


@by_day(2)
@pytest.mark.parametrize(
    ("shape", "scale", "shift"),
    [("1/2", "1", 2), ("9/10", "3/2", 3), ("1/16", "1", 1), ("2", "1", 2), ("5/2", "3/2", 3)],
)
def test_the_largest_loss_is_at_zero_or_the_limit_of_shape_one(
    shape: str, scale: str, shift: int
) -> None:
    ours, noise = difference(shape, scale, shift), PolyaDifference(shape=shape, scale=scale)
    found, just_less = ours.enclose_epsilon(0), Fraction(1, 10**9)
    if noise.shape < 1:
        with mpmath.workdps(50):
            mass = mass_of(noise)
            assert close(found, mpmath.log(mass(0) / mass(shift)))
        below = ours.enclose_delta(Fraction(found.lower) - just_less)
        assert 0 < below.lower <= below.upper < Fraction(1, 10**8)
    else:
        assert found == Enclosure.exactly(Fraction(shift) / noise.scale)
        assert ours.enclose_delta(Fraction(found.lower) - Fraction(1, 10)).lower > 0
    assert as_pure(ours) == PureBound(Fraction(found.upper))
    assert ours.enclose_delta(Fraction(found.upper)) == Enclosure.exactly(0)


@pytest.mark.nightly
@pytest.mark.parametrize("alpha", ["691/1000", "1e-18", "99999/100000"])
def test_the_tradeoff_of_a_small_shape_under_a_large_shift_is_enclosed(alpha: str) -> None:
    # p(29) is below 2^-30 of p(0); a 64-bit ball does not bound log p(0)/p(29).
    shape, scale = Fraction(1, 10**6), Fraction(6)
    found = difference(shape, scale, 29).enclose_tradeoff(alpha)
    with mpmath.workdps(50):
        mass = mass_of(PolyaDifference(shape=shape, scale=scale))
        points = [(mass(abs(m)), mass(abs(m + 29))) for m in range(-600, 572)]
        assert close(found, least_error(points, real(alpha)), relative="1e-20")
        assert found.width < Fraction(1, 10**10)


class WrongShift(PolyaDifferenceBelowOne):
    def offsets(self) -> Offsets:
        return Offsets(noise=self.noise, there=self.shift + 1)


class WrongMasses(PolyaDifferenceBelowOne):
    def mass_balls(self, first: int, last: int) -> list[arb]:
        masses = PolyaDifferenceBelowOne.mass_balls(self, first, last + 1)
        return masses[:-first] + masses[1 - first :]  # without the peak


@by_day(1)
@pytest.mark.parametrize("kind", [WrongShift, WrongMasses])
def test_a_broken_pair_of_shape_below_one_is_detected(kind: type[PolyaDifferenceBelowOne]) -> None:
    noise = PolyaDifference(shape="1/2", scale="3/2")
    brute = Worlds(noise=noise, most=3, low=-180, high=180)  # 80 scales leave a mass below 1e-33
    points = ("0", "2/3", "19/10", "199/100", "21/10")

    def found(pair: PolyaDifferenceBelowOne) -> Any:
        below, above = (
            TabledLoss.of(table_of(pair), above=side).listing() for side in (False, True)
        )

        def ask(at: str) -> Enclosure:
            low, high = below.delta(Fraction(at))[0], above.delta(Fraction(at))[1]
            return Enclosure(Fraction(low), Fraction(high)) if low <= high else Enclosure.exactly(2)

        return ask

    assert agrees(found(PolyaDifferenceBelowOne(noise=noise, shift=3)), brute.delta, points)
    assert not agrees(found(kind(noise=noise, shift=3)), brute.delta, points)
    assert not agrees(difference("1/2", "1.5000001", 3).enclose_delta, brute.delta, points)
