"""Lattice sums: tails against polynomial powers, curves against plain sums, known numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import NotDerived
from accounting.laws.gaussian import GaussianProduct
from accounting.laws.laplace import LaplaceProduct
from accounting.pairs import lattice
from accounting.pairs.balls import as_ball
from accounting.pairs.enclose import enclose_delta, enclose_epsilon
from accounting.pairs.lattice import LatticePair
from accounting.pairs.shift import Shift
from dpcore import DiscreteGaussian
from dpcore.numbers.enclosure import Enclosure, ball, precision
from tests.effort import by_day, effort
from tests.support.accounting.brute import close, gaussian, laplace, real
from tests.support.accounting.lattice_powers import (
    PAIRS,
    forget,
    holds,
    of_gaussian,
    of_laplace,
    spread_of,
)


@pytest.fixture
def fresh() -> Iterator[None]:
    forget()
    yield
    forget()


@by_day(2)
@pytest.mark.parametrize("pair", PAIRS, ids=repr)
@pytest.mark.parametrize("bits", [12, 53, 96, 320])
def test_tails_hold_what_polynomial_powers_give(pair: LatticePair, bits: int) -> None:
    assert holds(pair, spread_of(pair), bits)


@pytest.mark.parametrize("pair", PAIRS, ids=repr)
def test_tails_are_as_tight_as_their_own_size(pair: LatticePair) -> None:
    for m in spread_of(pair):
        if 2 * m > pair.twice_centre and (pair.top is None or m <= pair.top):
            with precision(128):
                gap, rest = pair.tails(m)
            assert min(gap.rel_accuracy_bits(), rest.rel_accuracy_bits()) >= 80


@by_day(1)
@pytest.mark.parametrize("pair", PAIRS, ids=repr)
def test_enclosures_meet_at_every_precision(pair: LatticePair) -> None:
    for m in spread_of(pair)[::4]:
        with precision(500):
            fine = pair.tails(m)
        for bits in (8, 30, 80, 333):
            with precision(bits):
                coarse = pair.tails(m)
            assert all(wide.overlaps(tight) for wide, tight in zip(coarse, fine, strict=True))


@given(
    gaussian_law=st.booleans(),
    amount=st.fractions(Fraction(1, 30), 12, max_denominator=30),
    shift=st.dictionaries(st.integers(1, 5), st.integers(1, 4), min_size=1, max_size=3),
    share=st.fractions(-1, 1, max_denominator=64),
    bits=st.sampled_from((16, 64, 128)),
)
@settings(max_examples=effort(30, 80), deadline=None)
def test_tails_hold_for_any_law_and_shift(
    gaussian_law: bool, amount: Fraction, shift: dict[int, int], share: Fraction, bits: int
) -> None:
    steps = tuple(sorted(shift.items(), reverse=True))
    pair: LatticePair = (
        GaussianProduct(noise=DiscreteGaussian(sigma_squared=amount), shift=steps)
        if gaussian_law
        else LaplaceProduct(scale=amount, shift=steps)
    )
    ends = spread_of(pair)
    m = (ends[0] + ends[-1]) // 2 + math.floor(share * (ends[-1] - ends[0]) / 2)
    assert holds(pair, range(m, m + 1), bits)


# -- the curve: plain sums in mpmath -----------------------------------------------------------


def sums_of(mass: Callable[[int], Any], shift: Shift, reach: int) -> dict[Any, tuple[Any, Any]]:
    r"""Masses under P and Q of everything that may come out, by its loss."""
    worlds = {0: (mpmath.mpf(1), mpmath.mpf(1))}
    masses = {x: mass(x) for x in range(-2 * reach, 2 * reach + 1)}
    for step, count in shift:
        for _ in range(count):
            grown: dict[Any, tuple[Any, Any]] = {}
            # Outcomes of one ratio may be merged; the ratio is a multiple of 1/840 here, in logs.
            for key, (p, q) in worlds.items():
                for x in range(-reach, reach + 1):
                    ratio = _key(masses, x, step)
                    old = grown.get(key + ratio, (mpmath.mpf(0), mpmath.mpf(0)))
                    grown[key + ratio] = (old[0] + p * masses[x], old[1] + q * masses[x + step])
            worlds = grown
    return worlds


def _key(masses: dict[int, Any], x: int, step: int) -> int:
    return int(mpmath.nint(mpmath.log(masses[x] / masses[x + step]) * 840))


@pytest.mark.parametrize(
    ("pair", "mass", "reach"),
    [
        (of_gaussian("1", (1, 4)), gaussian(1), 15),
        (of_gaussian("2", (2, 2), (1, 1)), gaussian(2), 21),
        (of_gaussian("1/5", (1, 5)), gaussian("1/5"), 9),
        (of_laplace("2", (1, 4)), laplace(2), 110),
        (of_laplace("1", (3, 2), (1, 2)), laplace(1), 60),
    ],
    ids=repr,
)
def test_curves_against_plain_sums(pair: Any, mass: Callable[[int], Any], reach: int) -> None:
    with mpmath.workdps(50):
        worlds = sums_of(mass, pair.shift, reach).values()
        for epsilon in ("0", "1/10", "1", "5/2", "13/2"):
            exact = mpmath.fsum(
                max(p - mpmath.exp(real(epsilon)) * q, mpmath.mpf(0)) for p, q in worlds
            )
            found = enclose_delta(pair, Fraction(epsilon), 64)
            assert close(found, exact, relative="1e-18") or exact < mpmath.mpf("1e-30")
        for delta in ("1/5", "1/1000", "1/1000000"):
            found = enclose_epsilon(pair, Fraction(delta), 64)
            for end, side in ((found.lower, -1), (found.upper, 1)):
                level = mpmath.exp(real(Fraction(end)))
                at = mpmath.fsum(max(p - level * q, mpmath.mpf(0)) for p, q in worlds)
                assert end == 0 or side * (real(delta) - at) >= -mpmath.mpf("1e-17")


# -- numbers known from elsewhere --------------------------------------------------------------

REFERENCES = [
    (of_gaussian("400", (1, 1000)), "1e-6", "8.306226", 1e-6),
    (of_gaussian("400", (1, 1000)), "1e-12", "11.9921", 5e-5),
    (of_gaussian("400", (1, 1000)), "1e-30", "19.085", 5e-4),
    (of_gaussian("400", (1, 100)), "1e-6", "2.254087", 1e-6),
    (of_gaussian("400", (1, 10_000)), "1e-6", "35.57", 5e-3),
    (of_laplace("20", (1, 1000)), "1e-6", "8.28357334602", 1e-11),
    (of_laplace("20", (1, 100)), "1e-6", "2.20753270093", 1e-11),
]


@pytest.mark.parametrize(("pair", "delta", "epsilon", "digits"), REFERENCES)
def test_many_rounds_in_a_few_tails(
    pair: LatticePair, delta: str, epsilon: str, digits: float, fresh: None
) -> None:
    found = enclose_epsilon(pair, Fraction(delta), 64)
    assert abs(Fraction(found.lower) - Fraction(epsilon)) <= Fraction(digits)
    assert Fraction(found.width) <= Fraction(1, 10**15)
    # What makes it fast: the guess is right, and few frequencies matter.
    assert lattice._tails.cache_info().misses <= 3
    with precision(96):
        m = pair.guess(Fraction(delta))
        assert m is not None
        assert len(lattice._line(pair, lattice._representative(pair, m), 96).kept) <= 100


def test_a_coin_of_a_million_rounds_against_its_binomial_sum() -> None:
    # All steps 1: S is binomial; summed from the place of the ray up, in balls.
    rounds, scale = 1_000_000, Fraction(500)
    pair = of_laplace("500", (1, rounds))
    m = rounds // 2 + 2500
    with precision(256):
        up = 1 / (1 + (-1 / ball(scale)).exp())
        k, p = arb(rounds), arb(m)
        term = ((k + 1).lgamma() - (p + 1).lgamma() - (k - p + 1).lgamma()).exp()
        term *= up**m * (1 - up) ** (rounds - m)
        here, there = arb(0), arb(0)
        for j in range(m, m + 6000):
            here += term
            there += term * (-as_ball(pair.loss(j))).exp()
            term *= (1 - up) ** -1 * up * (rounds - j) / (j + 1)
        # The ratio of terms falls.
        here += arb(0, (term / (1 - up / (1 - up) * (k - m - 6000) / (m + 6000))).upper())
    with precision(128):
        gap, rest = pair.tails(m)
    assert gap.overlaps(here - there)
    assert rest.rel_accuracy_bits() > 60
    with precision(256):
        assert abs(rest / there - 1) < arb(2) ** -60


def test_the_largest_loss_is_reached_and_not_passed() -> None:
    pair = of_laplace("20", (1, 1000))
    assert pair.largest_loss() == Enclosure.exactly(50)
    with mpmath.workdps(400):
        # The top outcome has mass (1 + beta)^-1000; below that delta, epsilon = 50 + log(1 - d/p).
        top = (1 + mpmath.exp(-mpmath.mpf(1) / 20)) ** -1000
        for exponent in (300, 320, 1000):
            delta = Fraction(1, 10**exponent)
            found = enclose_epsilon(pair, delta, 64)
            assert found.upper - 50 <= Fraction(1, 10**15)
            if real(delta) < top:
                exact = 50 + mpmath.log1p(-real(delta) / top)
                assert close(found, exact, relative="1e-300")
    assert enclose_delta(pair, Fraction(50), 64) == Enclosure.exactly(0)
    assert enclose_delta(pair, Fraction(4999, 100), 64).lower > 0


def test_tiny_noise_and_huge_noise() -> None:
    # v = 1/10^6: S is 0 or m with mass far below e^-10^5; epsilon sits just below a lattice loss.
    tiny = enclose_epsilon(of_gaussian("1/1000000", (1, 5)), Fraction(1, 10**6), 64)
    assert Fraction(2_499_999) < tiny.lower <= tiny.upper < 2_500_000
    # v = 2^80 with steps to match is a real Gaussian with mu^2 = 100/2^8.
    huge = enclose_epsilon(of_gaussian(str(2**80), (2**36, 100)), Fraction(1, 10**6), 64)
    with mpmath.workdps(60):
        mu = mpmath.sqrt(mpmath.mpf(100) / 2**8)
        epsilon = real(Fraction(huge.lower))
        delta = mpmath.ncdf(mu / 2 - epsilon / mu)
        delta -= mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
        assert abs(delta * 10**6 - 1) < mpmath.mpf(10) ** -8


def test_too_many_frequencies_are_refused() -> None:
    pair = of_gaussian("100", (10**7, 1), (1, 1))
    with pytest.raises(NotDerived, match="frequencies"):
        enclose_epsilon(pair, Fraction(1, 10**6), 64)
    assert pair.zcdp() == Fraction(10**14 + 1, 200)


@pytest.mark.parametrize("points", [1, 2, 7, 64, 101])
@pytest.mark.parametrize("limits", [((1, 3),), ((3, 2),), ((3, 5), (2, 9)), ((10, 3), (1, 20))])
def test_kept_frequencies_are_those_no_limit_excludes(
    points: int, limits: tuple[tuple[int, int], ...]
) -> None:
    spans = [(0, points // 2)]
    for step, wide in limits:
        if 2 * wide + 1 < points:
            spans = lattice._cut(PAIRS[0], spans, step, wide, points)
    kept = [j for first, last in spans for j in range(first, last + 1)]
    assert kept == [
        j
        for j in range(points // 2 + 1)
        if all(
            2 * wide + 1 >= points or min(step * j % points, -step * j % points) <= wide
            for step, wide in limits
        )
    ]


# -- tests of products -------------------------------------------------------------------------


def test_tradeoff_of_many_rounds_is_below_the_curve() -> None:
    # By duality f(alpha) >= 1 - delta(epsilon) - e^epsilon alpha, with equality at one epsilon.
    pair = of_gaussian("400", (1, 1000))
    for alpha in (Fraction(1, 20), Fraction(1, 10**6), Fraction(9, 10)):
        with precision(128):
            found = Enclosure.of(pair.tradeoff(alpha))
            slopes = [Fraction(k, 8) for k in range(80)]
            best = max(
                Enclosure.of(1 - pair.delta(e) - ball(e).exp() * ball(alpha)).lower for e in slopes
            )
        assert best <= found.upper
        with mpmath.workdps(30):
            # A real Gaussian with mu^2 = 1000/400, to the fineness of the lattice.
            mu = mpmath.sqrt(mpmath.mpf(5) / 2)
            z = mpmath.sqrt(2) * mpmath.erfinv(2 * (1 - real(alpha)) - 1)
            near = mpmath.ncdf(z - mu)
            assert abs(real(Fraction(found.lower)) / near - 1) < mpmath.mpf("0.001")
