r"""The server's view of a short linear run, for an audit.

The run has two orthogonal actions and two phases. In the first phase one client has the largest
average of one action and the smallest of the other, or vice versa: both released sums change as
much as one client can change them, which is the worst pair, and noise shared by both sums would
cancel in the difference. All other clients have the midpoint. In the local model that client is the
only one, so the release is its message. Proofs: docs/proofs/bandits.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final

import numpy as np

from accounting.guarantees.guarantee import Guarantee
from bandits.actions import Actions, LinearModel
from bandits.audit_targets.server_view import (
    ABSENT,
    ARMS,
    ServerView,
    Views,
    claim_of,
    play_short,
)
from bandits.batch import Ask, Encoding
from bandits.policies.linear_phased_elimination import PhasedElimination
from bandits.privatizers.vector_averages import AveragePrivatizer, Averages
from bandits.worlds.arm_environments import Environment
from dpcore.errors import InvalidParameter
from dpcore.sampling.rng import Rng

MODEL: Final = LinearModel(actions=Actions(np.eye(ARMS)), deviation=0, bound=1, bounded=True)
r"""The model of two orthogonal actions with rewards in [-1, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearView(ServerView):
    r"""The server's view of a short run of ``policy``; each view is a row of integers."""

    policy: PhasedElimination

    features: ClassVar[tuple[str, ...]] = (
        "coordinate:0",
        "bandits.audit_targets.linear_view:lead",
        "bandits.audit_targets.linear_view:second",
        "coordinate:-1",
    )

    @property
    def privatizer(self) -> AveragePrivatizer:
        r"""The privatizer of the policy."""
        return self.policy.privatizer

    @property
    def horizon(self) -> int:
        r"""A horizon with two phases of both actions and no third."""
        return sum(ARMS * (self.policy.h(phase) // ARMS or 1) for phase in (1, 2)) + 1

    @property
    def size(self) -> Averages:
        r"""The size of the release that contains the watched client."""
        choice = self.policy.choose(self.policy.init(ARMS, self.horizon))
        (ask, *_) = choice.asks  # type: ignore[union-attr]  # never a Commit with two actions
        return self.privatizer.size_of(ask)

    def views(self, reward: int, runs: int, rng: Rng) -> Views:
        rows = []
        for _ in range(runs):
            fixed = _Fixed(reward=reward)
            sums, left = play_short(self.policy, self.privatizer, fixed, self.horizon, rng)
            rows.append([*sums, left])
        return np.array(rows, dtype=np.int64)

    def curve(self) -> Guarantee:
        held = self.privatizer
        return claim_of("none", None if held.trust == "none" else held.curve(self.size))


def linear_view_of(policy: PhasedElimination) -> LinearView:
    r"""The audit target of a short run of ``policy``; the model of the policy must be MODEL."""
    if policy.model != MODEL:
        raise InvalidParameter("model", policy.model, "must be linear_view.MODEL")
    if policy.privatizer.trust == "local":
        held = {each.name: getattr(policy, each.name) for each in fields(policy)}
        policy = _SingleClient(**held)
    return LinearView(policy=policy)


def lead(view: Any) -> int:
    r"""The sum of action 0 minus the sum of action 1 in the first phase, in steps."""
    return int(view[0]) - int(view[1])


def second(view: Any) -> int:
    r"""Like :func:`lead` in phase 2, without the watched client; ``ABSENT`` if not released."""
    held = [int(each) for each in view[ARMS : 2 * ARMS]]
    return ABSENT if ABSENT in held else held[0] - held[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SingleClient(PhasedElimination):
    # One client per phase or round, so that the release is the message of that client.
    def users(self, phase: int, horizon: int) -> int:
        del phase, horizon
        return 1

    def h(self, phase: int) -> int:
        # With one client per round, each action is played once.
        return 1 if self.clients == "one-a-round" else PhasedElimination.h(self, phase)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fixed(Environment):
    # The world of a single run: the watched client has one of the two ends of the range, all other
    # clients the midpoint.
    reward: int
    requests: list[Ask] = field(default_factory=list)

    @property
    def means(self) -> tuple[float, ...]:
        return (1.0, 0.5)

    @property
    def model(self) -> LinearModel:
        return MODEL

    def encoded_sums(
        self,
        ask: Ask,
        encoding: Encoding,
        world: np.random.Generator,  # noqa: ARG002  # nothing is drawn
    ) -> tuple[int, ...]:
        middle = encoding.precision // 2
        ends = (0, encoding.precision)
        watched = not self.requests
        self.requests.append(ask)
        return tuple(
            ask.users * middle + (ends[self.reward ^ (action % ARMS)] - middle if watched else 0)
            for action in ask.actions
        )

    def _encoded_sum(self, arm: int, pulls: int, precision: int, world: np.random.Generator) -> int:
        raise InvalidParameter("ask", (arm, pulls, precision, world), "only averages are supported")
