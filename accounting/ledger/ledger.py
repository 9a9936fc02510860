r"""The ledger itself: what is charged, to whom, and what is left.

A charge is refused before the release, is whole or absent whatever happens to the process, and is
paid once however often it is tried. Proofs: docs/proofs/ledger.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from itertools import islice
from typing import Any, Final, Self, cast, overload

from sqlalchemy import Connection

from accounting.claim import Approx, Assumed, Pure, Rdp, ZCdp
from accounting.convert import Word
from accounting.curve import PrivacyCurve
from accounting.filter import Filter, Price, filter_for
from accounting.guarantee import Guarantee
from accounting.guarantee import guarantee as derived
from accounting.ledger.book import Book, Head
from accounting.ledger.check import Damage, damages
from accounting.ledger.errors import BudgetExhausted, LedgerDamaged, LedgerUnavailable
from accounting.ledger.history import FORMAT, Charge, Receipt, canonical, names_digest
from accounting.ledger.names import name, sorted_names, without
from accounting.ledger.store import Store
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Release, Unit

__all__ = ["Ledger"]

_NAMED: Final = 3
_MOST_SHOWN: Final = 100


class Ledger:
    r"""A budget for each user and the history of what was charged to it.

    The budget is a promise to a user (scope unit ``user``). A charge states what one batch costs
    each of its users: a guarantee for one contribution, which is the user's whole part in the
    batch since nobody appears twice in it, or for the user. Its relation must be the budget's.
    Users are told apart by name: 1 to 200 printable characters in normal form NFC, no space at
    either end, nothing invisible. Letters that look alike are different, and so are ``Ada`` and
    ``ada``: name people by what identifies them. Neither who takes part nor what is charged may
    depend on the data of a user, other than through what was released before; under add-remove
    charge who was asked, whether or not their data came. The ledger itself, who took part when, is
    not private.

    >>> import tempfile
    >>> from dpcore.mechanism import Scope
    >>> budget = ZCdp("1/2", scope=Scope(unit="user"))
    >>> with (
    ...     tempfile.TemporaryDirectory() as folder,
    ...     Ledger.create(f"{folder}/ledger.db", budget=budget) as ledger,
    ... ):
    ...     receipt = ledger.charge(["ada", "bob"], ZCdp("1/8"), batch="monday")
    ...     receipt.paid, ledger.remaining("ada"), ledger.remaining("eve")
    (2, {'rho': Fraction(3, 8)}, {'rho': Fraction(1, 2)})

    One object may be used by many threads, and many processes may open one ledger.
    """

    def __init__(self, store: Store, book: Book) -> None:
        self._store = store
        self._book = book
        self._last: tuple[Guarantee, Price] | None = None

    # -- opening ------------------------------------------------------------------------------

    @classmethod
    def create(cls, url: str, *, budget: Word | Filter) -> Self:
        r"""Make a ledger, or open the one that is there with this budget.

        ``url``: a path, ``sqlite:///path`` or ``postgresql://user@host/database``. A ``Filter``
        may be given where its choices matter, such as the slack of an Approx budget. Raises
        :class:`InvalidParameter` for a budget that is not per user or not the stored one.
        """
        chosen = budget if isinstance(budget, Filter) else filter_for(budget)
        if chosen.budget.scope.unit is not Unit.USER:
            raise InvalidParameter(
                "budget",
                chosen.budget,
                "must have scope unit 'user': a ledger keeps users' budgets",
            )
        with closing(Store(url)) as store, store.creating() as connection:
            if not store.has_tables(connection):
                Book.of(chosen).begin(connection)
        return cls.open(url, budget=budget)

    @classmethod
    def open(cls, url: str, *, budget: Word | Filter | None = None) -> Self:
        r"""Open a ledger; with a ``budget``, only if it is the stored one.

        Raises :class:`LedgerUnavailable` when there is none, :class:`LedgerDamaged` when its
        filter cannot be read, and :class:`InvalidParameter` for another budget.
        """
        with ExitStack() as undo:
            store = undo.enter_context(closing(Store(url)))
            book = _opened(store)
            kept = book.filter if isinstance(budget, Filter) else book.filter.budget
            if budget is not None and kept.to_json() != budget.to_json():
                raise InvalidParameter(
                    "budget", budget, f"is not the ledger's, {kept!r}: a budget never changes"
                )
            undo.pop_all()
        return cls(store, book)

    def close(self) -> None:
        r"""Give back the database's connections. The ledger may be used again."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def filter(self) -> Filter:
        r"""The filter that decides what is admitted, with its theorem."""
        return self._book.filter

    @property
    def budget(self) -> Word:
        r"""What everything ever released promises each user."""
        return self._book.filter.budget

    # -- charging -----------------------------------------------------------------------------

    @overload
    def charge(self, users: Release) -> Receipt: ...
    @overload
    def charge(
        self,
        users: Iterable[str],
        guarantee: Guarantee,
        *,
        batch: str,
        skip_exhausted: bool = ...,
    ) -> Receipt: ...
    def charge(
        self,
        users: Iterable[str] | Release,
        guarantee: Guarantee | None = None,
        *,
        batch: str | None = None,
        skip_exhausted: bool = False,
    ) -> Receipt:
        r"""Charge each of ``users`` for one release of ``guarantee``: all of them, or nobody.

        Call it before the release, and release only when it returns. With ``skip_exhausted``
        those who cannot pay are left out and named; they must not take part. The same batch again,
        with the same users and the same guarantee, is acknowledged again and not paid again, and
        the receipt says ``repeated``: a batch is one release, whose noise is drawn once. Noise
        drawn anew is another batch.

        A :class:`Release` states users, mechanism and batch: write the record, charge it, then
        release.

        Raises :class:`BudgetExhausted`; :class:`InvalidParameter` for no users, a name that is
        none or appears twice, a scope that does not fit, a batch that was charged otherwise;
        :class:`NotDerived` for a guarantee without a price; :class:`LedgerUnavailable`; and
        :class:`LedgerDamaged` when the last charge, or the filter, was edited.
        """
        if isinstance(users, Release):
            if guarantee is not None or batch is not None or skip_exhausted:
                raise InvalidParameter(
                    "users", users, "a Release says who, what and which batch: give nothing else"
                )
            people: Iterable[str] = users.participants
            guarantee, batch = derived(users.mechanism), users.batch
        else:
            people = users
        named = name("batch", batch)
        names = sorted_names(people)
        charged = self._for_user(guarantee)
        price = self._price(charged)
        with self._store.writing() as connection:
            book = self._book
            head = book.head(connection, lock=True)
            made = book.find(connection, named)
            if made is not None:
                spared = book.names(connection, book.tables.spared, made)
                _same(made, names, charged, price, spared, skip_exhausted=skip_exhausted)
                self._store.settle()
                return Receipt.of(made, spared, repeated=True)
            poor = book.poor(connection, names, price)
            if poor and not skip_exhausted:
                left = book.left(connection, poor[:_NAMED])
                raise BudgetExhausted(named, poor, len(names), left)
            paying = without(names, poor)
            charge = _charge(head, named, charged, price, paying, poor)
            book.write(connection, charge, paying, poor)
        return Receipt.of(charge, poor, repeated=False)

    def _for_user(self, guarantee: object) -> Guarantee:
        if not isinstance(guarantee, (Pure, ZCdp, Rdp, Approx, Assumed, PrivacyCurve)):
            raise InvalidParameter("guarantee", guarantee, "must be a claim or a PrivacyCurve")
        scope = self.budget.scope
        if guarantee.scope.relation is not scope.relation:
            raise InvalidParameter(
                "scope",
                guarantee.scope,
                f"must have the relation of the budget, {scope.relation.value!r}: mixed scopes "
                "never compose",
            )
        # A user appears once in a batch: one contribution is all that the user puts into it.
        if isinstance(guarantee, Assumed):
            return replace(guarantee, guarantee=replace(guarantee.guarantee, scope=scope))
        return replace(guarantee, scope=scope)

    def _price(self, guarantee: Guarantee) -> Price:
        # A curve is priced once, however many batches run the same mechanism.
        last = self._last
        if last is None or last[0] != guarantee:
            last = self._last = (guarantee, self.filter.price(guarantee))
        return last[1]

    # -- reading ------------------------------------------------------------------------------

    def spent(self, user: str) -> Word | Assumed:
        r"""What the counters of ``user`` stand at, as a claim: the filter's counter, at once.

        It is no statement that holds at all times together: that is the budget, or an odometer
        (``accounting.odometer``). What rests on assumptions says so, with all their reasons.
        """
        named = name("user", user)
        with self._reading() as connection:
            totals, assumed = self._book.totals(connection, named)
            charges = self._book.history(connection, named) if assumed else ()
        word = self.filter.spent(totals)
        reasons = {charge.guarantee["reason"]: None for charge in charges if charge.assumed}
        return Assumed(word, "; ".join(reasons)) if reasons else word

    def remaining(self, user: str) -> dict[str, Fraction]:
        r"""What ``user`` may still be charged, exact, by the name of each counter."""
        named = name("user", user)
        with self._reading() as connection:
            totals, _ = self._book.totals(connection, named)
        return dict(zip(self.filter.counters, self.filter.remaining(totals), strict=True))

    def exhausted(self, users: Iterable[str], guarantee: Guarantee) -> tuple[str, ...]:
        r"""Those of ``users`` who cannot pay for ``guarantee`` any more, in order of name.

        They never will: counters only rise. Of the others nothing is promised, since somebody else
        may charge them first: :meth:`charge` decides. Errors of the arguments as there.
        """
        names = sorted_names(users)
        price = self._price(self._for_user(guarantee))
        with self._reading() as connection:
            return self._book.poor(connection, names, price)

    def history(self, user: str | None = None) -> tuple[Charge, ...]:
        r"""The charges that ``user`` paid, or all there are, in order.

        Raises :class:`LedgerDamaged`, as the questions above do, for a charge that was edited.
        """
        named = None if user is None else name("user", user)
        with self._reading() as connection:
            return self._book.history(connection, named)

    def users(self) -> int:
        r"""How many users have been charged."""
        with self._store.reading() as connection:
            return self._book.count(connection, self._book.tables.users)

    def charges(self) -> int:
        r"""How many charges there are."""
        with self._store.reading() as connection:
            return self._book.count(connection, self._book.tables.charges)

    def export(self) -> Iterator[str]:
        r"""Everything, as it is at one moment, as lines of JSON: the filter, then each charge.

        A charge is its row, ``users`` who paid and ``left_out``, so the digests can be checked
        without this package (docs/proofs/ledger.md says how).
        """
        book = self._book
        with self._reading() as connection:
            charges = book.history(connection)
            yield canonical({"format": FORMAT, "filter": self.filter.to_json()})
            for charge in charges:
                users = book.names(connection, book.tables.paid, charge)
                left_out = book.names(connection, book.tables.spared, charge)
                yield canonical({**charge.to_json(), "users": users, "left_out": left_out})

    def check(self, *receipts: Receipt) -> tuple[Damage, ...]:
        r"""Read the whole ledger: everything that does not fit, and where; nothing if it is whole.

        Finds any row that was edited, taken out or put in by someone who did not also recompute
        every digest and counter after it. Against one who did there are the receipts: what they
        acknowledge must be there. At most 100 findings are given.
        """
        book, found = self._book, list[Damage]()
        acknowledged = [(receipt.number, receipt.digest) for receipt in receipts]
        try:
            with self._store.reading() as connection:
                every = damages(
                    connection, book.tables, book.filter.counters, book.text, acknowledged
                )
                found.extend(islice(every, _MOST_SHOWN))
        except LedgerDamaged as damage:
            found.append(Damage(where=damage.where, what=damage.what))
        return tuple(found)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self._store.reading() as connection:
            self._book.head(connection)
            yield connection


def _opened(store: Store) -> Book:
    store.must_be_there()
    with store.reading() as connection:
        if not store.has_tables(connection):
            raise LedgerUnavailable(store.where, "holds no ledger: create one with a budget")
        return Book.read(connection)


def _charge(
    head: Head,
    batch: str,
    guarantee: Guarantee,
    price: Price,
    paying: tuple[str, ...],
    spared: tuple[str, ...],
) -> Charge:
    return Charge(
        number=head.charges + 1,
        batch=batch,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        guarantee=_plain(guarantee),
        amounts=price.amounts,
        assumed=bool(price.assumptions),
        paid=len(paying),
        spared=len(spared),
        paid_digest=names_digest(paying),
        spared_digest=names_digest(spared),
        previous=head.digest,
    )


def _plain(guarantee: Guarantee) -> dict[str, Any]:
    # As it is when it comes back from the database.
    return cast("dict[str, Any]", json.loads(canonical(guarantee.to_json())))


def _same(
    made: Charge,
    names: tuple[str, ...],
    guarantee: Guarantee,
    price: Price,
    spared: tuple[str, ...],
    *,
    skip_exhausted: bool,
) -> None:
    paying = without(names, spared)
    if price.amounts != made.amounts:
        raise InvalidParameter("batch", made.batch, "was charged before, at another price")
    if _plain(guarantee) != made.guarantee:
        raise InvalidParameter("batch", made.batch, "was charged before, for another guarantee")
    if len(paying) + len(spared) != len(names) or names_digest(paying) != made.paid_digest:
        raise InvalidParameter("batch", made.batch, "was charged before, for other users")
    if spared and not skip_exhausted:
        raise InvalidParameter("batch", made.batch, "was charged before, leaving users out")
