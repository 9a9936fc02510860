r"""Privacy amplification by subsampling: a release from a secret random sample.

A unit is in the sample with probability gamma. P and Q are the laws of the release if its sample
contains the unit and if not, and delta is the curve of this pair. The curve delta' of the sampled
release satisfies

    delta'(log(1 + gamma (e^epsilon - 1))) = gamma delta(epsilon),  epsilon >= 0,

for Poisson sampling if a unit is added or removed, and for samples of a fixed size if a unit is
replaced: Balle, Barthe and Gaboardi (2018), Theorems 8 and 9. For other schemes and for
compositions the pair of output laws itself is needed (``directions``). Every round draws a new,
secret sample, independently of earlier rounds. Proofs: docs/proofs/subsampling.md.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial, reduce
from typing import Any, ClassVar, Final, TypeAlias, cast

from flint import arb

from accounting.descriptions.description import Description
from accounting.descriptions.real_noise import RealNoise
from accounting.descriptions.sampling_schemes import (
    EVERYONE,
    FixedSize,
    Poisson,
    Shifts,
    TruncatedPoisson,
)
from accounting.errors import NotDerived
from accounting.guarantees.bound import Bound
from accounting.guarantees.guarantee import order_above_one, probability
from accounting.law_pairs.discrete_gaussian import GaussianPair
from accounting.law_pairs.registry import Coordinates, candidates
from accounting.law_pairs.skellam_and_polya import RevealingPair
from accounting.pairs.enclose_curve import inverse, largest, narrowed, within
from accounting.pld.discretise_round import LossTable, Sampled, Tables
from accounting.pld.integer_cells import table_of
from accounting.pld.noise_density import Density, IntegerNormalDensity
from accounting.pld.real_cells import Kinds, RealPair
from accounting.pld.renyi_from_pld import largest_renyi
from accounting.privacy_curves.connect_the_dots import (
    ConnectTheDotsPair,
    above_table,
    dominating,
    revealing_or_nothing,
)
from accounting.privacy_curves.dominating_pairs import DominatingPairs, of_table
from accounting.privacy_curves.real_noise_curve import RealCurve
from accounting.privacy_curves.release_curve import NO_RENYI, OneRelease, PrivacyCurve
from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.mechanism import Relation, Scope, Sensitivity
from dpcore.numbers.enclosure import Enclosure, ball, precision
from dpcore.numbers.parameter import RationalLike, at_least_zero

Curve: TypeAlias = PrivacyCurve | RealCurve

_ADDED: Final = Relation.ADD_REMOVE
_BITS: Final = 64
_FINEST: Final = 200
_LEAST_SQUARE: Final = 50**2
"""The least variance at which a discrete Gaussian is divided into cells (see ``_FINEST``)."""

_SMALLEST: Final = Fraction(1, 1 << 2000)
_SPARE: Final = 64
_CHANCE_BITS: Final = 192
_TRIES: Final = 4
_DOTS: Final = 1500
_CONVEX: Final = "the cost without sampling (van Erven and Harremoes 2014, Theorem 13)"
MOST_MEMBERS: Final = 64
"""The largest supported group size with sampling."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DescribedSample(OneRelease):
    r"""A release from a random sample; there is one subclass for each kind of sampling scheme."""

    description: Description

    @property
    def scope(self) -> Scope:
        return self.description.scope

    @property
    def curve(self) -> Curve:
        r"""The curve without sampling, for one unit and the relation of the sensitivity."""
        description = self.description
        return curve_of(replace(description, scheme=EVERYONE, relation=description.added, group=1))

    @property
    def unsampled(self) -> OneRelease:
        r"""The release without sampling, whose loss is an upper bound."""
        return curve_of(self.description.unsampled)

    @property
    def density(self) -> Density:
        r"""The density of the real-valued noise, in units of the sensitivity."""
        return cast("RealCurve", self.curve).density

    @property
    def rate(self) -> Fraction:
        r"""The probability that a unit is in the sample."""
        return Fraction(cast("Poisson | FixedSize", self.description.scheme).rate)

    @property
    def assumptions(self) -> tuple[str, ...]:
        return self.curve.assumptions

    def zcdp(self, relative: RationalLike | None = None) -> Bound:
        r"""The zCDP parameter without sampling, or from the largest loss if that is smaller.

        Sampling never costs more, as D_alpha is jointly quasi-convex (van Erven and Harremoes 2014,
        Theorem 13). Raises :class:`NotDerived` if neither is known.
        """
        try:
            whole = self.unsampled.zcdp(relative)
        except (NotDerived, InvalidParameter):
            return OneRelease.zcdp(self, relative)
        found = replace(whole, lower=None, theorem=_CONVEX, assumptions=self.assumptions)
        with suppress(NotDerived):
            return min(found, OneRelease.zcdp(self, relative), key=lambda bound: bound.upper)
        return found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.description.text!r})"


class SampledRelease(DescribedSample):
    r"""A sampled release whose dominating pairs are known; each subclass defines them.

    The curve of a single round is computed from these pairs, if the noise is real-valued.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def directions(self) -> tuple[Tables, ...]:
        r"""For each order of the two datasets, the (probability, pair) of each kind of round.

        The order of the datasets is the same in all rounds, so a composition costs at most the
        maximum over the two orders.
        """

    @property
    def attained(self) -> bool:
        r"""Whether some neighbouring datasets attain these pairs in every round."""
        return True

    def dominating_pairs(self) -> DominatingPairs:
        r"""The discretised pairs of each direction."""
        found = DominatingPairs.tabled(*self.directions)
        return found if self.attained else replace(found, attained=(), aligned=False)

    def enclose_delta(self, epsilon: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""Enclose the delta at ``epsilon`` >= 0: the largest one over all directions."""
        exact = at_least_zero("epsilon", epsilon)
        if not cast("RealCurve", self.curve).in_floats:
            return Enclosure(Fraction(0), self.unsampled.enclose_delta(exact, bits).upper)
        kinds = cast("tuple[Kinds, ...]", self.directions)
        found = narrowed(lambda: _largest_delta(kinds, ball(exact)), bits, _SMALLEST)
        return within(found, Fraction(0), Fraction(1))

    def enclose_epsilon(self, delta: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""Enclose the epsilon at ``delta`` in [0, 1]: the largest one over all directions."""
        most = probability("delta", delta)
        if most == 1:
            return Enclosure.exactly(0)
        if not cast("RealCurve", self.curve).in_floats:
            return Enclosure(Fraction(0), self.unsampled.enclose_epsilon(most, bits).upper)
        directions = cast("tuple[Kinds, ...]", self.directions)
        if most == 0:
            return largest(pair.largest_loss() for kinds in directions for _, pair in kinds)
        return inverse(partial(_largest_delta, directions), most, bits)

    def enclose_renyi(self, order: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""Enclose the largest D_alpha, alpha = ``order`` > 1, over all directions.

        The relative width is about 1e-6. Raises :class:`NotDerived` if no neighbouring datasets are
        known to attain these pairs; epsilon and delta are always available.
        """
        exact = order_above_one(order)
        if not self.attained:
            raise NotDerived(f"the Renyi divergence of order {exact} of {self!r}", NO_RENYI)
        try:
            return largest_renyi(self.directions, exact, bits)
        except PrecisionExhausted:
            # The ratios are outside the range of floats: sampling never costs more.
            return Enclosure(Fraction(0), self.unsampled.enclose_renyi(exact, bits).upper)


class AmplifiedSample(SampledRelease):
    r"""A sample whose curve is that of the unsampled release at a transformed epsilon."""

    __slots__ = ()

    theorem: ClassVar[str] = (
        "the curve of the noise; Balle, Barthe and Gaboardi 2018, Theorems 8 and 9"
    )

    def enclose_delta(self, epsilon: RationalLike, bits: int = _BITS) -> Enclosure:
        at, rate, working = at_least_zero("epsilon", epsilon), self.rate, bits + _SPARE
        finer = self._finer(bits)
        while True:
            with precision(working):
                inner = Enclosure.of((ball(at).expm1() / ball(rate)).log1p())
            # delta is non-increasing in epsilon.
            most, least = (
                self.curve.enclose_delta(Fraction(end), finer) for end in (inner.lower, inner.upper)
            )
            found = within(Enclosure(least.lower, most.upper), Fraction(0), Fraction(1))
            narrow = found.upper - found.lower <= found.upper / 2**bits
            if narrow or finer == bits or working > _TRIES * (bits + _SPARE):
                return Enclosure(rate * found.lower, rate * found.upper)
            working *= 2

    def enclose_epsilon(self, delta: RationalLike, bits: int = _BITS) -> Enclosure:
        share = min(probability("delta", delta) / self.rate, Fraction(1))
        inner = self.curve.enclose_epsilon(share, self._finer(bits))
        with precision(bits + _SPARE):
            least, most = (
                Enclosure.of((ball(self.rate) * ball(end).expm1()).log1p())
                if isinstance(end, Fraction)
                else Enclosure.infinite()
                for end in (inner.lower, inner.upper)
            )
        return within(Enclosure(least.lower, most.upper), Fraction(0), math.inf)

    @property
    def default_bits(self) -> int:
        r"""The default precision in bits, that of the curve without sampling."""
        return self.curve.default_bits

    def _finer(self, bits: int) -> int:
        # Further digits of the curve without sampling are cheap unless it has a table of cells.
        return bits if self.default_bits < _BITS else bits + 8


class PoissonSample(AmplifiedSample):
    r"""Poisson sampling where neighbours differ by adding or removing a unit."""

    __slots__ = ()

    @property
    def directions(self) -> tuple[Tables, ...]:
        r"""Both directions: the unit is in the first dataset, or in the second."""
        rate, curve = self.rate, self.curve
        if isinstance(curve, RealCurve):
            return both_ways(curve.pair(rate))
        match products := _candidates(curve):
            case (((GaussianPair(noise=noise, shift=step), 1),),):
                squared = Fraction(noise.sigma_squared)
                if squared >= max(_FINEST * step, _LEAST_SQUARE):
                    return both_ways(RealPair.sampled(IntegerNormalDensity(squared), rate, step))
        base = table_of(products[0][0][0]) if self.attained else dominating(products)
        return self._both_ways(base)

    @property
    def attained(self) -> bool:
        r"""Whether some neighbouring datasets attain these pairs in every round.

        False for a :class:`RevealingPair`, or if the worst shift is not unique or changes several
        coordinates: the pairs are then samples of one pair that dominates all shifts.
        """
        curve = self.curve
        if isinstance(curve, RealCurve):
            return True
        match _candidates(curve):
            case (((pair, 1),),):
                return not isinstance(pair, RevealingPair)
        return False

    def dominating_pairs(self) -> DominatingPairs:
        r"""The pairs of each direction; shifts of a single coordinate give the lower bounds."""
        found = SampledRelease.dominating_pairs(self)
        if self.attained:
            return found
        products = _candidates(cast("PrivacyCurve", self.curve))
        pairs = [each[0][0] for each in products if each[0][1] == len(each) == 1]
        tables = [
            revealing_or_nothing(pair, above=False)
            if isinstance(pair, RevealingPair)
            else table_of(pair)
            for pair in pairs
        ]
        reached = (kinds for table in tables for kinds in self._both_ways(table))
        return replace(found, attained=DominatingPairs.tabled(*reached).attained)

    def _both_ways(self, base: LossTable) -> tuple[Tables, ...]:
        sampled = (Sampled(base=base, rate=self.rate, present=at) for at in (True, False))
        return tuple(((Fraction(1), each),) for each in sampled)


class FixedSizeSample(AmplifiedSample):
    r"""A sample of fixed size, drawn without replacement; neighbours differ in one replaced unit.

    A pair with this curve exists, but neighbours need not attain it. So no Renyi divergence is
    proven, and the upper and lower bounds on compositions differ.
    """

    __slots__ = ()

    @property
    def directions(self) -> tuple[Tables, ...]:
        r"""One direction: a pair that dominates both orders of the datasets."""
        return (((Fraction(1), self.pair()),),)

    @property
    def attained(self) -> bool:
        r"""False: neighbours need not attain the pair."""
        return False

    def dominating_pairs(self) -> DominatingPairs:
        r"""The dominating pair for upper bounds; for lower bounds the pairs of a Poisson sample.

        A query to which only one unit contributes has the pairs of a Poisson sample.
        """
        poisson = replace(self.description, scheme=Poisson(rate=self.rate), relation=_ADDED)
        reached = PoissonSample(description=poisson).dominating_pairs().attained
        return replace(of_table(self.pair()), attained=reached)

    def pair(self) -> ConnectTheDotsPair:
        r"""A pair that dominates every pair of one round and can be composed."""
        curve, rate = self.curve, self.rate
        if isinstance(curve, RealCurve):
            base = above_table(curve.pair(), _DOTS)
        else:
            base = dominating(_candidates(curve))
        places = [Fraction(1), *(x for x, _ in base.corners if x > 1)]
        right = [(1 + rate * (x - 1), rate * base.height(x)) for x in places]
        # Neighbours occur in both orders: h(1/x) = 1 - 1/x + h(x)/x.
        left = [(1 / x, 1 - (1 - high) / x) for x, high in right]
        return ConnectTheDotsPair.through(left + right)


class ReplacedSample(SampledRelease):
    r"""Poisson sampling with real-valued noise, where neighbours differ in one replaced unit.

    In the worst case the replacement has the opposite effect on the query.
    """

    __slots__ = ()

    theorem: ClassVar[str] = (
        "one pair that dominates all neighbours: advanced joint convexity (Balle, Barthe and "
        "Gaboardi 2018, Theorem 2) and the Neyman-Pearson lemma"
    )

    @property
    def directions(self) -> tuple[Tables, ...]:
        r"""One direction: swapping the datasets mirrors the pair."""
        return (((Fraction(1), RealPair.replaced(self.density, self.rate)),),)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MixedSample(SampledRelease):
    r"""Gaussian noise with a random shift: j times the sensitivity with probability w_j.

    The w_j are either the weights of :class:`Shifts`, or the probabilities that j units of an added
    or removed group are in a Poisson sample. In the worst case all units of the group change the
    query in the same direction; the curve is exact for this case.

    Raises :class:`InvalidParameter` if the noise is outside the range of floats, or if the group
    has more than 64 units.
    """

    @property
    def theorem(self) -> str:  # type: ignore[override]  # depends on the scheme
        r"""The theorem that applies to the scheme."""
        if isinstance(self.description.scheme, Shifts):
            return "the likelihood ratio of shifted to unshifted noise is increasing"
        return (
            "the number of sampled members is binomial, and in the worst case all change the query "
            "in one direction (Neyman-Pearson lemma)"
        )

    def __post_init__(self) -> None:
        cast("RealCurve", self.curve).check_size()
        if self.description.group > MOST_MEMBERS:
            must = f"must be at most {MOST_MEMBERS} with sampling"
            raise InvalidParameter("group", self.description.group, must)

    @property
    def chances(self) -> tuple[Fraction, ...]:
        r"""The probability of each shift."""
        scheme, k = self.description.scheme, self.description.group
        if isinstance(scheme, Shifts):
            return tuple(Fraction(weight) for weight in scheme.weights)
        rate = self.rate
        return tuple(math.comb(k, j) * rate**j * (1 - rate) ** (k - j) for j in range(k + 1))

    @property
    def directions(self) -> tuple[Tables, ...]:
        r"""The randomly shifted noise against the unshifted noise, and the reverse."""
        return both_ways(RealPair.moved(self.density, self.chances))


def curve_of(description: Description) -> Curve:
    r"""The curve of a description without sampling."""
    noise: Any = description.noise
    kind = RealCurve if isinstance(noise, RealNoise) else PrivacyCurve
    return kind(noise=noise, sensitivity=description.moved, scope=description.scope)


def _largest_delta(directions: tuple[Kinds, ...], epsilon: arb) -> arb:
    found = [
        sum((ball(chance) * pair.curve(epsilon) for chance, pair in kinds), arb(0))
        for kinds in directions
    ]
    return reduce(arb.max, found)


def both_ways(
    *pairs: RealPair, chances: tuple[Fraction, ...] = (Fraction(1),)
) -> tuple[Kinds, ...]:
    r"""Both directions of rounds with these pairs: the pairs, and the swapped pairs."""
    swaps = tuple(pair.swapped() for pair in pairs)
    return tuple(tuple(zip(chances, each, strict=True)) for each in (pairs, swaps))


def _candidates(curve: PrivacyCurve) -> tuple[Coordinates, ...]:
    return candidates(curve.noise, Sensitivity.of(curve.sensitivity))


class TruncatedSample(SampledRelease):
    r"""A Poisson sample truncated to ``most`` units: all subsets of that size are equally likely.

    ``examples`` is the size of the larger dataset if a unit is added or removed, and of both
    datasets if a unit is replaced. Consider one unit. If the other sampled units do not fill the
    batch, the round is a Poisson sample. If they do, the unit displaces a random one of them with a
    known probability, and changes the sum by up to twice the sensitivity. A round that also reveals
    which case holds dominates every round and gives the upper bound; the lower bound is for
    neighbours whose other units contribute 0.

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
        r"""The probability that the other sampled units fill a batch."""
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
        r"""The release for neighbours whose other units contribute 0, which gives a lower bound."""
        kind = ReplacedSample if self.description.replaced else PoissonSample
        scheme = Poisson(rate=self.kept.lower)
        return kind(description=replace(self.description, scheme=scheme))

    def parts(self) -> tuple[tuple[Fraction, Fraction, int], ...]:
        r"""The (probability, rate, factor) of each kind of round.

        The unit is in the batch with probability ``rate`` and changes the sum by up to ``factor``
        times the sensitivity. In the first kind the other units do not fill the batch, in the
        second they do. The third kind is worse than both, and covers the uncertainty about their
        probabilities, which is the width of :attr:`filled`.
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
        r"""The pairs of all :meth:`parts`, in one direction if a unit is replaced, else in two."""
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
        r"""Enclose delta: from below with :attr:`least`, from above with the mixture of parts."""
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
