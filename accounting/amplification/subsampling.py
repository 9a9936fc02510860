r"""Privacy amplification by subsampling: a release from a secret random sample.

Let gamma be the probability that a given unit is in the sample. Let P and Q be the laws of the
release without sampling under two neighbouring datasets, and delta(epsilon) the privacy curve of
this pair. The curve delta' of the release from a sample satisfies

    delta'(log(1 + gamma (e^epsilon - 1))) = gamma delta(epsilon),  epsilon >= 0,

for Poisson sampling if a unit is added or removed, and for samples of a fixed size if a unit is
replaced (Balle, Barthe and Gaboardi 2018, Theorems 8 and 9). Other schemes and compositions need
the pair of output laws itself (:attr:`SampledRelease.directions`). Every round draws a new, secret
sample, independently of earlier rounds. Proofs: docs/proofs/subsampling.md.
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
    r"""A release from a random sample. Each type of sampling scheme has its own subclass."""

    description: Description

    @property
    def scope(self) -> Scope:
        return self.description.scope

    @property
    def curve(self) -> Curve:
        r"""The privacy curve without sampling, for one unit and the relation of the sensitivity."""
        description = self.description
        return curve_of(replace(description, scheme=EVERYONE, relation=description.added, group=1))

    @property
    def unsampled(self) -> OneRelease:
        r"""The release without sampling, whose guarantee also holds with sampling."""
        return curve_of(self.description.unsampled)

    @property
    def density(self) -> Density:
        r"""The density of the real-valued noise, where the sensitivity is the unit of length."""
        return cast("RealCurve", self.curve).density

    @property
    def rate(self) -> Fraction:
        r"""The probability that a unit is in the sample."""
        return Fraction(cast("Poisson | FixedSize", self.description.scheme).rate)

    @property
    def assumptions(self) -> tuple[str, ...]:
        return self.curve.assumptions

    def zcdp(self, relative: RationalLike | None = None) -> Bound:
        r"""An upper bound on rho: rho without sampling, or a bound by the largest loss if smaller.

        Sampling never increases the zCDP parameter rho, because D_alpha is jointly quasi-convex
        (van Erven and Harremoes 2014, Theorem 13). Raises :class:`NotDerived` if neither bound is
        known.
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
    r"""A sampled release whose dominating pairs are known and are defined in each subclass.

    If the noise is real-valued, the privacy curve of one round is computed from these pairs.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def directions(self) -> tuple[Tables, ...]:
        r"""A tuple with one item for each order (D, D') and (D', D) of two neighbouring datasets.

        A round may be a mixture of several cases. Each item lists the probability of every case and
        the pair of output laws that dominates it. The order of the datasets is the same in all
        rounds, so the delta of a composition is at most the maximum over the two orders. There is
        one item if a single pair dominates both orders.
        """

    @property
    def attained(self) -> bool:
        r"""Whether some neighbours have the output laws of :attr:`directions` in every round."""
        return True

    def dominating_pairs(self) -> DominatingPairs:
        r"""The discretised pairs of :attr:`directions`."""
        found = DominatingPairs.tabled(*self.directions)
        return found if self.attained else replace(found, attained=(), aligned=False)

    def enclose_delta(self, epsilon: RationalLike, bits: int = _BITS) -> Enclosure:
        exact = at_least_zero("epsilon", epsilon)
        if not cast("RealCurve", self.curve).in_floats:
            return Enclosure(Fraction(0), self.unsampled.enclose_delta(exact, bits).upper)
        kinds = cast("tuple[Kinds, ...]", self.directions)
        found = narrowed(lambda: _largest_delta(kinds, ball(exact)), bits, _SMALLEST)
        return within(found, Fraction(0), Fraction(1))

    def enclose_epsilon(self, delta: RationalLike, bits: int = _BITS) -> Enclosure:
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
        r"""Enclose the maximum of D_alpha, alpha = ``order`` > 1, over both orders of the datasets.

        The relative width is about 1e-6. Raises :class:`NotDerived` unless :attr:`attained` is
        true; epsilon and delta are always available.
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
    r"""A sampled release whose privacy curve follows from that of the unsampled release."""

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
        return self.curve.default_bits

    def _finer(self, bits: int) -> int:
        # Further digits of the curve without sampling are cheap unless it has a table of cells.
        return bits if self.default_bits < _BITS else bits + 8


class PoissonSample(AmplifiedSample):
    r"""Poisson sampling where neighbours differ by adding or removing a unit."""

    __slots__ = ()

    @property
    def directions(self) -> tuple[Tables, ...]:
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
        r"""Whether some neighbouring datasets have exactly the output laws of :attr:`directions`.

        It is false for a :class:`RevealingPair`, and if the unsampled release has several worst
        shifts or directions, or a worst shift of several coordinates. Then :attr:`directions`
        contains a sample from a pair that dominates all shifts.
        """
        curve = self.curve
        if isinstance(curve, RealCurve):
            return True
        match _candidates(curve):
            case (((pair, 1),),):
                return not isinstance(pair, RevealingPair)
        return False

    def dominating_pairs(self) -> DominatingPairs:
        r"""The pairs of :attr:`directions`, and the pairs from which lower bounds are computed.

        If :attr:`attained` is true, both are the same. Otherwise the pairs of :attr:`directions`
        give only upper bounds, and lower bounds follow from shifts of a single coordinate.
        """
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

    A pair of laws with the privacy curve of this release is known, but neighbouring datasets need
    not have these output laws. So no Renyi divergence is proven, and the upper and the lower bound
    on a composition differ.
    """

    __slots__ = ()

    @property
    def directions(self) -> tuple[Tables, ...]:
        return (((Fraction(1), self.pair()),),)

    @property
    def attained(self) -> bool:
        return False

    def dominating_pairs(self) -> DominatingPairs:
        r"""The dominating pair for upper bounds, and pairs of a Poisson sample for lower bounds.

        A query to which only one unit contributes attains the pairs of the Poisson sample.
        """
        poisson = replace(self.description, scheme=Poisson(rate=self.rate), relation=_ADDED)
        reached = PoissonSample(description=poisson).dominating_pairs().attained
        return replace(of_table(self.pair()), attained=reached)

    def pair(self) -> ConnectTheDotsPair:
        r"""A pair that dominates one round for both orders of the datasets, so bounds compose."""
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

    In the worst case the old and the new unit change the query in opposite directions.
    """

    __slots__ = ()

    theorem: ClassVar[str] = (
        "one pair that dominates all neighbours: advanced joint convexity (Balle, Barthe and "
        "Gaboardi 2018, Theorem 2) and the Neyman-Pearson lemma"
    )

    @property
    def directions(self) -> tuple[Tables, ...]:
        # Swapping the datasets mirrors the pair.
        return (((Fraction(1), RealPair.replaced(self.density, self.rate)),),)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MixedSample(SampledRelease):
    r"""Gaussian noise with a random shift: j times the sensitivity with probability w_j.

    With the scheme :class:`Shifts` the w_j are its weights. With Poisson sampling a group of units
    is added or removed, and w_j is the probability that j of them are in the sample. The worst
    case, in which all of them change the query in the same direction, has exactly this curve.

    Raises :class:`InvalidParameter` if the noise is outside the range of floats, or if the group
    has more than 64 units.
    """

    @property
    def theorem(self) -> str:  # type: ignore[override]  # depends on the scheme
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
        r"""The probability w_j of each shift, j = 0, 1, ..."""
        scheme, k = self.description.scheme, self.description.group
        if isinstance(scheme, Shifts):
            return tuple(Fraction(weight) for weight in scheme.weights)
        rate = self.rate
        return tuple(math.comb(k, j) * rate**j * (1 - rate) ** (k - j) for j in range(k + 1))

    @property
    def directions(self) -> tuple[Tables, ...]:
        return both_ways(RealPair.moved(self.density, self.chances))


def curve_of(description: Description) -> Curve:
    r"""The privacy curve of ``description``, whose sampling scheme is ignored."""
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
    r"""The ``pairs`` with their probabilities ``chances``, and the same for the swapped pairs."""
    swaps = tuple(pair.swapped() for pair in pairs)
    return tuple(tuple(zip(chances, each, strict=True)) for each in (pairs, swaps))


def _candidates(curve: PrivacyCurve) -> tuple[Coordinates, ...]:
    return candidates(curve.noise, Sensitivity.of(curve.sensitivity))


class TruncatedSample(SampledRelease):
    r"""A Poisson sample that is reduced at random to m = ``most`` units if it is larger.

    ``examples`` is the size of the larger dataset if a unit is added or removed, and of both
    datasets if a unit is replaced. Consider one unit. If fewer than ``most`` other units are
    sampled, the unit is in the batch whenever it is sampled, as in a Poisson sample. Otherwise it
    displaces a random one of them with a known probability, and changes the sum by up to twice the
    sensitivity. The upper bound is for a release that also reveals which of the two cases holds.
    The lower bound is for neighbours whose other units all contribute 0.

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
        return cast("TruncatedPoisson", self.description.scheme)

    @property
    def filled(self) -> Enclosure:
        r"""The probability that at least m = ``most`` units other than a given one are sampled."""
        return self._more_than(self.scheme.most - 1, self.scheme.examples - 1)

    @property
    def kept(self) -> Enclosure:
        r"""The probability that a unit is in the batch after truncation.

        It is rate E[min(1, most/K)], where K is the number of sampled units, given that the unit is
        sampled.
        """
        most, examples = self.scheme.most, self.scheme.examples
        filled, cut = self.filled, self._more_than(most, examples)
        low, high = (
            self.rate * (1 - whole) + most * taken / examples
            for whole, taken in ((filled.upper, cut.lower), (filled.lower, cut.upper))
        )
        return Enclosure(low, high)

    @property
    def least(self) -> PoissonSample | ReplacedSample:
        r"""The Poisson sample that gives lower bounds: other units contribute 0 to the query."""
        kind = ReplacedSample if self.description.replaced else PoissonSample
        scheme = Poisson(rate=self.kept.lower)
        return kind(description=replace(self.description, scheme=scheme))

    def parts(self) -> tuple[tuple[Fraction, Fraction, int], ...]:
        r"""The cases of one round, as triples (probability of the case, rate, factor).

        In each case the unit is in the batch with probability ``rate``, and changes the sum by up
        to ``factor`` times the sensitivity. In the first case the other sampled units leave room in
        the batch, in the second they fill it. The probabilities are known only up to the width of
        :attr:`filled`, so a third case has this width as its probability. It is worse than both
        other cases.
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
        r"""The pairs of :attr:`directions` as upper bounds, of :attr:`least` as lower bounds."""
        least = self.least.dominating_pairs()
        if self.directions == self.least.directions:
            return least
        found = SampledRelease.dominating_pairs(self)
        return replace(found, attained=least.attained, aligned=False)

    def enclose_delta(self, epsilon: RationalLike, bits: int = _BITS) -> Enclosure:
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
