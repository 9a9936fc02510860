r"""Poisson and binomial laws: exact masses and edges.

What every law promises is asked by the contract suite; here stands what belongs to these alone.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from itertools import repeat
from types import SimpleNamespace

import pytest
from flint import arb

from dpcore import Enclosure
from dpcore.laws.binomial import Binomial
from dpcore.laws.count_noise import falling_sum
from dpcore.numbers.enclosure import narrow, precision
from tests.support.dpcore.mutants import mutated, rewired


@pytest.mark.parametrize(("trials", "p"), [(1, "1/2"), (13, "1/3"), (60, "3/7"), (500, "1/2")])
def test_few_coins_are_exact_rationals(trials: int, p: str) -> None:
    noise, q = Binomial(trials=trials, probability=p), Fraction(p)
    total = Fraction(0)
    for k in range(-1, trials + 2):
        mass = math.comb(trials, k) * q**k * (1 - q) ** (trials - k) if k >= 0 else Fraction(0)
        total += mass
        assert mass in noise.enclose_pmf(k)
        assert total in noise.enclose_cdf(k)
        assert 1 - total in noise.enclose_sf(k)
        if 0 < total < 1:
            # F(k) itself is a level: the quantile is k, and any more asks for k + 1.
            following = mass * (trials - k) / (k + 1) * q / (1 - q)
            assert noise.quantile(total) == k
            assert noise.quantile(total + following / 10**50) == k + 1


def test_the_middle_of_fair_coins_is_one_half() -> None:
    for trials in (3001, 2**80 + 1):
        noise = Binomial(trials=trials, probability="1/2")
        assert noise.enclose_cdf(trials // 2) == Enclosure.exactly(Fraction(1, 2))
        assert noise.enclose_sf(trials // 2) == Enclosure.exactly(Fraction(1, 2))
    assert Binomial(trials=3001, probability="1/2").quantile(0.5) == 1500
    assert Binomial(trials=3001, probability="1/2").quantile(math.nextafter(0.5, 1)) == 1501


def test_falling_sums_hold_their_limit() -> None:
    for ratio in (Fraction(1, 2), Fraction(3, 4), Fraction(1, 10**9)):
        pair = (ratio.numerator, ratio.denominator)
        assert 1 / (1 - ratio) in narrow(partial(_geometric, pair), 100)
    # Stopped early, the sum must hold what it left out.
    early = SimpleNamespace(prec=8)
    for code, holds in (
        (rewired(falling_sum, ctx=early), True),
        (mutated(falling_sum, "arb(rest / 2, rest / 2)", "0", ctx=early), False),
    ):
        with precision(64):
            found = Enclosure.of(code(arb(1), repeat((1, 2))))
        assert (2 in found) == holds


def _geometric(ratio: tuple[int, int]) -> arb:
    return falling_sum(arb(1), repeat(ratio))
