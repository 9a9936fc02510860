r"""The SQL tables of a ledger, the same on SQLite and PostgreSQL.

``ledger`` has one row: the filter with its budget, the number of charges, the digest of the last
charge, and the identity that is part of the checksums of its users. ``ledger_charges``,
``ledger_paid`` and ``ledger_spared`` are the append-only history: one row per charge, one row for
each charged user, and one for each user left out. ``ledger_released`` has the values that were
drawn with a charge; the first such value creates the table.
``ledger_users`` has the sums over the history, so that they are known without reading it; each row
contains a checksum of its content.
Names are passed to the database as JSON arrays, and to PostgreSQL rows as well, so a million of
them take a few statements.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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

from accounting.ledger.history import canonical

FORMAT: Final = 2
"""The version of the layout of the tables."""

# Names are compared by code point, here and in Python's sort, in every locale of the server.
_NAME: Final = Text().with_variant(Text(collation="C"), "postgresql")
_DIGEST: Final = String(64)
_AT_ONCE: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    r"""The tables for a filter; ``owed`` and ``spent`` have one column per counter.

    The statement ``edges`` reads the first and the last charge.
    """

    metadata: MetaData
    ledger: Table
    charges: Table
    paid: Table
    spared: Table
    released: Table
    users: Table
    owed: tuple[str, ...]
    spent: tuple[str, ...]
    edges: str

    @classmethod
    def of(cls, limits: Sequence[int]) -> Tables:
        r"""The tables for ``limits`` of the counters, which the database enforces as well."""
        metadata = MetaData()
        owed = tuple(f"owed_{i}" for i in range(len(limits)))
        spent = {f"spent_{i}": limit for i, limit in enumerate(limits)}
        ledger = Table(
            "ledger",
            metadata,
            Column("id", Integer, CheckConstraint("id = 1"), primary_key=True, autoincrement=False),
            Column("format", Integer, nullable=False),
            Column("filter", Text, nullable=False),
            Column("charges", BigInteger, nullable=False),
            Column("head", _DIGEST, nullable=False),
            Column("identity", String(32), nullable=False),
        )
        charges = Table(
            "ledger_charges",
            metadata,
            Column("id", BigInteger, primary_key=True, autoincrement=False),
            Column("batch", _NAME, nullable=False, unique=True),
            Column("made", String(32), nullable=False),
            Column("guarantee", Text, nullable=False),
            *(Column(name, BigInteger, nullable=False) for name in owed),
            Column("assumed", Integer, nullable=False),
            *(Column(name, BigInteger, nullable=False) for name in ("paid", "spared")),
            *(Column(f"{name}_digest", _DIGEST, nullable=False) for name in ("paid", "spared")),
            *(Column(name, _DIGEST, nullable=False) for name in ("previous", "digest")),
        )
        # The key starts with the charge: a charge of a million names is appended in one place.
        paid, spared = (
            Table(
                f"ledger_{name}",
                metadata,
                Column("charge", BigInteger, primary_key=True, autoincrement=False),
                Column("name", _NAME, primary_key=True),
                sqlite_with_rowid=False,
            )
            for name in ("paid", "spared")
        )
        released = Table(
            "ledger_released",
            metadata,
            Column("charge", BigInteger, primary_key=True, autoincrement=False),
            Column("value", Text, nullable=False),
        )
        rules = {
            name: CheckConstraint(f"{name} BETWEEN 0 AND {most}") for name, most in spent.items()
        }
        users = Table(
            "ledger_users",
            metadata,
            Column("name", _NAME, primary_key=True),
            *(Column(name, BigInteger, rule, nullable=False) for name, rule in rules.items()),
            Column("assumed", BigInteger, nullable=False),
            Column("mark", String(16), nullable=False),
            sqlite_with_rowid=False,
        )
        ends = "(SELECT min(id) FROM ledger_charges), (SELECT max(id) FROM ledger_charges)"
        edges = f"{_all_of(charges)} WHERE id IN ({ends}) ORDER BY id"
        return cls(
            metadata=metadata,
            ledger=ledger,
            charges=charges,
            paid=paid,
            spared=spared,
            released=released,
            users=users,
            owed=owed,
            spent=tuple(spent),
            edges=edges,
        )


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
    r"""The rows of ``table`` whose ``key`` is among ``names``."""
    statement = _select(table, key, connection.dialect.name)
    for part in _parts(names):
        yield from run(connection, statement, part=part)


def put(connection: Connection, table: Table, rows: Sequence[object]) -> None:
    r"""Insert rows in column order; a user's row replaces the existing one."""
    statement = _insert(table, connection.dialect.name)
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        for start in range(0, len(rows), _AT_ONCE):
            driver.executemany(statement, rows[start : start + _AT_ONCE])
        return
    for part in _parts(rows):
        run(connection, statement, part=part)


def _parts(values: Sequence[object]) -> Iterator[str]:
    r"""JSON arrays, split into sizes that one statement accepts."""
    for start in range(0, len(values), _AT_ONCE):
        yield canonical(values[start : start + _AT_ONCE])


# For each dialect: the elements of an array, and an element as text.
_ELEMENTS: Final = {
    "sqlite": "json_each(:part)",
    "postgresql": "jsonb_array_elements(CAST(:part AS jsonb)) AS each (value)",
}
_ELEMENT: Final = {"sqlite": "value", "postgresql": "value #>> '{}'"}
LOCKED: Final = " FOR UPDATE"


@lru_cache(maxsize=1 << 8)
def _in_dialect(statement: str, dialect: str) -> str:
    if dialect == "sqlite":
        # An SQLite transaction has locked the whole file.
        return statement.removesuffix(LOCKED)
    return re.sub(r":(\w+)", r"%(\1)s", statement)


def _all_of(table: Table) -> str:
    return f"SELECT {', '.join(column.name for column in table.columns)} FROM {table.name}"  # noqa: S608 - names of columns


@lru_cache(maxsize=1 << 8)
def _select(table: Table, key: str, dialect: str) -> str:
    wanted = f"SELECT {_ELEMENT[dialect]} FROM {_ELEMENTS[dialect]}"  # noqa: S608 - texts of this file
    return f"{_all_of(table)} WHERE {key} IN ({wanted})"


@lru_cache(maxsize=1 << 8)
def _insert(table: Table, dialect: str) -> str:
    if dialect == "sqlite":
        cells = ", ".join("?" for _ in table.columns)
        rows = f"INSERT INTO {table.name} VALUES ({cells})"  # noqa: S608 - names of columns
    else:
        kinds = ["TEXT" if isinstance(c.type, String) else "BIGINT" for c in table.columns]
        cells = ", ".join(f"CAST(value ->> {i} AS {kind})" for i, kind in enumerate(kinds))
        rows = f"INSERT INTO {table.name} SELECT {cells} FROM {_ELEMENTS[dialect]}"  # noqa: S608 - names of columns
    if table.name == "ledger_users":
        others = ", ".join(
            f"{c.name} = excluded.{c.name}" for c in table.columns if c.name != "name"
        )
        rows += f" ON CONFLICT (name) DO UPDATE SET {others}"
    return rows
