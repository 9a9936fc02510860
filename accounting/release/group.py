r"""A group of k units at once: how far they move a query, and what a Poisson sample of them loses.

Without sampling k units move a query by k times as much as one. In a Poisson sample each of them is
there by itself: a mixture of shifts by 0, 1, ..., k. Proofs: docs/proofs/group.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final

from flint import arb

from accounting.claims.guarantee import at_least_zero, order_above_one, probability
from accounting.errors import NotDerived
from accounting.pairs.enclose import narrowed, within
from accounting.reals.group import GroupDirection, GroupGaussian
from accounting.reals.inverse import inverse
from accounting.reals.sampled_gaussian import SampledGaussian
from accounting.release.curve import OneRelease
from accounting.release.real_curve import RealCurve
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation, Scope, Sensitivity
from dpcore.numbers.enclosure import Enclosure, ball
from dpcore.numbers.parameter import RationalLike, integer, rational

__all__ = ["MOST_MEMBERS", "GroupSampled"]

MOST_MEMBERS: Final = 64
r"""The largest group whose sample is written out."""

_BITS: Final = 64
_TINY: Final = Fraction(1, 1 << 2000)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GroupSampled(OneRelease):
    r"""Group privacy under Poisson sampling: ``members`` units are all added, or all removed.

    ``curve`` is of Gaussian noise on the reals under add-remove, its sensitivity D that of one
    unit. Each member is sampled with probability ``rate``, independently of the others. At worst
    all move the query by D in one direction, so both ends are exact.

    >>> from accounting.reals.noise import Gaussian
    >>> scope = Scope(relation="add-remove")
    >>> curve = RealCurve(noise=Gaussian(sigma=2), sensitivity=1, scope=scope)
    >>> GroupSampled(curve=curve, rate="1/100", members=3).delta("1/10")
    Bound([0.0000134976928748824..., 0.0000134976928748824...], 'exact')

    Raises :class:`InvalidParameter` for anything but such a curve, a rate outside (0, 1) and a
    number of members that is not an integer from 1 to 64.
    """

    word: ClassVar[str] = "group-sampled"
    theorem: ClassVar[str] = (
        "the members sampled are binomial, and all in one direction are the worst "
        "(Neyman-Pearson lemma)"
    )

    curve: RealCurve
    rate: RationalLike
    members: int

    def __post_init__(self) -> None:
        if not isinstance(self.curve, RealCurve):
            raise InvalidParameter("curve", self.curve, "must be a RealCurve: noise on the reals")
        if self.curve.scope.relation is not Relation.ADD_REMOVE:
            raise InvalidParameter(
                "scope", self.curve.scope, "must have the relation 'add-remove': members come or go"
            )
        rate = rational("rate", self.rate)
        if not 0 < rate < 1:
            raise InvalidParameter("rate", self.rate, "must lie in (0, 1): it is a probability")
        members = integer("members", self.members, at_least=1)
        if members > MOST_MEMBERS:
            raise InvalidParameter("members", members, f"must be at most {MOST_MEMBERS}")
        if not isinstance(self.curve.sampled(rate)[0], SampledGaussian):
            raise InvalidParameter(
                "noise", self.curve.noise, "must be Gaussian: for others it is not known"
            )
        object.__setattr__(self, "rate", rate)
        object.__setattr__(self, "members", members)

    @property
    def scope(self) -> Scope:
        r"""That of the curve, its unit a group."""
        return self.curve.scope

    @property
    def assumptions(self) -> tuple[str, ...]:
        r"""Those of the curve."""
        return self.curve.assumptions

    @property
    def unsampled(self) -> RealCurve:
        r"""What the whole group costs if all of it is there: sampling costs no more."""
        moves = Sensitivity.of(self.curve.sensitivity).times(self.members)
        return RealCurve(noise=self.curve.noise, sensitivity=moves, scope=self.scope)

    def pairs(self) -> tuple[GroupGaussian, ...]:
        r"""The losses of one round, of the group there and of it gone, the same in all rounds."""
        rate = Fraction(self.rate)
        found = []
        for law in self.curve.sampled(rate):
            assert isinstance(law, SampledGaussian)  # noqa: S101  # the class refuses other noise
            v, present = law.variance, law.direction.present
            here = GroupDirection(rate=rate, present=present, members=self.members, variance=v)
            found.append(GroupGaussian(variance=v, direction=here))
        return tuple(found)

    def enclose_delta(self, epsilon: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""The least delta at ``epsilon`` >= 0, over both directions."""
        at = at_least_zero("epsilon", epsilon)
        found = narrowed(lambda: self._curve(ball(at)), bits, _TINY)
        return within(found, Fraction(0), Fraction(1))

    def enclose_epsilon(self, delta: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""The least epsilon at ``delta`` in [0, 1], over both directions."""
        most = probability("delta", delta)
        if most == 1:
            return Enclosure.exactly(0)
        return Enclosure.infinite() if most == 0 else inverse(self._curve, most, bits)

    def enclose_renyi(self, order: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""Not derived; raises :class:`NotDerived`."""
        del bits
        at = order_above_one(order)
        raise NotDerived(
            f"the Renyi divergence of order {at} of {self!r}", "ask for epsilon(delta)"
        )

    def to_json(self) -> dict[str, Any]:
        r"""The members, the rate and the curve, as text."""
        return {
            "claim": self.word,
            "members": self.members,
            "rate": str(self.rate),
            "curve": self.curve.to_json(),
        }

    def _curve(self, epsilon: arb) -> arb:
        there, gone = (law.curve(epsilon) for law in self.pairs())
        return there.max(gone)

    def __repr__(self) -> str:
        given = f"rate={str(self.rate)!r}, members={self.members}"
        return f"GroupSampled(curve={self.curve!r}, {given})"
