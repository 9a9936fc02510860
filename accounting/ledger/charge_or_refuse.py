r"""Charge a batch to its users, or refuse it, inside a database transaction of the caller.

:func:`charged` processes several requests in one transaction. Each request charges all of its users
or none, independently of the others. Proofs: docs/proofs/ledger.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from json import loads
from typing import Any, Final, NamedTuple, Self, TypeAlias
from uuid import uuid4

import numpy as np
from sqlalchemy import Connection, Table, delete, exists, func, insert, select, update

from accounting.ledger import hash_chain as history
from accounting.ledger.charge_request import CheckedRequest, without
from accounting.ledger.errors import (
    BudgetExhausted,
    LedgerDamaged,
    LedgerUnavailable,
    Receipt,
    ValueLost,
)
from accounting.ledger.hash_chain import (
    FORMAT,
    LOCKED,
    MECHANISM,
    QUESTION,
    RELEASED,
    RENEWALS,
    Account,
    Charge,
    Tables,
    canonical,
    genesis,
    names_digest,
    put,
    run,
    those,
    value_digest,
)
from accounting.ledger.sqlite_file import HOMELESS
from accounting.privacy_filters import Filter, Price, filter_from_json
from dpcore.errors import DpcoreError, InvalidParameter
from dpcore.numbers.rounding import down
from dpcore.spec_syntax import find_name

_RENEWS: Final = "renews"
_HEAD: Final = "SELECT format, filter, charges, head, identity FROM ledger"
_MISMATCH: Final = (
    "its counters do not match the checksum of their row: they were edited or corrupted; nobody "
    "was charged: run dpcore ledger show"
)
_MOVED: Final = "UPDATE ledger SET charges = :number, head = :digest"


class Head(NamedTuple):
    r"""The end of the history of charges, to which the next charge is appended.

    ``charges`` is the number of charges, and ``digest`` is the digest of the last one. ``period``
    is the period of the last charge, to which the stored counters of the users belong. ``now`` is
    the current time, and ``today`` is the period that contains it.
    """

    charges: int
    digest: str
    period: str
    now: str
    today: str

    @property
    def renewed(self) -> bool:
        r"""Whether a new period began since the last charge, so that all counters start at 0."""
        return self.today > self.period


class Entry(NamedTuple):
    r"""A charge with its digest, and the names of the charged and of the left-out users."""

    charge: Charge
    digest: str
    paying: tuple[str, ...]
    left_out: tuple[str, ...]
    value: str | None = None
    """The value drawn with the charge, as JSON."""

    def receipt(self, *, repeated: bool) -> Receipt:
        return Receipt(
            batch=self.charge.batch,
            number=self.charge.number,
            digest=self.digest,
            paid=self.charge.paid,
            left_out=self.left_out,
            repeated=repeated,
            value=None if self.value is None else _value_of(self.value),
        )


class Book:
    r"""The privacy filter of a ledger, and the statements that read and write its tables.

    ``renews`` is the period of the budget, or None for one budget for all time. ``identity`` is a
    string that identifies the ledger, by default a new random one.
    """

    def __init__(
        self,
        filter: Filter,  # noqa: A002 - the word of this package
        renews: str | None = None,
        identity: str | None = None,
    ) -> None:
        if renews is not None:
            find_name(_RENEWS, renews, RENEWALS)
        self.filter, self.renews = filter, renews
        self.text = canonical(filter.to_json() | ({} if renews is None else {_RENEWS: renews}))
        self.start: Final = genesis(self.text)
        r"""The digest to which the first charge is chained."""
        self.tables = Tables(filter.limits)
        self.identity = uuid4().hex if identity is None else identity
        self.untouched: Final = Account.of((0,) * len(filter.limits))
        r"""The account of a user who has never been charged."""

    @classmethod
    def stored(cls, connection: Connection, *, at_home: bool = True) -> Self:
        r"""Read the ledger in the database; if ``at_home`` is true, refuse a moved file or copy."""
        row = connection.exec_driver_sql("SELECT * FROM ledger").mappings().one()
        if row.get("format") != FORMAT or not isinstance(row.get("identity"), str):
            raise LedgerDamaged("ledger", f"must have format {FORMAT}")
        try:
            kept = loads(row["filter"])
            renews = kept.pop(_RENEWS, None)
            book = cls(filter_from_json(kept), renews, row["identity"])
        except (DpcoreError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise LedgerDamaged("ledger", f"its filter was edited: {error}") from error
        if book.text != row["filter"]:
            raise LedgerDamaged("ledger", "its filter was edited: it is not in canonical form")
        if at_home:
            book._must_be_home(connection)
        return book

    def begin(self, connection: Connection) -> None:
        r"""Create the tables of a new ledger, except the table of released values."""
        tables = [t for t in self.tables.metadata.sorted_tables if t is not self.tables.released]
        self.tables.metadata.create_all(connection, tables, checkfirst=False)
        row = {"id": 1, "format": FORMAT, "filter": self.text, "charges": 0}
        row |= {"head": self.start, "identity": self.identity}
        connection.execute(insert(self.tables.ledger), row)

    def _must_be_home(self, connection: Connection) -> None:
        # Only files can move: a database on a server has a single location.
        if connection.info.get("home", self.identity) != self.identity:
            raise LedgerUnavailable(connection.info["where"], HOMELESS)

    def period(self, made: str) -> str:
        r"""The period that contains the time ``made``, e.g. ``"2026"``; ``""`` without renewal."""
        return made[: RENEWALS[self.renews]] if self.renews is not None else ""

    # -- reading ------------------------------------------------------------------------------

    def head(self, connection: Connection, *, lock: bool = False) -> Head:
        r"""The end of the history; ``lock`` blocks other charges until the transaction ends."""
        rows = run(connection, _HEAD + (LOCKED if lock else ""))
        if len(rows) != 1:
            raise LedgerDamaged("ledger", "the row of the ledger is missing or not unique")
        ((form, text, charges, head, identity),) = rows
        if (text, form) != (self.text, FORMAT):
            # Counters count shares of the budget, so they mean something else under another budget.
            must = "was recreated, or its filter was edited, since it was opened: reopen it"
            raise LedgerDamaged("ledger", must)
        self._must_be_home(connection)
        if identity != self.identity:
            must = "was adopted or recreated since it was opened: reopen it"
            raise LedgerUnavailable("ledger", must)
        last = (0, self.start)
        made = ""
        for cells in run(connection, self.tables.edges):
            charge = _charge_of(self.tables, *cells)
            last, made = (charge.number, cells[-1]), charge.made
            if charge.number == 1 and charge.previous != self.start:
                reason = "its filter was edited after the first charge: run dpcore ledger show"
                raise LedgerDamaged("ledger", reason)
        if last != (charges, head):
            must = f"charge {last[0]} differs from the last charge recorded: run dpcore ledger show"
            raise LedgerDamaged("ledger", must)
        now = history.now()
        return Head(*last, self.period(made), now, self.period(now))

    def found(self, connection: Connection, batches: Sequence[str]) -> dict[str, Entry]:
        r"""The existing charges of ``batches``, by batch, without the names of charged users."""
        made = {}
        for cells in [*those(connection, self.tables.charges, "batch", batches)]:
            charge = _charge_of(self.tables, *cells)
            spared = self.names(connection, self.tables.spared, charge) if charge.spared else ()
            value = self.value(connection, charge)
            made[charge.batch] = Entry(charge, cells[-1], (), spared, value)
        return made

    def value(self, connection: Connection, charge: Charge) -> str | None:
        r"""The value released with ``charge``, as JSON; None if ``charge`` released no value.

        Raises :class:`LedgerDamaged` if the value was edited or deleted.
        """
        if charge.released is None:
            return None
        released = self.tables.released
        query = select(released.c.value).where(released.c.charge == charge.number)
        found = connection.execute(query).scalar_one_or_none()
        if not isinstance(found, str) or value_digest(found) != charge.released:
            raise LedgerDamaged(charge.where, "its released value was edited or deleted")
        return found

    def names(self, connection: Connection, members: Table, charge: Charge) -> tuple[str, ...]:
        r"""The sorted names of the users that ``charge`` charged, or left out.

        ``members`` is the table that contains them. Raises :class:`LedgerDamaged` if they were
        edited.
        """
        query = select(members.c.name).where(members.c.charge == charge.number)
        found = tuple(connection.execute(query.order_by(members.c.name)).scalars())
        digest = charge.paid_digest if members is self.tables.paid else charge.spared_digest
        if not all(isinstance(name, str) for name in found) or names_digest(found) != digest:
            raise LedgerDamaged(charge.where, f"its rows in {members.name} were edited")
        return found

    def history(self, connection: Connection, user: str | None = None) -> tuple[Charge, ...]:
        r"""All charges, or only those of ``user``, in the order in which they were made."""
        charges, paid = self.tables.charges, self.tables.paid
        query = select(charges).order_by(charges.c.id)
        if user is not None:
            query = query.where(exists().where(paid.c.charge == charges.c.id, paid.c.name == user))
        rows = connection.execute(query).mappings()
        return tuple(Charge.of(row, self.tables.owed) for row in rows)

    def accounts(
        self, connection: Connection, head: Head, names: Sequence[str]
    ) -> tuple[dict[str, Account], frozenset[str]]:
        r"""The accounts of the ``names`` charged in this period, and the names with edited rows."""
        found: dict[str, Account] = {}
        known: dict[tuple[int, ...], Account] = {}
        damaged: list[str] = []
        if head.renewed:
            return found, frozenset()
        for cells in those(connection, self.tables.users, "name", names):
            name, held = cells[0], cells[1:-1]
            # SQLite can store values of any type in any column.
            whole = {*map(type, held)} == {int}
            if whole:
                account = known.get(held) or known.setdefault(held, Account.of(held[:-1], held[-1]))
            if whole and account.row(self.identity, name) == cells:
                found[name] = account
            else:
                damaged.append(name)
        return found, frozenset(damaged)

    def account(self, connection: Connection, head: Head, user: str) -> Account:
        r"""The account of one user; raises :class:`LedgerDamaged` if its data were edited."""
        accounts, damaged = self.accounts(connection, head, (user,))
        if damaged:
            raise self.mismatch(user)
        return accounts.get(user, self.untouched)

    def mismatch(self, user: str) -> LedgerDamaged:
        r"""The error for a user whose counters do not match the checksum in the same row."""
        return LedgerDamaged(f"user {user!r}", _MISMATCH)

    def count(self, connection: Connection, table: Table) -> int:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()

    # -- deciding -----------------------------------------------------------------------------

    def poor(
        self, accounts: dict[str, Account], names: tuple[str, ...], price: Price
    ) -> tuple[str, ...]:
        r"""The sorted users among ``names`` whose remaining budget does not cover ``price``."""
        if not self.filter.admits(self.untouched.totals, price):
            return names
        most = [limit - a for limit, a in zip(self.filter.limits, price.amounts, strict=True)]
        kinds = {*accounts.values()}
        out = {a for a in kinds if any(held > m for held, m in zip(a.totals, most, strict=True))}
        return tuple(name for name in names if accounts.get(name) in out) if out else ()

    def pay(self, accounts: dict[str, Account], names: tuple[str, ...], price: Price) -> None:
        r"""Add ``price`` to the spent amounts of ``names`` in ``accounts``."""
        untouched, assumed = self.untouched, int(bool(price.assumptions))
        after: dict[Account, Account] = {}
        for name in names:
            before = accounts.get(name, untouched)
            if before not in after:
                totals = tuple(h + a for h, a in zip(before.totals, price.amounts, strict=True))
                after[before] = Account.of(totals, before.assumed + assumed)
            accounts[name] = after[before]

    def left(self, accounts: dict[str, Account], user: str, head: Head) -> str:
        r"""The remaining budget of a user as text, rounded down."""
        kept = self.filter.remaining(accounts.get(user, self.untouched).totals)
        text = self.filter.format(kept, down)
        return f"{text} in {max(head.period, head.today)}" if self.renews else text

    # -- writing ------------------------------------------------------------------------------

    def write(
        self,
        connection: Connection,
        head: Head,
        entries: Sequence[Entry],
        accounts: dict[str, Account],
    ) -> None:
        r"""Append charges to the history, and store the new counters of the charged users.

        ``accounts`` contains these counters. The first charge in a period deletes the counters of
        the previous period.
        """
        tables = self.tables
        if head.renewed:
            connection.execute(delete(tables.users))
        put(connection, tables.charges, [each.charge.row(each.digest) for each in entries])
        paid = [(each.charge.number, name) for each in entries for name in each.paying]
        put(connection, tables.paid, paid)
        spared = [(each.charge.number, name) for each in entries for name in each.left_out]
        put(connection, tables.spared, spared)
        values = [(each.charge.number, each.value) for each in entries if each.value is not None]
        if values:
            tables.released.create(connection, checkfirst=True)
            put(connection, tables.released, values)
        self._add_up(connection, dict.fromkeys(name for _, name in paid), accounts)
        last = entries[-1]
        run(connection, _MOVED, number=last.charge.number, digest=last.digest)

    def _add_up(
        self, connection: Connection, paying: Iterable[str], accounts: dict[str, Account]
    ) -> None:
        rows = [accounts[name].row(self.identity, name) for name in sorted(paying)]
        put(connection, self.tables.users, rows)

    def remark(self, connection: Connection) -> None:
        r"""Store ``identity``, and recompute the checksums of all users, which depend on it."""
        rows = connection.execute(select(self.tables.users)).all()
        accounts = {name: Account.of(tuple(totals), n) for name, *totals, n, _ in rows}
        self._add_up(connection, accounts, accounts)
        connection.execute(update(self.tables.ledger).values(identity=self.identity))


@lru_cache(maxsize=64, typed=True)
def _charge_of(tables: Tables, *cells: Any) -> Charge:
    # typed=True, because a cell that is 1.0 or true instead of 1 was edited.
    row = dict(zip(tables.charges.columns.keys(), cells, strict=True))
    return Charge.of(row, tables.owed)


Charged: TypeAlias = Receipt | DpcoreError
"""The outcome of one request: its receipt or its error."""

_NAMED: Final = 3
_BACK: Final = (
    "the clock is in {0.now}, before the last charge in {0.period}: charges in an earlier period "
    "are refused; set the clock"
)


def charged(
    book: Book, connection: Connection, requests: Sequence[CheckedRequest]
) -> list[Charged]:
    r"""Charge the requests one after the other, and return the outcome of each.

    The outcome of a request that cannot be charged, e.g. because the row of a user was edited, is
    its error, which does not affect the other requests. If the last charge or the budget was
    edited, :class:`LedgerDamaged` is raised and nobody is charged.
    """
    start = head = book.head(connection, lock=True)
    made = book.found(connection, [request.batch for request in requests])
    new = [request.names for request in requests if request.batch not in made]
    everyone = new[0] if len(new) == 1 else sorted({name for names in new for name in names})
    accounts, damaged = book.accounts(connection, start, everyone)
    outcomes: list[Charged] = []
    entries: list[Entry] = []
    for request in requests:
        if request.batch in made:
            outcomes.append(_again(made[request.batch], request))
            continue
        if start.today < start.period:
            outcomes.append(LedgerUnavailable("ledger", _BACK.format(start)))
            continue
        wrong = damaged.intersection(request.names) if damaged else ()
        if wrong:
            outcomes.append(book.mismatch(min(wrong)))
            continue
        poor = book.poor(accounts, request.names, request.price)
        if poor and not request.skip_exhausted:
            left = {name: book.left(accounts, name, start) for name in poor[:_NAMED]}
            cost = book.filter.format_cost(request.price)
            outcomes.append(BudgetExhausted(request.batch, poor, len(request.names), left, cost))
            continue
        value, lost = None, ""
        if request.draw is not None:
            try:
                drawn = request.draw()
            except DpcoreError as error:
                outcomes.append(error)
                continue
            try:
                value = text_of(drawn)
            except Exception as error:  # noqa: BLE001 - an error from the value reveals it
                lost = f"{type(error).__name__}: {error}"
        paying = without(request.names, poor)
        charge = _charge(head, request, paying, poor, value)
        head = head._replace(charges=charge.number, digest=charge.digest)
        made[request.batch] = entry = Entry(charge, head.digest, paying, poor, value)
        entries.append(entry)
        book.pay(accounts, paying, request.price)
        receipt = entry.receipt(repeated=False)
        outcomes.append(ValueLost(receipt, lost) if lost else receipt)
    if entries:
        book.write(connection, start, entries, accounts)
    return outcomes


def text_of(value: object) -> str:
    r"""The JSON text of a drawn value; raises the error of ``json`` if JSON cannot express it."""
    return canonical(value.tolist() if isinstance(value, np.ndarray) else value)


def _value_of(text: str) -> Any:
    found = loads(text)
    # The answers of AboveThreshold, which contain None or truth values, remain a list.
    if isinstance(found, list) and not any(each is None or type(each) is bool for each in found):
        with suppress(OverflowError):  # a gap beyond int64, from answers beyond int64
            return np.array(found, dtype=np.int64)
    return found


def _charge(
    head: Head,
    request: CheckedRequest,
    paying: tuple[str, ...],
    spared: tuple[str, ...],
    value: str | None,
) -> Charge:
    drawn = {} if value is None else {RELEASED: value_digest(value)}
    return Charge(
        number=head.charges + 1,
        batch=request.batch,
        made=head.now,
        guarantee={**request.record, **drawn},
        amounts=request.price.amounts,
        assumed=bool(request.price.assumptions),
        paid=len(paying),
        spared=len(spared),
        paid_digest=names_digest(paying),
        spared_digest=names_digest(spared),
        previous=head.digest,
    )


def _again(entry: Entry, request: CheckedRequest) -> Charged:
    # The batch was charged before, by the same charge or by another charge with the same name.
    made, spared = entry.charge, entry.left_out
    paying = without(request.names, spared)
    record = {key: each for key, each in made.guarantee.items() if key != RELEASED}
    if request.price.amounts != made.amounts:
        otherwise = "at another price"
    elif request.record.get(QUESTION) != record.get(QUESTION):
        otherwise = "for another question"
    elif request.record.get(MECHANISM) != record.get(MECHANISM):
        otherwise = "for another mechanism"
    elif request.record != record:
        otherwise = "for another guarantee"
    elif (
        len(paying) + len(spared) != len(request.names) or names_digest(paying) != made.paid_digest
    ):
        otherwise = "for other users"
    elif spared and not request.skip_exhausted:
        reason = "was charged before, with exhausted users left out: repeat it with skip_exhausted"
        return InvalidParameter("batch", made.batch, f"{reason} (--skip-exhausted)")
    elif made.released is None and request.draw is not None:
        otherwise = "and its value is not in the ledger"
    elif made.released is not None and request.draw is None:
        reason = "was charged by Ledger.release: call it again to get the stored value"
        return InvalidParameter("batch", made.batch, reason)
    else:
        return entry.receipt(repeated=True)
    reason = f"was charged before, {otherwise}: a new release needs a new name"
    return InvalidParameter("batch", made.batch, reason)
