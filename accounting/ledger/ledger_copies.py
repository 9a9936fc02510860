r"""Copies of a ledger: consistent backups, and adoption of a copied or restored file.

A copy is another file, so a ledger that is charged in two places spends twice. A copy therefore
accepts no charge at its location until it is adopted there: its owner states that it is the only
one in use. Proofs: docs/proofs/ledger.md.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.pool import NullPool

from accounting.ledger.charge_or_refuse import Book
from accounting.ledger.database.database_url import PRIVATE, bring_to_disk
from accounting.ledger.database.transactions import Store, as_stored
from accounting.ledger.errors import LedgerDamaged
from accounting.ledger.verify_ledger import damages
from dpcore.errors import InvalidParameter


def adopt(url: str) -> int:
    r"""Adopt the ledger in ``url`` at its current location, and return its number of charges.

    Use it for a file that was moved, copied or restored. The caller states that no other copy will
    be charged again. The whole history is checked first: raises :class:`LedgerDamaged`, and changes
    nothing, if it is inconsistent; :class:`LedgerUnavailable` if there is no ledger.
    """
    with closing(Store(url)) as store, store.writing() as connection:
        store.must_hold_tables(connection)
        return _adopted(store, connection)


def _adopted(store: Store, connection: Connection) -> int:
    before = Book.stored(connection, at_home=False)
    _must_be_intact(connection, before, "nothing was changed")
    after = Book(before.filter, before.renews, uuid4().hex)
    store.settle_here(after.identity)
    after.remark(connection)
    return after.count(connection, after.tables.charges)


def backup(url: str, destination: Path) -> int:
    r"""Write a consistent copy of an SQLite ledger, and return its number of charges.

    The copy is one file without a log, with a verified history, private to its owner, and on the
    disk when this returns. It cannot be opened at its location before it is adopted. Others may
    charge meanwhile. Raises :class:`InvalidParameter` for a destination that exists (it is never
    overwritten) or cannot be written, and for a ledger on a server; :class:`LedgerDamaged`, and
    leaves no copy, for an inconsistent history.
    """
    with closing(Store(url)) as store:
        if not store.is_file:
            raise InvalidParameter("source", store.where, "is on a server: copy it with pg_dump")
        if os.path.lexists(destination):
            must = "already exists: choose a new file name"
            raise InvalidParameter("destination", str(destination), must)
        partial = destination.with_name(f".{destination.name}.{os.getpid()}")
        try:
            handle = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
            os.close(handle)
            try:
                charges = _copied(store, partial)
                bring_to_disk(partial)
                # Unlike a rename, this fails if the destination exists by now.
                os.link(partial, destination)
            finally:
                with suppress(FileNotFoundError):
                    partial.unlink()
            bring_to_disk(destination.parent)
        except OSError as error:
            reason = error.strerror or str(error)
            raise InvalidParameter("destination", str(destination), reason) from error
    return charges


def _copied(store: Store, partial: Path) -> int:
    with store.reading() as connection:
        # A file outside its recorded folder is refused: it may not be the ledger in use.
        store.must_hold_tables(connection)
        Book.stored(connection)
        driver: Any = connection.connection.driver_connection
        with closing(sqlite3.connect(partial)) as copy:
            driver.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE").fetchall()
        with _engine_of(partial).connect() as copied:
            book = Book.stored(copied, at_home=False)
            _must_be_intact(copied, book, "no copy was made")
            return book.count(copied, book.tables.charges)


def _must_be_intact(connection: Connection, book: Book, outcome: str) -> None:
    for damage in damages(connection, book, ()):
        raise LedgerDamaged(damage.where, f"{damage.what}; {outcome}: run dpcore ledger show")


def _engine_of(partial: Path) -> Engine:
    # A Store would keep a log next to the copy.
    def connected() -> sqlite3.Connection:
        connection = sqlite3.connect(partial)
        connection.text_factory = as_stored
        return connection

    return create_engine("sqlite://", creator=connected, poolclass=NullPool)
