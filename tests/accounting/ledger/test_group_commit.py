r"""Tests of `accounting.ledger.group_commit`: concurrent charges share a transaction.

Each ledger object has its own lock, as in separate processes and threads.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from accounting.ledger import (
    AlreadyCharged,
    BudgetExhausted,
    Ledger,
    LedgerDamaged,
    LedgerUnavailable,
    Receipt,
    Request,
    group_commit,
    transactions_and_locks,
)
from accounting.ledger.charge_or_refuse import Charged
from accounting.ledger.group_commit import Queue
from dpcore.errors import InvalidParameter
from tests.support.dpcore.mutants import mutated
from tests.support.ledger.budget import BUDGET, per_user, wanted
from tests.support.ledger.scripts import script


def test_nothing_is_acknowledged_before_it_is_on_the_disk(tmp_path: Path) -> None:
    committed: list[int] = []
    with Ledger.create(str(tmp_path / "ledger.db"), budget=BUDGET) as ledger:
        event.listen(ledger._store._writes, "commit", lambda _: committed.append(1))
        work = ledger._charged

        def watched(requests: Any) -> list[Charged]:
            found = work(requests)
            assert committed
            return found

        ledger._take = Queue(ledger._store, ledger._book, watched).take
        assert ledger.charge(["ada"], per_user("1/4"), batch="one").number == 1


@pytest.fixture
def many(tmp_path: Path) -> Iterator[list[Ledger]]:
    """Nine ledgers on one file, as in nine processes."""
    url = str(tmp_path / "ledger.db")
    Ledger.create(url, budget=BUDGET).close()
    with ExitStack() as stack:
        yield [stack.enter_context(Ledger.open(url)) for _ in range(9)]


class Held:
    """Work whose first call blocks until released."""

    def __init__(self, work: Callable[[Any], list[Charged]]) -> None:
        self.work, self.inside, self.go = work, threading.Event(), threading.Event()

    def __call__(self, requests: Any) -> list[Charged]:
        if not self.inside.is_set():
            self.inside.set()
            assert self.go.wait(30)
        return self.work(requests)


def at_once(
    ledgers: Sequence[Ledger],
    requests: Sequence[Request],
    fate: Callable[[Callable[[Any], list[Charged]], Any], list[Charged]] | None = None,
) -> tuple[list[object], list[int]]:
    """Return each ledger's outcome of a request while the first is inside, and the group sizes.

    ``fate`` does the work of a group in place of its leader.
    """
    path = Path(f"{ledgers[0]._store.where}-queue")
    groups: list[int] = []

    def shared(ledger: Ledger) -> Callable[[Any], list[Charged]]:
        def work(asked: Any) -> list[Charged]:
            groups.append(len(asked))
            return fate(ledger._charged, asked) if fate else ledger._charged(asked)

        return work

    held = Held(ledgers[0]._charged)
    for ledger in ledgers:
        own = held if ledger is ledgers[0] else shared(ledger)
        ledger._take = Queue(ledger._store, ledger._book, own).take

    def charge(ledger: Ledger, request: Request) -> Callable[[], object]:
        def outcome() -> object:
            try:
                return ledger.charge_many([request])[0]
            except BaseException as error:  # noqa: BLE001 - a process that dies, too
                return error

        return outcome

    others = [charge(*each) for each in zip(ledgers[1:], requests, strict=True)]
    if path.exists():
        path.unlink()
    first = charge(ledgers[0], wanted("zoe", "1/50", f"{time.monotonic_ns()}"))
    with ThreadPoolExecutor(1 + len(others)) as pool:
        pool.submit(first)
        assert held.inside.wait(30)
        futures, last = [], time.monotonic() + 30
        for number, other in enumerate(others, start=1):
            futures.append(pool.submit(other))
            while published(path) != number:
                assert time.monotonic() < last
                time.sleep(0.001)
        held.go.set()
    return [future.result() for future in futures], groups


def published(path: Path) -> int:
    """Return the number of requests that no process has taken yet."""
    said = path.read_bytes()
    _, done = said[: group_commit._HEADER].split()
    return said[int(done) :].count(b'{"asked":')


def test_processes_share_a_transaction_and_each_gets_its_own_outcome(many: list[Ledger]) -> None:
    ledger = many[0]
    ledger.charge(["poor"], per_user(1), batch="a")
    ledger.charge(["hurt"], per_user("1/2"), batch="b")
    with ledger._store.writing() as connection:
        connection.exec_driver_sql("UPDATE ledger_users SET spent_0 = 7 WHERE name = 'hurt'")
    outcomes, groups = at_once(
        many,
        [
            wanted("ada", "1/8", "one"),
            wanted("poor ada", "1/8", "two"),
            wanted("poor bob", "1/8", "three", skip=True),
            wanted("poor", "1", "a"),
            wanted("poor", "1/8", "a"),
            wanted("hurt", "1/8", "four"),
            wanted("ada", "1/8", "one"),
            wanted("ada", "1/8", "five"),
        ],
    )
    assert groups == [8]
    one, poor, three, *others, again, five = outcomes
    if isinstance(one, AlreadyCharged):  # both submit the same request: one of them is first
        one, again = again, one
    assert [type(each) for each in (one, poor, three, *others, again, five)] == [
        Receipt, BudgetExhausted, Receipt, AlreadyCharged, InvalidParameter, LedgerDamaged,
        AlreadyCharged, Receipt,
    ]  # fmt: skip
    assert isinstance(three, Receipt)
    assert (three.paid, three.left_out) == (1, ("poor",))
    assert isinstance(poor, BudgetExhausted)
    # The error equals that of a charge outside a group.
    with pytest.raises(BudgetExhausted) as alone:
        ledger.charge(["ada", "poor"], per_user("1/8"), batch="two")
    assert (str(poor), poor.users) == (str(alone.value), alone.value.users)
    left = [ledger.remaining(user)["rho"] for user in ("ada", "bob")]
    assert left == [Fraction(3, 4), Fraction(7, 8)]
    assert isinstance(one, Receipt)
    assert [str(each) for each in ledger.check(one, three)][:1] == [
        f"user 'hurt': rho is 7, but the history adds up to {ledger.filter.limits[0] // 2}"
    ]


class Killed(BaseException):
    """Simulates the end of the process at this point."""


def killed_once(*, after_commit: bool) -> Any:
    died: list[int] = []

    def work(really: Callable[[Any], list[Charged]], requests: Any) -> list[Charged]:
        if died:
            return really(requests)
        died.append(1)
        if after_commit:
            really(requests)
        raise Killed

    return work


SEVEN = [wanted("ada", "1/50", f"{n}") for n in range(7)]


def test_requests_survive_a_leader_that_dies_before_its_commit(many: list[Ledger]) -> None:
    outcomes, groups = at_once(many[:8], SEVEN, killed_once(after_commit=False))
    assert groups == [7, *[1] * 6]
    receipts = [each for each in outcomes if isinstance(each, Receipt)]
    assert [receipt.repeated for receipt in receipts] == [False] * 6
    assert [type(each) for each in outcomes if not isinstance(each, Receipt)] == [Killed]
    assert (many[0].charges(), many[0].check(*receipts)) == (7, ())


def test_no_charge_is_called_new_if_the_leader_dies_after_its_commit(
    many: list[Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes, groups = at_once(many[:8], SEVEN, killed_once(after_commit=True))
    assert groups == [7, *[1] * 6]
    told = [each for each in outcomes if not isinstance(each, Killed)]
    assert {str(each).partition(": ")[2] for each in told} == {group_commit._CUT}
    assert {type(each) for each in told} == {LedgerUnavailable}
    assert (many[0].charges(), many[0].check()) == (8, ())
    again = many[0].charge(["ada"], per_user("1/50"), batch="3", repeat_ok=True)
    assert again.repeated
    # A mutant cannot tell the two cases apart.
    sure = mutated(Queue._taken, "uncertain = end > 0", "uncertain = end < 0")
    monkeypatch.setattr(Queue, "_taken", sure)
    more = [wanted("bob", "1/50", f"more {n}") for n in range(7)]
    outcomes, _ = at_once(many[:8], more, killed_once(after_commit=True))
    assert sum(isinstance(each, AlreadyCharged) for each in outcomes) == 6


def test_only_requests_to_this_ledger_with_a_waiting_process_are_processed(
    many: list[Ledger],
) -> None:
    ledger, queue = many[0], Queue(many[0]._store, many[0]._book, many[0]._charged)
    asked = [{**SAID, "batch": "one"}]
    line = {"asked": asked, "group": queue._group(), "id": "x", "until": time.time() + 60}
    price = SAID["price"]
    wrong: list[dict[str, Any]] = [
        *({"id": "me"}, {"group": "another"}, {"until": time.time() - 1}, {"asked": 7}),
        {"asked": [{}]},
        {"asked": [{**SAID, "names": ["ada", "ada"]}]},
        {"asked": [{**SAID, "price": {**price, "amounts": [-1]}}]},
        {"asked": [{**SAID, "price": {**price, "amounts": [1, 1]}}]},
        {"asked": [{**SAID, "price": {**price, "costs": []}}]},
        {"asked": [{**SAID, "record": None}]},
    ]
    for said in ({}, *wrong):
        text = json.dumps({**line, **said}).encode()
        assert bool(queue._others(text, "me")) == (not said), said
        assert not queue._others(text[:-1], "me")
        assert not queue._others(text + b'\n{"gone": "x"}', "me")
    for line_of_none in (b"", b"7", b"[]", b"null", b"\xff", b"[" * 100_000):
        assert queue._others(line_of_none, "me") == {}
    assert ledger.charges() == 0


SAID: dict[str, Any] = {
    "batch": "one",
    "names": ["ada"],
    "price": {"amounts": [7], "assumptions": [], "costs": ["1/9"]},
    "record": {},
    "skip_exhausted": False,
}


def test_a_long_queue_file_is_started_again(
    many: list[Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lengths = Path(f"{many[0]._store.where}-queue"), []
    monkeypatch.setattr(Queue, "_led", mutated(Queue._led, "size > _MOST", "size > 64"))
    for number in range(4):
        requests = [wanted("ada", "1/50", f"{number} {n}") for n in range(2)]
        assert at_once(many[:3], requests)[1] == [2]
        lengths.append(path.stat().st_size)
    assert max(lengths) < 1.5 * lengths[0]


def test_long_requests_and_processes_without_a_queue_charge_alone(
    many: list[Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(f"{many[0]._store.where}-queue")
    with monkeypatch.context() as patched, ThreadPoolExecutor(len(many)) as pool:
        patched.setattr(group_commit, "_LONGEST", 10)
        # Threads that share a ledger object give the same result.
        charged = pool.map(
            lambda m, b: m.charge_many([wanted("ada", "1/50", f"{b}")])[0],
            [*many[:5], *many[:4]],
            range(9),
        )
        found = [each for each in charged if isinstance(each, Receipt)]
        assert sorted(each.number for each in found) == [*range(1, 10)]
    assert b"asked" not in path.read_bytes()
    path.unlink()
    path.mkdir()  # which nobody can write
    for number, ledger in enumerate(many, start=10):
        assert ledger.charge(["ada"], per_user("1/50"), batch=f"{number}").number == number


def test_a_process_that_waited_too_long_withdraws_its_request(
    many: list[Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions_and_locks, "_PATIENCE", 0.2)
    held = Held(many[0]._charged)
    many[0]._take = Queue(many[0]._store, many[0]._book, held).take
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(many[0].charge, ["ada"], per_user("1/50"), batch="one")
        assert held.inside.wait(30)
        with pytest.raises(LedgerUnavailable, match=r"waited 0\.2 s for"):
            many[1].charge(["ada"], per_user("1/50"), batch="two")
        held.go.set()
        assert first.result().number == 1
    assert many[2].charge(["ada"], per_user("1/50"), batch="three").number == 2
    assert [charge.batch for charge in many[0].history()] == ["one", "three"]


FORKED = """
import os, sys
from accounting.ledger import Ledger, group_commit
with Ledger.open(sys.argv[1]) as ledger:
    queue = group_commit.Queue(ledger._store, ledger._book, ledger._charged)
    handle, other = queue._opened(), queue._opened()
    assert group_commit._locked(handle) and not group_commit._locked(other)
    if sys.argv[2] == "kept":
        group_commit._HELD.clear()
    (here, there), (back, forth) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(there, b"1")
        os.read(back, 1)
        os._exit(0)
    os.read(here, 1)
    os.close(handle)  # as if this process were killed
    print(group_commit._locked(other))
    os.write(forth, b"1")
    os.waitpid(child, 0)
"""


@pytest.mark.nightly
def test_a_forked_child_does_not_hold_the_lock_of_its_dead_parent(tmp_path: Path) -> None:
    url = str(tmp_path / "ledger.db")
    Ledger.create(url, budget=BUDGET).close()
    assert script(FORKED, url, "closed") == "True\n"
    assert script(FORKED, url, "kept") == "False\n"
