"""Who stays: counts, promises of who is left, and sums over the working secure aggregation."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from accounting.release.curve import PrivacyCurve
from bandits.batch import Released, ReleasedSum
from bandits.play import play
from bandits.policies.elimination import BatchedElimination, means_of
from bandits.privatizers import protocols as module
from bandits.privatizers.protocols import ALL_HONEST, MASKED, Deployment, masked_sum
from bandits.privatizers.sums import BitPrivatizer, SumPrivatizer
from bandits.radius.radius import ExactRadius, PaperRadius
from bandits.worlds.environment import Bernoulli
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.skellam import Skellam
from dpcore.masked.aggregation import MaskedAggregation
from dpcore.protocols.sums import AggregatedSum
from dpcore.sampling.rng import SeededRng
from tests.purse import purse

PLAN = Deployment(honest="9/10", dropouts="1/4")

# -- counts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("honest", ["1", "9/10", "1/2", "1/3"])
@pytest.mark.parametrize("dropouts", ["0", "1/20", "1/4", "33/100"])
def test_somebody_is_left_of_any_number(honest: str, dropouts: str) -> None:
    if Fraction(honest) <= Fraction(dropouts):
        with pytest.raises(InvalidParameter, match="nobody would be left"):
            Deployment(honest=honest, dropouts=dropouts)
        return
    plan = Deployment(honest=honest, dropouts=dropouts)
    for n in range(1, 200):
        gone, dishonest = n - plan.reporting(n), plan.colluding(n)
        assert gone <= n * Fraction(dropouts) < gone + 1
        assert dishonest <= n * (1 - Fraction(honest)) < dishonest + 1
        assert plan.counted_on(n) == n - gone - dishonest >= 1
        assert n <= plan.factor * plan.counted_on(n)


# -- promises ------------------------------------------------------------------------------------


def test_pure_noise_of_who_is_left_is_exactly_epsilon() -> None:
    planned = SumPrivatizer(trust="pure", epsilon="1/2", failure="1e-6", deployment=PLAN)
    for n in (2, 17, 400):
        guarantee = planned.guarantee(n)
        assert guarantee is not None
        assert guarantee.pure().upper == Fraction(1, 2)
        protocol = planned.protocol(n)
        assert protocol.observed_noise(PLAN.counted_on(n)) == DiscreteLaplace(
            scale=2 * protocol.precision
        )
        assert PLAN.assumption in planned.assumed(n)
        assert ALL_HONEST not in planned.assumed(n)


@pytest.mark.parametrize("trust", ["renyi", "concentrated"])
def test_a_curve_is_of_who_is_left(trust: Any) -> None:
    plain = SumPrivatizer(trust=trust, epsilon="1/2", failure="1e-6")
    planned = replace(plain, deployment=PLAN)
    found = planned.guarantee(400)
    assert isinstance(found, PrivacyCurve)
    # 400 users lose 100 and 40: those who are left add g^2/epsilon^2.
    protocol: Any = planned.protocol(400)
    assert found.noise == protocol.observed_noise(260)
    share = protocol.share
    each = share.variance if trust == "renyi" else share.sigma_squared
    assert 260 * Fraction(each) == Fraction(planned.precision(400)) ** 2 * 4


def test_bits_are_planned_for_who_is_left() -> None:
    bits = BitPrivatizer(epsilon="1/2", delta="1e-6", deployment=PLAN)
    for n in (1, 16, 300):
        promised = bits.guarantee(n)
        assert promised is not None
        assert promised.delta("1/2").upper <= Fraction(1, 10**6)
    everyone = BitPrivatizer(epsilon="1/2", delta="1e-6")
    assert bits.protocol(16).noise_bits > everyone.protocol(16).noise_bits


def test_the_papers_plan_for_everyone_alone() -> None:
    for build in (
        lambda: SumPrivatizer(
            trust="pure", epsilon=1, failure="1e-3", parameters="paper", deployment=PLAN
        ),
        lambda: BitPrivatizer(epsilon="1/2", delta="1e-6", parameters="paper", deployment=PLAN),
    ):
        with pytest.raises(InvalidParameter, match="users who all stay"):
            build()
    planned = SumPrivatizer(trust="pure", epsilon=1, failure="1e-3", deployment=PLAN)
    with pytest.raises(InvalidParameter, match="vanish or collude"):
        PaperRadius().width(planned, 64, batch=1, active=2, failure="1/10")


# -- what is learned from who reports --------------------------------------------------------------


def run_of(privatizer: Any, seed: int = 1, horizon: int = 4000) -> Any:
    return play(
        BatchedElimination(privatizer=privatizer, confidence="0.1"),
        Bernoulli(means=(0.9, 0.5)),
        horizon=horizon,
        world=np.random.default_rng(seed),
        rng=SeededRng(seed),
    )


def test_means_are_over_those_who_report() -> None:
    # Were sums of three quarters divided by all, 0.9 would be read as 0.68.
    planned = SumPrivatizer(trust="pure", epsilon=8, failure="1e-6", deployment=PLAN)
    policy = BatchedElimination(privatizer=planned)
    state = policy.init(2, 10**5)
    ask = policy.choose(state)
    sent = planned.reporting(ask.counts[0])  # type: ignore[union-attr]  # an elimination asks for pulls
    sums = Released((ReleasedSum(Fraction(sent)), ReleasedSum(Fraction(0))))
    assert means_of((0, 1), sums, sent) == {0: 1, 1: 0}
    run = run_of(planned)
    assert run.active == (0,)


def test_the_exact_width_covers_means_of_who_reports() -> None:
    planned = SumPrivatizer(trust="pure", epsilon=1, failure="1e-9", deployment=PLAN)
    n, p, rng = 64, Fraction(2, 5), SeededRng(5)
    width = ExactRadius(batches=1).width(planned, n, batch=1, active=1, failure=p)
    world, stay, steps = np.random.default_rng(5), planned.reporting(n), planned.precision(n)
    missed = 0
    for _ in range(1500):
        total = steps * int(world.binomial(stay, 0.5))
        missed += abs(planned.release(total, n, rng) / stay - Fraction(1, 2)) > width
    alpha = purse.buy("width of those who report", "1e-9")
    assert missed <= stats.binom.isf(alpha, 1500, float(p))
    assert missed > 0


# -- masks ---------------------------------------------------------------------------------------


def test_masks_add_up_to_the_sum_of_who_stays() -> None:
    share = Skellam(variance="1/1000000")
    protocol = AggregatedSum(users=20, precision=4, threshold=20, share=share)
    for total in (0, 1, 33, 60):
        assert masked_sum(protocol, total, PLAN, SeededRng(total)) == Fraction(total, 4)


def test_masked_releases_have_the_law_of_the_ideal_ones() -> None:
    ideal = SumPrivatizer(
        trust="pure", epsilon=1, failure="1e-6", deployment=Deployment(dropouts="1/4")
    )
    masked = replace(ideal, deployment=Deployment(dropouts="1/4", aggregation="masked"))
    assert masked.guarantee(8) == ideal.guarantee(8)
    assert MASKED in masked.assumed(8)
    rng = SeededRng(2)
    steps = masked.precision(8)
    noise = ideal.noise(8)
    assert noise is not None
    found = [int((masked.release(3 * steps, 8, rng) - 3) * steps) for _ in range(30)]
    alpha = purse.buy("masked releases: their noise", "1e-9")
    uniform = [
        float(noise.cdf(k)) - float(noise.pmf(k)) * u
        for k, u in zip(found, _coins(30), strict=True)
    ]
    assert stats.kstest(uniform, "uniform").pvalue > alpha
    assert len(set(found)) > 3


def _coins(count: int) -> list[float]:
    return [float(u) for u in np.random.default_rng(4).uniform(size=count)]


class Counting(MaskedAggregation):
    """Counts the rounds that are really run."""

    rounds = 0

    def total(self, *args: Any, **kwargs: Any) -> Any:
        Counting.rounds += 1
        return super().total(*args, **kwargs)


def test_every_masked_release_is_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MaskedAggregation", Counting)
    private = SumPrivatizer(
        trust="pure",
        epsilon=2,
        failure="1e-6",
        deployment=Deployment(dropouts="1/20", aggregation="masked"),
    )
    Counting.rounds = 0
    run = run_of(private, horizon=120)
    assert Counting.rounds == len(run.releases) > 0


@pytest.mark.parametrize("trust", ["central", "local", "shuffled-pure"])
def test_only_sums_over_secure_aggregation_are_masked(trust: Any) -> None:
    private = SumPrivatizer(
        trust=trust, epsilon=1, failure="1e-3", deployment=Deployment(aggregation="masked")
    )
    with pytest.raises(InvalidParameter, match="secure aggregation"):
        private.guarantee(8)


@pytest.mark.parametrize("users", [1, 1 << 16])
def test_a_masked_round_of_too_few_or_too_many_is_refused(users: int) -> None:
    private = SumPrivatizer(
        trust="pure", epsilon=1, failure="1e-3", deployment=Deployment(aggregation="masked")
    )
    with pytest.raises(InvalidParameter, match="2 to 65,535"):
        private.guarantee(users)
    assert private.guarantee(2) is not None
