r"""The tables of a ledger, the same on SQLite and PostgreSQL.

``ledger`` has one row: the filter with its budget, how many charges there are and the digest of
the last. ``ledger_charges``, ``ledger_paid`` and ``ledger_spared`` are the history and are only
ever added to: one row a charge, one for each user who paid it, one for each who was left out.
``ledger_users`` holds what the history adds up to, so that it is known without reading it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    FromClause,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    cast,
    func,
    literal,
)
from sqlalchemy.dialects.postgresql import JSONB

__all__ = ["Tables", "listed"]

# Names are compared by code point, here and in Python's sort, whatever the server's language.
_NAME: Final = Text().with_variant(Text(collation="C"), "postgresql")
_DIGEST: Final = String(64)


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
        sqlite_with_rowid=False,
    )


def listed(connection: Connection, names: str) -> FromClause:
    r"""The strings of a JSON array as a table with the one column ``value``."""
    if connection.dialect.name == "sqlite":
        return func.json_each(names).table_valued("value")
    array = func.jsonb_array_elements_text(cast(literal(names, Text), JSONB))
    return array.table_valued("value").render_derived()
