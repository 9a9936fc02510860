r"""Enclosures against mpmath and against each other, at every size of parameter.

They must hold what mpmath finds by plain sums, to 30 digits and more, and tighten as asked.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from flint import arb
from mpmath import mp, mpf

from dpcore import DiscreteGaussian, Enclosure, Noise, theta
from dpcore.enclosure import ball, precision
from tests.dpcore import second_path
from tests.dpcore.grid import NOISES, places, reach, second, spelled
from tests.dpcore.mutants import mutated
from tests.exact_law import coarser

# -- enclosures ----------------------------------------------------------------------------------


def holds(enclosure: Enclosure, value: Any) -> bool:
    r"""lower <= value <= upper, to the 60 digits of the value."""
    slack = abs(value) * mpf(10) ** -55
    lower, upper = Fraction(enclosure.lower), Fraction(enclosure.upper)
    return bool(
        second_path.real(lower) <= value + slack and value - slack <= second_path.real(upper)
    )


def tight(enclosure: Enclosure, bits: int) -> bool:
    return Fraction(enclosure.width) <= Fraction(enclosure.upper) / (1 << bits)


@pytest.mark.parametrize("noise", NOISES, ids=repr)
@pytest.mark.parametrize("function", ["pmf", "cdf", "sf"])
def test_enclosures_hold_what_mpmath_finds(noise: Noise, function: str) -> None:
    with second_path.digits(60):
        for k in places(noise):
            value = second(noise, function, k)
            if not spelled(noise, k):
                continue
            enclosure = getattr(noise, f"enclose_{function}")(k)
            assert holds(enclosure, value), k
            assert tight(enclosure, 127), k


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_enclosures_tighten_around_one_number(noise: Noise) -> None:
    wide = reach(noise)
    for function in (noise.enclose_pmf, noise.enclose_cdf, noise.enclose_sf):
        for k in (0, wide, -3 * wide):
            if not spelled(noise, k):
                continue
            found = [function(k, bits) for bits in (8, 40, 128, 500)]
            assert all(a.overlaps(b) for a in found for b in found)
            assert all(tight(e, bits - 1) for e, bits in zip(found, (8, 40, 128, 500), strict=True))


@pytest.mark.parametrize("noise", [n for n in NOISES if reach(n) < 100], ids=repr)
def test_the_whole_mass_is_one(noise: Noise) -> None:
    far = 12 * reach(noise)
    parts = [coarser(noise.enclose_pmf(k, 64), 200) for k in range(-far, far + 1)]
    parts.append(coarser(noise.enclose_tail(far, 64), 200))
    assert sum(part.lower for part in parts) <= 1 <= sum(part.upper for part in parts)


def test_a_mass_without_its_last_tail_is_seen() -> None:
    noise = DiscreteGaussian(sigma_squared=4)
    parts = [noise.enclose_pmf(k, 64) for k in range(-5, 6)]
    assert sum(Fraction(e.upper) for e in parts) < 1


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_the_functions_agree_with_each_other(noise: Noise) -> None:
    wide = reach(noise)
    for k in (0, 1, 2, wide, 5 * wide, -1, -wide):
        if not spelled(noise, k):
            continue
        below, above = noise.enclose_cdf(k), noise.enclose_sf(k)
        assert Fraction(below.lower) + Fraction(above.lower) <= 1
        assert Fraction(below.upper) + Fraction(above.upper) >= 1
        step = noise.enclose_pmf(k)
        before = noise.enclose_sf(k - 1)
        assert Fraction(before.lower) - Fraction(above.upper) <= step.upper
        assert Fraction(before.upper) - Fraction(above.lower) >= step.lower
        if noise.symmetric:
            assert noise.enclose_pmf(-k) == step
            assert noise.enclose_cdf(-k - 1).overlaps(above)
        tail = noise.enclose_tail(abs(k))
        ends = noise.enclose_sf(abs(k)), noise.enclose_cdf(-abs(k) - 1)
        assert tail.overlaps(
            Enclosure(ends[0].lower + ends[1].lower, ends[0].upper + ends[1].upper)
        )
        assert noise.tail(abs(k)) >= tail.upper


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_log_concavity_where_it_is_said(noise: Noise) -> None:
    if not noise.log_concave:
        return
    for k in (0, 1, 2, reach(noise)):
        if not spelled(noise, k):
            continue
        left, middle, right = (noise.enclose_pmf(j) for j in (k - 1, k, k + 1))
        assert Fraction(middle.upper) ** 2 >= Fraction(left.lower) * Fraction(right.lower)


@pytest.mark.parametrize("noise", NOISES, ids=repr)
@pytest.mark.parametrize("k", [2**62 - 1, 2**62, -(2**63), 2**64 + 1, 2**90])
def test_far_places_are_enclosed_too(noise: Noise, k: int) -> None:
    # Beyond what a rational can spell the enclosure widens to [0, small]: still true, never 0.
    for enclosure in (noise.enclose_pmf(k), noise.enclose_sf(abs(k))):
        assert 0 <= enclosure.lower <= enclosure.upper <= 1
        assert enclosure.upper > 0
        assert enclosure.upper_float > 0
    assert noise.enclose_cdf(abs(k)).upper <= 1 + Fraction(1, 1 << 100)
    with second_path.digits(60):
        (value,) = noise.parameters.values()
        value = Fraction(value)
        exponent = abs(k) / value if noise.name == "discrete-laplace" else k * k / (2 * value)
        if exponent < 10**6:
            assert holds(noise.enclose_pmf(k), second(noise, "pmf", k))


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_variances_are_those_of_mpmath(noise: Noise) -> None:
    (given_value,) = noise.parameters.values()
    value = Fraction(given_value)
    variance = noise.variance
    assert isinstance(variance, Enclosure)
    with second_path.digits(60):
        if noise.name == "discrete-laplace":
            half = 1 / (2 * second_path.real(value))
            exact = 2 / (mp.exp(half) - mp.exp(-half)) ** 2
        elif value <= 4000:
            weights = range(1, 60 + 20 * reach(noise))
            rate = -1 / (2 * second_path.real(value))
            exact = sum(2 * k * k * mp.exp(rate * k * k) for k in weights)
            exact /= second_path.gaussian_total(value)
        else:
            exact = second_path.real(value)  # less than 10^-1000 below
        if exact > mpf(2) ** -100_000:
            assert holds(variance, exact)
            assert tight(variance, 127)


@pytest.mark.parametrize("v", ["1/100", "1/4", "1", "15.99", "16", "100"])
@pytest.mark.parametrize("order", ["-2", "0", "1/10", "1", "7/2", "20"])
def test_moments_are_those_of_mpmath(v: str, order: str) -> None:
    variance, c = Fraction(v), Fraction(order)
    with second_path.digits(60):
        spread = int(abs(c) * variance) + 40 * reach(DiscreteGaussian(sigma_squared=variance))
        rate, tilt = -1 / (2 * second_path.real(variance)), second_path.real(c)
        total = sum(mp.exp(rate * k * k + tilt * k) for k in range(-spread, spread + 1))
        exact = mp.log(total / second_path.gaussian_total(variance))
        with precision(160):
            enclosure = Enclosure.of(theta.log_moment(variance, ball(c)))
        slack = mpf(10) ** -40
        assert second_path.real(Fraction(enclosure.lower)) <= exact + slack
        assert exact - slack <= second_path.real(Fraction(enclosure.upper))
        assert Fraction(enclosure.width) < Fraction(1, 1 << 60)


def test_a_wrong_partition_is_seen() -> None:
    noise = DiscreteGaussian(sigma_squared=1)
    wrong = mutated(
        DiscreteGaussian.pmf_ball,
        "theta.partition(self._v)",
        "(2 * arb.pi() * ball(self._v)).sqrt()",
    )
    with second_path.digits(60), precision(200):
        assert not holds(Enclosure.of(wrong(noise, 0)), second(noise, "pmf", 0))


@pytest.mark.parametrize("variance", ["16.01", "401", "1000000", "12582913"])
def test_a_contour_sum_without_its_error_term_would_be_seen(variance: str) -> None:
    # The alias term of the trapezoidal rule is what makes the ball true: with too few points the
    # sum is wrong by more than mpmath's digits.
    mutant = mutated(
        theta._contour_tail,
        "need = (ctx.prec + 24) * math.log(2)",
        "need = 40 * math.log(2)",
        _neglected=lambda *_: arb(0),
    )
    exact = Fraction(variance)
    noise = DiscreteGaussian(sigma_squared=exact)
    with second_path.digits(60), precision(200):
        centre = Fraction(Enclosure.of(mutant(exact, 1).mid()).lower)
        assert not holds(Enclosure.exactly(centre), second(noise, "sf", 0))
        assert holds(Enclosure.of(theta.upper_tail(exact, 1)), second(noise, "sf", 0))
