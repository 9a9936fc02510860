"""Tests of transactions: moved files, recreated ledgers, the log, full disks, locks, limits."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import ExitStack, closing
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from sqlalchemy import text

from accounting.guarantees.stated_guarantees import ZCdp
from accounting.ledger import (
    BudgetExhausted,
    Ledger,
    LedgerDamaged,
    LedgerUnavailable,
    adopt,
    transactions_and_locks,
    verify_ledger,
)
from accounting.ledger.charge_or_refuse import Book
from accounting.ledger.sqlite_file import FileConnection
from accounting.ledger.transactions_and_locks import Store, _write_ahead
from tests.support.dpcore.mutants import mutated, rewired
from tests.support.dpcore.refusals import refusal
from tests.support.ledger.budget import BUDGET, PER_USER, per_user
from tests.support.ledger.scripts import ALONE, script
from tests.support.ledger.workers import hold, processes

SMALL = ZCdp("1/1000", scope=PER_USER)


def replaced(file: Path) -> None:
    with Ledger.create(str(file.with_name("other.db")), budget=BUDGET) as other:
        other.charge(["eve"], per_user("1/4"), batch="other")
    file.with_name("other.db").rename(file)


@pytest.mark.parametrize(
    "move", [Path.unlink, lambda file: file.rename(file.with_name("elsewhere.db")), replaced]
)
def test_no_charge_is_written_to_a_missing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, move: Callable[[Path], object]
) -> None:
    file, write = tmp_path / "ledger.db", Book.write
    with Ledger.create(str(file), budget=BUDGET) as ledger:
        ledger.charge(["ada"], per_user("1/4"), batch="one")
        move(file)
        for look in (
            lambda: ledger.charge(["ada"], per_user("1/4"), batch="two"),
            lambda: ledger.remaining("ada"),
        ):
            # Repeat it.
            for _ in range(2):
                with pytest.raises(LedgerUnavailable, match=r"no such file|while it was open"):
                    look()
        assert file.exists() == (move is replaced)
    file.unlink(missing_ok=True)

    def moving(*given: Any) -> None:
        write(*given)
        file.unlink()

    with Ledger.create(str(file), budget=BUDGET) as ledger:
        monkeypatch.setattr(Book, "write", moving)
        with pytest.raises(LedgerUnavailable, match="was moved, removed or replaced"):
            ledger.charge(["ada"], per_user("1/4"), batch="one")


def test_a_hard_link_is_refused_and_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    (tmp_path / "link.db").symlink_to(file)
    Ledger.create(str(tmp_path / "link.db"), budget=BUDGET).close()
    with Ledger.open(str(file)) as ledger, Ledger.open(str(tmp_path / "link.db")) as linked:
        ledger.charge(["ada"], per_user("3/4"), batch="one")
        refusal(lambda: linked.charge(["ada"], per_user("1/2"), batch="two"), BudgetExhausted)
        (tmp_path / "hard.db").hardlink_to(file)
        with pytest.raises(LedgerUnavailable, match="hard link"):
            Ledger.open(str(tmp_path / "hard.db"))
        with pytest.raises(LedgerUnavailable, match="hard link"):
            ledger.charge(["ada"], per_user("1/4"), batch="two")


def test_counters_are_never_read_with_another_budget(url: str) -> None:
    # Half of the old budget is five hundred times the new one.
    with Ledger.create(url, budget=BUDGET) as old:
        with closing(Store(url)) as store, store.writing() as connection:
            for name in ("", "_charges", "_paid", "_spared", "_users"):
                connection.execute(text(f"DROP TABLE ledger{name}"))
        with Ledger.create(url, budget=SMALL) as new:
            for look in (
                lambda: old.charge(["ada"], per_user("1/2"), batch="one"),
                lambda: old.remaining("ada"),
                lambda: old.spent("ada"),
            ):
                with pytest.raises(
                    LedgerDamaged, match="or its filter was edited, since it was opened"
                ):
                    look()
            assert "its filter differs from the one with which it was opened" in str(old.check()[0])
            assert new.remaining("ada") == {"rho": Fraction(1, 1000)}
            assert new.check() == ()


def test_a_retry_is_flushed_before_it_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The process that wrote the charge may have died between its last write and the flush.
    flushed: list[str] = []

    def recorded(descriptor: int) -> None:
        flushed.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    def failing(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    if not Path("/proc/self/fd").exists():
        pytest.skip("this machine does not say which file a descriptor is of")
    file = tmp_path / "ledger.db"
    with Ledger.create(str(file), budget=BUDGET) as ledger:
        first = ledger.charge(["ada"], per_user("1/4"), batch="one")
        monkeypatch.setattr(os, "fsync", recorded)
        again: dict[str, Any] = {"batch": "one", "repeat_ok": True}
        assert ledger.charge(["ada"], per_user("1/4"), **again) == first
        assert flushed == [f"{file}-wal", str(tmp_path)]
        lax = mutated(Ledger._charged, "self._store.settle()", "pass")
        monkeypatch.setattr(ledger, "_take", partial(lax, ledger))
        assert ledger.charge(["ada"], per_user("1/4"), **again) == first
        assert len(flushed) == 2
        monkeypatch.undo()
        monkeypatch.setattr(os, "fsync", failing)
        with pytest.raises(LedgerUnavailable, match="Input/output error"):
            ledger.charge(["ada"], per_user("1/4"), **again)


def grown(file: Path) -> int:
    """Return the largest size of the log over charges that write much more than its limit."""
    users, sizes = [f"user {n:05d}" for n in range(500)], []
    with Ledger.create(str(file), budget=BUDGET) as ledger:
        for number in range(40):
            ledger.charge(users, per_user("1/1000"), batch=f"{number}")
            sizes.append(file.with_name(f"{file.name}-wal").stat().st_size)
        assert ledger.check() == ()
    return max(sizes)


@pytest.mark.nightly
def test_the_log_is_moved_into_the_file_while_nobody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone: list[str] = []

    execute = FileConnection.execute

    def watched(self: FileConnection, statement: str, *given: Any) -> sqlite3.Cursor:
        if "wal_checkpoint" in statement:
            with (
                closing(sqlite3.connect(tmp_path / "ledger.db", timeout=0)) as other,
                pytest.raises(sqlite3.OperationalError, match="locked"),
            ):
                other.execute("BEGIN IMMEDIATE")
            alone.append(statement)
        return execute(self, statement, *given)

    monkeypatch.setattr(FileConnection, "execute", watched)
    shorten = Store._shorten_log
    monkeypatch.setattr(Store, "_shorten_log", rewired(shorten, _LOG=1 << 18))
    kept = grown(tmp_path / "ledger.db")
    # The log is moved only when it is large, not at every charge: each charge writes a few pages.
    assert 3 < len(alone) < 25
    monkeypatch.setattr(Store, "_shorten_log", rewired(shorten, _LOG=1 << 60))
    assert grown(tmp_path / "twin.db") > 3 * kept


def test_a_file_without_a_write_ahead_log_is_refused() -> None:
    with (
        closing(sqlite3.connect(":memory:")) as connection,
        pytest.raises(sqlite3.OperationalError, match="supports no write-ahead log"),
    ):
        _write_ahead(connection)


# -- faults of the machine ---------------------------------------------------------------------

FULL = """
import sys
from accounting.guarantees.stated_guarantees import ZCdp
from accounting.ledger import Ledger, LedgerUnavailable
from dpcore.mechanism import Scope, Unit
price = ZCdp("1/1000", scope=Scope(unit=Unit.USER))
with Ledger.create(sys.argv[1], budget=ZCdp(1, scope=price.scope)) as ledger:
    receipts = []
    try:
        for number in range(1000):
            users = [f"user {n}" for n in range(3000)]
            receipts.append(ledger.charge(users, price, batch=f"{number}"))
    except LedgerUnavailable as error:
        print(str(error))
    assert 2 < len(receipts) < 1000 and ledger.check(*receipts) == ()
    assert ledger.charges() == len(receipts)
"""


def test_a_full_disk_leaves_the_old_state(tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    mount = f"mount -t tmpfs -o size=2m none '{room}'"
    if shutil.which("unshare") is None or subprocess.run([*ALONE, mount], check=False).returncode:
        pytest.skip("this machine gives no file system of one's own")
    own = (*ALONE, f'{mount} && exec "$@"', "sh")
    said = script(FULL, room / "ledger.db", before=own)
    assert said == f"{room / 'ledger.db'}: database or disk is full\n"


@pytest.mark.parametrize("holder", ["thread", "process"])
def test_a_charging_process_excludes_others_and_is_named(
    url: str, monkeypatch: pytest.MonkeyPatch, holder: str
) -> None:
    monkeypatch.setattr(transactions_and_locks, "_PATIENCE", 0.05)
    with Ledger.create(url, budget=BUDGET) as ledger, ExitStack() as held:
        pid = os.getpid()
        if holder == "thread":
            other = held.enter_context(Ledger.open(url))
            connection = held.enter_context(other._store.writing())
            other._book.head(connection, lock=True)
        else:
            context = processes()
            inside, enough = context.Event(), context.Event()
            holding = context.Process(target=hold, args=(url, inside, enough), daemon=True)
            holding.start()
            held.callback(holding.join, 30)
            held.callback(enough.set)
            assert inside.wait(60)
            pid = holding.pid or 0
        said = refusal(
            lambda: ledger.charge(["ada"], per_user("1/4"), batch="one"), LedgerUnavailable
        )
        assert re.search(r"waited 0\.05 s for .*wait for it to finish", said)
        assert "charge again: no batch is charged twice" in said
        if url.startswith("postgresql"):
            began = r"\(idle in transaction, its transaction began \d+ s ago\)"
            assert re.search(rf"for server process \d+ {began}", said)
            assert "pg_terminate_backend" in said
        elif not Path("/proc/locks").exists():
            assert "which this system cannot identify" in said
        elif holder == "thread":
            assert f"another thread of this process ({pid})" in said
        else:
            assert f"for process {pid} (python" in said
        assert ledger.charges() == 0  # readers do not wait
        held.close()
        assert ledger.charge(["ada"], per_user("1/4"), batch="one").number == 1


def test_no_charge_comes_between_the_verification_and_the_new_marks_of_an_adopted_ledger(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions_and_locks, "_PATIENCE", 0.05)
    with Ledger.create(url, budget=BUDGET) as ledger:

        def charging(*_: Any) -> None:
            refusal(lambda: ledger.charge(["ada"], per_user("1/4"), batch="one"), LedgerUnavailable)

        monkeypatch.setattr(verify_ledger, "_must_be_intact", charging)
        assert adopt(url) == 0


def test_without_the_lock_two_processes_would_charge_at_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Book, "head", mutated(Book.head, "if lock else", "if False else"))
    lax = mutated(transactions_and_locks._begin, '"BEGIN IMMEDIATE"', '"BEGIN"')
    monkeypatch.setattr(transactions_and_locks, "_begin", lax)
    with (
        Ledger.create(url, budget=BUDGET) as ledger,
        Ledger.open(url) as other,
        other._store.writing() as connection,
    ):
        other._book.head(connection, lock=True)
        assert ledger.charge(["ada"], per_user("1/4"), batch="one").number == 1


def test_a_charge_in_several_transactions_would_leave_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions_and_locks, "_begin", lambda connection, *, reads: None)
    monkeypatch.setattr(Book, "_add_up", Mock(side_effect=KeyboardInterrupt))
    with Ledger.create(str(tmp_path / "ledger.db"), budget=BUDGET) as ledger:
        with pytest.raises(KeyboardInterrupt):
            ledger.charge(["ada"], per_user("1/4"), batch="one")
        assert ledger.check() != ()


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("absent/ledger.db", "absent/ledger.db: there is no such file"),
        ("postgresql://nobody@/none?host=/absent&password=secret", "connection"),
        ("postgresql://nobody@/none?host=/absent&secret=secret", "invalid connection option"),
        ("x" * 5000, "x: "),
    ],
)
def test_a_missing_database_gives_a_one_line_error(url: str, match: str) -> None:
    said = refusal(lambda: Ledger.open(url), LedgerUnavailable)
    assert match in said
    assert "secret" not in said.replace('option "secret"', "")
    refusal(lambda: Ledger.create(url, budget=BUDGET), LedgerUnavailable)
