"""Laws in bins: against sums over all outcomes, listings of narrow laws, and a real Gaussian."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import pytest
from flint import arb

from accounting.errors import NotDerived
from accounting.fourier.factor import LossLaw
from accounting.laws.laplace import LaplaceProduct
from accounting.laws.registry import pair_of
from accounting.pairs.losses import Losses
from accounting.pairs.pair import Pair
from accounting.papers.real_gaussian import real_gaussian_delta
from accounting.release import binned as merged
from accounting.release import dominating as dots
from accounting.release.binned import Bin, MergedPair, bins, fineness, is_wide, spread
from accounting.release.curve import PrivacyCurve
from accounting.release.dominating import DottedPair, dominating
from accounting.release.subsampling import PoissonSampled
from accounting.totals.rounds import ways
from accounting.totals.total import Total
from dpcore.laws.binomial import Binomial
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.discrete_gaussian_sum import DiscreteGaussianSum
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson import Poisson
from dpcore.laws.polya import Polya
from dpcore.laws.polya_difference import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.mechanism import Relation, Scope
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, precision
from tests.effort import by_day
from tests.support.accounting.brute import Mass, gaussian, laplace, real
from tests.support.accounting.worlds import binomial, difference, poisson, polya, skellam
from tests.support.dpcore.mutants import mutated

DIGITS = 50
WIDE = Skellam(variance=10**12)
NARROW = Skellam(variance=2500)
DELTA = Fraction(1, 10**6)
FINE, COARSE = Fraction(1, 10**7), Fraction(1, 10**4)

World = list[tuple[Any, Any]]

# -- one release: sums over all outcomes ---------------------------------------------------------


CASES: list[tuple[Noise, int, Mass, int]] = [
    (Skellam(variance=200), 7, skellam(200), 260),
    (DiscreteGaussian(sigma_squared=100), 5, gaussian(100), 160),
    (DiscreteLaplace(scale=30), 90, laplace(30), 3000),
    (PolyaDifference(shape=3, scale=3), 3, difference(polya(3, 3), 300), 300),
    (PolyaDifference(shape="1/2", scale=3), 4, difference(polya("1/2", 3), 260), 260),
    (Poisson(mean=60), 3, poisson(60), 250),
    (Binomial(trials=80, probability="1/3"), 2, binomial(80, "1/3"), 90),
    (Polya(shape=3, scale=8), 2, polya(3, 8), 800),
]
AT = ("1/1000", "1/50", "1/10", "1/3", "1", "3")


@cache
def directions(noise: Noise, shift: int, mass: Mass, reach: int) -> tuple[tuple[Pair, World], ...]:
    """The pair of each direction with its two laws, outcome by outcome."""
    first = pair_of(noise, ((shift, 1),))
    with mpmath.workdps(DIGITS):
        here = {k: mass(k) for k in range(-reach - shift, reach + shift + 1)}
    table = [(here[k], here[k + shift]) for k in range(-reach - shift, reach + 1)]
    back = [(q, p) for p, q in table]
    if first.mirror() is first:
        return ((first, table),)
    # A mirrored pair is X - d against X: it hides what lies below d.
    mirrored = getattr(first, "mirrored", True)
    one, two = (back, table) if mirrored else (table, back)
    return (first, one), (first.mirror(), two)


def curve(world: World, x: Any) -> Any:
    return sum((max(p - x * q, mpmath.mpf(0)) for p, q in world), mpmath.mpf(0))


def world_of(listed: Losses) -> World:
    def number(value: arb) -> Any:
        return mpmath.mpf(value.mid().str(45, radius=False))

    with precision(256), mpmath.workdps(DIGITS):
        pairs = [
            (number(p), number(p) * mpmath.exp(-number(l)))
            for p, l in zip(listed.masses, listed.losses, strict=True)
        ]
        return [*pairs, (number(listed.hidden), mpmath.mpf(0))]


def between(
    pair: Pair, world: World, most: int, gap: str, above: Callable[..., Losses] = spread
) -> bool:
    """Whether the bins lie on either side of the truth, at both signs of epsilon, and near it."""
    with precision(128):
        parts = bins(pair, most)
        low = world_of(MergedPair(pair=pair, most=most).losses(Fraction(1), 1))
        high = world_of(above(parts))
    with mpmath.workdps(DIGITS):
        for sign, at in itertools.product((1, -1), AT):
            x = mpmath.exp(sign * real(at))
            truth, slack = curve(world, x), mpmath.mpf("1e-32")
            least, largest = curve(low, x), curve(high, x)
            if not least - slack <= truth <= largest + slack:
                return False
            if largest - least > mpmath.mpf(gap):
                return False
    return True


@by_day(1)
@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case[0])[:30])
def test_bins_lie_on_either_side_of_the_curve(case: tuple[Noise, int, Mass, int]) -> None:
    for pair, world in directions(*case):
        assert between(pair, world, 40, "1e-2")
        if not isinstance(case[0], PolyaDifference):  # its masses take long
            assert between(pair, world, 150, "1e-3")


@pytest.mark.parametrize("case", [CASES[1], CASES[5]], ids=lambda case: repr(case[0])[:30])
def test_with_bins_enough_both_are_the_pair_itself(case: tuple[Noise, int, Mass, int]) -> None:
    for pair, world in directions(*case):
        assert between(pair, world, 10**4, "1e-24")


def test_of_other_pairs_no_bins_are_known() -> None:
    pair = LaplaceProduct(scale=Fraction(10), shift=((1, 3),))
    with pytest.raises(NotDerived, match="bins"):
        bins(pair, 100)


# -- many releases: between both sides -----------------------------------------------------------


def in_bins(pair: Pair, most: int) -> tuple[MergedPair, DottedPair]:
    with precision(256):
        listed = spread(bins(pair, most))
        above = DottedPair.through(dots._dots(listed, len(listed.masses)))
    return MergedPair(pair=pair, most=most), above


def epsilon(*parts: tuple[LossLaw, int], relative: Fraction = FINE) -> Enclosure:
    return Total.of(parts).epsilon(DELTA, relative)


@by_day(6)
@pytest.mark.parametrize("noise", [NARROW, Poisson(mean=900), DiscreteLaplace(scale=200)])
@pytest.mark.parametrize("rounds", [1, 10, 1000])
def test_totals_of_bins_lie_on_either_side_of_the_total(noise: Noise, rounds: int) -> None:
    pair = pair_of(noise, ((9, 1),))
    low, high = in_bins(pair, 120)
    exact, below, above = (
        epsilon((law, rounds), relative=COARSE / 10) for law in (pair, low, high)
    )
    assert below.lower <= exact.upper
    assert exact.lower <= above.upper
    assert above.upper - below.lower <= Fraction(1, 200) * Fraction(above.upper)


def test_twice_the_bins_are_about_four_times_as_good() -> None:
    pair = pair_of(NARROW, ((1, 1),))
    gaps = []
    for most in (50, 100):
        low, high = in_bins(pair, most)
        gaps.append(epsilon((high, 1000)).upper - epsilon((low, 1000)).lower)
    assert gaps[0] / 8 < gaps[1] < gaps[0] / 2


def test_beside_other_laws() -> None:
    pair, laplace_pair = pair_of(NARROW, ((2, 1),)), pair_of(DiscreteLaplace(scale=40), ((1, 1),))
    low, high = in_bins(pair, 200)
    exact, below, above = (epsilon((law, 100), (laplace_pair, 20)) for law in (pair, low, high))
    assert below.lower <= exact.upper
    assert exact.lower <= above.upper
    assert above.upper - below.lower <= Fraction(1, 1000) * Fraction(above.upper)


@pytest.mark.nightly
@by_day(1)
@pytest.mark.parametrize(("shift", "rounds"), [(60_000, 900), (1_500_000, 4)])
def test_wide_noise_has_the_total_of_a_real_gaussian(shift: int, rounds: int) -> None:
    found = ways(PrivacyCurve(noise=WIDE, sensitivity=shift)).in_bins()
    root = {900: 30, 4: 2}[rounds]
    ratio = Fraction(10**6, root * shift)
    ((above, _),), ((below, _),) = (*found.above, *found.attained)
    high, low = epsilon((above, rounds)).upper, epsilon((below, rounds)).lower
    assert low <= high <= low * (1 + Fraction(2, 10**5))
    # The difference of two laws of standard deviation 10^6 is below 10^-6.
    slack = Fraction(1, 10**6)
    assert real_gaussian_delta(ratio, low * (1 - slack)).upper >= DELTA
    assert real_gaussian_delta(ratio, high * (1 + slack)).lower <= DELTA
    middle = (low + high) / 2
    slack = Fraction(1, 10**5)
    assert real_gaussian_delta(ratio, middle * (1 - slack)).lower >= DELTA
    assert real_gaussian_delta(ratio, middle * (1 + slack)).upper <= DELTA


# -- which laws ------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_only_what_cannot_be_listed_is_put_in_bins() -> None:
    narrow = ways(PrivacyCurve(noise=NARROW, sensitivity=3))
    assert narrow.in_bins() is narrow
    closed = ways(PrivacyCurve(noise=DiscreteGaussian(sigma_squared=10**14), sensitivity=3))
    assert closed.in_bins() is closed
    wide = ways(PrivacyCurve(noise=WIDE, sensitivity=3))
    assert wide.above == wide.attained
    pair = pair_of(WIDE, ((3, 1),))
    found = wide.in_bins()
    assert found.above == (((dominating((pair,)), 1),),)
    ((((below, count),),),) = (found.attained,)
    assert repr((below, count)) == repr((MergedPair(pair=pair, most=fineness(pair)), 1))


def test_wide_laplace_noise_beside_other_laws() -> None:
    curve = PrivacyCurve(noise=DiscreteLaplace(scale=10**7), sensitivity=10**6)
    found = ways(curve).in_bins()
    ((above, _),), ((below, _),) = (*found.above, *found.attained)
    other = (pair_of(NARROW, ((2, 1),)), 100)
    # The loss is about that of scale 1000 and shift 100, with a listing.
    near = (pair_of(DiscreteLaplace(scale=10_000), ((1000, 1),)), 30)
    exact = epsilon(near, other)
    high, low = epsilon((above, 30), other).upper, epsilon((below, 30), other).lower
    assert low <= high <= low * (1 + Fraction(1, 10**6))
    assert abs(Fraction(exact.upper) / Fraction(high) - 1) <= Fraction(1, 10**3)


@pytest.mark.nightly
def test_both_directions_of_wide_noise() -> None:
    curve = PrivacyCurve(noise=Poisson(mean=10**10), sensitivity=3000)
    found = ways(curve).in_bins()
    assert len(found.attained) == 2
    ((above, _),) = found.above[0]
    low = max(epsilon((law, 100)).lower for ((law, _),) in found.attained)
    high = epsilon((above, 100)).upper
    assert low <= high <= low * (1 + Fraction(2, 10**5))


@pytest.mark.parametrize(
    ("noise", "shift", "wide"),
    [
        (Skellam(variance=10**7), 1, False),
        (Skellam(variance=10**8), 1, True),
        (DiscreteGaussian(sigma_squared=10**6), 1, False),
        (DiscreteGaussian(sigma_squared=10**9), 1, True),
        (DiscreteGaussianSum(sigma_squared=100, count=10**6), 1, True),
        (DiscreteLaplace(scale=10**9), 1, False),
        (DiscreteLaplace(scale=10**9), 10**6, True),
        (PolyaDifference(shape="1/2", scale=10**4), 1, True),
        (Polya(shape=1, scale=10**9), 1, False),
        (Poisson(mean=10**6), 1, False),
        (Poisson(mean=10**9), 1, True),
    ],
)
def test_which_pairs_are_wide(noise: Noise, shift: int, wide: bool) -> None:
    assert is_wide(pair_of(noise, ((shift, 1),))) is wide


@pytest.mark.nightly
def test_a_sample_of_wide_noise_has_an_upper_bound() -> None:
    scope = Scope(relation=Relation.ADD_REMOVE)
    found = []
    for noise, shift in ((WIDE, 60_000), (Skellam(variance=10**4), 6)):
        curve = PrivacyCurve(noise=noise, sensitivity=shift, scope=scope)
        sampled = PoissonSampled(curve=curve, rate="1/20")
        law = sampled.pairs()[0]
        found.append(epsilon((law, 50), relative=COARSE).upper)
        assert bool(sampled.attained()) is (noise is not WIDE)
        assert bool(ways(sampled).attained) is (noise is not WIDE)
    wide, near = found
    assert abs(Fraction(wide) / Fraction(near) - 1) <= Fraction(1, 1000)


# -- mutants ---------------------------------------------------------------------------------------


def fresh() -> None:
    merged._positive.cache_clear()
    merged._merged.cache_clear()


def all_fit(case: int) -> bool:
    fresh()
    return all(between(pair, world, 40, "1e-2") for pair, world in directions(*CASES[case]))


@by_day(1)
@pytest.mark.parametrize(
    ("case", "owner", "name", "old", "new"),
    [
        # Q of a bin, moved by one outcome.
        (5, merged._Side, "bin", "rest - rest_after", "rest - self.tails(n - 1)[1]"),
        (5, merged._Side, "bin", "rest - rest_after", "self.tails(m + 1)[1] - rest_after"),
        (5, merged._Side, "bin", "gap - gap_after", "gap"),
        (5, merged._Side, "bin", "if n - m == 1", "if n - m < 5"),
        (5, Bin, "swapped", "low=-self.high, high=-self.low", "low=self.low, high=self.high"),
        (5, Bin, "swapped", "gap=-self.gap", "gap=self.gap"),
        (2, merged, "_between", "for part in left), arb(0)) - ", "for part in left), arb(0)) + "),
        (2, merged, "_between", "rest -= sum(", "rest += sum("),
        (4, merged, "_humped", "if m >= 0)", "if m > 0)"),
    ],
)
def test_mutants_of_the_bins_are_caught(
    monkeypatch: pytest.MonkeyPatch, case: int, owner: Any, name: str, old: str, new: str
) -> None:
    monkeypatch.setattr(owner, name, mutated(getattr(owner, name), old, new))
    assert not all_fit(case)
    monkeypatch.undo()
    fresh()


@by_day(2)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("excess * (1 + 1 / (part.high - part.low).expm1())", "excess"),
        ("part.low.expm1() * part.rest", "part.rest"),
        ("atoms.put(part.mass - moved, part.low)", "pass"),
        (
            'if part.low == arb("inf"):\n            hidden += part.mass',
            'if part.low == arb("inf"):\n            pass',
        ),
    ],
)
def test_mutants_of_the_spread_are_caught(old: str, new: str) -> None:
    # A dot below the curve.
    (pair, world), _ = directions(*CASES[-1])
    assert between(pair, world, 40, "1e-2")
    assert not between(pair, world, 40, "1e-2", mutated(spread, old, new))
