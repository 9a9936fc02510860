"""Tests of pairs of subsampled releases: each direction, several rounds, fixed-size samples."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import pytest

from accounting import NotDerived, PrivacyCurve
from accounting.amplification.subsampling import FixedSizeSample
from accounting.pld.loss_atoms import Listing
from accounting.pld.loss_table import Focus, Tables
from accounting.pld.pessimistic_discretisation import listed_above
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.mechanism import Sensitivity
from tests.effort import by_day
from tests.support.accounting import subsampled_releases
from tests.support.accounting.brute_force import DIGITS, World, hockey_stick, real
from tests.support.accounting.brute_force_subsampling import ADDED, AT, CASES, Case, twice
from tests.support.dpcore.mutants import mutated


def listing_of(kinds: Tables) -> Listing:
    ((_, table),) = kinds
    return listed_above((1.0, table.cells(table.edges(Focus(1.0), 1 << 12))))


def world_of(listing: Listing) -> World:
    """Return the two laws of a listing, in mpmath; hidden mass has no partner."""
    rows = zip(listing.masses.tolist(), listing.losses.tolist(), strict=True)
    points = [(mpmath.mpf(p), mpmath.mpf(p) * mpmath.exp(-mpmath.mpf(l))) for p, l in rows]
    return [*points, (mpmath.mpf(listing.hidden), mpmath.mpf(0))]


def composed(kinds: Tables, rounds: int, epsilon: str) -> Any:
    world = [(p, q) for p, q in world_of(listing_of(kinds)) if p > mpmath.mpf("1e-16")]
    total = world
    for _ in range(rounds - 1):
        total = twice(total, world)
    return hockey_stick(total, epsilon)


def same(one: Any, two: Any) -> bool:
    return bool(abs(one - two) <= mpmath.mpf("1e-12"))


def test_each_direction_is_its_own() -> None:
    case, rate = CASES["coins"], "1/3"
    present, absent = subsampled_releases.poisson(curve=case.added(), rate=rate).directions
    with mpmath.workdps(DIGITS):
        worlds = [*case.poisson(rate)]
        for at in AT:
            ahead, behind = (hockey_stick(world, at) for world in worlds[:2])
            assert same(composed(present, 1, at), ahead)
            assert same(composed(absent, 1, at), behind)
    # The unit is hidden with probability 2/3, and no output reveals its absence.
    listing = listing_of(absent)
    assert listing.losses[-1] == pytest.approx(math.log(1.5), abs=1e-12)
    assert listing.hidden == 0


def test_several_shifts_or_directions_are_sampled_from_above() -> None:
    case, rate = CASES["poisson"], "1/4"
    sampled = subsampled_releases.poisson(curve=case.added(), rate=rate)
    assert not sampled.attained
    with mpmath.workdps(DIGITS):
        worlds = [*case.poisson(rate)]
        for at in AT:
            truth = max(hockey_stick(world, at) for world in worlds)
            bound = max(composed(kinds, 1, at) for kinds in sampled.directions)
            assert truth - mpmath.mpf("1e-14") <= bound <= truth * (1 + mpmath.mpf("1e-9"))
    with pytest.raises(
        NotDerived, match=r"no Renyi divergence is proven for such samples; use epsilon\(delta\)"
    ):
        sampled.enclose_renyi(2)


def test_a_product_of_coordinates_is_sampled_too() -> None:
    curve = PrivacyCurve(
        noise=DiscreteGaussian(sigma_squared=4), sensitivity=Sensitivity.box((1, 1)), scope=ADDED
    )
    sampled = subsampled_releases.poisson(curve=curve, rate="1/10")
    present, _ = sampled.directions
    assert not sampled.attained
    with mpmath.workdps(DIGITS):
        for at in AT:
            exact = real(Fraction(sampled.delta(at).upper))
            found = composed(present, 1, at)
            assert exact - mpmath.mpf("1e-14") <= found
            assert found <= exact * mpmath.mpf("1.0001") + mpmath.mpf("1e-12")


def fixed_pair_holds(case: Case, sample: int, population: int) -> bool:
    """Whether one pair is above all neighbouring datasets at every epsilon of either sign, and
    close to them at 0 and above.
    """
    pair = subsampled_releases.fixed(
        curve=case.replaced(), sample=sample, population=population
    ).pair()
    kinds: Tables = ((Fraction(1), pair),)
    small = mpmath.mpf("1e-12")
    with mpmath.workdps(DIGITS):
        worlds = [*case.fixed(Fraction(sample, population))]
        for at in (*AT, "-1/50", "-1/3", "-2"):
            truth = max(hockey_stick(world, at) for world in worlds)
            bound = composed(kinds, 1, at)
            if not truth - small <= bound <= truth * (1 + mpmath.mpf("1e-9")) + small:
                return False
    return True


@by_day(2)
@pytest.mark.parametrize("name", ["laplace", "gaussian", "coins", "poisson"])
@pytest.mark.parametrize(("sample", "population"), [(1, 10), (3, 4)])
def test_one_pair_lies_above_all_worlds(name: str, sample: int, population: int) -> None:
    assert fixed_pair_holds(CASES[name], sample, population)


def test_one_pair_lies_above_two_rounds_in_any_order() -> None:
    case = replace(CASES["coins"], reach=13)
    pair = subsampled_releases.fixed(curve=case.replaced(), sample=1, population=4).pair()
    with mpmath.workdps(DIGITS):
        worlds = [*case.fixed("1/4")]
        for at in ("1/50", "1/3"):
            truth = max(
                hockey_stick(twice(one, two), at) for one, two in itertools.product(worlds, worlds)
            )
            bound = composed(((Fraction(1), pair),), 2, at)
            assert truth <= bound + mpmath.mpf("1e-12")
            assert bound <= truth * mpmath.mpf("1.2")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("1 + rate * (x - 1)", "rate * (x - 1) + rate"),
        ("rate * base.height(x)", "rate * rate * base.height(x)"),
        ("1 - (1 - high) / x", "high / x"),
        ("left + right", "right"),
    ],
)
def test_mutants_of_the_fixed_pair_are_caught(
    monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    def kept() -> bool:
        try:
            return fixed_pair_holds(CASES["gaussian"], 1, 10)
        except InvalidParameter:
            return False

    assert kept()
    monkeypatch.setattr(FixedSizeSample, "pair", mutated(FixedSizeSample.pair, old, new))
    assert not kept()
