"""Tests of pairs of one-sided laws: the directions differ, and each hides a mass from the other."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

import mpmath
import pytest
from flint import arb

from accounting import PrivacyCurve
from accounting.law_pairs.counts import BinomialPair, PoissonPair, PolyaPair
from accounting.law_pairs.one_sided import OneSidedPair
from accounting.law_pairs.polya import RevealingPair
from accounting.law_pairs.registry import candidates, pair_of
from accounting.pairs.enclose import narrowed
from dpcore import Noise, Sensitivity
from dpcore.laws.binomial import Binomial
from dpcore.laws.poisson import Poisson
from dpcore.laws.polya import Polya
from dpcore.numbers.enclosure import Enclosure, precision
from tests.support.accounting.brute_force import close
from tests.support.accounting.brute_force_pairs import Worlds, agrees, binomial, poisson, polya

POINTS = ("0", "1/1000", "1/10", "1/3", "1", "5/2", "7")


def coins(trials: int, chance: str, most: int) -> tuple[Noise, Worlds]:
    noise = Binomial(trials=trials, probability=chance)
    return noise, Worlds(mass=binomial(trials, chance), most=most, low=0, high=trials)


CASES: list[tuple[Noise, Worlds]] = [
    (Poisson(mean="7/2"), Worlds(mass=poisson("7/2"), most=3, low=0, high=70)),
    (Poisson(mean=20), Worlds(mass=poisson(20), most=2, low=0, high=130)),
    (Poisson(mean="1/3"), Worlds(mass=poisson("1/3"), most=1, low=0, high=40)),
    coins(12, "1/2", 3),
    coins(25, "1/5", 2),
    coins(9, "5/6", 4),
    (Polya(shape="5/2", scale=2), Worlds(mass=polya("5/2", 2), most=3, low=0, high=180)),
    (Polya(shape=7, scale="1/2"), Worlds(mass=polya(7, "1/2"), most=2, low=0, high=60)),
    (Polya(shape=1, scale=2), Worlds(mass=polya(1, 2), most=3, low=0, high=160)),
    (Polya(shape="1/3", scale=2), Worlds(mass=polya("1/3", 2), most=2, low=0, high=160)),
]  # fmt: skip
IDS = [repr(noise) for noise, _ in CASES]


@pytest.mark.parametrize(("noise", "brute"), CASES, ids=IDS)
def test_what_is_hidden_costs_an_infinite_epsilon(noise: Noise, brute: Worlds) -> None:
    ours = PrivacyCurve(noise=noise, sensitivity=brute.most)
    with mpmath.workdps(50):
        low = mpmath.fsum(brute.mass(k) for k in range(brute.most))
        high = mpmath.fsum(brute.mass(brute.high - k) for k in range(brute.most))
        shown = ours.enclose_tradeoff(0)
        assert close(shown, 1 - max(low, high))
    hidden = 1 - Fraction(shown.upper)
    assert ours.enclose_epsilon(hidden * Fraction(999, 1000)) == Enclosure.infinite()
    assert ours.epsilon(hidden * Fraction(1001, 1000)).upper < math.inf
    assert (
        ours.enclose_epsilon(0)
        == ours.enclose_renyi("3/2")
        == ours.enclose_zcdp()
        == Enclosure.infinite()
    )
    assert ours.pure().lower == math.inf


def test_a_fair_coin_has_one_direction() -> None:
    fair = candidates(Binomial(trials=20, probability="1/2"), Sensitivity(2))
    assert len(fair) == 1
    assert len(candidates(Binomial(trials=20, probability="1/3"), Sensitivity(2))) == 2
    assert len(candidates(Poisson(mean=3), Sensitivity(2))) == 2
    one, other = (
        BinomialPair(
            noise=Binomial(trials=20, probability="1/2"),
            shift=2, mirrored=mirrored,
        )
        for mirrored in (True, False)
    )  # fmt: skip
    with precision(128):
        for epsilon in map(Fraction, POINTS):
            assert one.delta(epsilon).overlaps(other.delta(epsilon))


@pytest.mark.parametrize("shift", [21, 30])
def test_disjoint_supports_have_no_privacy(shift: int) -> None:
    ours = PrivacyCurve(noise=Binomial(trials=20, probability="1/3"), sensitivity=shift)
    assert 1 in ours.enclose_delta(5)
    assert ours.enclose_delta(5).width < Fraction(1, 2**60)
    assert ours.enclose_epsilon("999/1000") == Enclosure.infinite()
    assert ours.enclose_tradeoff(0) == ours.enclose_tradeoff("1/2") == Enclosure.exactly(0)


def test_ties_of_rational_odds_are_settled() -> None:
    # Binomial(3, 1/2): p = (1, 3, 3, 1)/8, whose loss at 1 is exactly 0.
    ours = PrivacyCurve(noise=Binomial(trials=3, probability="1/2"), sensitivity=1)
    assert ours.enclose_delta(0) == Enclosure.exactly(Fraction(3, 8))
    assert ours.enclose_epsilon("3/8") == Enclosure.exactly(0)
    # At the hidden mass itself epsilon is the largest finite loss, log 3.
    with mpmath.workdps(50):
        assert close(ours.enclose_epsilon("1/8"), mpmath.log(3), relative="1e-18")
    assert ours.enclose_epsilon("0.1249999") == Enclosure.infinite()
    even = PrivacyCurve(noise=Poisson(mean=4), sensitivity=1)
    assert even.epsilon(even.enclose_delta(0).upper).upper < Fraction(1, 2**40)


def delta_of(pair: OneSidedPair | RevealingPair, epsilon: str) -> Enclosure:
    return narrowed(partial(pair.delta, Fraction(epsilon)), 64)


def holds(pair: OneSidedPair, brute: Worlds, *, both: bool = True) -> bool:
    def delta(epsilon: str) -> Enclosure:
        found = [delta_of(pair, epsilon)]
        if both:
            other = pair.mirror()
            assert isinstance(other, OneSidedPair)
            found.append(delta_of(other, epsilon))
        return max(found, key=lambda one: one.upper)

    return agrees(delta, brute.delta, POINTS)


def poisson_pair(kind: type[PoissonPair], mean: str = "7/2", shift: int = 3) -> PoissonPair:
    return kind(noise=Poisson(mean=mean), shift=shift)


class NothingHidden(PoissonPair):
    """A mutant that omits the mass which the other dataset never produces."""

    def tails(self, m: int) -> tuple[arb, arb]:
        gap, rest = PoissonPair.tails(self, m)
        return (gap - self.noise.cdf_ball(self.shift - 1), rest) if self.mirrored else (gap, rest)


class LateRay(PoissonPair):
    def loss(self, m: int) -> arb:
        return PoissonPair.loss(self, m - 1)


class Upright(PoissonPair):
    """A mutant that does not reflect the law."""

    def tails(self, m: int) -> tuple[arb, arb]:
        upright = poisson_pair(PoissonPair).mirror()
        assert isinstance(upright, PoissonPair)
        return upright.tails(m)


def test_a_broken_poisson_pair_is_caught() -> None:
    brute = CASES[0][1]
    assert holds(poisson_pair(PoissonPair), brute)
    for kind in (NothingHidden, LateRay, Upright):
        assert not holds(poisson_pair(kind), brute)
    assert not holds(poisson_pair(PoissonPair, shift=2), brute)
    assert not holds(poisson_pair(PoissonPair, mean="3.5000001"), brute)


def test_either_direction_alone_is_caught() -> None:
    # Few heads hide their mass at the bottom, many at the top: neither direction alone is enough.
    for trials, chance, suffices in ((25, "1/5", True), (25, "4/5", False)):
        noise = Binomial(trials=trials, probability=chance)
        brute = Worlds(mass=binomial(trials, chance), most=2, low=0, high=trials)
        pair = pair_of(noise, 2)
        assert isinstance(pair, BinomialPair)
        other = pair.mirror()
        assert isinstance(other, BinomialPair)
        assert holds(pair, brute)
        assert holds(pair, brute, both=False) is suffices
        assert holds(other, brute, both=False) is not suffices


def test_the_direct_direction_of_polya_noise_is_pure_and_not_enough() -> None:
    noise, brute = CASES[6]
    pair = pair_of(noise, 3)
    assert isinstance(pair, PolyaPair)
    direct = pair.mirror()
    assert isinstance(direct, PolyaPair)
    assert direct.largest_loss() == Enclosure.exactly(Fraction(3, 2))
    with precision(96):
        assert direct.delta(Fraction(3, 2)) == 0
    assert not holds(direct, brute, both=False)


def test_a_shape_of_1_or_less_is_all_or_nothing() -> None:
    noise, brute = CASES[9]
    pair = pair_of(noise, 2)
    assert isinstance(pair, RevealingPair)
    found = {delta_of(pair, epsilon) for epsilon in POINTS}
    assert len(found) == 1
    wrong = RevealingPair(noise=noise, shift=1)
    assert not agrees(partial(delta_of, wrong), brute.delta, POINTS)
