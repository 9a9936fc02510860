"""Sums of bits over a pure shuffle: what is released, what is promised, and what covers cost."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from accounting.errors import NotDerived
from accounting.protocols.pure_shuffle import CertifiedShuffle
from bandits.privatizers.protocols import ALL_HONEST, BITS_ONLY
from bandits.privatizers.sums import PureShufflePrivatizer
from bandits.radius.radius import ExactRadius
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.polya_difference import PolyaDifference
from dpcore.protocols.aggregation import Shuffler
from dpcore.protocols.pure_shuffle import PureShuffle
from dpcore.protocols.run import run_pure
from dpcore.sampling.rng import SeededRng
from tests.bandits.privatizers.test_privatizer import RUNS, fitted
from tests.purse import purse

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
