r"""The kernel against sums in rationals and mpmath: both ends hold the truth, and are narrow."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from fractions import Fraction
from functools import cache
from random import Random
from typing import Any, Final

import pytest
from mpmath import MPContext

from accounting.kernel.convolution import Plan
from accounting.kernel.delta_bounds import Curve
from accounting.kernel.laws import Round
from accounting.kernel.series import Fixed
from tests.effort import by_day

MP: Final = MPContext()
MP.dps = 90
ONE: Final = (Fraction(1),)
REACH: Final = 60

LAWS: Final = {
    "discrete-gaussian": (Fraction(5, 2),),
    "discrete-laplace": (Fraction(3, 2),),
    "staircase": (Fraction(2, 3), Fraction(3), Fraction(2)),
    "discrete-gaussian-sum": (Fraction(3), Fraction(3, 4)),
    "skellam": (Fraction(3),),
    "polya-difference": (Fraction(1, 2), Fraction(3, 2)),
    "poisson": (Fraction(5),),
    "polya": (Fraction(3, 2), Fraction(2)),
    "binomial": (Fraction(9), Fraction(1, 3)),
}


@cache
def masses(law: str, parameters: tuple[Fraction, ...]) -> dict[int, Any]:  # noqa: C901  # a case for each law
    """The definition of each law, by other formulas than those of the kernel."""
    values = [MP.mpf(each.numerator) / each.denominator for each in parameters]
    places = range(-REACH * 6, REACH * 6 + 1)
    match law:
        case "discrete-gaussian":
            found = {x: MP.exp(-x * x / (2 * values[0])) for x in places}
        case "discrete-laplace":
            found = {x: MP.exp(-abs(x) / values[0]) for x in places}
        case "staircase":
            found = {x: staircase(x, *values) for x in places}
        case "discrete-gaussian-sum":
            one = masses("discrete-gaussian", parameters[1:])
            near = {x: p for x, p in one.items() if abs(x) <= REACH // 2}
            found = {0: MP.one}
            for _ in range(int(parameters[0])):
                found = added(found, near)
        case "skellam":
            found = {x: MP.exp(-values[0]) * MP.besseli(abs(x), values[0]) for x in places}
        case "poisson":
            found = {
                x: MP.exp(-values[0]) * values[0] ** x / MP.factorial(x) for x in places if x >= 0
            }
        case "polya":
            found = {x: polya(x, *values) for x in places if x >= 0}
        case "polya-difference":
            one = {x: polya(x, *values) for x in range(REACH * 4)}
            found = added(one, {-x: p for x, p in one.items()})
        case "binomial":
            n, p = int(parameters[0]), values[1]
            found = {x: math.comb(n, x) * p**x * (1 - p) ** (n - x) for x in range(n + 1)}
    total = MP.fsum(found.values())
    return {x: p / total for x, p in found.items()}


def staircase(x: int, epsilon: Any, step: Any, plateau: Any) -> Any:
    return MP.exp(-epsilon * (0 if abs(x) < plateau else 1 + (abs(x) - plateau) // step))


def polya(x: int, shape: Any, scale: Any) -> Any:
    return MP.binomial(x + shape - 1, x) * MP.exp(-x / scale)


def added(one: dict[int, Any], other: dict[int, Any]) -> dict[int, Any]:
    found: dict[int, Any] = defaultdict(lambda: MP.zero)
    for (x, p), (y, q) in itertools.product(one.items(), other.items()):
        found[x + y] += p * q
    return dict(found)


def losses(
    law: dict[int, Any], shift: int, rate: Fraction, *, swapped: bool
) -> list[tuple[Any, Any]]:
    r = MP.mpf(rate.numerator) / rate.denominator
    found = []
    for x in sorted({*law, *(y + shift for y in law)}):
        q, p = law.get(x - shift, MP.zero), law.get(x, MP.zero)
        p = r * p + (1 - r) * q
        found.append((q, p) if swapped else (p, q))
    return [each for each in found if each[0] > 1e-40]


def delta_of(pairs: list[tuple[Any, Any]], rounds: int, epsilon: Fraction) -> tuple[Any, Any]:
    """By the definition: all products of outcomes of ``rounds`` rounds."""
    factor = MP.exp(MP.mpf(epsilon.numerator) / epsilon.denominator)
    kept = sorted(pairs, key=lambda each: each[0], reverse=True)[: 4000 if rounds == 1 else 40]
    left = 1 - MP.fsum(p for p, _ in kept) ** rounds
    total = MP.zero
    for row in itertools.product(kept, repeat=rounds):
        p, q = MP.one, MP.one
        for one, other in row:
            p, q = p * one, q * other
        total += max(p - factor * q, MP.zero)
    return total, total + abs(left)


@by_day(14)
@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("rate", [Fraction(1), Fraction(1, 3)])
@pytest.mark.parametrize("law", LAWS)
def test_both_ends_hold_the_truth(law: str, rate: Fraction, rounds: int) -> None:
    shift = 2
    here = (1 - rate, rate)
    for swapped in {False, rate < 1}:
        each = Round(law, LAWS[law], Fraction(shift), here, ONE, swapped=swapped)
        plan, row = Plan(Fraction(1, 64), 36, 1 << 12, 1), [[(each, rounds)]]
        curve = Curve(row, row, plan)
        pairs = losses(masses(law, LAWS[law]), shift, rate, swapped=swapped)
        for epsilon in (Fraction(0), Fraction(1, 3), Fraction(2)):
            low, high = curve.delta(epsilon)
            least, most = delta_of(pairs, rounds, epsilon)
            slack = MP.mpf(10) ** -30
            assert MP.mpf(low.numerator) / low.denominator <= most + slack
            assert MP.mpf(high.numerator) / high.denominator >= least - slack
            if rounds == 1:
                assert high - low <= Fraction(1, 10**30)
            else:
                assert high - low <= Fraction(1, 50)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(60))
def test_no_plan_makes_an_end_false(seed: int) -> None:
    """Coarse grids, few digits, windows that cut most of the mass: wide ends, and no false one."""
    draws = Random(seed)
    law = draws.choice([*LAWS])
    rate, rounds = draws.choice([Fraction(1), Fraction(1, 3)]), draws.randint(1, 3)
    swapped, shift = rate < 1 and draws.random() < 0.5, draws.randint(1, 3)
    digits = draws.choice([8, 12, 36])
    plan = Plan(
        Fraction(1, draws.choice([1, 3, 16, 1000])),
        digits,
        draws.choice([64, 100, 1 << 12]),
        draws.choice([0, 1, 10 ** (digits - 3), 10**digits]),
    )
    row = [[(Round(law, LAWS[law], Fraction(shift), (1 - rate, rate), ONE, swapped), rounds)]]
    pairs = losses(masses(law, LAWS[law]), shift, rate, swapped=swapped)
    for epsilon in (Fraction(0), Fraction(draws.randint(1, 40), 13)):
        low, high = Curve(row, row, plan).delta(epsilon)
        least, most = delta_of(pairs, rounds, epsilon)
        slack = MP.mpf(10) ** -30
        assert MP.mpf(low.numerator) / low.denominator <= most + slack
        assert MP.mpf(high.numerator) / high.denominator >= least - slack


@pytest.mark.parametrize("bits", [100, 230])
def test_enclosures_hold_exp_log_and_normal(bits: int) -> None:
    fixed = Fixed(bits)
    for i in range(-200, 201, 7):
        x = (i * fixed.one) // 9 + i
        exact = MP.mpf(x) / fixed.one
        low, high = fixed.exp(x)
        assert low <= MP.exp(exact) * fixed.one <= high
        assert high - low <= 2 + high // (1 << (bits - 8))
        n = abs(x) + 1
        low, high = fixed.log(n)
        assert low <= MP.log(MP.mpf(n) / fixed.one) * fixed.one <= high
        if abs(i) < 100:
            assert abs(fixed.normal(x) - MP.ncdf(exact) * fixed.one) <= 8
