"""Tests of the user pool: uniform arrivals, one charge per release, thread safety."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from accounting.adaptive_composition.privacy_filter import filter_for
from accounting.errors import NotDerived
from accounting.guarantees.stated_guarantees import Pure
from accounting.ledger import Ledger
from bandits.batch import Pulls
from bandits.privatizers.returning_users import (
    Book,
    LedgerBook,
    Names,
    Pool,
    SteadyPrivatizer,
    visits_budget,
    visits_of,
)
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.skellam import Skellam
from dpcore.mechanism import Relation, Scope
from dpcore.protocols.noisy_sums import AggregatedSum
from tests.alpha_budget import buy_alpha
from tests.bandits.privatizers.test_returning_users import (
    LAPLACE,
    SKELLAM,
    each_steady,
)
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refused
from tests.support.ledger.workers import processes

ARRIVALS = 400


def who_came(kind: type[Pool]) -> tuple[npt.NDArray[np.int64], float]:
    """20 of 40 users are spent and 10 are wanted: participations per user, and the mean refused."""
    times, away = np.zeros(40, dtype=np.int64), 0
    for seed in range(ARRIVALS):
        arrivals = np.random.default_rng([5, seed])
        pool = kind(users=40, max_visits=1, privatizer=LAPLACE, arrivals=arrivals)
        pool.visited[::2] = 1
        assert pool.admit(Pulls((10,)), "b")
        times += pool.visited
        away += pool.turned_away
    return times - ARRIVALS * (np.arange(40) % 2 == 0), away / ARRIVALS


def test_arrivals_are_equally_likely_and_the_spent_are_turned_away() -> None:
    class Ordered(Pool):
        _filled = mutated(Pool._filled, "self.arrivals.permutation(self.users)", "np.arange(40)")

    # Hoeffding: each of the 20 comes with probability 1/2; of 20 spent users, 10 20/21 come before
    # the tenth.
    odds = math.log(2 * 21 / buy_alpha("arrivals at a pool", "1e-9"))
    off = math.sqrt(odds / (2 * ARRIVALS))
    times, away = who_came(Pool)
    assert times[::2].sum() == 0
    assert abs(times[1::2] / ARRIVALS - 0.5).max() <= off
    assert abs(away - 200 / 21) <= 20 * off
    times, _ = who_came(Ordered)
    assert abs(times[1::2] / ARRIVALS - 0.5).max() > off


@pytest.mark.parametrize("called", ["p" * 190, "my\tpolicy"])
def test_a_release_that_is_no_name_of_the_ledger_is_not_taken_for_a_second_run(
    called: str, tmp_path: Path
) -> None:
    curve = LAPLACE.curve
    with Ledger.create(str(tmp_path / "l.db"), budget=visits_budget(curve, 1)) as ledger:
        book = LedgerBook(ledger=ledger, curve=curve, run="fresh")
        with pytest.raises(InvalidParameter, match="release = "):
            book.pay(np.array([0]), f"{called}/batch 1/arm 0")
        assert ledger.charges() == 0


def test_epsilon_and_deviation_are_rounded_up() -> None:
    for variance in (2, 3, 401, 12345):
        steady = SteadyPrivatizer(law=Skellam(variance=variance), steps=7, failure="1e-3")
        less = steady.epsilon - Fraction(1, 10**6)
        assert less**2 * variance < 49 <= steady.epsilon**2 * variance
        assert (Fraction(steady.deviation) * 7) ** 2 >= variance
    assert LAPLACE.epsilon == Fraction(1, 8)


@each_steady
def test_a_steady_sum_is_read_wrongly_no_more_often_than_asked(steady: SteadyPrivatizer) -> None:
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
def test_the_last_who_can_pay_are_found_and_refusals_are_counted(seed: int) -> None:
    arrivals = np.random.default_rng(seed)
    pool = Pool(users=4, max_visits=1, privatizer=LAPLACE, arrivals=arrivals)
    assert pool.admit(Pulls((2, 2)), "b")
    assert pool.visited.tolist() == [1, 1, 1, 1]
    assert pool.turned_away == sum(passed_over(seed))
    # No user is left: all four are refused once more.
    assert not pool.admit(Pulls((1, 0)), "c")
    assert (pool.turned_away, pool.dry) == (sum(passed_over(seed)) + 4, True)


STEADY = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=8, failure="1e-6")
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
def test_a_pool_admits_nobody_beyond_b() -> None:
    for _ in range(TIMES):
        pool = Pool(
            users=PEOPLE,
            max_visits=1,
            privatizer=STEADY,
            arrivals=np.random.default_rng(1),
        )
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
def test_a_budget_holds_its_visits_and_no_more(curve: Any, max_visits: int) -> None:
    budget = visits_budget(curve, max_visits)
    keeper = filter_for(budget)
    price = keeper.price(replace(curve, scope=budget.scope))
    assert keeper.admits([a * (max_visits - 1) for a in price.amounts], price)
    assert not keeper.admits([a * max_visits for a in price.amounts], price)


def test_a_plain_budget_would_lose_a_visit() -> None:
    scope = visits_budget(CURVE, 13).scope
    keeper = filter_for(Pure(Fraction(13, 8), scope=scope))
    price = keeper.price(replace(CURVE, scope=scope))
    assert not keeper.admits([a * 12 for a in price.amounts], price)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: visits_budget("x", 1), "curve"),  # type: ignore[arg-type]  # what is refused
    (lambda: visits_budget(CURVE, 0), "max_visits"),
    (lambda: visits_of("4"), "max_visits"),
    (lambda: Book(curve="x"), "curve"),  # type: ignore[arg-type]  # what is refused
]


def test_a_book_of_nothing_is_refused() -> None:
    for call, argument in REFUSED:
        with refused(argument):
            call()


@pytest.mark.parametrize(
    "named",
    [users(0, 0), users(-1), users(1 << 27), np.array([0.0]), np.array([[0]]), [0], "user 0"],
    ids=str,
)
def test_who_is_no_user_or_named_twice_is_not_charged(named: Any, tmp_path: Path) -> None:
    with Ledger.create(str(tmp_path / "l.db"), budget=visits_budget(CURVE, 1)) as ledger:
        book = LedgerBook(ledger=ledger, curve=CURVE, run="first")
        for call in (book.able, lambda some, book=book: book.pay(some, "a")):
            with refused("users"):
                call(named)
        assert ledger.charges() == 0


def test_what_is_no_book_on_a_ledger_is_refused(tmp_path: Path) -> None:
    far = replace(CURVE, scope=Scope(relation=Relation.ADD_REMOVE))
    with Ledger.create(str(tmp_path / "l.db"), budget=visits_budget(CURVE, 1)) as ledger:
        good: dict[str, Any] = {"ledger": ledger, "curve": CURVE, "run": "first"}
        for argument, value in (
            ("ledger", None),
            ("curve", "x"),
            ("curve", far),
            ("run", ""),
            ("run", "a\nb"),
            ("run", "x" * 101),
        ):
            with refused(argument):
                LedgerBook(**{**good, argument: value})
        with pytest.raises(NotDerived):
            LedgerBook(ledger=ledger, curve=SKELLAM_CURVE, run="no pure price")
        assert ledger.charges() == 0


def test_a_charge_that_was_made_before_admits_nobody(tmp_path: Path) -> None:
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


ROUNDS = 8


def play_one_run(url: str, barrier: Barrier, path: str) -> None:
    """Request each release at the same time as the other process; write the admitted users."""
    with Ledger.open(url) as ledger:
        book = LedgerBook(ledger=ledger, curve=CURVE, run="the same")
        for release in range(ROUNDS):
            barrier.wait(60)
            try:
                admitted = book.pay(np.arange(10), f"{release}").all()
            except InvalidParameter:
                continue
            if admitted:
                target = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
                os.write(target, f"{release}\n".encode())
                os.close(target)


def test_of_two_processes_that_play_one_run_one_is_admitted(tmp_path: Path) -> None:
    url, path = str(tmp_path / "ledger.db"), tmp_path / "admitted"
    Ledger.create(url, budget=visits_budget(CURVE, ROUNDS)).close()
    context = processes()
    barrier = context.Barrier(2)
    started = [
        context.Process(target=play_one_run, args=(url, barrier, str(path)), daemon=True)
        for _ in range(2)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(60)
    assert [process.exitcode for process in started] == [0, 0]
    admitted = Counter(path.read_text(encoding="utf-8").split())
    assert admitted == {f"{release}": 1 for release in range(ROUNDS)}
    with Ledger.open(url) as ledger:
        assert ledger.charges() == ROUNDS
        assert ledger.exhausted([f"user {n}" for n in range(10)], CURVE, rows_per_user=1)
