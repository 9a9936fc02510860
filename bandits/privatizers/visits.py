r"""Count the visits that each user has left: in a ledger, or in memory for simulated worlds.

A book keeps what every user has spent, and is asked before each release. What one release costs is
a curve, the same in every release (``bandits.privatizers.returning``). Proofs:
docs/proofs/bandits.md.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from accounting.claims.claim import Pure, Rdp
from accounting.ledger import AlreadyCharged, Ledger
from accounting.ledger.names import name
from accounting.release.curve import PrivacyCurve
from accounting.theorems.convert import Word
from accounting.theorems.filter import SHARES, filter_for
from dpcore.errors import InvalidParameter
from dpcore.laws.binomial import Binomial
from dpcore.mechanism import Scope, Unit
from dpcore.numbers.parameter import integer

__all__ = ["Book", "LedgerBook", "MemoryBook", "Names", "people", "visits_budget", "visits_of"]

Names: TypeAlias = npt.NDArray[np.int64]
"""Users by number, in [0, M)."""

_ORDERS: Final = (2, 4, 8, 16, 32)
_MOST_VISITS: Final = 1 << 29
_MOST_PEOPLE: Final = 1 << 27
_LONGEST_RUN: Final = 100
_PLAYED: Final = "was played on this ledger before: new noise needs a new name"


def visits_budget(curve: PrivacyCurve, max_visits: int) -> Word:
    r"""The budget of a user that holds ``max_visits`` releases of ``curve``, and not one more.

    Of its epsilon, where it is pure; else of its Renyi divergences at the orders 2 to 32. A filter
    counts shares and rounds each price up, so the budget is larger than the visits by a part in
    2^61/visits at most.

    >>> from bandits.privatizers.returning import SteadyPrivatizer
    >>> from dpcore import DiscreteLaplace
    >>> steady = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=32, failure="1e-6")
    >>> visits_budget(steady.curve, 4)
    Pure(2, scope=Scope(unit='user', relation='replace'))

    Raises :class:`InvalidParameter` for visits below 1 or beyond 2^29, and for what is no curve or
    one without finite divergences.
    """
    most = visits_of(max_visits)
    _is_curve(curve)
    scope = Scope(unit=Unit.USER, relation=curve.scope.relation)
    # The least b of which ceil(SHARES cost/b) fits ``most`` times into SHARES.
    times = Fraction(SHARES, SHARES // most)
    largest = curve.pure().upper
    if isinstance(largest, Fraction):
        return Pure(largest * times, scope=scope)
    costs = {order: curve.renyi(order).upper for order in _ORDERS}
    if math.inf in costs.values():
        raise InvalidParameter("curve", curve, "must be pure or of finite Renyi divergences")
    return Rdp({order: Fraction(cost) * times for order, cost in costs.items()}, scope=scope)


def visits_of(max_visits: object) -> int:
    r"""B, an integer in [1, 2^29], or :class:`InvalidParameter` naming ``max_visits``."""
    return integer("max_visits", max_visits, at_least=1, at_most=_MOST_VISITS)


def people(users: object) -> int:
    r"""M, an integer in [1, 2^27], or :class:`InvalidParameter` naming ``users``."""
    return integer("users", users, at_least=1, at_most=_MOST_PEOPLE)


class Book(ABC):
    r"""What every user has spent on releases of one ``curve``."""

    __slots__ = ()

    @property
    @abstractmethod
    def curve(self) -> PrivacyCurve:
        r"""What one release costs each user in it."""

    @property
    @abstractmethod
    def users(self) -> int | None:
        r"""How many users there are, or None where everyone may have a line."""

    @abstractmethod
    def able(self, users: Names) -> npt.NDArray[np.bool_]:
        r"""Who of ``users`` can pay for a release; nothing is charged.

        A user who cannot pay now never can later. Of the others only :meth:`pay` decides.
        """

    @abstractmethod
    def pay(self, users: Names, release: str) -> npt.NDArray[np.bool_]:
        r"""Charges each of ``users`` for ``release``: False for those who cannot pay, and did not.

        They must not take part. Raises :class:`InvalidParameter` for a user that is none or is
        named twice, and charges nobody then.
        """


class MemoryBook(Book):
    r"""The counters of a ledger's filter, in memory, for simulated worlds.

    >>> from bandits.privatizers.returning import SteadyPrivatizer
    >>> from dpcore import DiscreteLaplace
    >>> steady = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=32, failure="1e-6")
    >>> book = MemoryBook(users=3, curve=steady.curve, max_visits=1)
    >>> book.pay(np.array([0, 2]), "a").tolist(), book.pay(np.array([0, 1]), "b").tolist()
    ([True, True], [False, True])
    >>> book.able(np.array([0, 1, 2])).tolist()
    [False, False, False]

    Raises :class:`InvalidParameter` for users outside of [1, 2^27], and as :func:`visits_budget`.
    """

    __slots__ = ("_alone", "_curve", "_limits", "_price", "totals")

    def __init__(self, *, users: int, curve: PrivacyCurve, max_visits: int) -> None:
        count = people(users)
        _is_curve(curve)
        limits, amounts = _priced(curve, visits_of(max_visits))
        self._curve, self._price, self._limits = curve, np.array(amounts), np.array(limits)
        self.totals = np.zeros((count, len(limits)), dtype=np.int64)
        self._alone = threading.Lock()

    @property
    def curve(self) -> PrivacyCurve:
        return self._curve

    @property
    def users(self) -> int:
        return len(self.totals)

    def able(self, users: Names) -> npt.NDArray[np.bool_]:
        # Below 2^62: a counter is at most SHARES, a price SHARES + 1.
        after = self.totals[_numbers(users, self.users)] + self._price
        able: npt.NDArray[np.bool_] = (after <= self._limits).all(axis=1)
        return able

    def pay(self, users: Names, release: str) -> npt.NDArray[np.bool_]:  # noqa: ARG002  # no names
        with self._alone:
            paid = self.able(users)
            self.totals[users[paid]] += self._price
        return paid


@lru_cache(maxsize=1 << 8)
def _priced(curve: PrivacyCurve, max_visits: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    # The limits of a filter that holds so many visits, and what one costs.
    if isinstance(curve.noise, Binomial):
        return (visits_of(max_visits),), (1,)  # of bits no divergence is finite: visits are counted
    budget = visits_budget(curve, max_visits)
    keeper = filter_for(budget)
    return keeper.limits, keeper.price(replace(curve, scope=budget.scope)).amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerBook(Book):
    r"""A ledger, where users are called ``user 0``, ``user 1``, and so on.

    ``run`` names this run in the ledger, and was used for no other: noise is drawn anew at every
    start, and a batch that was charged before is not charged again. Of all who play one name at
    once, one is admitted to a release. A ledger may hold the visits of several runs.

    >>> import tempfile
    >>> from bandits.privatizers.returning import SteadyPrivatizer
    >>> from dpcore import DiscreteLaplace
    >>> curve = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=32, failure="1e-6").curve
    >>> with (
    ...     tempfile.TemporaryDirectory() as folder,
    ...     Ledger.create(f"{folder}/visits.db", budget=visits_budget(curve, 1)) as ledger,
    ... ):
    ...     book = LedgerBook(ledger=ledger, curve=curve, run="monday")
    ...     book.pay(np.array([0, 2]), "a").tolist(), book.able(np.array([0, 1])).tolist()
    ([True, True], [False, True])

    Raises :class:`InvalidParameter` for what is no ledger, a curve of another relation than its
    budget's, and a run that is no name of 1 to 100 characters, or was played before;
    :class:`NotDerived` for a curve that has no price in the ledger's budget.
    """

    ledger: Ledger
    curve: PrivacyCurve = field()
    run: str

    def __post_init__(self) -> None:
        if not isinstance(self.ledger, Ledger):
            raise InvalidParameter("ledger", self.ledger, "must be a Ledger")
        _is_curve(self.curve)
        scope = self._curve.scope
        if self.curve.scope.relation is not scope.relation:
            reason = f"must have the relation of the ledger's budget, {scope.relation.value!r}"
            raise InvalidParameter("curve", self.curve, reason)
        self.ledger.filter.price(self._curve)
        # The ledger allows twice as much: the rest is for what a release is called.
        if len(name("run", self.run)) > _LONGEST_RUN:
            raise InvalidParameter("run", self.run, f"must have at most {_LONGEST_RUN} characters")

    @property
    def users(self) -> None:
        return None

    @property
    def _curve(self) -> PrivacyCurve:
        # A user sends one report to a release, so what it costs a report it costs the user.
        return replace(self.curve, scope=self.ledger.budget.scope)

    def able(self, users: Names) -> npt.NDArray[np.bool_]:
        names = _called(users)
        spent = frozenset(self.ledger.exhausted(names, self._curve) if names else ())
        return np.array([each not in spent for each in names], dtype=np.bool_)

    def pay(self, users: Names, release: str) -> npt.NDArray[np.bool_]:
        names, batch = _called(users), name("release", f"{self.run}/{release}")
        try:
            receipt = self.ledger.charge(names, self._curve, batch=batch, skip_exhausted=True)
        except (AlreadyCharged, InvalidParameter) as error:
            if isinstance(error, InvalidParameter) and error.argument != "batch":
                raise
            raise InvalidParameter("run", self.run, f"{_PLAYED} ({error})") from error
        left_out = frozenset(receipt.left_out)
        return np.array([each not in left_out for each in names], dtype=np.bool_)


def _is_curve(curve: object) -> None:
    if not isinstance(curve, PrivacyCurve):
        raise InvalidParameter("curve", curve, "must be a PrivacyCurve: what one release costs")


def _called(users: Names) -> list[str]:
    return [f"user {number}" for number in _numbers(users, _MOST_PEOPLE).tolist()]


def _numbers(users: Names, count: int) -> Names:
    if not isinstance(users, np.ndarray) or users.ndim != 1 or users.dtype.kind not in "iu":
        raise InvalidParameter("users", users, "must be a one-dimensional array of integers")
    if len(users) and not 0 <= users.min() <= users.max() < count:
        raise InvalidParameter("users", users, f"must be numbers in [0, {count})")
    if len(np.unique(users)) < len(users):
        raise InvalidParameter("users", users, "must not repeat a user: once in a release is all")
    return users
