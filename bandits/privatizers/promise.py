r"""What a run promises each of its users, derived before it starts.

The parts of a promise are all that may befall one user, and the worst of them counts. For new users
a part is one release; users who come back are in ``bandits.privatizers.returning``. Proofs:
docs/proofs/bandits.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, TypeAlias

from accounting.claims.bound import Bound
from accounting.claims.claim import Assumed, Pure
from accounting.protocols.box import BinomialBox
from accounting.release.curve import PrivacyCurve
from accounting.totals.compose import Composition
from bandits.batch import Pulls
from bandits.privatizers.privatizer import OfOne, Privatizer
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Scope
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.parameter import RationalLike, rational

__all__ = [
    "NEW_USERS",
    "NewUsers",
    "OfAll",
    "RunGuarantee",
    "Users",
]

OfAll: TypeAlias = OfOne | Composition
"""What one user is promised by all the releases that the user may be in."""

_NEW: Final = "users are new: each takes part in one release at most"
_THEOREM: Final = "what befalls a user is one of the parts: the worst of them"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGuarantee:
    r"""What a run promises each of its users: the worst over ``parts``.

    For new users a part is a distinct release, for those who come back all that one may take part
    in. ``parts`` cover every release that a run of this length could make, whatever it saw; a run
    of a single arm makes none, and promises everything. ``assumptions`` are what they take for
    granted.
    """

    parts: tuple[OfAll, ...]
    assumptions: tuple[str, ...]

    def epsilon(self, delta: RationalLike) -> Bound:
        r"""An upper bound of epsilon at ``delta`` in [0, 1]; no lower end is claimed."""
        exact = _delta(delta)
        return _worst([_epsilon(part, exact) for part in self.parts])

    def delta(self, epsilon: RationalLike) -> Bound:
        r"""An upper bound of delta at ``epsilon`` >= 0; no lower end is claimed."""
        exact = rational("epsilon", epsilon)
        if exact < 0:
            raise InvalidParameter("epsilon", epsilon, "must be >= 0")
        return _worst([_delta_of(part, exact) for part in self.parts])

    def pure(self) -> Pure | None:
        r"""The pure guarantee, exact, or None where the loss of some release is unbounded."""
        found = [_pure(part) for part in self.parts]
        if None in found:
            return None
        most = max((Fraction(p.epsilon) for p in found if p), default=Fraction(0))
        return Pure(most, scope=next((p.scope for p in found if p), Scope()))

    def to_json(self) -> dict[str, Any]:
        r"""The pure epsilon, if any, what the parts are, and the assumptions."""
        pure = self.pure()
        return {
            "pure": None if pure is None else str(pure.epsilon),
            "releases": len(self.parts),
            "assumptions": [*self.assumptions],
        }


class Users(ABC):
    r"""Who pulls: whether a batch has its users, and what all a user takes part in costs."""

    __slots__ = ()

    @abstractmethod
    def admit(self, pulls: Pulls, batch: str) -> bool:
        r"""Finds ``pulls.counts[a]`` users for the release of each arm a, and charges them.

        It is asked before any reward is drawn. False where too few can take part: then nothing is
        released any more.
        """

    @abstractmethod
    def guarantee(self, privatizer: Privatizer, sizes: Sequence[int]) -> RunGuarantee | None:
        r"""What releases of ``privatizer``, of so many users each, promise every user.

        It is asked before the first batch. None where nothing is protected.
        """


class NewUsers(Users):
    r"""Nobody comes twice, and there are always more."""

    __slots__ = ()

    def admit(self, pulls: Pulls, batch: str) -> bool:  # noqa: ARG002  # nobody is turned away
        return True

    def guarantee(self, privatizer: Privatizer, sizes: Sequence[int]) -> RunGuarantee | None:
        parts: dict[OfOne, None] = {}
        assumed: dict[str, None] = {}
        for size in sizes:
            part = privatizer.guarantee(size)
            if part is None:
                return None
            parts[part] = None
            assumed |= dict.fromkeys(privatizer.assumed(size))
        return RunGuarantee(parts=tuple(parts), assumptions=(*assumed, _NEW))


NEW_USERS: Final = NewUsers()


# -- the worst of many releases ---------------------------------------------------------------


def _worst(found: list[Enclosure | Bound | Fraction]) -> Bound:
    # No lower end: the worst part is one that a run could make, but perhaps none does.
    uppers = [each if isinstance(each, Fraction) else each.upper for each in found]
    return Bound(
        upper=max(uppers, default=Fraction(0)),
        lower=None if found else Fraction(0),
        method="worst",
        theorem=_THEOREM,
    )


def _epsilon(part: OfAll, delta: Fraction) -> Enclosure | Bound | Fraction:
    match part:
        case PrivacyCurve() | Composition():
            return part.epsilon(delta)
        case BinomialBox():
            return part.epsilon(delta) if delta else Enclosure.infinite()
        case Assumed(guarantee=Pure(epsilon=epsilon)):
            return Fraction(epsilon)
    raise InvalidParameter("parts", part, "must be a curve or an assumed pure guarantee")


def _delta_of(part: OfAll, epsilon: Fraction) -> Enclosure | Bound | Fraction:
    match part:
        case PrivacyCurve() | BinomialBox() | Composition():
            return part.delta(epsilon)
        case Assumed(guarantee=Pure(epsilon=promised)):
            return Fraction(0) if epsilon >= Fraction(promised) else Fraction(1)
    raise InvalidParameter("parts", part, "must be a curve or an assumed pure guarantee")


def _pure(part: OfAll) -> Pure | None:
    match part:
        case Composition():
            most = part.pure()
            exact = most.upper if most.upper == most.lower else math.inf
            return Pure(exact, scope=part.scope) if isinstance(exact, Fraction) else None
        case PrivacyCurve():
            return part.pure()
        case Assumed(guarantee=Pure() as promised):
            return promised
    return None


def _delta(delta: RationalLike) -> Fraction:
    exact = rational("delta", delta)
    if not 0 <= exact <= 1:
        raise InvalidParameter("delta", delta, "must lie in [0, 1]: it is a probability")
    return exact
