r"""Poisson samples truncated at random to a largest size: the loss of one round.

Whether the other units alone fill a batch is independent of the unit. If they do not, the round is
a Poisson sample. If they do, the unit takes the place of a random other one, with a known chance:
it moves the sum by up to twice as much. Both kinds together, told apart, are above every round:
"Tighter Privacy Analysis for Truncated Poisson Sampling" (2025), arXiv 2508.15089. Proofs:
docs/proofs/sampling.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import ClassVar, Final

from accounting.loss.real_pair import Kinds, RealPair
from accounting.mechanism.sampling_schemes import Scheme, TruncatedPoisson
from accounting.release.dominating_pairs import DominatingPairs
from accounting.release.poisson_replace_one import PoissonReplaced
from accounting.release.real_curve import RealCurve, RealSample
from accounting.release.subsampling import PoissonSampled
from dpcore.errors import InvalidParameter
from dpcore.laws.binomial import Binomial
from dpcore.mechanism import Relation, Scope, Sensitivity
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.parameter import Exact, RationalLike, make_integers

_BITS: Final = 64
_CHANCE_BITS: Final = 192


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PoissonTruncated(RealSample):
    r"""Privacy amplified by Poisson sampling with batches truncated to ``most`` units, at random.

    ``examples`` is the size of the dataset: of the larger one where a unit is added or removed, of
    both where one is replaced, by ``relation``. All subsets of a sample that is too large are
    equally likely to be kept. ``curve`` is of Gaussian noise on the reals under add-remove. The
    upper end tells whether the other units filled the batch; the lower one is that of neighbours
    whose other units add nothing.

    >>> from accounting.mechanism.real_noise import Gaussian
    >>> scope = Scope(relation="add-remove")
    >>> curve = RealCurve(noise=Gaussian(sigma=2), sensitivity=1, scope=scope)
    >>> PoissonTruncated(curve=curve, rate="1/100", examples=1000, most=12).epsilon("1e-6")
    Bound([0.0410..., 0.2177...], 'exact')

    Raises :class:`InvalidParameter` for anything but such a curve, a rate outside (0, 1], and
    sizes that are not integers from 1 on.
    """

    scheme: ClassVar[type[Scheme]] = TruncatedPoisson
    theorem: ClassVar[str] = (
        "whether the other units fill the batch is told (arXiv 2508.15089, 2025)"
    )

    curve: RealCurve
    rate: Exact = Exact()
    examples: int
    most: int
    relation: Relation = field(default=Relation.ADD_REMOVE)

    def __post_init__(self) -> None:
        self._check(below=False, why="the sensitivity is that of one unit added")
        if self.curve.loss() is None:
            raise InvalidParameter("noise", self.curve.noise, "must be Gaussian")
        make_integers(self, "examples", "most")
        object.__setattr__(self, "relation", Relation(self.relation))

    @property
    def scope(self) -> Scope:
        r"""The scope of the curve, under ``relation``."""
        return Scope(unit=self.curve.scope.unit, relation=self.relation)

    @property
    def unsampled(self) -> RealCurve:
        r"""The loss without sampling, if a unit moves the query twice as far."""
        found = self._sampled(Fraction(1), 2).unsampled
        assert isinstance(found, RealCurve)  # noqa: S101  # noise on the reals, as it was given
        return found

    @property
    def filled(self) -> Enclosure:
        r"""The probability that the other units alone fill a batch."""
        return self._more_than(self.most - 1, self.examples - 1)

    @property
    def kept(self) -> Enclosure:
        r"""The probability that a unit is in a batch: that of min(1, most/sampled) if it is
        sampled.
        """
        filled, cut = self.filled, self._more_than(self.most, self.examples)
        low, high = (
            self.rate * (1 - whole) + self.most * taken / self.examples
            for whole, taken in ((filled.upper, cut.lower), (filled.lower, cut.upper))
        )
        return Enclosure(low, high)

    @property
    def least(self) -> PoissonSampled | PoissonReplaced:
        r"""The loss of neighbours whose other units contribute 0 to the query, a lower bound."""
        return self._sampled(Fraction(self.kept.lower), 1)

    def parts(self) -> tuple[tuple[Fraction, Fraction, int], ...]:
        r"""(probability, rate, moves) of the possible rounds: not filled by the others, filled,
        either.

        The third kind, worse than both, has what lies between the two ends of ``filled``.
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

    def kinds(self) -> Kinds:
        r"""The pair of each part."""
        make = RealPair.replaced if self.relation is Relation.REPLACE else RealPair.sampled
        return tuple(
            (chance, make(self._moved(moves).density, share))
            for chance, share, moves in self.parts()
        )

    @property
    def directions(self) -> tuple[Kinds, ...]:
        r"""One direction for replace-one, otherwise two."""
        here = self.kinds()
        if self.relation is Relation.REPLACE:
            return (here,)
        return here, tuple((chance, pair.swapped()) for chance, pair in here)

    def dominating_pairs(self) -> DominatingPairs:
        r"""The kinds as upper bounds, and those of :attr:`least` as lower bounds."""
        least = self.least.dominating_pairs()
        if self.directions == self.least.directions:
            return least
        found = RealSample.dominating_pairs(self)
        return replace(found, attained=least.attained, aligned=False)

    def enclose_delta(self, epsilon: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""Between the delta of :attr:`least` and that of the kinds."""
        upper = RealSample.enclose_delta(self, epsilon, bits).upper
        return Enclosure(self.least.enclose_delta(epsilon, bits).lower, upper)

    def enclose_renyi(self, order: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""Between D_alpha of :attr:`least` and that of the kinds."""
        upper = RealSample.enclose_renyi(self, order, bits).upper
        return Enclosure(self.least.enclose_renyi(order, bits).lower, upper)

    def enclose_epsilon(self, delta: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""Between the epsilon of :attr:`least` and that of the kinds."""
        upper = RealSample.enclose_epsilon(self, delta, bits).upper
        return Enclosure(self.least.enclose_epsilon(delta, bits).lower, upper)

    def _sampled(self, rate: Fraction, moves: int) -> PoissonSampled | PoissonReplaced:
        kind = PoissonReplaced if self.relation is Relation.REPLACE else PoissonSampled
        return kind(curve=self._moved(moves), rate=rate)

    def _moved(self, moves: int) -> RealCurve:
        # Of a unit that moves the query so many times as far.
        moved = Sensitivity.of(self.curve.sensitivity).times(moves)
        return RealCurve(noise=self.curve.noise, sensitivity=moved, scope=self.curve.scope)

    def _more_than(self, count: int, units: int) -> Enclosure:
        # The chance that more than `count` of so many units are sampled.
        if count >= units:
            return Enclosure.exactly(0)
        if self.rate == 1:
            return Enclosure.exactly(1)
        return Binomial(trials=units, probability=self.rate).enclose_sf(count, _CHANCE_BITS)

    def _kept_if_filled(self, filled: Enclosure) -> Fraction:
        # From above: a unit is kept less often than it is sampled.
        if filled.lower == 0:
            return self.rate
        cut = Fraction(self._more_than(self.most, self.examples).upper)
        return min(self.most * cut / (self.examples * Fraction(filled.lower)), self.rate)
