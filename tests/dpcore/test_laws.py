r"""Masses, tails and quantiles against mpmath and against each other, at every size of parameter.

Enclosures must hold what mpmath finds by plain sums, to 30 digits and more; the float64 functions
must come within 1e-13 of it wherever the value is above 1e-300; quantiles are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from dpcore import DiscreteGaussian, DiscreteLaplace, Enclosure, Noise, theta
from dpcore.enclosure import ball, precision
from dpcore.noise import FLOAT_ERROR
from tests.dpcore import second_path
from tests.dpcore.mutants import mutated
from tests.exact_law import coarser

Function = Callable[[Fraction, int], Any]
SECOND: dict[str, dict[str, Function]] = {
    "discrete-laplace": {
        "pmf": second_path.laplace_pmf,
        "log_pmf": second_path.laplace_log_pmf,
        "sf": second_path.laplace_sf,
        "cdf": lambda scale, k: second_path.laplace_sf(scale, -k - 1),
    },
    "discrete-gaussian": {
        "pmf": second_path.gaussian_pmf,
        "log_pmf": second_path.gaussian_log_pmf,
        "sf": second_path.gaussian_sf,
        "cdf": lambda variance, k: second_path.gaussian_sf(variance, -k - 1),
    },
}


def second(noise: Noise, function: str, k: int) -> Any:
    (value,) = noise.parameters.values()
    return SECOND[noise.name][function](Fraction(value), k)


def reach(noise: Noise) -> int:
    r"""About one standard deviation, at least 1."""
    (value,) = noise.parameters.values()
    if noise.name == "discrete-gaussian":
        return max(1, math.isqrt(math.ceil(value)))
    return max(1, math.ceil(value))


LAPLACES: list[Noise] = [
    DiscreteLaplace(scale=s) for s in ("1e-6", "1/50", "1/3", 1, 10, "1048576.3", 2**46, 2**80)
]
GAUSSIANS: list[Noise] = [
    DiscreteGaussian(sigma_squared=v)
    for v in (
        *("1e-12", "1/100", "1/4", "0.9999", 1, 2, "15.99", 16, "16.01", 401, "4095.99", 4096),
        *("4096.01", 10**6, 12582913, "4194304.3", 2**80, 2**92, 2**160),
    )
]
NOISES = LAPLACES + GAUSSIANS


def spelled(noise: Noise, k: int) -> bool:
    r"""Whether a mass at |k| + 1 is no smaller than about 2^-100000: a rational of some pages."""
    (value,) = map(Fraction, noise.parameters.values())
    out = abs(k) + 1
    return (out / value if noise.name == "discrete-laplace" else out * out / (2 * value)) < 60_000


def places(noise: Noise) -> list[int]:
    wide = reach(noise)
    near = [0, 1, 2, 3, 17]
    far = [wide * n // d for n, d in ((1, 3), (1, 1), (5, 2), (7, 1), (12, 1), (30, 1))]
    return sorted({sign * k for k in near + far for sign in (1, -1)})


# -- enclosures ----------------------------------------------------------------------------------


def holds(enclosure: Enclosure, value: Any) -> bool:
    r"""lower <= value <= upper, to the 60 digits of the value."""
    slack = abs(value) * mpf(10) ** -55
    lower, upper = Fraction(enclosure.lower), Fraction(enclosure.upper)
    return bool(second_path.real(lower) <= value + slack and value - slack <= second_path.real(upper))


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
        DiscreteGaussian.pmf_ball, "theta.partition(self._v)", "(2 * arb.pi() * ball(self._v)).sqrt()"
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


# -- float64 -------------------------------------------------------------------------------------

FLOAT_NOISES = [
    noise for noise in NOISES if repr(noise) not in {repr(LAPLACES[-1]), repr(GAUSSIANS[-1])}
]


def float_places(noise: Noise) -> list[int]:
    wide = reach(noise)
    steps = (
        (1, 4, 5, 8, 10, 20, 30, 36, 37, 38, 39, 40)
        if noise.name == "discrete-gaussian"
        else (1, 5, 20, 100, 300, 500, 600, 680, 690, 700, 745)
    )
    edges = [wide * step + off for step in steps for off in (-1, 0, 1)]
    every = {0, 1, 2, 3, 4, 5, 7, wide // 10, wide // 3, *edges}
    return [k for k in sorted({sign * k for k in every for sign in (1, -1)}) if abs(k) < 2**63]


def float_errors(noise: Noise, function: str, ks: list[int], found: Any = None) -> list[int]:
    r"""The places where the float is not within 1e-13 of mpmath, above 1e-300."""
    floats = getattr(noise, function)(np.array(ks, dtype=np.int64)) if found is None else found
    wrong = []
    with second_path.digits(40):
        for k, value in zip(ks, floats.tolist(), strict=True):
            exact = second(noise, function, k)
            if abs(exact) > mpf("1e-300"):
                if not abs(value - exact) <= FLOAT_ERROR * abs(exact):
                    wrong.append(k)
            elif not abs(value) <= 1.1e-300:
                wrong.append(k)
    return wrong


@pytest.mark.parametrize("noise", FLOAT_NOISES, ids=repr)
@pytest.mark.parametrize("function", ["pmf", "log_pmf", "cdf", "sf"])
def test_floats_are_within_their_error(noise: Noise, function: str) -> None:
    assert float_errors(noise, function, float_places(noise)) == []


@given(
    st.fractions(min_value=-20, max_value=45, max_denominator=1000),
    st.floats(-760, 760),
    st.sampled_from(["pmf", "log_pmf", "cdf", "sf"]),
)
def test_laplace_floats_at_any_scale(octave: Fraction, x: float, function: str) -> None:
    scale = max(Fraction(2.0 ** float(octave)), Fraction(1, 10**6))
    k = round(x * float(scale))
    assert float_errors(DiscreteLaplace(scale=scale), function, [k]) == []


@given(
    st.fractions(min_value=-39, max_value=91, max_denominator=1000),
    st.floats(-40, 40),
    st.sampled_from(["pmf", "log_pmf", "cdf", "sf"]),
)
def test_gaussian_floats_at_any_variance(octave: Fraction, x: float, function: str) -> None:
    variance = max(Fraction(2.0 ** float(octave)), Fraction(1, 10**12))
    k = round(x * math.sqrt(variance))
    assert float_errors(DiscreteGaussian(sigma_squared=variance), function, [k]) == []


def test_floats_at_the_ends_of_int64() -> None:
    ends = [-(2**63), -(2**63) + 1, 2**63 - 1, 2**63 - 2]
    for noise in FLOAT_NOISES:
        for function in ("pmf", "cdf", "sf"):
            if noise.name == "discrete-laplace" or reach(noise) < 2**40:
                assert float_errors(noise, function, ends) == [], (noise, function)


def test_plain_float_formulas_are_seen() -> None:
    # What the pairs are for: k and s rounded to floats lose e^-x its digits for large x.
    noise = DiscreteLaplace(scale="1048576.3")
    ks = [k for k in float_places(noise) if 100 * 2**20 < k < 690 * 2**20]
    plain = math.tanh(1 / (2 * 1048576.3)) * np.exp(-np.array(ks) / 1048576.3)
    assert float_errors(noise, "pmf", ks, plain * (1 + 2e-13))
    gaussian = DiscreteGaussian(sigma_squared=4096)
    normal = np.exp(-np.array([0, 64, 640]) ** 2 / 8192) / math.sqrt(2 * math.pi * 4096.001)
    assert float_errors(gaussian, "pmf", [0, 64, 640], normal)


# -- quantiles -----------------------------------------------------------------------------------


def wrong_quantiles(noise: Noise, levels: list[float], found: Any = None) -> list[float]:
    r"""The p for which k is not the least with F(k) >= p, for the exact binary value of p."""
    answer = np.asarray(noise.quantile(np.array(levels)) if found is None else found)
    wrong = []
    with second_path.digits(60):
        for p, k in zip(levels, answer.tolist(), strict=True):
            exact = second_path.real(Fraction(p))
            if p < 0.5:
                right = second(noise, "cdf", k) >= exact > second(noise, "cdf", k - 1)
            else:
                rest = second_path.real(1 - Fraction(p))
                right = second(noise, "sf", k) <= rest < second(noise, "sf", k - 1)
            if not right:
                wrong.append(p)
    return wrong


def jumps(noise: Noise) -> list[float]:
    r"""Floats at and next to F(k): where one unit in the last place changes the quantile."""
    found: list[float] = []
    wide = reach(noise)
    for k in (-6 * wide, -wide, -2, -1, 0, 1, 2, wide, 3 * wide):
        value = noise.enclose_cdf(k, 64).lower_float
        for _ in range(2):
            value = math.nextafter(value, 0)
        for _ in range(6):
            found.append(value)
            value = math.nextafter(value, 1)
    return [p for p in found if 0 < p < 1]


LEVELS = [
    *(0.5, math.nextafter(0.5, 0), math.nextafter(0.5, 1), 0.1, 0.25, 0.75, 0.9, 0.975),
    *(1e-300, 1e-290, 1e-100, 1e-17, 1e-16, 2.0**-53, 1 - 2.0**-53, 1 - 1e-10, 5e-324, 2.3e-308),
]
QUANTILE_NOISES = [
    DiscreteLaplace(scale=s) for s in ("1e-3", "1/3", 1, 10, "1048576.3", 2**46)
] + [DiscreteGaussian(sigma_squared=v) for v in ("1/4", 1, "16.01", 400, 4096, 10**6, 2**80, 2**92)]


@pytest.mark.parametrize("noise", QUANTILE_NOISES, ids=repr)
def test_quantiles_are_exact(noise: Noise) -> None:
    assert wrong_quantiles(noise, LEVELS + jumps(noise)) == []


def test_quantiles_that_trust_their_guess_are_seen() -> None:
    noise = DiscreteLaplace(scale=10)
    trusting = mutated(Noise._quantile, "np.flatnonzero(~(enough & short))", "()")
    levels = LEVELS + jumps(noise)
    assert wrong_quantiles(noise, levels, trusting(noise, np.array(levels)))


@pytest.mark.parametrize("noise", QUANTILE_NOISES, ids=repr)
def test_rational_levels_are_decided_at_any_depth(noise: Noise) -> None:
    with second_path.digits(140):
        for k in (-2 * reach(noise), -1, 0, 3):
            if not spelled(noise, 100 * k):
                continue
            below = second_path.floor_to(second(noise, "cdf", k), 380)
            if 0 < below < 1:
                assert noise.quantile(below) == k
                assert noise.quantile(below + Fraction(1, 1 << 380)) == k + 1


def test_levels_beyond_floats_are_decided() -> None:
    noise = DiscreteLaplace(scale=10)
    tiny = Fraction(1, 10**400)
    with second_path.digits(60):
        for p, k in ((tiny, noise.quantile(tiny)), (1 - tiny, noise.quantile(1 - tiny))):
            assert isinstance(k, int)
            side = second(noise, "cdf", k) if p < Fraction(1, 2) else 1 - second(noise, "sf", k)
            if p < Fraction(1, 2):
                assert second(noise, "cdf", k - 1) < mpf(10) ** -400 <= side
            else:
                assert second(noise, "sf", k) <= mpf(10) ** -400 < second(noise, "sf", k - 1)


@given(st.floats(0, 1, exclude_min=True, exclude_max=True), st.sampled_from(QUANTILE_NOISES))
def test_any_level_is_exact(p: float, noise: Noise) -> None:
    assert wrong_quantiles(noise, [p]) == []
