r"""Random allocation: each unit is in uniformly random rounds of an epoch, independently.

Known as balls and bins: one round of t, or k of t. Not a shuffled data set, in which who is moved
moves others. Proofs: docs/proofs/sampling.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Final

from accounting.claims.bound import Bound
from accounting.claims.guarantee import at_least_zero, probability
from accounting.fourier.real_loss import AllocatedLoss
from accounting.loss.allocation import Side, allocated
from accounting.loss.allocation_orders import MOST_ORDER, renyi_of_allocation
from accounting.loss.density import NormalDensity
from accounting.loss.privacy_loss_distribution import Listing
from accounting.mechanism.sampling_schemes import Allocation, Scheme
from accounting.release.curve import ByOrder
from accounting.release.dominating_pairs import DominatingPairs
from accounting.release.real_curve import RealCurve
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation, Scope
from dpcore.numbers.enclosure import Enclosure, End
from dpcore.numbers.parameter import RationalLike, make_integers

_BITS: Final = 64
_SIDES: Final = (True, False)
_NARROWEST: Final = 0.2
_WIDEST: Final = 2.0**20
_HALVINGS: Final = 60
_FAR_OUT: Final = 600.0
_MOST_LISTED: Final = 10**5
_MOST_ROUNDS = 10**6


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RandomAllocation(ByOrder):
    r"""Privacy amplified by random allocation, for one epoch of ``rounds`` rounds.

    Each unit is in ``picks`` rounds, all such choices equally likely, independently of all other
    units, drawn anew for each epoch and kept secret. ``curve`` is of Gaussian noise on the reals
    under add-remove. Both ends are known of one pick, an upper end of more. Epochs compose by
    their orders, and of one pick by their losses.

    >>> from accounting.mechanism.real_noise import Gaussian
    >>> scope = Scope(relation="add-remove")
    >>> curve = RealCurve(noise=Gaussian(sigma=1), sensitivity=1, scope=scope)
    >>> RandomAllocation(curve=curve, rounds=100).epsilon("1e-6")
    Bound([0.857..., 0.858...], 'renyi')

    Raises :class:`InvalidParameter` for anything but such a curve, noise of a size beyond floats,
    rounds that are not an integer from 1 to 10^6, and picks that are not one from 1 to the rounds.
    """

    scheme: ClassVar[type[Scheme]] = Allocation
    theorem: ClassVar[str] = (
        "one Gaussian in a random round, in both directions (Chua et al. 2024; Feldman and "
        "Shenfeld 2025), and the best order"
    )

    curve: RealCurve
    rounds: int
    picks: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.curve, RealCurve):
            raise InvalidParameter("curve", self.curve, "must be a RealCurve: noise on the reals")
        if self.curve.scope.relation is not Relation.ADD_REMOVE:
            raise InvalidParameter(
                "scope",
                self.curve.scope,
                "must have the relation 'add-remove': a replaced unit may be in another round",
            )
        if not isinstance(self.curve.density, NormalDensity):
            raise InvalidParameter("noise", self.curve.noise, "must be Gaussian")
        self.curve.check_size()
        make_integers(self, "rounds", at_most=_MOST_ROUNDS)
        make_integers(self, "picks", at_most=self.rounds)

    @property
    def scope(self) -> Scope:
        r"""The scope of the curve."""
        return self.curve.scope

    @property
    def assumptions(self) -> tuple[str, ...]:
        r"""The assumptions of the curve."""
        return self.curve.assumptions

    def most_renyi(self, order: Fraction) -> End:
        r"""An upper bound of D_alpha, by chords between whole orders: (alpha - 1) D_alpha is
        convex.
        """
        law = self.curve.density
        assert isinstance(law, NormalDensity)  # noqa: S101  # the class refuses other noise
        always = self.picks * order / (2 * law.variance)
        if order > MOST_ORDER:
            return always
        size, larger = divmod(self.rounds, self.picks)
        total: End = Fraction(0)
        for rounds, count in ((size + 1, larger), (size, self.picks - larger)):
            if count:
                total += count * _between(law.variance, rounds, order)
        return min(total, always)

    @property
    def listed(self) -> bool:
        r"""Whether an epoch has two-sided bounds: one pick, and not too many rounds."""
        fits = _NARROWEST <= self.curve.density.deviation <= _WIDEST
        return fits and self.picks == 1 and self.rounds <= _MOST_LISTED

    def listing(self, *, above: bool, present: bool) -> Listing:
        r"""The loss of one epoch, with the unit against without it or in reverse, from one side."""
        return allocated(self.curve.density, self.rounds, Side(above=above, present=present))

    def dominating_pairs(self) -> DominatingPairs:
        r"""The discretised pairs of an epoch of one pick; otherwise none."""
        if not self.listed:
            return ByOrder.dominating_pairs(self)
        density, rounds = self.curve.density, self.rounds
        above, below = (
            tuple(
                (
                    (
                        AllocatedLoss(
                            density=density, rounds=rounds, side=Side(above=end, present=at)
                        ),
                        1,
                    ),
                )
                for at in _SIDES
            )
            for end in (True, False)
        )
        return DominatingPairs(above=above, attained=below, aligned=True)

    def enclose_delta(self, epsilon: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""Bounds from both discretisations, and from the best order."""
        found = ByOrder.enclose_delta(self, epsilon, bits)
        if not self.listed:
            return found
        low, high = self._between(at_least_zero("epsilon", epsilon))
        return Enclosure(Fraction(low), min(found.upper, Fraction(high)))

    def enclose_epsilon(self, delta: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""By bisection on both discretisations, and the bound from the best order."""
        found, most = ByOrder.enclose_epsilon(self, delta, bits), probability("delta", delta)
        if not self.listed or not 0 < most < 1:
            return found
        lows, highs = [0.0, _FAR_OUT], [0.0, _FAR_OUT]
        for ends, at in ((lows, 0), (highs, 1)):
            for _ in range(_HALVINGS):
                middle = (ends[0] + ends[1]) / 2
                ends[int(self._between(Fraction(middle))[at] <= most)] = middle
        upper = Fraction(highs[1]) if highs[1] < _FAR_OUT else found.upper
        return Enclosure(Fraction(lows[0]), min(found.upper, upper))

    def _between(self, epsilon: Fraction) -> tuple[float, float]:
        # The larger one of both directions, from below and from above.
        low, high = (
            max(self.listing(above=above, present=side).delta(epsilon)[above] for side in _SIDES)
            for above in (False, True)
        )
        return low, high

    def _both(self, found: Enclosure) -> Bound:
        lower = found.lower if found.lower > 0 else None
        return replace(ByOrder._both(self, found), lower=lower)


def _between(variance: Fraction, rounds: int, order: Fraction) -> End:
    low = math.floor(order)
    share = order - low

    def at(whole: int) -> End:
        return (
            (whole - 1) * renyi_of_allocation(variance, rounds, whole) if whole > 1 else Fraction(0)
        )

    found = at(low) if not share else (1 - share) * at(low) + share * at(low + 1)
    return found / (order - 1)
