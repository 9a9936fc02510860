r"""Verification of a ledger (the hash chain, the charged users, and the totals), and its copies.

A changed, deleted or inserted row breaks the hash chain at its position, and the counters of each
user must equal the sums over the history. If a ledger and its copy were both charged, users would
spend their budgets twice. So a copy accepts no charge until its owner adopts it at its location,
and thereby states that no other copy is in use. Proofs: docs/proofs/ledger.md.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    Connection,
    Engine,
    Integer,
    RowMapping,
    Table,
    and_,
    create_engine,
    func,
    inspect,
    literal,
    literal_column,
    or_,
    select,
    union_all,
)
from sqlalchemy.pool import NullPool

from accounting.ledger.charge_or_refuse import Book
from accounting.ledger.errors import LedgerDamaged
from accounting.ledger.hash_chain import FORMAT, Account, Charge, Tables, names_digest, value_digest
from accounting.ledger.sqlite_file import PRIVATE, bring_to_disk
from accounting.ledger.transactions_and_locks import Store, as_stored
from dpcore.errors import InvalidParameter

_ROWS: Final = 10_000


class Damage(NamedTuple):
    r"""An inconsistency in a ledger: its location and description.

    >>> print(Damage(where="charge 3", what="is missing"))
    charge 3: is missing
    """

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def damages(
    connection: Connection, book: Book, acknowledged: Collection[tuple[int, str]]
) -> Iterator[Damage]:
    r"""All inconsistencies of a ledger, found by reading the whole database.

    ``book`` describes the ledger as it was opened. ``acknowledged`` are the numbers and digests of
    the charges for which there are receipts.
    """
    if connection.dialect.name == "sqlite":
        for (line,) in connection.exec_driver_sql("PRAGMA integrity_check"):
            if line != "ok":
                yield Damage("file", str(line))
    head = connection.execute(select(book.tables.ledger)).mappings().one()
    if (head["id"], head["format"]) != (1, FORMAT):
        yield Damage("ledger", f"must have format {FORMAT}")
    for column, expected in (("filter", book.text), ("identity", book.identity)):
        if head[column] != expected:
            yield Damage("ledger", f"its {column} differs from the one with which it was opened")
    yield from _charges(connection, book)
    yield from _chain(connection, book, head, acknowledged)
    for kind in ("paid", "spared"):
        yield from _members(connection, book.tables, kind)
    yield from _counters(connection, book)
    yield from _marks(connection, book)


def _chain(
    connection: Connection, book: Book, head: RowMapping, acknowledged: Collection[tuple[int, str]]
) -> Iterator[Damage]:
    receipts: dict[int, set[str]] = {}
    for at, digest in acknowledged:
        receipts.setdefault(at, set()).add(digest)
    number, previous = 0, book.start
    for row in _rows(connection, book.tables.charges, "id"):
        if type(row["id"]) is int:
            for missing in range(number + 1, min(row["id"], number + 4)):
                yield Damage(f"charge {missing}", "is missing")
            number = row["id"]
        if row["previous"] != previous:
            yield Damage(_named(row), "does not follow the charge before it")
        if receipts.pop(row["id"], set()) - {row["digest"]}:
            yield Damage(_named(row), "differs from the charge in its receipt")
        previous = row["digest"]
    if (head["charges"], head["head"]) != (number, previous):
        what = f"its last charge differs: {head['charges']} is recorded, {number} was found"
        yield Damage("ledger", what)
    for lost in sorted(receipts):
        yield Damage(f"charge {lost}", "is missing, but has a receipt")


def _charges(connection: Connection, book: Book) -> Iterator[Damage]:
    # Checks the digest of each charge, its released value, and the order of the periods.
    tables, period, values = book.tables, "", dict[Any, str]()
    if inspect(connection).has_table(tables.released.name):
        for row in _rows(connection, tables.released):
            values[row["charge"]] = value_digest(str(row["value"]))
    for row in _rows(connection, tables.charges, "id"):
        try:
            charge = Charge.of(row, tables.owed)
        except LedgerDamaged as damage:
            yield Damage(damage.where, damage.reason)
        else:
            if values.pop(charge.number, None) != charge.released:
                yield Damage(_named(row), "its released value was edited or deleted")
        before, period = period, book.period(str(row["made"]))
        if period < before:
            yield Damage(_named(row), f"was made in {period}, after a charge in {before}")
    for number in values:
        yield Damage(f"charge {number}", "has a released value that was added later")


def _members(connection: Connection, tables: Tables, kind: str) -> Iterator[Damage]:
    # The rows of the users charged or left out must fit the number and the digest in each charge.
    members = tables.metadata.tables[f"ledger_{kind}"]
    charged = {row["id"]: row for row in _rows(connection, tables.charges)}
    rows = _rows(connection, members, "charge", "name")
    for number, group in groupby(rows, lambda row: row["charge"]):
        names = [row["name"] for row in group]
        row = charged.pop(number, None)
        if row is None:
            what = f"there is no such charge, but ledger_{kind} has {len(names)} rows for it"
            yield Damage(f"charge {number}", what)
        else:
            yield from _fits(row, kind, names)
    for row in charged.values():
        yield from _fits(row, kind, [])


def _fits(row: RowMapping, kind: str, names: list[Any]) -> Iterator[Damage]:
    texts = all(isinstance(name, str) for name in names)
    if len(names) != row[kind]:
        what = f"has {len(names)} rows in ledger_{kind}, but records {row[kind]}"
        yield Damage(_named(row), what)
    elif not texts or names_digest(names) != row[f"{kind}_digest"]:
        yield Damage(_named(row), f"its rows in ledger_{kind} were edited")


def _counters(connection: Connection, book: Book) -> Iterator[Damage]:
    # In the last period each charged user must have one row, with counters equal to the sums over
    # the history. In an earlier period no user may have been charged more than the budget.
    tables = book.tables
    users, paid, charges = tables.users, tables.paid, tables.charges
    pairs = [*zip(tables.spent, tables.owed, strict=True), ("assumed", "assumed")]
    held = [users.c[spent].label(f"held_{i}") for i, (spent, _) in enumerate(pairs)]
    owed = [charges.c[owed].label(f"owed_{i}") for i, (_, owed) in enumerate(pairs)]
    zero = [literal_column("0", Integer).label(f"owed_{i}") for i in range(len(pairs))]
    one, none = literal_column("1", Integer), literal_column("0", Integer)
    newest = select(charges.c.made).order_by(charges.c.id.desc()).limit(1)
    last = book.period(str(connection.execute(newest).scalar() or ""))
    period = func.substr(charges.c.made, 1, len(last))
    rows = literal(last).label("period"), one.label("rows"), none.label("times"), *held, *zero
    joined = select(paid.c.name, period, none, one, *zero, *owed)
    joined = joined.join(charges, charges.c.id == paid.c.charge)
    both = union_all(select(users.c.name, *rows), joined).subquery()
    keys = both.c.name, both.c.period
    sums = {c.name: func.sum(c).label(c.name) for c in both.c if c.name not in ("name", "period")}
    differ = [sums[f"held_{i}"] != sums[f"owed_{i}"] for i in range(len(pairs))]
    limits = [literal(most, BigInteger) for most in book.filter.limits]
    over = [sums[f"owed_{i}"] > most for i, most in enumerate(limits)]
    wrong = or_(
        and_(both.c.period == last, or_(sums["rows"] != 1, sums["times"] == 0, *differ)),
        and_(both.c.period != last, or_(*over)),
    )
    found = select(*keys, *sums.values()).group_by(*keys).having(wrong).order_by(*keys)
    counters = (*book.filter.counters, "assumed charges")
    for row in _streamed(connection, found):
        where = f"user {row['name']!r}"
        if row["period"] != last:
            yield Damage(where, f"was charged more than the budget in {row['period']}")
            continue
        what = [
            f"{counter} is {row[f'held_{i}']}, but the history adds up to {row[f'owed_{i}']}"
            for i, counter in enumerate(counters)
            if row[f"held_{i}"] != row[f"owed_{i}"]
        ]
        if row["rows"] == 0:
            what = ["was charged, but has no counters"]
        elif row["rows"] > 1:
            what = ["has more than one row of counters"]
        yield Damage(where, "; ".join(what or ["has counters, but was never charged"]))


def _marks(connection: Connection, book: Book) -> Iterator[Damage]:
    for row in _rows(connection, book.tables.users, "name"):
        cells: tuple[Any, ...] = tuple(row.values())
        name, *totals, assumed, _ = cells
        account = Account.of(tuple(totals), assumed)
        if not isinstance(name, str) or account.row(book.identity, name) != cells:
            yield Damage(f"user {name!r}", "its row does not match its checksum")


def _named(row: RowMapping) -> str:
    return f"charge {row['id']} (batch {row['batch']!r})"


def _rows(connection: Connection, table: Table, *order: str) -> Iterator[RowMapping]:
    return _streamed(connection, select(table).order_by(*(table.c[name] for name in order)))


def _streamed(connection: Connection, statement: Any) -> Iterator[RowMapping]:
    # Read in parts: a history may be larger than memory.
    options = {"yield_per": _ROWS}
    with closing(connection.execute(statement, execution_options=options)) as rows:
        yield from rows.mappings()


# -- copies -----------------------------------------------------------------------------------


def adopt(url: str) -> int:
    r"""Adopt a ledger at its current location, and return its number of charges.

    Use this function for a file that was moved, copied or restored. The caller states that no other
    copy will be charged again. The whole history is verified first. Raises :class:`LedgerDamaged`,
    and changes nothing, if the history is inconsistent; raises :class:`LedgerUnavailable` if there
    is no ledger at ``url``.
    """
    with closing(Store(url)) as store, store.writing() as connection:
        store.must_hold_tables(connection)
        before = Book.stored(connection, at_home=False)
        # No charge may come between the verification and the new marks of the users.
        connection.execute(select(before.tables.ledger.c.id).with_for_update()).all()
        _must_be_intact(connection, before, "nothing was changed")
        after = Book(before.filter, before.renews)
        store.settle_here(after.identity)
        after.remark(connection)
        return after.count(connection, after.tables.charges)


def backup(url: str, destination: Path) -> int:
    r"""Write a consistent copy of an SQLite ledger, and return its number of charges.

    The copy is a single file without a log, and private to its owner. Its history is verified, and
    it is on the disk when this function returns. The copy must be adopted before it can be opened.
    Other processes may charge the ledger meanwhile. Raises :class:`InvalidParameter` if the
    destination exists (it is never overwritten) or cannot be written, or if the ledger is on a
    server; raises :class:`LedgerDamaged`, and leaves no copy, if the history is inconsistent.
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
