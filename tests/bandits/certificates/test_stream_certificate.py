"""Certificates of running sums: trees, doubling blocks and the factorisation, and their twins."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from accounting.certificates.certificate import certify
from accounting.checker import verify
from accounting.checker.text.form import digest_of
from accounting.checker.worst import zcdp_keeps
from accounting.claims.claim import ZCdp
from bandits.certificates.certificate import certificate_of
from bandits.certificates.recheck import recheck
from bandits.combinatorial.cucb import cucb
from bandits.combinatorial.streams import StreamRelease
from bandits.rounds import Coins, play_together
from bandits.worlds import preset_of
from bandits.worlds.combinatorial import BitWorld
from dpcore.continual.square_root import SquareRootSum
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.mechanism import Mechanism, Sensitivity
from dpcore.sampling.rng import SeededRng

DELTA = "1/1000000"


def document_of(release: StreamRelease, horizon: int, size: int = 2) -> Any:
    (world,) = preset_of("csb/topk").worlds(1, arms=2 * size, super_arm=size).environments
    assert isinstance(world, BitWorld)
    policy = cucb("cucb-dp", world.of, horizon=horizon, epsilon=2, release=release)
    coins = [Coins(world=np.random.default_rng(1), rng=SeededRng(1))]
    (run,) = play_together(policy, [world], coins)
    return json.loads(certificate_of(run, deltas=[DELTA]).text())


def sealed(document: Any) -> str:
    for part in document["parts"]:
        part["certificate"]["digest"] = digest_of(part["certificate"])
    return json.dumps({**document, "digest": digest_of(document)})


@pytest.mark.parametrize("horizon", [20, 300, 3000])
def test_the_factorisation_is_certified_by_what_its_noise_has_in_zcdp(horizon: int) -> None:
    document = document_of("factorisation", horizon)
    verdict = recheck(json.dumps(document))
    assert verdict.holds, str(verdict)
    assert document["parts"][0]["unchecked"] is None
    # Another path: rho from the column as floats, epsilon from the normal law, which is less.
    part = document["parts"][0]["is"]
    squares = sum(float(move) ** 2 for move in part["sensitivity"]["amount"])
    rho = squares / (2 * float(Fraction(part["noise"]["sigma_squared"])))
    claimed = float(document["claims"][0]["epsilon"])
    assert claimed <= rho + 2 * math.sqrt(rho * math.log(1e6))
    assert 2 <= claimed < 2.2


def less_noise(document: Any) -> None:
    for law in (document["parts"][0]["is"], document["released"][0],
                document["parts"][0]["certificate"]["parts"][0]):  # fmt: skip
        law["noise"] = {**law["noise"], "sigma_squared": "1000000"}


def smaller_moves(document: Any) -> None:
    for law in (document["parts"][0]["is"], document["released"][0],
                document["parts"][0]["certificate"]["parts"][0]):  # fmt: skip
        law["sensitivity"]["amount"] = [1] * len(law["sensitivity"]["amount"])


def smaller_epsilon(document: Any) -> None:
    for claims in (document["claims"], document["parts"][0]["claims"]):
        claims[0]["epsilon"] = "1.9"


def smaller_rho(document: Any) -> None:
    (claim,) = document["parts"][0]["certificate"]["claims"]
    claim["rho"] = str(Fraction(claim["rho"]) / 2)
    smaller_epsilon(document)


@pytest.mark.parametrize(
    ("twin", "reason"),
    [
        (less_noise, "the second path finds"),
        (smaller_moves, "the second path finds"),
        (smaller_rho, "the second path finds"),
        (smaller_epsilon, "claims less at"),
    ],
)
def test_a_twin_of_the_factorisation_is_refused(twin: Any, reason: str) -> None:
    """Sealed with digests that fit."""
    document = document_of("factorisation", 300)
    twin(document)
    found = recheck(sealed(document))
    assert not found.holds
    assert reason in str(found)


@pytest.mark.parametrize("release", ["tree", "doubling"])
def test_pure_sums_of_any_size_are_certified(release: StreamRelease) -> None:
    """Ten levels for each of 8 base arms: 80 numbers, of which only the largest loss is exact."""
    document = document_of(release, 1000, 8)
    assert recheck(json.dumps(document)).holds
    noise = document["parts"][0]["is"]
    moved = sum(noise["sensitivity"]["amount"])
    assert moved / Fraction(noise["noise"]["scale"]) == 2
    shrunk = json.loads(json.dumps(document))
    for law in (shrunk["parts"][0]["is"], shrunk["released"][0],
                shrunk["parts"][0]["certificate"]["parts"][0]):  # fmt: skip
        law["noise"]["scale"] = str(Fraction(law["noise"]["scale"]) * Fraction(9, 10))
    assert not recheck(sealed(shrunk)).holds


@pytest.mark.parametrize("rho", ["1/1000", "1/50", "1/2", "7"])
@pytest.mark.parametrize("delta", ["1/1000000", "1/100", "1/3"])
def test_zcdp_is_converted_to_what_some_order_shows(rho: str, delta: str) -> None:
    """Against the engine's conversion, to 1e-6; and a hundredth less is refused."""
    upper = Fraction(ZCdp(rho).epsilon(delta).upper)
    if upper > Fraction(rho):
        assert zcdp_keeps(Fraction(rho), upper + Fraction(1, 10**6), Fraction(delta))
    assert not zcdp_keeps(Fraction(rho), upper * Fraction(99, 100), Fraction(delta))
    assert not zcdp_keeps(Fraction(rho), upper, Fraction(0))


def test_the_square_root_of_running_sums_is_certified_and_its_twin_refused() -> None:
    """A stream of its own: zCDP of the column's square norm, and not of a smaller one."""
    root = SquareRootSum(horizon=500, noise=DiscreteGaussian(sigma_squared=10**7))
    squared = sum(move * move for move in root.moves)
    whole = Mechanism(noise=root.noise, sensitivity=Sensitivity.l2_squared(squared))
    own = certify(whole, deltas=()).to_json()
    (claim,) = own["claims"]
    assert Fraction(claim["rho"]) == Fraction(squared, 2 * 10**7)
    assert verify(own).holds
    for change in (
        {"sensitivity": {"norm": "l2-squared", "amount": squared + 1}},
        {"noise": {"law": "discrete-gaussian", "sigma_squared": "9999999"}},
    ):
        bad = json.loads(json.dumps(own))
        bad["parts"][0] |= change
        bad["digest"] = digest_of(bad)
        assert "the second path finds" in str(verify(bad))
    # Norm by norm: the prefix sums of one item are what the column says.
    column = [Fraction(move) for move in root.moves]
    assert len(column) == 500
    assert sum(float(each) ** 2 for each in column) == pytest.approx(squared)
