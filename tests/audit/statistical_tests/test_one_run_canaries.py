"""Tests of one-run canary bounds against the worst mechanism by linear programming and mpmath."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy import optimize, stats

from audit.statistical_tests.one_run_canaries import (
    LossLine,
    curve_p_value,
    curve_refuted,
    largest_rejected,
    lines_of,
    one_run_p_value,
)
from tests.day_and_nightly import by_day
from tests.support.accounting.brute_force import normal_delta
from tests.support.dpcore.mutants import mutated

Points = Sequence[tuple[float, float]]


CURVE = [(0.1 * k, float(normal_delta(1, 0.1 * k)) + 1e-12) for k in range(60)]


def worst(canaries: int, guesses: int, right: int, points: Points) -> float:
    """The largest P(V >= right) over mechanisms symmetric in the canaries, by linear programming.

    Such a mechanism reveals `guesses` canaries chosen at random, j of the answers right with
    probability h_j, all sets of j equally likely. Flipping a coin makes a right answer wrong.
    """
    r, size = guesses, guesses + 1
    columns = size + 2 * guesses * len(points)
    rows, limits = [], []
    for number, (epsilon, delta) in enumerate(points):
        budget = np.zeros(columns)
        for j in range(1, size):
            for way in (0, 1):
                slack = size + 2 * (number * guesses + j - 1) + way
                more, less = (j, j - 1) if way == 0 else (j - 1, j)
                share = {j: j / r, j - 1: (r - j + 1) / r}
                row = np.zeros(columns)
                row[more] = share[more]
                row[less] = -math.exp(epsilon) * share[less]
                row[slack] = -1.0
                budget[slack] = 1.0
                rows.append(row)
                limits.append(0.0)
        rows.append(budget)
        limits.append(delta * canaries / guesses)
    one = np.zeros((1, columns))
    one[0, :size] = 1.0
    aim = np.zeros(columns)
    aim[right:size] = -1.0
    found = optimize.linprog(aim, np.array(rows), limits, one, [1.0], method="highs")
    assert found.success
    return float(-found.fun)


CASES = [(1, 1), (4, 1), (4, 3), (6, 6), (30, 12)]


POINTS = [(epsilon, delta) for epsilon in (0.0, 1.0, 3.0) for delta in (0.0, 0.001, 0.05)]


@by_day(15)
@pytest.mark.parametrize("points", [CURVE, *([each] for each in POINTS)])
@pytest.mark.parametrize(("canaries", "guesses"), CASES)
def test_no_mechanism_of_few_canaries_exceeds_the_bounds(
    canaries: int, guesses: int, points: Points
) -> None:
    lines = lines_of(points)
    for right in range(1, guesses + 1):
        least = worst(canaries, guesses, right, points)
        assert curve_p_value(canaries, guesses, right, lines) >= least * (1 - 1e-7)
        if len(points) == 1:
            ((epsilon, delta),) = points
            p_value = one_run_p_value(canaries, guesses, right, epsilon=epsilon, delta=delta)
            if delta == 0.0:
                assert p_value == pytest.approx(least)
            elif right > guesses / (1 + math.exp(-epsilon)):
                assert p_value >= least * (1 - 1e-7)


def test_a_bound_that_counts_delta_once_is_exceeded() -> None:
    once = mutated(one_run_p_value, "2 * canaries", "1")
    assert worst(30, 12, 12, [(1.0, 0.01)]) > once(30, 12, 12, epsilon=1, delta="0.01")


def test_the_theorem_of_steinke_nasr_and_jagielski_fails_below_the_mean() -> None:
    # Three coins. The guesses are any of the eight outcomes, but all wrong with probability 1/8 -
    # 7d/8 only. Two neighbours' outputs differ by d in total variation, so the mechanism is (0,
    # d)-DP.
    d = Fraction(1, 100)
    wrong, other = Fraction(1, 8) - 7 * d / 8, Fraction(1, 8) + d / 8
    outputs = [tuple(k >> i & 1 for i in range(3)) for k in range(8)]
    law = {s: {t: wrong if sum(map(int.__eq__, s, t)) == 0 else other for t in outputs}
           for s in outputs}  # fmt: skip
    for s in outputs:
        assert sum(law[s].values()) == 1
        for i in range(3):
            near = tuple(bit ^ (place == i) for place, bit in enumerate(s))
            assert sum(max(law[s][t] - law[near][t], Fraction(0)) for t in outputs) == d
    printed = one_run_p_value(3, 3, 1, epsilon=0, delta=d)
    assert 1 - wrong > Fraction(printed)
    # Our bound holds for this mechanism, and equals the exact worst case.
    assert curve_p_value(3, 3, 1, lines_of([(0, d)])) >= 1 - wrong
    assert worst(3, 3, 1, [(0.0, 0.01)]) == pytest.approx(float(1 - wrong))


@by_day(1)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("held * (guesses - right)", "held * 0 * (guesses - right)"),
        ("missing * (k - 1)", "missing * (4 * k)"),
        ("held = alpha / canaries", "held = alpha / guesses"),
    ],
)
def test_a_broken_recursion_refutes_a_true_claim(old: str, new: str) -> None:
    broken = mutated(curve_refuted, old, new)
    lines = lines_of(CURVE)
    assert any(
        broken(30, 12, right, lines, worst(30, 12, right, CURVE) * 0.999) for right in range(1, 13)
    )


@pytest.mark.parametrize(
    ("canaries", "guesses", "right", "epsilon", "delta"),
    [
        (10_000, 10_000, 6964, 0.7, 1e-5),
        (200_000, 20_000, 14_000, 0.8, 1e-7),
        (400, 80, 45, 0.0, 0.05),
    ],
)
def test_the_theorem_agrees_with_tails_of_scipy(
    canaries: int, guesses: int, right: int, epsilon: float, delta: float
) -> None:
    law = stats.binom(guesses, 1 / (1 + math.exp(-epsilon)))
    masses = law.pmf(np.arange(right - 1, -1, -1))
    densest = float((np.cumsum(masses) / np.arange(1, right + 1)).max())
    stated = min(1.0, float(law.sf(right - 1)) + 2 * canaries * delta * densest)
    found = one_run_p_value(canaries, guesses, right, epsilon=epsilon, delta=delta)
    assert found == pytest.approx(stated, rel=1e-9)


def test_the_tail_is_rounded_up() -> None:
    for guesses, right in ((20, 13), (60, 45), (200, 137)):
        exact = Fraction(sum(math.comb(guesses, k) for k in range(right, guesses + 1)), 2**guesses)
        found = Fraction(one_run_p_value(guesses, guesses, right, epsilon=0, delta=0))
        assert exact <= found <= exact * (1 + Fraction(1, 2**50))


def least_total(
    canaries: int, guesses: int, right: int, lines: Sequence[LossLine], alpha: float
) -> mpf:
    """The recursion as printed in the paper, in 200 digits, with the maximum over all lines."""
    with mp.workdps(200):
        inside, outside = mpf(alpha) * right / canaries, mpf(alpha) * (guesses - right) / canaries
        for k in range(right, 0, -1):
            after = max(outside, *(line.slope * inside + line.offset for line in lines))
            inside += (after - outside) * (k - 1) / (guesses - k + 1)
            outside = after
            if inside + outside > mpf(guesses) / canaries:
                break
        return (inside + outside) * canaries / guesses


@pytest.mark.parametrize(("canaries", "guesses"), [(1000, 62), (300, 300)])
def test_floats_decide_like_two_hundred_digits(canaries: int, guesses: int) -> None:
    lines = lines_of(CURVE[::8])
    told = []
    for right in range(guesses // 2, guesses + 1, max(1, guesses // 12)):
        for alpha in (0.05, 0.5):
            exact = least_total(canaries, guesses, right, lines, alpha)
            found = curve_refuted(canaries, guesses, right, lines, alpha)
            assert found <= (exact > 1)
            if abs(exact - 1) > 1e-6:
                assert found == (exact > 1)
            told.append(found)
    assert {True, False} == set(told)


def test_lines_are_below_the_tradeoff_of_their_points() -> None:
    points = [(Fraction(1, 3), Fraction(1, 7)), (Fraction(2), Fraction(0))]
    lines = lines_of(points)
    assert [line.slope for line in lines] == sorted(line.slope for line in lines)
    with mp.workdps(50):
        for epsilon, delta in points:
            up, d = (
                mp.exp(mpf(epsilon.numerator) / epsilon.denominator),
                mpf(delta.numerator) / delta.denominator,
            )
            for slope, offset in ((1 / up, -d / up), (up, 1 - d - up)):
                near = lines[int(np.argmin([abs(float(line.slope - slope)) for line in lines]))]
                assert 0 <= slope - near.slope < 1e-14
                assert 0 <= offset - near.offset < 1e-14


def test_the_largest_rejected_epsilon_was_itself_rejected() -> None:
    seen: list[float] = []

    def rejected(value: float) -> bool:
        seen.append(value)
        return value < 1.7

    found = largest_rejected(rejected)
    assert found in seen
    assert 1.7 - 1e-5 < found < 1.7
    assert largest_rejected(lambda value: False) == 0.0
    assert largest_rejected(lambda value: True, most=16.0) == 16.0
