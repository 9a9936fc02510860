"""Tests of returning users: arrivals, charges before each release, guarantees, thread safety."""

from __future__ import annotations

import math
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from accounting.composition.composition_theorems import per_user
from accounting.convert_guarantees import as_pure
from accounting.errors import NotDerived
from accounting.guarantees.stated_guarantees import Pure, PureBound
from accounting.ledger import Ledger
from accounting.privacy_filters import filter_for
from bandits.batch import Pulls, Released
from bandits.play import Run
from bandits.policies.successive_elimination import BatchedElimination, EliminationState
from bandits.privatizers import deployment
from bandits.privatizers.deployment import Deployment
from bandits.privatizers.returning_users import (
    Book,
    LedgerBook,
    Names,
    Pool,
    SteadyPrivatizer,
    visits_budget,
)
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussianSum
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.laws.skellam import Skellam
from dpcore.mechanism import Relation, Scope
from dpcore.protocols.noisy_sums import AggregatedSum
from dpcore.sampling.rng import SeededRng
from tests.day_and_nightly import by_day
from tests.support.bandits.worlds import not_none, played
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refused
from tests.support.laws import second

LAPLACE = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=8, failure="1e-3")
SKELLAM = SteadyPrivatizer(law=Skellam(variance=400), steps=4, failure="1e-3")


each_steady = pytest.mark.parametrize("steady", [LAPLACE, SKELLAM], ids=["laplace", "skellam"])


@dataclass(frozen=True, kw_only=True)
class Held(Book):
    """Records the users of each release; allows ``held`` visits of each user."""

    held: int
    visits: Counter[int] = field(default_factory=Counter)
    releases: dict[str, list[int]] = field(default_factory=dict)

    def able(self, users: Names) -> npt.NDArray[np.bool_]:
        return np.array([self.visits[user] < self.held for user in users.tolist()], dtype=np.bool_)

    def pay(self, users: Names, release: str) -> npt.NDArray[np.bool_]:
        paid = self.able(users)
        self.visits.update(users[paid].tolist())
        self.releases.setdefault(release.rsplit("/", 1)[0], []).extend(users.tolist())
        return paid


@dataclass(frozen=True, kw_only=True)
class Noted(LedgerBook):
    """A book on a ledger that records the users of each release."""

    visits: Counter[int] = field(default_factory=Counter)

    def pay(self, users: Names, release: str) -> npt.NDArray[np.bool_]:
        paid = LedgerBook.pay(self, users, release)
        self.visits.update(users[paid].tolist())
        return paid


def pool_of(
    steady: SteadyPrivatizer, *, users: int, max_visits: int, book: Book | None = None
) -> Pool:
    coins = np.random.default_rng(3)
    return Pool(users=users, max_visits=max_visits, privatizer=steady, arrivals=coins, book=book)


def run_with(pool: Pool, *, horizon: int = 600) -> Run:
    return played(elimination(pool.privatizer), (0.6, 0.5), horizon, users=pool)


def elimination(privatizer: SteadyPrivatizer) -> BatchedElimination:
    return BatchedElimination(privatizer=privatizer)


@by_day(2)
@each_steady
@pytest.mark.parametrize("held", [3, 64], ids=["book of 3", "book of 64"])
def test_no_user_is_in_more_releases_than_allowed_or_twice_in_one(
    steady: SteadyPrivatizer, held: int
) -> None:
    book = Held(curve=steady.curve, held=held)
    pool = pool_of(steady, users=200, max_visits=3, book=book)
    run = run_with(pool)
    assert max(book.visits.values()) == pool.most_visits == 3
    assert pool.turned_away > 0
    assert all(len(asked) == len(set(asked)) for asked in book.releases.values())
    assert sum(book.visits.values()) >= sum(2**b * 2 for b in range(1, run.batches))


class Uncounted(Pool):
    _filled = mutated(Pool._filled, "self.visited[called[paid]] += 1", "pass")


def test_a_pool_that_does_not_count_is_detected() -> None:
    book = Held(curve=LAPLACE.curve, held=64)
    arrivals = np.random.default_rng(3)
    run_with(Uncounted(users=200, max_visits=3, privatizer=LAPLACE, arrivals=arrivals, book=book))
    assert max(book.visits.values()) > 3


def test_a_user_charged_by_another_process_is_replaced() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Raced(Held):
        """Another process charges half of the users found able to pay, once."""

        def pay(self, users: Names, release: str) -> npt.NDArray[np.bool_]:
            if not self.releases:
                self.visits.update(users[: len(users) // 2].tolist())
            return Held.pay(self, users, release)

    book = Raced(curve=LAPLACE.curve, held=1)
    pool = pool_of(LAPLACE, users=40, max_visits=1, book=book)
    assert pool.admit(Pulls((10, 0)), "b")
    assert (pool.turned_away, sum(book.visits.values()), pool.visited.sum()) == (5, 15, 10)
    (asked,) = book.releases.values()
    assert len(asked) == len(set(asked)) == 15
    assert not pool.admit(Pulls((26, 0)), "c")


def test_with_too_few_users_nothing_more_is_released() -> None:
    pool = pool_of(LAPLACE, users=40, max_visits=2)
    run = run_with(pool)
    assert sum(run.pulls) == 600
    # Batches of 2 arms with 2, 4, 8 and 16 pulls fit into 80 visits; 32 pulls do not.
    assert run.batches == 4
    assert abs(run.pulls[0] - run.pulls[1]) <= 1


def test_the_guarantee_covers_all_visits() -> None:
    pool = pool_of(LAPLACE, users=400, max_visits=4)
    promised = not_none(run_with(pool).guarantee)
    assert promised.parts == (per_user(LAPLACE.curve, max_visits=4),)
    pure = as_pure(promised)
    assert (pure.pure().upper, pure.scope.unit.value) == (Fraction(1, 2), "user")
    bound = promised.epsilon("1e-6")
    assert Fraction(1, 8) < bound.upper < Fraction(1, 2)
    assert promised.delta(bound.upper).upper <= Fraction(1 + 10**6, 10**12)
    (total,) = promised.parts
    assert any("at most 4 batches" in text for text in total.assumptions)


@pytest.mark.parametrize("horizon", [300, 600])
def test_a_pool_of_new_users_does_not_change_a_run(horizon: int) -> None:
    pool = pool_of(LAPLACE, users=10**4, max_visits=1)
    fresh = played(elimination(LAPLACE), (0.6, 0.5), horizon)
    pooled = run_with(pool, horizon=horizon)
    assert replace(pooled, guarantee=fresh.guarantee) == fresh


def test_another_privatizer_is_refused_before_any_charge(tmp_path: Path) -> None:
    observed = []

    class Watching(BatchedElimination):
        def observe(self, state: EliminationState, released: Released) -> EliminationState:
            observed.append(released)
            return BatchedElimination.observe(self, state, released)

    loud = SteadyPrivatizer(law=DiscreteLaplace(scale=1), steps=8, failure="1e-3")
    with Ledger.create(str(tmp_path / "l.db"), budget=visits_budget(LAPLACE.curve, 4)) as ledger:
        book = LedgerBook(ledger=ledger, curve=LAPLACE.curve, run="first")
        pool = pool_of(LAPLACE, users=70, max_visits=4, book=book)
        with refused("policy"):
            played(Watching(privatizer=loud), (0.6, 0.5), 100, users=pool)
        assert (ledger.charges(), ledger.users(), observed) == (0, 0, [])


def test_a_ledger_for_many_runs_keeps_the_guarantee_of_each(tmp_path: Path) -> None:
    budget = visits_budget(LAPLACE.curve, 5)
    with Ledger.create(str(tmp_path / "ledger.db"), budget=budget) as ledger:
        together: Counter[int] = Counter()
        for name in ("first", "second", "third"):
            book = Noted(ledger=ledger, curve=LAPLACE.curve, run=name)
            run = run_with(pool_of(LAPLACE, users=60, max_visits=2, book=book))
            assert max(book.visits.values()) == 2
            total = as_pure(not_none(run.guarantee))
            assert total == PureBound(Fraction(1, 4), scope=budget.scope)
            together += book.visits
        assert max(together.values()) == 5
        assert ledger.remaining("user 0").keys() == {"epsilon"}


BITS = SteadyPrivatizer(law=Binomial(trials=500, probability="1/2"), steps=1, failure="1e-3")
GAUSSIANS = SteadyPrivatizer(
    law=DiscreteGaussianSum(count=64, sigma_squared=8), steps=4, failure="1e-3"
)

PLAN = Deployment(honest="9/10", dropouts="1/4")

each_law = pytest.mark.parametrize(
    "steady", [BITS, GAUSSIANS, LAPLACE, SKELLAM], ids=["bits", "gaussians", "laplace", "skellam"]
)


def spread_of(law: Any) -> float:
    """The standard deviation of a law, in steps."""
    return math.sqrt(float(getattr(law.variance, "upper", law.variance)))


def own_delta(steady: SteadyPrivatizer, visits: int, epsilon: float) -> float:
    """delta(epsilon) over ``visits`` releases, by convolution of a mass function in floats."""
    law: Any = steady.law
    reach = 14 * int(spread_of(law)) + 40
    centre = int(law.mean)
    points = range(centre - reach, centre + reach + 1)
    mass = np.array([float(second(law, "pmf", k)) for k in points])
    shifted = np.concatenate([np.zeros(steady.steps), mass[: -steady.steps]])
    both = (mass > 0) & (shifted > 0)
    width = 0.02
    places = np.floor(np.log(mass[both] / shifted[both]) / width).astype(np.int64)
    one = np.bincount(places - places.min(), weights=mass[both])
    total = reduce(np.convolve, [one] * visits)
    values = (np.arange(len(total)) + visits * places.min()) * width
    beyond = np.sum(total * np.maximum(1 - np.exp(epsilon - values), 0))
    return float(beyond + 1 - mass[both].sum() ** visits)


@by_day(2)
@each_law
def test_every_release_has_at_least_the_noise_of_its_guarantee(steady: SteadyPrivatizer) -> None:
    planned = replace(steady, deployment=PLAN)
    for n in (1, 3, 17, 100, 333):
        for each in (steady, planned):
            assert not_none(each.record(n, "b")).mechanism.noise == steady.law
            protocol = each.protocol(n)
            left = protocol.observed_noise(each.deployment.counted_on(n))
            assert deployment._holds(left, steady.law) or left == steady.law
    assert {repr(each.guarantee(n)) for n in (1, 17, 333) for each in (steady, planned)} == {
        repr(steady.guarantee(5))
    }


def test_shares_for_all_users_lack_noise_after_dropouts() -> None:
    fewer = _ForEveryone(law=BITS.law, steps=1, failure="1e-3", deployment=PLAN)
    with pytest.raises(NotDerived, match="is not the certified noise"):
        fewer.guarantee(250)
    assert BITS.guarantee(250) == replace(BITS, deployment=PLAN).guarantee(250)


class _ForEveryone(SteadyPrivatizer):
    """Broken: bits for all users, although some drop out."""

    def protocol(self, pulls: int) -> Any:
        return BITS.protocol(pulls)


@by_day(3)
@each_law
@pytest.mark.parametrize("visits", [1, 3])
def test_the_guarantee_for_all_visits_agrees_with_floats(
    steady: SteadyPrivatizer, visits: int
) -> None:
    pool = pool_of(steady, users=50, max_visits=visits)
    at = float(pool.guarantee(steady, (16,)).epsilon("1e-3").upper)
    # Losses rounded down to a grid of 0.02 give a lower bound, at most 0.02 per visit below the
    # truth.
    assert own_delta(steady, visits, at) <= 1.02e-3
    assert own_delta(steady, visits, at - 0.03 * visits - 0.01) > 1e-3


@by_day(2)
@each_law
def test_a_release_is_the_sum_of_the_reporting_users_plus_noise(steady: SteadyPrivatizer) -> None:
    planned, rng = replace(steady, deployment=PLAN), SeededRng(4)
    assert planned.reporting(40) == 30
    spread = spread_of(planned.noise(40)) / steady.steps
    released = [float(planned.release(9 * steady.steps, 40, rng)) for _ in range(1500)]
    assert abs(np.mean(released) - 9) < 6 * spread / math.sqrt(1500)
    assert 0.85 < np.std(released) / spread < 1.15
    with pytest.raises(InvalidParameter, match="encoded_sum"):
        planned.release(31 * steady.steps, 40, rng)


def test_the_noise_of_a_batch_in_parts_is_the_sum_of_its_parts() -> None:
    plan = Deployment(honest="9/10")
    for steady in (BITS, GAUSSIANS, LAPLACE, SKELLAM):
        planned = replace(steady, deployment=plan)
        together = planned.of_parts((21, 20))[0]
        apart = [planned.noise(n) for n in (21, 20)]
        variance = sum(spread_of(each) ** 2 for each in apart)
        assert spread_of(together) ** 2 == pytest.approx(variance, rel=1e-9)


def test_epsilon_and_deviation_are_rounded_up() -> None:
    for variance in (2, 3, 401, 12345):
        steady = SteadyPrivatizer(law=Skellam(variance=variance), steps=7, failure="1e-3")
        less = steady.epsilon - Fraction(1, 10**6)
        assert less**2 * variance < 49 <= steady.epsilon**2 * variance
        assert (Fraction(steady.deviation) * 7) ** 2 >= variance
    assert LAPLACE.epsilon == Fraction(1, 8)


@each_steady
def test_a_sum_wraps_around_with_at_most_the_requested_probability(
    steady: SteadyPrivatizer,
) -> None:
    protocol, law = steady.protocol(9), steady.law
    assert isinstance(protocol, AggregatedSum)
    tau = protocol.threshold
    assert law.enclose_tail(tau).upper <= Fraction(1, 1000)
    assert law.enclose_tail(tau - 1).lower > Fraction(1, 1000)
    with pytest.raises(InvalidParameter, match="encoded_sum"):
        steady.release(9 * steady.steps + 1, 9)


def passed_over(seed: int) -> Iterator[int]:
    """How many of four users precede the last of two admitted ones, in two releases of a pool."""
    arrivals = np.random.default_rng(seed)
    first, second = arrivals.permutation(4), arrivals.permutation(4)
    yield 0
    yield int(np.flatnonzero(~np.isin(second, first[:2]))[-1]) + 1 - 2


@pytest.mark.parametrize("seed", range(3))
def test_the_last_users_with_a_budget_are_found_and_refusals_counted(seed: int) -> None:
    arrivals = np.random.default_rng(seed)
    pool = Pool(users=4, max_visits=1, privatizer=LAPLACE, arrivals=arrivals)
    assert pool.admit(Pulls((2, 2)), "b")
    assert pool.visited.tolist() == [1, 1, 1, 1]
    assert pool.turned_away == sum(passed_over(seed))
    # No user is left: all four are refused once more.
    assert not pool.admit(Pulls((1, 0)), "c")
    assert (pool.turned_away, pool.dry) == (sum(passed_over(seed)) + 4, True)


PEOPLE, THREADS, TIMES = 20_000, 4, 5


@pytest.fixture(name="often_switched")
def _often_switched() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(call: Callable[[], int]) -> int:
    """The sum of the results of all threads, started at once."""
    barrier, found = threading.Barrier(THREADS), [0] * THREADS

    def run(number: int) -> None:
        barrier.wait()
        found[number] = call()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(found)


@pytest.mark.usefixtures("often_switched")
def test_a_pool_admits_no_user_more_than_b_times() -> None:
    for _ in range(TIMES):
        coins = np.random.default_rng(1)
        pool = Pool(users=PEOPLE, max_visits=1, privatizer=LAPLACE, arrivals=coins)
        half = Pulls((PEOPLE // 2,))
        admitted = together(lambda pool=pool, half=half: int(pool.admit(half, "x")))  # type: ignore[misc]  # bound now
        assert admitted <= 2
        assert pool.most_visits <= 1


CURVE, SKELLAM_CURVE = LAPLACE.curve, SKELLAM.curve

each_curve = pytest.mark.parametrize("curve", [CURVE, SKELLAM_CURVE], ids=["laplace", "skellam"])


def users(*numbers: int) -> Names:
    return np.array(numbers, dtype=np.int64)


@each_curve
@pytest.mark.parametrize("max_visits", [1, 2, 13, 999])
def test_a_budget_admits_exactly_its_visits(curve: Any, max_visits: int) -> None:
    budget = visits_budget(curve, max_visits)
    keeper = filter_for(budget)
    price = keeper.price(replace(curve, scope=budget.scope))
    assert keeper.admits([a * (max_visits - 1) for a in price.amounts], price)
    assert not keeper.admits([a * max_visits for a in price.amounts], price)


def test_a_budget_without_rounding_would_lose_a_visit() -> None:
    scope = visits_budget(CURVE, 13).scope
    keeper = filter_for(Pure(Fraction(13, 8), scope=scope))
    price = keeper.price(replace(CURVE, scope=scope))
    assert not keeper.admits([a * 12 for a in price.amounts], price)


def test_an_invalid_book_or_charge_is_refused_before_any_is_made(tmp_path: Path) -> None:
    far = replace(CURVE, scope=Scope(relation=Relation.ADD_REMOVE))
    bad = {"ledger": (None,), "curve": ("x", far), "run": ("", "a\nb", "x" * 101)}
    unknown: list[Any] = [users(0, 0), users(-1), users(1 << 27), [0], "u"]
    unknown += [np.array([0.0]), np.array([[0]])]
    with Ledger.create(str(tmp_path / "l.db"), budget=visits_budget(CURVE, 1)) as ledger:
        good: dict[str, Any] = {"ledger": ledger, "curve": CURVE, "run": "first"}
        for argument, values in bad.items():
            for value in values:
                with refused(argument):
                    LedgerBook(**{**good, argument: value})
        with pytest.raises(NotDerived):
            LedgerBook(ledger=ledger, curve=SKELLAM_CURVE, run="no pure price")
        book = LedgerBook(**good)
        for named in unknown:
            for call in (book.able, lambda some: book.pay(some, "a")):
                with refused("users"):
                    call(named)
        for called in ("p" * 190, "my\tpolicy"):  # not mistaken for a second run
            with refused("release"):
                book.pay(users(0), f"{called}/batch 1/arm 0")
        assert ledger.charges() == 0


def test_a_repeated_charge_admits_nobody(tmp_path: Path) -> None:
    class Acknowledged(LedgerBook):
        pay = mutated(LedgerBook.pay, "skip_exhausted=True", "skip_exhausted=True, repeat_ok=True")

    with Ledger.create(str(tmp_path / "l.db"), budget=visits_budget(CURVE, 9)) as ledger:
        book = LedgerBook(ledger=ledger, curve=CURVE, run="first")
        assert book.pay(users(0, 1), "a").all()
        # The same users or others: the run was already played.
        for some in (users(0, 1), users(0, 2)):
            with refused("run"):
                LedgerBook(ledger=ledger, curve=CURVE, run="first").pay(some, "a")
        assert LedgerBook(ledger=ledger, curve=CURVE, run="second").pay(users(0, 1), "a").all()
        assert ledger.charges() == 2
        # A book that checks only for a receipt would admit users without a charge.
        free = Acknowledged(ledger=ledger, curve=CURVE, run="first")
        assert free.pay(users(0, 1), "a").all()
        assert ledger.charges() == 2


def test_only_one_of_several_players_of_the_same_run_is_admitted(tmp_path: Path) -> None:
    """Each opens the ledger for itself, and requests each release at the same time."""
    url, rounds = str(tmp_path / "ledger.db"), 8
    Ledger.create(url, budget=visits_budget(CURVE, rounds)).close()
    barrier = threading.Barrier(THREADS)

    def play_one_run() -> int:
        admitted = 0
        with Ledger.open(url) as ledger:
            book = LedgerBook(ledger=ledger, curve=CURVE, run="the same")
            for release in range(rounds):
                barrier.wait(60)
                with suppress(InvalidParameter):
                    admitted += int(book.pay(np.arange(10), f"{release}").all())
        return admitted

    assert together(play_one_run) == rounds
    with Ledger.open(url) as ledger:
        assert ledger.charges() == rounds
        assert ledger.exhausted([f"user {n}" for n in range(10)], CURVE, rows_per_user=1)
