"""Tests of dropouts: the guarantee of a run is derived before it starts and holds afterwards."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from accounting.convert_guarantees import as_pure
from accounting.guarantees.guarantee import Guarantee
from accounting.guarantees.stated_guarantees import PureBound
from accounting.privacy_curves.release_curve import PrivacyCurve
from bandits.batch import Commit, Plays, Pulls, Released, ReleasedSum
from bandits.elimination_radii import ExactRadius, certified_width
from bandits.play import run_guarantee
from bandits.policies.successive_elimination import BatchedElimination, ShuffleElimination, means_of
from bandits.privatizers import deployment as module
from bandits.privatizers.batch_sums_by_trust_model import BitPrivatizer, SumPrivatizer, Trust
from bandits.privatizers.deployment import ALL_HONEST, MASKED, Deployment, masked_sum
from bandits.privatizers.privatizer import Privatizer, Unprotected
from bandits.privatizers.run_guarantee import RunGuarantee, Users
from bandits.worlds.arm_environments import Bernoulli, Environment
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.skellam import Skellam
from dpcore.protocols.noisy_sums import AggregatedSum
from dpcore.sampling.rng import SYSTEM, Rng, SeededRng, SystemRng
from dpcore.secure_aggregation.masked_aggregation import MaskedAggregation
from tests.day_and_nightly import by_day
from tests.support.bandits.worlds import Counted, Script, not_none, played

PLAN = Deployment(honest="9/10", dropouts="1/4")


@pytest.mark.parametrize("honest", ["1", "9/10", "1/3"])
@pytest.mark.parametrize("dropouts", ["0", "1/4", "33/100"])
def test_at_least_one_honest_user_remains(honest: str, dropouts: str) -> None:
    if Fraction(honest) <= Fraction(dropouts):
        with pytest.raises(InvalidParameter, match="so that honest users remain"):
            Deployment(honest=honest, dropouts=dropouts)
        return
    plan = Deployment(honest=honest, dropouts=dropouts)
    for n in range(1, 60):
        gone, dishonest = n - plan.reporting(n), plan.colluding(n)
        assert gone <= n * Fraction(dropouts) < gone + 1
        assert dishonest <= n * (1 - Fraction(honest)) < dishonest + 1
        assert plan.counted_on(n) == n - gone - dishonest >= 1
        assert n <= plan.factor * plan.counted_on(n)


def test_the_noise_of_remaining_users_gives_exactly_epsilon() -> None:
    planned = SumPrivatizer(trust="pure", epsilon="1/2", failure="1e-6", deployment=PLAN)
    for n in (2, 17, 400):
        assert not_none(planned.guarantee(n)).pure().upper == Fraction(1, 2)
        protocol = planned.protocol(n)
        assert protocol.observed_noise(PLAN.counted_on(n)) == DiscreteLaplace(
            scale=2 * protocol.precision
        )
        assert PLAN.assumption in planned.assumed(n)
        assert ALL_HONEST not in planned.assumed(n)


@pytest.mark.parametrize("trust", ["renyi", "concentrated"])
def test_a_curve_counts_only_the_remaining_users(trust: Any) -> None:
    plain = SumPrivatizer(trust=trust, epsilon="1/2", failure="1e-6")
    planned = replace(plain, deployment=PLAN)
    found = planned.guarantee(400)
    assert isinstance(found, PrivacyCurve)
    # Of 400 users 100 and 40 drop out; the remaining users add g^2/epsilon^2.
    protocol: Any = planned.protocol(400)
    assert found.noise == protocol.observed_noise(260)
    share = protocol.share
    each = share.variance if trust == "renyi" else share.sigma_squared
    assert 260 * Fraction(each) == Fraction(planned.precision(400)) ** 2 * 4


def test_bits_are_planned_for_the_remaining_users() -> None:
    bits = BitPrivatizer(epsilon="1/2", delta="1e-6", deployment=PLAN)
    for n in (1, 16, 300):
        assert not_none(bits.guarantee(n)).delta("1/2").upper <= Fraction(1, 10**6)
    everyone = BitPrivatizer(epsilon="1/2", delta="1e-6")
    assert bits.protocol(16).noise_bits > everyone.protocol(16).noise_bits


def test_means_are_over_the_users_who_report() -> None:
    # If sums of three quarters were divided by all users, 0.9 would be decoded as 0.68.
    planned = SumPrivatizer(trust="pure", epsilon=8, failure="1e-6", deployment=PLAN)
    policy = BatchedElimination(privatizer=planned)
    state = policy.init(2, 10**5)
    ask = policy.choose(state)
    sent = planned.reporting(ask.counts[0])  # type: ignore[union-attr]  # an elimination asks for pulls
    sums = Released((ReleasedSum(Fraction(sent)), ReleasedSum(Fraction(0))))
    assert means_of((0, 1), sums, sent) == {0: 1, 1: 0}
    assert played(policy, (0.9, 0.3), 600).active == (0,)


def test_the_exact_width_is_that_of_the_users_who_report() -> None:
    planned = SumPrivatizer(trust="pure", epsilon=1, failure="1e-9", deployment=PLAN)
    found = ExactRadius(batches=1).width(planned, 64, batch=1, active=1, failure="2/5")
    assert found == certified_width(
        planned.noise(64),
        precision=planned.precision(64),
        pulls=48,
        failure="2/5",
        threshold=planned.protocol(64).threshold,
    )


def test_masked_sums_equal_the_sums_of_the_remaining_users() -> None:
    share = Skellam(variance="1/1000000")
    protocol = AggregatedSum(users=20, precision=4, threshold=20, share=share)
    for total in (0, 1, 33, 60):
        assert masked_sum(protocol, total, PLAN, SeededRng(total)) == Fraction(total, 4)
    ideal, masked = (
        SumPrivatizer(trust="pure", epsilon=1, failure="1e-6", deployment=plan)
        for plan in (PLAN, replace(PLAN, aggregation="masked"))
    )
    assert masked.guarantee(8) == ideal.guarantee(8)
    assert MASKED in masked.assumed(8)


class Counting(MaskedAggregation):
    """Counts the rounds that are executed."""

    rounds = 0

    def total(self, *args: Any, **kwargs: Any) -> Any:
        Counting.rounds += 1
        return super().total(*args, **kwargs)


def test_every_masked_release_is_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MaskedAggregation", Counting)
    plan = Deployment(dropouts="1/20", aggregation="masked")
    private = SumPrivatizer(trust="pure", epsilon=2, failure="1e-6", deployment=plan)
    Counting.rounds = 0
    run = played(BatchedElimination(privatizer=private), (0.9, 0.5), 120)
    assert Counting.rounds == len(run.releases) > 0


@pytest.mark.parametrize(
    ("trust", "users", "why"),
    [
        *((trust, 8, "secure aggregation") for trust in ("central", "local", "shuffled-pure")),
        *(("pure", users, "2 to 65,535") for users in (1, 1 << 16)),
    ],
)
def test_masks_require_secure_aggregation_and_enough_users(
    trust: Trust, users: int, why: str
) -> None:
    masked = replace(private(trust), deployment=Deployment(aggregation="masked"))
    with pytest.raises(InvalidParameter, match=why):
        masked.guarantee(users)
    assert trust != "pure" or masked.guarantee(2) is not None


EASY = Bernoulli(means=(0.25, 0.75, 0.5))
LONG = 1000


def private(trust: Trust = "pure", epsilon: str = "1") -> SumPrivatizer:
    return SumPrivatizer(trust=trust, epsilon=epsilon, failure="1e-9")


def guaranteed(privatizer: Privatizer) -> Guarantee:
    return not_none(privatizer.guarantee(4))


def explore(privatizer: Privatizer, *said: int) -> Script:
    """Ten pulls per arm, three times, then the first arm; ``said`` are the batch sizes it names."""
    return Script(
        batches=(Pulls((10, 10, 10)),) * 3 + (Commit(0),), privatizer=privatizer, said=said
    )


class Uncharged(Users):
    """Users of whom none may be charged."""

    def admit(self, pulls: Pulls | Plays, batch: str) -> bool:
        raise AssertionError


@pytest.mark.parametrize("said", [(), (7,), (9, 11)])
def test_a_batch_of_an_unnamed_size_is_refused(said: tuple[int, ...]) -> None:
    counted = Counted(of=EASY)
    with pytest.raises(InvalidParameter, match="requests 10 users, a size that its method"):
        played(explore(private(), *said), counted, LONG, users=Uncharged())
    assert counted.drawn == []


def test_the_guarantee_is_derived_from_the_noise_in_use() -> None:
    class Turns(Script):
        """Uses another privatizer from the second batch on."""

        def observe(self, state: tuple[int, ...], released: Released) -> tuple[int, ...]:
            object.__setattr__(self, "privatizer", private(epsilon="50"))
            return Script.observe(self, state, released)

    first = explore(private(epsilon="0.1"), 10)
    turns = Turns(batches=first.batches, privatizer=first.privatizer)
    run = played(turns, EASY, LONG)
    assert as_pure(not_none(run.guarantee)) == PureBound("1/10")
    mechanism = private(epsilon="0.1").protocol(10).mechanism(10)  # type: ignore[union-attr]  # a sum
    assert {release.mechanism for release in run.releases} == {mechanism}


@pytest.mark.parametrize("trust", ["local", "pure"])
def test_pure_runs_have_the_guarantee_epsilon(trust: Trust) -> None:
    promised = not_none(run_guarantee(BatchedElimination(privatizer=private(trust)), 10, LONG))
    assert as_pure(promised) == PureBound(1)
    assert promised.epsilon("1e-6").upper <= 1
    assert promised.delta(1).upper == 0
    assert promised.delta("0.5").upper > 0
    assert promised.assumptions[:-1] == private(trust).assumed(8)
    assert "users are new" in promised.assumptions[-1]
    assert promised.to_json()["pure"] == "1"


@by_day(1)
@pytest.mark.parametrize("trust", ["renyi", "concentrated"])
def test_the_guarantee_of_a_run_is_that_of_its_worst_batch(trust: Trust) -> None:
    policy = BatchedElimination(privatizer=private(trust))
    promised = not_none(run_guarantee(policy, 3, LONG))
    each = [not_none(private(trust).guarantee(n)) for n in policy.sizes(3, LONG)]
    assert promised.epsilon("1e-6").upper == max(part.epsilon("1e-6").upper for part in each)
    assert promised.pure().upper == math.inf
    assert promised.delta(2).upper == max(part.delta(2).upper for part in each)
    # No release of a run is outside the guarantee.
    run = played(policy, EASY, LONG)
    assert run.guarantee == promised
    mechanisms = {release.mechanism.noise for release in run.releases}
    assert mechanisms <= {part.noise for part in each}  # type: ignore[attr-defined]  # these guarantees are curves


def test_the_worst_part_is_found_in_any_order() -> None:
    one, two, half = (guaranteed(private(epsilon=epsilon)) for epsilon in ("1", "2", "1/2"))
    alone = RunGuarantee(parts=(two,), assumptions=())
    for parts in ((one, two, half), (two, half, one), (half, one, two)):
        promised = RunGuarantee(parts=parts, assumptions=())
        assert as_pure(promised) == PureBound(2)
        assert promised.epsilon("1e-3").upper == alone.epsilon("1e-3").upper
        assert promised.delta(1).upper == alone.delta(1).upper > 0


def test_an_assumed_guarantee_holds_at_every_delta() -> None:
    assumed = guaranteed(private("shuffled-pure"))
    for parts in ((assumed,), (guaranteed(private(epsilon="1/2")), assumed)):
        promised = RunGuarantee(parts=parts, assumptions=())
        assert promised.epsilon(0).upper == promised.epsilon("1/2").upper == 1
        assert (promised.delta("0.99").upper, promised.delta(1).upper) == (1, 0)
        assert as_pure(promised) == PureBound(1)


def test_batches_that_may_not_be_played_give_no_lower_bound() -> None:
    # After the first batch of twenty rounds eight are left, enough for a second batch of two arms
    # only.
    policy = BatchedElimination(privatizer=private())
    promised = not_none(run_guarantee(policy, 10, 28))
    assert policy.sizes(10, 28) == (2, 4)
    assert promised.epsilon("1e-6").lower is None
    assert promised.delta(0).lower is None


def test_bits_have_epsilon_and_delta_but_no_pure_guarantee() -> None:
    bits = BitPrivatizer(epsilon=1, delta="1e-6")
    promised = not_none(run_guarantee(ShuffleElimination(privatizer=bits), 2, LONG))
    assert promised.delta(1).upper <= 1e-6
    assert promised.epsilon("1e-6").upper <= 1
    assert promised.epsilon(0).upper == float("inf")
    assert promised.pure().upper == math.inf


def test_without_noise_there_is_no_guarantee_and_without_release_a_perfect_one() -> None:
    assert run_guarantee(BatchedElimination(privatizer=Unprotected()), 3, 100) is None
    alone = not_none(run_guarantee(BatchedElimination(privatizer=private()), 1, 100))
    assert alone.parts == ()
    assert as_pure(alone) == PureBound(0)
    assert alone.epsilon(0).upper == alone.delta(0).upper == 0
    with pytest.raises(InvalidParameter, match="delta"):
        alone.epsilon(2)
    with pytest.raises(InvalidParameter, match="epsilon"):
        alone.delta(-1)


class Tied(SystemRng):
    """A subclass of the system's randomness."""


@pytest.mark.parametrize(
    ("rng", "simulated"), [(SYSTEM, False), (SeededRng(1), True), (Tied(), True)]
)
def test_a_run_states_whether_its_noise_came_from_the_system(rng: Rng, simulated: bool) -> None:
    assert played(explore(private(), 10), EASY, LONG, rng=rng).simulated is simulated


@pytest.mark.parametrize("means", [(float("nan"), 0.4, 0.1), (0.5, -3.0, 0.1), (0.5, 1.5, 0)])
def test_impossible_means_are_refused(means: tuple[float, ...]) -> None:
    with pytest.raises(InvalidParameter, match="must have means in"):
        played(explore(private(), 10), Odd(stated=means), LONG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Odd(Environment):
    """An environment with any means."""

    stated: tuple[float, ...]

    @property
    def means(self) -> tuple[float, ...]:
        return self.stated

    def _encoded_sum(self, arm: int, pulls: int, precision: int, world: np.random.Generator) -> int:
        return 0


def test_a_policy_cannot_be_its_own_environment() -> None:
    """A policy that is also the environment could see the rewards that it draws."""
    own = {"__init__": lambda self: None, "means": (0.5, 0.5, 0.5)}
    both = type("Both", (Script, Odd), own)()
    with pytest.raises(InvalidParameter, match="must be an Environment, not a Policy"):
        played(explore(private(), 10), both, LONG)
