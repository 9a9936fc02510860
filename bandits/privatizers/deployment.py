r"""Deploy a protocol: how many users vanish, how many are honest, what adds up their messages.

Users who vanish or collude take their noise along, so a protocol is planned for the others: their
noise alone has to keep the promise. Proofs: docs/proofs/bandits.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from bandits.batch import check_word
from dpcore.errors import InvalidParameter
from dpcore.masked.aggregation import MaskedAggregation
from dpcore.masked.sizing import size_neighbourhood
from dpcore.numbers.parameter import Exact, integer, rational_in
from dpcore.protocols.aggregation import Step
from dpcore.protocols.run import run
from dpcore.protocols.sums import AggregatedSum
from dpcore.sampling.rng import SYSTEM, Rng

__all__ = ["ALL_HONEST", "EVERYONE", "MASKED", "AggregationName", "Deployment", "masked_sum"]
__all__ += ["SOME_HONEST", "check_planned"]

AggregationName: TypeAlias = Literal["ideal", "masked"]
r"""The functionality in one draw, or the masked aggregation of dpcore, message by message."""

ALL_HONEST: Final = "all users of a release follow the protocol, stay, and keep their noise secret"
SOME_HONEST: Final = "of the users of a release at most "
MASKED: Final = (
    "the masked aggregation hides all but the sum from a semi-honest server: add 2^-40 to delta "
    "for every release in which users share with neighbours only"
)

_MOST_MASKED: Final = 1 << 16
_SILENT: Final = (Step.INPUT, Step.SHARES, Step.KEYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    r"""Plan a protocol for dropouts: at most a share ``dropouts`` of n users vanishes.

    A share ``honest`` at least follows the protocol and keeps its noise to itself; the others may
    collude with the server. What a release promises is derived for the worst set that is left,
    :meth:`counted_on` of n. ``aggregation="masked"`` runs every release of a protocol over secure
    aggregation through :class:`dpcore.masked.aggregation.MaskedAggregation`.

    >>> planned = Deployment(honest="0.9", dropouts="0.05")
    >>> planned.reporting(1000), planned.counted_on(1000), planned.counted_on(1)
    (950, 850, 1)

    Raises :class:`InvalidParameter` for an ``honest`` outside of (0, 1], ``dropouts`` outside of
    [0, 1), nobody left, another aggregation, and half of the users or more lost to a masked one.
    """

    honest: Exact = Exact(1)
    dropouts: Exact = Exact(0)
    aggregation: AggregationName = "ideal"

    def __post_init__(self) -> None:
        why = "only noise of honest users hides"
        honest = rational_in("honest", self.honest, "(0, 1]", why)
        dropouts = rational_in("dropouts", self.dropouts, "[0, 1)", "somebody stays")
        if honest <= dropouts:
            reason = f"must be < honest = {honest}: nobody would be left whose noise hides a user"
            raise InvalidParameter("dropouts", self.dropouts, reason)
        check_word("aggregation", self.aggregation, AggregationName)
        if self.aggregation == "masked" and 2 * dropouts >= 1:
            reason = "must be < 1/2: a masked aggregation needs more than half of its users"
            raise InvalidParameter("dropouts", self.dropouts, reason)
        object.__setattr__(self, "honest", honest)
        object.__setattr__(self, "dropouts", dropouts)

    def reporting(self, users: int) -> int:
        r"""How many of n users send their message when as many vanish as is planned for."""
        return integer("users", users, at_least=1) - math.floor(users * self.dropouts)

    def colluding(self, users: int) -> int:
        r"""How many of n users may tell the server their noise."""
        return math.floor(users * (1 - self.honest))

    def counted_on(self, users: int) -> int:
        r"""How many of n users are left, at the worst, whose noise hides each of them: >= 1."""
        return self.reporting(users) - self.colluding(users)

    @property
    def factor(self) -> int:
        r"""An integer that n/counted_on(n) never exceeds: how much more noise there may be."""
        return math.ceil(1 / (self.honest - self.dropouts))

    @property
    def assumption(self) -> str:
        r"""What the promise takes for granted of the users."""
        gone, dishonest = self.dropouts, 1 - self.honest
        if not gone and not dishonest:
            return ALL_HONEST
        return f"{SOME_HONEST}{gone} vanish, and {dishonest} break the protocol or tell their noise"

    def check(self, name: str, users: int, *, secure: bool) -> None:
        r"""Refuse a release of n users that this cannot carry, of the privatizer ``name``.

        Raises :class:`InvalidParameter` for a masked release that runs over no secure aggregation
        (``secure`` False), or of fewer than 2 users or more than 2^16 - 1.
        """
        if self.aggregation == "ideal":
            return
        if not secure:
            reason = f"is for sums over secure aggregation: {name} has none"
            raise InvalidParameter("aggregation", self.aggregation, reason)
        if not 2 <= users < _MOST_MASKED:
            reason = f"sums 2 to 65,535 users, and a release may have {users}"
            raise InvalidParameter("aggregation", self.aggregation, reason)


EVERYONE: Final = Deployment()


def check_planned(plan: Deployment, parameters: str) -> None:
    r"""Refuse parameters of a paper for a deployment that it does not plan for.

    Raises :class:`InvalidParameter`.
    """
    if not isinstance(plan, Deployment):
        raise InvalidParameter("deployment", plan, "must be a Deployment")
    if parameters == "paper" and plan.factor != 1:
        reason = "must be 'exact': the papers plan for users who all stay and are honest"
        raise InvalidParameter("parameters", parameters, reason)


def masked_sum(
    protocol: AggregatedSum, encoded: int, plan: Deployment, rng: Rng = SYSTEM
) -> Fraction:
    r"""Run ``protocol`` once over masks: keys, shares, masked messages, and the sum that is left.

    As many users vanish as ``plan`` allows, at steps in turn; ``encoded`` is the sum over those who
    stay, dealt out among them evenly: the sum of messages depends on nothing else.

    >>> from dpcore import DiscreteLaplace, SeededRng
    >>> share = DiscreteLaplace(scale="1/100").share(7)
    >>> sums = AggregatedSum(users=8, precision=4, threshold=9, share=share)
    >>> masked_sum(sums, 20, Deployment(dropouts="1/8"), SeededRng(1))
    Fraction(5, 1)
    """
    n = protocol.users
    stay, colluding = plan.reporting(n), plan.colluding(n)
    each, more = divmod(encoded, stay)
    steps = [each + 1] * more + [each] * (stay - more) + [0] * (n - stay)
    names = [f"user {place:05}" for place in range(n)]
    gone = names[stay:]
    secure = MaskedAggregation(
        users=n,
        dropouts=len(gone),
        coordinates=1,
        modulus=protocol.modulus,
        neighbourhood=size_neighbourhood(users=n, dropouts=len(gone), colluding=colluding),
    )
    outcome = run(
        protocol,
        {name: Fraction(k, protocol.precision) for name, k in zip(names, steps, strict=True)},
        secure,
        batch="masked",
        vanish={name: _SILENT[place % len(_SILENT)] for place, name in enumerate(gone)},
        colluding=names[:colluding],
        rng=rng,
    )
    assert isinstance(outcome.estimate, Fraction)  # noqa: S101  # a sum is one number
    return outcome.estimate
