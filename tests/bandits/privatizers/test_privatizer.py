"""Released sums: their exact law, what is read from it, and what each batch promises."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from accounting.claims.claim import Assumed, Pure
from accounting.protocols.box import BinomialBox
from accounting.protocols.choose import choose
from accounting.protocols.paper_parameters import cz_renyi
from accounting.release.curve import PrivacyCurve
from accounting.release.guarantee import guarantee
from accounting.theorems.convert import as_pure
from audit.fit.fit import fit
from bandits.privatizers.privatizer import Privatizer, Unprotected
from bandits.privatizers.protocols import ALL_HONEST, noise_by_user
from bandits.privatizers.sums import BitPrivatizer, SumPrivatizer, Trust
from dpcore.errors import InvalidParameter
from dpcore.laws.polya_difference import PolyaDifference
from dpcore.noise import Noise
from dpcore.numbers.arrays import Integers
from dpcore.protocols.aggregation import IdealAggregation, RelaxedAggregation, Shuffler
from dpcore.protocols.run import run, run_relaxed
from dpcore.protocols.sums import ShuffledPure
from dpcore.sampling.rng import Rng, SeededRng, SystemRng
from tests.effort import by_day
from tests.purse import purse
from tests.support.dpcore.mutants import rewired

TRUSTS: tuple[Trust, ...] = (
    "central",
    "local",
    "pure",
    "renyi",
    "concentrated",
    "shuffled-pure",
)
PURE: tuple[Trust, ...] = ("central", "local", "pure")
RUNS = 1200


def made(trust: Trust, epsilon: str = "1/2", failure: str = "1e-30") -> SumPrivatizer:
    return SumPrivatizer(trust=trust, epsilon=epsilon, failure=failure)


def noise_of(release: Callable[[], Fraction], precision: int, total: int) -> list[int]:
    # What was added to the sum of encodings, in steps.
    found = [release() * precision - total for _ in range(RUNS)]
    assert all(step.denominator == 1 for step in found)
    return [int(step) for step in found]


def fitted(steps: list[int], law: Noise, alpha: float) -> str | None:
    def sampler(count: int, _: np.random.Generator) -> Integers:
        taken, steps[:] = steps[:count], steps[count:]
        return np.array(taken)

    return fit(sampler, law, runs=len(steps), alpha=alpha, seed=5).verdict


# -- the law of what is released ---------------------------------------------------------------


@by_day(2)
@pytest.mark.parametrize("trust", TRUSTS)
def test_a_released_sum_is_the_encoded_sum_plus_the_stated_noise(trust: Trust) -> None:
    alpha = purse.buy(f"bandits: law of a released sum, {trust}", "1e-9")
    privatizer, rng = made(trust), SeededRng(11)
    g, law = privatizer.precision(5), privatizer.protocol(5).planned_noise
    steps = noise_of(lambda: privatizer.release(3 * g, 5, rng), g, 3 * g)
    assert fitted(steps, law, alpha) == "not_refuted"


@by_day(2)
@pytest.mark.parametrize("trust", TRUSTS)
def test_user_by_user_the_law_is_the_same(trust: Trust) -> None:
    alpha = purse.buy(f"bandits: law user by user, {trust}", "1e-9")
    privatizer, rng = made(trust), SeededRng(12)
    protocol = privatizer.protocol(5)
    values = np.array([1.0, 0.0, 1.0, 1.0, 0.0])  # encoded exactly: no coin but the noise
    ideal = IdealAggregation(modulus=protocol.modulus, per_user=True)
    relaxed = RelaxedAggregation(modulus=protocol.modulus, epsilon_hat="1/8", q_hat="1e-6")

    def play() -> Fraction:
        if isinstance(protocol, ShuffledPure):
            return run_relaxed(protocol, values, relaxed, rng=rng).estimate
        estimate = run(protocol, values, ideal, batch="b", rng=rng).estimate
        assert isinstance(estimate, Fraction)
        return estimate

    g = privatizer.precision(5)
    assert fitted(noise_of(play, g, 3 * g), protocol.planned_noise, alpha) == "not_refuted"


def test_noise_drawn_once_for_all_users_is_caught() -> None:
    # In the local model every user draws; one draw for all is what the fit must refute.
    def one_draw(noise: Noise, *, users: int, runs: int, rng: Rng) -> list[Integers]:
        return [noise.sample(1, rng=rng)]

    broken = rewired(Privatizer.release, noise_by_user=one_draw)
    privatizer, rng = made("local"), SeededRng(13)
    g = privatizer.precision(5)
    steps = noise_of(lambda: broken(privatizer, 3 * g, 5, rng), g, 3 * g)
    assert fitted(steps, privatizer.protocol(5).planned_noise, 1e-9) == "refuted"


def test_bits_have_the_law_of_the_shuffle() -> None:
    alpha = purse.buy("bandits: law of shuffled bits", "1e-9")
    privatizer, rng = BitPrivatizer(epsilon=2, delta="1e-3"), SeededRng(14)
    protocol = privatizer.protocol(6)
    law = protocol.planned_noise
    center = law.trials * Fraction(law.probability)
    at_once = [int(privatizer.release(4, 6, rng) - 4 + center) for _ in range(RUNS)]
    values = np.array([1, 1, 0, 1, 0, 1])
    one_by_one = []
    for _ in range(RUNS // 4):
        estimate = run(protocol, values, Shuffler(), batch="b", rng=rng).estimate
        assert isinstance(estimate, Fraction)
        one_by_one.append(int(estimate - 4 + center))
    assert fitted(at_once, law, alpha / 2) == "not_refuted"
    assert fitted(one_by_one, law, alpha / 2) == "not_refuted"


def test_many_local_draws_are_as_many_as_users() -> None:
    seen: list[int] = []

    class Counted(PolyaDifference):
        def sample(self, size: object = None, *, rng: object = None) -> object:  # type: ignore[override]  # a stub
            assert isinstance(size, int)
            seen.append(size)
            return np.ones(size, dtype=np.int64)

    law = Counted(shape=1, scale=1)
    parts = [*noise_by_user(law, users=(1 << 17) + 5, runs=1, rng=SystemRng())]
    assert (sum(int(part.sum()) for part in parts), seen) == ((1 << 17) + 5, [1 << 16, 1 << 16, 5])
    many = [part.shape for part in noise_by_user(law, users=5, runs=1 << 15, rng=SystemRng())]
    assert many == [(2, 1 << 15), (2, 1 << 15), (1, 1 << 15)]


@pytest.mark.parametrize("trust", TRUSTS)
def test_sums_below_0_and_above_n_are_read_back(trust: Trust) -> None:
    privatizer, rng = made(trust, epsilon="1/10"), SeededRng(15)
    n = 4
    full = n * privatizer.precision(n)
    low = [privatizer.release(0, n, rng) for _ in range(60)]
    high = [privatizer.release(full, n, rng) for _ in range(60)]
    assert min(low) < 0 < max(low)
    assert min(high) < n < max(high)


def test_a_sum_is_read_right_as_long_as_the_noise_is_within_the_threshold() -> None:
    protocol = made("pure", failure="1/10").protocol(4)
    tau, g, m = protocol.threshold, protocol.precision, protocol.modulus
    for total in (0, 4 * g):
        for noise in range(-tau - 3, tau + 4):
            read = protocol.analyze((total + noise) % m) - Fraction(total + noise, g)
            assert read in ({0} if abs(noise) <= tau else {0, Fraction(m, g), Fraction(-m, g)})
    assert protocol.analyze((-tau - 1) % m) == Fraction(m - tau - 1, g)


def test_the_sum_itself_is_released_where_nothing_is_protected() -> None:
    plain: Privatizer = Unprotected()
    assert plain.release(plain.precision(8) * 3, 8) == 3
    assert (plain.noise(8), plain.guarantee(8), plain.record(8, "b")) == (None, None, None)
    assert (plain.bits(8), plain.epsilon, plain.protocol(8)) == (21, None, None)


# -- parameters --------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 7, 256])
@pytest.mark.parametrize("trust", ["central", "pure", "renyi", "concentrated", "shuffled-pure"])
def test_the_papers_parameters_are_the_papers(trust: Trust, n: int) -> None:
    privatizer = SumPrivatizer(trust=trust, epsilon="1/2", failure="1e-6", parameters="paper")
    delta = "1e-6" if trust in ("renyi", "concentrated") else 0
    plan = choose(
        instance=trust,
        users=n,
        epsilon="1/2",
        delta=delta,
        failure="1e-6",
        parameters="paper",
    )
    assert privatizer.protocol(n) == plan.protocol
    exact = made(trust, failure="1e-6")
    assert exact.precision(n) == privatizer.precision(n)
    assert exact.noise(n) == privatizer.noise(n)
    assert exact.protocol(n).threshold <= privatizer.protocol(n).threshold


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


def test_scaling_makes_the_steps_finer() -> None:
    four = SumPrivatizer(trust="pure", epsilon="1/2", failure="1e-6", scaling=4)
    assert four.precision(256) == 4 * made("pure").precision(256) == 32
    promised = four.guarantee(256)
    assert promised is not None
    assert as_pure(promised) == Pure("1/2")
    ten = SumPrivatizer(trust="renyi", epsilon="1/2", failure="1e-6", scaling=10)
    assert ten.noise(64) == cz_renyi(64, "1/2", "1e-6", 10).noise


# -- what is promised --------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 9, 1000])
@pytest.mark.parametrize("trust", TRUSTS)
def test_the_guarantee_is_that_of_the_record(trust: Trust, n: int) -> None:
    privatizer = made(trust)
    promised, record = privatizer.guarantee(n), privatizer.record(n, "one")
    if trust == "shuffled-pure":
        assert record is None
        assert isinstance(promised, Assumed)
        assert promised.guarantee == Pure("1/2")
        assert "relaxed aggregation" in promised.reason
        return
    assert record is not None
    assert (record.batch, record.honest) == ("one", Fraction(1))
    assert guarantee(record.mechanism) == promised
    assert record.mechanism.sensitivity.amount == privatizer.precision(n)  # type: ignore[union-attr]  # made one
    assert isinstance(promised, PrivacyCurve)
    assert promised.pure().upper == (Fraction(1, 2) if trust in PURE else math.inf)


@pytest.mark.parametrize("trust", ["renyi", "concentrated"])
def test_noise_chosen_for_a_delta_has_the_scaling_and_failure_asked_for(trust: Trust) -> None:
    given: dict[str, Any] = {"epsilon": 1, "delta": "1e-4", "failure": "1e-3", "scaling": 10}
    privatizer = SumPrivatizer(trust=trust, **given)
    plan = choose(instance=trust, users=64, **given)
    protocol = privatizer.protocol(64)
    assert protocol == plan.protocol
    assert privatizer.precision(64) == 80
    tail = protocol.planned_noise.enclose_tail(protocol.threshold)
    assert tail.upper <= Fraction(1, 1000)


@pytest.mark.parametrize("n", [2, 100, 5000])
def test_bits_give_the_epsilon_and_delta_asked_for(n: int) -> None:
    privatizer = BitPrivatizer(epsilon="1/2", delta="1e-6")
    promised = privatizer.guarantee(n)
    assert isinstance(promised, BinomialBox)
    assert promised.meets("1/2", "1e-6")
    paper = BitPrivatizer(epsilon="1/2", delta="1e-6", parameters="paper")
    few, many = (each.protocol(n).planned_noise for each in (privatizer, paper))
    assert many.variance > 10 * Fraction(few.variance)
    record = privatizer.record(n, "b")
    assert record is not None
    assert record.mechanism.noise == privatizer.noise(n) == few
    assert privatizer.bits(n) == 1 + privatizer.protocol(n).noise_bits


def test_what_is_assumed_is_said() -> None:
    assert made("local").assumed(8) == ()
    assert "trusted" in made("central").assumed(8)[0]
    assert "sum" in made("pure").assumed(8)[0]
    relaxed = f"an (1/8, {Fraction('1e-30')})-relaxed aggregation (CZ Theorem 3)"
    assert made("shuffled-pure").assumed(8) == (relaxed, ALL_HONEST)
    assert "bits" in BitPrivatizer(epsilon=1, delta="1e-6").assumed(8)[0]


# -- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "privatizer",
    [Unprotected(), BitPrivatizer(epsilon=1, delta="1e-6"), *map(made, TRUSTS)],
    ids=lambda p: p.name,
)
def test_sums_that_encodings_cannot_have_are_refused(privatizer: Privatizer) -> None:
    for total in (-1, 4 * privatizer.precision(4) + 1, 0.5, True):
        with pytest.raises(InvalidParameter, match="encoded_sum"):
            privatizer.release(total, 4, SeededRng(1))  # type: ignore[arg-type]  # what is refused
    for pulls in (0, -1, 2.0):
        for ask in (privatizer.precision, privatizer.noise, privatizer.guarantee):
            with pytest.raises(InvalidParameter, match="pulls"):
                ask(pulls)  # type: ignore[arg-type]  # what is refused
