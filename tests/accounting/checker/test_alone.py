"""One round along the second path: the sum beyond a place, and the series of discrete Laplace."""

from __future__ import annotations

import time
from fractions import Fraction
from typing import Any

import pytest

from accounting.certificates.certificate import certify
from accounting.checker import alone, estimate
from accounting.checker.alone import deltas_of_one, knows
from accounting.checker.laws import masses as laws
from accounting.checker.laws.law import Law, Unchecked
from accounting.checker.laws.losses import losses_of
from accounting.checker.laws.masses import REAL, masses, real
from accounting.checker.sums.direct import halves
from accounting.checker.verdict import verify
from accounting.release.curve import PrivacyCurve
from dpcore.spelling import read_noise
from tests.effort import by_day
from tests.support.dpcore.mutants import mutated

CASES = (
    ("discrete-laplace:scale=20", 1),
    ("discrete-laplace:scale=20", 40),
    ("discrete-laplace:scale=7/3", 9),
    ("discrete-laplace:scale=1/5", 2),
    ("discrete-gaussian:sigma_squared=400", 1),
    ("discrete-gaussian:sigma_squared=1/10", 1),
    ("discrete-gaussian-sum:count=3,sigma_squared=1/5", 1),
    ("discrete-gaussian-sum:count=200,sigma_squared=40", 50),
    ("skellam:variance=400", 3),
    ("skellam:variance=1/3", 5),
)
EPSILONS = tuple(map(Fraction, ("0", "1/50", "1/3", "1", "39/20", "5")))


def law_of(text: str) -> Law:
    noise = read_noise(text)
    return Law(noise.name, tuple(Fraction(str(value)) for value in noise.parameters.values()))


@by_day(4)
@pytest.mark.parametrize(("text", "step"), CASES)
def test_it_is_the_sum_over_all_losses(text: str, step: int) -> None:
    law = law_of(text)
    split = halves([(losses_of(law, step, 90.0), 1)])
    assert split is not None
    for epsilon, found in zip(EPSILONS, deltas_of_one(law, step, EPSILONS, 90.0), strict=True):
        truth = split.payoff(real(epsilon)).value
        assert abs(found.value - truth) <= found.error + REAL.mpf(10) ** -38, epsilon


@by_day(4)
@pytest.mark.parametrize(("text", "step"), CASES)
def test_it_lies_in_the_enclosure_of_the_engine(text: str, step: int) -> None:
    curve = PrivacyCurve(noise=read_noise(text), sensitivity=step)
    for epsilon, found in zip(
        EPSILONS, deltas_of_one(law_of(text), step, EPSILONS, 90.0), strict=True
    ):
        held = curve.enclose_delta(epsilon)
        low, high = real(Fraction(held.lower)), real(Fraction(held.upper))
        assert low - found.error <= found.value <= high + found.error, epsilon


def test_discrete_laplace_of_any_size_is_a_closed_form() -> None:
    start = time.process_time()
    law = Law("discrete-laplace", (Fraction(2 * 10**9),))
    (beyond, found) = deltas_of_one(law, 10**9, [Fraction(1, 2), Fraction(499, 1000)], 50.0)
    assert beyond.value == beyond.error == 0
    # The law on the reals: 1 - e^((epsilon - 1/2)/2), up to a relative 10^-8.
    truth = -REAL.expm1(-REAL.mpf(1) / 2000)
    assert abs(found.value / truth - 1) < REAL.mpf(10) ** -5
    assert time.process_time() - start < 1


def test_laws_that_are_wide_are_checked_in_time_and_wider_ones_declined() -> None:
    curve = PrivacyCurve(noise=read_noise("skellam:variance=4000000"), sensitivity=1000)
    text = certify(curve, deltas=["1e-6"]).text()
    estimate.checked.cache_clear()
    start = time.process_time()
    assert verify(text).holds
    assert time.process_time() - start < 5
    with pytest.raises(Unchecked, match="values matter"):
        deltas_of_one(law_of("skellam:variance=1000000000000"), 1, [Fraction(1)], 50.0)


def test_only_log_concave_symmetric_laws_are_known() -> None:
    for text in (
        "polya-difference:shape=1/2,scale=9",
        "poisson:mean=5",
        "binomial:trials=9,probability=1/2",
    ):
        assert not knows(law_of(text))


# -- sums of discrete Gaussians -----------------------------------------------------------------


def test_a_sum_of_many_wide_gaussians_is_one_gaussian() -> None:
    one, sum_of = law_of("discrete-gaussian:sigma_squared=1024"), (Fraction(64), Fraction(16))
    assert laws._one_gaussian(64, 16.0, 300)
    plain = rewired_sum(300, *sum_of)
    for short, long in zip(masses(one, 0, 300), plain, strict=True):
        assert abs(short / long - 1) < REAL.mpf(10) ** -40


def rewired_sum(most: int, count: Fraction, sigma_squared: Fraction) -> Any:
    """By the Fourier sum, whatever the law is near to."""
    slow = mutated(laws._gaussian_sum, "if _one_gaussian(", "if False and _one_gaussian(")
    return slow(most, count, sigma_squared)


@pytest.mark.parametrize(
    ("n", "v", "most"), [(63, 16.0, 10), (64, 15.9, 10), (64, 16.0, 700), (10**80, 16.0, 10)]
)
def test_a_sum_that_has_a_ripple_is_not_taken_for_one(n: int, v: float, most: int) -> None:
    assert not laws._one_gaussian(n, v, most)


def test_a_ripple_shows() -> None:
    rippled = masses(law_of("discrete-gaussian-sum:count=100,sigma_squared=1/10"), 0, 0)[0]
    plain = masses(law_of("discrete-gaussian:sigma_squared=10"), 0, 0)[0]
    assert abs(rippled / plain - 1) > REAL.mpf(10) ** -3


# -- formulas that are broken --------------------------------------------------------------------

MUTANTS = [
    ("_laplace", "/ 2) - 1", "/ 2)", "discrete-laplace:scale=20", 40),
    ("_laplace", "(1 + beta)", "(1 - beta)", "discrete-laplace:scale=20", 40),
    ("_laplace", "edge + here - there) /", "here - there) /", "discrete-laplace:scale=20", 40),
    ("_beyond", "> factor * around", "> around", "skellam:variance=400", 3),
    ("_beyond", "beyond[first + step]", "beyond[first]", "skellam:variance=400", 3),
    ("_beyond", "beyond[first] - beyond[last]", "beyond[last]", "skellam:variance=400", 3),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=[f"{m[0]}-{i}" for i, m in enumerate(MUTANTS)])
def test_a_broken_formula_disagrees(
    mutant: tuple[str, str, str, str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, old, new, noise, step = mutant
    text = certify(PrivacyCurve(noise=read_noise(noise), sensitivity=step), deltas=["1e-3"]).text()
    monkeypatch.setattr(alone, name, mutated(getattr(alone, name), old, new))
    estimate.checked.cache_clear()
    try:
        assert not verify(text).holds
    finally:
        estimate.checked.cache_clear()
