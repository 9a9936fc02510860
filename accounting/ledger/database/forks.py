r"""SQLite connections in processes that fork.

SQLite also keeps the locks of a file in the memory of the process. A child inherits that memory but
not the locks: it believes that it holds the locks of its parent, and when the parent closes the
file, data written by the child are lost, also through a connection that the child opened itself.
So every idle connection is closed before a fork. A connection in a transaction cannot be closed:
the child must not touch its file. Proofs: docs/proofs/ledger.md.
"""

from __future__ import annotations

import gc
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Final
from weakref import WeakSet

from sqlalchemy import Engine

from accounting.ledger.errors import LedgerUnavailable
from dpcore.forks import HERE, forget_after_fork, forget_inherited

_GATE: Final = RLock()
_ENGINES: Final[WeakSet[Engine]] = WeakSet()
_OPEN: Final[WeakSet[FileConnection]] = WeakSet()
_USED: Final[Counter[Path]] = Counter()


class _Torn:
    # The files that a parent was using at a fork: this process must not touch them.
    def __init__(self) -> None:
        self.files: set[Path] = set()
        forget_after_fork(self)

    def forget(self) -> None:
        self.files.update(path for path, times in _USED.items() if times > 0)
        self.files.update(connection.path for connection in _OPEN if connection.rests_open())

    def __contains__(self, path: Path) -> bool:
        if not HERE:
            forget_inherited()
        return path in self.files


_TORN: Final = _Torn()


class FileConnection(sqlite3.Connection):
    r"""A connection that is closed before a fork."""

    def __init__(self, database: str, *given: object, **named: object) -> None:
        super().__init__(database, *given, **named)  # type: ignore[arg-type]  # passed through
        self.path = Path(database).resolve()
        with _GATE:
            _OPEN.add(self)

    def rests_open(self) -> bool:
        r"""Whether an idle connection is still open."""
        try:
            return self.total_changes >= 0
        except sqlite3.ProgrammingError:
            return False


def closed_before_forks(engine: Engine) -> Engine:
    r"""Return ``engine``, whose idle connections will be closed before every fork."""
    with _GATE:
        _ENGINES.add(engine)
    return engine


@contextmanager
def using(path: Path) -> Iterator[None]:
    r"""A context for a transaction on the file ``path``, including its connection."""
    with _GATE:
        if path in _TORN:
            raise LedgerUnavailable(
                str(path),
                "was in use when this process was forked: start it by spawn or forkserver, or "
                "fork while no thread uses the ledger",
            )
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
    if any(connection.rests_open() for connection in _OPEN):
        gc.collect()  # closes connections of ledgers that were dropped without close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_GATE.release, after_in_child=_GATE.release)
