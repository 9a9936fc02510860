r"""Whether all of a ledger still fits: the chain of charges, who paid, what it all adds up to.

A row that was changed, taken out or put in breaks the chain at its place, and the counters of each
user must be what the history adds up to. Proofs: docs/proofs/ledger.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, Table, func, or_, select

from accounting.ledger.book import Book
from accounting.ledger.errors import LedgerDamaged
from accounting.ledger.history import Account, charge_of, genesis, names_digest
from accounting.ledger.tables import FORMAT, Tables

__all__ = ["Damage", "damages"]

_ROWS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    r"""One thing in a ledger that does not fit: where, and what.

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
    r"""Everything that does not fit, from one look at the whole ledger.

    ``book`` is what it was opened with; ``acknowledged`` are the numbers and digests of charges for
    which there are receipts.
    """
    tables = book.tables
    yield from _file(connection)
    yield from _head(connection, book)
    yield from _chain(connection, tables, genesis(book.text), acknowledged)
    yield from _members(connection, tables.charges, tables.paid, "paid")
    yield from _members(connection, tables.charges, tables.spared, "spared")
    yield from _counters(connection, tables, book.filter.counters)
    yield from _marks(connection, tables, book.identity)


def _file(connection: Connection) -> Iterator[Damage]:
    if connection.dialect.name == "sqlite":
        for (said,) in connection.exec_driver_sql("PRAGMA integrity_check"):
            if said != "ok":
                yield Damage(where="file", what=str(said))


def _head(connection: Connection, book: Book) -> Iterator[Damage]:
    head = connection.execute(select(book.tables.ledger)).mappings().one()
    if (head["id"], head["format"]) != (1, FORMAT):
        yield Damage(where="ledger", what=f"is not of format {FORMAT}: no other is known")
    for column, expected in (("filter", book.text), ("identity", book.identity)):
        if head[column] != expected:
            yield Damage(where="ledger", what=f"its {column} is not the one it was opened with")


def _chain(
    connection: Connection,
    tables: Tables,
    previous: str,
    acknowledged: Collection[tuple[int, str]],
) -> Iterator[Damage]:
    receipts: dict[int, set[str]] = {}
    for at, shown in acknowledged:
        receipts.setdefault(at, set()).add(shown)
    head = connection.execute(select(tables.ledger)).mappings().one()
    number = 0
    rows = select(tables.charges).order_by(tables.charges.c.id)
    for row in _streamed(connection, rows):
        where = f"charge {row['id']} (batch {row['batch']!r})"
        try:
            charge_of(row, tables)
        except LedgerDamaged as damage:
            yield Damage(where=damage.where, what=damage.what)
        if type(row["id"]) is int:
            for missing in range(number + 1, min(row["id"], number + 4)):
                yield Damage(where=f"charge {missing}", what="is missing")
            number = row["id"]
        if row["previous"] != previous:
            yield Damage(where=where, what="does not follow the charge before it")
        if receipts.pop(row["id"], set()) - {row["digest"]}:
            yield Damage(where=where, what="is not the charge that its receipt acknowledges")
        previous = row["digest"]
    if (head["charges"], head["head"]) != (number, previous):
        what = f"its last charge was {head['charges']}, and is {number} now, or was edited"
        yield Damage(where="ledger", what=what)
    for lost in sorted(receipts):
        yield Damage(where=f"charge {lost}", what="is missing, and has a receipt")


def _members(connection: Connection, charges: Table, members: Table, kind: str) -> Iterator[Damage]:
    # Two lists in the order of charges, read side by side.
    said = {
        row["id"]: row
        for row in _streamed(
            connection,
            select(
                charges.c.id,
                charges.c.batch,
                charges.c[kind].label("count"),
                charges.c[f"{kind}_digest"].label("digest"),
            ),
        )
    }
    rows = select(members).order_by(members.c.charge, members.c.name)
    for number, group in groupby(_streamed(connection, rows), lambda row: row["charge"]):
        names = [row["name"] for row in group]
        row = said.pop(number, None)
        if row is None:
            what = f"there is no such charge, and {len(names)} users {kind} in it"
            yield Damage(where=f"charge {number}", what=what)
        else:
            yield from _fits(row, kind, names)
    for row in said.values():
        yield from _fits(row, kind, [])


def _fits(row: RowMapping, kind: str, names: list[Any]) -> Iterator[Damage]:
    where = f"charge {row['id']} (batch {row['batch']!r})"
    if len(names) != row["count"]:
        what = f"{row['count']} users {kind} when it was made, {len(names)} now"
        yield Damage(where=where, what=what)
    elif not all(isinstance(name, str) for name in names) or names_digest(names) != row["digest"]:
        yield Damage(where=where, what=f"the users {kind} were edited")


def _counters(connection: Connection, tables: Tables, counters: Sequence[str]) -> Iterator[Damage]:
    users, paid, charges = tables.users, tables.paid, tables.charges
    columns = [*zip(tables.spent, tables.owed, strict=True), ("assumed", "assumed")]
    added = (
        select(paid.c.name, *(func.sum(charges.c[owed]).label(spent) for spent, owed in columns))
        .join(charges, charges.c.id == paid.c.charge)
        .group_by(paid.c.name)
        .subquery("added")
    )
    sums = {spent: func.coalesce(added.c[spent], 0) for spent, _ in columns}
    differing = (
        select(users, *(total.label(f"sum_{spent}") for spent, total in sums.items()))
        .outerjoin(added, added.c.name == users.c.name)
        .where(
            or_(
                added.c.name.is_(None),
                *(users.c[spent].is_distinct_from(total) for spent, total in sums.items()),
            )
        )
        .order_by(users.c.name)
    )
    shown = dict(zip(tables.spent, counters, strict=True)) | {"assumed": "assumed charges"}
    for row in _streamed(connection, differing):
        wrong = [
            f"{shown[spent]} is {row[spent]}, the history adds up to {row[f'sum_{spent}']}"
            for spent, _ in columns
            if row[spent] != row[f"sum_{spent}"]
        ]
        what = "; ".join(wrong or ["has counters, and paid for nothing"])
        yield Damage(where=f"user {row['name']!r}", what=what)
    twice = select(users.c.name).group_by(users.c.name).having(func.count() > 1)
    for row in _streamed(connection, twice.order_by(users.c.name)):
        yield Damage(where=f"user {row['name']!r}", what="has counters twice")
    unknown = (
        select(added.c.name)
        .outerjoin(users, users.c.name == added.c.name)
        .where(users.c.name.is_(None))
        .order_by(added.c.name)
    )
    for row in _streamed(connection, unknown):
        yield Damage(where=f"user {row['name']!r}", what="paid, but has no counters")


def _marks(connection: Connection, tables: Tables, identity: str) -> Iterator[Damage]:
    for row in _streamed(connection, select(tables.users).order_by(tables.users.c.name)):
        account = Account(tuple(row[name] for name in tables.spent), row["assumed"])
        if not isinstance(row["name"], str) or account.mark(identity, row["name"]) != row["mark"]:
            yield Damage(where=f"user {row['name']!r}", what="its row does not fit its own check")


def _streamed(connection: Connection, statement: Any) -> Iterator[RowMapping]:
    # A part at a time: a history may be larger than memory.
    options = {"yield_per": _ROWS}
    with closing(connection.execute(statement, execution_options=options)) as rows:
        yield from rows.mappings()
