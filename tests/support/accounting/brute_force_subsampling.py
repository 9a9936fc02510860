"""Neighbouring datasets of subsampled releases: all shifts, both directions, all triples."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from accounting import PrivacyCurve
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson_and_binomial import Binomial, Poisson
from dpcore.laws.skellam import Skellam
from dpcore.mechanism import Relation, Scope
from dpcore.noise import Noise
from tests.support.accounting.brute_force import World, mass_of, real
from tests.support.accounting.unregistered_law import Triangle

ADDED = Scope(relation=Relation.ADD_REMOVE)
AT = ("0", "1/50", "1/5", "1", "3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    noise: Noise
    most: int
    reach: int

    def law(self, shift: int) -> list[Any]:
        window = range(-self.reach - self.most, self.reach + self.most + 1)
        return [mass_of(self.noise)(k - shift) for k in window]

    def poisson(self, rate: Fraction | str) -> Iterable[World]:
        """Without the unit the answer is 0; with it, if sampled, any allowed shift."""
        share = real(rate)
        plain = self.law(0)
        for shift in range(-self.most, self.most + 1):
            mixed = [
                (1 - share) * q + share * p for p, q in zip(self.law(shift), plain, strict=True)
            ]
            yield [*zip(mixed, plain, strict=True)]
            yield [*zip(plain, mixed, strict=True)]

    def fixed(self, rate: Fraction | str) -> Iterable[World]:
        """Samples without the unit, with it, or with the one in its place: all are neighbours."""
        share = real(rate)
        laws = {shift: self.law(shift) for shift in range(-self.most, self.most + 1)}
        for one, two in itertools.product(laws, laws):
            if abs(one - two) <= self.most:
                yield [
                    ((1 - share) * r + share * p, (1 - share) * r + share * q)
                    for r, p, q in zip(laws[0], laws[one], laws[two], strict=True)
                ]

    def added(self) -> PrivacyCurve:
        return PrivacyCurve(noise=self.noise, sensitivity=self.most, scope=ADDED)

    def replaced(self) -> PrivacyCurve:
        return PrivacyCurve(noise=self.noise, sensitivity=self.most)


CASES = {
    "laplace": Case(noise=DiscreteLaplace(scale=2), most=2, reach=150),
    "gaussian": Case(noise=DiscreteGaussian(sigma_squared=3), most=1, reach=30),
    "skellam": Case(noise=Skellam(variance=2), most=1, reach=45),
    "coins": Case(noise=Binomial(trials=12, probability="1/2"), most=1, reach=14),
    "triangle": Case(noise=Triangle(half=4), most=1, reach=6),
    "poisson": Case(noise=Poisson(mean=4), most=1, reach=60),
}
