"""Threads that charge at the same time share a transaction."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import event

from accounting.ledger import Ledger, LedgerUnavailable
from accounting.ledger.charging import Charged
from accounting.ledger.turns import Turns
from tests.support.ledger.budget import per_user
from tests.support.ledger.waiting import Held, behind, until


def test_threads_that_charge_at_the_same_time_share_a_transaction(ledger: Ledger) -> None:
    held = Held(ledger._charged)
    ledger._turns = Turns(held)

    def one(me: int) -> Callable[[], int]:
        return lambda: ledger.charge(["shared"], per_user("1/50"), batch=f"{me}").number

    others = [one(me) for me in range(1, 8)]
    futures = behind(held, one(0), others, lambda: len(ledger._turns._waiting))
    assert held.groups == [1, 7]
    assert sorted(future.result() for future in futures) == [*range(1, 9)]
    assert ledger.check() == ()


@pytest.mark.parametrize(
    ("failure", "kinds"),
    [
        (LedgerUnavailable("ledger.db", "is full"), [LedgerUnavailable, LedgerUnavailable]),
        # An interrupt is of one thread, and the other is told.
        (KeyboardInterrupt(), [KeyboardInterrupt, LedgerUnavailable]),
    ],
)
def test_a_transaction_that_fails_is_the_failure_of_all_in_it(failure: Any, kinds: Any) -> None:
    def fail(requests: Any) -> list[Charged]:
        if len(held.groups) == 1:
            return []
        raise failure

    held = Held(fail)
    shared = Turns(held)

    def take() -> BaseException | None:
        try:
            shared.take([None])  # type: ignore[list-item]  # is not looked at
        except BaseException as error:  # noqa: BLE001 - an interrupt, too
            return error
        return None

    def first() -> object:
        return shared.take([])

    futures = behind(held, first, [take, take], lambda: len(shared._waiting))
    found = [future.result() for future in futures[1:]]
    assert sorted(type(error).__name__ for error in found) == sorted(k.__name__ for k in kinds)
    assert found[0] is not found[1]  # nor their tracebacks
    assert held.groups == [0, 2]


def test_a_thread_that_is_interrupted_while_it_waits_takes_its_request_back(
    ledger: Ledger,
) -> None:
    held = Held(ledger._charged)
    ledger._turns = Turns(held)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ledger.charge, ["ada"], per_user("1/4"), batch="one")
        assert held.inside.wait(30)
        pool.submit(interrupted_soon, lambda: len(ledger._turns._waiting) == 1)
        with pytest.raises(KeyboardInterrupt):
            ledger.charge(["ada"], per_user("1/4"), batch="two")
        held.go.set()
        assert first.result().number == 1
    assert ledger.charge(["ada"], per_user("1/4"), batch="three").number == 2
    assert held.groups == [1, 1]


def interrupted_soon(reached: Callable[[], bool]) -> None:
    """Interrupt the main thread when it waits."""
    until(reached)
    time.sleep(0.1)  # a signal between its last look and its sleep would wait as long as it does
    os.kill(os.getpid(), signal.SIGINT)


def test_nothing_is_acknowledged_before_it_is_on_the_disk(ledger: Ledger) -> None:
    committed: list[int] = []
    event.listen(ledger._store._writes, "commit", lambda connection: committed.append(1))
    work = ledger._charged

    def watched(requests: Any) -> list[Charged]:
        found = work(requests)
        assert committed
        return found

    ledger._turns = Turns(watched)
    assert ledger.charge(["ada"], per_user("1/4"), batch="one").number == 1
