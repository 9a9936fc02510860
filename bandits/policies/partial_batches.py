r"""Elimination among returning users: a batch that needs too many of them is released in parts.

A release needs as many different people as it has rewards. A batch that pulls every active arm l
times is split into m releases of an arm, none above ``most`` people, and the policy adds up what
they released: l rewards and m independent noises. Otherwise this is batched elimination
(``bandits.policies.elimination``). Proofs: docs/proofs/radius.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction

from bandits.batch import Released, arms_and_horizon, confidence_of
from bandits.policies.elimination import NAMES, means_of, next_batch, surviving
from bandits.policies.policy import Choice, Policy
from bandits.policies.schedule import Schedule
from bandits.privatizers.returning import SteadyPrivatizer
from bandits.radius.certified import LEAST_FAILURE, certified_gap
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import Exact, integer, make_integers, rational

__all__ = ["PartedElimination", "PartedState"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartedState:
    r"""The active arms in rising order, of ``arms``, and where the run is.

    Of batch ``batch``, of which a run of this length can complete ``batches``, ``sums`` holds what
    the first ``part`` parts released, arm by arm of the active ones.
    """

    arms: int
    active: tuple[int, ...]
    batches: int
    batch: int = 1
    part: int = 0
    sums: tuple[Fraction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartedElimination(Policy[PartedState]):
    r"""Batched elimination with no release of more than ``most`` people.

    ``confidence`` is p: the best arm is dropped with chance at most p, by the certified gap of the
    sum of all noises of a batch, p shared equally among the batches of a run.

    >>> from dpcore import DiscreteLaplace
    >>> steady = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=32, failure="1e-6")
    >>> schedule = Schedule(first=16, growth=4)
    >>> policy = PartedElimination(privatizer=steady, schedule=schedule, most=25)
    >>> policy.parts(1), policy.parts(2), policy.sizes(2, 100)
    ((16,), (22, 21, 21), (16, 21, 22))

    Raises :class:`InvalidParameter` for a confidence outside of (0, 1/2), ``most`` below 1, and
    a privatizer or schedule of another kind.
    """

    privatizer: SteadyPrivatizer = field()
    schedule: Schedule
    most: int
    confidence: Exact = Exact("1/10")

    def __post_init__(self) -> None:
        if not isinstance(self.privatizer, SteadyPrivatizer):
            reason = "must be a SteadyPrivatizer: the noises of all parts have one law"
            raise InvalidParameter("privatizer", self.privatizer, reason)
        if not isinstance(self.schedule, Schedule):
            raise InvalidParameter("schedule", self.schedule, "must be a Schedule, e.g. PAPER")
        make_integers(self, "most")
        object.__setattr__(self, "confidence", confidence_of(self.confidence))

    @property
    def name(self) -> str:
        return f"{NAMES[self.privatizer.name]}-in-parts"

    def parts(self, batch: int) -> tuple[int, ...]:
        r"""The people in each release of an arm in batch b >= 1, nearly equal: l(b) together."""
        length = self.schedule.pulls(batch)
        count = -(-length // self.most)
        each, more = divmod(length, count)
        return (each + 1,) * more + (each,) * (count - more)

    def init(self, arms: int, horizon: int) -> PartedState:
        arms, horizon = arms_and_horizon(arms, horizon)
        batches = self.schedule.batches(horizon)
        return PartedState(arms=arms, active=tuple(range(arms)), batches=batches)

    def choose(self, state: PartedState) -> Choice:
        return next_batch(state.arms, state.active, self.parts(state.batch)[state.part])

    def observe(self, state: PartedState, released: Released) -> PartedState:
        parts = self.parts(state.batch)
        fresh = means_of(state.active, released, 1).values()
        before = state.sums or (Fraction(0),) * len(state.active)
        sums = tuple(old + new for old, new in zip(before, fresh, strict=True))
        if state.part + 1 < len(parts):
            return replace(state, part=state.part + 1, sums=sums)
        pulled = sum(map(self.privatizer.reporting, parts))
        means = {arm: total / pulled for arm, total in zip(state.active, sums, strict=True)}
        gap = self.gap(state.batch, active=len(state.active), batches=state.batches)
        kept = surviving(means, gap)
        return replace(state, active=kept, batch=state.batch + 1, part=0, sums=())

    def gap(self, batch: int, *, active: int, batches: int) -> float:
        r"""The certified width of the difference of two means, infinite if there is none.

        The best of ``active`` arms is compared with the others, each at p/(``batches`` (active -
        1)). Of that go 2 m chances of a sum that is read wrongly mod m, one for each part.

        Raises :class:`InvalidParameter` for fewer than one of anything, and a batch beyond
        ``batches``, which has no share of p.
        """
        parts, active = self.parts(batch), integer("active", active, at_least=1)
        if integer("batches", batches, at_least=1) < batch:
            raise InvalidParameter("batch", batch, f"must be <= batches = {batches}")
        share = confidence_of(self.confidence) / batches / max(active - 1, 1)
        share -= 2 * len(parts) * rational("failure", self.privatizer.failure)
        if share < LEAST_FAILURE:
            return math.inf
        return certified_gap(
            self.privatizer.noise_of(parts),
            precision=self.privatizer.steps,
            pulls=sum(map(self.privatizer.reporting, parts)),
            failure=share,
        )

    def sizes(self, arms: int, horizon: int) -> tuple[int, ...]:
        if arms == 1:
            return ()
        # A batch that the horizon cuts has released its first parts.
        batches = range(1, self.schedule.batches(horizon) + 2)
        return tuple({size: None for batch in batches for size in sorted(set(self.parts(batch)))})
