r"""Release the answer of a query, or of several in a session with one budget.

With a ledger, a release is charged to the users, and the answer is stored with the charge.
Every printed number follows from the released integers, the query and the mechanism. The target
guarantee, the mechanism and the users' budgets are checked before any queried column is read.

In a session the cost of each query is computed before any data are read. A filter
(``accounting.privacy_filters``) refuses a query whose cost exceeds the remaining budget, so queries
may depend on earlier answers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from accounting.composition.compose import Composition, compose
from accounting.derive_guarantee import guarantee
from accounting.errors import NotDerived
from accounting.guarantees.guarantee import Guarantee
from accounting.guarantees.stated_guarantees import Word, ZCdp, read_claim
from accounting.ledger.charge_request import cost, refuse_seed
from accounting.ledger.errors import BudgetExhausted, LedgerUnavailable, Receipt, ValueLost
from accounting.privacy_filters import AtAllTimes, Odometer, Price, filter_for
from accounting.queries.count_sum_mean_quantile import (
    Additive,
    Answer,
    Mean,
    Query,
    Target,
    scaled,
    spread,
)
from accounting.queries.table_with_rows_per_user import Table, TableScope
from dpcore.cli.terminal import html_table
from dpcore.errors import ABSENT, DpcoreError, InvalidParameter
from dpcore.mechanism import Mechanism, Relation
from dpcore.numbers.parameter import RationalLike, rational_in
from dpcore.numbers.rounding import down, up
from dpcore.parse_noise import write_noise
from dpcore.sampling.rng import SYSTEM, Rng, SeededRng
from dpcore.selection import NoisyThreshold, Selection

if TYPE_CHECKING:
    from accounting.ledger import Ledger
    from accounting.ledger.charge_request import Releasable

CONFIDENCE: Final = Fraction(95, 100)
_LONGEST: Final = 1000
_EVERYBODY: Final = "everybody"
_SUCH: Final[dict[type, str]] = {
    Query: "Count()",
    TableScope: 'TableScope(user="user_id")',
    Target: 'Target(epsilon="1/2")',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    r"""A released answer with its guarantee; ``value`` is None if it was only planned.

    Each interval contains the query's answer on the clipped and rounded data with probability at
    least ``confidence`` under the exact law of the noise, apart from the errors in ``note``.
    ``receipt`` is the receipt of the ledger, or None without a ledger. ``private`` is False if the
    noise came from a seed.
    """

    query: Query
    scope: TableScope
    target: Target
    mechanism: Releasable = field(repr=False)
    answer: Answer
    confidence: Fraction = CONFIDENCE
    receipt: Receipt | None = None
    private: bool = True

    @property
    def value(self) -> Any:
        return self.answer.value

    @property
    def standard_error(self) -> float | None:
        r"""The standard error due to the noise; None if it would depend on unreleased data."""
        return self.answer.standard_error

    @property
    def interval(self) -> Any:
        r"""The confidence interval, or a mapping from keys to intervals; None if unknown."""
        return self.answer.interval

    @property
    def note(self) -> str:
        r"""The errors that the interval does not cover; "" if the release was only planned."""
        if self.value is None:
            return ""
        rows = self.scope.rows_per_user
        few, verb = ("1 row", "is") if rows == 1 else (f"{rows} rows", "are")
        counted = f"at most {few} of each user, chosen at random, {verb} counted"
        return "; ".join(filter(None, (counted, self.answer.note)))

    @property
    def repeated(self) -> bool:
        r"""True if the ledger already contained this answer; then no user was charged again."""
        return self.receipt is not None and self.receipt.repeated

    @property
    def noise(self) -> str:
        r"""The law of the noise, or the selection mechanism, as text."""
        match self.mechanism:
            case Mechanism():
                return write_noise(self.mechanism.noise)
            case NoisyThreshold():
                noise = write_noise(self.mechanism.mechanism.noise)
                return f"{noise}, threshold {self.mechanism.threshold}"
        made = self.mechanism
        text = f"{made.rule.value}:epsilon={made.epsilon},sensitivity={made.sensitivity}"
        # The epsilon is for all choices together.
        text += f",count={made.count}" * (made.count > 1)
        return text + ",monotonic=yes" * made.monotonic

    @property
    def guarantee(self) -> Guarantee:
        r"""The guarantee to each user, derived from the mechanism."""
        return guarantee_of(self.mechanism)

    def privacy_parameters(self) -> dict[str, Fraction]:
        r"""The parameters of the guarantee, named as in the target and rounded up.

        For a noisy threshold, epsilon or rho is that of the noisy counts, and delta is the
        probability of revealing a key.
        """
        whole: Any = self.guarantee
        delta, pure = Fraction(self.target.delta), self.target.rho is None
        more: dict[str, Any] = {}
        if pure and delta and isinstance(self.mechanism, Mechanism):
            return {"epsilon": epsilon_at(whole, delta), "delta": delta}
        if isinstance(self.mechanism, NoisyThreshold):
            (whole, _), (appears, _) = whole.parts
            more = {"delta": Fraction(appears.delta(0).upper)}
        found = whole.pure() if pure else whole.zcdp()
        return {"epsilon" if pure else "rho": Fraction(found.upper), **more}

    def __repr__(self) -> str:
        value = self.value
        text = f"{float(value):.12g}" if isinstance(value, Fraction) else repr(value)
        found = [f"{word}={up(n, 6)}" for word, n in self.privacy_parameters().items()]
        return f"Released({self.query.name}: {text}, {', '.join(found)})"


def guarantee_of(mechanism: Releasable) -> Guarantee:
    r"""The guarantee of a query's mechanism."""
    if isinstance(mechanism, NoisyThreshold):
        from accounting.composition.partition_selection_guarantee import threshold_guarantee

        return threshold_guarantee(mechanism)
    return guarantee(mechanism)


def epsilon_at(found: Guarantee, delta: Fraction) -> Fraction:
    r"""An upper bound on epsilon at ``delta``, from zCDP if the privacy curve cannot be derived."""
    try:
        return Fraction(found.epsilon(delta).upper)
    except NotDerived:
        return Fraction(ZCdp(Fraction(found.zcdp().upper)).epsilon(delta).upper)


def _require(**given: tuple[object, type]) -> None:
    for argument, (value, kind) in given.items():
        if not isinstance(value, kind):
            must = f"must be a {kind.__name__}, such as {_SUCH[kind]}"
            raise InvalidParameter(argument, value, must)


def plan(
    query: Query, scope: TableScope, target: Target, confidence: Fraction = CONFIDENCE
) -> Released:
    r"""The release without its value: no data are read, no noise is drawn, no user is charged."""
    _require(query=(query, Query), scope=(scope, TableScope), target=(target, Target))
    mechanism = query.mechanism(scope, target)
    error: float | None = None
    if isinstance(query, Additive):
        law = mechanism.mechanism if isinstance(mechanism, NoisyThreshold) else mechanism
        assert not isinstance(law, Selection)  # noqa: S101  # additive noise
        # Noise without a standard error or an interval is refused here, before the draw.
        each = 1 - (1 - confidence) / 2 if isinstance(query, Mean) else confidence
        try:
            found = scaled(spread(law.noise, each)[0], Fraction(query.unit))
        except InvalidParameter as beyond:
            word = "epsilon" if target.rho is None else "rho"
            range_, _, _ = beyond.reason.partition(";")
            reason = f"needs noise whose interval cannot be computed: {range_}"
            raise InvalidParameter(word, getattr(target, word), reason) from beyond
        error = None if isinstance(query, Mean) else found
    answer = Answer(None, error, None)
    return Released(query=query, scope=scope, target=target, mechanism=mechanism, answer=answer)


def release(  # noqa: PLR0913 - one release, by keyword
    query: Query,
    table: Any,
    scope: TableScope,
    target: Target,
    *,
    ledger: Ledger | None = None,
    batch: str | None = None,
    users: Iterable[str] | None = None,
    confidence: RationalLike = CONFIDENCE,
    rng: Rng = SYSTEM,
) -> Released:
    r"""Answer ``query`` about ``table`` within ``target``.

    With a ``ledger`` the release is named ``batch``, charged to ``users`` and stored: a repeated
    call returns the same answer. Under replace, ``users`` are by default the users in the table,
    who are public. Under add-remove ``users`` must be given: all invited users, with or without
    rows.

    >>> import polars
    >>> from accounting.queries import Count
    >>> table = polars.DataFrame({"user": ["ada", "bob", "bob"]})
    >>> scope, target = TableScope(user="user", rows_per_user=2), Target(epsilon=40)
    >>> release(Count(), table, scope, target).value in range(-5, 12)
    True

    Raises :class:`BudgetExhausted` if a user has too little budget, after reading only the column
    of users, and :class:`InvalidParameter` if the table cannot be read as requested; in both cases
    nobody is charged.
    """
    sure = rational_in("confidence", confidence, "(0, 1)")
    planned = plan(query, scope, target, sure)
    mechanism, rows = planned.mechanism, Table.of(table)
    rows.require(scope.user, argument="user")
    rows.require(*query.columns)
    if ledger is None:
        if batch is not None:
            raise InvalidParameter("batch", batch, "is valid only with a ledger")
        receipt, drawn = None, mechanism.release(query.encode(rows, scope, rng), rng=rng)
    else:
        receipt = _paid(planned, rows, ledger, batch, users, rng)
        drawn = receipt.value
    answer, private = query.answer(drawn, mechanism, sure), not isinstance(rng, SeededRng)
    return replace(planned, answer=answer, confidence=sure, receipt=receipt, private=private)


def _paid(
    planned: Released,
    table: Table,
    ledger: Ledger,
    batch: str | None,
    users: Iterable[str] | None,
    rng: Rng,
) -> Receipt:
    refuse_seed(rng)
    if batch is None:
        raise InvalidParameter("batch", ABSENT, "must be given: the name of the release")
    mechanism, scope = planned.mechanism, planned.scope
    if users is None and scope.relation is Relation.ADD_REMOVE:
        reason = (
            "must be given under add-remove: all invited users, with or without rows; the users "
            "of the table would reveal who is in it"
        )
        raise InvalidParameter("users", ABSENT, reason)
    # The users who are charged are those whose rows are counted.
    with table.unchanged():
        present = table.users(scope)
        charged = present if users is None else list(users)
        if not charged:
            raise InvalidParameter("table", table.name, "has no rows: there is no user to charge")
        others = set(present).difference(charged)
        if others:
            reason = "has rows, but is not among the charged users"
            raise InvalidParameter("users", min(others), reason)
        value = None
        if not ledger.has(batch):
            poor = ledger.exhausted(charged, mechanism)
            if poor:
                left = {name: ledger.left(name) for name in poor[:3]}
                price = ledger.filter.format_cost(cost(ledger.filter, mechanism)[0])
                raise BudgetExhausted(batch, poor, len(charged), left, price)
            value = planned.query.encode(table, scope, rng)
    question = f"{planned.query!r} for {scope!r}"
    if len(question) > _LONGEST:
        digest = hashlib.sha256(question.encode()).hexdigest()
        question = f"{question[: _LONGEST - len(digest)]}{digest}"
    return ledger.release(mechanism, value, users=charged, batch=batch, question=question, rng=rng)


class Session:
    r"""Queries on ``table`` that share one ``budget``, given as text such as ``"epsilon=1"``.

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
        _require(scope=(scope, TableScope))
        self._table, self._scope, self._ledger = Table.of(table), scope, ledger
        self._table.require(scope.user, argument="user")
        self._filter = filter_for(read_claim("budget", budget, scope.scope))
        self._total = (0,) * len(self._filter.limits)
        people = None if users is None else tuple(users)
        self._given: dict[str, Any] = {"ledger": ledger, "users": people, "rng": rng}
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
        r"""Answer ``query`` within the target given by ``epsilon``, ``rho`` and ``delta``.

        ``batch`` names the release in the ledger, and must be given if the session has a ledger. An
        answer that the ledger has already stored under this name costs nothing.

        Raises :class:`BudgetExhausted` if the cost exceeds the remaining budget of the session,
        before any data are read, or that of a user in the ledger, as in :func:`release`.
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
            name = None if self._ledger is None else named
            asked = {"batch": name, "confidence": confidence, **self._given}
            found = release(query, self._table, self._scope, target, **asked)
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
        r"""The guarantee of the answers so far, if all noise was chosen beforehand."""
        return self._filter.spent(self._total)

    @property
    def remaining(self) -> dict[str, Fraction]:
        r"""The exact remaining budget of each summed quantity, such as epsilon or rho."""
        return dict(zip(self._filter.counters, self._filter.remaining(self._total), strict=True))

    def odometer(self, slack: RationalLike | None = None) -> AtAllTimes:
        r"""A bound on the privacy spent so far that holds at all times; see :class:`Odometer`.

        ``slack`` in (0, 1) is a part of the delta of the bound; it must be None for a pure budget.
        """
        return Odometer(filter=self._filter, slack=slack).read(self._total)

    @property
    def total(self) -> Composition:
        r"""The composition of all answers, e.g. for :func:`accounting.certify`.

        The guarantee holds if the noise of each answer was chosen beforehand; queries may be
        adaptive. Raises :class:`InvalidParameter` if there is no answer yet.
        """
        return compose(*(each.guarantee for each in self.answers))

    def _left(self) -> str:
        return self._filter.format(self._filter.remaining(self._total), down)

    def __repr__(self) -> str:
        return f"Session(spent {self.spent.text}, left {self._left()})"

    def _repr_html_(self) -> str:
        rows = [(each.query.name, each.value, each.target.text) for each in self.answers]
        return html_table(repr(self), rows)
