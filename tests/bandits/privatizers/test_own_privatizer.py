"""A privatizer of one's own: what follows from its protocol cannot be stated beside it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from bandits.play import Run, play
from bandits.policies.elimination import BatchedElimination
from bandits.privatizers.privatizer import Privatizer
from bandits.privatizers.promise import NEW_USERS, Users
from bandits.privatizers.protocols import ALL_HONEST, SUM_ONLY
from bandits.privatizers.returning import Pool, SteadyPrivatizer
from bandits.privatizers.sums import SumPrivatizer
from bandits.worlds.environment import Bernoulli
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.protocols.sums import AggregatedSum
from dpcore.sampling.rng import SeededRng


class Halves(Privatizer):
    """Epsilon 1/2, and not a word on what that rests on."""

    name, epsilon = "halves", Fraction(1, 2)

    def protocol(self, pulls: int) -> AggregatedSum:
        share = DiscreteLaplace(scale=32).share(pulls)
        return AggregatedSum(users=pulls, precision=16, threshold=500, share=share)


def played(privatizer: Privatizer, *, users: Users = NEW_USERS) -> Run:
    policy, coins = BatchedElimination(privatizer=privatizer), np.random.default_rng(1)
    rng = SeededRng(1)
    return play(policy, Bernoulli(means=(0.6, 0.4)), horizon=60, world=coins, rng=rng, users=users)


def test_what_a_protocol_rests_on_is_said_for_it() -> None:
    promised = played(Halves()).guarantee
    assert promised is not None
    assert promised.assumptions[:2] == (SUM_ONLY, ALL_HONEST)

    class Wordy(Halves):
        assumptions = ("the moon is full", ALL_HONEST)

    assert Wordy().assumed(8) == (SUM_ONLY, ALL_HONEST, "the moon is full")


@pytest.mark.parametrize(
    "slip", ["precision", "bits", "noise", "guarantee", "assumed", "record", "checked", "_of"]
)
def test_what_follows_from_the_protocol_cannot_be_written_anew(slip: str) -> None:
    # 64 steps where the protocol hides 16, say: the promise would be of the protocol's.
    with pytest.raises(TypeError, match=f"Slip.{slip} follows from the protocol"):
        type("Slip", (Halves,), {slip: lambda self, pulls: 64})
    with pytest.raises(TypeError, match="follows from the protocol"):
        dataclass(frozen=True)(type("Slip", (SumPrivatizer,), {slip: property(lambda self: 64)}))


def test_a_pool_promises_what_is_released_to_its_users() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Weak(SteadyPrivatizer):
        def protocol(self, pulls: int) -> AggregatedSum:
            share = DiscreteLaplace(scale=1).share(pulls)
            return AggregatedSum(users=pulls, precision=self.steps, threshold=500, share=share)

    given: dict[str, Any] = {"law": DiscreteLaplace(scale=64), "steps": 8, "failure": "1e-6"}
    coins = np.random.default_rng(1)
    for kind in (SteadyPrivatizer, Weak):
        private = kind(**given)
        pool = Pool(users=200, max_visits=2, privatizer=private, arrivals=coins)
        if kind is SteadyPrivatizer:
            assert played(private, users=pool).guarantee is not None
            continue
        with pytest.raises(InvalidParameter, match="must release what the pool charges"):
            played(private, users=pool)
        assert pool.most_visits == 0
