r"""Test of CONTRIBUTING.md: a new scheme needs only a list of pairs.

The example is not in the package: rounds with a public random sampling rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar

import numpy as np

from accounting.amplification.subsampling import SampledRelease, both_ways
from accounting.composition.compose import compose
from accounting.descriptions.description import Description
from accounting.descriptions.real_noise import Gaussian
from accounting.descriptions.sampling_schemes import Scheme
from accounting.pld.discretise_round import Tables
from accounting.pld.noise_density import NormalDensity
from accounting.pld.real_cells import RealPair
from dpcore.mechanism import Relation
from tests.support.accounting.bound_ends import ends


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


def test_a_new_sampling_scheme_is_accounted_for() -> None:
    source = with_rates(Fraction(1, 10), Fraction(1, 2))
    x = np.arange(-9, 10, 0.04) + 0.02
    here, there = (0.04 * np.exp(-((x - j) ** 2) / 2) / np.sqrt(2 * np.pi) for j in (0, 1))
    rows = [(((1 - r) * here + r * there) / 2, here / 2) for r in (0.1, 0.5)]
    swapped = [(q, p) for p, q in rows]
    total = compose((source, 2))
    for epsilon in ("1/4", "1"):
        found = ends(total.delta(epsilon))
        exact = max(hockey_stick(each, float(Fraction(epsilon))) for each in (rows, swapped))
        assert float(found.lower) <= exact * (1 + 1e-4)
        assert float(found.upper) >= exact * (1 - 1e-4)
        assert found.upper - found.lower <= found.upper / 10**5
    # The mutant: the mean of both rates, without publishing the rate, costs less.
    mean = compose((with_rates(Fraction(3, 10)), 2))
    assert mean.delta(1).upper < Fraction(total.delta(1).lower or 0)
    assert source.density == NormalDensity(Fraction(1))
