r"""Who pulls in an experiment: new users, or the same ones up to B times; who of them stays.

Users who return take a ledger along, which runs of new users do not load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np

from bandits.batch import arms_and_horizon
from bandits.play import run_guarantee
from bandits.policies.policy import Policy
from bandits.privatizers.promise import NEW_USERS, RunGuarantee, Users
from bandits.privatizers.protocols import EVERYONE, Deployment
from dpcore.errors import InvalidParameter

__all__ = ["ONCE", "Visitors", "supported"]

_SE: Final = ("se",)
_MASKED: Final = ("dist-dp-se", "dist-rdp-se", "dist-cdp-se")
_PLANNED: Final = (*_MASKED, "cdp-se", "ldp-se", "shuffled-se", "sdp-ae", "vb-sdp-ae")


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitors:
    r"""How often a user may come, of how many, and how many of them stay and are honest.

    ``max_visits`` None: every user is new. ``users`` None: as many as can give a reward for each
    round, T/B.

    >>> Visitors(max_visits=16).people(10**5)
    6250

    Raises :class:`InvalidParameter` for max_visits outside of [1, 2^29] and users outside of
    [1, 2^27].
    """

    max_visits: int | None = None
    users: int | None = None
    deployment: Deployment = EVERYONE

    def __post_init__(self) -> None:
        if self.max_visits is not None:
            from bandits.privatizers.visits import people, visits_of

            object.__setattr__(self, "max_visits", visits_of(self.max_visits))
            if self.users is not None:
                object.__setattr__(self, "users", people(self.users))
        if not isinstance(self.deployment, Deployment):
            raise InvalidParameter("deployment", self.deployment, "must be a Deployment")

    def people(self, horizon: int) -> int:
        r"""How many people there are in a run of T rounds."""
        return self.users or -(-horizon // (self.max_visits or 1))

    def guarantee(self, policy: Policy[Any], arms: int, horizon: int) -> RunGuarantee | None:
        r"""What every run of ``policy`` promises each user; None where nothing is protected."""
        if self.max_visits is None:
            return run_guarantee(policy, arms, horizon)
        from bandits.privatizers.returning import SteadyPrivatizer, returning_guarantee

        privatizer = policy.privatizer
        if not isinstance(privatizer, SteadyPrivatizer):
            return run_guarantee(policy, arms, horizon)
        sizes = policy.sizes(*arms_and_horizon(arms, horizon))
        return returning_guarantee(privatizer, sizes, max_visits=self.max_visits)

    def of_run(self, policy: Policy[Any], horizon: int, seed: int) -> Users:
        r"""The users of one run, who come in an order drawn from ``seed``."""
        if self.max_visits is None:
            return NEW_USERS
        from bandits.privatizers.returning import Pool, SteadyPrivatizer

        privatizer = policy.privatizer
        if not isinstance(privatizer, SteadyPrivatizer):
            return NEW_USERS
        return Pool(
            users=self.people(horizon),
            max_visits=self.max_visits,
            privatizer=privatizer,
            arrivals=np.random.default_rng(seed),
        )

    def check(self, algorithms: Sequence[str], radius: str) -> None:
        r"""Refuse algorithms, by name, that cannot be played so, and the paper's radius.

        Raises :class:`InvalidParameter`.
        """
        if self == ONCE:
            return
        if radius == "paper" and (self.max_visits is not None or self.deployment.factor != 1):
            reason = "must be exact: the papers' are for users who come once and stay"
            raise InvalidParameter("radius", radius, reason)
        for name in algorithms:
            for why, names in self.limits():
                if name not in (*names, *_SE):
                    raise InvalidParameter("algorithms", name, f"{why}: {', '.join(names)}")

    def limits(self) -> list[tuple[str, tuple[str, ...]]]:
        r"""What not every algorithm has that is needed, in words, and those that have it."""
        found: list[tuple[str, tuple[str, ...]]] = []
        if self.deployment.aggregation == "masked":
            found.append(("has no sum over secure aggregation; those that have", _MASKED))
        if self.max_visits is not None:
            from bandits.policies.returning import RETURNING

            found.append(("has no noise that visits share; those that have", RETURNING))
        if self.deployment.factor != 1:
            why = "does not plan for users who vanish or collude; those that do"
            found.append((why, _PLANNED))
        return found

    def to_json(self) -> dict[str, Any]:
        r"""The fields that differ from their defaults."""
        found = {
            "max_visits": self.max_visits,
            "honest": str(self.deployment.honest),
            "dropouts": str(self.deployment.dropouts),
            "aggregation": self.deployment.aggregation,
        }
        usual = {"max_visits": None, "honest": "1", "dropouts": "0", "aggregation": "ideal"}
        return {name: value for name, value in found.items() if value != usual[name]}

    def words(self) -> str:
        r"""The same for the head of a table, "" for new users who all stay.

        >>> Visitors(max_visits=4, deployment=Deployment(dropouts="1/20")).words()
        'at most 4 visits, dropouts 5%, '
        """
        plan = self.deployment
        found = [] if self.max_visits is None else [f"at most {self.max_visits} visits"]
        if plan.aggregation != "ideal":
            found.append(f"{plan.aggregation} aggregation")
        if plan.honest != 1:
            found.append(f"honest {_percent(plan.honest)}")
        if plan.dropouts:
            found.append(f"dropouts {_percent(plan.dropouts)}")
        return "".join(f"{each}, " for each in found)


ONCE: Final = Visitors()
r"""New users, all of whom stay and are honest."""


def supported(visitors: Visitors, algorithms: Sequence[str]) -> tuple[str, ...]:
    r"""Those of ``algorithms`` that can be played so; without privacy everyone can come and go.

    >>> supported(Visitors(max_visits=2), ("dist-dp-se", "cdp-se", "se"))
    ('dist-dp-se', 'se')
    """
    wanted = [names for _, names in visitors.limits()]
    return tuple(
        name for name in algorithms if all(name.split(":")[0] in (*names, *_SE) for names in wanted)
    )


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):g}%"
