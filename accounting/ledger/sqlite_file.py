r"""The SQLite file of a ledger: it must stay in one folder, and survive forks of the process.

SQLite derives the names of the log and the locks of a file from its path. A file that is reached
through two folders would have two logs, and two processes would both spend the whole budget. So a
file is refused if it is mounted without its folder, or if it lies in another folder than the one in
which it was created or adopted. The file ``<name>-home`` next to it records the identity of the
ledger and its folder.

SQLite also records the locks of a file in the memory of the process. After a fork, the child has a
copy of this record but not the locks. If the child writes to the file, even through a connection of
its own, its data are lost when the parent closes the file. So every idle connection is closed
before a fork. A connection in a transaction cannot be closed, so the child must not use its file.
Write transactions, which exclude other writers, are in ``transactions_and_locks``. Proofs:
docs/proofs/ledger.md.
"""

from __future__ import annotations

import gc
import os
import sqlite3
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Final
from weakref import WeakSet

from sqlalchemy import Engine

from accounting.ledger.errors import LedgerUnavailable
from dpcore.forks import HERE, forget_after_fork, forget_inherited

PRIVATE: Final = 0o600
"""The mode of every file of a ledger: only its owner may read and write it."""

HOMELESS: Final = (
    "is not in the folder where it was created: it was moved, copied or restored, or is mounted "
    "without its folder; use it there, or, if nobody still uses it there, run dpcore ledger "
    "adopt --db FILE"
)


# -- location ---------------------------------------------------------------------------------


def identity(path: Path, where: str) -> tuple[int, int] | None:
    r"""The device number and inode number of the file, or None if there is no file.

    Raises :class:`LedgerUnavailable` if the path is not a regular file, or has several hard links.
    """
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(found.st_mode):
        raise LedgerUnavailable(where, "is not a regular file")
    if found.st_nlink > 1:
        reason = "has a second hard link, which would have a separate write-ahead log"
        raise LedgerUnavailable(where, reason)
    return found.st_dev, found.st_ino


def refuse_mounted(path: Path, where: str) -> None:
    r"""Raise :class:`LedgerUnavailable` if the file is itself a mount point.

    ``path`` must not contain symbolic links. On a system that does not list its mounts nothing is
    refused here; :func:`home_of` then detects the other folder.
    """
    mounts = [_mount_of(each) for each in (path, path.parent)]
    if None not in mounts and mounts[0] != mounts[1]:
        reason = "is mounted without its folder, so its log would be separate: mount the folder"
        raise LedgerUnavailable(where, reason)


def _mount_of(path: Path) -> bytes | None:
    # O_PATH is needed: closing an ordinary descriptor of the file would drop SQLite's locks on it.
    opened = getattr(os, "O_PATH", None)
    if opened is None:
        return None
    with suppress(OSError):
        handle = os.open(path, opened | os.O_CLOEXEC)
        try:
            lines = _read(f"/proc/self/fdinfo/{handle}")
        finally:
            os.close(handle)
        return next((line for line in lines.splitlines() if line.startswith(b"mnt_id:")), None)
    return None


def _read(path: str) -> bytes:
    # For a small file Path.read_bytes takes several times as long, and each charge reads three.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, 1 << 12)
    finally:
        os.close(handle)


def home_of(path: Path) -> str:
    r"""The identity of the ledger created or adopted at ``path``; "" if no ledger was.

    ``path`` must not contain symbolic links. The folder is identified by its inode number, which is
    constant. Device numbers are not compared, since they may change when a machine restarts.
    """
    try:
        ledger, folder = _read(f"{path}-home").decode("ascii").split()
        return ledger if folder == str(path.parent.stat().st_ino) else ""
    except (OSError, ValueError):
        return ""


def settle_in(path: Path, ledger: str) -> None:
    r"""Record durably that ``path`` is the location of the ledger with identity ``ledger``."""
    home = Path(f"{path.resolve()}-home")
    partial = home.with_name(f"{home.name}.new")
    partial.unlink(missing_ok=True)
    partial.touch(PRIVATE, exist_ok=False)
    partial.write_text(f"{ledger} {home.parent.stat().st_ino}\n", encoding="ascii")
    bring_to_disk(partial)
    partial.replace(home)
    bring_to_disk(home.parent)


def bring_to_disk(path: Path, how: int = os.O_RDONLY) -> None:
    r"""Flush a file, or the entries of a folder, to disk; ``how`` are the flags of ``os.open``."""
    handle = os.open(path, how)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def made_private(path: Path) -> None:
    r"""Create an empty file at ``path`` if none exists, and make an empty file private.

    SQLite itself would create a file that others can read. Its log and index have the mode of the
    file. A non-empty file keeps the mode that its owner gave it. ``path`` must not contain symbolic
    links, and must not be a device or a pipe.
    """
    try:
        # The file is not opened: closing it would drop the locks of a thread that has it open.
        os.mknod(path, PRIVATE | stat.S_IFREG)
    except PermissionError:
        # Only root may create nodes here, or the folder is not writable: SQLite reports the latter.
        with suppress(OSError):
            path.touch(PRIVATE, exist_ok=False)
    except FileExistsError:
        with suppress(OSError):
            if not path.stat().st_size:
                path.chmod(PRIVATE)
    except (OSError, ValueError):
        return


# -- processes that fork ----------------------------------------------------------------------

_GATE: Final = RLock()
_ENGINES: Final[WeakSet[Engine]] = WeakSet()
_OPEN: Final[WeakSet[FileConnection]] = WeakSet()
_USED: Final[Counter[Path]] = Counter()


class _OpenAtFork:
    # The files that a parent was using at a fork: this process must not touch them.
    def __init__(self) -> None:
        self.files: set[Path] = set()
        forget_after_fork(self)

    def forget(self) -> None:
        self.files.update(path for path, times in _USED.items() if times > 0)
        self.files.update(connection.path for connection in _OPEN if connection.is_open())

    def __contains__(self, path: Path) -> bool:
        if not HERE:
            forget_inherited()
        return path in self.files


_OPEN_AT_FORK: Final = _OpenAtFork()


class FileConnection(sqlite3.Connection):
    r"""A registered SQLite connection: an idle connection is closed before every fork."""

    def __init__(self, database: str, *given: object, **named: object) -> None:
        super().__init__(database, *given, **named)  # type: ignore[arg-type]  # passed through
        self.path = Path(database).resolve()
        with _GATE:
            _OPEN.add(self)

    def is_open(self) -> bool:
        try:
            return self.total_changes >= 0
        except sqlite3.ProgrammingError:
            return False


def closed_before_forks(engine: Engine) -> Engine:
    r"""Register ``engine``, so that idle connections of the engine are closed before a fork."""
    with _GATE:
        _ENGINES.add(engine)
    return engine


@contextmanager
def using(path: Path) -> Iterator[None]:
    r"""A context in which the file ``path`` counts as in use; open connections only within it."""
    with _GATE:
        if path in _OPEN_AT_FORK:
            reason = "was in use when this process was forked: start it with spawn or forkserver"
            raise LedgerUnavailable(str(path), f"{reason}, or fork while no thread uses the ledger")
        _USED[path] += 1
    try:
        yield
    finally:
        with _GATE:
            _USED[path] -= 1


def _before() -> None:
    _GATE.acquire()
    for engine in [*_ENGINES]:
        engine.pool.dispose()
    if any(connection.is_open() for connection in _OPEN):
        gc.collect()  # closes connections of ledgers that were dropped without close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_GATE.release, after_in_child=_GATE.release)
