r"""Tests of shuffled bits: binomial bounds by enumeration, and the smallest number of bits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cache, partial
from typing import Any

import mpmath
import pytest

from accounting.errors import NotDerived
from accounting.guarantees.bound import Bound
from accounting.privacy_curves.release_curve import PrivacyCurve
from accounting.protocol_guarantees.paper_parameters import tkms_bits
from accounting.protocol_guarantees.shuffled_bits_guarantee import (
    BinomialBox,
    fewest_bits,
    least_probability,
)
from accounting.published_noise_bounds import real_gaussian_ratio
from dpcore.errors import PrecisionExhausted
from tests.support.accounting.bound_ends import ends
from tests.support.accounting.brute_force import (
    binomial,
    close,
    hockey_stick,
    product,
    real,
    shifted,
)
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refusal

DIGITS = 50


def of_shift(trials: int, p: Fraction, shift: Iterable[int], epsilon: Fraction) -> Any:
    with mpmath.workdps(DIGITS):
        law = binomial(trials, p)
        return hockey_stick(product(shifted(law, step) for step in shift), epsilon)


@cache
def worst(trials: int, p: Fraction, bounds: tuple[int, ...], epsilon: Fraction) -> Any:
    shifts = itertools.product(*(range(-bound, bound + 1) for bound in bounds))
    return max(of_shift(trials, p, shift, epsilon) for shift in shifts)


holds = partial(close, room="1e-42")


@pytest.mark.parametrize(
    ("trials", "p", "bounds"),
    [
        *((n, "1/2", (1, 1)) for n in (1, 5)),
        *((4, "1/2", (2, 1)), (3, "1/2", (1, 1, 1)), (4, "1/4", (1, 1)), (3, "2/5", (1, 2))),
        *((2, "9/10", (1, 1)), (3, "1/2", (4, 1)), (1, "1/2", (1,)), (3, "1/2", (5,))),
        *((20, "1/2", (1,)), (20, "1/2", (3,)), (15, "1/5", (2,)), (9, "7/8", (1,))),
    ],
)
def test_every_shift_of_a_small_box_agrees_with_enumeration(
    trials: int, p: str, bounds: tuple[int, ...]
) -> None:
    law = BinomialBox(trials=trials, probability=p, bounds=bounds)
    exact = len(bounds) == 1
    for epsilon in ("0", "1/10", "1", "5/2", "7") if exact else ("0", "2/5", "1", "3"):
        found = law.enclose_delta(epsilon, 100)
        assert holds(found, worst(trials, Fraction(p), bounds, Fraction(epsilon)))
        assert not exact or found.width <= Fraction(1, 10**30)


def test_several_coordinates_have_the_requested_width() -> None:
    law = BinomialBox(trials=20, bounds=(2, 2, 2))
    truth = of_shift(20, Fraction(1, 2), [2, 2, 2], Fraction(1))
    for relative in (Fraction(1, 100), Fraction(1, 10**6)):
        found = ends(law.delta(1, relative))
        assert holds(found, truth)
        assert found.upper - found.lower <= relative * Fraction(found.lower)


def test_epsilon_inverts_delta_and_ties_are_decided_exactly() -> None:
    law = BinomialBox(trials=268, bounds=(1,))
    found = ends(law.epsilon("1e-6"))
    above, below = (law.enclose_delta(end, 100) for end in (found.upper, found.lower))
    assert above.upper <= Fraction(1, 10**6) < below.lower
    assert BinomialBox(trials=4, bounds=(1,)).epsilon("1/16").upper < 10
    # P(X = 0) = 1/16 has probability 0 on the other dataset.
    assert BinomialBox(trials=4, bounds=(1,)).epsilon("1/17").upper == math.inf
    assert law.epsilon(1).upper == 0
    # delta(0) of one fair bit under shift 1 is exactly 1/2.
    law = BinomialBox(trials=1, bounds=(1,))
    assert law.meets(0, "1/2")
    assert not law.meets(0, "0.4999999999999999999999999999999999999999999")


def test_an_undecided_comparison_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    many = BinomialBox(trials=9, probability="1/3", bounds=tuple(range(1, 8)))
    refusal(lambda: many.delta(1), NotDerived)
    law = BinomialBox(trials=5000, bounds=(1, 1))
    assert "relative" in refusal(lambda: law.delta(1, relative=0))
    wide = ends(law.delta("1/5", "1/100"))
    # As if the bounds never became narrower.
    found = Bound(lower=wide.lower / 2, upper=wide.upper, method="direct", theorem="a theorem")
    monkeypatch.setattr(PrivacyCurve, "delta", lambda *_: found)
    with pytest.raises(PrecisionExhausted, match="could not be compared"):
        law.meets("1/5", wide.lower)


def test_the_least_number_of_fair_bits_is_found() -> None:
    half, delta = Fraction(1, 2), Fraction(1, 10**6)
    assert fewest_bits(epsilon=half, delta=delta) == 268
    assert tkms_bits(1, half, delta).trials == 5572
    assert worst(268, half, (1,), half) <= real(delta) < worst(267, half, (1,), half)
    assert not BinomialBox(trials=267, bounds=(1,)).meets(half, delta)


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
            if worst(b, Fraction(p), bounds, Fraction(epsilon)) <= real(delta)
        )
        if found != least:
            return False
    return True


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("b >= 1 and box(b)", "b >= 1 and box(b - 1)"),
        ("box(b).meets(e, d)", "box(b).meets(e, 2 * d)"),
        ("bounds=bounds, probability=p", "bounds=bounds[:1], probability=p"),
    ],
)
def test_a_broken_calibration_of_bits_is_detected(old: str, new: str) -> None:
    assert agrees(fewest_bits)
    assert not agrees(mutated(fewest_bits, old, new))


def test_bits_of_twenty_coordinates_are_calibrated() -> None:
    found = fewest_bits(epsilon=1, delta="1e-6", bounds=(1,) * 20)
    met, missed = (
        BinomialBox(trials=bits, bounds=(1,) * 20).enclose_delta(1, 10)
        for bits in (found, found - 1)
    )
    assert met.lower < Fraction(1, 10**6) < missed.upper
    # b/4 is near the variance of the real Gaussian noise with the same distance in l2.
    ratio = real_gaussian_ratio(1, "1e-6").upper_float
    assert abs(found / (4 * 20 * ratio**2) - 1) < 0.01


def test_the_least_probability_is_certified_on_both_sides() -> None:
    found = least_probability(trials=400, epsilon="1/2", delta="1e-3", grid=256)
    step = Fraction(1, 256)
    for p, enough in ((found, True), (found - step, False)):
        truth = worst(400, p, (1,), Fraction(1, 2)) if p else 1
        assert (truth <= mpmath.mpf("1e-3")) == enough


def test_bad_arguments_and_impossible_targets_are_refused() -> None:
    good: dict[str, Any] = {"trials": 3, "bounds": (1,)}
    for bad in (
        {"trials": 0},
        {"bounds": ()},
        {"bounds": 3},
        {"bounds": (0,)},
        {"probability": 1},
        {"probability": 0},
    ):
        refusal(partial(BinomialBox, **good | bad))
    refusal(lambda: BinomialBox(**good).meets("nan", 1))
    for target in ((0, "1e-6"), (1, 0), (1, 1)):
        refusal(partial(fewest_bits, epsilon=target[0], delta=target[1]))
    asked: dict[str, Any] = {"epsilon": "1/2", "delta": "1e-6"}
    assert "trials" in refusal(partial(least_probability, trials=100, **asked))
    assert "grid" in refusal(partial(least_probability, trials=1000, grid=255, **asked))
