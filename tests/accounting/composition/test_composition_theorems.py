"""Tests of composition theorems: enumeration of randomised response, advanced composition."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import PrivacyCurve, Pure, StatedGuarantee, compose
from accounting.composition import returning_users as theorems
from accounting.composition.returning_users import advanced_over_splits
from accounting.convert_guarantees import as_rdp, as_zcdp
from dpcore import DiscreteGaussian, InvalidParameter
from dpcore.numbers.parameter import RationalLike
from tests.support.accounting.brute_force import World, hockey_stick, real
from tests.support.dpcore.mutants import mutated


def round_of(epsilon: RationalLike, delta: RationalLike = 0) -> World:
    """Return the four outcomes of the worst (epsilon, delta) mechanism, with both probabilities."""
    kept, odds = 1 - real(Fraction(delta)), mpmath.exp(real(Fraction(epsilon)))
    return [
        (real(Fraction(delta)), 0),
        (kept * odds / (1 + odds), kept / (1 + odds)),
        (kept / (1 + odds), kept * odds / (1 + odds)),
        (0, real(Fraction(delta))),
    ]


def product(rounds: list[World]) -> World:
    return [
        (mpmath.fprod(p for p, _ in path), mpmath.fprod(q for _, q in path))
        for path in itertools.product(*rounds)
    ]


@given(
    st.lists(st.fractions(Fraction(1, 10), 2, max_denominator=50), min_size=1, max_size=4),
    st.sampled_from(["1e-6", "1/20"]),
)
@settings(max_examples=20, deadline=None)
def test_sums_bound_what_really_happens(each: list[Fraction], delta: str) -> None:
    with mpmath.workdps(30):
        world = product([round_of(e)[1:3] for e in each])
        claims: list[StatedGuarantee] = [Pure(e) for e in each]
        for words in (
            claims,
            [as_zcdp(c) for c in claims],
            [as_rdp(c, [2, 8, 40]) for c in claims],
        ):
            at = Fraction(compose(*words).epsilon(delta).upper)
            assert hockey_stick(world, at) <= real(delta) * (1 + mpmath.mpf(10) ** -20)


@pytest.mark.parametrize("e", ["1/1000", "1/20", "1"])
@pytest.mark.parametrize("rounds", [1, 30, 1000])
@pytest.mark.parametrize("slack", ["1e-6", "1/2"])
def test_advanced_is_the_formula_and_above_the_exact_total(e: str, rounds: int, slack: str) -> None:
    each, left = Fraction(e), Fraction(slack)
    found = Fraction(theorems._forward(each, rounds, left))
    with mpmath.workdps(40):
        truth = real(each) * mpmath.sqrt(2 * rounds * mpmath.log(1 / real(left)))
        truth += rounds * real(each) * mpmath.expm1(real(each))
        assert 0 <= real(found) - truth <= truth * mpmath.mpf(10) ** -18
    assert compose((Pure(e), rounds)).epsilon(left).upper <= found
    low = mutated(
        theorems._forward, "each * spread + rounds * each * each.expm1()", "each * spread"
    )
    assert low(each, rounds, left) < found


def test_splits_of_a_curve_that_comes_back() -> None:
    curve = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=400), sensitivity=1)

    def epsilon_of(delta: Fraction) -> Fraction | float:
        return curve.epsilon(delta).upper

    found = advanced_over_splits(epsilon_of, 64, "1e-6")
    assert found.lower is None
    # Any split gives a valid bound; the search is at least as good as an even grid of splits.
    parts = [Fraction(n, 40 * 10**6) for n in range(1, 40)]
    total = Fraction(1, 10**6)
    assert found.upper <= min(
        theorems._forward(Fraction(epsilon_of(d / 64)), 64, total - d) for d in parts
    )
    assert advanced_over_splits(lambda d: math.inf, 3, "1e-6").upper == math.inf
    # A pure round needs no part of delta.
    pure = advanced_over_splits(lambda d: Fraction(1, 20), 1000, "1e-6").upper
    assert pure == theorems._forward(Fraction(1, 20), 1000, total)
    assert theorems._forward(Fraction(10**6), 5, total) == math.inf
    for rounds, delta in ((0, "1e-6"), (3, 0), (3, 1)):
        with pytest.raises(InvalidParameter, match="rounds" if rounds < 1 else "delta"):
            advanced_over_splits(epsilon_of, rounds, delta)
