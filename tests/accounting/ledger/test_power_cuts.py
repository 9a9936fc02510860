"""Tests of power cuts, kills under load and server crashes: acknowledged charges are kept once."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from accounting.ledger import AlreadyCharged, Ledger, LedgerDamaged, LedgerUnavailable, Receipt
from accounting.ledger import charge_or_refuse as book
from tests.support.ledger.budget import BUDGET, per_user
from tests.support.ledger.power_cuts import Change, apply, compiled, cut_after, played
from tests.support.ledger.scripts import script
from tests.support.ledger.server import Server
from tests.support.ledger.workers import charge_on, processes, told

pytestmark = pytest.mark.nightly

CHARGES = 40
WRITER = """
import os, sys
from accounting.guarantees.stated_guarantees import ZCdp
from accounting.ledger import Ledger, Request
from accounting.ledger import transactions_and_locks
from tests.support.ledger.budget import BUDGET
from tests.support.ledger.budget import per_user
folder, careless = sys.argv[1], sys.argv[2] == "careless"
transactions_and_locks._LOG = 1 << 16  # the log is moved into the file several times
if careless:
    prepare = transactions_and_locks._prepare
    def lax(connection, record):
        prepare(connection, record)
        connection.execute("PRAGMA synchronous = OFF")
    transactions_and_locks._prepare = lax
said = os.open(f"{folder}/said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
users = [f"user {n}" for n in range(60)]
with Ledger.create(f"{folder}/ledger.db", budget=BUDGET) as ledger:
    for number in range(%d):
        batches, price = (f"{number}.0", f"{number}.1"), per_user("1/1000")
        wanted = [Request(users=users, guarantee=price, batch=batch) for batch in batches]
        for receipt in ledger.charge_many(wanted):
            os.write(said, f"{receipt.batch} {receipt.number} {receipt.digest}\\n".encode())
"""


def recorded(folder: Path, tape: Path, shim: Path, how: str) -> list[Change]:
    """Record every change below ``folder`` by a process that charges there."""
    power: dict[str, Any] = {
        "LD_PRELOAD": f"{shim}",
        "POWER_FOLDER": f"{folder}",
        "POWER_TAPE": f"{tape}",
    }
    script(WRITER % CHARGES, folder, how, **power)
    return [*played(tape)]


def acknowledged(changes: list[Change], folder: Path) -> list[Receipt]:
    said = bytearray()
    for change in changes:
        if change.path == f"{folder}/said" and change.kind == "w":
            apply(said, change, change.data)
    words = [line.split() for line in said.decode().splitlines()]
    return [
        Receipt(batch=batch, number=int(number), digest=digest, paid=60)
        for batch, number, digest in words
    ]


def lost(changes: list[Change], folder: Path, coins: random.Random) -> str:
    """Return the faults of the ledger after a power cut at the end of ``changes``."""
    for file in folder.iterdir():
        file.unlink()
    for name, content in cut_after(changes, coins).items():
        # The index of the log is memory: it is recreated.
        if not name.endswith("-shm"):
            Path(name).write_bytes(content)
    receipts = acknowledged(changes, folder)
    try:
        with Ledger.create(str(folder / "ledger.db"), budget=BUDGET) as ledger:
            return "; ".join(map(str, ledger.check(*receipts)))
    except (LedgerDamaged, LedgerUnavailable) as error:
        return str(error)


@pytest.mark.parametrize("how", ["durable", "careless"])
def test_three_hundred_power_cuts_lose_no_acknowledged_charge(tmp_path: Path, how: str) -> None:
    shim = compiled(tmp_path)
    if shim is None:
        pytest.skip("no compiler on this machine")
    folder = tmp_path / "disk"
    folder.mkdir()
    changes = recorded(folder, tmp_path / "tape", shim, how)
    assert len(changes) > 10 * CHARGES
    assert len(acknowledged(changes, folder)) == 2 * CHARGES
    coins = random.Random(11)
    damaged = 0
    for _ in range(300 if how == "durable" else 60):
        end = coins.randrange(1, len(changes))
        found = lost(changes[:end], folder, coins)
        if how == "durable":
            assert found == "", f"after {end} of {len(changes)} changes"
        damaged += bool(found)
    # Without flushes the same cuts lose acknowledged charges: the simulator detects this.
    assert (damaged > 0) == (how == "careless")


def test_repeated_kills_of_eight_writers_lose_no_acknowledged_charge(tmp_path: Path) -> None:
    context, coins, url = processes(), random.Random(8), str(tmp_path / "ledger.db")
    Ledger.create(url, budget=BUDGET).close()
    names = iter(range(10_000))

    def started() -> Any:
        path = tmp_path / f"{next(names)}.said"
        process = context.Process(target=charge_on, args=(url, str(path), path.stem), daemon=True)
        process.start()
        return process

    running = [started() for _ in range(8)]
    for _ in range(120):
        time.sleep(coins.expovariate(1 / 0.15))
        at = coins.randrange(8)
        running[at].kill()
        running[at].join(30)
        running[at] = started()
    for process in running:
        process.kill()
        process.join(30)
    each = [told(path) for path in tmp_path.glob("*.said")]
    begun = {batch for batches, _ in each for batch in batches}
    paid = [receipt for _, receipts in each for receipt in receipts]
    with Ledger.open(url, budget=BUDGET) as ledger:
        assert ledger.check(*paid) == ()
        batches = [charge.batch for charge in ledger.history()]
        assert {receipt.batch for receipt in paid} <= set(batches) <= begun
        assert len(batches) == len(set(batches))
        assert len(paid) > 100
        left = ledger.remaining("user 0")["rho"]
        assert left <= 1 - len(batches) * per_user("1/100000").rho


# The server is killed before this step of the transaction.
STAGES = ["head", "found", "accounts", "write", "_add_up", "commit", "after"]


@pytest.mark.parametrize("victim", ["backend", "server"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_server_leaves_each_charge_complete_or_absent(
    server: Server, monkeypatch: pytest.MonkeyPatch, stage: str, victim: str
) -> None:
    url = server.database()
    with Ledger.create(url, budget=BUDGET) as ledger:
        first = ledger.charge(["ada", "bob"], per_user("1/8"), batch="one")

        def strike(driver: psycopg.Connection[Any]) -> None:
            if victim == "backend":
                server.kill_backend(driver.info.backend_pid)
            else:
                server.kill()

        with monkeypatch.context() as patched:
            if stage in ("commit", "after"):
                dialect = ledger._store._engine.dialect
                commit = dialect.do_commit

                def committing(connection: Any) -> None:
                    if stage == "after":
                        commit(connection)
                    strike(connection.driver_connection)
                    if stage == "after":
                        raise psycopg.OperationalError("the connection is lost")
                    commit(connection)

                patched.setattr(dialect, "do_commit", committing)
            else:
                really = getattr(book.Book, stage)

                def hit(self: book.Book, connection: Any, *given: Any, **named: Any) -> Any:
                    strike(connection.connection.driver_connection)
                    return really(self, connection, *given, **named)

                patched.setattr(book.Book, stage, hit)
            with pytest.raises(LedgerUnavailable):
                ledger.charge(["ada", "bob"], per_user("1/8"), batch="two")
        server.again()
        ledger.close()
        assert ledger.check(first) == ()
        there = {charge.batch for charge in ledger.history()}
        assert there == ({"one", "two"} if stage == "after" else {"one"})
        if stage == "after":
            with pytest.raises(AlreadyCharged):
                ledger.charge(["ada", "bob"], per_user("1/8"), batch="two")
        again = ledger.charge(["ada", "bob"], per_user("1/8"), batch="two", repeat_ok=True)
        assert ledger.check(first, again) == ()
        assert ledger.remaining("ada") == {"rho": 1 - 2 * per_user("1/8").rho}
