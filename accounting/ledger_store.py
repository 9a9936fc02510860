r"""Where a ledger lives: an SQLite file or a PostgreSQL database, and how it is entered.

A transaction that writes has the ledger to itself, one that reads sees one moment of it. Whatever
the database reports leaves as :class:`LedgerUnavailable` or :class:`LedgerDamaged`.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    NoResultFound,
    SQLAlchemyError,
)
from sqlalchemy.pool import Pool

from accounting.ledger_errors import LedgerDamaged, LedgerUnavailable
from dpcore.errors import InvalidParameter

__all__ = ["Store"]

_PATIENCE: Final = 60  # seconds for which a charge waits for others
_CREATION: Final = 0x64_70_63_6F_72_65  # names the advisory lock under which tables are made
_KINDS: Final = "must be a path, sqlite:///path or postgresql://user@host/database"
_CORRUPT: Final = ("SQLITE_CORRUPT", "SQLITE_NOTADB")


class Store:
    r"""One database. Connections are kept and reused, but never across a fork.

    >>> Store("sqlite://")
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: url = sqlite://: a ledger in memory forgets: give a file
    """

    def __init__(self, url: str) -> None:
        address = _address(url)
        self.where = address.database or "" if _is_file(address) else str(address)
        self._address = address
        self._engine = _engine(address)
        self._process = os.getpid()
        self._inherited: list[Pool] = []

    @property
    def is_file(self) -> bool:
        r"""Whether this is an SQLite file."""
        return _is_file(self._address)

    def must_be_there(self) -> None:
        r"""Refuse a file that does not exist: opening it would make an empty one."""
        if self.is_file and not Path(self.where).is_file():
            raise LedgerUnavailable(self.where, "there is no such file")

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        r"""A transaction in which nobody else writes, durable when the block has ended.

        On SQLite it starts with the write lock. On PostgreSQL the caller's first statement locks
        the one row of ``ledger``; each later one sees what was committed before that.
        """
        with self._translated(), self._connected("READ COMMITTED") as connection:
            if not self.is_file:
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_PATIENCE}s'")
                connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
            yield connection

    @contextmanager
    def creating(self) -> Iterator[Connection]:
        r"""As :meth:`writing`, where the tables may not be there yet."""
        with self.writing() as connection:
            if not self.is_file:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _CREATION})
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        r"""A transaction that sees the ledger as it is at its first statement."""
        with self._translated(), self._connected("REPEATABLE READ") as connection:
            yield connection

    def has_tables(self, connection: Connection) -> bool:
        r"""Whether there is a ledger in the database."""
        return inspect(connection).has_table("ledger")

    def close(self) -> None:
        r"""Give back the connections."""
        self._engine.dispose()

    @contextmanager
    def _connected(
        self, isolation: Literal["READ COMMITTED", "REPEATABLE READ"]
    ) -> Iterator[Connection]:
        if os.getpid() != self._process:
            # A connection that two processes use is nobody's: a child neither uses nor closes those
            # of its parent, and keeps them so that nothing else does.
            self._inherited.append(self._engine.pool)
            self._engine.dispose(close=False)
            self._process = os.getpid()
        engine: Engine = self._engine
        if self.is_file:
            engine = engine.execution_options(ledger_reads=isolation == "REPEATABLE READ")
        else:
            engine = engine.execution_options(isolation_level=isolation)
        with engine.begin() as connection:
            yield connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except NoResultFound as error:
            raise LedgerDamaged(self.where, "the row of its ledger is gone") from error
        except IntegrityError as error:
            # Every rule of the tables is checked before a row is written.
            raise LedgerDamaged(
                self.where, f"holds rows that nobody charged: {_line(error)}"
            ) from error
        except (SQLAlchemyError, sqlite3.Error) as error:
            original = error.orig if isinstance(error, DBAPIError) else error
            if getattr(original, "sqlite_errorname", "").startswith(_CORRUPT):
                what = f"is not a whole database: {_line(error)}"
                raise LedgerDamaged(self.where, what) from error
            raise LedgerUnavailable(self.where, _line(error)) from error


def _line(error: Exception) -> str:
    original = error.orig if isinstance(error, DBAPIError) and error.orig else error
    lines = [line.strip() for line in str(original).splitlines() if line.strip()]
    return lines[0] if lines else type(original).__name__


def _is_file(address: URL) -> bool:
    return address.get_backend_name() == "sqlite"


def _address(url: object) -> URL:
    if isinstance(url, os.PathLike):
        url = os.fspath(url)
    if not isinstance(url, str) or not url.strip():
        raise InvalidParameter("url", url, _KINDS)
    if not re.match(r"\w[\w+]*://", url):
        return URL.create("sqlite", database=url)
    try:
        address = make_url(url)
    except (ArgumentError, ValueError):
        raise InvalidParameter("url", url, _KINDS) from None
    if address.drivername in ("sqlite", "sqlite+pysqlite"):
        if address.database in (None, "", ":memory:"):
            raise InvalidParameter("url", url, "a ledger in memory forgets: give a file")
        return address
    if address.drivername in ("postgresql", "postgresql+psycopg"):
        if find_spec("psycopg") is None:
            raise InvalidParameter(
                "url", str(address), "needs psycopg: pip install 'dpcore[postgresql]'"
            )
        return address.set(drivername="postgresql+psycopg")
    raise InvalidParameter("url", str(address), _KINDS)


def _engine(address: URL) -> Engine:
    if not _is_file(address):
        return create_engine(address, pool_pre_ping=True)
    engine = create_engine(address, connect_args={"timeout": _PATIENCE})
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: Any, _record: object) -> None:
    # The driver would begin by itself, and later than it must.
    connection.isolation_level = None
    _write_ahead(connection)
    # An acknowledged charge survives a power cut.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA temp_store = MEMORY")


def _write_ahead(connection: Any) -> None:
    # Readers do not stop a charge. The first change of a new file to this mode does not wait for
    # others by itself.
    last = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > last:
                raise
            time.sleep(0.01)
        else:
            return


def _begin(connection: Connection) -> None:
    reads = connection.get_execution_options().get("ledger_reads", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
