r"""Tests of enclosures of laws: mpmath and mutual consistency, at every size of parameter."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from flint import fmpz_poly
from mpmath import mp, mpf

from dpcore import DiscreteGaussian, DiscreteLaplace, Enclosure, InvalidParameter, Noise
from dpcore.analysis import theta
from dpcore.laws.sum_of_shares import summed
from dpcore.noise import Divisible
from dpcore.numbers.enclosure import ball, precision
from tests.day_and_nightly import by_day, effort
from tests.support.dpcore import mpmath_precision
from tests.support.dpcore.mutants import mutated
from tests.support.enumerate_random_choices import coarser
from tests.support.laws import (
    LAWS,
    NOISES,
    WIDE,
    cases,
    centre,
    places,
    reach,
    second,
    spelled,
)
from tests.support.laws.discrete_gaussian import total


def tight(enclosure: Enclosure, bits: int) -> bool:
    return Fraction(enclosure.width) <= Fraction(enclosure.upper) / (1 << bits)


@by_day(6)
@pytest.mark.parametrize("noise", cases(NOISES, every=4), ids=repr)
@pytest.mark.parametrize("function", ["pmf", "cdf", "sf"])
def test_enclosures_contain_the_values_of_mpmath(noise: Noise, function: str) -> None:
    with mpmath_precision.digits(60):
        for k in places(noise):
            if not spelled(noise, k):
                continue
            enclosure = getattr(noise, f"enclose_{function}")(k)
            assert mpmath_precision.holds(enclosure, second(noise, function, k)), k
            assert tight(enclosure, 127), k
            if function == "sf" and spelled(noise, -k):
                tail = second(noise, "cdf", -abs(k) - 1) + second(noise, "sf", abs(k))
                assert mpmath_precision.holds(noise.enclose_tail(abs(k)), tail), k
                assert noise.tail(abs(k)) >= noise.enclose_tail(abs(k)).upper


@by_day(6)
@pytest.mark.parametrize("noise", cases(NOISES), ids=repr)
def test_the_total_mass_is_one_and_log_concave_if_the_law_says_so(noise: Noise) -> None:
    far = min(3 * reach(noise), 40 if reach(noise) < WIDE else 5)
    first, last = centre(noise) - far, centre(noise) + far
    inner = [noise.enclose_pmf(k, 64) for k in range(first, last + 1)]
    parts = [noise.enclose_cdf(first - 1, 64), *inner, noise.enclose_sf(last, 64)]
    held = [coarser(part, 200) for part in parts]
    assert sum(part.lower for part in held) <= 1 <= sum(part.upper for part in held)
    largest = max(part.lower for part in held)
    assert sum(part.upper for part in held) - largest < 1  # the largest part is necessary
    wide, middle = reach(noise), centre(noise)
    for k in {0, 1, 2, wide, middle, middle - wide, middle + 3 * wide}:
        if noise.log_concave and spelled(noise, k) and spelled(noise, k + 1):
            left, here, right = (noise.enclose_pmf(j) for j in (k - 1, k, k + 1))
            assert Fraction(here.upper) ** 2 >= Fraction(left.lower) * Fraction(right.lower)


@by_day(6)
@pytest.mark.parametrize("noise", cases(NOISES, every=4), ids=repr)
@pytest.mark.parametrize("k", [2**62 - 1, 2**62, -(2**63), 2**64 + 1, 2**90])
def test_values_far_in_the_tail_are_enclosed(noise: Noise, k: int) -> None:
    # Beyond the range of printable rationals the enclosure widens to [0, small]: still true, and
    # never 0 unless the value is.
    for function, place in (("pmf", k), ("sf", abs(k))):
        enclosure = getattr(noise, f"enclose_{function}")(place)
        assert 0 <= enclosure.lower <= enclosure.upper <= 1 + Fraction(1, 1 << 100)
        if not (enclosure.upper > 0 and enclosure.upper_float > 0):
            assert second(noise, function, place) == 0
    assert noise.enclose_cdf(abs(k)).upper <= 1 + Fraction(1, 1 << 100)
    if spelled(noise, k):
        with mpmath_precision.digits(60):
            assert mpmath_precision.holds(noise.enclose_pmf(k), second(noise, "pmf", k))


def brute_moments(noise: Noise) -> tuple[Any, Any] | None:
    r"""Return E[X] and Var[X] by a plain sum in mpmath, where 4000 terms give 70 digits."""
    middle, far, rest = centre(noise), 8, mpf(1)
    if reach(noise) >= WIDE:
        return None
    while rest > mpf(10) ** -70:
        far *= 2
        if far > 2000:
            return None
        rest = second(noise, "cdf", middle - far) + second(noise, "sf", middle + far)
    masses = {k: second(noise, "pmf", k) for k in range(middle - far, middle + far + 1)}
    mean = sum(k * p for k, p in masses.items())
    return mean, sum((k - mean) ** 2 * p for k, p in masses.items())


def around(moment: Fraction | Enclosure) -> Enclosure:
    return moment if isinstance(moment, Enclosure) else Enclosure.exactly(moment)


@by_day(6)
@pytest.mark.parametrize("noise", cases(NOISES), ids=repr)
def test_moments_agree_with_mpmath(noise: Noise) -> None:
    law: Any = LAWS[noise.name]
    with mpmath_precision.digits(60):
        if hasattr(law, "variance"):
            found = law.mean(noise) if hasattr(law, "mean") else mpf(0), law.variance(noise)
        elif (brute := brute_moments(noise)) is not None:
            found = brute
        else:
            return
        mean, variance = found
        if noise.symmetric:
            assert noise.mean == 0
        elif mean > mpf(2) ** -100_000:
            assert mpmath_precision.holds(around(noise.mean), mean)
            assert tight(around(noise.mean), 127)
        if variance > mpf(2) ** -100_000:
            assert mpmath_precision.holds(around(noise.variance), variance)
            assert tight(around(noise.variance), 127)


UNIT = 100
FAR = Fraction(1, 1 << 40)
PARTIES = (2, 3, 4)


def window(noise: Noise) -> range | None:
    r"""Return the interval that contains all but 2^-40 of the mass, unless it is wide."""
    middle, far = centre(noise), 8
    while far <= 100:
        low, high = middle - far, middle + far
        if noise.enclose_cdf(low - 1, 16).upper + noise.enclose_sf(high, 16).upper < FAR:
            return range(low, high + 1)
        far = far * 5 // 4
    return None


@cache
def held_masses(share: Noise) -> tuple[int, fmpz_poly, fmpz_poly] | None:
    ks = window(share)
    if ks is None:
        return None
    held = [coarser(share.enclose_pmf(k, 80), UNIT) for k in ks]
    low = fmpz_poly([int(mass.lower * 2**UNIT) for mass in held])
    return ks[0], low, fmpz_poly([int(mass.upper * 2**UNIT) for mass in held])


def convolved(share: Noise, parties: int) -> dict[int, tuple[int, int]] | None:
    r"""Return bounds of the masses of a sum of shares, in units of 2^-(UNIT parties)."""
    masses = held_masses(share)
    if masses is None:
        return None
    first, low, high = masses[0] * parties, masses[1] ** parties, masses[2] ** parties
    # At least one share lies outside its window with probability below 2^-40 for each share.
    outside = math.ceil(parties * FAR * 2 ** (UNIT * parties))
    return {first + i: (int(low[i]), int(high[i]) + outside) for i in range(high.length())}


def refuted(noise: Noise, share: Noise, parties: int) -> list[int] | None:
    r"""Return the k at which the sum of shares cannot have the mass of the law."""
    masses = convolved(share, parties)
    if masses is None:
        return None
    unit, wrong, wide = Fraction(1, 1 << UNIT * parties), [], min(2 * reach(noise) + 4, 40)
    for k in range(centre(noise) - wide, centre(noise) + wide + 1, max(1, wide // 10)):
        least, most = masses.get(k, (0, math.ceil(parties * FAR / unit)))
        assert (most - least) * unit < Fraction(1, 1 << 30), "too wide to say anything"
        if not noise.enclose_pmf(k, 100).overlaps(Enclosure(least * unit, most * unit)):
            wrong.append(k)
    return wrong


def shares(noise: Divisible) -> list[tuple[int, Noise]]:
    found = []
    for parties in PARTIES:
        try:
            found.append((parties, noise.share(parties)))
        except InvalidParameter as refused:
            assert refused.argument == "parties"  # noqa: PT017 - some laws have no such share
    return found


# Not with next to no noise, whatever the number of shares.
SMALL = [
    noise
    for noise in NOISES
    if isinstance(noise, Divisible) and reach(noise) < 16 and noise.tail(0) > 0.001
]


@by_day(2)
@pytest.mark.parametrize("noise", SMALL, ids=repr)
def test_shares_add_up_to_the_law(noise: Any) -> None:
    for parties, share in shares(noise):
        # Possibly a law of another name: Polya differences of shape 1 are discrete Laplace.
        for law in {noise, summed(share, parties)}:
            assert refuted(law, share, parties) in ([], None), parties
        assert summed(share, 1) == share


# Their sums belong to another family.
@pytest.mark.parametrize(
    "share", [DiscreteLaplace(scale=1), DiscreteGaussian(sigma_squared=2)], ids=repr
)
def test_sums_of_draws_have_the_law_of_the_sum(share: Noise) -> None:
    for count in (2, 3):
        assert refuted(summed(share, count), share, count) == []
        assert refuted(summed(share, count + 1), share, count)


@by_day(2)
@pytest.mark.parametrize("law", [name for name in LAWS if any(n.name == name for n in SMALL)])
def test_one_share_more_or_less_is_detected(law: str) -> None:
    checked = 0
    for noise in (n for n in SMALL if n.name == law):
        for parties, share in shares(noise):
            if refuted(noise, share, parties) == []:
                checked += 1
                assert refuted(noise, share, parties + 1)
                assert parties == 1 or refuted(noise, share, parties - 1)
        if checked >= effort(4, 1000):
            break
    assert checked >= 2, "no share of this law was added up"


@pytest.mark.parametrize("v", ["1/100", "1/4", "15.99", "16"])
@pytest.mark.parametrize("order", ["-2", "0", "7/2", "20"])
def test_log_moments_agree_with_mpmath(v: str, order: str) -> None:
    variance, c = Fraction(v), Fraction(order)
    with mpmath_precision.digits(60):
        spread = int(abs(c) * variance) + 40 * reach(DiscreteGaussian(sigma_squared=variance))
        rate, tilt = -1 / (2 * mpmath_precision.real(variance)), mpmath_precision.real(c)
        tilted = sum(mp.exp(rate * k * k + tilt * k) for k in range(-spread, spread + 1))
        exact = mp.log(tilted / total(variance))
        with precision(160):
            enclosure = Enclosure.of(theta.log_moment(variance, ball(c)))
        slack = mpf(10) ** -40
        assert mpmath_precision.real(Fraction(enclosure.lower)) <= exact + slack
        assert exact - slack <= mpmath_precision.real(Fraction(enclosure.upper))
        assert Fraction(enclosure.width) < Fraction(1, 1 << 60)


def test_a_wrong_partition_function_is_detected() -> None:
    noise = DiscreteGaussian(sigma_squared=1)
    wrong = mutated(
        DiscreteGaussian.pmf_ball, "theta.partition(v)", "(2 * arb.pi() * ball(v)).sqrt()"
    )
    with mpmath_precision.digits(60), precision(200):
        assert not mpmath_precision.holds(Enclosure.of(wrong(noise, 0)), second(noise, "pmf", 0))
