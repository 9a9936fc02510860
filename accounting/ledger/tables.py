r"""The tables of a ledger, the same on SQLite and PostgreSQL.

``ledger`` has one row: the filter with its budget, how many charges there are, the digest of the
last, and the identity that the marks of its users are made with. ``ledger_charges``,
``ledger_paid`` and ``ledger_spared`` are the history and are only ever added to: one row a charge,
one for each user who paid it, one for each who was left out. ``ledger_users`` holds what the
history adds up to, so that it is known without reading it; each row carries a mark, a digest of
what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ColumnElement,
    FromClause,
    Insert,
    Integer,
    MetaData,
    Select,
    String,
    Table,
    Text,
    bindparam,
    cast,
    func,
    select,
    true,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import JSONB

__all__ = ["FORMAT", "Tables", "added", "asked_for", "stored"]

FORMAT: Final = 2
"""What the tables look like. Those of format 1 had no identity and no marks."""

# Names are compared by code point, here and in Python's sort, whatever the server's language.
_NAME: Final = Text().with_variant(Text(collation="C"), "postgresql")
_DIGEST: Final = String(64)
_IDENTITY: Final = String(32)
_MARK: Final = String(16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    r"""The tables for a filter with these limits; ``owed`` and ``spent`` are one column a counter.

    >>> Tables.of((7, 9)).spent
    ('spent_0', 'spent_1')
    """

    metadata: MetaData
    ledger: Table
    charges: Table
    paid: Table
    spared: Table
    users: Table
    owed: tuple[str, ...]
    spent: tuple[str, ...]

    @classmethod
    def of(cls, limits: Sequence[int]) -> Tables:
        r"""``limits``: what each counter may reach. The database holds every user to it as well."""
        metadata = MetaData()
        owed = tuple(f"owed_{i}" for i in range(len(limits)))
        spent = tuple(f"spent_{i}" for i in range(len(limits)))
        return cls(
            metadata=metadata,
            ledger=_ledger(metadata),
            charges=_charges(metadata, owed),
            paid=_members(metadata, "paid"),
            spared=_members(metadata, "spared"),
            users=_users(metadata, spent, limits),
            owed=owed,
            spent=spent,
        )


def _ledger(metadata: MetaData) -> Table:
    return Table(
        "ledger",
        metadata,
        Column("id", Integer, CheckConstraint("id = 1"), primary_key=True, autoincrement=False),
        Column("format", Integer, nullable=False),
        Column("filter", Text, nullable=False),
        Column("charges", BigInteger, nullable=False),
        Column("head", _DIGEST, nullable=False),
        Column("identity", _IDENTITY, nullable=False),
    )


def _charges(metadata: MetaData, owed: tuple[str, ...]) -> Table:
    return Table(
        "ledger_charges",
        metadata,
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("batch", _NAME, nullable=False, unique=True),
        Column("made", String(32), nullable=False),
        Column("guarantee", Text, nullable=False),
        *(Column(name, BigInteger, nullable=False) for name in owed),
        Column("assumed", Integer, nullable=False),
        Column("paid", BigInteger, nullable=False),
        Column("spared", BigInteger, nullable=False),
        Column("paid_digest", _DIGEST, nullable=False),
        Column("spared_digest", _DIGEST, nullable=False),
        Column("previous", _DIGEST, nullable=False),
        Column("digest", _DIGEST, nullable=False),
    )


def _members(metadata: MetaData, name: str) -> Table:
    # By charge first: a charge of a million names is appended in one place.
    return Table(
        f"ledger_{name}",
        metadata,
        Column("charge", BigInteger, primary_key=True, autoincrement=False),
        Column("name", _NAME, primary_key=True),
        sqlite_with_rowid=False,
    )


def _users(metadata: MetaData, spent: tuple[str, ...], limits: Sequence[int]) -> Table:
    return Table(
        "ledger_users",
        metadata,
        Column("name", _NAME, primary_key=True),
        *(
            Column(
                name, BigInteger, CheckConstraint(f"{name} BETWEEN 0 AND {limit}"), nullable=False
            )
            for name, limit in zip(spent, limits, strict=True)
        ),
        Column("assumed", BigInteger, nullable=False),
        Column("mark", _MARK, nullable=False),
        sqlite_with_rowid=False,
    )


# Statements are made once: what SQLAlchemy does for each anew costs more than the database does.
_PART: Final = "part"


@lru_cache(maxsize=1 << 8)
def asked_for(columns: tuple[Column[Any], ...], key: str, dialect: str) -> Select[Any]:
    r"""These columns of the rows whose ``key`` is among the names in the JSON array ``part``."""
    names = _elements(dialect)
    return select(*columns).where(columns[0].table.c[key].in_(select(_text(names, None, dialect))))


@lru_cache(maxsize=1 << 8)
def added(table: Table, dialect: str) -> Insert:
    r"""Adds the rows of the JSON array ``part``, each a JSON array in the order of the columns."""
    columns = [*table.columns]
    return sqlite.insert(table).from_select(columns, _rows(columns, dialect))


@lru_cache(maxsize=1 << 8)
def stored(table: Table, dialect: str) -> Insert:
    r"""As :func:`added`; a row of the same key is replaced."""
    columns, key = [*table.columns], [column.name for column in table.primary_key]
    kind: Any = sqlite if dialect == "sqlite" else postgresql
    rows = kind.insert(table).from_select(columns, _rows(columns, dialect))
    others = {c.name: rows.excluded[c.name] for c in columns if c.name not in key}
    found: Insert = rows.on_conflict_do_update(index_elements=key, set_=others)
    return found


def _rows(columns: Sequence[Column[Any]], dialect: str) -> Select[Any]:
    rows = _elements(dialect)
    cells = [cast(_text(rows, i, dialect), column.type) for i, column in enumerate(columns)]
    # SQLite would read the ON of a conflict as that of a join.
    return select(*cells).where(true())


def _elements(dialect: str) -> FromClause:
    array = bindparam(_PART, type_=Text)
    if dialect == "sqlite":
        return func.json_each(array).table_valued("value")
    return func.jsonb_array_elements(cast(array, JSONB)).table_valued("value").render_derived()


def _text(rows: FromClause, at: int | None, dialect: str) -> ColumnElement[Any]:
    # The element of an array, or the cell at this place of it.
    value = rows.c.value
    if dialect == "sqlite":
        return value if at is None else func.json_extract(value, f"$[{at}]")
    if at is None:
        return cast(value, JSONB).op("#>>")(cast([], postgresql.ARRAY(Text)))
    return cast(value, JSONB).op("->>")(at)
