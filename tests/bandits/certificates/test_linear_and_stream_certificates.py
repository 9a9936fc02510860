"""Certificates of linear runs and running sums: recomputed; edited certificates are refused."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from accounting import Status, verify
from accounting.certificates.canonical_text import digest_of
from accounting.certificates.certify import certify
from accounting.certificates.worst_part import zcdp_keeps
from accounting.guarantees.stated_guarantees import ZCdp
from bandits.certificates.certificate import certificate_of
from bandits.certificates.recheck import recheck
from bandits.play import Run, play
from bandits.play_combinatorial import Coins, play_together
from bandits.policies.combinatorial_ucb import cucb
from bandits.policies.linear_phased_elimination import PhasedElimination
from bandits.privatizers.averages import AveragePrivatizer, Calibrated, LinearTrust
from bandits.privatizers.running_sums import StreamRelease
from bandits.worlds import preset_of
from bandits.worlds.combinatorial import BitWorld
from bandits.worlds.linear import LinearWorld, sphere_instance
from dpcore.continual.square_root import SquareRootSum
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.mechanism import Mechanism, Sensitivity
from dpcore.sampling.rng import SeededRng
from tests.bandits.certificates.test_certificate import sealed


def run_of(
    trust: LinearTrust, calibration: Calibrated = "exact", dimension: int = 2, arms: int = 3
) -> Run:
    world: LinearWorld = sphere_instance(1, arms, dimension=dimension)
    privatizer = AveragePrivatizer(trust=trust, epsilon=10, delta="1/4", calibration=calibration)
    policy = PhasedElimination(model=world.model, privatizer=privatizer)
    coins = np.random.default_rng(1)
    return play(policy, world, horizon=20, world=coins, rng=SeededRng(1))


def changed(text: str, **fields: Any) -> str:
    document = {**json.loads(text), **fields}
    return json.dumps({**document, "digest": digest_of(document)})


@pytest.mark.parametrize("trust", ["central", "local"])
def test_gaussian_releases_are_computed_again(trust: LinearTrust) -> None:
    text = certificate_of(run_of(trust), deltas=["1/4"]).text()
    document = json.loads(text)
    assert float(document["claims"][0]["epsilon"]) <= 10
    assert float(document["claims"][0]["epsilon"]) > 9.9
    assert [part["unchecked"] for part in document["parts"]] == [None] * len(document["parts"])
    found = recheck(text).findings
    assert {finding.status for finding in found} == {Status.HOLDS, Status.ASSUMED}
    assert [f.where for f in found if f.status is Status.ASSUMED] == ["noise"]  # from a seed
    less = [{"delta": "1/4", "epsilon": "9"}]
    assert Status.FAILS in {each.status for each in recheck(changed(text, claims=less)).findings}


@pytest.mark.parametrize("trust", ["central", "local"])
def test_pure_releases_are_computed_again_whatever_their_size(trust: LinearTrust) -> None:
    """For nine numbers total losses are not enumerated, but the largest loss is exact."""
    run = run_of(trust, "pure", dimension=9, arms=12)
    text = certificate_of(run, deltas=["1/1000000"]).text()
    document = json.loads(text)
    assert float(document["claims"][0]["epsilon"]) <= 10
    assert [part["unchecked"] for part in document["parts"]] == [None] * len(document["parts"])
    found = recheck(text)
    assert {each.status for each in found.findings} == {Status.HOLDS, Status.ASSUMED}
    # A part that claims slightly less than its own certificate proves, for either kind of claim.
    less = [
        {**part, "claims": [{"delta": "1/1000000", "epsilon": "9.2"}]} for part in document["parts"]
    ]
    assert "claims a smaller" in str(recheck(changed(text, parts=less)))
    # A part that states a smaller largest loss than its noise has.
    (own, *_) = (part["certificate"] for part in document["parts"])
    pure = [each for each in own["claims"] if each["quantity"] == "pure"]
    assert [each["epsilon"] for each in pure] == ["10"]
    pure[0]["epsilon"] = "9"
    own["digest"] = digest_of(own)
    assert "the value is 10" in str(recheck(changed(text, parts=document["parts"])))


def test_missing_assumptions_and_foreign_releases_fail() -> None:
    text = certificate_of(run_of("central"), deltas=["1/4"]).text()
    document = json.loads(text)
    for assumption in document["assumptions"]:
        rest = [each for each in document["assumptions"] if each != assumption]
        found = recheck(changed(text, assumptions=rest)).findings
        assert Status.FAILS in {each.status for each in found}, assumption
    other = [
        {**document["released"][0], "noise": {"law": "discrete-gaussian", "sigma_squared": "3"}}
    ]
    assert Status.FAILS in {each.status for each in recheck(changed(text, released=other)).findings}


DELTA = "1/1000000"


def document_of(release: StreamRelease, horizon: int, size: int = 2) -> Any:
    (world,) = preset_of("csb/topk").worlds(1, arms=2 * size, super_arm=size).environments
    assert isinstance(world, BitWorld)
    policy = cucb("cucb-dp", world.of, horizon=horizon, epsilon=2, release=release)
    coins = [Coins(world=np.random.default_rng(1), rng=SeededRng(1))]
    (run,) = play_together(policy, [world], coins)
    return json.loads(certificate_of(run, deltas=[DELTA]).text())


@pytest.mark.parametrize("horizon", [20, 300, pytest.param(3000, marks=pytest.mark.nightly)])
def test_the_factorisation_is_certified_by_what_its_noise_has_in_zcdp(horizon: int) -> None:
    document = document_of("factorisation", horizon)
    verdict = recheck(json.dumps(document))
    assert verdict.holds, str(verdict)
    assert document["parts"][0]["unchecked"] is None
    # Independent computation: rho from the column in floats, epsilon from the normal law, a lower
    # bound.
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
        (less_noise, "proven: the value is"),
        (smaller_moves, "proven: the value is"),
        (smaller_rho, "proven: the value is"),
        (smaller_epsilon, "claims a smaller epsilon at"),
    ],
)
def test_a_twin_of_the_factorisation_is_refused(twin: Any, reason: str) -> None:
    """The edited certificate has matching digests."""
    document = document_of("factorisation", 300)
    twin(document)
    found = recheck(sealed(document))
    assert not found.holds
    assert reason in str(found)


@pytest.mark.parametrize("release", ["tree", "doubling"])
def test_pure_sums_of_any_size_are_certified(release: StreamRelease) -> None:
    """Ten levels for each of 8 base arms: 80 numbers, for which only the largest loss is exact."""
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
    """Agrees with the accountant's conversion to 1e-6; a value 1% smaller is refused."""
    upper = Fraction(ZCdp(rho).epsilon(delta).upper)
    if upper > Fraction(rho):
        assert zcdp_keeps(Fraction(rho), upper + Fraction(1, 10**6), Fraction(delta))
    assert not zcdp_keeps(Fraction(rho), upper * Fraction(99, 100), Fraction(delta))
    assert not zcdp_keeps(Fraction(rho), upper, Fraction(0))


def test_the_square_root_of_running_sums_is_certified_and_its_twin_refused() -> None:
    """A single stream: zCDP of the column's squared norm, and not of a smaller one."""
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
        assert "proven: the value is" in str(verify(bad))
    # The squared norm, computed from the prefix sums of one item.
    column = [Fraction(move) for move in root.moves]
    assert len(column) == 500
    assert sum(float(each) ** 2 for each in column) == pytest.approx(squared)
