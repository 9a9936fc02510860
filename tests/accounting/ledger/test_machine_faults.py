"""Tests of the ledger under machine faults: full disks, limits, locks, read-only files."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from accounting.ledger import Ledger, LedgerUnavailable, transactions
from accounting.ledger.charge_or_refuse import Book
from tests.day_and_nightly import by_day
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refusal
from tests.support.ledger.budget import BUDGET, per_user
from tests.support.ledger.scripts import ALONE, script
from tests.support.ledger.workers import hold, processes

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


def test_a_charging_process_has_exclusive_access(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "_PATIENCE", 0.05)
    with Ledger.create(url, budget=BUDGET) as ledger, Ledger.open(url) as other:
        with other._store.writing() as connection:
            other._book.head(connection, lock=True)
            said = refusal(
                lambda: ledger.charge(["ada"], per_user("1/4"), batch="one"), LedgerUnavailable
            )
            assert "waited 0.05 s for" in said
            if not url.startswith("postgresql") and Path("/proc/locks").exists():
                assert f"another thread of this process ({os.getpid()})" in said
            assert ledger.charges() == 0  # readers do not wait
        assert ledger.charge(["ada"], per_user("1/4"), batch="one").number == 1


@by_day(1)
def test_the_process_that_blocks_a_charge_is_named(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "_PATIENCE", 0.05)
    with Ledger.create(url, budget=BUDGET) as ledger:
        context = processes()
        held, enough = context.Event(), context.Event()
        holding = context.Process(target=hold, args=(url, held, enough), daemon=True)
        holding.start()
        assert held.wait(60)
        said = refusal(
            lambda: ledger.charge(["ada"], per_user("1/4"), batch="one"), LedgerUnavailable
        )
        assert re.search(r"waited 0\.05 s for .*wait for it to finish", said)
        assert "charge again: the same batch is charged once" in said
        if url.startswith("postgresql"):
            assert re.search(
                r"for server process \d+ \(idle in transaction, its transaction began \d+ s ago\)",
                said,
            )
            assert "pg_terminate_backend" in said
        elif Path("/proc/locks").exists():
            assert f"for process {holding.pid} (python" in said
        else:
            assert "which this system cannot identify" in said
        enough.set()
        holding.join(30)
        assert ledger.charge(["ada"], per_user("1/4"), batch="one").number == 1


def test_a_log_that_cannot_be_flushed_gives_a_one_line_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with Ledger.create(str(tmp_path / "ledger.db"), budget=BUDGET) as ledger:
        ledger.charge(["ada"], per_user("1/4"), batch="one")
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", failing)
            with pytest.raises(LedgerUnavailable, match="Input/output error"):
                ledger.charge(["ada"], per_user("1/4"), batch="one", repeat_ok=True)


def test_without_the_lock_two_processes_would_charge_at_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Book, "head", mutated(Book.head, "if lock else", "if False else"))
    lax = mutated(transactions._begin, '"BEGIN IMMEDIATE"', '"BEGIN"')
    monkeypatch.setattr(transactions, "_begin", lax)
    with (
        Ledger.create(url, budget=BUDGET) as ledger,
        Ledger.open(url) as other,
        other._store.writing() as connection,
    ):
        other._book.head(connection, lock=True)
        assert ledger.charge(["ada"], per_user("1/4"), batch="one").number == 1


def test_an_interrupted_charge_is_absent(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger.create(url, budget=BUDGET) as ledger:
        with monkeypatch.context() as patched:
            patched.setattr(Book, "_add_up", broken_off)
            with pytest.raises(KeyboardInterrupt):
                ledger.charge(["ada"], per_user("1/4"), batch="one")
        assert (ledger.charges(), ledger.check()) == (0, ())


def test_a_charge_in_several_transactions_would_leave_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "_begin", lambda connection, *, reads: None)
    monkeypatch.setattr(Book, "_add_up", broken_off)
    with Ledger.create(str(tmp_path / "ledger.db"), budget=BUDGET) as ledger:
        with pytest.raises(KeyboardInterrupt):
            ledger.charge(["ada"], per_user("1/4"), batch="one")
        assert ledger.check() != ()


def broken_off(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("absent/ledger.db", "absent/ledger.db: there is no such file"),
        ("sqlite:///absent/ledger.db", "there is no such file"),
        ("postgresql://nobody:secret@/none?host=/absent", "connection"),
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
