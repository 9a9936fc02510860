r"""A session: one budget over several adaptively chosen queries on one table.

The cost of each query is computed before any data are read, and the query is refused if it exceeds
the budget: the filter for this kind of budget decides
(``accounting.adaptive_composition``), so queries may depend on earlier answers. With
a ledger the users' budgets hold as well, and answers are stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from accounting.adaptive_composition import AtAllTimes, Odometer, Price, filter_for
from accounting.composition.compose import Composition, compose
from accounting.guarantees.stated_guarantees import Word, read_claim
from accounting.ledger.charge_request import cost
from accounting.ledger.errors import BudgetExhausted, LedgerUnavailable, ValueLost
from accounting.queries.query import Query, Target
from accounting.queries.release_answer import CONFIDENCE, Released, plan, release
from accounting.queries.table import Table, TableScope
from dpcore.cli.terminal import html_table
from dpcore.errors import DpcoreError, InvalidParameter
from dpcore.numbers.parameter import RationalLike
from dpcore.numbers.rounding import down
from dpcore.sampling.rng import SYSTEM, Rng

if TYPE_CHECKING:
    from accounting.ledger import Ledger

_EVERYBODY: Final = "everybody"


class Session:
    r"""Query ``table`` until ``budget`` is spent: ``budget`` is text such as ``"epsilon=1"``.

    >>> import polars
    >>> from accounting.queries import Count
    >>> table = polars.DataFrame({"user": ["ada", "bob", "bob"]})
    >>> session = Session(table, TableScope(user="user"), budget="epsilon=1")
    >>> found = session.ask(Count(), epsilon="3/4")
    >>> session
    Session(spent epsilon=3/4, left epsilon=1/4)
    >>> session.ask(Count(), epsilon="1/2")
    Traceback (most recent call last):
    ...
    accounting.ledger.errors.BudgetExhausted: batch 'count 2': 1 of 1 users has too little ...
    """

    def __init__(
        self,
        table: Any,
        scope: TableScope,
        budget: str,
        ledger: Ledger | None = None,
        *,
        users: Iterable[str] | None = None,
        rng: Rng = SYSTEM,
    ) -> None:
        self._table, self._scope, self._ledger = Table.of(table), scope, ledger
        self._table.require(scope.user, argument="user")
        self._filter = filter_for(read_claim("budget", budget, scope.scope))
        self._total = (0,) * len(self._filter.limits)
        self._users = None if users is None else tuple(users)
        self._rng = rng
        self._lock = RLock()
        self.answers: list[Released] = []
        r"""All released answers, in order."""

    def ask(
        self,
        query: Query,
        *,
        epsilon: RationalLike | None = None,
        rho: RationalLike | None = None,
        delta: RationalLike = 0,
        batch: str | None = None,
        confidence: RationalLike = CONFIDENCE,
    ) -> Released:
        r"""Answer ``query`` with this part of the budget.

        ``batch`` names the release in the ledger, and must be given if there is one. An answer that
        the ledger has stored under this name costs the session nothing.

        Raises :class:`BudgetExhausted` if the cost exceeds the remaining budget; no data are read.
        """
        target = Target(epsilon=epsilon, rho=rho, delta=delta)
        if self._ledger is not None and batch is None:
            reason = "must name this release: a ledger returns the stored answer for a known name"
            raise InvalidParameter("batch", batch, reason)
        named = batch or f"{query.name} {len(self.answers) + 1}"
        price, _ = cost(self._filter, plan(query, self._scope, target).mechanism)
        stored = self._ledger is not None and self._ledger.has(named)
        if not stored:
            self._pay(named, price)
        try:
            found = release(
                query,
                self._table,
                self._scope,
                target,
                ledger=self._ledger,
                batch=named if self._ledger is not None else None,
                users=self._users,
                confidence=confidence,
                rng=self._rng,
            )
        except (LedgerUnavailable, ValueLost):
            raise  # The cost stays spent: the answer was drawn, or may have been stored.
        except DpcoreError:
            if not stored:
                self._add(price, -1)  # Refused before anything was drawn.
            raise
        if found.repeated and not stored:
            self._add(price, -1)
        self.answers.append(found)
        return found

    def _pay(self, named: str, price: Price) -> None:
        # Charge before the release: other threads may ask, and an interrupt may follow the draw.
        with self._lock:
            if not self._filter.admits(self._total, price):
                left = {_EVERYBODY: self._left()}
                charge = self._filter.format_cost(price)
                raise BudgetExhausted(named, (_EVERYBODY,), 1, left, charge)
            self._add(price, 1)

    def _add(self, price: Price, times: int) -> None:
        with self._lock:
            pairs = zip(self._total, price.amounts, strict=True)
            self._total = tuple(held + times * amount for held, amount in pairs)

    @property
    def spent(self) -> Word:
        r"""The guarantee spent so far, by the counters of the budget."""
        return self._filter.spent(self._total)

    @property
    def remaining(self) -> dict[str, Fraction]:
        r"""The exact remaining budget, by counter name."""
        return dict(zip(self._filter.counters, self._filter.remaining(self._total), strict=True))

    def odometer(self, slack: RationalLike | None = None) -> AtAllTimes:
        r"""A bound on the privacy spent so far that holds at all times; see :class:`Odometer`.

        ``slack`` is its delta, in (0, 1); a pure budget needs none.
        """
        return Odometer(filter=self._filter, slack=slack).read(self._total)

    @property
    def total(self) -> Composition:
        r"""The composition of all answers, e.g. for :func:`accounting.certify`.

        It holds if the noise of each answer was chosen beforehand; queries may be adaptive. Raises
        :class:`InvalidParameter` before the first answer.
        """
        return compose(*(each.guarantee for each in self.answers))

    def _left(self) -> str:
        return self._filter.format(self._filter.remaining(self._total), down)

    def __repr__(self) -> str:
        return f"Session(spent {self.spent.text}, left {self._left()})"

    def _repr_html_(self) -> str:
        rows = [(each.query.name, each.value, each.target.text) for each in self.answers]
        return html_table(repr(self), rows)
