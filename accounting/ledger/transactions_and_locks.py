r"""The database of a ledger, SQLite or PostgreSQL: its address, transactions and write lock.

A write transaction excludes all other writers; a read transaction sees a single snapshot of the
ledger. Errors of the database are raised as :class:`LedgerUnavailable` or :class:`LedgerDamaged`.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    MultipleResultsFound,
    NoResultFound,
    SQLAlchemyError,
)
from sqlalchemy.pool import Pool

from accounting.ledger import sqlite_file
from accounting.ledger.errors import LedgerDamaged, LedgerUnavailable
from accounting.ledger.sqlite_file import FileConnection, closed_before_forks, using
from dpcore.errors import InvalidParameter

_PATIENCE: Final = 60  # the time in seconds for which a charge waits for others
_CREATION: Final = 0x64_70_63_6F_72_65  # the advisory lock under which tables are created
_LOG: Final = 4 << 20  # the largest size of the write-ahead log of a file, in bytes
_FOLDER: Final = ": the folder must exist and be writable"
_CORRUPT: Final = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
# The error codes of PostgreSQL if the tables are not those of a ledger: no such table, column or
# function, a wrong type, a sum out of range.
_OTHER_TABLES: Final = frozenset({"42P01", "42703", "42883", "42804", "22003"})
_LOCK_TIMEOUT: Final = "55P03"
_LOCKS: Final = Path("/proc/locks")
_WRITE_LOCK: Final = 120  # SQLite's WAL_WRITE_LOCK: the number of a byte of the file -shm
# A session that charges locks the row of the ledger; the session that does not wait holds the lock.
_HOLDERS: Final = text(
    "SELECT a.pid, a.state, extract(epoch FROM now() - a.xact_start)::int AS since"
    " FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
    " WHERE l.relation = 'ledger'::regclass AND l.mode IN ('RowShareLock', 'AccessExclusiveLock')"
    " AND l.granted AND a.pid <> pg_backend_pid() AND a.wait_event_type IS DISTINCT FROM 'Lock'"
    " ORDER BY a.xact_start LIMIT 1"
)
_KINDS: Final = "must be a path, sqlite:///path or postgresql://user@host/database"
_WAIT: Final = "wait for it to finish"


def address_of(url: object) -> URL:
    r"""Parse the path of an SQLite file, or the URL of an SQLite or PostgreSQL database."""
    if isinstance(url, os.PathLike):
        url = os.fspath(url)
    if not isinstance(url, str):
        raise InvalidParameter("url", url, _KINDS)
    scheme, split, rest = url.partition("://")
    printed = f"{scheme}://..." if rest else url
    if not url.strip() or not url.isprintable():
        raise InvalidParameter("url", ascii(printed), _KINDS)
    try:
        address = make_url(url) if split else URL.create("sqlite", database=url)
    except (ArgumentError, ValueError):
        raise InvalidParameter("url", printed, _KINDS) from None
    if address.drivername in ("sqlite", "sqlite+pysqlite"):
        if address.database in (None, "", ":memory:"):
            raise InvalidParameter("url", printed, "must be a file, not in memory")
        if address.host or address.username or address.query:
            # For example, nolock=1 would let two processes charge simultaneously.
            raise InvalidParameter("url", printed, f"{_KINDS}, without options")
        return address
    if address.drivername in ("postgresql", "postgresql+psycopg"):
        if find_spec("psycopg") is None:
            raise InvalidParameter(
                "url", printed, "needs psycopg: pip install 'dpcore[postgresql]'"
            )
        return address.set(drivername="postgresql+psycopg")
    raise InvalidParameter("url", printed, _KINDS)


def where_of(address: URL) -> str:
    r"""The name of the database in messages, without user name and password."""
    if address.get_backend_name() == "sqlite":
        return address.database or ""
    hosts = address.query.get("host", "")
    host = address.host or (hosts if isinstance(hosts, str) else ",".join(hosts))
    return f"postgresql://{host}/{address.database or ''}"


class Store:
    r"""The database of a ledger, with pooled connections that are never reused after a fork."""

    def __init__(self, url: str) -> None:
        address = address_of(url)
        self.where, self.is_file = where_of(address), address.get_backend_name() == "sqlite"
        # Resolved now, as by the driver, so that a later chdir has no effect.
        self._path = Path(os.path.abspath(self.where))  # noqa: PTH100 - resolve() follows links
        # If links lead to another file later, that file is not the open one, and is refused.
        self._real = Path(os.path.realpath(self.where))
        self._log = Path(f"{self._real}-wal")
        self.queue: Final = Path(f"{self._real}-queue")
        r"""The file through which processes that charge an SQLite file share transactions."""
        self._engine = _engine(address)
        self._driver: Any = self._engine.dialect.loaded_dbapi
        self._reads = self._writes = self._engine
        if not self.is_file:
            self._reads = self._engine.execution_options(isolation_level="REPEATABLE READ")
            self._writes = self._engine.execution_options(isolation_level="READ COMMITTED")
        self._process = os.getpid()
        self._inherited: list[Pool] = []
        self.file: tuple[int, int] | None = None
        r"""The device and inode of the open file."""

    @property
    def patience(self) -> float:
        r"""The time in seconds that a charge waits for other writers."""
        return _PATIENCE

    def mode(self) -> int:
        r"""The ``st_mode`` of the SQLite file."""
        return self._path.stat().st_mode

    @contextmanager
    def writing(self, *, create: bool = False) -> Iterator[Connection]:
        r"""A context with a write transaction that excludes other writers, durable when it ends.

        On SQLite the transaction takes the write lock when it begins. On PostgreSQL the caller's
        first statement must lock the only row of ``ledger``; each later statement sees all data
        committed before it starts. With ``create``, the tables or the file need not exist yet.
        """
        if create and self.is_file:
            # This refuses a device, whose mode must not change.
            sqlite_file.identity(self._path, self.where)
            sqlite_file.made_private(self._real)
        with self._transaction(reads=False, create=create) as connection:
            if not self.is_file:
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_PATIENCE}s'")
                connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
                if create:
                    lock = text("SELECT pg_advisory_xact_lock(:key)")
                    connection.execute(lock, {"key": _CREATION})
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        r"""A context with a read transaction: all reads see the ledger as at the first read."""
        with self._transaction(reads=True) as connection:
            yield connection

    def settle_here(self, ledger: str) -> None:
        r"""Record that the current location of an SQLite file is that of the ledger ``ledger``.

        ``ledger`` is the identity of the ledger. Call this method inside a write transaction.
        """
        if self.is_file:
            sqlite_file.settle_in(self._path, ledger)

    def must_hold_tables(self, connection: Connection) -> None:
        r"""Raise :class:`LedgerUnavailable` if the database contains no ledger."""
        if not self.has_tables(connection):
            raise LedgerUnavailable(self.where, "contains no ledger: create one with a budget")

    def has_tables(self, connection: Connection) -> bool:
        r"""Whether the database contains a ledger.

        Raises :class:`LedgerDamaged` if it contains only some of the tables of a ledger.
        """
        tables = inspect(connection)
        found = {tables.has_table(name) for name in ("ledger", "ledger_charges", "ledger_users")}
        if len(found) > 1:
            raise LedgerDamaged(self.where, "contains only some of the tables of a ledger")
        return found.pop()

    def settle(self) -> None:
        r"""Flush to disk all writes to the file, even those of a process that died before flushing.

        In SQLite other processes see the complete charge of such a process, but a power failure
        could still undo it. Call this method inside a write transaction. PostgreSQL flushes a
        charge before other sessions see it.
        """
        if self.is_file:
            for path, how in ((self._log, os.O_RDWR), (self._log.parent, os.O_RDONLY)):
                with suppress(FileNotFoundError):  # without a log all data are in the file
                    sqlite_file.bring_to_disk(path, how)

    def waited(self) -> LedgerUnavailable:
        r"""The error for a charge that timed out, with the process that blocks the ledger."""
        who, end = _writing_process(self._path) if self.is_file else _writing_session(self._engine)
        reason = f"waited {_PATIENCE:g} s for {who}: {end}; then charge again: no batch is charged"
        return LedgerUnavailable(self.where, f"{reason} twice")

    def close(self) -> None:
        self._engine.dispose()
        self.file = None

    @contextmanager
    def _transaction(self, *, reads: bool, create: bool = False) -> Iterator[Connection]:
        if self.is_file and not create and sqlite_file.identity(self._path, self.where) is None:
            # Opening a missing file would create an empty one.
            reason = "there is no such file: create a ledger with dpcore ledger open"
            raise LedgerUnavailable(self.where, reason)
        if os.getpid() != self._process:
            # A connection must not be shared by two processes: a child neither uses nor closes the
            # connections of its parent, and keeps references so that they are not closed.
            self._inherited.append(self._engine.pool)
            self._engine.dispose(close=False)
            self._process = os.getpid()
        engine = self._reads if reads else self._writes
        with self._translated():
            if not self.is_file:
                with engine.begin() as connection:
                    yield connection
                return
            with using(self._real):
                sqlite_file.refuse_mounted(self._real, self.where)
                if not reads:
                    self._shorten_log()
                with engine.begin() as connection:
                    _begin(connection, reads=reads)
                    file = connection.info["file"]
                    self._must_be(file)
                    connection.info["home"] = sqlite_file.home_of(self._real)
                    yield connection
            # A write to a file that has been moved or removed must not be acknowledged.
            self._must_be(file)

    def _shorten_log(self) -> None:
        # SQLite before 3.51.3 may lose a commit that restarts the log while two others checkpoint
        # it (sqlite.org/wal.html, "the WAL-reset bug"). So connections never checkpoint on their
        # own, and this method does so while it holds the write lock.
        try:
            length = self._log.stat().st_size
        except OSError:
            return
        if length > _LOG:
            with self._writes.begin() as alone, closing(FileConnection(str(self._path))) as other:
                _begin(alone, reads=False)
                self._must_be(alone.info["file"])
                other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _must_be(self, opened: tuple[int, int]) -> None:
        self.file = self.file or opened
        if not self.file == opened == sqlite_file.identity(self._path, self.where):
            reason = "was moved, removed or replaced while it was open: open it again"
            raise LedgerUnavailable(self.where, reason)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (NoResultFound, MultipleResultsFound) as error:
            reason = "the row of the ledger is missing or not unique"
            raise LedgerDamaged(self.where, reason) from error
        except (SQLAlchemyError, self._driver.Error) as error:
            raise self._meaning(error) from error
        except OSError as error:
            # Errors of files next to the database, such as a log that cannot be flushed to disk.
            raise LedgerUnavailable(self.where, error.strerror or str(error)) from error

    def _meaning(self, error: Exception) -> LedgerDamaged | LedgerUnavailable:
        original = error.orig if isinstance(error, DBAPIError) and error.orig else error
        lines = [line.strip() for line in str(original).splitlines() if line.strip()]
        line = lines[0] if lines else type(original).__name__
        name, state = getattr(original, "sqlite_errorname", ""), getattr(original, "sqlstate", "")
        if isinstance(original, self._driver.IntegrityError):
            # All constraints of the tables are checked before a row is written.
            return LedgerDamaged(self.where, f"contains rows that belong to no charge: {line}")
        if name.startswith("SQLITE_BUSY") or state == _LOCK_TIMEOUT:
            return self.waited()
        if name.startswith(_CORRUPT):
            return LedgerDamaged(self.where, f"is not an intact database: {line}")
        if name == "SQLITE_ERROR" or state in _OTHER_TABLES:
            return LedgerDamaged(self.where, f"its tables differ from those of a ledger: {line}")
        return LedgerUnavailable(self.where, line + _FOLDER * (name == "SQLITE_CANTOPEN"))


def _engine(address: URL) -> Engine:
    if address.get_backend_name() != "sqlite":
        return create_engine(address, pool_pre_ping=True, pool_timeout=_PATIENCE)
    named = {"timeout": _PATIENCE, "factory": FileConnection}
    engine = create_engine(address, connect_args=named, pool_timeout=_PATIENCE)
    event.listen(engine, "connect", _prepare)
    return closed_before_forks(engine)


def _prepare(connection: Any, record: Any) -> None:
    # The driver would begin transactions automatically, and too late.
    connection.isolation_level = None
    # Text that is not valid Unicode is shown as it is stored, not refused.
    connection.text_factory = as_stored
    _write_ahead(connection)
    # With these settings an acknowledged charge survives a power failure.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    # A restarted log is truncated, so its size shows how much of it is not yet in the file.
    connection.execute("PRAGMA journal_size_limit = 0")
    connection.execute("PRAGMA temp_store = MEMORY")
    found = connection.path.stat()
    record.info["file"] = (found.st_dev, found.st_ino)
    record.info["where"] = str(connection.path)


def as_stored(value: bytes) -> str:
    r"""The text with the UTF-8 bytes ``value``; invalid bytes become surrogates."""
    return value.decode("utf-8", "surrogateescape")


def _write_ahead(connection: Any) -> None:
    # In WAL mode readers do not block a charge. SQLite itself does not wait for other connections
    # while it changes a new file to this mode.
    last = time.monotonic() + _PATIENCE
    while True:
        try:
            ((mode,),) = connection.execute("PRAGMA journal_mode = WAL").fetchall()
            break
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > last:
                raise
        time.sleep(0.001)
    if mode != "wal":
        # In another mode a commit might not be on the disk when it returns.
        raise sqlite3.OperationalError(f"supports no write-ahead log, only mode {mode!r}")


def _begin(connection: Connection, *, reads: bool) -> None:
    # BEGIN is sent by the driver: an event of SQLAlchemy, or a call through it, would slow down
    # each charge.
    driver: Any = connection.connection.driver_connection
    driver.execute("BEGIN" if reads else "BEGIN IMMEDIATE")


# -- who holds the lock -----------------------------------------------------------------------


def _writing_session(engine: Engine) -> tuple[str, str]:
    # The session of a PostgreSQL server that is writing, and what to do about it.
    with suppress(SQLAlchemyError), engine.connect() as connection:
        found = connection.execute(_HOLDERS).one_or_none()
        if found is not None:
            state = f"{found.state}, its transaction began {found.since} s ago"
            stop = f"or stop it (SELECT pg_terminate_backend({found.pid}))"
            return f"server process {found.pid} ({state})", f"{_WAIT}, {stop}"
    return "another session that is writing", _WAIT


def _writing_process(path: Path) -> tuple[str, str]:
    # The process that is writing to a file, if it is known, and what to do about it.
    holder, end = _holder(path), f"{_WAIT}, or stop it"
    if holder is None:
        return "another process that is writing, which this system cannot identify", end
    if holder == os.getpid():
        return f"another thread of this process ({holder}), which is writing", end
    name = ""
    with suppress(OSError):
        # The arguments of the process are not shown: they may contain a password.
        command = Path(f"/proc/{holder}/comm").read_text(encoding="utf-8", errors="replace")
        name = f" ({ascii(command.strip())[1:-1]})"
    return f"process {holder}{name} that is writing", end


def _holder(path: Path) -> int | None:
    # The lock is not read from the open file: closing it would drop the locks of SQLite.
    with suppress(OSError, ValueError):
        index = Path(f"{path.resolve()}-shm").stat()
        device = f"{os.major(index.st_dev):02x}:{os.minor(index.st_dev):02x}:{index.st_ino}"
        for line in _LOCKS.read_text(encoding="ascii").splitlines():
            match line.split():
                case [_, "POSIX", _, "WRITE", pid, at, first, last] if at == device:
                    if int(first) <= _WRITE_LOCK <= (_WRITE_LOCK if last == "EOF" else int(last)):
                        return int(pid) if int(pid) > 0 else None
    return None
