r"""The history of a ledger: its charges, the hash chain over them, and the SQL tables.

The digest of a charge is the SHA-256 of the charge, the charged users, the users left out, and the
digest of the previous charge.

The tables are the same on SQLite and PostgreSQL.

- ``ledger`` has one row: the filter with its budget, the number of charges, the digest of the last
  charge, and the identity of the ledger, which is included in the checksum of each user's row.
- ``ledger_charges``, ``ledger_paid`` and ``ledger_spared`` are the append-only history. They have
  one row for each charge, for each charged user, and for each user left out of a charge.
- ``ledger_released`` contains the values that were drawn with a charge. It is created with the
  first such value.
- ``ledger_users`` contains the sums over the history for each user, so that a charge need not read
  the history. Each row has a checksum of its content.

Names are looked up in arrays, so a million names take 20 statements. Proofs:
docs/proofs/ledger.md.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple, Self

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

from accounting.ledger.errors import LedgerDamaged

HISTORY: Final = 1
"""The version of the chain format, part of each digest and independent of the table layout."""

QUESTION: Final = "question"
"""The key, in a charge's guarantee, of the question that its released value answers."""

MECHANISM: Final = "mechanism"
"""The key, in a charge's guarantee, of a mechanism that the guarantee does not determine."""

RELEASED: Final = "released"
"""The key, in a charge's guarantee, of the digest of the value that was drawn with it."""

RENEWALS: Final = {"year": 4, "month": 7, "day": 10}
"""The periods of a budget: the length of the prefix of a UTC time that names the period."""

_ROWS: Final = 10_000
_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
# The columns of a charge except its amounts, with their types; SQLite does not enforce types.
_INTEGERS: Final = ("id", "assumed", "paid", "spared")
_TEXTS: Final = ("batch", "made", "guarantee", "paid_digest", "spared_digest", "previous")


def canonical(value: object) -> str:
    r"""The canonical ASCII text of a JSON value."""
    return _ENCODER.encode(value)


def names_digest(names: Iterable[str]) -> str:
    r"""The SHA-256 of ``names``, which must be sorted, each followed by a newline."""
    digest, rest = hashlib.sha256(), iter(names)
    while some := [*islice(rest, _ROWS)]:
        digest.update("\n".join([*some, ""]).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def value_digest(text: str) -> str:
    r"""The SHA-256 of a released value as stored."""
    return hashlib.sha256(text.encode()).hexdigest()


def genesis(filter_text: str) -> str:
    r"""The previous digest of the first charge, which covers the format and the filter."""
    return hashlib.sha256(canonical([HISTORY, filter_text]).encode()).hexdigest()


def now() -> str:
    r"""The current time in UTC, in the format in which a charge stores it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Account(NamedTuple):
    r"""The amounts that a user has spent; ``assumed`` counts charges that rest on assumptions."""

    totals: tuple[int, ...]
    assumed: int
    counted: str
    """The totals and ``assumed`` as text: one string for all users with the same account."""

    @classmethod
    def of(cls, totals: tuple[int, ...], assumed: int = 0) -> Self:
        return cls(totals, assumed, "\n".join(map(str, (*totals, assumed))))

    def row(self, identity: str, name: str) -> tuple[object, ...]:
        r"""The row of ``ledger_users`` for the user ``name``, in a ledger with this ``identity``.

        Its last cell is a checksum of the identity, the name and the amounts.
        """
        # A name contains no newline.
        identifier = f"{identity}\n{name}\n{self.counted}"
        mark = hashlib.sha256(identifier.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return name, *self.totals, self.assumed, mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    r"""One charge in the history of a ledger.

    ``paid`` is the number of charged users, each of whom pays ``amounts``, the price of
    ``guarantee`` in the integer units of the filter. ``spared`` is the number of users left out.
    Charges are numbered from 1. ``guarantee`` is stored as JSON. ``digest`` covers this charge and
    all charges before it.
    """

    number: int
    batch: str
    made: str
    guarantee: Mapping[str, Any]
    amounts: tuple[int, ...]
    assumed: bool
    paid: int
    spared: int
    paid_digest: str
    spared_digest: str
    previous: str

    @classmethod
    def of(cls, row: Mapping[Any, Any], owed: tuple[str, ...]) -> Charge:
        r"""The charge in a ``row`` of ``ledger_charges``; ``owed`` are the columns of its amounts.

        Raises :class:`LedgerDamaged` if the fields do not match the digest.
        """
        where = f"charge {row['id']} (batch {row['batch']!r})"
        for kind, columns in ((int, (*_INTEGERS, *owed)), (str, _TEXTS)):
            for column in columns:
                if type(row[column]) is not kind:
                    raise LedgerDamaged(where, f"was edited: its {column} is {row[column]!r}")
        try:
            guarantee = json.loads(row["guarantee"])
        except (ValueError, RecursionError):
            guarantee = None
        if guarantee is None or canonical(guarantee) != row["guarantee"]:
            raise LedgerDamaged(where, "was edited: its guarantee is not in canonical form")
        charge = cls(
            number=row["id"],
            amounts=tuple(row[name] for name in owed),
            assumed=row["assumed"] == 1,
            guarantee=guarantee,
            **{name: row[name] for name in ("paid", "spared", *_TEXTS) if name != "guarantee"},
        )
        if row["assumed"] not in (0, 1) or charge.digest != row["digest"]:
            raise LedgerDamaged(where, "was edited: its digest does not match")
        return charge

    @property
    def where(self) -> str:
        r"""The name of this charge in error messages."""
        return f"charge {self.number} (batch {self.batch!r})"

    @property
    def released(self) -> str | None:
        r"""The digest of the value released with this charge; None if it released no value."""
        return self.guarantee.get(RELEASED)

    @property
    def digest(self) -> str:
        r"""The SHA-256 of all fields, which include the digest of the previous charge."""
        parts = [
            self.number, self.batch, self.made, self.guarantee, self.amounts, int(self.assumed),
            self.paid, self.spared, self.paid_digest, self.spared_digest, self.previous,
        ]  # fmt: skip
        return hashlib.sha256(canonical(parts).encode()).hexdigest()

    def row(self, digest: str) -> tuple[object, ...]:
        r"""This charge as a row of ``ledger_charges``, in column order."""
        return (
            self.number, self.batch, self.made, canonical(self.guarantee), *self.amounts,
            int(self.assumed), self.paid, self.spared, self.paid_digest, self.spared_digest,
            self.previous, digest,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        r"""All fields and the digest, as a JSON object."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        amounts = [str(amount) for amount in self.amounts]
        return {"charge": found.pop("number"), **found, "amounts": amounts, "digest": self.digest}


# -- tables -----------------------------------------------------------------------------------

FORMAT: Final = 2
"""The version of the layout of the tables."""

# Names are compared by code point, as Python sorts them, whatever the locale of the server.
_NAME: Final = Text().with_variant(Text(collation="C"), "postgresql")
_DIGEST: Final = String(64)
_AT_ONCE: Final = 50_000


class Tables:
    r"""The tables of a ledger, where no counter of a user may exceed its limit.

    ``limits`` are the limits of the budget. ``owed`` are the columns with the amounts of a charge,
    and ``spent`` the columns with the counters of a user. The statement ``edges`` reads the first
    and the last charge.
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
    r"""Execute a statement with ``:name`` parameters, and return its rows.

    The database driver is called directly, because SQLAlchemy takes several times as long for a
    small statement.
    """
    driver: Any = connection.connection.driver_connection
    found = driver.execute(_in_dialect(statement, connection.dialect.name), values)
    rows: list[tuple[Any, ...]] = found.fetchall() if found.description else []
    return rows


def those(
    connection: Connection, table: Table, key: str, names: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    r"""The rows of ``table`` whose column ``key`` contains one of ``names``."""
    lite = connection.dialect.name == "sqlite"
    among = "IN (SELECT value FROM json_each(:names))" if lite else "= ANY(:names)"
    statement = f"{_all_of(table)} WHERE {key} {among}"
    for start in range(0, len(names), _AT_ONCE):
        part = names[start : start + _AT_ONCE]
        yield from run(connection, statement, names=canonical(part) if lite else [*part])


def put(connection: Connection, table: Table, rows: Sequence[tuple[object, ...]]) -> None:
    r"""Insert rows, with cells in column order, into ``table``.

    In the table of users, the new row for a user replaces the existing row.
    """
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
