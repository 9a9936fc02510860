"""Twins that must be caught: each breaks one step, and the check that the real pair passes."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest
from flint import arb

from accounting.law_pairs.gaussian import GaussianPair
from accounting.law_pairs.laplace import LaplacePair
from accounting.pairs.ball_arithmetic import as_ball
from accounting.pairs.monotone import Cell
from accounting.pairs.pair import ClosedPair
from dpcore import DiscreteGaussian, Enclosure
from dpcore.numbers.enclosure import precision
from tests.support.accounting.brute import EPSILONS, Brute, close, gaussian, laplace, shifts_up_to


def agrees(pair: ClosedPair, brute: Brute) -> bool:
    """The check that every pair must pass and every mutant below must fail."""
    for epsilon in EPSILONS:
        with precision(160):
            found = Enclosure.of(pair.delta(Fraction(epsilon)))
        truth = brute.delta(epsilon)
        if not (close(found, truth) or abs(truth) < mpmath.mpf("1e-45")):
            return False
    return True


class LateRay(GaussianPair):
    def ray(self, epsilon: Fraction) -> Cell:
        first, last = GaussianPair.ray(self, epsilon)
        return first + 1, last + 1


class EarlyRay(GaussianPair):
    def ray(self, epsilon: Fraction) -> Cell:
        first, last = GaussianPair.ray(self, epsilon)
        return first - 1, last - 1


class WrongDirection(GaussianPair):
    def tails(self, m: int) -> tuple[arb, arb]:
        gap, _ = GaussianPair.tails(self, m)
        return -gap, self.noise.sf_ball(m - self.shift - 1)


class OffByOneTail(GaussianPair):
    def tails(self, m: int) -> tuple[arb, arb]:
        return GaussianPair.tails(self, m)[0], self.noise.sf_ball(m + self.shift)


class LateLaplace(LaplacePair):
    def ray(self, epsilon: Fraction) -> Cell | None:
        cell = LaplacePair.ray(self, epsilon)
        return cell and (cell[0] + 1, cell[1] + 1)


class LooseInverse(GaussianPair):
    def bound(self, m: int, delta: Fraction) -> arb:
        return GaussianPair.bound(self, m, delta * (1 + Fraction(1, 10**12)))


class LateSlope(LaplacePair):
    def _line(self, m: int, level: arb) -> arb:
        return self.below(m) - as_ball(self.loss(m)).exp() * (level - self.tails(m)[1])


GAUSSIAN = Brute(mass=gaussian(4), shifts=shifts_up_to(3), reach=45)
LAPLACE = Brute(mass=laplace(2), shifts=shifts_up_to(3), reach=200)


@pytest.mark.parametrize("mutant", [LateRay, EarlyRay, WrongDirection, OffByOneTail])
def test_a_broken_gaussian_pair_is_caught(mutant: type[GaussianPair]) -> None:
    noise = DiscreteGaussian(sigma_squared=4)
    assert agrees(GaussianPair(noise=noise, shift=3), GAUSSIAN)
    assert not agrees(mutant(noise=noise, shift=3), GAUSSIAN)


def test_a_sensitivity_that_is_ignored_is_caught() -> None:
    noise = DiscreteGaussian(sigma_squared=4)
    assert not agrees(GaussianPair(noise=noise, shift=1), GAUSSIAN)
    assert not agrees(LaplacePair(scale=Fraction(2), shift=2), LAPLACE)


def test_a_broken_laplace_pair_is_caught() -> None:
    assert agrees(LaplacePair(scale=Fraction(2), shift=3), LAPLACE)
    assert not agrees(LateLaplace(scale=Fraction(2), shift=3), LAPLACE)
    assert not agrees(LaplacePair(scale=Fraction(201, 100), shift=3), LAPLACE)


def test_a_broken_inverse_is_caught() -> None:
    noise, delta = DiscreteGaussian(sigma_squared=4), Fraction(1, 1000)
    for kind, right in ((GaussianPair, True), (LooseInverse, False)):
        pair = kind(noise=noise, shift=3)
        with precision(128):
            found = Enclosure.of(pair.epsilon(delta, pair.guess(delta) or 0))
        at = GAUSSIAN.delta(Fraction(found.upper))
        assert (abs(at * 1000 - 1) < mpmath.mpf("1e-30")) is right


def test_a_broken_tradeoff_is_caught() -> None:
    for kind, right in ((LaplacePair, True), (LateSlope, False)):
        with precision(128):
            found = Enclosure.of(kind(scale=Fraction(2), shift=3).tradeoff(Fraction(1, 2)))
        assert close(found, LAPLACE.tradeoff("1/2"), relative="1e-20") is right
