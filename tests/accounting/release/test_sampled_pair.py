"""Pairs of releases from samples: each direction, several rounds, and samples of a fixed size."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from flint import arb

from accounting import NotDerived, PrivacyCurve
from accounting.pairs.losses import Losses
from accounting.release import sampled_pair
from accounting.release.dominating import DottedPair
from accounting.release.sampled_pair import AbsentPair, PresentPair
from accounting.release.subsampling import FixedSizeSampled, PoissonSampled
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.mechanism import Sensitivity
from dpcore.numbers.enclosure import precision
from tests.effort import by_day
from tests.support.accounting.brute import DIGITS, real
from tests.support.accounting.sampled_worlds import (
    ADDED,
    AT,
    CASES,
    Case,
    World,
    hockey_stick,
    twice,
)
from tests.support.dpcore.mutants import mutated

SYMMETRIC = ("laplace", "gaussian", "skellam", "coins")

# -- pairs -----------------------------------------------------------------------------------------


def world_of(listed: Losses) -> World:
    """The two laws of a listing, in mpmath; hidden mass has no partner."""
    points = [(_real(m), _real(l)) for m, l in zip(listed.masses, listed.losses, strict=True)]
    return [*((p, p * mpmath.exp(-l)) for p, l in points), (_real(listed.hidden), mpmath.mpf(0))]


def _real(value: arb) -> Any:
    return mpmath.mpf(value.mid().str(DIGITS, radius=False))


def composed(pair: Any, rounds: int, epsilon: str, tilt: int = 4) -> Any:
    with precision(200):
        listed = pair.losses(Fraction(tilt), 90)
        assert listed.beyond(arb(tilt)) <= arb(2) ** -80
    world = world_of(listed)
    total = world
    for _ in range(rounds - 1):
        total = twice(total, world)
    return hockey_stick(total, epsilon)


def same(one: Any, two: Any) -> bool:
    return bool(abs(one - two) <= mpmath.mpf("1e-20"))


def pairs_hold(case: Case, rate: str, rounds: int) -> bool:
    """Whether the larger of the two directions, composed, has the worst curve of all worlds."""
    sampled = PoissonSampled(curve=case.added(), rate=rate)
    with mpmath.workdps(DIGITS):
        worlds = [*case.poisson(rate)]
        for at in ("1/50", "1/3"):
            truth = max(
                hockey_stick(world if rounds == 1 else twice(world, world), at) for world in worlds
            )
            if not same(max(composed(pair, rounds, at) for pair in sampled.pairs()), truth):
                return False
            if rounds == 1 and not same(truth, real(Fraction(sampled.enclose_delta(at).lower))):
                return False
    return True


@pytest.mark.parametrize("name", SYMMETRIC)
@pytest.mark.parametrize("rate", ["1/10", "2/3"])
def test_pairs_of_one_round(name: str, rate: str) -> None:
    sampled = PoissonSampled(curve=CASES[name].added(), rate=rate)
    assert sampled.attained() == sampled.pairs()
    assert pairs_hold(CASES[name], rate, 1)


@by_day(1)
@pytest.mark.parametrize("name", ["gaussian", "coins"])
def test_pairs_of_two_rounds(name: str) -> None:
    small = Case(
        noise=CASES[name].noise,
        mass=CASES[name].mass,
        most=1,
        reach=min(CASES[name].reach, 22),
    )
    assert pairs_hold(small, "1/4", 2)


def test_each_direction_is_its_own() -> None:
    case, rate = CASES["coins"], "1/3"
    present, absent = PoissonSampled(curve=case.added(), rate=rate).pairs()
    assert isinstance(present, PresentPair)
    assert isinstance(absent, AbsentPair)
    with mpmath.workdps(DIGITS):
        worlds = [*case.poisson(rate)]
        for at in AT:
            ahead, behind = (hockey_stick(world, at) for world in worlds[:2])
            assert same(composed(present, 1, at), ahead)
            assert same(composed(absent, 1, at), behind)
    # The unit is hidden with probability 2/3 and no output tells that it is absent.
    with precision(100):
        assert absent.losses(Fraction(2), 40).largest.overlaps((arb(3) / 2).log())
        assert absent.losses(Fraction(2), 40).hidden == 0


def test_several_shifts_or_directions_are_sampled_from_above() -> None:
    case, rate = CASES["poisson"], "1/4"
    sampled = PoissonSampled(curve=case.added(), rate=rate)
    assert not sampled.attained()
    with mpmath.workdps(DIGITS):
        worlds = [*case.poisson(rate)]
        for at in AT:
            truth = max(hockey_stick(world, at) for world in worlds)
            bound = max(composed(pair, 1, at) for pair in sampled.pairs())
            assert truth - mpmath.mpf("1e-20") <= bound <= truth * (1 + mpmath.mpf("1e-9"))
    with pytest.raises(NotDerived, match=r"no proven bounds here; use epsilon\(delta\)"):
        sampled.enclose_renyi(2)


def test_the_rest_of_a_listing_stays_small_at_every_tilt() -> None:
    sampled = PoissonSampled(curve=CASES["skellam"].added(), rate="1/100")
    for pair in sampled.pairs():
        with precision(120):
            listed = pair.losses(Fraction(9), 50)
            for c in (arb("0.01"), arb(1), arb(9)):
                shown = sum(
                    (m * (c * l).exp() for m, l in zip(listed.masses, listed.losses, strict=True)),
                    arb(0),
                )
                assert listed.beyond(c) <= arb(2) ** -50 * shown
            assert listed.beyond(arb(18)).is_finite()


def test_what_no_listing_reaches_is_refused() -> None:
    class Loose:
        def losses(self, tilt: Fraction, bits: int) -> Losses:
            half = arb(0.5)
            return Losses(
                masses=(half,),
                losses=(arb(0),),
                hidden=arb(0),
                beyond=lambda c: arb("0.1"),
                largest=arb(1),
            )

    base: Any = Loose()
    for kind in (PresentPair, AbsentPair):
        with pytest.raises(NotDerived, match="leaves out too much"):
            kind(base=base, rate=Fraction(1, 2)).losses(Fraction(1), 20)
        with pytest.raises(NotDerived, match="smaller tilt"):
            kind(base=base, rate=Fraction(1, 2)).losses(Fraction(10**6), 20)


def test_a_product_of_coordinates_is_sampled_too() -> None:
    curve = PrivacyCurve(
        noise=DiscreteGaussian(sigma_squared=4), sensitivity=Sensitivity.box((1, 1)), scope=ADDED
    )
    sampled = PoissonSampled(curve=curve, rate="1/10")
    present, _ = sampled.pairs()
    assert isinstance(present, PresentPair)
    assert isinstance(present.base, DottedPair)
    with mpmath.workdps(DIGITS):
        for at in AT:
            exact = real(Fraction(sampled.delta(at).upper))
            assert exact <= composed(present, 1, at) + mpmath.mpf("1e-20")
            assert composed(present, 1, at) <= exact * mpmath.mpf("1.0001") + mpmath.mpf("1e-20")


# -- fixed size ------------------------------------------------------------------------------------


def fixed_pair_holds(case: Case, sample: int, population: int) -> bool:
    """Above all worlds at every epsilon of either sign, near them at 0 and above; and twice."""
    pair = FixedSizeSampled(curve=case.replaced(), sample=sample, population=population).pair()
    small = mpmath.mpf("1e-18")
    with mpmath.workdps(DIGITS):
        worlds = [*case.fixed(Fraction(sample, population))]
        for at in (*AT, "-1/50", "-1/3", "-2"):
            truth = max(hockey_stick(world, at) for world in worlds)
            bound = composed(pair, 1, at)
            if not truth - small <= bound <= truth * (1 + mpmath.mpf("1e-9")) + small:
                return False
    return True


@by_day(2)
@pytest.mark.parametrize("name", ["laplace", "gaussian", "coins", "poisson"])
@pytest.mark.parametrize(("sample", "population"), [(1, 10), (3, 4), (5, 5)])
def test_one_pair_lies_above_all_worlds(name: str, sample: int, population: int) -> None:
    assert fixed_pair_holds(CASES[name], sample, population)


def test_one_pair_lies_above_two_rounds_in_any_order() -> None:
    case = Case(noise=CASES["coins"].noise, mass=CASES["coins"].mass, most=1, reach=13)
    pair = FixedSizeSampled(curve=case.replaced(), sample=1, population=4).pair()
    with mpmath.workdps(DIGITS):
        worlds = [*case.fixed("1/4")]
        for at in ("1/50", "1/3"):
            truth = max(
                hockey_stick(twice(one, two), at) for one, two in itertools.product(worlds, worlds)
            )
            bound = composed(pair, 2, at)
            assert truth <= bound + mpmath.mpf("1e-20")
            assert bound <= truth * mpmath.mpf("1.2")


# -- mutants ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("_present", "other * q + gamma * p", "gamma * q + other * p"),
        ("_present", "other * q + gamma * p", "gamma * p"),
        ("_present", "gamma * loss.expm1()", "gamma**2 * loss.expm1()"),
        ("_present", "(gamma * loss.expm1()).log1p()", "(gamma * loss.exp()).log1p()"),
        ("_present", "losses.append(other.log())", "losses.append(-other.log())"),
        ("_present", "hidden=gamma * listed.hidden", "hidden=0 * listed.hidden"),
        ("_absent", "-(gamma * (-loss).expm1())", "(gamma * (-loss).expm1())"),
        ("_absent", "gamma, top = 1 - kept, -kept.log()", "gamma, top = kept, -kept.log()"),
        ("_absent", "masses.append(listed.hidden)", "masses.append(0 * listed.hidden)"),
    ],
)
def test_mutants_of_the_pairs_are_caught(
    monkeypatch: pytest.MonkeyPatch, name: str, old: str, new: str
) -> None:
    # The larger direction hides what is wrong with the other: each is looked at by itself.
    case, rate = CASES["coins"], "1/3"

    def kept() -> bool:
        sampled = PoissonSampled(curve=case.added(), rate=rate)
        with mpmath.workdps(DIGITS):
            worlds = [*case.poisson(rate)]
            return all(
                same(composed(pair, 1, at), hockey_stick(world, at))
                for pair, world in zip(sampled.pairs(), worlds[:2], strict=True)
                for at in AT
            )

    assert kept()
    monkeypatch.setattr(sampled_pair, name, mutated(getattr(sampled_pair, name), old, new))
    assert not kept()


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
    monkeypatch.setattr(FixedSizeSampled, "pair", mutated(FixedSizeSampled.pair, old, new))
    assert not kept()
