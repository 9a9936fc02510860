r"""What the server sees in short linear and combinatorial runs, as the output that an audit tests.

A linear run has two orthogonal actions and two phases. Each client sends its average reward of each
action. In the first phase the watched client has the largest possible average of one action and the
smallest possible average of the other, or vice versa. This is the worst pair of inputs, because
both released sums change as much as one client can change them. An audited feature is the
difference of the two sums, in which noise shared by both sums would cancel. The averages of all
other clients are the midpoint of the range. In the local model there is no other client in the
phase, so the release is the message of the watched client.

A combinatorial run has two base arms, which form the only super arm, and four rounds. After four
rounds, a binary tree has completed a block on each of its three levels. The user of the first round
has outcomes 1 and 0, or 0 and 1; the outcomes of all other users are 0. Proofs:
docs/proofs/bandits.md and docs/proofs/radius.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Final

import numpy as np

from accounting.guarantees.guarantee import Guarantee
from bandits.actions import Actions, LinearModel
from bandits.audit_targets.server_view import ABSENT, ARMS, ServerView, Views, claim_of, play_short
from bandits.batch import Ask, Encoding
from bandits.combinatorial_rewards_and_oracles import Problem
from bandits.play_combinatorial import Coins, Game
from bandits.policies.combinatorial_ucb import Cucb
from bandits.policies.linear_phased_elimination import PhasedElimination
from bandits.super_arms import Bools, Unions
from bandits.worlds.arm_environments import Environment
from bandits.worlds.combinatorial import BitWorld
from dpcore.errors import InvalidParameter
from dpcore.sampling.rng import Rng

MODEL: Final = LinearModel(actions=Actions(np.eye(ARMS)), deviation=0, bound=1, bounded=True)
r"""The model of two orthogonal actions with rewards in [-1, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearView(ServerView):
    r"""The server's view of a short linear run of ``policy``, as a row of integers.

    The row contains, for each of two phases, the released sum of each action in steps, or
    ``ABSENT``. The last entry is a bit mask of the remaining actions.
    """

    policy: PhasedElimination

    features: ClassVar[tuple[str, ...]] = (
        "coordinate:0",
        "bandits.audit_targets.structured_views:first",
        "bandits.audit_targets.structured_views:second",
        "coordinate:-1",
    )

    @property
    def horizon(self) -> int:
        return sum(ARMS * (self.policy.h(phase) // ARMS or 1) for phase in (1, 2)) + 1

    def views(self, reward: int, runs: int, rng: Rng) -> Views:
        rows = []
        for _ in range(runs):
            fixed = _FixedAverages(reward=reward)
            sums, left = play_short(self.policy, self.policy.privatizer, fixed, self.horizon, rng)
            rows.append([*sums, left])
        return np.array(rows, dtype=np.int64)

    def curve(self) -> Guarantee:
        held = self.policy.privatizer
        if held.trust == "none":
            return claim_of("none", None)
        choice = self.policy.choose(self.policy.init(ARMS, self.horizon))
        (ask, *_) = choice.asks  # type: ignore[union-attr]  # never a Commit with two actions
        return held.curve(held.size_of(ask))


def linear_view_of(policy: PhasedElimination) -> LinearView:
    r"""The server's view of a short linear run of ``policy``, whose model must be :data:`MODEL`."""
    if policy.model != MODEL:
        reason = "must be structured_views.MODEL: two orthogonal actions, rewards in [-1, 1]"
        raise InvalidParameter("model", policy.model, reason)
    if policy.privatizer.trust == "local":
        held = {each.name: getattr(policy, each.name) for each in fields(policy)}
        policy = _SingleClient(**held)
    return LinearView(policy=policy)


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
class _FixedAverages(Environment):
    # The world of a single run: the averages of the watched client are the ends of the range, and
    # the averages of all other clients are its midpoint.
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


PAIR: Final = Problem(decisions=Unions.subsets(ARMS, ARMS))
r"""The problem of two base arms that are always played together."""

ROUNDS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinatorialView(ServerView):
    r"""The server's view of a short combinatorial run of ``policy``, as a row of integers.

    The row contains, for each of four rounds, the released sum of each base arm after the round, in
    steps, or ``ABSENT``.
    """

    policy: Cucb

    features: ClassVar[tuple[str, ...]] = (
        "coordinate:0",
        "coordinate:1",
        "bandits.audit_targets.structured_views:first",
        "bandits.audit_targets.structured_views:second",
        "bandits.audit_targets.structured_views:fourth",
    )

    def views(self, reward: int, runs: int, rng: Rng) -> Views:
        worlds = [_FixedOutcomes(of=PAIR, chances=(0.5, 0.5), reward=reward) for _ in range(runs)]
        # Ties are public, so they are the same in all runs.
        rngs = [Coins(world=np.random.default_rng(0), rng=rng) for _ in range(runs)]
        game, held = Game(self.policy, worlds, rngs), self.policy.privatizer
        steps = held.grid if held.kind == "factorisation" else 1
        columns = []
        for _ in range(ROUNDS):
            game.play(1)
            values = np.rint(game.sums.value * steps).astype(np.int64)
            columns.append(np.where(game.sums.count > 0, values, ABSENT))
        return np.concatenate(columns, axis=1)

    def curve(self) -> Guarantee:
        return claim_of("none", self.policy.privatizer.guarantee())


def combinatorial_view_of(policy: Cucb) -> CombinatorialView:
    r"""The server's view of four rounds of ``policy`` on the problem :data:`PAIR`."""
    return CombinatorialView(policy=replace(policy, problem=PAIR, horizon=ROUNDS))


def first(view: Any) -> int:
    r"""A feature: the released sum of action 0 minus that of action 1, after phase or round 1.

    Linear runs have phases, combinatorial runs have rounds. Sums that were not released count as 0.
    """
    return _lead(view, 1)


def second(view: Any) -> int:
    r"""The same feature as :func:`first`, after the second phase or round.

    In a linear run the watched client is not in the second phase.
    """
    return _lead(view, 2)


def fourth(view: Any) -> int:
    r"""The same feature as :func:`first`, after the fourth round of a combinatorial run."""
    return _lead(view, ROUNDS)


def _lead(view: Any, after: int) -> int:
    one, other = (0 if each == ABSENT else int(each) for each in view[2 * after - 2 : 2 * after])
    return one - other


@dataclass(frozen=True, slots=True, kw_only=True)
class _FixedOutcomes(BitWorld):
    # The outcomes of a single run: those of the watched user, then zeros.
    reward: int
    requests: list[int] = field(default_factory=list)

    def outcomes(self, rounds: int, world: np.random.Generator) -> Bools:  # noqa: ARG002  # nothing is drawn
        found = np.zeros((rounds, ARMS), dtype=np.bool_)
        if not self.requests:
            found[0, self.reward] = True
        self.requests.append(rounds)
        return found
