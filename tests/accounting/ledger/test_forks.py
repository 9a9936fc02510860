"""Tests of a ledger in a forked process: no charge acknowledged to the child is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from accounting.ledger import Ledger
from tests.support.ledger.budget import BUDGET
from tests.support.ledger.scripts import script

pytestmark = pytest.mark.nightly

OPENED = """
import ctypes, os, sys, threading
from accounting.ledger import Ledger, LedgerUnavailable, group_commit
from accounting.ledger import sqlite_file
from tests.support.ledger.budget import per_user
ledger, price = Ledger.open(sys.argv[1]), per_user("1/50")
"""

# The child charges, the parent closes its ledger, the child charges again.
CLOSED = (
    OPENED
    + """
ledger.charge(["ada"], price, batch="parent")
if sys.argv[2] == "kept open":
    sqlite_file._ENGINES.clear()
    sqlite_file._OPEN.clear()
elif sys.argv[2] == "forgotten":
    forgotten = Ledger.open(sys.argv[1])
    forgotten.charge(["ada"], price, batch="forgotten")
    del forgotten
(here, there), (back, forth) = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    mine = Ledger.open(sys.argv[1]) if sys.argv[2] == "its own" else ledger
    mine.charge(["ada"], price, batch="child")
    os.write(there, b"1")
    os.read(back, 1)
    print(mine.charge(["ada"], price, batch="child again").batch, flush=True)
    os._exit(0)
os.read(here, 1)
ledger.close()
os.write(forth, b"1")
assert os.waitpid(child, 0)[1] == 0
print(*(charge.batch for charge in ledger.history()), sep=", ")
assert ledger.check() == ()
"""
)

# The fork happens while a thread of the parent is inside a transaction.
DURING = (
    OPENED
    + """
inside, done = threading.Event(), threading.Event()
def hold():
    with ledger._store.writing() as connection:
        inside.set()
        done.wait()
thread = threading.Thread(target=hold)
thread.start()
inside.wait()
child = os.fork()
if child == 0:
    for mine in (ledger, None):
        try:
            (mine or Ledger.open(sys.argv[1])).charge(["ada"], price, batch="child")
        except LedgerUnavailable as error:
            assert "was in use when this process was forked" in str(error)
        else:
            os._exit(1)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
done.set()
thread.join()
assert ledger.charge(["ada"], price, batch="parent").number == 1
# Now nobody is inside.
child = os.fork()
if child == 0:
    ledger.charge(["ada"], price, batch="child")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert ledger.charges() == 2 and ledger.check() == ()
"""
)

# Native code forks: no hook closes the idle connection.
NATIVE = (
    OPENED
    + """
ledger.charge(["ada"], price, batch=f"parent, {sys.argv[2]}")
if sys.argv[2] == "hooks alone":
    sqlite_file.HERE = True
child = ctypes.PyDLL(None).fork()
if child == 0:
    try:
        ledger.charge(["ada"], price, batch=f"child, {sys.argv[2]}")
    except LedgerUnavailable as error:
        print(error, flush=True)
    else:
        print("charged", flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
)


@pytest.fixture
def opened(url: str) -> str:
    Ledger.create(url, budget=BUDGET).close()
    return url


@pytest.fixture
def file(tmp_path: Path) -> str:
    Ledger.create(str(tmp_path / "ledger.db"), budget=BUDGET).close()
    return str(tmp_path / "ledger.db")


@pytest.mark.parametrize("how", ["forgotten", "the same", "its own"])
def test_charges_acknowledged_to_a_child_survive_its_parent(opened: str, how: str) -> None:
    told, kept = script(CLOSED, opened, how).splitlines()
    assert told == "child again"
    assert kept.endswith("child, child again")


def test_connections_left_open_over_a_fork_would_lose_a_charge(file: str) -> None:
    assert script(CLOSED, file, "kept open").splitlines() == ["child again", "parent, child"]


def test_a_child_forked_by_native_code_does_not_touch_an_open_file(file: str) -> None:
    assert "was in use when this process was forked" in script(NATIVE, file, "as it is")
    assert script(NATIVE, file, "hooks alone") == "charged\n"


def test_a_child_forked_during_a_transaction_does_not_touch_the_file(file: str) -> None:
    script(DURING, file)
