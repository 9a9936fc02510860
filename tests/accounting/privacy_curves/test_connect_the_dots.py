"""Tests of `accounting.privacy_curves.connect_the_dots`: rationals, integer sums, two rounds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.law_pairs.registry import candidates
from accounting.pld.discretise_round import Focus, listed_above
from accounting.pld.finite_pld import Listing
from accounting.pld.integer_cells import IntegerPair
from accounting.privacy_curves import connect_the_dots as dots
from accounting.privacy_curves.connect_the_dots import (
    ConnectTheDotsPair,
    CurvePoint,
    dominating,
    highest,
)
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.poisson_and_binomial import Binomial, Poisson
from dpcore.laws.polya import Polya, PolyaDifference
from dpcore.mechanism import Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure
from tests.day_and_nightly import by_day, effort
from tests.support.accounting.brute_force import Brute, Worlds, excess, product, real
from tests.support.dpcore.mutants import mutated, rewired
from tests.support.dpcore.refusals import refusal

World = list[tuple[Fraction, Fraction]]
DIGITS = 50


def world_of(pair: ConnectTheDotsPair) -> World:
    """Return the two laws of a piecewise linear curve, by second differences."""
    corners = [*pair.corners, (pair.corners[-1][0] + 1, pair.corners[-1][1])]
    slopes = [(v - u) / (y - x) for (x, u), (y, v) in itertools.pairwise(corners)]
    found = [(x * (s - r), s - r) for (x, _), r, s in zip(corners[1:], slopes, slopes[1:])]  # noqa: B905 - the flat part has no corner
    there = sum((q for _, q in found), Fraction(0))
    return [*found, (Fraction(0), 1 - there), (pair.corners[-1][1], Fraction(0))]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    size = draw(st.integers(1, 6))
    weights = st.lists(st.integers(0, 9), min_size=size, max_size=size)
    here, there = draw(weights.filter(any)), draw(weights.filter(any))
    return [(Fraction(p, sum(here)), Fraction(q, sum(there))) for p, q in zip(here, there)]  # noqa: B905 - of one size


places = st.fractions(min_value=Fraction(1, 20), max_value=20, max_denominator=40)
surplus = st.fractions(min_value=0, max_value=Fraction(1, 5), max_denominator=100)


@given(worlds(), worlds(), st.lists(st.tuples(places, surplus), max_size=12), places)
def test_a_pair_through_dots_above_a_curve_dominates_it(
    one: World, two: World, chosen: list[tuple[Fraction, Fraction]], x: Fraction
) -> None:
    pair = ConnectTheDotsPair.through((y, excess(one, y) + more) for y, more in chosen)
    law = world_of(pair)
    assert sum(p for p, _ in law) == 1 == sum(q for _, q in law)
    assert min(min(point) for point in law) >= 0
    assert excess(law, x) == pair.height(x) >= excess(one, x)
    # A pair that dominates in one round also dominates beside any other round.
    assert excess(product([law, two]), x) >= excess(product([one, two]), x)


@settings(max_examples=effort(25, 1000))
@given(worlds(), worlds(), st.lists(places, min_size=2, max_size=12), places)
def test_the_pair_of_the_maximum_dominates_both(
    one: World, two: World, chosen: list[Fraction], x: Fraction
) -> None:
    parts = [
        ConnectTheDotsPair.through((y, excess(world, y)) for y in chosen) for world in (one, two)
    ]
    found = highest(parts)
    tallest = max(part.height(x) for part in parts)
    assert tallest <= found.height(x) <= tallest + Fraction(1, 2**64)


def test_the_cells_of_a_pair_are_exact() -> None:
    world = [(Fraction(1, 2), Fraction(1, 4)), (Fraction(1, 4), Fraction(1, 2))]
    world += [(Fraction(1, 4), Fraction(0)), (Fraction(0), Fraction(1, 4))]
    exact = [(x, excess(world, x)) for x in (Fraction(1, 2), Fraction(1), Fraction(2))]
    pair = ConnectTheDotsPair.through(exact)
    assert sorted(world_of(pair)) == sorted(world)
    found = pair.cells(pair.edges(Focus(1.0), 10))
    assert found.p.value.tolist() == [0, 0.25, 0.5, 0.25]
    assert found.q.value.tolist() == [0.25, 0.5, 0.25, 0]
    assert found.moved.value.tolist() == [-0.25, -0.25, 0.25, 0.25]
    assert found.low.ratio.value.tolist() == [0, 0.5, 2, math.inf]
    assert found.high.excess.value.tolist() == [-1, -0.5, 1, math.inf]
    assert pair.infinite(above=False) < 0.25 < pair.infinite(above=True)
    assert pair.largest_loss() == Enclosure.infinite()


def test_a_pair_without_information_hides_all_mass() -> None:
    pair = ConnectTheDotsPair.through([(Fraction(2), Fraction(3))])
    assert pair.corners == ((Fraction(0), Fraction(1)),)
    assert "must not be empty" in refusal(lambda: dominating(()))
    assert pair.infinite(above=True) >= 1
    assert pair.cells(pair.edges(Focus(1.0), 10)).p.value.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("corners", "complaint"),
    [
        ([], "start"),
        ([(0, Fraction(1, 2)), (1, 0)], "start"),
        ([(0, 1), (1, Fraction(1, 2)), (1, 0)], "increasing"),
        ([(0, 1), (1, Fraction(9, 10)), (2, 0)], "convex"),
        ([(0, 1), (1, Fraction(1, 2)), (2, Fraction(3, 4))], "convex"),
        ([(0, 1), (Fraction(1, 2), Fraction(1, 4))], "1 - x"),
        ([(0, 1), (2, Fraction(-1, 10))], "must satisfy h >= max"),
    ],
)
def test_points_that_no_curve_passes_through_are_refused(
    corners: list[Any], complaint: str
) -> None:
    with pytest.raises(InvalidParameter, match=complaint):
        ConnectTheDotsPair(corners=tuple((Fraction(x), Fraction(u)) for x, u in corners))


def row(noise: Noise, most: int, high: int) -> tuple[Noise, Sensitivity, Any]:
    return noise, Sensitivity(most), Worlds(noise=noise, most=most, low=0, high=high)


PLANE = DiscreteGaussian(sigma_squared=3)
CASES: list[tuple[Noise, Sensitivity, Any]] = [
    row(Poisson(mean=9), 2, 90),
    row(Binomial(trials=30, probability="1/3"), 1, 30),
    row(Polya(shape=3, scale=2), 1, 190),
    row(Polya(shape="1/2", scale=2), 1, 190),
    (PLANE, Sensitivity.l2_squared(2), Brute(noise=PLANE, shifts=((1, 1), (1, 0)), reach=22)),
]
AT = ("0", "1/50", "1/10", "1/3", "1", "5/2")


def fits(found: ConnectTheDotsPair, brute: Any, relative: str) -> bool:
    """Above the worst case at every epsilon tried, of either sign, and close to it."""
    with mpmath.workdps(DIGITS):
        for at in AT:
            truth, x = brute.delta(at), mpmath.exp(real(at))
            # The corners are at rational x: evaluate on either side of e^epsilon.
            below, over = (Fraction(int(x * 2**90) + i, 2**90) for i in (0, 1))
            slack = mpmath.mpf("1e-28") + truth * mpmath.mpf("1e-24")
            if real(found.height(below)) < truth - slack:
                return False
            if real(found.height(over)) > truth * (1 + mpmath.mpf(relative)) + slack:
                return False
            # -epsilon: the datasets are neighbours in both orders.
            mirror = 1 - 1 / x + truth / x
            if real(found.height(1 / over)) < mirror - slack:
                return False
            if real(found.height(1 / below)) > mirror * (1 + mpmath.mpf(relative)) + slack:
                return False
    return True


@by_day(1)
@pytest.mark.parametrize(("noise", "sensitivity", "brute"), CASES, ids=lambda case: repr(case)[:30])
def test_the_dominating_pair_is_the_maximum_over_directions_and_shifts(
    noise: Noise, sensitivity: Sensitivity, brute: Any
) -> None:
    assert fits(dominating(candidates(noise, sensitivity)), brute, "1e-11")


@pytest.mark.parametrize("most", [64, 200])
def test_fewer_dots_give_a_slightly_larger_curve(most: int) -> None:
    noise, sensitivity = PolyaDifference(shape="1/2", scale=20), Sensitivity(2)
    many, few = (dominating(candidates(noise, sensitivity), most=n) for n in (2000, most))
    assert len(few.corners) <= most + 2
    for at in (Fraction(1), Fraction(11, 10), Fraction(3, 2), Fraction(2)):
        assert many.height(at) <= few.height(at) + Fraction(1, 10**40)
        assert few.height(at) <= many.height(at) * Fraction(102, 100) + Fraction(1, 10**9)


def dominated(through: Callable[[Any], ConnectTheDotsPair]) -> bool:
    """Whether the dots of a law with losses of both signs give a close dominating pair."""
    weights = ((1, 8), (4, 5), (5, 4), (8, 1), (2, 2))
    world = [(Fraction(p, 20), Fraction(q, 20)) for p, q in weights]
    exact: list[CurvePoint] = [
        (Fraction(i, 40), excess(world, Fraction(i, 40))) for i in range(1, 400)
    ]
    exact[55] = (exact[55][0], exact[55][1] + Fraction(1, 50))
    try:
        pair = through(exact)
    except InvalidParameter:
        return False
    gaps = [pair.height(x) - excess(world, x) for x in (Fraction(i, 7) for i in range(1, 80))]
    return bool(0 <= min(gaps) <= max(gaps) < Fraction(1, 500))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("lowest = min(lowest, u)", "lowest = u / 2"),
        (">= _slope(kept[-1]", "<= _slope(kept[-1]"),
        ("while len(kept) > 1", "while False"),
    ],
)
def test_mutants_of_the_hull_are_detected(old: str, new: str) -> None:
    assert dominated(ConnectTheDotsPair.through)
    broken = mutated(ConnectTheDotsPair.through.__func__, old, new)  # type: ignore[attr-defined]  # a method
    assert not dominated(broken.__get__(None, ConnectTheDotsPair))


def near_or_far(make: Callable[[Listing, int], Any]) -> bool:
    """Whether one direction of a law fits, and a loss too large for the grid counts as hidden."""
    noise, sensitivity, brute = CASES[0]
    tables = [IntegerPair(pair=pair) for ((pair, _),) in candidates(noise, sensitivity)]
    listed = [listed_above((1.0, table.cells(table.edges(Focus(1.0), 2000)))) for table in tables]
    far = Listing(np.array([0.0, 1000.0]), np.array([0.75, 0.25]), 0.0)
    try:
        parts = [ConnectTheDotsPair.through(make(each, 2000)) for each in listed]
        rest = ConnectTheDotsPair.through(make(far, 10)).corners[-1][1]
    except InvalidParameter:
        return False
    return rest == Fraction(1, 4) and fits(highest(parts), brute, "1e-11")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("_dots", "x = _rounded_up(Fraction(*atoms[i]))", "x = 1 / Fraction(*atoms[i])"),
        ("_dots", "hidden + above[left]", "above[left]"),
        ("_dots", "first = i\n", "first = i + 2\n"),
        ("_units", "arb(p) * (-arb(loss)).exp()", "arb(p) * arb(loss).exp()"),
        ("_units", "total += here", "pass"),
    ],
)
def test_mutants_of_the_listing_are_detected(name: str, old: str, new: str) -> None:
    broken = mutated(getattr(dots, name), old, new)
    assert near_or_far(dots._dots)
    assert not near_or_far(broken if name == "_dots" else rewired(dots._dots, _units=broken))


def test_neither_direction_dominates_the_other() -> None:
    noise, sensitivity, brute = CASES[1]
    one, _ = candidates(noise, sensitivity)
    assert not fits(dominating((one,)), brute, "1e-11")
