"""What each user has spent: budgets, refusals, and two processes that play one run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting.claims.claim import Pure, Rdp
from accounting.errors import NotDerived
from accounting.ledger import Ledger
from accounting.theorems.filter import filter_for
from bandits.privatizers.returning import (
    LedgerBook,
    MemoryBook,
    Names,
    SteadyPrivatizer,
    people,
    visits_budget,
    visits_of,
)
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.skellam import Skellam
from dpcore.mechanism import Relation, Scope
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refused
from tests.support.ledger.workers import processes

LAPLACE = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=8, failure="1e-3").curve
SKELLAM = SteadyPrivatizer(law=Skellam(variance=400), steps=4, failure="1e-3").curve

each_curve = pytest.mark.parametrize("curve", [LAPLACE, SKELLAM], ids=["laplace", "skellam"])


def users(*numbers: int) -> Names:
    return np.array(numbers, dtype=np.int64)


# -- budgets -------------------------------------------------------------------------------------


@each_curve
@pytest.mark.parametrize("max_visits", [1, 2, 3, 7, 13, 64, 100, 999])
def test_a_budget_holds_its_visits_and_no_more(curve: Any, max_visits: int) -> None:
    budget = visits_budget(curve, max_visits)
    keeper = filter_for(budget)
    price = keeper.price(replace(curve, scope=budget.scope))
    assert keeper.admits([a * (max_visits - 1) for a in price.amounts], price)
    assert not keeper.admits([a * max_visits for a in price.amounts], price)


def test_a_plain_budget_would_lose_a_visit() -> None:
    scope = visits_budget(LAPLACE, 13).scope
    keeper = filter_for(Pure(Fraction(13, 8), scope=scope))
    price = keeper.price(replace(LAPLACE, scope=scope))
    assert not keeper.admits([a * 12 for a in price.amounts], price)


def test_a_budget_of_skellam_noise_holds_at_every_order() -> None:
    budget = visits_budget(SKELLAM, 2)
    assert isinstance(budget, Rdp)
    assert sorted(order for order, _ in budget.points) == [2, 4, 8, 16, 32]


def test_as_many_visits_as_counters_hold_have_a_budget() -> None:
    assert visits_of(1 << 29) == 1 << 29
    assert visits_budget(LAPLACE, 1 << 29)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: visits_budget("x", 1), "curve"),  # type: ignore[arg-type]  # what is refused
    (lambda: visits_budget(LAPLACE, 0), "max_visits"),
    (lambda: visits_budget(LAPLACE, (1 << 29) + 1), "max_visits"),
    (lambda: visits_of("4"), "max_visits"),
    (lambda: people(True), "users"),
    (lambda: MemoryBook(users=-1, curve=LAPLACE, max_visits=1), "users"),
    (lambda: MemoryBook(users=1 << 28, curve=LAPLACE, max_visits=1), "users"),
    (lambda: MemoryBook(users="x", curve=LAPLACE, max_visits=1), "users"),  # type: ignore[arg-type]  # what is refused
    (lambda: MemoryBook(users=3, curve="x", max_visits=1), "curve"),  # type: ignore[arg-type]  # what is refused
    (lambda: MemoryBook(users=3, curve=LAPLACE, max_visits=0), "max_visits"),
]


def test_a_book_of_nothing_is_refused() -> None:
    for call, argument in REFUSED:
        with refused(argument):
            call()


# -- who pays ------------------------------------------------------------------------------------


@each_curve
def test_a_ledger_and_its_arithmetic_in_memory_agree(curve: Any, tmp_path: Path) -> None:
    memory = MemoryBook(users=6, curve=curve, max_visits=2)
    world = np.random.default_rng(1)
    with Ledger.create(str(tmp_path / "l.db"), budget=visits_budget(curve, 2)) as ledger:
        disk = LedgerBook(ledger=ledger, curve=curve, run="first")
        for release in range(12):
            some = world.choice(6, int(world.integers(1, 6)), replace=False)
            able = memory.able(some)
            assert disk.able(some).tolist() == able.tolist()
            assert memory.pay(some, f"{release}").tolist() == able.tolist()
            assert disk.pay(some, f"{release}").tolist() == able.tolist()
        assert not memory.able(np.arange(6)).any()
        assert disk.able(users()).tolist() == memory.able(users()).tolist() == []
        assert not ledger.check()


@pytest.mark.parametrize(
    "named",
    [users(0, 0), users(-1), users(1, -1), np.array([0.0]), np.array([[0]]), [0], "user 0"],
    ids=str,
)
def test_who_is_no_user_or_named_twice_is_not_charged(named: Any, tmp_path: Path) -> None:
    memory = MemoryBook(users=3, curve=LAPLACE, max_visits=1)
    with Ledger.create(str(tmp_path / "l.db"), budget=visits_budget(LAPLACE, 1)) as ledger:
        for book in (memory, LedgerBook(ledger=ledger, curve=LAPLACE, run="first")):
            for call in (book.able, lambda some, book=book: book.pay(some, "a")):
                with refused("users"):
                    call(named)
        assert memory.able(np.arange(3)).all()
        assert ledger.charges() == 0


def test_a_user_that_a_book_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"numbers in \[0, 3\)"):
        MemoryBook(users=3, curve=LAPLACE, max_visits=1).pay(users(3), "a")


# -- a ledger ------------------------------------------------------------------------------------


def test_what_is_no_book_on_a_ledger_is_refused(tmp_path: Path) -> None:
    far = replace(LAPLACE, scope=Scope(relation=Relation.ADD_REMOVE))
    with Ledger.create(str(tmp_path / "l.db"), budget=visits_budget(LAPLACE, 1)) as ledger:
        good: dict[str, Any] = {"ledger": ledger, "curve": LAPLACE, "run": "first"}
        for argument, value in (
            ("ledger", None),
            ("ledger", ""),
            ("curve", "x"),
            ("curve", far),
            ("run", ""),
            ("run", " x"),
            ("run", "a\nb"),
            ("run", 3),
            ("run", None),
            ("run", "x" * 101),
        ):
            with refused(argument):
                LedgerBook(**{**good, argument: value})
        with pytest.raises(NotDerived):
            LedgerBook(ledger=ledger, curve=SKELLAM, run="no pure price")
        assert ledger.charges() == 0


def test_the_longest_run_name_leaves_room_for_every_release(tmp_path: Path) -> None:
    release = "dist-rdp-se-in-parts/batch 1000000/arm 1000000/call 1000000"
    with Ledger.create(str(tmp_path / "l.db"), budget=visits_budget(LAPLACE, 1)) as ledger:
        book = LedgerBook(ledger=ledger, curve=LAPLACE, run="x" * 100)
        assert book.pay(users(1), release).all()


def test_a_charge_that_was_made_before_admits_nobody(tmp_path: Path) -> None:
    class Acknowledged(LedgerBook):
        pay = mutated(LedgerBook.pay, "skip_exhausted=True", "skip_exhausted=True, repeat_ok=True")

    with Ledger.create(str(tmp_path / "l.db"), budget=visits_budget(LAPLACE, 9)) as ledger:
        book = LedgerBook(ledger=ledger, curve=LAPLACE, run="first")
        assert book.pay(users(0, 1), "a").all()
        # The same users, and others: either way the run was played before.
        for some in (users(0, 1), users(0, 2)):
            with refused("run"):
                LedgerBook(ledger=ledger, curve=LAPLACE, run="first").pay(some, "a")
        assert LedgerBook(ledger=ledger, curve=LAPLACE, run="second").pay(users(0, 1), "a").all()
        assert ledger.charges() == 2
        # A book that only asks for a receipt would admit them, and nobody would have paid.
        free = Acknowledged(ledger=ledger, curve=LAPLACE, run="first")
        assert free.pay(users(0, 1), "a").all()
        assert ledger.charges() == 2


ROUNDS = 25


def play_one_run(url: str, barrier: Barrier, path: str) -> None:
    """Ask for every release at the moment at which the other asks; write down what was admitted."""
    with Ledger.open(url) as ledger:
        book = LedgerBook(ledger=ledger, curve=LAPLACE, run="the same")
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
    Ledger.create(url, budget=visits_budget(LAPLACE, ROUNDS)).close()
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
        assert ledger.exhausted([f"user {n}" for n in range(10)], LAPLACE, rows_per_user=1)
