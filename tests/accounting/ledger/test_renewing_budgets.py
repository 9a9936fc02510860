"""Tests of budgets that renew: a charge counts in the period of its time, never earlier."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

from accounting.guarantees.stated_guarantees import Approx, Pure, PureBound, Rdp, ZCdp
from accounting.ledger import BudgetExhausted, Ledger, LedgerUnavailable, adopt, backup, hash_chain
from accounting.ledger.charge_or_refuse import Book, charged
from accounting.privacy_filters import ApproxFilter, filter_for
from dpcore import DiscreteLaplace, Mechanism
from dpcore.errors import InvalidParameter
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refusal
from tests.support.ledger.budget import BUDGET, PER_USER, per_user


class Clock:
    """The clock of the ledger; each call advances it by ``steps``, if there are any."""

    def __init__(self, time: str) -> None:
        self.time, self.steps = time, list[str]()

    def __call__(self) -> str:
        found = self.time
        if self.steps:
            self.time = self.steps.pop(0)
        return f"{found}+00:00"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock("2026-12-31T23:59:59")
    monkeypatch.setattr(hash_chain, "now", made)
    return made


def test_a_charge_counts_in_the_year_of_its_time(url: str, clock: Clock) -> None:
    with Ledger.create(url, budget=BUDGET, renews="year") as ledger:
        assert repr(ledger).endswith(", budget='rho=1', renews='year')")
        ledger.charge(["ada", "bob"], per_user("3/4"), batch="a")
        with pytest.raises(BudgetExhausted, match=r"ada \(rho=1/4 in 2026\)"):
            ledger.charge(["ada"], per_user("1/2"), batch="b")
        clock.time = "2027-01-01T00:00:00"
        assert ledger.remaining("ada") == {"rho": 1}
        ledger.charge(["ada"], per_user("1/2"), batch="b")
        left = [ledger.left(user) for user in ("ada", "bob")]
        assert left == ["rho=1/2 in 2027", "rho=1 in 2027"]
        # The batch of last year is paid: repeating it costs nothing this year.
        assert ledger.charge(["ada", "bob"], per_user("3/4"), batch="a", repeat_ok=True).repeated
        periods = {period: len(each) for period, each in ledger.periods("ada").items()}
        assert periods == {"2026": 1, "2027": 1}
        assert ledger.spent("ada") == per_user("1/2")
        # The clock is set back: last year is over, and its budget is not available again.
        clock.time = "2026-12-31T23:59:59"
        with pytest.raises(LedgerUnavailable, match="the last charge in 2027"):
            ledger.charge(["bob"], per_user("1/8"), batch="c")


def test_the_clock_is_read_once_for_each_release(url: str, clock: Clock) -> None:
    noisy = Mechanism(noise=DiscreteLaplace(scale=1), sensitivity=1, scope=PER_USER)
    budget = Pure(1, scope=PER_USER)
    with Ledger.create(url, budget=budget, renews="year") as ledger:
        clock.steps = ["2027-01-01T00:00:00"]
        for batch in ("a", "b"):
            assert not ledger.release(noisy, 7, users=["ada"], batch=batch).repeated
        assert [*ledger.periods()] == ["2026", "2027"]
        assert ledger.remaining("ada") == {"epsilon": 0}
        assert ledger.together(3) == PureBound(3, scope=PER_USER)
        assert ledger.together(1).parameters() == budget.parameters()
        assert "periods = 0" in refusal(lambda: ledger.together(0))


def test_periods_of_a_budget_add_the_limits_of_the_filter() -> None:
    for budget, whole in (
        (ZCdp("1/2", scope=PER_USER), ZCdp("3/2", scope=PER_USER)),
        (Rdp({2: 1, 8: 3}, scope=PER_USER), Rdp({2: 3, 8: 9}, scope=PER_USER)),
    ):
        assert filter_for(budget).together(3) == whole
    one = ApproxFilter(budget=Approx(1, "1e-6", scope=PER_USER))
    three = one.together(3)
    assert isinstance(three, Approx)
    rho, slack = Fraction(one.rho or 0), Fraction(one.slack or 0)
    assert three.stated_delta == 3 * (Fraction("1e-6") - slack) + slack
    # A filter of that budget with the same slack admits the charges of three periods.
    wide = ApproxFilter(budget=three, slack=slack, rho=3 * rho)
    assert wide.budgets == tuple(3 * each for each in one.budgets)
    # Well below three epsilons, and more than the same rho gives by a formula that is not tight.
    assert 1 < three.stated_epsilon < 3
    assert three.stated_epsilon < float(3 * rho) + 2 * math.sqrt(3 * rho * -math.log(slack))


def test_the_renewal_rule_is_part_of_the_budget(tmp_path: Path, clock: Clock) -> None:
    url, copy, plain = str(tmp_path / "l.db"), tmp_path / "copy.db", str(tmp_path / "plain.db")
    with pytest.raises(InvalidParameter, match="renews = week: must be one of year, month, day"):
        Ledger.create(url, budget=BUDGET, renews="week")
    assert not Path(url).exists()
    for file, renews, others in ((url, "year", (None, "day")), (plain, None, ("year",))):
        with Ledger.create(file, budget=BUDGET, renews=renews) as ledger:
            ledger.charge(["ada"], per_user("1/2"), batch="a")
            # Without a rule the export is that of older versions, which can also open it.
            assert json.loads(next(ledger.export()))["filter"].get("renews") == renews
        for other in others:
            with pytest.raises(InvalidParameter, match=f"must be {renews or 'never'}, as in this"):
                Ledger.create(file, budget=BUDGET, renews=other)
    backup(url, copy)
    adopt(str(copy))
    with Ledger.open(str(copy)) as ledger:
        assert (ledger.renews, ledger.left("ada")) == ("year", "rho=1/2 in 2026")


def test_an_overspent_past_year_is_detected(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "l.db")
    with Ledger.create(url, budget=BUDGET, renews="year") as ledger:
        # A program skips the budget check, and deletes the counters before the year ends.
        with monkeypatch.context() as patched, closing(sqlite3.connect(url)) as database:
            patched.setattr(Book, "poor", mutated(Book.poor, "in names", "in ()"))
            ledger.charge(["ada"], per_user("3/4"), batch="a")
            with database:
                database.execute("DELETE FROM ledger_users")
            ledger.charge(["ada"], per_user("3/4"), batch="b")
        clock.time = "2027-01-01T00:00:00"
        ledger.charge(["ada", "bob"], per_user("1/2"), batch="c")
        (damage,) = ledger.check()
        assert str(damage) == "user 'ada': was charged more than the budget in 2026"
        # A program skips the clock check, with a clock set back.
        clock.time = "2025-12-31T00:00:00"
        careless = mutated(charged, "if start.today < start.period", "if False")
        monkeypatch.setattr("accounting.ledger.ledger.charged", careless)
        ledger.charge(["eve"], per_user("1/2"), batch="d")
        found = [*map(str, ledger.check())]
        assert "charge 4 (batch 'd'): was made in 2025, after a charge in 2027" in found
