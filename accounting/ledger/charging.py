r"""One transaction that charges: several requests, each all or nobody, and each by itself.

Proofs: docs/proofs/ledger.md.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event, Lock
from typing import Final, TypeAlias

from sqlalchemy import Connection

from accounting.ledger.book import Book, Head
from accounting.ledger.errors import BudgetExhausted, LedgerUnavailable
from accounting.ledger.history import Charge, names_digest
from accounting.ledger.names import without
from accounting.ledger.receipt import Receipt
from accounting.ledger.request import Asked
from dpcore.errors import DpcoreError, InvalidParameter

__all__ = ["Charged", "Turns", "charged"]

Charged: TypeAlias = Receipt | DpcoreError
"""What becomes of one request: it is in the ledger, or why it is not."""

_NAMED: Final = 3
_CUT: Final = "the thread that charged for several was interrupted: charge again, it is paid once"


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
    entries: list[tuple[Charge, tuple[str, ...], tuple[str, ...]]] = []
    for request in requests:
        if request.batch in made:
            outcomes.append(_again(*made[request.batch], request))
            continue
        wrong = damaged.intersection(request.names) if damaged else ()
        if wrong:
            outcomes.append(book.mismatch(min(wrong)))
            continue
        poor = book.poor(accounts, request.names, request.cost.price)
        if poor and not request.skip_exhausted:
            left = {name: book.left(accounts, name) for name in poor[:_NAMED]}
            outcomes.append(BudgetExhausted(request.batch, poor, len(request.names), left))
            continue
        paying = without(request.names, poor)
        charge = _charge(head, request, paying, poor)
        head = Head(charge.number, charge.digest)
        made[request.batch] = charge, poor
        entries.append((charge, paying, poor))
        book.pay(accounts, paying, request.cost.price)
        outcomes.append(charge.receipt(poor, repeated=False))
    if entries:
        book.write(connection, entries, accounts)
    return outcomes


def _charge(head: Head, request: Asked, paying: tuple[str, ...], spared: tuple[str, ...]) -> Charge:
    return Charge(
        number=head.charges + 1,
        batch=request.batch,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        guarantee=request.cost.record,
        amounts=request.cost.price.amounts,
        assumed=bool(request.cost.price.assumptions),
        paid=len(paying),
        spared=len(spared),
        paid_digest=names_digest(paying),
        spared_digest=names_digest(spared),
        previous=head.digest,
    )


def _again(made: Charge, spared: tuple[str, ...], request: Asked) -> Charged:
    # A batch that was charged before: the same charge, or another one of that name.
    paying = without(request.names, spared)
    if request.cost.price.amounts != made.amounts:
        otherwise = "at another price"
    elif request.cost.record != made.guarantee:
        otherwise = "for another guarantee"
    elif (
        len(paying) + len(spared) != len(request.names) or names_digest(paying) != made.paid_digest
    ):
        otherwise = "for other users"
    elif spared and not request.skip_exhausted:
        return InvalidParameter("batch", made.batch, "was charged before, leaving users out")
    else:
        return made.receipt(spared, repeated=True)
    reason = f"was charged before, {otherwise}: a new release needs a new name"
    return InvalidParameter("batch", made.batch, reason)


@dataclass(slots=True, kw_only=True, eq=False)
class _Place:
    asked: Sequence[Asked]
    outcomes: list[Charged] = field(default_factory=list)
    error: DpcoreError | None = None
    over: bool = False
    turn: Event = field(default_factory=Event)  # it is over, or this thread leads


class Turns:
    r"""Threads that charge at the same time share one transaction, and its way to the disk.

    Whoever comes while nobody charges leads: it takes along all who wait by then, and hands the
    lead to one of those who came meanwhile. An outcome is returned only after the transaction that
    it is of has ended.
    """

    def __init__(self, work: Callable[[Sequence[Asked]], list[Charged]]) -> None:
        self._work = work
        self._gate = Lock()
        self._led = False
        self._waiting: list[_Place] = []

    def take(self, requests: Sequence[Asked]) -> list[Charged]:
        r"""The outcomes of ``requests``, in their order."""
        place = _Place(asked=requests)
        with self._gate:
            self._waiting.append(place)
            leads, self._led = not self._led, True
        if not leads:
            try:
                place.turn.wait()
            except BaseException:
                self._leave(place)
                raise
        if not place.over:
            self._lead()
        elif place.error is not None:
            # Threads must not share one traceback.
            raise copy.copy(place.error) from place.error
        return place.outcomes

    def _lead(self) -> None:
        with self._gate:
            group, self._waiting = self._waiting, []
        try:
            outcomes = iter(self._work([request for place in group for request in place.asked]))
            for place in group:
                place.outcomes = [next(outcomes) for _ in place.asked]
        except BaseException as error:
            told = error if isinstance(error, DpcoreError) else LedgerUnavailable("ledger", _CUT)
            for place in group:
                place.error = told
            raise
        finally:
            with self._gate:
                for place in group:
                    place.over = True
                    place.turn.set()
                self._pass_on()

    def _leave(self, place: _Place) -> None:
        # It was interrupted while it waited: nobody waits for it, unless it was to lead.
        with self._gate:
            if place in self._waiting:
                self._waiting.remove(place)
                if place.turn.is_set():
                    self._pass_on()

    def _pass_on(self) -> None:
        self._led = bool(self._waiting)
        if self._led:
            self._waiting[0].turn.set()
