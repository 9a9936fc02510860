r"""The rows of a ledger: read and written inside a transaction that somebody else opened.

Sets of rows cross to the database as JSON arrays, so that a million of them are a few statements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from json import loads
from typing import Any, Final, NamedTuple, Self
from uuid import uuid4

from sqlalchemy import Connection, Table, exists, func, insert, or_, select, update

from accounting.ledger.database.place import HOMELESS
from accounting.ledger.errors import LedgerDamaged, LedgerUnavailable
from accounting.ledger.history import Account, Charge, canonical, charge_of, genesis
from accounting.ledger.tables import FORMAT, Tables, added, asked_for, stored
from accounting.theorems.filter import Filter, Price, filter_from_json
from dpcore.errors import DpcoreError
from dpcore.numbers.enclosure import round_down

__all__ = ["Book", "Head"]

_AT_ONCE: Final = 50_000
_OLD: Final = (
    "is of format 1, which an earlier version made, without the check that each row now carries: "
    "dpcore ledger adopt --db URL brings it to format 2"
)


class Head(NamedTuple):
    r"""How many charges there are, and the digest that the next one is chained to."""

    charges: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    r"""A filter, the tables made for it, and which ledger it is of: the ``identity`` of one."""

    filter: Filter
    text: str
    tables: Tables
    identity: str

    @classmethod
    def of(cls, filter: Filter, identity: str | None = None) -> Self:  # noqa: A002 - the word of this package
        r"""The book of a ledger that does not exist yet, or of the one with this identity."""
        text = canonical(filter.to_json())
        own = uuid4().hex if identity is None else identity
        return cls(filter=filter, text=text, tables=Tables.of(filter.limits), identity=own)

    @classmethod
    def stored(cls, connection: Connection, *, at_home: bool = True) -> Self:
        r"""The book of the ledger in the database.

        Raises :class:`LedgerUnavailable` for one of an older format, and, unless ``at_home`` is
        False, for a file that is not where it was made or adopted.
        """
        row = connection.exec_driver_sql("SELECT * FROM ledger").mappings().one_or_none()
        if row is not None and row.get("format") == 1 and "identity" not in row:
            raise LedgerUnavailable("ledger", _OLD)
        if row is None or row.get("format") != FORMAT or not isinstance(row.get("identity"), str):
            raise LedgerDamaged("ledger", f"is not of format {FORMAT}: no other is known")
        try:
            book = cls.of(filter_from_json(loads(row["filter"])), row["identity"])
        except (DpcoreError, ValueError, TypeError, RecursionError) as error:
            raise LedgerDamaged("ledger", f"its filter was edited: {error}") from error
        if book.text != row["filter"]:
            raise LedgerDamaged("ledger", "its filter was edited: it is not as it was written")
        if at_home:
            book._must_be_home(connection)
        return book

    def begin(self, connection: Connection) -> None:
        r"""Make the tables and the one row of ``ledger``."""
        self.tables.metadata.create_all(connection, checkfirst=False)
        row = {"id": 1, "format": FORMAT, "filter": self.text, "charges": 0}
        row |= {"head": genesis(self.text), "identity": self.identity}
        connection.execute(insert(self.tables.ledger), row)

    def _must_be_home(self, connection: Connection) -> None:
        # Of a file; what a server keeps has one place.
        if connection.info.get("home", self.identity) != self.identity:
            raise LedgerUnavailable(connection.info["where"], HOMELESS)

    # -- reading ------------------------------------------------------------------------------

    def head(self, connection: Connection, *, lock: bool = False) -> Head:
        r"""Where the next charge goes; with ``lock``, nobody else charges until the end.

        Raises :class:`LedgerDamaged` unless the last charge is what the head says, and the first
        is chained to the filter.
        """
        asked = select(self.tables.ledger)
        kept = connection.execute(asked.with_for_update() if lock else asked).mappings().one()
        charges, root = self.tables.charges, genesis(self.text)
        if (kept["filter"], kept["format"]) != (self.text, FORMAT):
            # Counters count shares of the budget: in those of another they say something else.
            raise LedgerDamaged(
                "ledger",
                "its filter was edited, or it was made anew, since it was opened: open it again",
            )
        self._must_be_home(connection)
        if kept["identity"] != self.identity:
            raise LedgerUnavailable(
                "ledger", "was adopted or made anew since it was opened: open it again"
            )
        found = Head(0, root)
        ends = [select(end(charges.c.id)).scalar_subquery() for end in (func.min, func.max)]
        edges = select(charges).where(or_(*(charges.c.id == end for end in ends)))
        for row in connection.execute(edges.order_by(charges.c.id)).mappings():
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

    def found(
        self, connection: Connection, batches: Iterable[str]
    ) -> dict[str, tuple[Charge, tuple[str, ...]]]:
        r"""The charges of those of ``batches`` that were charged, and who was left out of each."""
        charges, dialect = self.tables.charges, connection.dialect.name
        asked = asked_for((*charges.columns,), "batch", dialect)
        made = {}
        for part in _parts([*batches]):
            for row in connection.execute(asked, {"part": part}).mappings().all():
                charge = charge_of(row, self.tables)
                made[charge.batch] = (
                    charge,
                    self.names(connection, self.tables.spared, charge) if charge.spared else (),
                )
        return made

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

    def accounts(
        self, connection: Connection, names: Sequence[str]
    ) -> tuple[dict[str, Account], frozenset[str]]:
        r"""The accounts of those of ``names`` who have one, and whose mark does not fit it."""
        users = self.tables.users
        asked = asked_for((*users.columns,), "name", connection.dialect.name)
        found, damaged = {}, []
        for part in _parts(names):
            for name, *totals, assumed, mark in connection.execute(asked, {"part": part}):
                account = Account(tuple(totals), assumed)
                # SQLite keeps a value of any type in any column.
                whole = all(type(held) is int for held in (*totals, assumed))
                if whole and mark == account.mark(self.identity, name):
                    found[name] = account
                else:
                    damaged.append(name)
        return found, frozenset(damaged)

    def account(self, connection: Connection, user: str) -> Account:
        r"""The account of one user. Raises :class:`LedgerDamaged` where its mark does not fit."""
        accounts, damaged = self.accounts(connection, (user,))
        if damaged:
            raise self.mismatch(user)
        return accounts.get(user, self.untouched)

    @property
    def untouched(self) -> Account:
        r"""The account of who was never charged."""
        return Account((0,) * len(self.filter.limits))

    def mismatch(self, user: str) -> LedgerDamaged:
        r"""The error for a user whose counters do not match the digest in their row."""
        return LedgerDamaged(
            f"user {user!r}",
            "its counters do not fit the check of their row: edited, or a bit that flipped; "
            "nobody was charged: run show",
        )

    def count(self, connection: Connection, table: Table) -> int:
        r"""How many rows a table has."""
        return connection.execute(select(func.count()).select_from(table)).scalar_one()

    # -- deciding -----------------------------------------------------------------------------

    def poor(
        self, accounts: dict[str, Account], names: tuple[str, ...], price: Price
    ) -> tuple[str, ...]:
        r"""Those of ``names`` whom the filter does not admit at this price, in order."""
        if not self.filter.admits(self.untouched.totals, price):
            return names
        most = [limit - a for limit, a in zip(self.filter.limits, price.amounts, strict=True)]
        return tuple(
            name
            for name in names
            if name in accounts
            and any(held > m for held, m in zip(accounts[name].totals, most, strict=True))
        )

    def pay(self, accounts: dict[str, Account], names: tuple[str, ...], price: Price) -> None:
        r"""Add the price to the accounts of ``names``."""
        untouched, assumed = self.untouched, int(bool(price.assumptions))
        for name in names:
            before = accounts.get(name, untouched)
            totals = tuple(h + a for h, a in zip(before.totals, price.amounts, strict=True))
            accounts[name] = Account(totals, before.assumed + assumed)

    def left(self, accounts: dict[str, Account], user: str) -> str:
        r"""What a user has left, as text."""
        kept = self.filter.remaining(accounts.get(user, self.untouched).totals)
        return ", ".join(
            f"{counter} {_short(value)}"
            for counter, value in zip(self.filter.counters, kept, strict=True)
        )

    # -- writing ------------------------------------------------------------------------------

    def write(
        self,
        connection: Connection,
        entries: Sequence[tuple[Charge, tuple[str, ...], tuple[str, ...]]],
        accounts: dict[str, Account],
    ) -> None:
        r"""Add charges to the history, each with who pays and who is spared, and what they cost."""
        tables = self.tables
        connection.execute(
            insert(tables.charges), [charge.to_row(tables) for charge, _, _ in entries]
        )
        paid = [(charge.number, name) for charge, paying, _ in entries for name in paying]
        spared = [(charge.number, name) for charge, _, left_out in entries for name in left_out]
        for table, members in ((tables.paid, paid), (tables.spared, spared)):
            self._put(connection, added(table, connection.dialect.name), members)
        self._add_up(connection, {name for _, name in paid}, accounts)
        last = entries[-1][0]
        kept = {"charges": last.number, "head": last.digest}
        connection.execute(update(tables.ledger).values(**kept))

    def _add_up(
        self, connection: Connection, paying: Iterable[str], accounts: dict[str, Account]
    ) -> None:
        rows = []
        for name in sorted(paying):
            account = accounts[name]
            rows.append((name, *account.totals, account.assumed, account.mark(self.identity, name)))
        self._put(connection, stored(self.tables.users, connection.dialect.name), rows)

    def remark(self, connection: Connection) -> None:
        r"""Give the ledger this identity, and each row of a user the mark that goes with it."""
        users, rows = self.tables.users, []
        for name, *totals, assumed, _ in connection.execute(select(users)):
            mark = Account(tuple(totals), assumed).mark(self.identity, name)
            rows.append((name, *totals, assumed, mark))
        self._put(connection, stored(users, connection.dialect.name), rows)
        connection.execute(update(self.tables.ledger).values(identity=self.identity))

    def _put(self, connection: Connection, statement: Any, rows: Sequence[object]) -> None:
        for part in _parts(rows):
            connection.execute(statement, {"part": part})


def _parts(values: Sequence[object]) -> Iterator[str]:
    for start in range(0, len(values), _AT_ONCE):
        yield canonical(values[start : start + _AT_ONCE])


def _short(value: Fraction) -> str:
    # Rounded down: this much is left.
    text = str(value)
    return text if len(text) <= 12 else str(round_down(value))
