r"""The SQL tables of a ledger, the same on SQLite and PostgreSQL.

``ledger`` has one row: the filter with its budget, the number of charges, the digest of the last
charge, and the identity that is part of the checksums of its users. ``ledger_charges``,
``ledger_paid`` and ``ledger_spared`` are the append-only history: one row per charge, one row for
each charged user, and one for each user left out. ``ledger_released`` has the values that were
drawn with a charge; the first such value creates the table.
``ledger_users`` has the sums over the history, so that they are known without reading it; each row
contains a checksum of its content.
Names are looked up in arrays, so a million of them take a few statements.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

from accounting.ledger.hash_chain import canonical

FORMAT: Final = 2
"""The version of the layout of the tables."""

# Names are compared by code point, as Python sorts them, whatever the locale of the server.
_NAME: Final = Text().with_variant(Text(collation="C"), "postgresql")
_DIGEST: Final = String(64)
_AT_ONCE: Final = 50_000


class Tables:
    r"""The tables for ``limits`` of the counters, which the database enforces as well.

    ``owed`` and ``spent`` have the names of one column per counter, of a charge and of a user. The
    statement ``edges`` reads the first and the last charge.
    """

    def __init__(self, limits: Sequence[int]) -> None:
        metadata = self.metadata = MetaData()
        self.owed = tuple(f"owed_{i}" for i in range(len(limits)))
        self.spent = tuple(f"spent_{i}" for i in range(len(limits)))
        self.ledger = Table(
            "ledger",
            metadata,
            Column("id", Integer, CheckConstraint("id = 1"), primary_key=True, autoincrement=False),
            *_cells(Integer, "format"),
            *_cells(Text, "filter"),
            *_cells(BigInteger, "charges"),
            *_cells(_DIGEST, "head"),
            *_cells(String(32), "identity"),
        )
        self.charges = Table(
            "ledger_charges",
            metadata,
            Column("id", BigInteger, primary_key=True, autoincrement=False),
            Column("batch", _NAME, nullable=False, unique=True),
            *_cells(String(32), "made"),
            *_cells(Text, "guarantee"),
            *_cells(BigInteger, *self.owed),
            *_cells(Integer, "assumed"),
            *_cells(BigInteger, "paid", "spared"),
            *_cells(_DIGEST, "paid_digest", "spared_digest", "previous", "digest"),
        )
        # The key starts with the charge: a charge of a million names is appended in one place.
        self.paid, self.spared = (
            Table(
                f"ledger_{name}",
                metadata,
                Column("charge", BigInteger, primary_key=True, autoincrement=False),
                Column("name", _NAME, primary_key=True),
                sqlite_with_rowid=False,
            )
            for name in ("paid", "spared")
        )
        self.released = Table(
            "ledger_released",
            metadata,
            Column("charge", BigInteger, primary_key=True, autoincrement=False),
            *_cells(Text, "value"),
        )
        rules = [
            CheckConstraint(f"{name} BETWEEN 0 AND {most}")
            for name, most in zip(self.spent, limits, strict=True)
        ]
        self.users = Table(
            "ledger_users",
            metadata,
            Column("name", _NAME, primary_key=True),
            *_cells(BigInteger, *self.spent, "assumed"),
            *_cells(String(16), "mark"),
            *rules,
            sqlite_with_rowid=False,
        )
        ends = "(SELECT min(id) FROM ledger_charges), (SELECT max(id) FROM ledger_charges)"
        self.edges = f"{_all_of(self.charges)} WHERE id IN ({ends}) ORDER BY id"


def _cells(kind: Any, *names: str) -> Iterator[Column[Any]]:
    return (Column(name, kind, nullable=False) for name in names)


def run(connection: Connection, statement: str, **values: object) -> list[tuple[Any, ...]]:
    r"""Execute a statement with ``:name`` parameters and return its rows.

    The driver executes it: through SQLAlchemy a small statement takes several times as long.
    """
    driver: Any = connection.connection.driver_connection
    found = driver.execute(_in_dialect(statement, connection.dialect.name), values)
    rows: list[tuple[Any, ...]] = found.fetchall() if found.description else []
    return rows


def those(
    connection: Connection, table: Table, key: str, names: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    r"""The rows of ``table`` in which the column ``key`` has one of the values ``names``."""
    lite = connection.dialect.name == "sqlite"
    among = "IN (SELECT value FROM json_each(:names))" if lite else "= ANY(:names)"
    statement = f"{_all_of(table)} WHERE {key} {among}"
    for start in range(0, len(names), _AT_ONCE):
        part = names[start : start + _AT_ONCE]
        yield from run(connection, statement, names=canonical(part) if lite else [*part])


def put(connection: Connection, table: Table, rows: Sequence[tuple[object, ...]]) -> None:
    r"""Insert rows in column order; a user's row replaces the existing one."""
    driver: Any = connection.connection.driver_connection
    statement = _insert(table, connection.dialect.name)
    if connection.dialect.name == "sqlite":
        driver.executemany(statement, rows)
        return
    # PostgreSQL takes the columns as arrays: a statement for each row would be slow.
    for start in range(0, len(rows), _AT_ONCE):
        columns = zip(*rows[start : start + _AT_ONCE], strict=True)
        driver.cursor().execute(statement, [list(column) for column in columns])


LOCKED: Final = " FOR UPDATE"


@lru_cache(maxsize=1 << 8)
def _in_dialect(statement: str, dialect: str) -> str:
    if dialect == "sqlite":
        # An SQLite transaction has locked the whole file.
        return statement.removesuffix(LOCKED)
    return re.sub(r":(\w+)", r"%(\1)s", statement)


@lru_cache(maxsize=1 << 8)
def _all_of(table: Table) -> str:
    return f"SELECT {', '.join(column.name for column in table.columns)} FROM {table.name}"  # noqa: S608 - names of columns


@lru_cache(maxsize=1 << 8)
def _insert(table: Table, dialect: str) -> str:
    names = table.columns.keys()
    if dialect == "sqlite":
        values = f"VALUES ({', '.join('?' for _ in names)})"
    else:
        kinds = ("text" if isinstance(c.type, String) else "bigint" for c in table.columns)
        arrays = ", ".join(f"%s::{kind}[]" for kind in kinds)
        values = f"SELECT * FROM unnest({arrays})"  # noqa: S608 - names of types
    statement = f"INSERT INTO {table.name} {values}"
    if table.name == "ledger_users":
        others = ", ".join(f"{name} = excluded.{name}" for name in names if name != "name")
        statement += f" ON CONFLICT (name) DO UPDATE SET {others}"
    return statement
