"""A privatizer of one's own, and pure shuffles: what follows from a protocol."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from accounting.errors import NotDerived
from accounting.protocols.pure_shuffle import CertifiedShuffle
from bandits.play import Run, play
from bandits.policies.elimination import BatchedElimination
from bandits.privatizers.privatizer import NEW_USERS, Privatizer, Users
from bandits.privatizers.protocols import ALL_HONEST, BITS_ONLY, SUM_ONLY
from bandits.privatizers.returning import Pool, SteadyPrivatizer
from bandits.privatizers.sums import PureShufflePrivatizer, SumPrivatizer
from bandits.radius.radius import ExactRadius
from bandits.worlds.environment import Bernoulli
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.polya_difference import PolyaDifference
from dpcore.protocols.aggregation import Shuffler
from dpcore.protocols.pure_shuffle import PureShuffle
from dpcore.protocols.run import run_pure
from dpcore.protocols.sums import AggregatedSum
from dpcore.sampling.rng import SeededRng
from tests.bandits.privatizers.test_privatizer import RUNS, fitted
from tests.purse import purse


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


ASKED = PureShufflePrivatizer(epsilon=2, failure="1e-6")


def test_a_release_has_the_law_that_is_stated() -> None:
    alpha, rng = purse.buy("bandits: law of a pure shuffle", "1e-10"), SeededRng(15)
    promised = ASKED.guarantee(20)
    assert isinstance(promised, CertifiedShuffle)
    assert (promised.stated_epsilon, promised.honest, promised.protocol.users) == (2, 20, 20)
    assert ASKED.record(20, "b") is None
    assert ASKED.assumed(20) == (BITS_ONLY, ALL_HONEST)
    assert 0 < ASKED.missed(20) <= Fraction("1.01e-6")
    law = ASKED.noise(20)
    assert law is not None
    steps = [int(ASKED.release(7, 20, rng) - 7) for _ in range(RUNS)]
    assert fitted([*steps], law, alpha) == "not_refuted"
    assert fitted([*steps], DiscreteLaplace(scale="1/2"), alpha) == "refuted"


@pytest.mark.nightly
def test_so_have_the_messages() -> None:
    alpha, rng = purse.buy("bandits: messages of a pure shuffle", "1e-10"), SeededRng(16)
    protocol, law = ASKED.protocol(20), ASKED.noise(20)
    assert law is not None
    sent = [run_pure(protocol, [1] * 7 + [0] * 13, Shuffler(), rng=rng) for _ in range(RUNS)]
    assert fitted([int(each.estimate) - 7 for each in sent], law, alpha) == "not_refuted"


def test_a_pure_shuffle_that_is_not_certified_releases_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    less = PolyaDifference(shape="1/12", scale=1)
    weak = PureShuffle(users=12, precision=1, reach=20, cover="1/1000", share=less)
    monkeypatch.setattr(PureShufflePrivatizer, "plan", lambda *_: weak)
    privatizer = PureShufflePrivatizer(epsilon=1, failure="1e-3")
    with pytest.raises(NotDerived, match="certified for Pure"):
        privatizer.guarantee(12)
    given: dict[str, Any] = {"epsilon": 1, "failure": "1e-3"}
    for wrong in ({"epsilon": 0}, {"failure": 0}, {"failure": 1}, {"deployment": 3}):
        with pytest.raises(InvalidParameter):
            PureShufflePrivatizer(**(given | wrong))


def test_covers_are_paid_for_by_the_radius() -> None:
    few = PureShufflePrivatizer(epsilon=1, failure="1e-9")
    many = PureShufflePrivatizer(epsilon=1, failure="1e-2")
    radius = ExactRadius(batches=1)
    asked: dict[str, Any] = {"batch": 1, "active": 2, "failure": "1/10"}
    assert radius.gap(few, 64, **asked) < radius.gap(many, 64, **asked) < math.inf
    assert radius.width(few, 64, **asked) < radius.width(many, 64, **asked) < math.inf
    asked["failure"] = "1/1000"
    assert radius.gap(many, 64, **asked) == radius.width(many, 64, **asked) == math.inf
