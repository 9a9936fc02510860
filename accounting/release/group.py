r"""A group of k units at once: how far they move a query, and what a Poisson sample of them loses.

Without sampling k units move a query by k times as much as one. In a Poisson sample each of them is
there by itself: a mixture of shifts by 0, 1, ..., k. Proofs: docs/proofs/group.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from flint import arb

from accounting.reals.group import GroupDirection, GroupGaussian
from accounting.reals.sampled_gaussian import SampledGaussian
from accounting.release.real_curve import RealCurve, RealSample
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Scope, Sensitivity
from dpcore.numbers.parameter import Exact, integer

__all__ = ["MOST_MEMBERS", "GroupSampled"]

MOST_MEMBERS: Final = 64
r"""The largest group whose sample is written out."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GroupSampled(RealSample):
    r"""Group privacy under Poisson sampling: ``members`` units are all added, or all removed.

    ``curve`` is of Gaussian noise on the reals under add-remove, its sensitivity D that of one
    unit. Each member is sampled with probability ``rate``, independently of the others. At worst
    all move the query by D in one direction, so both ends are exact.

    >>> from accounting.reals.noise import Gaussian
    >>> scope = Scope(relation="add-remove")
    >>> curve = RealCurve(noise=Gaussian(sigma=2), sensitivity=1, scope=scope)
    >>> GroupSampled(curve=curve, rate="1/100", members=3).delta("1/10")
    Bound([0.0000134976928748824..., 0.0000134976928748824...], 'exact')

    Raises :class:`InvalidParameter` for anything but such a curve, noise of a size beyond floats, a
    rate outside (0, 1) and a number of members that is not an integer from 1 to 64.
    """

    word: ClassVar[str] = "group-sampled"
    theorem: ClassVar[str] = (
        "the members sampled are binomial, and all in one direction are the worst "
        "(Neyman-Pearson lemma)"
    )

    curve: RealCurve
    rate: Exact = Exact()
    members: int

    def __post_init__(self) -> None:
        self._check(below=True, why="members come or go")
        members = integer("members", self.members, at_least=1)
        if members > MOST_MEMBERS:
            raise InvalidParameter("members", members, f"must be at most {MOST_MEMBERS}")
        if not isinstance(self.curve.sampled(self.rate)[0], SampledGaussian):
            raise InvalidParameter(
                "noise", self.curve.noise, "must be Gaussian: for others it is not known"
            )
        self.curve.check_size()
        object.__setattr__(self, "members", members)

    @property
    def scope(self) -> Scope:
        r"""That of the curve, its unit a group."""
        return self.curve.scope

    @property
    def unsampled(self) -> RealCurve:
        r"""What the whole group costs if all of it is there: sampling costs no more."""
        moves = Sensitivity.of(self.curve.sensitivity).times(self.members)
        return RealCurve(noise=self.curve.noise, sensitivity=moves, scope=self.scope)

    def pairs(self) -> tuple[GroupGaussian, ...]:
        r"""The losses of one round, of the group there and of it gone, the same in all rounds."""
        found = []
        for law in self.curve.sampled(self.rate):
            assert isinstance(law, SampledGaussian)  # noqa: S101  # the class refuses other noise
            v, present = law.variance, law.direction.present
            here = GroupDirection(rate=self.rate, present=present, members=self.members, variance=v)
            found.append(GroupGaussian(variance=v, direction=here))
        return tuple(found)

    def at(self, epsilon: arb) -> arb:
        r"""delta at ``epsilon`` >= 0: of the worse direction."""
        there, gone = (law.curve(epsilon) for law in self.pairs())
        return there.max(gone)

    def to_json(self) -> dict[str, Any]:
        r"""The members, the rate and the curve, as text."""
        return {
            "claim": self.word,
            "members": self.members,
            "rate": str(self.rate),
            "curve": self.curve.to_json(),
        }

    def __repr__(self) -> str:
        given = f"rate={str(self.rate)!r}, members={self.members}"
        return f"GroupSampled(curve={self.curve!r}, {given})"
