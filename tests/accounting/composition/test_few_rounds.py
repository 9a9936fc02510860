r"""Tests of totals with few rounds or wide noise: quadrature, enumeration and dp-accounting."""

from __future__ import annotations

import math
import time
from fractions import Fraction
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import ive, ndtr
from scipy.stats import nbinom

from accounting.composition.compose import compose
from accounting.descriptions.real_noise import Gaussian
from accounting.guarantees.bound import Bound
from accounting.law_pairs.registry import maximal, pair_of
from accounting.pld.discretise_round import Sampled
from accounting.pld.integer_cells import IntegerPair
from accounting.pld_composition.cell_refinement import TabledLoss
from accounting.privacy_curves.dominating_pairs import ComposedLoss, DominatingPairs, over_totals
from accounting.privacy_curves.real_noise_curve import RealCurve
from accounting.privacy_curves.release_curve import PrivacyCurve
from dpcore import DiscreteGaussian, PolyaDifference, Relation, Scope, Sensitivity, Skellam
from dpcore.numbers.enclosure import Enclosure
from tests.day_and_nightly import by_day
from tests.support.accounting import subsampled_releases as releases
from tests.support.accounting.bound_ends import ends
from tests.support.accounting.release_lists import curve, sampled

Floats: TypeAlias = npt.NDArray[np.float64]

NEAR = Fraction(1, 10**6)
POINTS = 400_001
SECONDS = 30


def sample(sigma: str, rate: str, members: int = 1) -> Any:
    scope = Scope(relation=Relation.ADD_REMOVE)
    curve = RealCurve(noise=Gaussian(sigma=sigma), sensitivity=1, scope=scope)
    if members == 1:
        return releases.poisson(curve=curve, rate=rate)
    return releases.poisson(curve=curve, rate=rate, members=members)


def removed(sigma: str, rate: str, delta: Fraction, rounds: int = 2) -> Enclosure:
    """Return epsilon for removing one unit, at the default width."""
    pair = sample(sigma, rate).directions[0][0][1]
    low, high = (
        ComposedLoss.of([(TabledLoss.of(pair, above=above), rounds)]).epsilon(delta, NEAR)
        for above in (False, True)
    )
    return Enclosure(low.lower, high.upper)


def two_rounds(sigma: str, rate: str, epsilon: Fraction) -> float:
    r"""delta of two rounds: the integral of p(x) h(epsilon - l(x)).

    p and l are the density and the loss of one round, and h is its closed-form curve.
    """
    s, r = float(Fraction(sigma)), float(Fraction(rate))

    def above(x: Floats) -> Floats:
        found: Floats = ndtr(-x / s)
        return found

    x = np.linspace(-9 * s, 1 + 14 * s, POINTS)
    rest = float(epsilon) - np.log1p(r * np.expm1((2 * x - 1) / (2 * s * s)))
    excess = np.expm1(rest) / r + 1
    reached = excess > 0
    at = s * s * np.log(np.where(reached, excess, 1.0)) + 0.5
    curve = (1 - r) * above(at) + r * above(at - 1) - np.exp(rest) * above(at)
    curve = np.where(reached, curve, -np.expm1(rest))
    bells = (1 - r) * np.exp(-((x / s) ** 2) / 2) + r * np.exp(-(((x - 1) / s) ** 2) / 2)
    return float((bells * curve).sum() * (x[1] - x[0])) / (s * math.sqrt(math.tau))


@by_day(1)
@pytest.mark.parametrize(
    ("sigma", "rate", "exponent"), [("2", "1/400", 7), ("4/5", "1/300", 10), ("9/2", "1/3000", 9)]
)
def test_two_rounds_agree_with_quadrature(sigma: str, rate: str, exponent: int) -> None:
    goal = Fraction(1, 10**exponent)
    found = removed(sigma, rate, goal)
    assert isinstance(found.lower, Fraction)
    assert isinstance(found.upper, Fraction)
    assert found.upper - found.lower <= 2 * NEAR * found.upper
    assert two_rounds(sigma, rate, found.upper) <= float(goal)
    assert two_rounds(sigma, rate, found.lower) >= float(goal)
    # The interval of a slightly larger rate is disjoint.
    other = removed(sigma, str(Fraction(rate) * Fraction(100002, 100000)), goal)
    assert other.lower > found.upper


@by_day(2)
@pytest.mark.parametrize(
    ("sigma", "rate", "members", "rounds", "exponent", "about"),
    [
        ("752/379", "2/809", 1, 9, 7, 0.0228102),
        ("2153/977", "4/803", 2, 6, 8, 0.0911801),
        ("1180/1997", "206/940809", 3, 60, 12, 7.29395),
        ("6917/1556", "130/422537", 1, 14, 10, 0.00141256),
        ("4", "1/100", 1, 1000, 100, 1.84374),
    ],
)
def test_few_rounds_have_narrow_bounds_quickly(
    sigma: str, rate: str, members: int, rounds: int, exponent: int, about: float
) -> None:
    start = time.process_time()
    found = ends(compose((sample(sigma, rate, members), rounds)).epsilon(Fraction(1, 10**exponent)))
    assert found.upper - found.lower <= 3 * NEAR * found.upper
    assert found.upper_float == pytest.approx(about, rel=1e-5)
    assert time.process_time() - start < SECONDS


def test_a_unit_sampled_less_often_than_delta_costs_nothing() -> None:
    assert removed("1", "1/1000000000", Fraction(1, 10**6), 100) == Enclosure(0, 0)


SCOPE = Scope(relation=Relation.ADD_REMOVE)
AT = Fraction(1, 10**6)


def wide(sigma: int, shift: int, rate: str) -> Any:
    noise = DiscreteGaussian(sigma_squared=sigma**2)
    return releases.poisson(
        curve=PrivacyCurve(noise=noise, sensitivity=shift, scope=SCOPE), rate=rate
    )


def listed(source: Any, rounds: int, relative: Fraction) -> Bound:
    """Enumerate the outcomes of every round, each with its mass."""
    assert isinstance(source.curve, PrivacyCurve)
    ((((step, _),),)) = maximal(Sensitivity.of(source.curve.sensitivity))
    base = IntegerPair(pair=pair_of(source.curve.noise, step))
    tables = (
        Sampled(base=base, rate=Fraction(source.rate), present=present) for present in (True, False)
    )
    each = DominatingPairs.tabled(*(((Fraction(1), table),) for table in tables))
    return over_totals([(each, rounds)], lambda total, near: total.epsilon(AT, near), relative)


@pytest.mark.parametrize(
    ("sigma", "shift", "rate", "rounds"),
    [
        (200, 200, "1/20", 300),
        pytest.param(1000, 1000, "1/100", 60, marks=pytest.mark.nightly),
        pytest.param(1000, 1000, "1/100", 1000, marks=pytest.mark.nightly),
    ],
)
def test_few_rounds_agree_with_the_enumeration_of_outcomes(
    sigma: int, shift: int, rate: str, rounds: int
) -> None:
    source, near = wide(sigma, shift, rate), Fraction(1, 10**5)
    assert source.directions
    found, truth = (
        ends(compose((source, rounds)).epsilon(AT, near)),
        ends(listed(source, rounds, near)),
    )
    assert max(found.lower, truth.lower) <= min(found.upper, truth.upper)
    assert found.upper - found.lower <= 4 * near * found.upper
    # The interval of a sigma that differs by 1e-4 is disjoint.
    other = RealCurve(noise=Gaussian(sigma="1.0001"), sensitivity=1, scope=SCOPE)
    less = compose((releases.poisson(curve=other, rate=rate), rounds)).epsilon(AT, near)
    assert less.upper < found.lower


@pytest.mark.parametrize("shift", [1000, 5000])
def test_wide_integer_noise_has_bounds_as_narrow_as_real_noise(shift: int) -> None:
    """sigma = 5000: under a shift of 1000 there are too many outcomes to list."""
    rate, rounds, near = "1/100", 2000, Fraction(1, 10**6)
    found = ends(compose((wide(5000, shift, rate), rounds)).epsilon(AT))
    real = RealCurve(noise=Gaussian(sigma=Fraction(5000, shift)), sensitivity=1, scope=SCOPE)
    beside = ends(compose((releases.poisson(curve=real, rate=rate), rounds)).epsilon(AT))
    assert found.upper - found.lower <= 2 * near * found.upper
    # The exact values differ by at most 1e-12, so both intervals contain both up to that.
    assert max(found.lower, beside.lower) <= min(found.upper, beside.upper)


def test_few_rounds_lie_between_two_estimates_of_dp_accounting() -> None:
    pld = import_module("dp_accounting.pld.privacy_loss_distribution")
    low, high = (
        pld.from_discrete_gaussian_mechanism(
            250, sensitivity=250, sampling_prob=0.05, pessimistic_estimate=above
        )
        .self_compose(30)
        .get_delta_for_epsilon(1.0)
        for above in (False, True)
    )
    found = ends(compose((wide(250, 250, "1/20"), 30)).delta(1, Fraction(1, 10**4)))
    assert low <= found.lower <= found.upper <= high
    more = ends(compose((wide(250, 250, "0.051"), 30)).delta(1, Fraction(1, 10**4)))
    assert more.lower > high


def test_two_engines_agree_on_few_rounds() -> None:
    """Two rounds at sigma 50, where single integers matter, cost less than real-valued noise."""
    source = wide(50, 12, "1/2")
    found, truth = (
        ends(compose((source, 2)).epsilon(AT)),
        ends(listed(source, 2, Fraction(1, 10**7))),
    )
    assert found.lower <= truth.lower <= truth.upper <= found.upper
    assert found.upper - found.lower < Fraction(1, 10**4) * found.upper
    real = RealCurve(noise=Gaussian(sigma=Fraction(50, 12)), sensitivity=1, scope=SCOPE)
    beside = ends(compose((releases.poisson(curve=real, rate="1/2"), 2)).epsilon(AT, "1e-7"))
    assert beside.lower > truth.upper


def test_rare_outcomes_with_the_largest_losses_are_counted() -> None:
    """The loss is 0.28 at 0 and below 0.02 elsewhere: two zeros in 20 rounds exceed 1/2."""
    rounds, step = 20, 1e-4
    found = compose((curve(PolyaDifference(shape="1/2", scale=400)), rounds)).delta("1/2")
    one = nbinom.pmf(np.arange(10_000), 0.5, -np.expm1(-1 / 400))
    p = np.convolve(one, one[::-1])
    loss, p = np.log(p[1:] / p[:-1]), p[1:]
    sums = []
    for places in (np.floor(loss / step).astype(int), np.ceil(loss / step).astype(int)):
        law = np.bincount(places - places.min(), p)
        total = np.fft.irfft(np.fft.rfft(law, 1 << 18) ** rounds, 1 << 18)
        at = (np.arange(1 << 18) + rounds * places.min()) * step
        sums.append(float(-np.expm1(np.minimum(0.5 - at, 0)) @ total))
    assert found.lower is not None
    assert sums[0] < found.lower
    assert found.upper < sums[1] < 1.03 * sums[0]
    assert found.upper - found.lower < Fraction(1, 10**6) * found.upper


@by_day(1)
@pytest.mark.parametrize("relative", ["1e-7", "1e-6", "1e-8"])
def test_a_tiny_delta_has_narrow_bounds_at_every_requested_width(relative: str) -> None:
    # Enumeration first counts a mass as infinite that is six million times this delta.
    p = np.array([ive(abs(k), 200.0) for k in range(-300, 301)])
    q = np.array([ive(abs(k + 1), 200.0) for k in range(-300, 301)])
    truth = float(np.maximum(np.outer(p, p) - math.e * np.outer(q, q), 0).sum())
    found = ends(compose((curve(Skellam(variance=200)), 2)).delta(1, relative))
    assert found.lower <= truth * (1 + 1e-9)
    assert truth * (1 - 1e-9) <= found.upper <= truth * (1 + 1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("rounds", [5, 6, 8])
def test_a_few_samples_of_narrow_noise_have_two_narrow_bounds(rounds: int) -> None:
    """All outcomes of a mass above 1e-29 are enumerated in floats."""
    noise = DiscreteGaussian(sigma_squared="1.44")
    found = ends(compose((sampled(noise, "1/5000"), rounds)).epsilon("1e-17"))
    assert found.width <= Fraction(1, 10**5) * found.upper
    k = np.arange(-13, 15)
    q = np.exp(-(k**2) / 2.88)
    ratio = 1 + np.expm1((2 * k - 1) / 2.88) / 5000
    p, loss = q / q.sum() * ratio, np.log(ratio)
    masses, losses = np.array([1.0]), np.array([0.0])
    for _ in range(rounds):
        masses, losses = np.outer(masses, p).ravel(), np.add.outer(losses, loss).ravel()
        kept = np.flatnonzero(masses > 1e-29)
        kept = kept[np.argsort(losses[kept])]
        masses, losses = masses[kept], losses[kept]
        starts = np.flatnonzero(np.diff(losses, prepend=-1.0) > 1e-13)
        masses, losses = np.add.reduceat(masses, starts), losses[starts]
    above, below = (
        float(masses @ np.maximum(-np.expm1(float(end) - losses), 0))
        for end in (found.lower, found.upper)
    )
    assert below <= 1e-17 * (1 + 1e-6)
    assert above >= 1e-17 * (1 - 1e-6)


@by_day(1)
@pytest.mark.parametrize(("step", "size"), [(8e-7, 1 << 21), (2e-7, 1 << 23)])
def test_many_samples_of_narrow_noise_have_two_narrow_bounds(step: float, size: int) -> None:
    """Losses of a round are rounded down and up to a grid, and added by FFT."""
    rounds = 365
    found = ends(
        compose((sampled(DiscreteGaussian(sigma_squared=1), "1/5000"), rounds)).epsilon("1e-10")
    )
    assert found.width <= Fraction(1, 10**5) * found.upper
    k = np.arange(-9, 11)
    q = np.exp(-(k**2) / 2)
    ratio = 1 + np.expm1((2 * k - 1) / 2) / 5000
    p, loss = q / q.sum() * ratio, np.log(ratio) / step
    deltas = []
    for places, end in ((np.floor(loss), found.upper), (np.ceil(loss), found.lower)):
        first = int(places.min())
        law = np.bincount(places.astype(int) - first, p, size)
        total = np.fft.irfft(np.fft.rfft(law) ** rounds, size)
        at = (np.arange(size) + rounds * first) * step
        deltas.append(float(-np.expm1(np.minimum(float(end) - at, 0)) @ total))
    assert deltas[0] <= 1e-10 * (1 + 1e-4)
    assert deltas[1] >= 1e-10 * (1 - 1e-4)
