"""The second path for listings of losses: sums of mass functions written anew, both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath
from flint import arb

from accounting.laws.one_sided import OneSidedPair
from accounting.laws.registry import pair_of
from accounting.pairs.listing import Cut, _Gaussian
from accounting.pairs.losses import Losses
from dpcore.laws.binomial import Binomial
from dpcore.laws.discrete_gaussian_sum import DiscreteGaussianSum
from dpcore.laws.poisson import Poisson
from dpcore.laws.polya import Polya
from dpcore.laws.polya_difference import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.noise import Noise
from dpcore.numbers.enclosure import precision
from tests.support.accounting.brute import Mass, gaussian
from tests.support.accounting.worlds import (
    binomial,
    difference,
    gaussian_sum,
    poisson,
    polya,
    skellam,
)

WORKING = 160
DIGITS = 60
TILTS = ("1/100", "1", "7/2", "12")


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """P(k) = p(k) against Q(k) = p(k + move) for all k in low..high, by plain sums."""

    mass: Mass
    move: int
    low: int
    high: int

    def points(self) -> list[tuple[Any, Any]]:
        with mpmath.workdps(DIGITS):
            masses = {
                k: self.mass(k)
                for k in range(self.low - abs(self.move), self.high + abs(self.move) + 1)
            }
            return [(masses[k], masses[k + self.move]) for k in range(self.low, self.high + 1)]

    def hidden(self) -> Any:
        with mpmath.workdps(DIGITS):
            return mpmath.fsum(p for p, q in self.points() if q == 0)

    def moment(self, c: str) -> Any:
        """E[e^(cL); L < oo]."""
        with mpmath.workdps(DIGITS):
            tilt = mpmath.mpf(Fraction(c).numerator) / Fraction(c).denominator
            return mpmath.fsum(p * (p / q) ** tilt for p, q in self.points() if p and q)

    def largest(self) -> Any:
        with mpmath.workdps(DIGITS):
            return max((mpmath.log(p / q) for p, q in self.points() if p and q), default=0)


def ball_of(value: Any, relative: str = "1e-40") -> arb:
    """The ball of a number that mpmath knows to a relative error."""
    with mpmath.workdps(DIGITS):
        text = mpmath.nstr(value, DIGITS)
    return arb(text) * (1 + arb(0, arb(relative)))


def moment(listing: Losses, c: str) -> arb:
    tilt = arb(Fraction(c).numerator) / Fraction(c).denominator
    terms = zip(listing.masses, listing.losses, strict=True)
    return sum((mass * (tilt * loss).exp() for mass, loss in terms), arb(0))


def faithful(listing: Losses, truth: Truth, tilts: tuple[str, ...] = TILTS) -> bool:
    """Whether nothing is lost: the masses add to 1, and each moment lies below what is said."""
    with precision(WORKING):
        total = sum(listing.masses, arb(0)) + listing.hidden
        if total > 1 or total + listing.beyond(arb(0)) < 1:
            return False
        if not listing.hidden.overlaps(ball_of(truth.hidden())):
            return False
        if listing.largest < ball_of(truth.largest()):
            return False
        for c in ("0", *tilts):
            listed, exact = moment(listing, c), ball_of(truth.moment(c))
            rest = listing.beyond(arb(Fraction(c).numerator) / Fraction(c).denominator)
            if listed > exact or listed + rest < exact:
                return False
    return True


def pair(noise: Noise, shift: int, direct: bool = False) -> Any:
    found = pair_of(noise, ((shift, 1),))
    return found.mirror() if direct else found


def polya_difference(shape: str, scale: str) -> Mass:
    return difference(polya(shape, scale), 240)


SKELLAM = pair(Skellam(variance=4), 3), Truth(mass=skellam(4), move=3, low=-90, high=150)
RICH = (
    pair(PolyaDifference(shape="5/2", scale=1), 2),
    Truth(mass=polya_difference("5/2", "1"), move=2, low=-110, high=110),
)
LEAN = (
    pair(PolyaDifference(shape="1/2", scale=1), 2),
    Truth(mass=polya_difference("1/2", "1"), move=2, low=-110, high=110),
)
SUM = (
    pair(DiscreteGaussianSum(count=3, sigma_squared="3/4"), 2),
    Truth(mass=gaussian_sum(3, "3/4"), move=2, low=-60, high=60),
)
WIDE_SUM = (
    pair(DiscreteGaussianSum(count=2, sigma_squared=9), 3),
    Truth(mass=gaussian_sum(2, 9), move=3, low=-120, high=120),
)
POISSON = (
    pair(Poisson(mean=9), 2),
    Truth(mass=poisson(9), move=-2, low=0, high=140),
)
DIRECT_POISSON = (
    pair(Poisson(mean=9), 2, direct=True),
    Truth(mass=poisson(9), move=2, low=0, high=200),
)
COINS = (
    pair(Binomial(trials=60, probability="1/3"), 2),
    Truth(mass=binomial(60, "1/3"), move=-2, low=0, high=60),
)
DIRECT_COINS = (
    pair(Binomial(trials=60, probability="1/3"), 2, direct=True),
    Truth(mass=binomial(60, "1/3"), move=2, low=0, high=60),
)
ONE_SIDED = (
    pair(Polya(shape="15/2", scale=2), 2),
    Truth(mass=polya("15/2", 2), move=-2, low=0, high=260),
)
DIRECT_ONE_SIDED = (
    pair(Polya(shape="15/2", scale=2), 2, direct=True),
    Truth(mass=polya("15/2", 2), move=2, low=0, high=260),
)
CASES = {
    "skellam": SKELLAM,
    "rich": RICH,
    "lean": LEAN,
    "sum": SUM,
    "wide sum": WIDE_SUM,
    "poisson": POISSON,
    "direct poisson": DIRECT_POISSON,
    "binomial": COINS,
    "direct binomial": DIRECT_COINS,
    "polya": ONE_SIDED,
    "direct polya": DIRECT_ONE_SIDED,
    "gaussian": (
        _Gaussian(Fraction(5), 2),
        Truth(mass=gaussian(5), move=2, low=-80, high=110),
    ),
}
ENDS = ((-12, 14), (-30, 20), (-16, 40))
VALUES = ((2, 14), (5, 30), (8, 50))
MIRRORED = ("poisson", "binomial", "polya")


def cuts(name: str, cut: Callable[..., Cut]) -> Iterator[Cut]:
    """A few cuts, too short on both sides; of a law on 0, 1, ... between values k."""
    one = CASES[name][0]
    with precision(WORKING):
        for low, high in VALUES if isinstance(one, OneSidedPair) else ENDS:
            yield cut(one, -high, -low) if name in MIRRORED else cut(one, low, high)


def small_enough(listing: Losses, tilt: Fraction, bits: int) -> bool:
    with precision(WORKING):
        if not listing.beyond(arb(2 * tilt.numerator) / tilt.denominator).is_finite():
            return False
        for part in (1, 2, 5, 9, 10):
            c = tilt * Fraction(part, 10)
            rest = listing.beyond(arb(c.numerator) / c.denominator)
            if not rest <= moment(listing, str(c)) * arb(2) ** -bits:
                return False
    return True
