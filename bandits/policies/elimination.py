r"""Successive elimination, and Algorithm 1 of Chowdhury and Zhou in every trust model.

Batch b = 1, 2, ... pulls every active arm equally often, fresh users each time. The released sum of
the batch gives the mean of an arm, from this batch only. An arm stays while its mean is at most
``radius.gap`` below the best: by the paper's intervals, mean + beta(b) >= the largest mean -
beta(b), that is 2 beta(b).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final

from bandits.batch import Commit, Pulls, Released, arms_and_horizon, confidence_of
from bandits.policies.policy import Choice, Policy
from bandits.policies.schedule import PAPER, Schedule
from bandits.privatizers.privatizer import Privatizer
from bandits.radius.radius import ExactRadius, Radius
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import Exact, integer

__all__ = [
    "NAMES",
    "BatchedElimination",
    "EliminationState",
    "SuccessiveElimination",
    "completed_sizes",
    "means_of",
    "next_batch",
    "surviving",
]

NAMES: Final[dict[str, str]] = {
    "none": "se",
    "central": "cdp-se",
    "local": "ldp-se",
    "pure": "dist-dp-se",
    "renyi": "dist-rdp-se",
    "concentrated": "dist-cdp-se",
    "shuffled-pure": "shuffled-se",
    "pure-shuffle": "shuffled-se",
    "binary-shuffle": "bit-se",
}
"""What batched elimination is called, by the name of its privatizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EliminationState:
    r"""The active arms in rising order, of ``arms``, and the batch that comes next."""

    arms: int
    active: tuple[int, ...]
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessiveElimination(Policy[EliminationState]):
    r"""What eliminations share that look at one batch at a time; ``length`` tells them apart.

    ``confidence`` is p: the best arm is dropped with chance at most p, as far as ``radius`` has a
    proof. It is the chance of the mistake, and not the ``failure`` of a protocol, which is a
    privatizer's.

    Raises :class:`InvalidParameter` for a confidence outside of (0, 1/2) and a radius that is none.
    """

    radius: Radius = field(default=ExactRadius())
    confidence: Exact = Exact("1/10")

    def __post_init__(self) -> None:
        if not isinstance(self.radius, Radius):
            raise InvalidParameter("radius", self.radius, "must be a Radius, e.g. ExactRadius()")
        object.__setattr__(self, "confidence", confidence_of(self.confidence))

    @property
    @abstractmethod
    def privatizer(self) -> Privatizer:
        r"""What releases the sum of each arm."""

    @abstractmethod
    def length(self, batch: int, active: int) -> int:
        r"""How often batch b = 1, 2, ... pulls each of ``active`` arms: no fewer for more arms."""

    def pulls(self, state: EliminationState) -> int:
        r"""How often the coming batch pulls each active arm."""
        return self.length(state.batch, len(state.active))

    def init(self, arms: int, horizon: int) -> EliminationState:
        arms, _ = arms_and_horizon(arms, horizon)
        return EliminationState(arms=arms, active=tuple(range(arms)), batch=1)

    def choose(self, state: EliminationState) -> Choice:
        return next_batch(state.arms, state.active, self.pulls(state))

    def observe(self, state: EliminationState, released: Released) -> EliminationState:
        each = self.pulls(state)
        gap = self.radius.gap(
            self.privatizer,
            each,
            batch=state.batch,
            active=len(state.active),
            failure=self.confidence,
        )
        means = means_of(state.active, released, self.privatizer.reporting(each))
        return replace(state, active=surviving(means, gap), batch=state.batch + 1)

    def sizes(self, arms: int, horizon: int) -> tuple[int, ...]:
        return _sizes(self, arms, horizon)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchedElimination(SuccessiveElimination):
    r"""Algorithm 1 over ``privatizer``, with batches as long as ``schedule`` says.

    >>> from bandits.privatizers.privatizer import Unprotected
    >>> from bandits.policies.schedule import RELEASED
    >>> se = BatchedElimination(privatizer=Unprotected(), schedule=RELEASED)
    >>> se.name, se.choose(se.init(3, 1000))
    ('se', Pulls(counts=(4, 4, 4)))

    Raises :class:`InvalidParameter` for a confidence outside of (0, 1/2) and parts of another kind.
    """

    privatizer: Privatizer = field()
    schedule: Schedule = field(default=PAPER)

    def __post_init__(self) -> None:
        if not isinstance(self.privatizer, Privatizer):
            raise InvalidParameter("privatizer", self.privatizer, "must be a Privatizer")
        if not isinstance(self.schedule, Schedule):
            raise InvalidParameter("schedule", self.schedule, "must be a Schedule, e.g. PAPER")
        SuccessiveElimination.__post_init__(self)

    @property
    def name(self) -> str:
        return NAMES.get(self.privatizer.name, f"{self.privatizer.name}-se")

    def length(self, batch: int, active: int) -> int:  # noqa: ARG002  # the same for any number
        return self.schedule.pulls(batch)


def next_batch(arms: int, active: tuple[int, ...], each: int) -> Choice:
    r"""Pull every active arm ``each`` times, or commit to the one that is left.

    >>> next_batch(3, (0, 2), 8), next_batch(3, (2,), 8)
    (Pulls(counts=(8, 0, 8)), Commit(arm=2))
    """
    if len(active) == 1:
        return Commit(active[0])
    return Pulls(tuple(each if arm in active else 0 for arm in range(arms)))


def completed_sizes(arms: int, horizon: int, length: Callable[[int, int], int]) -> tuple[int, ...]:
    r"""The lengths of all batches that an elimination can complete, in rising order.

    ``length(b, active)`` pulls of each active arm in batch b = 1, 2, ..., never fewer for more arms
    and in the end beyond any horizon. The first batch pulls all ``arms``. Of a later one with
    ``active`` arms the cheapest way there is to lose all the others in the first batch: the arms
    that are active never grow in number, so no batch on the way had fewer.

    >>> completed_sizes(10, 99, lambda batch, active: 2**batch)  # 20 + 2 (4 + 8) = 44, + 32 = 76
    (2, 4, 8, 16)
    >>> completed_sizes(10, 12, lambda batch, active: 2**batch)  # 20 rounds
    ()
    """
    arms, horizon = integer("arms", arms, at_least=1), integer("horizon", horizon, at_least=1)
    if arms == 1 or arms * length(1, arms) > horizon:
        return ()
    found = {length(1, arms)}
    for active in range(2, arms + 1):
        spent, batch = arms * length(1, arms), 2
        while (spent := spent + active * length(batch, active)) <= horizon:
            found.add(length(batch, active))
            batch += 1
        if batch == 2:
            break  # with more arms the second batch is no cheaper
    return tuple(sorted(found))


@lru_cache(maxsize=1 << 8)
def _sizes(policy: SuccessiveElimination, arms: int, horizon: int) -> tuple[int, ...]:
    arms, horizon = arms_and_horizon(arms, horizon)
    return completed_sizes(arms, horizon, policy.length)


def means_of(active: tuple[int, ...], released: Released, pulls: int) -> dict[int, Fraction]:
    r"""The means of the active arms from sums over ``pulls`` users each, those who reported.

    >>> from bandits.batch import ReleasedSum
    >>> means_of((0, 2), Released((ReleasedSum(Fraction(3)), None, ReleasedSum(Fraction(1)))), 4)
    {0: Fraction(3, 4), 2: Fraction(1, 4)}

    Raises :class:`InvalidParameter` when an active arm has no sum.
    """
    means = {}
    for arm in active:
        total = released.sums[arm] if arm < len(released.sums) else None
        if total is None:
            raise InvalidParameter("released", released.sums, f"must hold a sum of arm {arm}")
        means[arm] = total / pulls
    return means


def surviving(means: dict[int, Fraction], gap: float) -> tuple[int, ...]:
    r"""The arms whose mean is at most ``gap`` below the largest; all, where it is infinite.

    >>> surviving({0: Fraction(1, 2), 1: Fraction(1, 4), 4: Fraction(0)}, 0.25)
    (0, 1)
    """
    if gap == math.inf:
        return tuple(means)
    least = max(means.values()) - Fraction(gap)
    return tuple(arm for arm, mean in means.items() if mean >= least)
