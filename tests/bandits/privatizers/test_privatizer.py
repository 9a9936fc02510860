"""Tests of released sums: exact noise law, decoding, and the guarantee of each batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from accounting.derive_guarantee import guarantee
from accounting.errors import NotDerived
from accounting.guarantees.stated_guarantees import Assumed, Pure
from accounting.privacy_curves.release_curve import PrivacyCurve
from accounting.protocol_guarantees.pure_shuffle_guarantee import CertifiedShuffle
from audit.fit.fit import fit
from bandits.policies.successive_elimination import BatchedElimination
from bandits.privatizers.batch_sums_by_trust_model import (
    BitPrivatizer,
    PureShufflePrivatizer,
    SumPrivatizer,
    Trust,
)
from bandits.privatizers.deployment import ALL_HONEST, BITS_ONLY, SUM_ONLY, Relaxed
from bandits.privatizers.privatizer import Privatizer, Unprotected
from bandits.privatizers.returning_users import Pool, SteadyPrivatizer
from bandits.privatizers.run_guarantee import NEW_USERS, RunGuarantee, Users
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.polya import PolyaDifference
from dpcore.noise import Noise
from dpcore.numbers.arrays import Integers
from dpcore.protocols.noisy_sums import AggregatedSum, ShuffledPure
from dpcore.protocols.shuffled_bits import PureShuffle
from dpcore.sampling.rng import Rng, SeededRng
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day, effort
from tests.support.bandits.worlds import not_none, played
from tests.support.dpcore.mutants import rewired
from tests.support.dpcore.refusals import refused

TRUSTS: tuple[Trust, ...] = ("central", "local", "pure", "renyi", "concentrated", "shuffled-pure")
PURE: tuple[Trust, ...] = ("central", "local", "pure")
RUNS = effort(700, 1200)


def made(trust: Trust, epsilon: str = "1/2", failure: str = "1e-30") -> SumPrivatizer:
    return SumPrivatizer(trust=trust, epsilon=epsilon, failure=failure)


def noise_of(release: Callable[[], Fraction], precision: int, total: int) -> list[int]:
    # The noise added to the sum of encodings, in steps.
    found = [release() * precision - total for _ in range(RUNS)]
    assert all(step.denominator == 1 for step in found)
    return [int(step) for step in found]


def fitted(steps: list[int], law: Noise, alpha: float) -> str | None:
    def sampler(count: int, _: np.random.Generator) -> Integers:
        taken, steps[:] = steps[:count], steps[count:]
        return np.array(taken)

    return fit(sampler, law, runs=len(steps), alpha=alpha, seed=5).verdict


@by_day(2)
@pytest.mark.parametrize("trust", TRUSTS)
def test_a_released_sum_is_the_encoded_sum_plus_the_stated_noise(trust: Trust) -> None:
    alpha = buy_alpha(f"bandits: law of a released sum, {trust}", "1e-9")
    privatizer, rng = made(trust), SeededRng(11)
    g, law = privatizer.precision(5), privatizer.protocol(5).planned_noise
    steps = noise_of(lambda: privatizer.release(3 * g, 5, rng), g, 3 * g)
    assert fitted(steps, law, alpha) == "not_refuted"


def test_noise_drawn_once_for_all_users_is_detected() -> None:
    # In the local model every user draws noise; the fit test must reject one draw for all users.
    def one_draw(noise: Noise, *, users: int, sums: int, rng: Rng) -> list[int]:
        return [noise.sample(rng=rng)]

    broken = rewired(Privatizer.release, noise_by_user=one_draw)
    privatizer, rng = made("local"), SeededRng(13)
    g = privatizer.precision(5)
    steps = noise_of(lambda: broken(privatizer, 3 * g, 5, rng), g, 3 * g)
    assert fitted(steps, privatizer.protocol(5).planned_noise, 1e-9) == "refuted"


def test_released_bits_have_the_law_of_the_shuffle() -> None:
    alpha = buy_alpha("bandits: law of shuffled bits", "1e-9")
    privatizer, rng = BitPrivatizer(epsilon=2, delta="1e-3"), SeededRng(14)
    law = privatizer.protocol(6).planned_noise
    center = law.trials * Fraction(law.probability)
    at_once = [int(privatizer.release(4, 6, rng) - 4 + center) for _ in range(RUNS)]
    assert fitted(at_once, law, alpha) == "not_refuted"


@pytest.mark.parametrize("n", [4, 16, 40])
def test_the_threshold_of_local_sums_is_the_least_certified_one(n: int) -> None:
    chance = Fraction(1, 1000)
    privatizer = made("local", failure="1/1000")
    protocol, law = privatizer.protocol(n), privatizer.noise(n)
    assert isinstance(law, PolyaDifference)
    assert law.enclose_tail(protocol.threshold).upper <= chance
    assert law.enclose_tail(protocol.threshold - 1).lower > chance
    assert privatizer.protocol(n) == SumPrivatizer(
        trust="local", epsilon="1/2", failure="1/1000", parameters="paper"
    ).protocol(n)


def test_large_local_batches_are_planned_quickly() -> None:
    protocol = made("local", failure="1e-7").protocol(1 << 20)
    deviation = math.sqrt(2 * protocol.users) * 2 * protocol.precision
    assert 5 < protocol.threshold / deviation < 5.6  # about the normal quantile of 1e-7
    assert protocol.bits_per_user == (protocol.modulus - 1).bit_length()


@by_day(6)
@pytest.mark.parametrize("n", [1, 9, 1000])
@pytest.mark.parametrize("trust", TRUSTS)
def test_the_guarantee_is_that_of_the_release_record(trust: Trust, n: int) -> None:
    privatizer = made(trust)
    promised, record = privatizer.guarantee(n), privatizer.record(n, "one")
    if trust == "shuffled-pure":
        assert record is None
        assert isinstance(promised, Assumed)
        assert promised.guarantee == Pure("1/2")
        assert "relaxed aggregation" in promised.reason
        return
    record = not_none(record)
    assert (record.batch, record.honest) == ("one", Fraction(1))
    assert guarantee(record.mechanism) == promised
    assert record.mechanism.sensitivity.amount == privatizer.precision(n)
    assert isinstance(promised, PrivacyCurve)
    assert promised.pure().upper == (Fraction(1, 2) if trust in PURE else math.inf)


@pytest.mark.parametrize("n", [2, 100, 5000])
def test_bits_give_the_requested_epsilon_and_delta(n: int) -> None:
    privatizer = BitPrivatizer(epsilon="1/2", delta="1e-6")
    promised = privatizer.guarantee(n)
    assert isinstance(promised, PrivacyCurve)
    assert promised.meets("1/2", "1e-6")
    paper = BitPrivatizer(epsilon="1/2", delta="1e-6", parameters="paper")
    few, many = (each.protocol(n).planned_noise for each in (privatizer, paper))
    assert many.variance > 10 * Fraction(few.variance)
    record = not_none(privatizer.record(n, "b"))
    assert record.mechanism.noise == privatizer.noise(n) == few
    assert privatizer.bits(n) == 1 + privatizer.protocol(n).noise_bits


def test_assumptions_are_stated() -> None:
    assert made("local").assumed(8) == ()
    assert "trusted" in made("central").assumed(8)[0]
    assert "sum" in made("pure").assumed(8)[0]
    relaxed = f"an (1/8, {Fraction('1e-30')})-relaxed aggregation (CZ Theorem 3)"
    assert made("shuffled-pure").assumed(8) == (relaxed, ALL_HONEST)
    assert "bits" in BitPrivatizer(epsilon=1, delta="1e-6").assumed(8)[0]


@pytest.mark.parametrize(
    "privatizer",
    [Unprotected(), BitPrivatizer(epsilon=1, delta="1e-6"), *map(made, TRUSTS)],
    ids=lambda p: p.name,
)
def test_impossible_sums_of_encodings_are_refused(privatizer: Privatizer) -> None:
    for total in (-1, 4 * privatizer.precision(4) + 1, 0.5, True):
        with pytest.raises(InvalidParameter, match="encoded_sum"):
            privatizer.release(total, 4, SeededRng(1))  # type: ignore[arg-type]  # deliberately of the wrong type
    for pulls in (0, -1, 2.0):
        for ask in (privatizer.precision, privatizer.noise, privatizer.guarantee):
            with pytest.raises(InvalidParameter, match="pulls"):
                ask(pulls)  # type: ignore[arg-type]  # deliberately of the wrong type


class Halves(Privatizer):
    """Epsilon 1/2, without a statement of its assumptions."""

    name, epsilon = "halves", Fraction(1, 2)

    def protocol(self, pulls: int) -> AggregatedSum:
        share = DiscreteLaplace(scale=32).share(pulls)
        return AggregatedSum(users=pulls, precision=16, threshold=500, share=share)


class Fewer(Halves):
    """Broken: uses the protocol of one more user."""

    def protocol(self, pulls: int) -> AggregatedSum:
        return Halves.protocol(self, pulls + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffled(Halves):
    """Shares in a shuffler without assumptions, unless ``relaxed`` states one."""

    relaxed: Relaxed | None = None

    def protocol(self, pulls: int) -> ShuffledPure:  # type: ignore[override]  # another protocol
        share = DiscreteLaplace(scale=32).share(pulls)
        return ShuffledPure(users=pulls, precision=16, threshold=500, share=share)


def test_a_guarantee_is_that_of_the_protocol_or_refused() -> None:
    for ask in (Fewer().guarantee, Fewer().noise, Fewer().precision):
        with pytest.raises(InvalidParameter, match="must return a protocol for 8 users, not for 9"):
            ask(8)
    with refused("privatizer"):
        Fewer().release(3, 8, SeededRng(1))
    with pytest.raises(NotDerived, match="no relaxed aggregation"):
        Shuffled().guarantee(8)
    over = Relaxed(epsilon_hat=Fraction(1, 4), q_hat=Fraction(1, 10**6))
    # 1/2 from the sum, and 2 epsilon_hat = 1/2.
    assert Shuffled(relaxed=over).guarantee(8) == Assumed(Pure(1), reason=str(over))
    assert Shuffled(relaxed=over).record(8, "b") is None


def promised_by(privatizer: Privatizer, *, users: Users = NEW_USERS) -> RunGuarantee:
    policy = BatchedElimination(privatizer=privatizer)
    return not_none(played(policy, (0.6, 0.4), 60, users=users).guarantee)


def test_the_assumptions_of_a_protocol_are_added_to_its_guarantee() -> None:
    assert promised_by(Halves()).assumptions[:2] == (SUM_ONLY, ALL_HONEST)

    class Wordy(Halves):
        assumptions = ("the moon is full", ALL_HONEST)

    assert Wordy().assumed(8) == (SUM_ONLY, ALL_HONEST, "the moon is full")


@pytest.mark.parametrize(
    "slip", ["precision", "bits", "noise", "guarantee", "assumed", "record", "checked", "_of"]
)
def test_properties_derived_from_the_protocol_cannot_be_overridden(slip: str) -> None:
    # For example 64 steps where the protocol hides 16: the guarantee would be for the protocol
    # only.
    with pytest.raises(TypeError, match=f"Slip.{slip} must not be overridden"):
        type("Slip", (Halves,), {slip: lambda self, pulls: 64})
    with pytest.raises(TypeError, match="follows from the protocol"):
        dataclass(frozen=True)(type("Slip", (SumPrivatizer,), {slip: property(lambda self: 64)}))


def test_the_guarantee_of_a_pool_is_that_of_its_releases() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Weak(SteadyPrivatizer):
        def protocol(self, pulls: int) -> AggregatedSum:
            share = DiscreteLaplace(scale=1).share(pulls)
            return AggregatedSum(users=pulls, precision=self.steps, threshold=500, share=share)

    private = Weak(law=DiscreteLaplace(scale=64), steps=8, failure="1e-6")
    pool = Pool(users=200, max_visits=2, privatizer=private, arrivals=np.random.default_rng(1))
    with pytest.raises(InvalidParameter, match="must use one mechanism for every number of users"):
        promised_by(private, users=pool)
    assert pool.most_visits == 0


ASKED = PureShufflePrivatizer(epsilon=2, failure="1e-6")


def test_a_release_has_its_stated_law() -> None:
    alpha, rng = buy_alpha("bandits: law of a pure shuffle", "1e-10"), SeededRng(15)
    promised = ASKED.guarantee(20)
    assert isinstance(promised, CertifiedShuffle)
    assert (promised.stated_epsilon, promised.honest, promised.protocol.users) == (2, 20, 20)
    assert ASKED.record(20, "b") is None
    assert ASKED.assumed(20) == (BITS_ONLY, ALL_HONEST)
    assert 0 < ASKED.missed(20) <= Fraction("1.01e-6")
    law = not_none(ASKED.noise(20))
    steps = [int(ASKED.release(7, 20, rng) - 7) for _ in range(RUNS)]
    assert fitted([*steps], law, alpha) == "not_refuted"
    assert fitted([*steps], DiscreteLaplace(scale="1/2"), alpha) == "refuted"


def test_a_pure_shuffle_that_is_not_certified_releases_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    less = PolyaDifference(shape="1/12", scale=1)
    weak = PureShuffle(users=12, precision=1, reach=20, cover="1/1000", share=less)
    monkeypatch.setattr(PureShufflePrivatizer, "plan", lambda *_: weak)
    privatizer = PureShufflePrivatizer(epsilon=1, failure="1e-3")
    with pytest.raises(NotDerived, match=r"only PureBound.* is certified"):
        privatizer.guarantee(12)
