r"""The guarantee of a run for each of its users, and which users are charged for its batches.

Proofs: docs/proofs/bandits.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from accounting.guarantees.bound import Bound
from accounting.guarantees.guarantee import Guarantee, order_above_one, probability
from accounting.guarantees.stated_guarantees import Approx, Assumed, Pure
from bandits.batch import Plays, Pulls
from dpcore.mechanism import Scope
from dpcore.numbers.parameter import RationalLike, at_least_zero

if TYPE_CHECKING:
    from bandits.privatizers.privatizer import Releasing

NEW: Final = "users are new: each takes part in one release at most"
POOLED: Final = "who is in a release depends on earlier releases and on coins, never on rewards"
_THEOREM: Final = (
    "each user is affected by one of the parts; the guarantee is that of the worst part"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGuarantee(Guarantee):
    r"""The guarantee of a run for each of its users, the worst guarantee in ``parts``.

    A part is the guarantee for one possible participation of a user: in a single release for new
    users, in all releases of one user for returning users. The ``parts`` cover every possible
    release of a run of this length, for all data. The bounds of a run with parts are upper bounds,
    and their ``lower`` is None, because a run need not contain the worst participation. A run that
    releases nothing, such as that of a single arm, has no parts and is perfectly private.
    ``assumptions`` lists the assumptions of the guarantee.
    """

    parts: tuple[Guarantee, ...]
    assumptions: tuple[str, ...]

    @property
    def scope(self) -> Scope:
        return next((part.scope for part in self.parts), Scope())

    def epsilon(self, delta: RationalLike, relative: RationalLike | None = None) -> Bound:
        exact = probability("delta", delta)
        return self._worst(_epsilon(part, exact, relative) for part in self.parts)

    def delta(self, epsilon: RationalLike, relative: RationalLike | None = None) -> Bound:
        exact = at_least_zero("epsilon", epsilon)
        return self._worst(_delta(part, exact, relative) for part in self.parts)

    def renyi(self, order: RationalLike, relative: RationalLike | None = None) -> Bound:
        exact = order_above_one(order)
        return self._worst(part.renyi(exact, relative) for part in self.parts)

    def zcdp(self, relative: RationalLike | None = None) -> Bound:
        return self._worst(part.zcdp(relative) for part in self.parts)

    def _worst(self, found: Iterable[Bound]) -> Bound:
        # ``lower`` is None, because a run need not make the release of the worst part.
        uppers = [each.upper for each in found]
        return Bound(
            upper=max(uppers, default=Fraction(0)),
            lower=None if uppers else Fraction(0),
            method="worst",
            theorem=_THEOREM,
            assumptions=self.assumptions,
        )

    def to_json(self) -> dict[str, Any]:
        r"""JSON with the pure epsilon (or None), the number of parts and the assumptions."""
        largest = self.pure().upper
        return {
            "pure": str(largest) if isinstance(largest, Fraction) else None,
            "releases": len(self.parts),
            "assumptions": [*self.assumptions],
        }


class Users:
    r"""The users of a run: which of them are in a batch, and what they are charged for it.

    In this base class all users are new: their number is unlimited, and no user returns.
    """

    __slots__ = ()

    def admit(self, pulls: Pulls | Plays, batch: str) -> bool:  # noqa: ARG002  # no user is turned away
        r"""Select and charge the users of a batch; return False if too few can take part."""
        return True

    def guarantee(self, privatizer: Releasing[Any], sizes: Iterable[Any]) -> RunGuarantee | None:
        r"""Each user's guarantee for releases of these ``sizes``; None if a release has none."""
        parts: dict[Guarantee, None] = {}
        assumed: dict[str, None] = {}
        for size in sizes:
            part = privatizer.guarantee(size)
            if part is None:
                return None
            parts[part] = None
            assumed |= dict.fromkeys(privatizer.assumed(size))
        return RunGuarantee(parts=tuple(parts), assumptions=(*assumed, NEW))


NEW_USERS: Final = Users()


def _assumed_pure(part: Guarantee) -> bool:
    # An assumed guarantee is reported as stated: the same epsilon at every delta.
    return isinstance(part, Assumed) and isinstance(part.guarantee, Pure)


def _epsilon(part: Guarantee, delta: Fraction, relative: RationalLike | None) -> Bound:
    if _assumed_pure(part):
        return part.pure()
    # A guarantee stated at one delta implies no finite epsilon at smaller deltas.
    if isinstance(part, Approx) and delta < part.stated_delta:
        return Bound(upper=math.inf, method="worst", theorem=_THEOREM)
    return part.epsilon(delta, relative)


def _delta(part: Guarantee, epsilon: Fraction, relative: RationalLike | None) -> Bound:
    if not _assumed_pure(part):
        return part.delta(epsilon, relative)
    found = part.pure()
    return replace(found, upper=Fraction(0 if found.upper <= epsilon else 1))
