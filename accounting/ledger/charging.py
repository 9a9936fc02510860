r"""One transaction that charges: several requests, each all or nobody, and each by itself.

Proofs: docs/proofs/ledger.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, TypeAlias

from sqlalchemy import Connection

from accounting.ledger.book import Book, Entry, Head
from accounting.ledger.errors import BudgetExhausted
from accounting.ledger.history import Charge, names_digest
from accounting.ledger.names import without
from accounting.ledger.receipt import Receipt
from accounting.ledger.request import Asked
from dpcore.errors import DpcoreError, InvalidParameter

__all__ = ["Charged", "charged"]

Charged: TypeAlias = Receipt | DpcoreError
"""What becomes of one request: it is in the ledger, or why it is not."""

_NAMED: Final = 3


def charged(book: Book, connection: Connection, requests: Sequence[Asked]) -> list[Charged]:
    r"""Charge the requests one after the other, as if each had a transaction of its own.

    What is wrong with one of them is its outcome and changes nothing for the others; what is wrong
    with the ledger is raised, and nobody was charged.
    """
    head = book.head(connection, lock=True)
    made = book.found(connection, [request.batch for request in requests])
    everyone = sorted({name for request in requests for name in request.names})
    accounts, damaged = book.accounts(connection, everyone)
    outcomes: list[Charged] = []
    entries: list[Entry] = []
    for request in requests:
        if request.batch in made:
            outcomes.append(_again(made[request.batch], request))
            continue
        wrong = damaged.intersection(request.names) if damaged else ()
        if wrong:
            outcomes.append(book.mismatch(min(wrong)))
            continue
        poor = book.poor(accounts, request.names, request.price)
        if poor and not request.skip_exhausted:
            left = {name: book.left(accounts, name) for name in poor[:_NAMED]}
            outcomes.append(BudgetExhausted(request.batch, poor, len(request.names), left))
            continue
        paying = without(request.names, poor)
        charge = _charge(head, request, paying, poor)
        head = Head(charge.number, charge.digest)
        made[request.batch] = entry = Entry(charge, head.digest, paying, poor)
        entries.append(entry)
        book.pay(accounts, paying, request.price)
        outcomes.append(entry.receipt(repeated=False))
    if entries:
        book.write(connection, entries, accounts)
    return outcomes


def _charge(head: Head, request: Asked, paying: tuple[str, ...], spared: tuple[str, ...]) -> Charge:
    return Charge(
        number=head.charges + 1,
        batch=request.batch,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        guarantee=request.record,
        amounts=request.price.amounts,
        assumed=bool(request.price.assumptions),
        paid=len(paying),
        spared=len(spared),
        paid_digest=names_digest(paying),
        spared_digest=names_digest(spared),
        previous=head.digest,
    )


def _again(entry: Entry, request: Asked) -> Charged:
    # A batch that was charged before: the same charge, or another one of that name.
    made, spared = entry.charge, entry.left_out
    paying = without(request.names, spared)
    if request.price.amounts != made.amounts:
        otherwise = "at another price"
    elif request.record != made.guarantee:
        otherwise = "for another guarantee"
    elif (
        len(paying) + len(spared) != len(request.names) or names_digest(paying) != made.paid_digest
    ):
        otherwise = "for other users"
    elif spared and not request.skip_exhausted:
        return InvalidParameter("batch", made.batch, "was charged before, leaving users out")
    else:
        return entry.receipt(repeated=True)
    reason = f"was charged before, {otherwise}: a new release needs a new name"
    return InvalidParameter("batch", made.batch, reason)
