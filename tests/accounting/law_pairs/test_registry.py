"""Tests of `accounting.law_pairs.registry`: the worst integer vector and its exact curve."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest

from accounting import NotDerived, PrivacyCurve, compose, guarantee
from accounting.convert_guarantees import as_pure
from accounting.guarantees.stated_guarantees import PureBound
from accounting.law_pairs.registry import Shift, candidates, coordinates_of, heaviest, maximal
from dpcore import (
    Binomial,
    DiscreteGaussian,
    DiscreteGaussianSum,
    DiscreteLaplace,
    Mechanism,
    Noise,
    Poisson,
    Polya,
    PolyaDifference,
    Sensitivity,
    Skellam,
    Staircase,
)
from dpcore.numbers.enclosure import Enclosure
from tests.day_and_nightly import by_day
from tests.support.accounting.bound_ends import ends
from tests.support.accounting.brute_force import Brute, close
from tests.support.accounting.release_lists import curve
from tests.support.accounting.unregistered_law import Triangle

ONE = DiscreteGaussian(sigma_squared=1)
LEAN = PolyaDifference(shape="1/2", scale="1/2")


def steps(shift: Shift) -> tuple[int, ...]:
    return tuple(step for step, count in shift for _ in range(count))


def test_every_maximal_vector_is_found_once() -> None:
    # Partitions, and partitions into squares (OEIS A001156).
    for make, power, counts in (
        (Sensitivity.l1, 1, [1, 2, 3, 5, 7, 11, 15, 22, 30, 42]),
        (Sensitivity.l2_squared, 2, [1, 1, 1, 2, 2, 2, 2, 3, 4, 4, 4, 5, 6, 6, 6, 8]),
    ):
        for amount, count in enumerate(counts, 1):
            tops = {tuple(sorted(steps(shift))) for shift in maximal(make(amount))}
            assert len(tops) == len(maximal(make(amount))) == count
            assert all(sum(step**power for step in top) == amount for top in tops)


@pytest.mark.parametrize("noise", [LEAN, Staircase(epsilon=1, sensitivity=2)], ids=repr)
def test_the_worst_l1_shift_of_other_laws_is_not_one_coordinate(noise: Noise) -> None:
    # Two steps of 1 lose more than one of 2: neither pure() nor zcdp() may return the latter.
    assert 2 * curve(noise, Sensitivity(1)).pure().upper > curve(noise, Sensitivity(2)).pure().upper
    for ask in (PrivacyCurve.pure, PrivacyCurve.zcdp):
        with pytest.raises(NotDerived, match="bound per coordinate"):
            ask(curve(noise, Sensitivity.l1(2)))
    assert curve(noise, Sensitivity.l1(1)).pure() == curve(noise, Sensitivity(1)).pure()
    with pytest.raises(NotDerived, match="bound per coordinate"):
        curve(Triangle(half=3), Sensitivity.l2_squared(4)).pure()


HALF = DiscreteLaplace(scale="1/2")


@pytest.mark.parametrize(
    ("noise", "vector", "moved"),
    [
        (ONE, (2, 1), Sensitivity.box((2, 1))),
        (ONE, (1, 1), Sensitivity.l2_squared(2)),
        pytest.param(HALF, (3, 2), Sensitivity.box((3, 2)), marks=pytest.mark.nightly),
    ],
    ids=repr,
)
def test_curves_agree_with_sums_over_the_plane(
    noise: Noise, vector: tuple[int, ...], moved: Sensitivity
) -> None:
    brute = Brute(noise=noise, shifts=(vector,), reach=40 if noise is HALF else 14)
    found = curve(noise, moved)
    for epsilon in ("0", "1/3", "2", "4", "17/2"):
        delta = found.enclose_delta(epsilon)
        assert close(delta, brute.delta(epsilon))
        assert delta.width <= delta.upper / 10**10
    if noise is HALF:
        assert close(found.enclose_renyi("3/2"), brute.renyi("3/2"))
        assert close(found.enclose_zcdp(), brute.divergence())
        assert close(found.enclose_tradeoff("1/7"), brute.tradeoff("1/7"))


@by_day(6)
@pytest.mark.parametrize("scale", ["1/3", 1, 4, 30])
@pytest.mark.parametrize("amount", [2, 3, 5, 8])
def test_l1_laplace_is_worst_in_one_coordinate(scale: str | int, amount: int) -> None:
    noise, sensitivity = DiscreteLaplace(scale=scale), Sensitivity.l1(amount)
    assert candidates(noise, sensitivity) == (coordinates_of(noise, ((amount, 1),)),)
    others = [curve(noise, Sensitivity.box(steps(shift))) for shift in maximal(sensitivity)]
    for part in range(0, 30, 6):
        epsilon = Fraction(amount * part, 30) / Fraction(scale)
        most = curve(noise, amount).enclose_delta(epsilon).upper
        assert all(each.enclose_delta(epsilon).lower <= most for each in others)


def test_pure_and_zcdp_are_available_where_the_curve_is_not() -> None:
    wide = Sensitivity.l2_squared(10**6)
    gaussians, laplaces = (
        curve(DiscreteGaussian(sigma_squared=400), wide),
        curve(DiscreteLaplace(scale=20), wide),
    )
    assert gaussians.enclose_zcdp() == Enclosure.exactly(Fraction(10**6, 800))
    assert gaussians.pure().lower == math.inf
    assert as_pure(laplaces) == PureBound(50_000)
    assert as_pure(curve(DiscreteLaplace(scale=3), Sensitivity.l1(9))) == PureBound(3)
    assert curve(ONE, Sensitivity.l1(9)).enclose_zcdp() == Enclosure.exactly(Fraction(81, 2))
    assert heaviest(Sensitivity.box((1, 3, 1))) == ((3, 1), (1, 2))
    single = curve(DiscreteLaplace(scale=20), Sensitivity(1)).enclose_zcdp(bits=100)
    assert laplaces.enclose_zcdp().overlaps(
        Enclosure(10**6 * Fraction(single.lower), 10**6 * Fraction(single.upper))
    )
    for ask in (gaussians.delta, laplaces.epsilon):
        with pytest.raises(NotDerived, match="limit of 256"):
            ask("1e-6")


def test_the_curve_of_a_steep_box_is_enclosed() -> None:
    steep = curve(DiscreteLaplace(scale=10), Sensitivity.box((10**3, 1)))
    above = steep.enclose_epsilon("1e-6")
    with mpmath.workdps(50):
        # Only the highest loss is beyond epsilon, with mass (1 + beta)^-2.
        top = (1 + mpmath.exp(mpmath.mpf(-1) / 10)) ** -2
        assert close(above, mpmath.mpf("100.1") + mpmath.log1p(-mpmath.mpf("1e-6") / top))
    assert as_pure(steep) == PureBound("1001/10")


@by_day(3)
@pytest.mark.parametrize(
    "noise",
    [
        Skellam(variance=2),
        DiscreteGaussianSum(count=2, sigma_squared="1/2"),
        Staircase(epsilon=1, sensitivity=2),
        LEAN,
        Poisson(mean=3),
        Binomial(trials=6, probability="1/3"),
        Polya(shape=2, scale="1/2"),
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    ("moved", "shifts", "choices"),
    [
        (Sensitivity.box((2, 1)), ((2, 1), (2, -1)), (1, 4)),
        (Sensitivity.l1(2), ((2, 0), (1, 1), (1, -1)), (2, 5)),
    ],
    ids=["box", "l1"],
)
def test_vectors_of_every_law_agree_with_sums_over_the_plane(
    noise: Noise, moved: Sensitivity, shifts: tuple[tuple[int, int], ...], choices: tuple[int, int]
) -> None:
    reach = 36 if isinstance(noise, Staircase) else 20
    brute = Brute(noise=noise, shifts=shifts, reach=reach)
    both = guarantee(Mechanism(noise=noise, sensitivity=moved))
    for epsilon in ("1/2", "2"):
        found, truth = ends(both.delta(epsilon)), brute.delta(epsilon)
        assert close(found, truth, room="1e-7")  # the mass outside the cube
        assert found.upper - found.lower <= Fraction(found.upper) / 10**5
        assert ends(compose(both, both).delta(epsilon)).upper >= found.lower
    # The signs that a single direction omits can be the worst.
    assert len(candidates(noise, moved)) == choices[not noise.symmetric]


def test_zcdp_of_a_box_is_between_the_largest_shift_and_the_sum() -> None:
    noise = Skellam(variance=2)
    both = curve(noise, Sensitivity.box((3, 1))).enclose_zcdp()
    alone = [curve(noise, Sensitivity(step)).enclose_zcdp() for step in (3, 1)]
    assert (both.lower, both.upper) == (alone[0].lower, alone[0].upper + alone[1].upper)
    assert curve(noise, Sensitivity.box((1, 1))).enclose_zcdp().lower == 2 * alone[1].lower
