r"""Tests of `size_protocol`: the least threshold, certified on both sides; wraparound."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpcore import DiscreteGaussian, DiscreteLaplace
from dpcore.laws.discrete_gaussian import DiscreteGaussianSum
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.laws.polya import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.laws.sum_of_shares import summed
from dpcore.noise import Noise
from dpcore.numbers.integer_search import least
from dpcore.protocols.noisy_sums import AggregatedSum, size_protocol
from tests.day_and_nightly import by_day
from tests.support.dpcore.mpmath_precision import digits, real
from tests.support.dpcore.mutants import mutated, rewired
from tests.support.dpcore.protocol_laws import UNIT, masses


def laplace_tail(scale: Fraction, t: int) -> Any:
    r"""P(|X| > t) = 2 b^(t+1)/(1 + b), b = e^(-1/s), by mpmath."""
    beta = mp.exp(-1 / real(scale))
    return 2 * beta ** (t + 1) / (1 + beta)


def is_least(scale: Fraction, failure: Fraction, threshold: int) -> bool:
    with digits(60):
        enough = laplace_tail(scale, threshold) <= real(failure)
        less = threshold == 0 or laplace_tail(scale, threshold - 1) > real(failure)
        return bool(enough and less)


@given(st.fractions("1/50", 5000, max_denominator=50), st.fractions("1e-30", "9/10"))
def test_the_threshold_is_the_least_by_the_closed_form(scale: Fraction, failure: Fraction) -> None:
    size = size_protocol(users=3, precision=2, noise=DiscreteLaplace(scale=scale), failure=failure)
    assert is_least(scale, failure, size.threshold)
    assert size.modulus == 6 + 2 * size.threshold + 1
    assert size.wraparound.upper <= failure
    assert size.one_less is None or size.one_less.lower > failure
    assert 2 ** (size.bits_per_user - 1) < size.modulus <= 2**size.bits_per_user


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return high", "return high + 1"),
        ("return high", "return max(high - 1, 0)"),
        ("high - low > 1", "high - low > 2"),
        ("holds(center)", "holds(center + 1)"),
    ],
)
def test_a_wrong_bisection_is_detected(old: str, new: str) -> None:
    broken = rewired(size_protocol, least=mutated(least, old, new))
    cases = [(Fraction(s), Fraction(1, d)) for s in (1, 7, 100) for d in (3, 10, 10**6, 10**20)]
    assert not all(is_least(s, p, size(broken, s, p)) for s, p in cases)
    assert all(is_least(s, p, size(size_protocol, s, p)) for s, p in cases)


def size(sized: Any, scale: Fraction, failure: Fraction) -> int:
    noise = DiscreteLaplace(scale=scale)
    threshold: int = sized(users=3, precision=2, noise=noise, failure=failure).threshold
    return threshold


@by_day(1)
@pytest.mark.parametrize(
    "noise",
    [
        Skellam(variance=7),
        DiscreteGaussianSum(count=5, sigma_squared=3),
        PolyaDifference(shape="1/2", scale=1),
        Binomial(trials=20, probability="1/3"),
    ],
    ids=repr,
)
def test_the_threshold_is_the_least_by_brute_force(noise: Noise) -> None:
    # Masses rounded down, and 2^-40 for the mass lost to rounding and beyond the range.
    found = masses(noise, 50)
    slack = Fraction(1, 1 << 40)
    for failure in (Fraction(1, 3), Fraction(1, 1000), Fraction(1, 10**6)):
        t = size_protocol(users=1, precision=1, noise=noise, failure=failure).threshold
        outside = Fraction(sum(m for k, m in found.items() if abs(k) > t), UNIT)
        wider = Fraction(sum(m for k, m in found.items() if abs(k) > t - 1), UNIT)
        assert outside <= failure < wider + slack


def test_an_exact_tie_meets_the_target_and_an_undecided_one_does_not() -> None:
    fair, third = (Binomial(trials=2, probability=p) for p in ("1/2", "1/3"))
    size = size_protocol(users=1, precision=1, noise=fair, failure="1/4")
    assert size.threshold == 1
    size = size_protocol(users=1, precision=1, noise=third, failure="1/9")
    assert size.threshold in (1, 2)
    assert size.wraparound.upper <= Fraction(1, 9)


def test_wraparound_is_bounded_for_all_data() -> None:
    noise, users, precision = Skellam(variance=2), 3, 2
    size = size_protocol(users=users, precision=precision, noise=noise, failure="1/100")
    protocol = AggregatedSum(
        users=users, precision=precision, threshold=size.threshold, share=noise.share(users)
    )
    assert protocol.modulus == size.modulus
    law = masses(noise, 60)
    chances = []
    for total in range(users * precision + 1):
        wrong = [k for k in law if protocol.unwrap((total + k) % size.modulus) != total + k]
        chances.append(Fraction(sum(law[k] for k in wrong), UNIT))
    assert 0 < max(chances) <= size.wraparound.upper
    # A threshold smaller by one is not enough for the two tails together.
    assert size.one_less is not None
    assert size.one_less.lower > Fraction(1, 100)


@by_day(1)
@pytest.mark.parametrize(
    "share",
    [
        DiscreteLaplace(scale=3).share(8),
        Skellam(variance="1/2"),
        DiscreteGaussian(sigma_squared="1/3"),
        DiscreteLaplace(scale=2),
        PolyaDifference(shape="1/3", scale=2),
    ],
    ids=repr,
)
def test_dropouts_do_not_increase_the_tail(share: Noise) -> None:
    for t in (0, 1, 2, 15):
        tails = [summed(share, honest).enclose_tail(t) for honest in range(1, 9)]
        assert all(a.upper <= b.lower for a, b in pairwise(tails))


def test_the_papers_threshold_is_larger() -> None:
    # Chowdhury and Zhou, Theorem 1: tau = ceil((g/epsilon) ln(2/p)), for g = 32, epsilon = 1 and
    # p = 1e-6.
    size = size_protocol(users=1024, precision=32, noise=DiscreteLaplace(scale=32), failure="1e-6")
    paper = 465
    assert size.threshold < paper
