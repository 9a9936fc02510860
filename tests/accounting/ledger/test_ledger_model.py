"""Stateful tests of the ledger against a dictionary, over sequences found by hypothesis."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

import accounting.ledger.charge_or_refuse
import accounting.ledger.ledger
import accounting.privacy_filters
from accounting.ledger import BudgetExhausted, Ledger, LedgerUnavailable, hash_chain
from accounting.ledger.charge_or_refuse import Book
from accounting.privacy_filters import SHARES
from tests.day_and_nightly import by_day, effort
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refusal
from tests.support.ledger.budget import BUDGET, per_user

USERS = ("ada", "bob", "cid")
PRICES = ("1/2", "1/3", "1/13", "2/5", "1", "3/2")


class Against(RuleBasedStateMachine):
    """The model: ``spent`` is the exact amount charged per user; ``made`` records each batch."""

    renews: ClassVar[str | None] = None

    def __init__(self, url: str | None = None) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.url = url or str(Path(self.folder.name, "ledger.db"))
        self.ledger = Ledger.create(self.url, budget=BUDGET, renews=self.renews)
        self.today, self.last = date(2026, 12, 30), date.min  # last: date of the last charge
        self.clock, hash_chain.now = hash_chain.now, self.now
        self.counters = dict.fromkeys(USERS, 0)
        self.exact = dict.fromkeys(USERS, Fraction(0))
        self.made: dict[str, tuple[frozenset[str], str, frozenset[str]]] = {}

    def now(self) -> str:
        """Return a time late on the day."""
        return f"{self.today}T23:59:59+00:00"

    def renewed(self) -> bool:
        """Whether all earlier spending has expired today."""
        return False

    def spent(self, user: str) -> int:
        """Return the shares that count today."""
        return 0 if self.renewed() else self.counters[user]

    @rule(
        users=st.sets(st.sampled_from(USERS), min_size=1),
        price=st.sampled_from(PRICES),
        batch=st.sampled_from("abcdefgh"),
        skip=st.booleans(),
    )
    def charge(self, users: set[str], price: str, batch: str, skip: bool) -> None:
        amount = math.ceil(Fraction(price) * SHARES)
        poor = frozenset(user for user in users if self.spent(user) + amount > SHARES)

        def attempt() -> frozenset[str]:
            receipt = self.ledger.charge(
                users, per_user(price), batch=batch, skip_exhausted=skip, repeat_ok=True
            )
            assert receipt.paid == len(users) - len(receipt.left_out)
            assert receipt.repeated == (batch in self.made)
            return frozenset(receipt.left_out)

        if batch in self.made:
            asked, before, left_out = self.made[batch]
            if asked == users and before == price and (skip or not left_out):
                assert attempt() == left_out
            else:
                assert "was charged before" in refusal(attempt)
        elif self.today < self.last:
            with pytest.raises(LedgerUnavailable, match=f"last charge in {self.last}: "):
                attempt()
        elif poor and not skip:
            with pytest.raises(BudgetExhausted) as refused:
                attempt()
            assert refused.value.users == tuple(sorted(poor))
        else:
            assert attempt() == poor
            self.made[batch] = (frozenset(users), price, poor)
            if self.renewed():
                self.counters = dict.fromkeys(USERS, 0)
                self.exact = dict.fromkeys(USERS, Fraction(0))
            self.last = self.today
            for user in users - poor:
                self.counters[user] += amount
                self.exact[user] += Fraction(price)

    @rule()
    def reopen(self) -> None:
        self.ledger.close()
        self.ledger = Ledger.open(self.url, budget=BUDGET, renews=self.renews)

    @invariant()
    def agrees(self) -> None:
        for user in USERS:
            (left,) = self.ledger.remaining(user).values()
            assert left == 1 - Fraction(self.spent(user), SHARES)
            assert 0 <= left <= 1 - (0 if self.renewed() else self.exact[user])
            assert [charge.batch for charge in self.ledger.history(user)] == [
                batch for batch, (asked, _, spared) in self.made.items() if user in asked - spared
            ]
            assert self.ledger.spent(user) == per_user(1 - left)
        amount = math.ceil(Fraction(2, 5) * SHARES)
        poor = tuple(user for user in USERS if self.spent(user) + amount > SHARES)
        assert self.ledger.exhausted(USERS, per_user("2/5")) == poor
        assert self.ledger.charges() == len(self.made)
        assert self.ledger.check() == ()
        self.counts()

    def counts(self) -> None:
        """Return the number of users with counters."""
        assert self.ledger.users() == sum(count > 0 for count in self.counters.values())

    def teardown(self) -> None:
        hash_chain.now = self.clock
        self.ledger.close()
        self.folder.cleanup()


class Renewing(Against):
    """The model of a budget that renews daily; the clock may be set back."""

    renews = "day"

    @rule(days=st.sampled_from([1, 1, 1, -1]))
    def pass_days(self, days: int) -> None:
        self.today += timedelta(days=days)

    def renewed(self) -> bool:
        return self.today > self.last

    def counts(self) -> None:
        """Counters are those of the last day with a charge; no day spends more than a budget."""
        for user in USERS:
            for charges in self.ledger.periods(user).values():
                assert sum(charge.amounts[0] for charge in charges) <= SHARES


@by_day(1)
@pytest.mark.parametrize("model", [Against, Renewing])
def test_the_ledger_agrees_with_a_dictionary(model: type[Against]) -> None:
    run_state_machine_as_test(
        model, settings=settings(max_examples=effort(2, 15), stateful_step_count=10)
    )


# Users, price, batch, and whether exhausted users are skipped.
STORY = [
    ("ada bob", "1/2", "a", False),
    ("ada bob", "1/2", "a", False),
    ("ada", "1/2", "b", False),
    ("ada cid", "1/13", "c", False),
    ("ada cid", "1/13", "c", True),
    ("ada bob", "1/2", "a", True),
    ("cid", "3/2", "d", False),
    ("bob cid", "3/2", "e", True),
    *(("cid", "1/13", f"thirteenth {n}", False) for n in range(13)),
]


def tell(days: Sequence[int], url: str | None = None) -> None:
    """Compare with the model along a fixed sequence that reaches every edge, once per day."""
    told = Renewing(url) if len(days) > 1 else Against(url)
    try:
        for n, day in enumerate(days):
            told.today += timedelta(days=day)
            story = STORY[: None if len(days) == 1 else 8]
            for step, (users, price, batch, skip) in enumerate(story, 1):
                told.charge(set(users.split()), price, f"{batch}{n or ''}", skip)
                if step % 4 == 0 or step == len(story):
                    told.agrees()
    finally:
        told.teardown()


DAYS = (0, 1, -1, 3)


@pytest.mark.parametrize("days", [(0,), DAYS])
def test_a_fixed_sequence_agrees_with_the_model(url: str, days: Sequence[int]) -> None:
    tell(days, url)


@by_day(5)
@pytest.mark.parametrize(
    ("owner", "name", "old", "new"),
    [
        # No user is ever exhausted: the table's own constraint stops the overspending.
        (Book, "poor", "accounts.get(name) in out", "False"),
        # The price is omitted from the comparison.
        (Book, "poor", "limit - a for", "limit for"),
        # A charge is refused one share too early.
        (Book, "poor", "held > m for", "held >= m for"),
        (Book, "poor", "return names", "return ()"),
        # If prices were rounded down, thirteen thirteenths would cost less than a budget.
        (accounting.privacy_filters, "_shares", "math.ceil(cost *", "math.floor(cost *"),
        # A repeated charge would be paid twice.
        (accounting.ledger.charge_or_refuse, "charged", "if request.batch in made", "if False"),
        # The history and the counters differ.
        (Book, "pay", "tuple(h + a for", "tuple(h for"),
        # At the start of a day old spending is not dropped, or is still counted.
        (Book, "write", "if head.renewed", "if False"),
        (Book, "accounts", "if head.renewed", "if False"),
        # After the clock is set back, the counters of a later day are found.
        (accounting.ledger.charge_or_refuse, "charged", "start.today < start.period", "False"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_broken_ledger_disagrees_with_the_model(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, old: str, new: str
) -> None:
    mutant = mutated(getattr(owner, name), old, new)
    monkeypatch.setattr(owner, name, mutant)
    if name == "charged":
        monkeypatch.setattr(accounting.ledger.ledger, name, mutant)
    # A comparison with the model, a missing refusal, or a constraint of the database fails.
    with pytest.raises((Exception, pytest.fail.Exception)):
        [*map(tell, ((0,), DAYS))]
