r"""What a run needs of any privatizer, and what the run promises each of its users with it.

:class:`Releasing` says how numbers are encoded, released, recorded and promised. A *size* says
which release it is: the number of users for a sum of one arm
(:class:`bandits.privatizers.privatizer.Privatizer`), users and coordinates for averages of several
actions (:class:`bandits.privatizers.averages.AveragePrivatizer`). The parts of a promise are all
that may befall one user, and the worst of them counts. For new users a part is one release; users
who come back are in ``bandits.privatizers.returning``. Proofs: docs/proofs/bandits.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, Generic, TypeVar

from accounting.claims.bound import Bound
from accounting.claims.claim import Approx, Assumed, Pure
from accounting.claims.guarantee import Guarantee, at_least_zero, order_above_one, probability
from bandits.batch import Ask, Encoding, Plays, Pulls, ReleasedSum
from dpcore.mechanism import Release, Scope
from dpcore.numbers.parameter import RationalLike
from dpcore.sampling.rng import SYSTEM, Rng

__all__ = ["NEW", "NEW_USERS", "POOLED", "NewUsers", "Releasing", "RunGuarantee", "Size"]
__all__ += ["Users"]

Size = TypeVar("Size")


class Releasing(ABC, Generic[Size]):
    r"""Release what the users of an ask sent, summed over them and private."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        r"""The trust model, e.g. ``"central"``."""

    @property
    @abstractmethod
    def epsilon(self) -> RationalLike | None:
        r"""The epsilon of the papers' formulas; None where nothing is protected."""

    @abstractmethod
    def size_of(self, ask: Ask) -> Size:
        r"""Which release the users of ``ask`` are in.

        Raises :class:`InvalidParameter` for an ask of a kind that it cannot release.
        """

    def present(self, ask: Ask) -> Ask:
        r"""Those users of ``ask`` whose numbers are in the sums: all, unless some vanish."""
        return ask

    @abstractmethod
    def encoding(self, size: Size) -> Encoding:
        r"""How each user's number becomes an integer, before anything leaves the user."""

    @abstractmethod
    def bits(self, size: Size) -> int:
        r"""The length of all that one user sends."""

    @abstractmethod
    def release_sums(
        self, encoded: Sequence[int], size: Size, rng: Rng = SYSTEM
    ) -> tuple[ReleasedSum, ...]:
        r"""The released sums over users, in units of reward, one for each sum of encodings."""

    @abstractmethod
    def guarantee(self, size: Size) -> Guarantee | None:
        r"""What a release promises each user in it; None where nothing is promised."""

    @abstractmethod
    def assumed(self, size: Size) -> tuple[str, ...]:
        r"""All that this promise takes for granted beside the noise."""

    @abstractmethod
    def record(self, size: Size, batch: str) -> Release | None:
        r"""The record of one release; None where no mechanism says all that is seen."""


NEW: Final = "users are new: each takes part in one release at most"
POOLED: Final = "who is in a release depends on earlier releases and on coins, never on rewards"
_THEOREM: Final = "what befalls a user is one of the parts: the worst of them"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGuarantee(Guarantee):
    r"""What a run promises each of its users: the worst over ``parts``.

    For new users a part is a distinct release, for those who come back all that one may take part
    in. ``parts`` cover every release that a run of this length could make, whatever it saw; a run
    of a single arm makes none, and promises everything. ``assumptions`` are what they take for
    granted.
    """

    parts: tuple[Guarantee, ...]
    assumptions: tuple[str, ...]

    @property
    def scope(self) -> Scope:
        r"""Of the parts, which share one; the usual one where there are none."""
        return next((part.scope for part in self.parts), Scope())

    def epsilon(self, delta: RationalLike, relative: RationalLike | None = None) -> Bound:
        r"""An upper bound of epsilon at ``delta`` in [0, 1]; no lower end is claimed."""
        exact = probability("delta", delta)
        return self._worst(
            part.pure() if _assumed_pure(part) else _epsilon(part, exact, relative)
            for part in self.parts
        )

    def delta(self, epsilon: RationalLike, relative: RationalLike | None = None) -> Bound:
        r"""An upper bound of delta at ``epsilon`` >= 0; no lower end is claimed."""
        exact = at_least_zero("epsilon", epsilon)
        return self._worst(
            _all_or_nothing(part, exact) if _assumed_pure(part) else part.delta(exact, relative)
            for part in self.parts
        )

    def renyi(self, order: RationalLike, relative: RationalLike | None = None) -> Bound:
        r"""An upper bound of the Renyi divergence; no lower end is claimed."""
        exact = order_above_one(order)
        return self._worst(part.renyi(exact, relative) for part in self.parts)

    def zcdp(self, relative: RationalLike | None = None) -> Bound:
        r"""An upper bound of the zCDP parameter; no lower end is claimed."""
        return self._worst(part.zcdp(relative) for part in self.parts)

    def _worst(self, found: Iterable[Bound]) -> Bound:
        # No lower end: the worst part is one that a run could make, but perhaps none does.
        uppers = [each.upper for each in found]
        return Bound(
            upper=max(uppers, default=Fraction(0)),
            lower=None if uppers else Fraction(0),
            method="worst",
            theorem=_THEOREM,
            assumptions=self.assumptions,
        )

    def to_json(self) -> dict[str, Any]:
        r"""The pure epsilon, if any, what the parts are, and the assumptions."""
        largest = self.pure().upper
        return {
            "pure": str(largest) if isinstance(largest, Fraction) else None,
            "releases": len(self.parts),
            "assumptions": [*self.assumptions],
        }


class Users(ABC):
    r"""Who pulls: whether a batch has its users, and what all a user takes part in costs."""

    __slots__ = ()

    @abstractmethod
    def admit(self, pulls: Pulls | Plays, batch: str) -> bool:
        r"""Finds the users of every ask of ``pulls``, and charges them.

        It is asked before any reward is drawn. False where too few can take part: then nothing is
        released any more.
        """

    @abstractmethod
    def guarantee(self, privatizer: Releasing[Any], sizes: Iterable[Any]) -> RunGuarantee | None:
        r"""What releases of ``privatizer``, of so many users each, promise every user.

        It is asked before the first batch. None where nothing is protected.
        """


class NewUsers(Users):
    r"""Nobody comes twice, and there are always more."""

    __slots__ = ()

    def admit(self, pulls: Pulls | Plays, batch: str) -> bool:  # noqa: ARG002  # nobody is turned away
        return True

    def guarantee(self, privatizer: Releasing[Any], sizes: Iterable[Any]) -> RunGuarantee | None:
        parts: dict[Guarantee, None] = {}
        assumed: dict[str, None] = {}
        for size in sizes:
            part = privatizer.guarantee(size)
            if part is None:
                return None
            parts[part] = None
            assumed |= dict.fromkeys(privatizer.assumed(size))
        return RunGuarantee(parts=tuple(parts), assumptions=(*assumed, NEW))


NEW_USERS: Final = NewUsers()


def _assumed_pure(part: Guarantee) -> bool:
    # What is assumed is told as it is stated: one epsilon at every delta.
    return isinstance(part, Assumed) and isinstance(part.guarantee, Pure)


def _epsilon(part: Guarantee, delta: Fraction, relative: RationalLike | None) -> Bound:
    # Of what is kept at one delta nothing finite follows below it.
    if isinstance(part, Approx) and delta < part.stated_delta:
        return Bound(upper=math.inf, method="worst", theorem=_THEOREM)
    return part.epsilon(delta, relative)


def _all_or_nothing(part: Guarantee, epsilon: Fraction) -> Bound:
    found = part.pure()
    return replace(found, upper=Fraction(0 if found.upper <= epsilon else 1))
