r"""The server's view of a short combinatorial run, for an audit.

The run has two base arms, both in the only super arm, and four rounds, so that a tree completes a
block on each of its three levels. The user of the first round has outcomes 1 and 0, or 0 and 1:
both numbers change at once, which is the worst pair, and noise shared by both arms would cancel in
the difference. The outcomes of all other users are 0. Proofs: docs/proofs/radius.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import numpy as np

from accounting.guarantees.guarantee import Guarantee
from bandits.audit_targets.server_view import ABSENT, ARMS, ServerView, Views, claim_of
from bandits.combinatorial_problem import Problem
from bandits.play_combinatorial import Coins, Game
from bandits.policies.combinatorial_ucb import Cucb
from bandits.privatizers.running_sums import StreamPrivatizer
from bandits.super_arms import Bools, Unions
from bandits.worlds.combinatorial import BitWorld
from dpcore.sampling.rng import Rng

PAIR: Final = Problem(decisions=Unions.subsets(ARMS, ARMS))
r"""The problem of two base arms that are always played together."""

ROUNDS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinatorialView(ServerView):
    r"""The server's view of a short run of ``policy``; each view is a row of integers."""

    policy: Cucb

    features: ClassVar[tuple[str, ...]] = (
        "coordinate:0",
        "coordinate:1",
        "bandits.audit_targets.combinatorial_view:first",
        "bandits.audit_targets.combinatorial_view:second",
        "bandits.audit_targets.combinatorial_view:fourth",
    )

    @property
    def privatizer(self) -> StreamPrivatizer:
        r"""The privatizer of the policy."""
        return self.policy.privatizer

    def views(self, reward: int, runs: int, rng: Rng) -> Views:
        worlds = [_Fixed(of=PAIR, chances=(0.5, 0.5), reward=reward) for _ in range(runs)]
        # Ties are public, so they are the same in all runs.
        coins = [Coins(world=np.random.default_rng(0), rng=rng) for _ in range(runs)]
        game = Game(self.policy, worlds, coins)
        steps = self.privatizer.grid if self.privatizer.kind == "factorisation" else 1
        columns = []
        for _ in range(ROUNDS):
            game.play(1)
            values = np.rint(game.sums.value * steps).astype(np.int64)
            columns.append(np.where(game.sums.count > 0, values, ABSENT))
        return np.concatenate(columns, axis=1)

    def curve(self) -> Guarantee:
        return claim_of("none", self.privatizer.guarantee())


def combinatorial_view_of(policy: Cucb) -> CombinatorialView:
    r"""The view of ``policy`` on the problem :data:`PAIR` with horizon 4."""
    sent = 1 if policy.least else PAIR.most
    short = replace(policy.privatizer, horizon=ROUNDS, sent=sent)
    return CombinatorialView(policy=replace(policy, problem=PAIR, privatizer=short))


def first(view: Any) -> int:
    r"""The sum of arm 0 minus the sum of arm 1 after the first round; missing sums count as 0."""
    return _lead(view, 1)


def second(view: Any) -> int:
    r"""The sum of arm 0 minus the sum of arm 1 after the second round."""
    return _lead(view, 2)


def fourth(view: Any) -> int:
    r"""The sum of arm 0 minus the sum of arm 1 after the fourth round."""
    return _lead(view, ROUNDS)


def _lead(view: Any, after: int) -> int:
    one, other = (
        0 if int(each) == ABSENT else int(each) for each in view[2 * after - 2 : 2 * after]
    )
    return one - other


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fixed(BitWorld):
    # The outcomes of a single run: those of the watched user, then zeros.
    reward: int
    requests: list[int] = field(default_factory=list)

    def outcomes(self, rounds: int, world: np.random.Generator) -> Bools:  # noqa: ARG002  # nothing is drawn
        found = np.zeros((rounds, ARMS), dtype=np.bool_)
        if not self.requests:
            found[0, self.reward] = True
        self.requests.append(rounds)
        return found
