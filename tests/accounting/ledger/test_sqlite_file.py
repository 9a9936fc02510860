"""Tests of the SQLite file: one folder, one log, one owner; moving, copying, and forks."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from accounting.ledger import Ledger, LedgerDamaged, LedgerUnavailable, adopt, backup
from dpcore.errors import InvalidParameter
from tests.day_and_nightly import by_day
from tests.support.dpcore.mutants import rewired
from tests.support.dpcore.refusals import refusal
from tests.support.ledger.budget import BUDGET, per_user
from tests.support.ledger.scripts import ALONE, script
from tests.support.run_command import typed

PRICE = per_user("3/4")


def opened(file: Path) -> Ledger:
    return Ledger.create(str(file), budget=BUDGET)


# One file in two folders, one process for each: the outcome of a charge through either path.
TWO_PATHS = """
import subprocess, sys
from accounting.guarantees.stated_guarantees import ZCdp
from accounting.ledger import BudgetExhausted, Ledger, LedgerUnavailable
from accounting.ledger import sqlite_file
from accounting.ledger.charge_or_refuse import Book
from tests.support.ledger.budget import per_user
script, path, *rest = sys.argv[1:]
if "no mounts told" in rest:
    sqlite_file._mount_of = lambda path: None
if "no homes" in rest:
    Book._must_be_home = lambda self, connection: None
try:
    ledger = Ledger.open(path)
    ledger.charge(["ada"], per_user("3/4"), batch=path)
    print("paid")
except (BudgetExhausted, LedgerUnavailable) as error:
    print(error)
if rest and rest[0].startswith("/"):
    sys.stdout.flush()
    subprocess.run([sys.executable, "-c", script, script, *rest], check=True)
"""


def mounted(here: Path, there: Path, *words: object) -> list[str]:
    """Return the output of the script while ``here`` is mounted on ``there``."""
    mount = 'mount --bind "$1" "$2"'
    shell = [*map(str, (*ALONE, mount, "sh", here, there))]
    if shutil.which("unshare") is None or subprocess.run(shell, check=False).returncode:
        pytest.skip("this machine lets nobody mount anything")
    shell[len(ALONE)] = f'{mount} && shift 2 && exec "$@"'
    return script(TWO_PATHS, TWO_PATHS, *words, before=(*shell,)).splitlines()


@pytest.fixture
def two_paths(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    opened(tmp_path / "here" / "ledger.db").close()
    (tmp_path / "there" / "ledger.db").touch()
    return tmp_path / "here" / "ledger.db", tmp_path / "there" / "ledger.db"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("blind", "second"),
    [
        ([], "{}: is mounted without its folder"),
        (["no mounts told"], "{}: is not in the folder where it was created"),
        # Without these checks one budget is spent twice.
        (["no mounts told", "no homes"], "paid"),
    ],
)
def test_a_file_that_is_mounted_alone_accepts_no_charge(
    two_paths: tuple[Path, Path], blind: list[str], second: str
) -> None:
    first, found = mounted(*two_paths, *two_paths, *blind)
    assert first == "paid"
    assert found.startswith(second.format(two_paths[1]))


def moved(file: Path) -> Path:
    (file.parent / "new").mkdir()
    return file.rename(file.parent / "new" / file.name)


def copied(file: Path) -> Path:
    """Copy the file with everything beside it, as a backup of the folder would."""
    return Path(shutil.copytree(file.parent, file.parent.with_name("copied"))) / file.name


def without_its_home(file: Path) -> Path:
    file.with_name(f"{file.name}-home").unlink()
    return file


@pytest.mark.parametrize(
    "move", [moved, copied, lambda file: file.rename(file.with_name("other.db")), without_its_home]
)
def test_a_moved_file_must_be_adopted_before_it_is_charged(tmp_path: Path, move: Any) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with opened(folder / "ledger.db") as ledger:
        receipt = ledger.charge(["ada"], per_user("1/4"), batch="one")
    # A renamed folder is the same folder.
    folder = folder.rename(tmp_path / "renamed")
    Ledger.open(str(folder / "ledger.db")).close()
    file = move(folder / "ledger.db")
    looks: list[Callable[[], object]] = [lambda: Ledger.open(str(file)), lambda: opened(file)]
    for refused in looks:
        with pytest.raises(LedgerUnavailable, match=r"in the folder where it was created.*adopt"):
            refused()
    assert adopt(str(file)) == 1
    with opened(file) as ledger:
        assert ledger.check(receipt) == ()  # receipts remain valid after the move
        assert ledger.charge(["ada"], PRICE, batch="two").number == 2


@by_day(1)
def test_a_process_must_reopen_a_ledger_after_its_adoption(url: str) -> None:
    with Ledger.create(url, budget=BUDGET) as ledger:
        ledger.charge(["ada"], per_user("1/4"), batch="one")
        assert adopt(url) == 1
        with pytest.raises(LedgerUnavailable, match=r"adopted|not in the folder"):
            ledger.charge(["ada"], per_user("1/4"), batch="two")
        with Ledger.open(url) as again:
            assert again.charge(["ada"], per_user("1/4"), batch="two").number == 2
            assert again.check() == ()


def modes(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()}


@pytest.mark.parametrize("made_before", ["nothing", "a file", "a link"])
def test_every_file_of_a_ledger_is_private_for_any_umask(
    tmp_path: Path, made_before: str, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(partial(os.umask, os.umask(0)))
    folder = tmp_path / "folder"
    folder.mkdir()
    if made_before == "a file":
        (folder / "ledger.db").touch(0o666)
    link = tmp_path / "link.db"
    link.symlink_to(folder / "ledger.db")
    with opened(link if made_before == "a link" else folder / "ledger.db") as ledger:
        ledger.charge(["ada"], PRICE, batch="one")
        files = [f"ledger.db{end}" for end in ("", "-wal", "-shm", "-home", "-queue")]
        assert modes(folder) == dict.fromkeys(files, 0o600)
        backup(str(folder / "ledger.db"), folder / "copy.db")
        assert modes(folder)["copy.db"] == 0o600


@pytest.mark.parametrize("kind", ["pipe", "folder", "link"])
def test_a_path_that_is_not_a_regular_file_is_refused_and_keeps_its_mode(
    tmp_path: Path, kind: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "pipe").chmod(0o666)
    assert "is not a regular file" in refusal(lambda: opened(tmp_path / kind), LedgerUnavailable)
    with pytest.raises(LedgerUnavailable, match="is not a regular file"):
        Ledger.open(str(tmp_path / kind))
    assert modes(tmp_path)["pipe"] == 0o666
    assert {*modes(tmp_path)} == {"pipe", "folder", "link"}


def test_a_backup_is_one_complete_file_that_must_be_adopted(tmp_path: Path) -> None:
    file, copy = tmp_path / "ledger.db", tmp_path / "copies" / "copy.db"
    copy.parent.mkdir()
    with opened(file) as ledger:
        receipts = [ledger.charge(["ada"], per_user("1/8"), batch=f"{n}") for n in range(5)]
        assert file.with_name("ledger.db-wal").stat().st_size
        assert backup(str(file), copy) == 5
        # No other file lies beside the copy, and it does not contain later charges.
        assert [each.name for each in copy.parent.iterdir()] == ["copy.db"]
        later = ledger.charge(["ada"], per_user("1/8"), batch="later")
    with closing(sqlite3.connect(f"file:{copy}?mode=ro", uri=True)) as plain:
        assert plain.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert "adopt" in refusal(lambda: Ledger.open(str(copy)), LedgerUnavailable)
    assert adopt(str(copy)) == 5
    with Ledger.open(str(copy), budget=BUDGET) as ledger:
        assert ledger.check(*receipts) == ()
        assert ledger.remaining("ada") == {"rho": Fraction(3, 8)}
        # Only receipts can prove the charges that an older copy lost.
        assert str(ledger.check(later)[0]) == "charge 6: is missing, but has a receipt"


def test_a_backup_overwrites_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    opened(file).close()
    copy.write_text("precious", encoding="ascii")
    with pytest.raises(InvalidParameter, match=r"destination = .*copy.db: already exists"):
        backup(str(file), copy)
    (tmp_path / "link.db").symlink_to(tmp_path / "nowhere.db")
    assert "exists" in refusal(lambda: backup(str(file), tmp_path / "link.db"))
    # A file created during the copy is not overwritten either.
    monkeypatch.setattr(os.path, "lexists", lambda path: False)
    assert "exists" in refusal(lambda: backup(str(file), copy))
    assert copy.read_text(encoding="ascii") == "precious"
    assert "No such file" in refusal(lambda: backup(str(file), tmp_path / "absent" / "copy.db"))
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".")]


def test_a_damaged_ledger_gives_no_backup_and_is_not_adopted(tmp_path: Path) -> None:
    file, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    with opened(file) as ledger:
        ledger.charge(["ada"], PRICE, batch="one")
        with ledger._store.writing() as connection:
            connection.exec_driver_sql("UPDATE ledger_users SET spent_0 = 0")
        assert "no copy was made" in refusal(lambda: backup(str(file), copy), LedgerDamaged)
        assert "nothing was changed" in refusal(lambda: adopt(str(file)), LedgerDamaged)
        blind = rewired(backup.__globals__["_copied"], _must_be_intact=lambda *_: None)
        assert blind(ledger._store, copy) == 1
    assert {each.name for each in tmp_path.iterdir()} >= {"copy.db"}
    assert "no such file" in refusal(lambda: adopt("absent.db"), LedgerUnavailable)


def test_the_command_explains_how_to_open_a_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, copy = tmp_path / "ledger.db", tmp_path / "the copy.db"
    opened(file).close()
    answer = typed(capsys, "ledger", "backup", file, copy)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == [
        f"copied     {copy}, 0 charges",
        "history    intact",
        f"to use it  dpcore ledger adopt --db '{copy}'",
    ]
    again = typed(capsys, "ledger", "backup", file, copy)
    expected = f"error: DEST = {copy}: already exists: choose a new file name\n"
    assert (again.code, again.err) == (2, expected)
    adopted = typed(capsys, "ledger", "adopt", "--db", copy)
    assert (adopted.code, adopted.out) == (0, "adopted    0 charges\nhistory    intact\n")


# -- forks: no charge that is acknowledged to a child is lost ----------------------------------

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


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["forgotten", "the same", "its own"])
def test_charges_acknowledged_to_a_child_survive_its_parent(url: str, how: str) -> None:
    Ledger.create(url, budget=BUDGET).close()
    told, kept = script(CLOSED, url, how).splitlines()
    assert told == "child again"
    assert kept.endswith("child, child again")


@pytest.mark.nightly
def test_a_child_does_not_touch_a_file_that_was_in_use_at_its_fork(tmp_path: Path) -> None:
    for name in ("ledger.db", "other.db"):
        opened(tmp_path / name).close()
    file = str(tmp_path / "ledger.db")
    script(DURING, file)
    assert "was in use when this process was forked" in script(NATIVE, file, "as it is")
    assert script(NATIVE, file, "hooks alone") == "charged\n"
    # Connections that stay open over a fork lose a charge.
    found = script(CLOSED, tmp_path / "other.db", "kept open").splitlines()
    assert found == ["child again", "parent, child"]
