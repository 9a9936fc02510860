r"""Successive elimination: Algorithm 1 of Chowdhury and Zhou in every trust model, and DP-SE.

Batch b = 1, 2, ... pulls every active arm equally often, always with new users. The mean of an arm
comes only from the released sum of this batch. An arm remains active while its mean is at most
``radius.gap`` below the best: 2 beta(b) with the paper's intervals, where mean + beta(b) must reach
the largest mean - beta(b).

DP-SE is a discretised successive elimination in the central model (Sajed and Sheffet 2019). Epoch
e = 1, 2, ... has Delta_e = 2^-e and pulls every active arm

    R_e = ceil(max(32 ln(8 |S| e^2/p)/Delta_e^2, 8 ln(4 |S| e^2/p)/(epsilon Delta_e))) + 1

times. Its mean is released with discrete Laplace noise of scale g/epsilon on rewards in g =
ceil(sqrt R_e) steps, instead of the paper's real-valued Laplace(1/(epsilon R_e)). In the paper an
arm remains active while its mean is within 2 h_e + 2 c_e of the largest, where

    h_e = sqrt(ln(8 |S| e^2/p)/(2 R_e)),   c_e = ln(4 |S| e^2/p)/(R_e epsilon)   (DpSeRadius).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Final

from bandits.batch import Commit, FailureProbability, Pulls, Released, arms_and_horizon
from bandits.policies.batch_schedule import PAPER, Schedule
from bandits.policies.policy import Choice, Policy
from bandits.privatizers.batch_sums import SumPrivatizer
from bandits.privatizers.deployment import NO_NOISE
from bandits.privatizers.privatizer import Privatizer
from bandits.radius.confidence_radii import ExactRadius, Radius
from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import ball
from dpcore.numbers.integer_search import ceiling
from dpcore.numbers.parameter import Exact, Of, integer

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
"""The name of batched elimination for each privatizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EliminationState:
    r"""The active arms among ``arms``, in increasing order, and the index of the next release.

    ``sums`` are the released sums of the active arms that the next means use; empty if none.
    """

    arms: int
    active: tuple[int, ...]
    horizon: int = 0
    batch: int = 1
    part: int = 0
    sums: tuple[Fraction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Elimination(Policy[EliminationState]):
    r"""Base class: pull the active arms equally often, then drop those far below the best.

    With ``pooled``, means are over all data so far, not only over the last batch.
    """

    pooled: ClassVar[bool] = False

    @property
    @abstractmethod
    def privatizer(self) -> Privatizer:
        r"""The privatizer that releases the sum of each arm."""

    @abstractmethod
    def length(self, batch: int, active: int) -> int:
        r"""The number of pulls of each of ``active`` arms in batch b = 1, 2, ..."""

    @abstractmethod
    def judged(self, state: EliminationState) -> tuple[int, float]:
        r"""At the end of a batch: the number of rewards in a mean, and the gap for elimination."""

    def parts(self, batch: int, active: int) -> tuple[int, ...]:
        r"""The numbers of users in the releases of an arm in ``batch``; their sum is ``length``."""
        return (self.length(batch, active),)

    def init(self, arms: int, horizon: int) -> EliminationState:
        arms, horizon = arms_and_horizon(arms, horizon)
        return EliminationState(arms=arms, active=tuple(range(arms)), horizon=horizon)

    def choose(self, state: EliminationState) -> Choice:
        if len(state.active) == 1:
            return Commit(state.active[0])
        each = self.parts(state.batch, len(state.active))[state.part]
        return Pulls(tuple(each if arm in state.active else 0 for arm in range(state.arms)))

    def observe(self, state: EliminationState, released: Released) -> EliminationState:
        fresh = means_of(state.active, released, 1)
        sums = dict(zip(state.active, state.sums or (Fraction(0),) * len(fresh), strict=True))
        sums = {arm: total + fresh[arm] for arm, total in sums.items()}
        if state.part + 1 < len(self.parts(state.batch, len(state.active))):
            return replace(state, part=state.part + 1, sums=tuple(sums.values()))
        pulled, gap = self.judged(state)
        active = surviving({arm: total / pulled for arm, total in sums.items()}, gap)
        kept = tuple(sums[arm] for arm in active if self.pooled)
        return replace(state, active=active, batch=state.batch + 1, part=0, sums=kept)

    def sizes(self, arms: int, horizon: int) -> tuple[int, ...]:
        return _sizes(self, arms, horizon)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessiveElimination(Elimination):
    r"""Base class of eliminations whose means use only the last batch; subclasses set ``length``.

    ``failure_probability`` is p: the best arm is dropped with probability at most p if ``radius``
    has a proof. It is not the ``failure`` of a protocol, which is a parameter of the privatizer.
    """

    radius: Of[Radius] = Of(Radius, "must be a Radius, e.g. ExactRadius()", ExactRadius())
    failure_probability: FailureProbability = FailureProbability("1/10")

    def judged(self, state: EliminationState) -> tuple[int, float]:
        active = len(state.active)
        parts = self.parts(state.batch, active)
        gap = self.radius.gap(
            self.privatizer,
            parts if len(parts) > 1 else parts[0],
            batch=state.batch,
            active=active,
            failure=self.failure_probability,
        )
        return sum(map(self.privatizer.reporting, parts)), gap


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchedElimination(SuccessiveElimination):
    r"""Batched elimination (Algorithm 1) with ``privatizer`` and the batch lengths of ``schedule``.

    With ``most``, no release has more users than that: a longer batch is split into parts.

    >>> from bandits.privatizers.privatizer import Unprotected
    >>> from bandits.policies.batch_schedule import RELEASED
    >>> se = BatchedElimination(privatizer=Unprotected(), schedule=RELEASED)
    >>> se.name, se.choose(se.init(3, 1000))
    ('se', Pulls(counts=(4, 4, 4)))
    >>> from bandits.privatizers.returning_users import SteadyPrivatizer
    >>> from dpcore import DiscreteLaplace
    >>> steady = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=32, failure="1e-6")
    >>> policy = BatchedElimination(
    ...     privatizer=steady, schedule=Schedule(first=16, growth=4), most=25
    ... )
    >>> policy.parts(1), policy.parts(2), policy.sizes(2, 100)
    ((16,), (22, 21, 21), (16, 21, 22))

    Raises :class:`InvalidParameter` for a failure probability outside (0, 1/2), and fields of
    another type.
    """

    privatizer: Of[Privatizer] = Of(Privatizer, "must be a Privatizer")
    schedule: Of[Schedule] = Of(Schedule, "must be a Schedule, e.g. PAPER", PAPER)
    most: int | None = None

    def __post_init__(self) -> None:
        SuccessiveElimination.__post_init__(self)
        if self.most is None:
            return
        integer("most", self.most, at_least=1)
        if self.privatizer.least_noise is None:
            reason = "must be a SteadyPrivatizer: the noise of all parts must have the same law"
            raise InvalidParameter("privatizer", self.privatizer, reason)
        if not isinstance(self.radius, ExactRadius):
            raise InvalidParameter("radius", self.radius, "must be ExactRadius() if most is given")

    @property
    def name(self) -> str:
        name = NAMES.get(self.privatizer.name, f"{self.privatizer.name}-se")
        return name if self.most is None else f"{name}-in-parts"

    def length(self, batch: int, active: int) -> int:  # noqa: ARG002  # the same for any number
        return self.schedule.pulls(batch)

    def parts(self, batch: int, active: int = 2) -> tuple[int, ...]:
        length = self.length(batch, active)
        count = -(-length // (self.most or length))
        each, more = divmod(length, count)
        return (each + 1,) * more + (each,) * (count - more)

    def sizes(self, arms: int, horizon: int) -> tuple[int, ...]:
        if self.most is None or arms == 1:
            return SuccessiveElimination.sizes(self, arms, horizon)
        # The first parts of a batch that the horizon truncates may have been released.
        batches = range(1, self.schedule.batches(horizon) + 2)
        return tuple({size: None for batch in batches for size in sorted(set(self.parts(batch)))})


def completed_sizes(arms: int, horizon: int, length: Callable[[int, int], int]) -> tuple[int, ...]:
    r"""The lengths of all batches that an elimination may complete, in increasing order.

    ``length(b, active)`` is the number of pulls of each active arm in batch b = 1, 2, ...; it is
    non-decreasing in ``active`` and exceeds any horizon for large b. The first batch pulls all
    ``arms``. A later batch with ``active`` arms is reached with the fewest pulls if all other arms
    are dropped after the first batch, because the number of active arms never grows.
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
def _sizes(policy: Elimination, arms: int, horizon: int) -> tuple[int, ...]:
    arms, horizon = arms_and_horizon(arms, horizon)
    return completed_sizes(arms, horizon, policy.length)


def means_of(active: tuple[int, ...], released: Released, pulls: int) -> dict[int, Fraction]:
    r"""The means of the active arms, from sums over ``pulls`` reporting users per arm."""
    means = {}
    for arm in active:
        total = released.sums[arm] if arm < len(released.sums) else None
        if total is None:
            raise InvalidParameter("released", released.sums, f"must have a sum for arm {arm}")
        means[arm] = total / pulls
    return means


def surviving(means: dict[int, Fraction], gap: float) -> tuple[int, ...]:
    r"""The arms whose mean is at most ``gap`` below the largest; all arms if it is infinite."""
    if gap == math.inf:
        return tuple(means)
    least = max(means.values()) - Fraction(gap)
    return tuple(arm for arm, mean in means.items() if mean >= least)


@dataclass(frozen=True, slots=True, kw_only=True)
class DpSe(SuccessiveElimination):
    r"""Sajed and Sheffet's algorithm for ``epsilon``; each batch is an epoch.

    ``radius=DpSeRadius()`` is the paper's 2 h_e + 2 c_e; the default is certified for the actual
    noise instead. R_e is always the paper's. ``failure`` is the probability that a sum mod m is
    decoded incorrectly.
    """

    epsilon: Exact = Exact(zero=NO_NOISE)
    failure: Exact = Exact(within="(0, 1)")

    @property
    def name(self) -> str:
        return "dp-se"

    @property
    def privatizer(self) -> SumPrivatizer:
        r"""The privatizer with central noise and g = ceil(sqrt n) steps."""
        e = self.epsilon
        return SumPrivatizer(trust="central", epsilon=e, failure=self.failure, scaling=1 / e)

    def length(self, batch: int, active: int) -> int:
        r"""The number of pulls R_e of each active arm in epoch e = ``batch``."""
        return _epoch_pulls(batch, active, self.epsilon, self.failure_probability)


@lru_cache(maxsize=1 << 12)
def _epoch_pulls(epoch: int, active: int, epsilon: Fraction, p: Fraction) -> int:
    odds = 4 * active * epoch**2 / p
    reward = ceiling(lambda: 32 * 4**epoch * ball(2 * odds).log())
    noise = ceiling(lambda: 8 * 2**epoch * ball(odds).log() / ball(epsilon))
    return max(reward, noise) + 1
