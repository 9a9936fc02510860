r"""Privacy amplification by subsampling: a release from a secret random sample.

With gamma the chance of a unit to be in the sample, and (P, Q) the worlds of a release whose sample
does or does not hold that unit, the sample hides the unit with probability 1 - gamma:

    delta'(log(1 + gamma (e^epsilon - 1))) = gamma delta(epsilon),  epsilon >= 0.

This holds for Poisson sampling when a unit is added or removed, and for samples of a fixed size
when a unit is replaced: Balle, Barthe and Gaboardi (2018), Theorems 8 and 9. Composition needs
pairs of laws (``directions``). Every round draws its sample anew, independently of all before,
and keeps it secret; a unit is that of the scope. Proofs: docs/proofs/sampling.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Final

from accounting.claims.guarantee import at_least_zero, order_above_one, probability
from accounting.errors import NotDerived
from accounting.laws.gaussian import GaussianPair
from accounting.laws.polya import RevealingPair
from accounting.laws.registry import Coordinates, candidates
from accounting.loss.density import IntegerNormalDensity
from accounting.loss.integer_pair import IntegerPair
from accounting.loss.real_pair import RealPair
from accounting.loss.renyi import largest_renyi
from accounting.loss.table import Sampled, Tables
from accounting.mechanism.sampling_schemes import FixedSize, Poisson, Scheme
from accounting.pairs.enclose import within
from accounting.release.curve import NO_RENYI, OneRelease, PrivacyCurve
from accounting.release.dominating import ConnectTheDotsPair, above_table, dominating
from accounting.release.dominating_pairs import DominatingPairs, of_table
from accounting.release.real_curve import RealCurve
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation, Scope, Sensitivity
from dpcore.numbers.enclosure import Enclosure, End, ball, precision
from dpcore.numbers.parameter import Exact, RationalLike, make_integers, rational_in

_BITS: Final = 64
_FINEST: Final = 200
_LEAST_SQUARE: Final = 50**2
"""Discrete Gaussian noise of this variance is cut into cells, if it is so wide for its shift."""

_SPARE: Final = 64
_TRIES: Final = 4
_DOTS: Final = 1500
_AMPLIFIED: Final = "the curve of the noise; Balle, Barthe and Gaboardi 2018, Theorems 8 and 9"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PoissonSampled(OneRelease):
    r"""Privacy amplified by Poisson sampling: each unit enters with probability ``rate``.

    Units enter independently of one another. Neighbours differ by a unit added or removed.

    >>> from dpcore import DiscreteGaussian
    >>> scope = Scope(relation="add-remove")
    >>> noise = DiscreteGaussian(sigma_squared=4)
    >>> curve = PrivacyCurve(noise=noise, sensitivity=1, scope=scope)
    >>> PoissonSampled(curve=curve, rate="1/100").epsilon("1e-6")
    Bound([0.043467932030483635, 0.043467932030483636], 'exact')

    Raises :class:`InvalidParameter` for anything but a curve, of the scope add-remove, and a rate
    in (0, 1].
    """

    scheme: ClassVar[type[Scheme]] = Poisson
    theorem: ClassVar[str] = _AMPLIFIED

    curve: PrivacyCurve | RealCurve
    rate: Exact = Exact()

    def __post_init__(self) -> None:
        _check(self.curve, Relation.ADD_REMOVE, "Poisson sampling")
        rate = rational_in("rate", self.rate, "(0, 1]", "it is a probability")
        object.__setattr__(self, "rate", rate)

    @property
    def scope(self) -> Scope:
        r"""The scope of the curve, and of what is sampled."""
        return self.curve.scope

    @property
    def assumptions(self) -> tuple[str, ...]:
        r"""The assumptions of the curve."""
        return self.curve.assumptions

    def enclose_delta(self, epsilon: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""The least delta at ``epsilon`` >= 0, over both directions."""
        return _delta(self.curve, self.rate, epsilon, bits)

    def enclose_epsilon(self, delta: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""The least epsilon at ``delta`` in [0, 1], over both directions."""
        return _epsilon(self.curve, self.rate, delta, bits)

    def enclose_renyi(self, order: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""The largest Renyi divergence D_alpha between neighbours, alpha = ``order`` > 1.

        To a relative width of about 1e-6. Raises :class:`NotDerived` if several dominating pairs
        are possible; epsilon and delta are derived in that case, too.
        """
        if self.rate == 1:
            return self.curve.enclose_renyi(order, bits)
        exact = order_above_one(order)
        if not self.attained:
            raise NotDerived(f"the Renyi divergence of order {exact} of {self!r}", NO_RENYI)
        return largest_renyi(self.directions, exact, bits)

    @property
    def unsampled(self) -> PrivacyCurve | RealCurve:
        r"""The loss without sampling, an upper bound."""
        return self.curve

    @property
    def directions(self) -> tuple[Tables, ...]:
        r"""The two directions: the unit is in the first dataset, or in the second.

        The datasets determine the direction, so it is the same in all rounds, and a composition
        costs at most the larger cost of both directions.
        """
        rate = Fraction(self.rate)
        if isinstance(self.curve, RealCurve):
            pair = self.curve.pair(rate)
            return ((Fraction(1), pair),), ((Fraction(1), pair.swapped()),)
        match products := _candidates(self.curve):
            case (((GaussianPair(noise=noise, shift=step), 1),),):
                squared = Fraction(noise.sigma_squared)
                if squared >= max(_FINEST * step, _LEAST_SQUARE):
                    pair = RealPair.sampled(IntegerNormalDensity(squared), rate, step)
                    return ((Fraction(1), pair),), ((Fraction(1), pair.swapped()),)
        base = IntegerPair(pair=products[0][0][0]) if self.attained else dominating(products)
        return tuple(
            ((Fraction(1), Sampled(base=base, rate=rate, present=present)),)
            for present in (True, False)
        )

    @property
    def attained(self) -> bool:
        r"""Whether some neighbours attain these pairs in every round.

        With several candidates or coordinates, one pair that dominates all of them is sampled.
        """
        if isinstance(self.curve, RealCurve):
            return True
        match _candidates(self.curve):
            case (((pair, 1),),):
                return not isinstance(pair, RevealingPair)
        return False

    def dominating_pairs(self) -> DominatingPairs:
        r"""The directions; at rate 1 those of the unsampled release."""
        if self.rate == 1:
            return self.curve.dominating_pairs()
        found = DominatingPairs.tabled(*self.directions)
        return found if self.attained else replace(found, attained=(), aligned=False)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FixedSizeSampled(OneRelease):
    r"""Privacy amplified by sampling: ``sample`` of ``population`` units, without replacement.

    ``curve`` is that of the release without sampling. Every subset of that size is equally likely.
    Neighbours differ by a unit replaced.

    >>> from dpcore import DiscreteGaussian
    >>> curve = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=4), sensitivity=1)
    >>> FixedSizeSampled(curve=curve, sample=10, population=1000).epsilon("1e-6")
    Bound([0.043467932030483635, 0.043467932030483636], 'exact')

    Raises :class:`InvalidParameter` for anything but a curve, of the scope replace, and
    1 <= sample <= population.
    """

    scheme: ClassVar[type[Scheme]] = FixedSize
    theorem: ClassVar[str] = _AMPLIFIED

    curve: PrivacyCurve | RealCurve
    sample: int
    population: int

    def __post_init__(self) -> None:
        _check(self.curve, Relation.REPLACE, "sampling of a fixed size")
        make_integers(self, "population")
        make_integers(self, "sample", at_most=self.population)

    @property
    def scope(self) -> Scope:
        r"""The scope of the curve, and of what is sampled."""
        return self.curve.scope

    @property
    def assumptions(self) -> tuple[str, ...]:
        r"""The assumptions of the curve."""
        return self.curve.assumptions

    @property
    def rate(self) -> Fraction:
        r"""The probability that a unit is sampled."""
        return Fraction(self.sample, self.population)

    def enclose_delta(self, epsilon: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""The least delta at ``epsilon`` >= 0."""
        return _delta(self.curve, self.rate, epsilon, bits)

    def enclose_epsilon(self, delta: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""The least epsilon at ``delta`` in [0, 1]."""
        return _epsilon(self.curve, self.rate, delta, bits)

    def enclose_renyi(self, order: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""Not derived: a pair with this curve exists, but neighbours need not attain it.

        Raises :class:`NotDerived`.
        """
        del bits
        at = order_above_one(order)
        raise NotDerived(f"the Renyi divergence of order {at} of {self!r}", NO_RENYI)

    def dominating_pairs(self) -> DominatingPairs:
        r"""The dominating pair of one round."""
        return of_table(self.pair())

    def pair(self) -> ConnectTheDotsPair:
        r"""A pair that dominates every pair of one round and can be composed."""
        base, rate = _above(self.curve), self.rate
        places = [Fraction(1), *(x for x, _ in base.corners if x > 1)]
        right = [(1 + rate * (x - 1), rate * base.height(x)) for x in places]
        # Neighbours have both orders: h(1/x) = 1 - 1/x + h(x)/x.
        left = [(1 / x, 1 - (1 - high) / x) for x, high in right]
        return ConnectTheDotsPair.through(left + right)


def _check(curve: object, relation: Relation, what: str) -> None:
    if not isinstance(curve, (PrivacyCurve, RealCurve)):
        raise InvalidParameter("curve", curve, "must be a PrivacyCurve or a RealCurve")
    if curve.scope.relation is not relation:
        raise InvalidParameter(
            "scope", curve.scope, f"must have the relation {relation.value!r}: {what} is proven so"
        )


def _above(curve: PrivacyCurve | RealCurve) -> ConnectTheDotsPair:
    if isinstance(curve, RealCurve):
        return above_table(curve.pair(), _DOTS)
    return dominating(_candidates(curve))


def _candidates(curve: PrivacyCurve) -> tuple[Coordinates, ...]:
    return candidates(curve.noise, Sensitivity.of(curve.sensitivity))


def _delta(
    curve: PrivacyCurve | RealCurve, rate: Fraction, epsilon: RationalLike, bits: int
) -> Enclosure:
    at = at_least_zero("epsilon", epsilon)
    if rate == 1:
        return curve.enclose_delta(at, bits)
    working = bits + _SPARE
    while True:
        with precision(working):
            inner = Enclosure.of((ball(at).expm1() / ball(rate)).log1p())
        # delta falls in epsilon.
        most, least = (
            curve.enclose_delta(Fraction(end), bits + 8) for end in (inner.lower, inner.upper)
        )
        found = within(Enclosure(least.lower, most.upper), Fraction(0), Fraction(1))
        narrow = found.upper - found.lower <= found.upper / 2**bits
        if narrow or working > _TRIES * (bits + _SPARE):
            return Enclosure(rate * found.lower, rate * found.upper)
        working *= 2


def _epsilon(
    curve: PrivacyCurve | RealCurve, rate: Fraction, delta: RationalLike, bits: int
) -> Enclosure:
    at = probability("delta", delta)
    if rate == 1:
        return curve.enclose_epsilon(at, bits)
    inner = curve.enclose_epsilon(min(at / rate, Fraction(1)), bits + 8)
    with precision(bits + _SPARE):
        least, most = (_amplified(end, rate) for end in (inner.lower, inner.upper))
    return within(Enclosure(least.lower, most.upper), Fraction(0), math.inf)


def _amplified(epsilon: End, rate: Fraction) -> Enclosure:
    # log(1 + gamma (e^epsilon - 1)).
    if not isinstance(epsilon, Fraction):
        return Enclosure.infinite()
    return Enclosure.of((ball(rate) * ball(epsilon).expm1()).log1p())
