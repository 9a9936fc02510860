r"""The budget ledger, which charges users for releases and refuses charges that exceed a budget.

A refusal comes before the release. If the process is killed, a charge was made either completely or
not at all, and repeating it charges nobody again. Proofs: docs/proofs/ledger.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import groupby, islice
from typing import Any, Final, Self, TypeAlias, cast, overload

import numpy as np
from sqlalchemy import Connection, Table

from accounting.composition.compose import Source
from accounting.guarantees.stated_guarantees import Assumed, Word, read_claim
from accounting.ledger.charge_or_refuse import Book, Charged, Head, charged, text_of
from accounting.ledger.charge_request import (
    CheckedRequest,
    Drawable,
    Priceable,
    Request,
    cost,
    refuse_seed,
    sorted_names,
)
from accounting.ledger.errors import AlreadyCharged, LedgerDamaged, Receipt
from accounting.ledger.group_commit import Queue
from accounting.ledger.hash_chain import HISTORY, MECHANISM, QUESTION, Charge, canonical
from accounting.ledger.transactions_and_locks import Store
from accounting.ledger.verify_ledger import Damage, damages
from accounting.privacy_filters import Filter, Price, filter_for
from dpcore.errors import InvalidParameter
from dpcore.local import LocalReport, ShuffledReports
from dpcore.mechanism import Mechanism, Release, Scope, Unit
from dpcore.numbers.parameter import integer, name, text
from dpcore.sampling.rng import SYSTEM, Rng
from dpcore.selection import AboveThreshold

_MOST_SHOWN: Final = 100
_Cost: TypeAlias = tuple[Price, Mapping[str, Any]]


class Ledger:
    r"""A privacy budget for each user, for all time or for each period, with a history of charges.

    The budget is a guarantee to a user (scope unit ``user``). A charge states the cost of one batch
    to each of its users. The cost is a guarantee for the user, or a guarantee for one contribution
    with ``rows_per_user``, the largest number of rows of one user in the batch. The cost must have
    the relation of the budget.

    Users are identified by name: 1 to 200 printable characters in normal form NFC, without space at
    either end. Names are case-sensitive, and letters that look alike are distinct.

    The participants and the charges may depend on the data of a user only through earlier releases.
    Under add-remove, charge all invited users, whether or not their data arrived. The contents of
    the ledger (who took part, and when) are not private.

    >>> import tempfile
    >>> from dpcore import DiscreteGaussian, Mechanism
    >>> count = Mechanism(noise=DiscreteGaussian(sigma_squared=4), sensitivity=1)
    >>> with (
    ...     tempfile.TemporaryDirectory() as folder,
    ...     Ledger.create(f"{folder}/ledger.db", budget="rho=1/2") as ledger,
    ... ):
    ...     receipt = ledger.charge(["ada", "bob"], count, batch="monday", rows_per_user=1)
    ...     receipt.paid, ledger.remaining("ada"), ledger.remaining("eve")
    (2, {'rho': Fraction(3, 8)}, {'rho': Fraction(1, 2)})

    One object may be used by many threads, and many processes may open one ledger.
    """

    def __init__(self, store: Store, book: Book) -> None:
        self._store = store
        self._book = book
        self._last: tuple[tuple[Priceable, int | None], _Cost] | None = None
        # A server already groups the commits of several callers.
        self._take = Queue(store, book, self._charged).take if store.is_file else self._charged

    # -- opening ------------------------------------------------------------------------------

    @classmethod
    def create(cls, url: str, *, budget: Word | Filter | str, renews: str | None = None) -> Self:
        r"""Create a ledger with this budget, or open the existing ledger.

        ``url`` is a path, ``sqlite:///path`` or ``postgresql://user@host/database``. The budget may
        be text, such as ``"epsilon=4"``; its relation is then replace. Give a ``Filter`` to choose
        the parameters of the filter, such as the slack of an Approx budget.

        With ``renews`` the budget is for each ``"year"``, ``"month"`` or ``"day"`` of the calendar,
        in UTC. A charge counts in the period in which it is made, and all users have the whole
        budget at the start of a period. A user who takes part in k periods has the guarantee of k
        budgets together (:meth:`together`); there is no guarantee for an unlimited number of
        periods. The clock must be right: a clock set forward starts the next period early, and
        charges are refused with :class:`LedgerUnavailable` while the clock is before the period of
        the last charge.

        Raises :class:`InvalidParameter` if the budget is not per user, or if the budget or
        ``renews`` differs from that of an existing ledger.
        """
        budget = _read(budget)
        chosen = budget if isinstance(budget, Filter) else filter_for(budget)
        if chosen.budget.scope.unit is not Unit.USER or chosen.budget.scope.group > 1:
            reason = "must have scope unit 'user' and no group: a ledger keeps users' budgets"
            raise InvalidParameter("budget", chosen.budget, reason)
        book = Book(chosen, renews)
        with closing(Store(url)) as store, store.writing(create=True) as connection:
            if not store.has_tables(connection):
                store.settle_here(book.identity)
                book.begin(connection)
        return cls.open(url, budget=budget, renews=renews)

    @classmethod
    def open(
        cls, url: str, *, budget: Word | Filter | str | None = None, renews: str | None = None
    ) -> Self:
        r"""Open a ledger; ``budget`` and ``renews``, if given, must be as in :meth:`create`.

        If ``budget`` is given without ``renews``, the ledger must be one whose budget never renews.

        Raises :class:`LedgerUnavailable` if there is no ledger, :class:`LedgerDamaged` if its
        filter cannot be read, and :class:`InvalidParameter` if ``budget`` or ``renews`` differs.
        """
        budget = None if budget is None else _read(budget)
        with ExitStack() as undo:
            store = undo.enter_context(closing(Store(url)))
            with store.reading() as connection:
                store.must_hold_tables(connection)
                book = Book.stored(connection)
            kept = book.filter if isinstance(budget, Filter) else book.filter.budget
            if budget is not None and kept.to_json() != budget.to_json():
                reason = (
                    f"must be {_format_budget(kept)}, as in this ledger: a budget never changes"
                )
                raise InvalidParameter("budget", _format_budget(budget), reason)
            if (budget is not None or renews is not None) and renews != book.renews:
                reason = (
                    f"must be {book.renews or 'never'}, as in this ledger: a budget never changes"
                )
                raise InvalidParameter("renews", renews or "never", reason)
            undo.pop_all()
        return cls(store, book)

    def close(self) -> None:
        r"""Close the database connections; they are opened again at the next use of the ledger."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        renews = "" if self.renews is None else f", renews={self.renews!r}"
        return f"Ledger({self._store.where!r}, budget={self.budget.text!r}{renews})"

    @property
    def filter(self) -> Filter:
        r"""The privacy filter, which decides whether a charge is within the budget."""
        return self._book.filter

    @property
    def budget(self) -> Word:
        r"""The guarantee to each user for all releases, or for all releases of one period."""
        return self._book.filter.budget

    @property
    def renews(self) -> str | None:
        r"""The period of the budget, ``"year"``, ``"month"`` or ``"day"``; None for all time."""
        return self._book.renews

    def together(self, periods: int) -> Word:
        r"""The guarantee to each user for ``periods`` periods, a number fixed in advance.

        It is the adaptive composition of ``periods`` budgets: the limits of the filter's counters
        (e.g. epsilon, or rho and delta for an (epsilon, delta) budget) are multiplied by
        ``periods``.
        """
        return self.filter.together(integer("periods", periods, at_least=1))

    # -- charging -----------------------------------------------------------------------------

    @overload
    def charge(
        self, release: Release, /, *, rows_per_user: int | None = ..., repeat_ok: bool = ...
    ) -> Receipt: ...
    @overload
    def charge(
        self,
        users: Iterable[str],
        guarantee: Source,
        /,
        *,
        batch: str,
        rows_per_user: int | None = ...,
        skip_exhausted: bool = ...,
        repeat_ok: bool = ...,
    ) -> Receipt: ...
    @overload
    def charge(
        self,
        guarantee: Source,
        /,
        *,
        users: Iterable[str],
        batch: str,
        rows_per_user: int | None = ...,
        skip_exhausted: bool = ...,
        repeat_ok: bool = ...,
    ) -> Receipt: ...
    def charge(
        self,
        first: Iterable[str] | Source | Release,
        second: Source | None = None,
        /,
        *,
        users: Iterable[str] | None = None,
        batch: str | None = None,
        rows_per_user: int | None = None,
        skip_exhausted: bool = False,
        repeat_ok: bool = False,
    ) -> Receipt:
        r"""Charge each of ``users`` for a release of ``guarantee``: all users, or none.

        Call it before the release, and release only after it returns. A guarantee for one
        contribution (the default scope of a mechanism) needs ``rows_per_user``, the largest number
        of rows of one user in the batch: k rows cost k epsilon, or k^2 rho. With
        ``skip_exhausted``, users with too little budget are left out and listed; they must not take
        part. Give a :class:`Composition` to charge several queries together. A :class:`Release`
        states users, mechanism and batch: create it, charge it, then release.

        A second charge of the same batch, with the same users and guarantee, costs nothing and
        raises :class:`AlreadyCharged`: a batch is one release, whose noise is drawn once. With
        ``repeat_ok`` it returns the receipt again, with ``repeated`` set; use this to publish an
        old result again, or after :class:`LedgerUnavailable` if nothing was released yet.

        Raises :class:`BudgetExhausted` if a user has too little budget; :class:`InvalidParameter`
        if there are no users, a name is invalid or repeated, the scope does not fit the budget,
        ``rows_per_user`` is missing or forbidden, or the batch was charged differently before;
        :class:`NotDerived` if the guarantee has no price; :class:`LedgerUnavailable` if the
        database cannot be used; and :class:`LedgerDamaged` if the last charge, the filter, or the
        counters of a user were edited.
        """
        if isinstance(first, Release):
            if any(each is not None for each in (second, users, batch)) or skip_exhausted:
                reason = "a Release specifies users, guarantee and batch: give no other arguments"
                raise InvalidParameter("users", first, reason)
            request = Request.of(first, rows_per_user)
        else:
            given: tuple[Any, Any] = (first, second) if users is None else (users, first)
            if users is not None and second is not None:
                raise InvalidParameter("users", users, "is given twice")
            more: Any = {"rows_per_user": rows_per_user, "skip_exhausted": skip_exhausted}
            request = Request(users=given[0], guarantee=given[1], batch=cast("str", batch), **more)
        (outcome,) = self.charge_many([request], repeat_ok=repeat_ok)
        if isinstance(outcome, Receipt):
            return outcome
        raise outcome

    def release(
        self,
        mechanism: Drawable,
        value: Any,
        *,
        users: Iterable[str],
        batch: str,
        rows_per_user: int | None = None,
        question: str | None = None,
        rng: Rng = SYSTEM,
    ) -> Receipt:
        r"""Charge ``users``, draw ``mechanism.release(value)`` and store it in one transaction.

        Publish ``receipt.value``. A second call for the same batch, with the same users, mechanism
        and ``question`` (a description of the value), costs nothing and returns the stored value,
        even if ``value`` differs. A program that was interrupted can therefore call it again:
        users are charged once, and noise is drawn once.

        For local reports (``dpcore.local``) the value contains one number for each of ``users``,
        and the stored value contains their reports, in the same order unless they are shuffled.

        >>> import tempfile
        >>> from dpcore import DiscreteLaplace, Mechanism
        >>> count = Mechanism(noise=DiscreteLaplace(scale=10), sensitivity=1)
        >>> asked = {"users": ["ada", "bob"], "batch": "monday", "rows_per_user": 1}
        >>> with (
        ...     tempfile.TemporaryDirectory() as folder,
        ...     Ledger.create(f"{folder}/ledger.db", budget="epsilon=1") as ledger,
        ... ):
        ...     first, again = (ledger.release(count, 42, **asked) for _ in range(2))
        ...     first.value == again.value, again.repeated, ledger.remaining("ada")
        (True, True, {'epsilon': Fraction(9, 10)})

        Raises the errors of :meth:`charge` except :class:`AlreadyCharged`;
        :class:`InvalidParameter` if the batch was charged without a stored value, or if ``rng`` has
        a seed; and :class:`ValueLost` if the drawn value cannot be stored, although the users are
        charged. If the mechanism refuses the value, its error is raised, and nobody is charged.
        """
        refuse_seed(rng)
        request = Request(users=users, guarantee=mechanism, batch=batch)
        checked = CheckedRequest.of(request, *self._cost(mechanism, rows_per_user))
        more: dict[str, Any] = {}
        if question is not None:
            more[QUESTION] = text("question", question, "must be text")
        if not isinstance(mechanism, Mechanism):
            # Mechanisms with the same guarantee may answer differently, so the record contains the
            # mechanism.
            more[MECHANISM] = mechanism.to_json()
        act: Any = mechanism.report if isinstance(mechanism, LocalReport) else mechanism.release
        if isinstance(mechanism, LocalReport | ShuffledReports) and (
            rows_per_user not in (None, 1) or np.shape(value) != (len(checked.names),)
        ):
            reason = "must contain one number per user: each user has one row"
            raise InvalidParameter("value", value, reason)
        if isinstance(value, Mapping):
            try:
                text_of(dict.fromkeys(value))
            except (TypeError, ValueError) as error:
                reason = f"has a key that a ledger cannot store: {error}"
                raise InvalidParameter("value", "(not shown)", reason) from None
        draw, record = partial(act, value, rng=rng), {**checked.record, **more}
        (outcome,) = self._take([replace(checked, draw=draw, record=record)])
        if not isinstance(outcome, Receipt):
            raise outcome
        if isinstance(mechanism, AboveThreshold) and isinstance(outcome.value, np.ndarray):
            return replace(outcome, value=outcome.value.tolist())  # gaps are a list
        return outcome

    def charge_many(
        self, requests: Iterable[Request | Release], *, repeat_ok: bool = False
    ) -> tuple[Charged, ...]:
        r"""Charge several releases in a single transaction, and return their outcomes in order.

        Each request is charged or refused separately, as in :meth:`charge`: its outcome is a
        receipt, or the error that left its users uncharged. All charges are on the disk when this
        method returns, with a single write, so a hundred charges take little longer than one.
        Threads that charge one ledger concurrently, and processes that charge one file, share
        writes automatically.

        Raises an error, and charges nobody, if an argument of a request is invalid, or if the last
        charge or the budget was edited.
        """
        checked = [
            CheckedRequest.of(each, *self._cost(each.guarantee, each.rows_per_user))
            for each in map(Request.of, requests)
        ]
        outcomes = self._take(checked) if checked else []
        if repeat_ok:
            return tuple(outcomes)
        return tuple(
            AlreadyCharged(each) if isinstance(each, Receipt) and each.repeated else each
            for each in outcomes
        )

    def _charged(self, requests: Sequence[CheckedRequest]) -> list[Charged]:
        with self._store.writing() as connection:
            outcomes = charged(self._book, connection, requests)
            if any(isinstance(each, Receipt) and each.repeated for each in outcomes):
                self._store.settle()
        return outcomes

    def _cost(self, guarantee: Priceable, rows_per_user: int | None) -> _Cost:
        # A curve is priced once for all batches that use the same mechanism.
        last, key = self._last, (guarantee, rows_per_user)
        if last is None or last[0] != key:
            last = self._last = (key, cost(self.filter, guarantee, rows_per_user))
        return last[1]

    # -- reading ------------------------------------------------------------------------------

    def spent(self, user: str) -> Word | Assumed:
        r"""The budget that ``user`` has spent in the current period, computed from the counters.

        Unlike the budget and an odometer (``accounting.privacy_filters``), this guarantee need not
        hold at all times simultaneously. If charges depend on assumptions, the result is an
        :class:`Assumed` with their reasons.
        """
        named = name("user", user)
        with self._reading() as (connection, head):
            account = self._book.account(connection, head, named)
            charges = self._book.history(connection, named) if account.assumed else ()
        word = self.filter.spent(account.totals)
        reasons = {
            charge.guarantee["reason"]: None
            for charge in charges
            if charge.assumed and self._book.period(charge.made) == head.period
        }
        return Assumed(word, "; ".join(reasons)) if reasons else word

    def periods(self, user: str | None = None) -> dict[str, tuple[Charge, ...]]:
        r"""A mapping from the name of each period, e.g. ``"2026"``, to the charges made in it.

        Periods without charges are omitted. With ``user``, the mapping contains only the charges of
        that user. A budget for all time has one period, ``""``.
        """
        charges = groupby(self.history(user), lambda charge: self._book.period(charge.made))
        return {period: tuple(each) for period, each in charges}

    def remaining(self, user: str) -> dict[str, Fraction]:
        r"""The exact remaining budget of ``user`` in the current period, by counter name."""
        named = name("user", user)
        with self._reading() as (connection, head):
            left = self.filter.remaining(self._book.account(connection, head, named).totals)
        return dict(zip(self.filter.counters, left, strict=True))

    def left(self, user: str) -> str:
        r"""The remaining budget of ``user`` as text, rounded down."""
        with self._reading() as (connection, head):
            account = self._book.account(connection, head, name("user", user))
            return self._book.left({user: account}, user, head)

    def has(self, batch: str) -> bool:
        r"""Whether ``batch`` was charged."""
        with self._reading() as (connection, _):
            return bool(self._book.found(connection, [name("batch", batch)]))

    def exhausted(
        self, users: Iterable[str], guarantee: Priceable, *, rows_per_user: int | None = None
    ) -> tuple[str, ...]:
        r"""The ``users`` whose remaining budget does not cover ``guarantee``, sorted by name.

        Counters only increase, so these users remain exhausted in this period. Other callers may
        charge the other users in the meantime, so only :meth:`charge` decides. Raises the errors of
        :meth:`charge` if an argument is invalid.
        """
        names = sorted_names(users)
        price, _ = self._cost(guarantee, rows_per_user)
        with self._reading() as (connection, head):
            accounts, damaged = self._book.accounts(connection, head, names)
        if damaged:
            raise self._book.mismatch(min(damaged))
        return self._book.poor(accounts, names, price)

    def history(self, user: str | None = None) -> tuple[Charge, ...]:
        r"""The charges of ``user``, or all charges, in order.

        Raises :class:`LedgerDamaged` if a charge was edited.
        """
        named = None if user is None else name("user", user)
        with self._reading() as (connection, _):
            return self._book.history(connection, named)

    def users(self) -> int:
        r"""The number of users charged in the most recent period that has a charge."""
        return self._count(self._book.tables.users)

    def charges(self) -> int:
        r"""The number of charges."""
        return self._count(self._book.tables.charges)

    def _count(self, table: Table) -> int:
        with self._store.reading() as connection:
            return self._book.count(connection, table)

    def export(self) -> Iterator[str]:
        r"""Export a consistent snapshot as lines of JSON: first the filter, then each charge.

        The line of a charge contains its fields, the ``users`` charged, the users ``left_out`` and
        the released ``value``, if any, so the digests can be checked without this package (see
        docs/proofs/ledger.md).
        """
        book = self._book
        with self._reading() as (connection, _):
            charges = book.history(connection)
            yield canonical({"format": HISTORY, "filter": json.loads(book.text)})
            for charge in charges:
                users = book.names(connection, book.tables.paid, charge)
                left_out = book.names(connection, book.tables.spared, charge)
                line = {**charge.to_json(), "users": users, "left_out": left_out}
                value = book.value(connection, charge)
                yield canonical(line if value is None else {**line, "value": json.loads(value)})

    def check(self, *receipts: Receipt) -> tuple[Damage, ...]:
        r"""Verify the whole ledger, and return all inconsistencies with their locations.

        Every row that was edited, deleted or inserted is found, unless all later digests and
        counters were recomputed too. With ``receipts``, even a recomputed history is found, because
        the charges of all receipts must exist in it. At most 100 findings are returned.
        """
        book, found = self._book, list[Damage]()
        acknowledged = [(receipt.number, receipt.digest) for receipt in receipts]
        try:
            with self._store.reading() as connection:
                found.extend(islice(damages(connection, book, acknowledged), _MOST_SHOWN))
        except LedgerDamaged as damage:
            found.append(Damage(damage.where, damage.reason))
        return tuple(found)

    @contextmanager
    def _reading(self) -> Iterator[tuple[Connection, Head]]:
        with self._store.reading() as connection:
            yield connection, self._book.head(connection)


def _read(budget: Word | Filter | str) -> Word | Filter:
    if isinstance(budget, str):
        return read_claim("budget", budget, Scope(unit=Unit.USER))
    return budget


def _format_budget(budget: Word | Filter) -> str:
    if isinstance(budget, Filter):
        return repr(budget)
    return f"{budget.text} ({budget.scope.relation.value})"
