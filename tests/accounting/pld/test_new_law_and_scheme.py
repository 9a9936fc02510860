r"""Test of CONTRIBUTING.md: a new law needs only a density, a new scheme only a list of pairs.

The examples are not in the package: logistic noise, and rounds with a public random sampling rate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest
from flint import arb

from accounting.amplification.subsampling import SampledRelease, both_ways
from accounting.composition.compose import compose
from accounting.descriptions.description import Description
from accounting.descriptions.real_noise import Gaussian
from accounting.descriptions.sampling_schemes import Scheme
from accounting.pld.discretise_round import Tables
from accounting.pld.finite_pld import Floats
from accounting.pld.noise_density import Density, NormalDensity
from accounting.pld.real_cells import RealPair
from accounting.privacy_curves.dominating_pairs import ComposedLoss, DominatingPairs
from dpcore.mechanism import Relation
from dpcore.numbers.enclosure import ball
from tests.support.accounting.bound_ends import ends


@dataclass(frozen=True, slots=True)
class LogisticDensity(Density):
    r"""sech^2(x/2s)/4s: t(x) = 2 log cosh(x/2s). dP/dQ of shifts is monotone, as t is convex."""

    scale: Fraction

    @property
    def deviation(self) -> float:
        return 1.8 * float(self.scale)

    @property
    def reach(self) -> float:
        return 700.0 * float(self.scale)

    @property
    def kinks(self) -> bool:
        return False

    def height(self) -> arb:
        return 1 / (4 * ball(self.scale))

    def exponent(self, x: Floats) -> Floats:
        y = np.abs(x) / float(2 * self.scale)
        near = np.minimum(y, 1.0)
        far = 2 * (y - np.log(2.0) + np.log1p(np.exp(-2 * y)))
        found: Floats = np.where(y < 1, 2 * np.log1p(2 * np.sinh(near / 2) ** 2), far)
        return found

    def slope(self, x: Floats) -> Floats:
        found: Floats = np.tanh(np.abs(x) / float(2 * self.scale)) / float(self.scale)
        return found * (1 + 2.0**-30)

    def step(self, j: int, x: Floats) -> Floats:
        return self.exponent(x) - self.exponent(x - j)

    def step_at(self, j: int, *, right: bool) -> float:
        return float(j / self.scale) * (1 if right else -1)

    def grown(self, x: arb, j: int) -> arb:
        here, there = ((ball(1 / (2 * self.scale)) * y).cosh() for y in (x, x - j))
        return (here / there) ** 2

    def leading(
        self, terms: tuple[tuple[Fraction, int], ...], *, right: bool
    ) -> tuple[int, Callable[[], arb]]:
        rate = 1 / self.scale if right else -1 / self.scale
        return 0, lambda: sum((ball(w) * ball(rate * j).exp() for w, j in terms), arb(0))

    def longest(self, x: Floats) -> Floats:
        # The nearest singularity is at pi s; on the ellipse |Im x| <= 0.6 s.
        return np.full_like(x, 0.1 * float(self.scale))

    def tail(self, x: arb) -> arb:
        return 1 / (1 + (x / ball(self.scale)).exp())


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicRates(Scheme):
    r"""Poisson samples whose rate is one of ``rates``, drawn evenly and published each round."""

    name: ClassVar[str] = "public-rates"
    words: ClassVar[dict[Relation, str]] = {Relation.ADD_REMOVE: "public-rates"}

    rates: tuple[Fraction, ...]


class PublicRatesSample(SampledRelease):
    theorem: ClassVar[str] = "the rate is drawn independently of the data"

    @property
    def directions(self) -> tuple[Tables, ...]:
        scheme = self.description.scheme
        assert isinstance(scheme, PublicRates)
        share = Fraction(1, len(scheme.rates))
        pairs = (RealPair.sampled(self.density, rate) for rate in scheme.rates)
        return both_ways(*pairs, chances=(share,) * len(scheme.rates))


def with_rates(*rates: Fraction) -> PublicRatesSample:
    asked = Description(noise=Gaussian(sigma=1), scheme=PublicRates(rates=rates))
    return PublicRatesSample(description=asked)


def hockey_stick(pairs: list[tuple[Any, Any]], epsilon: Any) -> Any:
    r"""Sum over two independent rounds on grids of outputs: sum (pp' - e^epsilon qq')+."""
    total = 0.0
    for (p, q), (r, s) in product(pairs, pairs):
        apart = np.multiply.outer(p, r) - np.exp(epsilon) * np.multiply.outer(q, s)
        total += float(np.maximum(apart, 0).sum())
    return total


def test_a_new_law_is_accounted_for() -> None:
    density, rate = LogisticDensity(Fraction(1)), Fraction(1, 4)
    pair = RealPair.sampled(density, rate)
    ways = DominatingPairs.tabled(((Fraction(1), pair),))
    x = np.arange(-25, 26, 0.025) + 0.0125
    here, there = (0.025 / (4 * np.cosh((x - j) / 2) ** 2) for j in (0, 1))
    rows = [(0.75 * here + 0.25 * there, here)]
    for epsilon in (0.05, 0.25):
        upper, lower = (
            ComposedLoss.of([(laws[0][0][0], 2)]).delta(Fraction(epsilon), Fraction(1, 10**6))
            for laws in (ways.above, ways.attained)
        )
        exact = hockey_stick(rows, epsilon)
        assert float(lower.lower) <= exact * (1 + 1e-5)
        assert float(upper.upper) >= exact * (1 - 1e-5)
        assert float(upper.upper) == pytest.approx(float(lower.lower), rel=1e-5)


def test_a_new_sampling_scheme_is_accounted_for() -> None:
    source = with_rates(Fraction(1, 10), Fraction(1, 2))
    x = np.arange(-9, 10, 0.04) + 0.02
    here, there = (0.04 * np.exp(-((x - j) ** 2) / 2) / np.sqrt(2 * np.pi) for j in (0, 1))
    rows = [(((1 - r) * here + r * there) / 2, here / 2) for r in (0.1, 0.5)]
    swapped = [(q, p) for p, q in rows]
    total = compose((source, 2))
    for epsilon in ("1/4", "1"):
        found = ends(total.delta(epsilon))  # the last one is compared with the mutant below
        exact = max(hockey_stick(each, float(Fraction(epsilon))) for each in (rows, swapped))
        assert float(found.lower) <= exact * (1 + 1e-4)
        assert float(found.upper) >= exact * (1 - 1e-4)
        assert found.upper - found.lower <= found.upper / 10**5
    # The mutant: the mean of both rates, without publishing the rate, costs less.
    mean = compose((with_rates(Fraction(3, 10)), 2))
    assert mean.delta(1).upper < found.lower
    assert source.density == NormalDensity(Fraction(1))
