r"""Few rounds at a small rate and a small delta: rare large losses and the sum of all others.

The total of two rounds is one integral over the output of the first, of the curve of the second.
"""

from __future__ import annotations

import math
import time
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import ndtr

from accounting.claims.bound import Bound
from accounting.composition.compose import compose
from accounting.descriptions.real_noise import Gaussian
from accounting.fourier.real_loss import TabledLoss
from accounting.release.composed_loss import ComposedLoss
from accounting.release.real_curve import RealCurve
from dpcore import Relation, Scope
from dpcore.numbers.enclosure import Enclosure
from tests.effort import by_day
from tests.support.accounting import samples
from tests.support.accounting.amounts import ends

Floats: TypeAlias = npt.NDArray[np.float64]

NEAR = Fraction(1, 10**6)
POINTS = 400_001
SECONDS = 30


def sample(sigma: str, rate: str, members: int = 1) -> Any:
    scope = Scope(relation=Relation.ADD_REMOVE)
    curve = RealCurve(noise=Gaussian(sigma=sigma), sensitivity=1, scope=scope)
    if members == 1:
        return samples.poisson(curve=curve, rate=rate)
    return samples.poisson(curve=curve, rate=rate, members=members)


def removed(sigma: str, rate: str, delta: Fraction, rounds: int = 2) -> Enclosure:
    """epsilon of a unit that is removed, at the default width."""
    pair = sample(sigma, rate).directions[0][0][1]
    low, high = (
        ComposedLoss.of([(TabledLoss(kinds=((Fraction(1), pair),), above=above), rounds)]).epsilon(
            delta, NEAR
        )
        for above in (False, True)
    )
    return Enclosure(low.lower, high.upper)


def two_rounds(sigma: str, rate: str, epsilon: Fraction) -> float:
    r"""int p(x) h(epsilon - l(x)) dx, h the curve of one round in closed form."""
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


@by_day(2)
@pytest.mark.parametrize(
    ("sigma", "rate", "exponent"), [("2", "1/400", 7), ("4/5", "1/300", 10), ("9/2", "1/3000", 9)]
)
def test_two_rounds_beside_quadrature(sigma: str, rate: str, exponent: int) -> None:
    goal = Fraction(1, 10**exponent)
    found = removed(sigma, rate, goal)
    assert isinstance(found.lower, Fraction)
    assert isinstance(found.upper, Fraction)
    assert found.upper - found.lower <= 2 * NEAR * found.upper
    assert two_rounds(sigma, rate, found.upper) <= float(goal)
    assert two_rounds(sigma, rate, found.lower) >= float(goal)
    # A slightly larger rate has no part of that interval.
    other = removed(sigma, str(Fraction(rate) * Fraction(100002, 100000)), goal)
    assert other.lower > found.upper


@by_day(3)
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
def test_they_are_narrow_and_quick(
    sigma: str, rate: str, members: int, rounds: int, exponent: int, about: float
) -> None:
    start = time.process_time()
    found = ends(compose((sample(sigma, rate, members), rounds)).epsilon(Fraction(1, 10**exponent)))
    assert found.upper - found.lower <= 3 * NEAR * found.upper
    assert found.upper_float == pytest.approx(about, rel=1e-5)
    assert time.process_time() - start < SECONDS


def test_a_curve_and_its_inverse_agree() -> None:
    rounds: tuple[Any, int] = (sample("752/379", "1/50"), 9)
    goal = Fraction(1, 10**5)
    found: Bound = compose(rounds).epsilon(goal)
    assert found.lower is not None
    back = ends(compose(rounds).delta(found.upper))
    assert back.lower <= goal
    assert compose(rounds).delta(found.lower).upper >= goal
    assert back.upper - back.lower <= 2 * NEAR * back.upper


def test_what_is_sampled_less_often_than_delta_costs_nothing() -> None:
    assert removed("1", "1/1000000000", Fraction(1, 10**6), 100) == Enclosure(0, 0)
