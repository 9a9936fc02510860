r"""Tests of properties of single laws: contours against plain sums, recurrences, log-concavity."""

from __future__ import annotations

import inspect
import math
from fractions import Fraction
from functools import partial
from itertools import repeat
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flint import acb, arb

from dpcore import DiscreteLaplace, Enclosure, Noise, SeededRng
from dpcore.analysis import polya_integral as branch_contour
from dpcore.analysis.polya_integral import Branch
from dpcore.laws.poisson_and_binomial import Binomial, Poisson, falling_sum
from dpcore.laws.polya import Polya, PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import narrow, precision
from dpcore.sampling.inversion import Difference
from tests.day_and_nightly import by_day, spread
from tests.support.dpcore import mpmath_precision
from tests.support.dpcore.mpmath_precision import holds
from tests.support.dpcore.mutants import mutated, rewired
from tests.support.dpcore.scripted_rng import NeverAsked
from tests.support.laws import polya as one_sided
from tests.support.laws import polya_difference as two_sided

BRANCHES = [
    (Fraction(r), Fraction(s))
    for r, s in (("1/3", "1/2"), ("7/2", "3/2"), ("0.9", "10"), ("40", "5"), ("1/1024", "60"))
]


@by_day(1)
@pytest.mark.parametrize(("shape", "scale"), BRANCHES)
def test_contours_enclose_plain_sums(shape: Fraction, scale: Fraction) -> None:
    one = Branch(right=shape, left=Fraction(0), scale=scale)
    two = Branch(right=shape, left=shape, scale=scale)
    law, difference = Polya(shape=shape, scale=scale), PolyaDifference(shape=shape, scale=scale)
    with mpmath_precision.digits(50):
        for k in spread((0, 1, 2, 9, 60, 300), 3):
            for contour, branch, place, exact in (
                (branch_contour.mass, one, k, one_sided.pmf(law, k)),
                (branch_contour.mass, two, k, two_sided.pmf(difference, k)),
                (branch_contour.upper_tail, one, k + 1, one_sided.sf(law, k)),
                (branch_contour.upper_tail, two, k + 1, two_sided.sf(difference, k)),
                (branch_contour.lower_tail, one, k, one_sided.cdf(law, k)),
            ):
                assert holds(narrow(partial(contour, branch, place), 100), exact, 45), k


@by_day(2)
@pytest.mark.parametrize("scale", ["1e-3", "1/2", "1000", "1048576.3", 2**80, 2**200])
@pytest.mark.parametrize("k", [1, 2, 1000, 2**40, 2**90])
def test_shape_one_is_the_discrete_laplace(scale: Any, k: int) -> None:
    s = Fraction(scale)
    two = Branch(right=Fraction(1), left=Fraction(1), scale=s)
    laplace = DiscreteLaplace(scale=s)
    with precision(200):
        assert branch_contour.mass(two, k).overlaps(laplace.pmf_ball(k))
        assert branch_contour.upper_tail(two, k).overlaps(laplace.sf_ball(k - 1))
        if k < 1000 * s:
            assert narrow(lambda: branch_contour.mass(two, k), 64).width > 0


@pytest.mark.parametrize("scale", ["1e-6", "1/2", 1000, 2**46, 2**80])
@pytest.mark.parametrize("shape", ["1/1048576", "1/2", 64, 1024, 10**5])
def test_the_mass_at_zero_agrees_with_its_closed_form(shape: Any, scale: Any) -> None:
    # P(X <= 0) = (1-beta)^r, down to 2^-8000000: the contour must pass near the saddle.
    law = Polya(shape=shape, scale=scale)
    one = Branch(right=Fraction(shape), left=Fraction(0), scale=Fraction(scale))
    found = narrow(lambda: branch_contour.lower_tail(one, 0), 40)
    assert found.overlaps(law.enclose_pmf(0))
    assert found.overlaps(law.enclose_cdf(0))


CONTOUR_MUTANTS = {
    "left branch not mirrored": ("(-u - far)", "(u - far)"),
    "left branch omitted": ("if law.left:", "if False:"),
    "half of the contour": ("ball(start), arb.pi(),", "ball(start), arb.pi() / 2,"),
    "first octave omitted": ("acb(0), Fraction(0), first", "acb(0), first, 2 * first"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTOUR_MUTANTS)
def test_a_mutant_of_the_contour_is_detected(name: str) -> None:
    mutant = mutated(branch_contour._integral, *CONTOUR_MUTANTS[name])
    two = Branch(right=Fraction(9, 10), left=Fraction(9, 10), scale=Fraction(10))
    law = PolyaDifference(shape="0.9", scale=10)
    with precision(200), mpmath_precision.digits(50):
        gap = branch_contour._saddle(two, 7)
        found = Enclosure.of(mutant(two, 7, gap, lambda _: acb(1)))
        assert not holds(found, two_sided.pmf(law, 7), 45)


def test_an_integral_across_the_cut_would_be_wrong() -> None:
    # Without the flag FLINT would integrate across the cut as if it did not exist.
    assert "analytic=analytic" in inspect.getsource(branch_contour._integral)
    with precision(100):
        assert not (-acb(arb(0, 4), arb(0, 4)).expm1()).log(analytic=True).is_finite()


@pytest.mark.parametrize("scale", ["1/3", 10])
def test_shapes_below_one_are_not_log_concave(scale: Any) -> None:
    for law in (Polya, PolyaDifference):
        assert law(shape=1, scale=scale).log_concave
        noise = law(shape="1/2", scale=scale)
        assert not noise.log_concave
        left, middle, right = (noise.enclose_pmf(k) for k in (20, 21, 22))
        assert Fraction(middle.upper) ** 2 < Fraction(left.lower) * Fraction(right.lower)


def test_a_wide_draw_is_the_difference_of_two_draws() -> None:
    class Counting:
        r"""A batch that deals 0, 1, 2, ... without end."""

        dealt = 0

        def draw(self, rng: Any, count: int) -> Integers:
            start, self.dealt = self.dealt, self.dealt + count
            return np.arange(start, self.dealt, dtype=np.int64)

    for count in (0, 1, 7):
        source = Counting()
        # Each of 2 count draws is used once: i - (i + count).
        assert Difference(source).draw(NeverAsked(), count).tolist() == [-count] * count
        assert source.dealt == 2 * count


@pytest.mark.parametrize("variance", ["1e-60", "1e-300"])
def test_a_tiny_variance_is_supported(variance: str) -> None:
    # r(0) would divide 0 by 0, and t/v is beyond every float.
    noise = Skellam(variance=variance)
    assert noise.sample(5, rng=SeededRng(1)).tolist() == [0] * 5
    assert noise.enclose_tail(0).upper <= Fraction(variance) * (1 + Fraction(1, 10**30))
    assert noise.enclose_tail((1 << 62) - 1).upper < Fraction(1, 1 << 4000)


@pytest.mark.parametrize(("trials", "p"), [(1, "1/2"), (13, "1/3"), (60, "3/7"), (500, "1/2")])
def test_few_coins_are_exact_rationals(trials: int, p: str) -> None:
    noise, q = Binomial(trials=trials, probability=p), Fraction(p)
    total = Fraction(0)
    for k in range(-1, trials + 2):
        mass = math.comb(trials, k) * q**k * (1 - q) ** (trials - k) if k >= 0 else Fraction(0)
        total += mass
        assert mass in noise.enclose_pmf(k)
        assert total in noise.enclose_cdf(k)
        assert 1 - total in noise.enclose_sf(k)
        if 0 < total < 1:
            # F(k) itself is a level: its quantile is k, and any larger level gives k + 1.
            following = mass * (trials - k) / (k + 1) * q / (1 - q)
            assert noise.quantile(total) == k
            assert noise.quantile(total + following / 10**50) == k + 1


def test_the_tail_at_the_middle_of_fair_coins_is_one_half() -> None:
    for trials in (3001, 2**80 + 1):
        noise = Binomial(trials=trials, probability="1/2")
        assert noise.enclose_cdf(trials // 2) == Enclosure.exactly(Fraction(1, 2))
        assert noise.enclose_sf(trials // 2) == Enclosure.exactly(Fraction(1, 2))
    assert Binomial(trials=3001, probability="1/2").quantile(0.5) == 1500
    assert Binomial(trials=3001, probability="1/2").quantile(math.nextafter(0.5, 1)) == 1501


def test_decreasing_sums_include_their_remainder() -> None:
    for ratio in (Fraction(1, 2), Fraction(3, 4), Fraction(1, 10**9)):
        pair = (ratio.numerator, ratio.denominator)
        assert 1 / (1 - ratio) in narrow(partial(_geometric, pair), 100)
    # If stopped early, the sum must include the omitted remainder.
    early = SimpleNamespace(prec=8)
    for code, right in (
        (rewired(falling_sum, ctx=early), True),
        (mutated(falling_sum, "arb(rest / 2, rest / 2)", "0", ctx=early), False),
    ):
        with precision(64):
            found = Enclosure.of(code(arb(1), repeat((1, 2))))
        assert (2 in found) == right


@pytest.mark.parametrize(
    "noise",
    [
        *(Poisson(mean="10/3"), Poisson(mean=2**80)),
        *(Binomial(trials=n, probability="1/3") for n in (1, 12, 5000, 2**80)),
    ],
    ids=repr,
)
def test_there_is_no_mass_outside_the_support(noise: Noise) -> None:
    for k in (-1, -(2**70)):
        assert noise.enclose_pmf(k) == noise.enclose_cdf(k) == Enclosure.exactly(0)
        assert noise.enclose_sf(k) == Enclosure.exactly(1)
    if isinstance(noise, Binomial):
        for k in (noise.trials, noise.trials + 1, noise.trials * 4):
            assert noise.enclose_cdf(k) == Enclosure.exactly(1)
            assert noise.enclose_sf(k) == Enclosure.exactly(0)
            assert k == noise.trials or noise.enclose_pmf(k) == Enclosure.exactly(0)


def _geometric(ratio: tuple[int, int]) -> arb:
    return falling_sum(arb(1), repeat(ratio))
