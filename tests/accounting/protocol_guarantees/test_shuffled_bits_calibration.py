r"""Fewest bits: the numbers of the papers against the exact ones, and both sides of each answer.

The second path sums binomial coefficients as integers; e^epsilon is held between two rationals.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import comb
from typing import Any

import mpmath
import pytest

from accounting.protocol_guarantees.paper_parameters import tkms_bits
from accounting.protocol_guarantees.shuffled_bits_calibration import fewest_bits, least_probability
from accounting.protocol_guarantees.shuffled_bits_guarantee import BinomialBox
from accounting.theorems.real_gaussian import real_gaussian_ratio
from dpcore.errors import InvalidParameter
from tests.accounting.protocol_guarantees.test_product_curve import worst
from tests.support.dpcore.mutants import mutated


def exp_bounds(epsilon: Fraction, terms: int = 60) -> tuple[Fraction, Fraction]:
    r"""The Taylor sum of e^epsilon, 0 <= epsilon < 30, and its remainder by a geometric series."""
    total, term = Fraction(0), Fraction(1)
    for n in range(1, terms):
        total, term = total + term, term * epsilon / n
    return total, total + 2 * term


def fair_delta(bits: int, shift: int, epsilon: Fraction) -> tuple[Fraction, Fraction]:
    r"""max over rays of P(X < t) - e^epsilon P(X < t - d), between two rationals: every ray."""
    low, high = exp_bounds(epsilon)
    counts, total = [0], 0
    for x in range(bits + 1):
        total += comb(bits, x)
        counts.append(total)
    best = [Fraction(0), Fraction(0)]
    for t in range(bits + 2):
        a, b = counts[t], counts[max(t - shift, 0)]
        best = [max(best[0], a - high * b), max(best[1], a - low * b)]
    return best[0] / 2**bits, best[1] / 2**bits


@pytest.mark.parametrize(("epsilon", "bits", "printed"), [("0.5", 268, 5572)])
def test_fewest_fair_bits(epsilon: str, bits: int, printed: int) -> None:
    found = fewest_bits(epsilon=epsilon, delta="1e-6")
    assert found.bits == bits
    assert tkms_bits(1, epsilon, "1e-6").trials == printed
    assert fair_delta(bits, 1, Fraction(epsilon))[1] <= Fraction(1, 10**6)
    assert fair_delta(bits - 1, 1, Fraction(epsilon))[0] > Fraction(1, 10**6)
    assert found.short is not None
    assert not found.short.meets(epsilon, "1e-6")


def test_longer_shifts() -> None:
    found = fewest_bits(epsilon=1, delta="1e-3", bounds=(3,))
    assert fair_delta(found.bits, 3, Fraction(1))[1] <= Fraction(1, 1000)
    assert fair_delta(found.bits - 1, 3, Fraction(1))[0] > Fraction(1, 1000)


def agrees(calibrate: Callable[..., Any]) -> bool:
    for p, bounds, epsilon, delta in (
        ("1/2", (1, 1), "1", "1/10"),
        ("1/2", (2, 1), "2", "1/10"),
        ("1/4", (1, 1), "1", "1/8"),
    ):
        found = calibrate(epsilon=epsilon, delta=delta, bounds=bounds, probability=p)
        least = next(
            b
            for b in range(1, 60)
            if worst(b, Fraction(p), bounds, Fraction(epsilon)) <= mpmath.mpf(eval(delta))  # noqa: S307 - a literal above
        )
        if found.bits != least:
            return False
    return True


def test_fewest_bits_of_a_vector() -> None:
    assert agrees(fewest_bits)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("enough=box(bits)", "enough=box(bits + n)"),
        ("box(b).meets(e, d)", "box(b).meets(e, 2 * d)"),
        ("bounds=bounds, probability=p", "bounds=bounds[:1], probability=p"),
    ],
)
def test_a_broken_calibration_is_caught(old: str, new: str) -> None:
    assert not agrees(mutated(fewest_bits, old, new))


def test_twenty_coordinates() -> None:
    found = fewest_bits(epsilon=1, delta="1e-6", bounds=(1,) * 20)
    assert found.short is not None
    met, missed = found.enough.enclose_delta(1, "1e-2"), found.short.enclose_delta(1, "1e-2")
    assert met.lower < Fraction(1, 10**6) < missed.upper
    # b/4 is near the variance of the real Gaussian noise with the same distance in l2.
    ratio = real_gaussian_ratio(1, "1e-6").upper_float
    assert abs(found.bits / (4 * 20 * ratio**2) - 1) < 0.01


def test_delta_need_not_fall_in_the_probability() -> None:
    # Three bits: at epsilon = 0, 1/4 hides more than 21/80. No search may assume otherwise.
    quarter, more = (
        BinomialBox(trials=3, bounds=(1,), probability=p).enclose_delta(0) for p in ("1/4", "21/80")
    )
    assert quarter.upper < more.lower


def test_least_probability_is_certified_on_both_sides() -> None:
    found = least_probability(trials=400, epsilon="1/2", delta="1e-3", grid=256)
    step = Fraction(1, 256)
    for p, enough in ((found.probability, True), (found.probability - step, False)):
        truth = worst(400, p, (1,), Fraction(1, 2)) if p else 1
        assert (truth <= mpmath.mpf("1e-3")) == enough
    assert found.short is not None
    assert found.short.probability == found.probability - step


def test_impossible_targets_are_refused() -> None:
    for bad in (
        {"epsilon": 0, "delta": "1e-6"},
        {"epsilon": 1, "delta": 0},
        {"epsilon": 1, "delta": 1},
    ):
        with pytest.raises(InvalidParameter):
            fewest_bits(**bad)
    with pytest.raises(InvalidParameter, match="trials"):
        least_probability(trials=100, epsilon="1/2", delta="1e-6")
    with pytest.raises(InvalidParameter, match="grid"):
        least_probability(trials=1000, epsilon="1/2", delta="1e-6", grid=255)
