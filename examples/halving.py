r"""An example of your own bandit policy: sequential halving with noise added by the server.

Compare it with a built-in policy:

    dpcore bandit run cz/easy --algorithms examples/halving.py:Halving,cdp-se --epsilon 1 -T 1e5

Sequential halving (Karnin, Koren and Somekh, 2013) spends half of the rounds on ceil(log2 K)
phases. Each phase has the same number of users for every remaining arm and keeps the better half of
the arms. The other rounds play the last remaining arm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from bandits import Policy, SumPrivatizer
from bandits.batch import Commit, Pulls, Released


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    r"""The remaining arms (``left``) and the number of users of all phases together (``users``)."""

    arms: int
    left: tuple[int, ...]
    users: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Halving(Policy[Phase]):
    r"""Sequential halving; each user has pure ``epsilon``-DP, by discrete Laplace noise."""

    epsilon: Fraction = Fraction(1)
    name: str = "halving"

    @property
    def privatizer(self) -> SumPrivatizer:
        return SumPrivatizer(trust="central", epsilon=self.epsilon, failure="1e-6")

    def init(self, arms: int, horizon: int) -> Phase:
        return Phase(arms=arms, left=tuple(range(arms)), users=horizon // 2)

    def choose(self, state: Phase) -> Pulls | Commit:
        if len(state.left) == 1:
            return Commit(state.left[0])
        each = _each(state.arms, state.users, len(state.left))
        return Pulls(tuple(each if arm in state.left else 0 for arm in range(state.arms)))

    def observe(self, state: Phase, released: Released) -> Phase:
        order = sorted(state.left, key=lambda arm: -(released.sums[arm] or 0))
        better = tuple(order[: -(-len(order) // 2)])
        return Phase(arms=state.arms, left=better, users=state.users)

    def sizes(self, arms: int, horizon: int) -> tuple[int, ...]:
        found, left = [], arms
        while left > 1:
            found.append(_each(arms, horizon // 2, left))
            left = -(-left // 2)
        return tuple(found)


def _each(arms: int, users: int, left: int) -> int:
    # The number of users of each remaining arm in a phase.
    phases = math.ceil(math.log2(arms))
    return max(users // phases // left, 1)
