r"""Tests of `dpcore.analysis.contour_sums`: enclosures of masses and tails, for any contour."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from flint import acb, arb
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore import Enclosure
from dpcore.analysis import contour_sums as contour
from dpcore.numbers.enclosure import ball, precision
from tests.day_and_nightly import by_day, effort
from tests.support.dpcore.exact_coin_sums import Coins
from tests.support.dpcore.mutants import mutated, rewired


def holds(found: arb, truth: Fraction) -> bool:
    r"""Whether the ball contains the fraction; a ball that is not finite is never wrong."""
    return not found.is_finite() or truth in Enclosure.of(found)


def biased(count: int, p: str, sign: int = 1) -> tuple[tuple[Fraction, int], ...]:
    return ((Fraction(p), sign),) * count


FAIR = Coins(coins=biased(24, "1/2"))
MIXED = Coins(coins=biased(9, "1/3") + biased(6, "7/8", -1) + biased(5, "1/1000"))
RARE = Coins(coins=biased(12, "1/50") + biased(12, "1/50", -1))
WIDE = Coins(coins=biased(150, "2/5") + biased(90, "3/4", -1))
LAWS = {"fair": FAIR, "mixed": MIXED, "rare": RARE, "wide": WIDE}

probabilities = st.fractions(min_value=0, max_value=1, max_denominator=1000)
coins = st.lists(st.tuples(probabilities, st.sampled_from([1, -1])), min_size=1, max_size=8)
lines = st.fractions(min_value=-6, max_value=6, max_denominator=64)
gaps = st.fractions(min_value=Fraction(1, 3), max_value=4, max_denominator=64)
bits = st.sampled_from([2, 20, 53, 100])


@settings(max_examples=effort(20, 1000))
@given(coins, st.integers(-10, 10), lines, gaps, bits)
def test_masses_and_tails_are_enclosed_for_any_contour(
    given_coins: list[Any], t: int, line: Fraction, gap: Fraction, prec: int
) -> None:
    law = Coins(coins=tuple(given_coins), lean=lambda _: line)
    mass = law.masses().get(t, Fraction(0))
    with precision(prec):
        assert holds(contour.mass(law, t), mass)
        assert holds(contour._contour(law, t, line, gap, tail=False), mass)
        if t > law.mean:
            assert holds(contour.upper_tail(law, t), law.above(t))
        if t < law.mean:
            assert holds(contour.lower_tail(law, t), 1 - law.above(t + 1))
        right = abs(line) + Fraction(1, 16)
        assert holds(contour._contour(law, t, right, min(gap, right), tail=True), law.above(t))


@settings(max_examples=effort(20, 1000))
@given(coins, st.integers(0, 12), st.sampled_from([20, 53, 100]))
def test_central_masses_are_enclosed(given_coins: list[Any], reach: int, prec: int) -> None:
    mirrored = [(p, -sign) for p, sign in given_coins]
    law = Coins(coins=(*given_coins, *mirrored))
    truth = law.masses()
    with precision(prec):
        for k, found in enumerate(contour.central_masses(law, reach)):
            assert holds(found, truth.get(k, Fraction(0)))


@by_day(1)
@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("prec", [53, 128, 400])
def test_masses_and_tails_are_tight(name: str, prec: int) -> None:
    law = LAWS[name]
    truth = law.masses()
    low, high = min(truth), max(truth)
    inner = range(low + 2, high - 1, max(1, (high - low) // 9))
    with precision(prec):
        for t in inner:
            parts = [contour.mass(law, t)]
            if t > law.mean:
                parts.append(contour.upper_tail(law, t))
            if t < law.mean:
                parts.append(contour.lower_tail(law, t))
            exact = [truth[t], law.above(t), 1 - law.above(t + 1)]
            for found in parts:
                assert any(holds(found, value) for value in exact)
                assert found.rel_accuracy_bits() > prec - 24, (t, found)
            assert holds(parts[0], truth[t])


WIDER = Coins(coins=biased(60, "1/2") + biased(60, "1/2", -1))


def test_masses_beyond_the_sum_are_enclosed() -> None:
    # With a coarse goal the sum ends inside the law, and Chernoff's bound covers the rest.
    truth, stand_ins = WIDER.masses(), {"_GUARD": -84}
    with precision(90):
        found = rewired(contour.central_masses, **stand_ins)(WIDER, 60)
        assert all(holds(one, truth.get(k, Fraction(0))) for k, one in enumerate(found))
        old = "arb(0, (growth - ball(gap) * (near + 1)).exp().upper())"
        found = mutated(contour.central_masses, old, "arb(0)", **stand_ins)(WIDER, 60)
        assert not all(holds(one, truth.get(k, Fraction(0))) for k, one in enumerate(found))


Sum = Callable[..., arb]
PLACES = {"fair": (12, 16, 20), "mixed": (-4, 0, 3), "rare": (0, 1, 3), "wide": (0, 10, 40)}


def missed(code: Sum, *, tail: bool, prec: int = 90) -> int:
    r"""Return how many fractions lie outside the balls of contour sums, on good or bad contours."""
    wrong = 0
    with precision(prec):
        for name, law in LAWS.items():
            for t in PLACES[name]:
                truth = law.above(t) if tail else law.masses()[t]
                saddle = law.tilt(t)
                for off in map(Fraction, ("1/16", "1/2", "2")):
                    line = max(saddle, Fraction(0)) + off if tail else saddle + off
                    found = code(
                        law, t, line, min(line, Fraction(1, 2)) if tail else off, tail=tail
                    )
                    wrong += not holds(found, truth)
    return wrong


# Few points: the error of the trapezoidal rule is then far above the rounding error.
COARSE: dict[str, Any] = {"_GUARD": -78}
# Few frequencies: the omitted ones are then far above the rounding error.
CUT: dict[str, Any] = {"_last_frequency": lambda need, variance, points: 2}
BOUNDS: dict[str, tuple[dict[str, Any], str, str]] = {
    "the alias is omitted": (
        COARSE,
        "real += arb(0, (alias * decay / (1 - decay) * points).upper())",
        "pass",
    ),
    "only aliases to one side": (COARSE, "_chernoff(law, c, ball(gap), t, base) +", ""),
    "the alias decays twice as fast": (COARSE, "-ball(gap) * points", "-2 * ball(gap) * points"),
    "omitted frequencies are not counted": (
        CUT,
        "total.real + _neglected(variance, turn, pole, last, points)",
        "total.real",
    ),
}


@by_day(4)
@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("tail", [False, True])
def test_a_coarse_contour_sum_includes_every_remainder(name: str, tail: bool) -> None:
    stand_ins, old, new = BOUNDS[name]
    assert missed(rewired(contour._contour, **stand_ins), tail=tail) == 0
    assert missed(mutated(contour._contour, old, new, **stand_ins), tail=tail)


def test_the_bound_on_omitted_frequencies_includes_the_pole() -> None:
    law, line = Coins(coins=biased(1, "1/100")), Fraction(1, 64)

    def falls_short(code: Sum) -> bool:
        r"""Whether the bound is smaller than the sum of the terms it stands for."""
        seen: list[tuple[arb, int]] = []

        def watched(variance: arb, turn: arb, pole: arb, last: int, points: int) -> arb:
            seen.append((contour._neglected(variance, turn, pole, last, points), points))
            return seen[-1][0]

        cut = {"_neglected": watched, "_last_frequency": lambda *_: 0}
        with precision(60):
            rewired(code, **cut)(law, 1, line, line, tail=True)
            bound, points = seen[0]
            total, c = arb(0), ball(line)
            for j in range(1, points):
                theta = 2 * arb.pi() * j / points
                term = law.tilted_characteristic(c, theta) / (1 - acb(-c, -theta).exp())
                total += abs(term)
            return not arb(bound).upper() >= total

    assert not falls_short(contour._contour)
    assert falls_short(mutated(contour._contour, "1 - (-c).exp() if tail else arb(1)", "arb(1)"))


@settings(max_examples=effort(20, 1000))
@given(coins, lines, st.integers(0, 6), st.integers(2, 40))
def test_omitted_frequencies_are_within_their_bound(
    given_coins: list[Any], line: Fraction, last: int, points: int
) -> None:
    law = Coins(coins=tuple(given_coins))
    with precision(100):
        c, turn = ball(line), 2 * arb.pi() / points
        bound = contour._neglected(law.tilted_variance(c), turn, arb(1), last, points)
        total = arb(0)
        for j in range(last + 1, points - last):
            total += abs(law.tilted_characteristic(c, turn * j))
        assert not total > bound.upper()


@pytest.mark.parametrize(
    ("stand_ins", "old"),
    [
        (COARSE, " + arb(0, alias.upper())"),
        (CUT, "_neglected(variance, turn, arb(1), last, points) / points + "),
    ],
    ids=["the alias is omitted", "omitted frequencies are not counted"],
)
def test_coarse_central_masses_include_every_remainder(stand_ins: dict[str, Any], old: str) -> None:
    truth, central = RARE.masses(), contour.central_masses
    with precision(90):
        for code, right in (
            (rewired(central, **stand_ins), True),
            (mutated(central, old, "", **stand_ins), False),
        ):
            enclosed = [holds(found, truth[k]) for k, found in enumerate(code(RARE, 6))]
            assert all(enclosed) == right
