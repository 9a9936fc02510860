r"""The rows of a ledger: read and written inside a transaction that somebody else opened.

Sets of users cross to the database as JSON arrays, so that a million of them are a few statements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from json import loads
from typing import Final, NamedTuple, Self

from sqlalchemy import (
    BigInteger,
    Connection,
    Table,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)

from accounting.filter import Filter, Price, filter_from_json
from accounting.ledger.errors import LedgerDamaged
from accounting.ledger.history import FORMAT, Charge, canonical, charge_of, genesis
from accounting.ledger.tables import Tables, listed
from dpcore.enclosure import round_down
from dpcore.errors import DpcoreError

__all__ = ["Book", "Head"]

_AT_ONCE: Final = 50_000


class Head(NamedTuple):
    r"""How many charges there are, and the digest that the next one is chained to."""

    charges: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    r"""A filter and the tables made for it."""

    filter: Filter
    text: str
    tables: Tables

    @classmethod
    def of(cls, filter: Filter) -> Self:  # noqa: A002 - the word of this package
        r"""The book of a ledger that does not exist yet."""
        text = canonical(filter.to_json())
        return cls(filter=filter, text=text, tables=Tables.of(filter.limits))

    @classmethod
    def read(cls, connection: Connection) -> Self:
        r"""The book of the ledger in the database."""
        ledger = Tables.of(()).ledger
        row = connection.execute(select(ledger)).mappings().one_or_none()
        if row is None or row["format"] != FORMAT:
            raise LedgerDamaged("ledger", f"is not of format {FORMAT}: no other is known")
        try:
            book = cls.of(filter_from_json(loads(row["filter"])))
        except (DpcoreError, ValueError, TypeError, RecursionError) as error:
            raise LedgerDamaged("ledger", f"its filter was edited: {error}") from error
        if book.text != row["filter"]:
            raise LedgerDamaged("ledger", "its filter was edited: it is not as it was written")
        return book

    def begin(self, connection: Connection) -> None:
        r"""Make the tables and the one row of ``ledger``."""
        self.tables.metadata.create_all(connection, checkfirst=False)
        row = {"id": 1, "format": FORMAT, "filter": self.text, "charges": 0}
        row["head"] = genesis(self.text)
        connection.execute(insert(self.tables.ledger), row)

    # -- reading ------------------------------------------------------------------------------

    def head(self, connection: Connection, *, lock: bool = False) -> Head:
        r"""Where the next charge goes; with ``lock``, nobody else charges until the end.

        Raises :class:`LedgerDamaged` unless the last charge is what the head says, and the first
        is chained to the filter.
        """
        asked = select(self.tables.ledger)
        kept = connection.execute(asked.with_for_update() if lock else asked).mappings().one()
        charges, root = self.tables.charges, genesis(self.text)
        if kept["filter"] != self.text or kept["format"] != FORMAT:
            # Counters count shares of the budget: in those of another they say something else.
            raise LedgerDamaged(
                "ledger",
                "its filter was edited, or it was made anew, since it was opened: open it again",
            )
        found = Head(0, root)
        for order in (charges.c.id, charges.c.id.desc()):
            edge = select(charges).order_by(order).limit(1)
            row = connection.execute(edge).mappings().one_or_none()
            if row is not None:
                charge = charge_of(row, self.tables)
                found = Head(charge.number, charge.digest)
                root = charge.previous if charge.number == 1 else root
        if root != genesis(self.text):
            raise LedgerDamaged("ledger", "its filter was edited after the first charge: run check")
        if found != Head(kept["charges"], kept["head"]):
            raise LedgerDamaged(
                "ledger", f"charge {found.charges} is not what it says was last: run check"
            )
        return found

    def find(self, connection: Connection, batch: str) -> Charge | None:
        r"""The charge of this batch."""
        charges = self.tables.charges
        asked = select(charges).where(charges.c.batch == batch)
        row = connection.execute(asked).mappings().one_or_none()
        return None if row is None else charge_of(row, self.tables)

    def names(self, connection: Connection, members: Table, charge: Charge) -> tuple[str, ...]:
        r"""Who paid a charge, or who was left out of it, in order."""
        asked = select(members.c.name).where(members.c.charge == charge.number)
        return tuple(connection.execute(asked.order_by(members.c.name)).scalars())

    def history(self, connection: Connection, user: str | None = None) -> tuple[Charge, ...]:
        r"""All charges, or those that one user paid, in order."""
        charges, paid = self.tables.charges, self.tables.paid
        asked = select(charges).order_by(charges.c.id)
        if user is not None:
            asked = asked.where(exists().where(paid.c.charge == charges.c.id, paid.c.name == user))
        rows = connection.execute(asked).mappings()
        return tuple(charge_of(row, self.tables) for row in rows)

    def totals(self, connection: Connection, user: str) -> tuple[tuple[int, ...], int]:
        r"""The counters of a user, and how many of its charges rest on assumptions."""
        users = self.tables.users
        row = connection.execute(select(users).where(users.c.name == user)).mappings().one_or_none()
        if row is None:
            return (0,) * len(self.tables.spent), 0
        return tuple(row[name] for name in self.tables.spent), row["assumed"]

    def count(self, connection: Connection, table: Table) -> int:
        r"""How many rows a table has."""
        return connection.execute(select(func.count()).select_from(table)).scalar_one()

    def poor(self, connection: Connection, names: Sequence[str], price: Price) -> tuple[str, ...]:
        r"""Those of ``names`` whom the filter does not admit at this price, in order."""
        if not self.filter.admits((0,) * len(self.filter.limits), price):
            return tuple(names)
        users = self.tables.users
        # On this side of the inequality nothing overflows: an amount is at most its limit.
        over = [
            users.c[name] > limit - amount
            for name, limit, amount in zip(
                self.tables.spent, self.filter.limits, price.amounts, strict=True
            )
        ]
        found: list[str] = []
        for some in _parts(names):
            among = users.c.name.in_(select(listed(connection, some).c.value))
            found += connection.execute(select(users.c.name).where(among, or_(*over))).scalars()
        return tuple(sorted(found))

    def left(self, connection: Connection, names: Sequence[str]) -> dict[str, str]:
        r"""What some users have left, as text."""
        shown = {}
        for name in names:
            kept = self.filter.remaining(self.totals(connection, name)[0])
            shown[name] = ", ".join(
                f"{counter} {_short(value)}"
                for counter, value in zip(self.filter.counters, kept, strict=True)
            )
        return shown

    # -- writing ------------------------------------------------------------------------------

    def write(
        self, connection: Connection, charge: Charge, paying: Sequence[str], spared: Sequence[str]
    ) -> None:
        r"""Add a charge to the history, and what it costs to each who pays it."""
        tables = self.tables
        connection.execute(insert(tables.charges), charge.to_row(tables))
        self._add_members(connection, tables.spared, charge, spared)
        self._add_members(connection, tables.paid, charge, paying)
        self._add_up(connection, charge, paying)
        kept = {"charges": charge.number, "head": charge.digest}
        connection.execute(update(tables.ledger).values(**kept))

    def _add_members(
        self, connection: Connection, members: Table, charge: Charge, names: Sequence[str]
    ) -> None:
        for some in _parts(names):
            rows = select(literal(charge.number, BigInteger), listed(connection, some).c.value)
            connection.execute(insert(members).from_select(["charge", "name"], rows))

    def _add_up(self, connection: Connection, charge: Charge, names: Sequence[str]) -> None:
        users = self.tables.users
        owed = dict(zip(self.tables.spent, charge.amounts, strict=True))
        owed["assumed"] = int(charge.assumed)
        for some in _parts(names):
            value = listed(connection, some).c.value
            # First those who have a row, then rows for the others: nobody is in both.
            connection.execute(
                update(users)
                .where(users.c.name.in_(select(value)))
                .values({name: users.c[name] + amount for name, amount in owed.items()})
            )
            fresh = select(value, *(literal(amount, BigInteger) for amount in owed.values())).where(
                ~exists().where(users.c.name == value)
            )
            connection.execute(insert(users).from_select(["name", *owed], fresh))


def _parts(names: Sequence[str]) -> Iterator[str]:
    for start in range(0, len(names), _AT_ONCE):
        yield canonical(names[start : start + _AT_ONCE])


def _short(value: Fraction) -> str:
    # Rounded down: this much is left.
    text = str(value)
    return text if len(text) <= 12 else str(round_down(value))
