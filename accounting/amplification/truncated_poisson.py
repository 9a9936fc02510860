r"""Poisson samples that are truncated at random to a maximum size: the loss of one round.

Call the record that differs between the datasets *the unit*. Whether the other units alone fill a
batch does not depend on the unit. If they do not, the round is a Poisson sample. If they do, the
unit replaces a random other unit with a known probability: it moves the sum by up to twice as much.
A round that reveals which of the two cases holds dominates every round: "Tighter Privacy Analysis
for Truncated Poisson Sampling" (2025), arXiv 2508.15089. Proofs: docs/proofs/subsampling.md.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import ClassVar, Final, cast

from accounting.amplification.subsampling import (
    PoissonSample,
    ReplacedSample,
    SampledRelease,
    both_ways,
)
from accounting.descriptions.sampling_schemes import Poisson, TruncatedPoisson
from accounting.pld.real_cells import Kinds, RealPair
from accounting.privacy_curves.dominating_pairs import DominatingPairs
from accounting.privacy_curves.real_noise_curve import RealCurve
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.mechanism import Sensitivity
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.parameter import RationalLike

_BITS: Final = 64
_CHANCE_BITS: Final = 192


class TruncatedSample(SampledRelease):
    r"""A Poisson sample truncated to ``most`` units: all subsets of that size are equally likely.

    ``examples`` is the size of the dataset: of the larger one if a unit is added or removed, of
    both if a unit is replaced. The upper bound reveals whether the other units filled the batch;
    the lower bound is for neighbours whose other units contribute 0.

    >>> from accounting.descriptions.description import Description
    >>> from accounting.descriptions.real_noise import Gaussian
    >>> scheme = TruncatedPoisson(rate="1/100", examples=1000, most=12)
    >>> TruncatedSample(description=Description(noise=Gaussian(sigma=2), scheme=scheme)).epsilon(
    ...     "1e-6"
    ... )
    Bound([0.0410..., 0.2177...], 'exact')
    """

    __slots__ = ()

    theorem: ClassVar[str] = (
        "a round that also reveals whether the other units fill the batch (arXiv 2508.15089, 2025)"
    )

    @property
    def scheme(self) -> TruncatedPoisson:
        r"""The scheme of the description."""
        return cast("TruncatedPoisson", self.description.scheme)

    @property
    def filled(self) -> Enclosure:
        r"""The probability that the other units alone fill a batch."""
        return self._more_than(self.scheme.most - 1, self.scheme.examples - 1)

    @property
    def kept(self) -> Enclosure:
        r"""The probability that a unit is in a batch: rate E[min(1, most/sampled) | sampled]."""
        most, examples = self.scheme.most, self.scheme.examples
        filled, cut = self.filled, self._more_than(most, examples)
        low, high = (
            self.rate * (1 - whole) + most * taken / examples
            for whole, taken in ((filled.upper, cut.lower), (filled.lower, cut.upper))
        )
        return Enclosure(low, high)

    @property
    def least(self) -> PoissonSample | ReplacedSample:
        r"""The loss of neighbours whose other units contribute 0 to the query, a lower bound."""
        kind = ReplacedSample if self.description.replaced else PoissonSample
        scheme = Poisson(rate=self.kept.lower)
        return kind(description=replace(self.description, scheme=scheme))

    def parts(self) -> tuple[tuple[Fraction, Fraction, int], ...]:
        r"""The (probability, rate, moves) of the possible rounds: not filled by the other units,
        filled, or unknown.

        The third kind, worse than both, has the mass between the two bounds on ``filled``.
        """
        filled, rate = self.filled, self.rate
        found = (
            (1 - filled.upper, rate, 1),
            (filled.lower, self._kept_if_filled(filled), 2),
            (filled.upper - filled.lower, rate, 2),
        )
        return tuple(
            (Fraction(chance), share, moves) for chance, share, moves in found if chance > 0
        )

    @property
    def directions(self) -> tuple[Kinds, ...]:
        r"""The pair of each part; one direction for replace-one, otherwise two."""
        replaced, curve = self.description.replaced, cast("RealCurve", self.curve)
        make = RealPair.replaced if replaced else RealPair.sampled
        chances, pairs = [], []
        for chance, share, moves in self.parts():
            moved = Sensitivity.of(curve.sensitivity).times(moves)
            chances.append(chance)
            pairs.append(make(replace(curve, sensitivity=moved).density, share))
        found = both_ways(*pairs, chances=tuple(chances))
        return found[:1] if replaced else found

    def dominating_pairs(self) -> DominatingPairs:
        r"""Upper bounds from the kinds of rounds, lower bounds from :attr:`least`."""
        least = self.least.dominating_pairs()
        if self.directions == self.least.directions:
            return least
        found = SampledRelease.dominating_pairs(self)
        return replace(found, attained=least.attained, aligned=False)

    def enclose_delta(self, epsilon: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""Enclose delta: from :attr:`least` below, from the mixture of :meth:`parts` above."""
        low = self.least.enclose_delta(epsilon, bits)
        return Enclosure(low.lower, SampledRelease.enclose_delta(self, epsilon, bits).upper)

    def enclose_renyi(self, order: RationalLike, bits: int = _BITS) -> Enclosure:
        low = self.least.enclose_renyi(order, bits)
        return Enclosure(low.lower, SampledRelease.enclose_renyi(self, order, bits).upper)

    def enclose_epsilon(self, delta: RationalLike, bits: int = _BITS) -> Enclosure:
        low = self.least.enclose_epsilon(delta, bits)
        return Enclosure(low.lower, SampledRelease.enclose_epsilon(self, delta, bits).upper)

    def _more_than(self, count: int, units: int) -> Enclosure:
        # The probability that more than `count` of `units` units are sampled.
        if count >= units:
            return Enclosure.exactly(0)
        if self.rate == 1:
            return Enclosure.exactly(1)
        return Binomial(trials=units, probability=self.rate).enclose_sf(count, _CHANCE_BITS)

    def _kept_if_filled(self, filled: Enclosure) -> Fraction:
        # An upper bound: a unit is kept at most as often as it is sampled.
        if filled.lower == 0:
            return self.rate
        most, examples = self.scheme.most, self.scheme.examples
        cut = Fraction(self._more_than(most, examples).upper)
        return min(most * cut / (examples * Fraction(filled.lower)), self.rate)
