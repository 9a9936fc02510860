r"""Random allocation: each unit independently takes part in k of t rounds, chosen at random.

For k = 1 the scheme is also known as balls and bins. It differs from shuffling the dataset, where
the round of one example depends on the rounds of the others. Proofs: docs/proofs/subsampling.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Final, cast

from accounting.amplification.subsampling import DescribedSample
from accounting.descriptions.sampling_schemes import Allocation
from accounting.guarantees.bound import Bound
from accounting.pairs.enclose_curve import within
from accounting.pld.allocation_loss import MOST_ORDER, Side, renyi_of_allocation
from accounting.pld.noise_density import NormalDensity
from accounting.pld_composition.cell_refinement import AllocatedLoss
from accounting.privacy_curves.dominating_pairs import DominatingPairs, Laws
from accounting.privacy_curves.real_noise_curve import RealCurve
from accounting.privacy_curves.release_curve import ByOrder, OneRelease
from dpcore.numbers.enclosure import Enclosure, End
from dpcore.numbers.parameter import RationalLike

_BITS: Final = 64
_NARROWEST: Final = 0.2
_WIDEST: Final = 2.0**20
_MOST_LISTED: Final = 10**5
_LISTED_BITS: Final = 12
"""With the usual number of atoms, the bounds of an epoch have a relative width of about 2^-12."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AllocatedSample(ByOrder, DescribedSample):
    r"""One epoch of random allocation, with real-valued Gaussian noise.

    Each unit takes part in ``picks`` of the ``rounds`` rounds. All sets of rounds are equally
    likely. The set of a unit is secret, independent of all other units, and drawn again for each
    epoch. There are upper bounds, and lower bounds if :attr:`listed` is true, which needs one pick.
    Several epochs compose through their Renyi divergences and, if :attr:`listed` is true, also
    through their privacy losses.

    >>> from accounting.descriptions.description import Description
    >>> from accounting.descriptions.real_noise import Gaussian
    >>> epoch = Description(noise=Gaussian(sigma=1), scheme=Allocation(rounds=4))
    >>> AllocatedSample(description=epoch).epsilon("1e-6")
    Bound([3.5..., 3.5...], 'renyi')

    Raises :class:`InvalidParameter` if the noise is outside the range of floats.
    """

    theorem: ClassVar[str] = (
        "a Gaussian shifted in one random round, in both directions (Chua et al. 2024; Feldman and "
        "Shenfeld 2025), and the best Renyi order, or all picks without sampling"
    )

    def __post_init__(self) -> None:
        cast("RealCurve", self.curve).check_size()

    @property
    def scheme(self) -> Allocation:
        return cast("Allocation", self.description.scheme)

    def most_renyi(self, order: Fraction) -> End:
        r"""An upper bound on D_alpha, alpha = ``order``, interpolated between integer orders.

        Linear interpolation of (alpha - 1) D_alpha gives an upper bound, because it is convex in
        alpha.
        """
        variance, picks = cast("NormalDensity", self.density).variance, self.scheme.picks
        always = picks * order / (2 * variance)
        if order > MOST_ORDER:
            return always
        size, larger = divmod(self.scheme.rounds, picks)
        total: End = Fraction(0)
        for rounds, count in ((size + 1, larger), (size, picks - larger)):
            if count:
                total += count * _between(variance, rounds, order)
        return min(total, always)

    @property
    def listed(self) -> bool:
        r"""Whether the dominating pairs can be discretised, which gives lower and upper bounds.

        This requires one pick, at most 10^5 rounds, and a standard deviation of the noise between
        0.2 and 2^20 times the sensitivity.
        """
        fits = _NARROWEST <= self.density.deviation <= _WIDEST
        return fits and self.scheme.picks == 1 and self.scheme.rounds <= _MOST_LISTED

    def dominating_pairs(self) -> DominatingPairs:
        r"""The discretised dominating pairs of one epoch.

        Raises :class:`NotDerived` unless :attr:`listed` is true.
        """
        if not self.listed:
            return ByOrder.dominating_pairs(self)
        density, rounds = self.density, self.scheme.rounds

        def laws(*, above: bool) -> tuple[Laws, ...]:
            sides = (Side(above=above, present=at) for at in (True, False))
            made = (AllocatedLoss(density=density, rounds=rounds, side=side) for side in sides)
            return tuple(((law, 1),) for law in made)

        return DominatingPairs(above=laws(above=True), attained=laws(above=False), aligned=True)

    def enclose_delta(self, epsilon: RationalLike, bits: int = _BITS) -> Enclosure:
        return self._narrowed("enclose_delta", epsilon, bits)

    def enclose_epsilon(self, delta: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""Enclose epsilon: the intersection of all known bounds.

        They come from the release without sampling, from the best Renyi order and, if
        :attr:`listed` is true, from the discretised dominating pairs.
        """
        return self._narrowed("enclose_epsilon", delta, bits)

    def _narrowed(self, question: str, at: RationalLike, bits: int) -> Enclosure:
        by_order: Enclosure = getattr(ByOrder, question)(self, at, bits)
        unsampled: Enclosure = getattr(self.unsampled, question)(at, bits)
        found = within(by_order, by_order.lower, unsampled.upper)
        if not self.listed:
            return found
        listed: Enclosure = getattr(OneRelease, question)(self, at, _LISTED_BITS)
        return within(listed, found.lower, found.upper)

    def _both(self, found: Enclosure) -> Bound:
        lower = found.lower if found.lower > 0 else None
        return replace(ByOrder._both(self, found), lower=lower)


def _between(variance: Fraction, rounds: int, order: Fraction) -> End:
    low = math.floor(order)
    share = order - low

    def at(whole: int) -> End:
        if whole == 1:
            return Fraction(0)
        return (whole - 1) * renyi_of_allocation(variance, rounds, whole)

    found = at(low) if not share else (1 - share) * at(low) + share * at(low + 1)
    return found / (order - 1)
