"""Listings of losses: against sums of mass functions written anew, in both directions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

from accounting import NotDerived
from accounting.laws.counts import BinomialPair, PoissonPair, PolyaPair
from accounting.laws.gaussian_sum import GaussianSumPair
from accounting.laws.one_sided import OneSidedPair, _near_shift, one_sided_cut
from accounting.laws.polya import LeanDifferencePair, RichDifferencePair
from accounting.laws.polya import _cut as polya_cut
from accounting.laws.polya import _table as polya_table
from accounting.laws.registry import pair_of
from accounting.laws.skellam import SkellamPair, _table
from accounting.pairs.listing import (
    Cut,
    _Gaussian,
    gaussian_losses,
    laplace_losses,
    list_losses,
    total_variation_losses,
)
from accounting.pairs.log_concave import ShiftedPair
from accounting.pairs.pair import Pair
from dpcore import DiscreteGaussian, DiscreteLaplace
from dpcore.laws.binomial import Binomial
from dpcore.laws.discrete_gaussian_sum import DiscreteGaussianSum
from dpcore.laws.poisson import Poisson
from dpcore.laws.polya import Polya
from dpcore.laws.polya_difference import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.noise import Noise
from dpcore.numbers.enclosure import ball, precision
from tests.effort import by_day
from tests.support.accounting.brute import laplace
from tests.support.accounting.laws import Triangle
from tests.support.accounting.listed import (
    CASES,
    DIGITS,
    WORKING,
    Truth,
    ball_of,
    cuts,
    faithful,
    moment,
    pair,
    small_enough,
)
from tests.support.accounting.worlds import polya
from tests.support.dpcore.mutants import mutated, rewired


@by_day(2)
@pytest.mark.parametrize("name", list(CASES))
def test_the_rests_bound_what_a_cut_leaves_out(name: str) -> None:
    one, truth = CASES[name]
    left = right = False
    for cut in cuts(name, type(one).cut):
        assert faithful(cut.whole(), truth)
        left = left or bool(0 < cut.left(arb(1)) < 1)
        right = right or bool(0 < cut.right(arb(1)) < 1)
    assert left
    assert right


@by_day(6)
@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.parametrize("bits", [20, 80])
def test_a_listing_is_as_long_as_asked(name: str, bits: int) -> None:
    one, truth = CASES[name]
    with precision(WORKING):
        listing = list_losses(one, Fraction(12), bits)
    assert faithful(listing, truth)
    assert small_enough(listing, Fraction(12), bits)


def test_laplace_is_listed_whole() -> None:
    truth = Truth(mass=laplace(3), move=4, low=-500, high=500)
    for scale, shift in (("3", 4), ("3", 1), ("1/2", 2)):
        exact = replace(truth, mass=laplace(scale), move=shift)
        with precision(WORKING):
            listing = laplace_losses(Fraction(scale), shift)
            assert len(listing.masses) == shift + 1
            assert listing.beyond(arb(1)) == 0
        assert faithful(listing, exact)
        assert not faithful(listing, replace(exact, mass=laplace("2")))
    with pytest.raises(NotDerived, match="outputs"):
        laplace_losses(Fraction(1), 1 << 20)
    with precision(WORKING):
        assert pair(DiscreteLaplace(scale=3), 4).largest_loss().upper == Fraction(4, 3)


def test_disclosing_noise_is_all_or_nothing() -> None:
    one = pair(Polya(shape="1/2", scale=2), 3)
    with precision(WORKING):
        listing = one.losses(Fraction(3), 40)
        with mpmath.workdps(DIGITS):
            hidden = mpmath.fsum(polya("1/2", 2)(k) for k in range(3))
        assert listing.hidden.overlaps(ball_of(hidden))
        assert (listing.masses[0] + listing.hidden).contains(1)
        assert total_variation_losses(arb(0)).masses == (arb(1),)
        # At every epsilon >= 0 the curve of this listing is the pair's own.
        assert one.delta(Fraction(2)).overlaps(listing.hidden)


def test_a_shift_beyond_the_support_hides_everything() -> None:
    with precision(WORKING):
        for direct in (True, False):
            listing = pair(Binomial(trials=5, probability="1/3"), 6, direct).losses(Fraction(9), 30)
            assert listing.masses == ()
            assert listing.hidden == 1
        listing = pair(Binomial(trials=5, probability="1/3"), 5).losses(Fraction(9), 30)
        assert len(listing.masses) == 1


@pytest.mark.parametrize("ends", [(-9, 9), (-4, 3), (-2, 1)])
def test_a_law_known_by_its_masses_alone(ends: tuple[int, int]) -> None:
    # What lies right of the cut counts as hidden, at the upper end of the ball.
    for half, shift in ((4, 2), (3, 9), (1, 1)):
        with precision(WORKING):
            listing = ShiftedPair(noise=Triangle(half=half), shift=shift).cut(*ends).whole()
            hidden = sum(mass_of(half, m) for m in range(half - shift + 1, half + 1))
            right = sum(mass_of(half, m) for m in range(ends[1] + 1, half + 1))
            if right == 0:
                assert listing.hidden.contains(ball(hidden))
            assert listing.hidden.upper() >= ball(max(hidden, right))
            assert not listing.hidden.lower() > ball(hidden)
            total = sum(listing.masses, arb(0)) + listing.hidden
            assert not total > 1
            assert not total + listing.beyond(arb(0)) < 1


def mass_of(half: int, m: int) -> Fraction:
    return Fraction(max(half + 1 - abs(m), 0), (half + 1) ** 2)


def test_the_generic_listing_agrees_with_the_laws_own() -> None:
    generic = ShiftedPair(noise=DiscreteGaussian(sigma_squared=5), shift=2)
    with precision(WORKING):
        listing = generic.losses(Fraction(5), 60)
        own = gaussian_losses(Fraction(5), 2, Fraction(5), 60)
        assert listing.hidden.upper() < arb(2) ** (-WORKING + 1)
        for c in ("1/100", "1", "5"):
            gap = abs(moment(listing, c) - moment(own, c))
            assert gap <= moment(own, c) * arb(2) ** -40


def test_every_law_that_a_curve_serves_is_listed() -> None:
    noises: tuple[Noise, ...] = (
        Skellam(variance=4),
        DiscreteGaussian(sigma_squared=4),
        DiscreteLaplace(scale=4),
        PolyaDifference(shape=3, scale=2),
        PolyaDifference(shape="1/3", scale=2),
        DiscreteGaussianSum(count=5, sigma_squared=4),
        Poisson(mean=40),
        Binomial(trials=40, probability="1/2"),
        Polya(shape=3, scale=2),
        Polya(shape="1/3", scale=2),
        Triangle(half=6),
    )
    with precision(WORKING):
        for noise in noises:
            one: Pair = pair_of(noise, ((2, 1),))
            for each in (one, one.mirror()):
                assert small_enough(each.losses(Fraction(20), 50), Fraction(20), 50)


def test_a_listing_too_long_is_refused() -> None:
    with precision(WORKING), pytest.raises(NotDerived, match="outputs"):
        pair(Skellam(variance=2**60), 1).losses(Fraction(5), 50)


@given(
    st.fractions(min_value=Fraction(1, 20), max_value=500, max_denominator=20),
    st.integers(min_value=1, max_value=9),
    st.fractions(min_value=Fraction(1, 50), max_value=400, max_denominator=50),
)
def test_skellam_at_any_tilt(variance: Fraction, shift: int, tilt: Fraction) -> None:
    one = SkellamPair(noise=Skellam(variance=variance), shift=shift)
    nests(one, tilt)


@given(
    st.fractions(min_value=Fraction(1, 9), max_value=9, max_denominator=9),
    st.fractions(min_value=Fraction(1, 3), max_value=12, max_denominator=6),
    st.integers(min_value=1, max_value=6),
    st.fractions(min_value=Fraction(1, 50), max_value=200, max_denominator=50),
)
def test_polya_at_any_tilt(shape: Fraction, scale: Fraction, shift: int, tilt: Fraction) -> None:
    for noise in (PolyaDifference(shape=shape, scale=scale), Polya(shape=shape, scale=scale)):
        one = pair_of(noise, ((shift, 1),))
        for each in (one, one.mirror()):
            if shape != 1 and isinstance(each, RichDifferencePair | LeanDifferencePair | PolyaPair):
                nests(each, tilt)


@given(
    st.fractions(min_value=Fraction(1, 9), max_value=200, max_denominator=9),
    st.integers(min_value=1, max_value=6),
    st.fractions(min_value=Fraction(1, 50), max_value=200, max_denominator=50),
)
def test_counts_at_any_tilt(mean: Fraction, shift: int, tilt: Fraction) -> None:
    trials, chance = int(mean) + 7, mean / (2 * mean + 3)
    for noise in (Poisson(mean=mean), Binomial(trials=trials, probability=chance)):
        one = pair_of(noise, ((shift, 1),))
        for each in (one, one.mirror()):
            assert isinstance(each, OneSidedPair)
            nests(each, tilt)


def nests(one: Any, tilt: Fraction) -> None:
    """A short listing says what it leaves out of a long one, and that is as little as asked."""
    with precision(WORKING):
        short, long = one.losses(tilt, 25), one.losses(tilt, 70)
        assert small_enough(short, tilt, 25)
        for part in (1, 4, 10):
            c = tilt * Fraction(part, 10)
            more = moment(long, str(c)) - moment(short, str(c))
            assert not more > short.beyond(arb(c.numerator) / c.denominator)
        total = sum(short.masses, arb(0)) + short.hidden
        assert not total > 1
        assert not total + short.beyond(arb(0)) < 1


# -- mutants -----------------------------------------------------------------------------------


def refuses(cut: Callable[..., Cut], name: str) -> bool:
    """Whether the check above sees that ``cut`` is broken, at the shortest ends."""
    return any(not faithful(found.whole(), CASES[name][1]) for found in cuts(name, cut))


def broken_near_shift(*_: Any) -> Callable[[arb], arb]:
    return lambda _: arb(0)


MUTANTS = {
    "Skellam without a left rest": (
        "skellam",
        mutated(SkellamPair.cut, "outside * (c * least).exp()", "arb(0)"),
    ),
    "Skellam without a right rest": (
        "skellam",
        mutated(
            SkellamPair.cut,
            "return geometric(masses[high] * (c * most).exp() * ratio, ratio)",
            "return arb(0)",
        ),
    ),
    "Skellam ratios off by one": (
        "skellam",
        rewired(SkellamPair.cut, _table=mutated(_table.__wrapped__, "ratios[:-1]", "ratios[1:]")),
    ),
    "a sum of Gaussians without a right rest": (
        "sum",
        mutated(GaussianSumPair.cut, "right=side(high, 1)", "right=lambda c: arb(0)"),
    ),
    "a sum of Gaussians without a left rest": (
        "wide sum",
        mutated(GaussianSumPair.cut, "left=side(low, -1)", "left=lambda c: arb(0)"),
    ),
    "a Gaussian without a right rest": (
        "gaussian",
        mutated(_Gaussian.cut, "right=side(high, 1)", "right=lambda c: arb(0)"),
    ),
    "a Gaussian with masses off by one": (
        "gaussian",
        mutated(_Gaussian.cut, "(2 * step * start + 1)", "(2 * step * start + 3)"),
    ),
    "hidden mass forgotten": (
        "poisson",
        mutated(one_sided_cut, "hidden=hidden, largest=largest", "hidden=arb(0), largest=largest"),
    ),
    "what lies near the shift forgotten": (
        "polya",
        rewired(one_sided_cut, _near_shift=broken_near_shift),
    ),
    "only one end near the shift": (
        "binomial",
        rewired(
            one_sided_cut, _near_shift=mutated(_near_shift, "count = first", "count = 1; first")
        ),
    ),
    "a count without its left rest": (
        "direct polya",
        mutated(one_sided_cut, "if first else arb(0)", "if False else arb(0)"),
    ),
    "Polya without a right rest": (
        "rich",
        rewired(
            RichDifferencePair.cut,
            _cut=mutated(polya_cut, "above * (c * right).exp()", "arb(0)"),
        ),
    ),
    "Polya with a loss that only holds at the cut": (
        "rich",
        rewired(
            RichDifferencePair.cut,
            _cut=mutated(polya_cut, "if most is None else most\n    sides", "\n    sides"),
        ),
    ),
    "Polya without a left rest": (
        "lean",
        rewired(
            LeanDifferencePair.cut,
            _cut=mutated(polya_cut, "below * (c * left).exp()", "arb(0)"),
        ),
    ),
    "Polya ratios off by one": (
        "lean",
        rewired(
            LeanDifferencePair.cut,
            _cut=mutated(
                polya_cut,
                "def beyond(",
                "def beyond(",
                _table=mutated(polya_table.__wrapped__, "ratios[:-1]", "ratios[1:]"),
            ),
        ),
    ),
}


@by_day(2)
@pytest.mark.parametrize("name", list(MUTANTS))
def test_a_broken_cut_is_caught(name: str) -> None:
    case, cut = MUTANTS[name]
    one, _ = CASES[case]
    assert not refuses(type(one).cut, case)
    assert refuses(cut, case)


def test_a_listing_too_short_is_caught() -> None:
    hasty = mutated(
        list_losses.__globals__["_list_losses"].__wrapped__, "if not (left or right):", "if True:"
    )

    class Near(SkellamPair):
        def ends(self, tilt: float, need: float) -> tuple[int, int]:
            del tilt, need
            return -8, 8

    near = Near(noise=Skellam(variance=4), shift=3)
    with precision(WORKING):
        assert small_enough(near.losses(Fraction(12), 40), Fraction(12), 40)
        assert not small_enough(hasty(near, Fraction(12), 40, WORKING), Fraction(12), 40)


def test_the_wrong_law_is_caught() -> None:
    for name, (one, truth) in CASES.items():
        if name == "gaussian":
            continue
        with precision(WORKING):
            listing = one.losses(Fraction(12), 40)
        assert not faithful(listing, replace(truth, move=truth.move + 1))
        if isinstance(one, PoissonPair | BinomialPair | PolyaPair):
            assert not faithful(listing, replace(truth, move=-truth.move))
