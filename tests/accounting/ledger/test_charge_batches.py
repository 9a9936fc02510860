"""Tests of several charges in one transaction: independent outcomes, all flushed to the disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import pytest

from accounting.adaptive_composition.privacy_filter import SHARES
from accounting.composition.compose import compose
from accounting.derive_guarantee import PoissonSampled
from accounting.errors import NotDerived
from accounting.guarantees.stated_guarantees import Approx, Assumed, Pure, Rdp, ZCdp
from accounting.ledger import (
    AlreadyCharged,
    BudgetExhausted,
    Ledger,
    LedgerDamaged,
    Receipt,
    Request,
    hash_chain,
)
from accounting.ledger import charge_or_refuse as book
from accounting.ledger.charge_or_refuse import Book, Charged
from accounting.privacy_curves.release_curve import PrivacyCurve
from dpcore import DiscreteGaussian, DiscreteLaplace
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation, Scope, Unit
from tests.effort import by_day
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refusal
from tests.support.ledger.budget import BUDGET, PER_USER, per_user


def wanted(users: str, price: str, batch: str, *, skip: bool = False) -> Request:
    return Request(users=users.split(), guarantee=per_user(price), batch=batch, skip_exhausted=skip)


STORY = [
    wanted("ada bob", "1/2", "a"),
    wanted("ada", "1/2", "b"),
    wanted("ada bob", "1/4", "c"),  # ada's budget is exhausted
    wanted("ada bob", "1/4", "c", skip=True),
    wanted("bob ada", "1/2", "a"),
    wanted("ada", "1/4", "a"),
    wanted("bob cid", "1/4", "d"),
]


def told(outcomes: Sequence[Charged]) -> list[object]:
    return [
        (each.number, each.digest, each.left_out) if isinstance(each, Receipt) else type(each)
        for each in outcomes
    ]


def alone(ledger: Ledger, request: Request) -> Charged:
    return ledger.charge_many([request])[0]


def test_many_at_once_are_what_they_are_one_by_one(
    ledger: Ledger, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hash_chain, "now", lambda: "2026-01-01T12:00:00+00:00")  # in the digests
    with Ledger.create(str(tmp_path / "other.db"), budget=BUDGET) as other:
        one_by_one = told([alone(other, request) for request in STORY])
    at_once = ledger.charge_many(STORY)
    assert told(at_once) == one_by_one
    assert [type(each) for each in at_once] == [
        Receipt, Receipt, BudgetExhausted, Receipt, AlreadyCharged, InvalidParameter, Receipt,
    ]  # fmt: skip
    assert ledger.check(*(each for each in at_once if isinstance(each, Receipt))) == ()
    assert ledger.remaining("bob") == ledger.remaining("ada") == {"rho": 0}
    assert ledger.charge_many([]) == ()


def test_accounts_that_stood_still_between_two_of_many_would_overspend(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgetful = mutated(
        book.charged, "book.pay(accounts, paying,", "book.pay(dict(accounts), paying,"
    )
    monkeypatch.setattr("accounting.ledger.ledger.charged", forgetful)
    with pytest.raises(KeyError):
        ledger.charge_many(STORY)
    assert ledger.charges() == 0


def test_wrong_arguments_of_one_charge_nobody(ledger: Ledger) -> None:
    for wrong in (wanted("", "1/4", "b"), wanted("ada ada", "1/4", "b"), wanted("ada", "1/4", "")):
        with pytest.raises(InvalidParameter):
            ledger.charge_many([wanted("ada", "1/4", "a"), wrong])
    assert "requests = 7" in refusal(lambda: ledger.charge_many([7]))  # type: ignore[list-item]  # what is refused
    assert ledger.charges() == 0


GAUSSIAN = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=400), sensitivity=1, scope=PER_USER)
LAPLACE = PrivacyCurve(noise=DiscreteLaplace(scale=10), sensitivity=1, scope=PER_USER)
FIFTH = Pure("1/5", scope=PER_USER)
ORDERS = Rdp({2: "1/10", 8: "1/5"}, scope=PER_USER)


def test_three_queries_are_one_charge(ledger: Ledger) -> None:
    three = compose((GAUSSIAN, 2), GAUSSIAN)
    receipt = ledger.charge(three, users=["ada", "bob"], batch="one")
    assert (receipt.paid, ledger.charges()) == (2, 1)
    assert ledger.spent("ada") == ZCdp("3/800", scope=PER_USER)
    assert ledger.charge(["bob", "ada"], three, batch="one", repeat_ok=True) == receipt
    with pytest.raises(InvalidParameter, match="for another guarantee"):
        ledger.charge(per_user("3/800"), users=["ada", "bob"], batch="one")
    (charge,) = ledger.history("ada")
    assert charge.guarantee["claim"] == "composition"
    assert [part["rounds"] for part in charge.guarantee["parts"]] == [3]
    assert ledger.check(receipt) == ()


@pytest.mark.parametrize(
    ("budget", "parts", "left"),
    [
        (Pure(1, scope=PER_USER), (LAPLACE, (FIFTH, 2)), {"epsilon": Fraction(1, 2)}),
        (ZCdp(1, scope=PER_USER), (GAUSSIAN, FIFTH), {"rho": 1 - Fraction(17, 800)}),
        (Rdp({2: 1, 8: 4}, scope=PER_USER), (per_user("1/10"), ORDERS),
         {"order 2": Fraction(7, 10), "order 8": Fraction(3)}),
    ],
)  # fmt: skip
def test_a_composition_is_charged_in_the_word_of_the_budget(
    tmp_path: Any, budget: Any, parts: Any, left: Any
) -> None:
    with Ledger.create(str(tmp_path / "ledger.db"), budget=budget) as ledger:
        ledger.charge(compose(*parts), users=["ada"], batch="one")
        for counter, value in ledger.remaining("ada").items():
            # Rounded up by at most one share, or by the width of an enclosure.
            assert value <= left[counter] <= value + Fraction(1, 10**8)


def test_parts_of_an_approx_budget_cost_what_they_cost_apart(tmp_path: Any) -> None:
    budget = Approx(6, "1e-6", scope=PER_USER)
    claim = Approx("1/2", "1e-8", scope=PER_USER)
    parts: list[Any] = [GAUSSIAN, claim, claim]
    spent = []
    for name in ("together", "apart"):
        with Ledger.create(str(tmp_path / f"{name}.db"), budget=budget) as ledger:
            if name == "together":
                ledger.charge(compose(*parts), users=["ada"], batch="one")
            else:
                for number, part in enumerate(parts):
                    ledger.charge(["ada"], part, batch=f"{number}")
            spent.append(ledger.remaining("ada"))
    together, apart = spent
    for counter, value in together.items():
        assert value >= apart[counter] >= value - Fraction(5, SHARES)


def test_sampled_parts_are_read_together_at_one_delta(tmp_path: Any) -> None:
    relation = Scope(unit=Unit.USER, relation=Relation.ADD_REMOVE)
    curve = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=400), sensitivity=1, scope=relation)
    sampled = compose((PoissonSampled(curve=curve, rate="1/10"), 5))
    budget = Approx(3, "1e-6", scope=relation)
    with Ledger.create(str(tmp_path / "ledger.db"), budget=budget) as ledger:
        ledger.charge(sampled, users=["ada"], batch="one")
        delta = Fraction("1e-6") / 2
        assert (
            0
            <= delta * Fraction(999, 1000) - ledger.remaining("ada")["delta"]
            < Fraction(1, 10**20)
        )
    with (
        Ledger.create(str(tmp_path / "pure.db"), budget=Pure(1, scope=budget.scope)) as ledger,
        pytest.raises(NotDerived),
    ):
        ledger.charge(sampled, users=["ada"], batch="one")


def test_what_a_composition_assumes_is_charged_as_assumed(ledger: Ledger) -> None:
    ledger.charge(
        compose(GAUSSIAN, Assumed(per_user("1/8"), "a data sheet")), users=["ada"], batch="one"
    )
    spent = ledger.spent("ada")
    assert isinstance(spent, Assumed)
    assert "a data sheet" in spent.reason
    assert ledger.check() == ()


def test_a_composition_that_no_theorem_prices_is_refused(ledger: Ledger) -> None:
    for parts, error in (
        ((Approx("1/2", "1e-8", scope=PER_USER),), NotDerived),
        ((Rdp({2: "1/10"}, scope=PER_USER),), NotDerived),
        ((ZCdp("1/8", scope=Scope(relation=Relation.ADD_REMOVE)),), InvalidParameter),
    ):
        with pytest.raises(error):
            ledger.charge(compose(*parts), users=["ada"], batch="one")
    with pytest.raises(InvalidParameter, match="is given twice"):
        ledger.charge(["ada"], per_user("1/8"), users=["ada"], batch="one")  # type: ignore[call-overload]  # what is refused
    assert ledger.charges() == 0


FLIP = f"UPDATE ledger_users SET spent_0 = spent_0 - {1 << 59}"  # noqa: S608 - by hand


def test_a_bit_that_flipped_in_a_counter_is_refused_at_the_next_charge(ledger: Ledger) -> None:
    ledger.charge(["ada", "bob"], per_user(1), batch="one")
    with ledger._store.writing() as connection:
        connection.exec_driver_sql(f"{FLIP} WHERE name = 'ada'")
    looks: list[Callable[[], object]] = [
        lambda: ledger.charge(["ada", "eve"], per_user("1/8"), batch="two"),
        lambda: ledger.charge(["ada"], per_user("1/8"), batch="two", skip_exhausted=True),
        lambda: ledger.remaining("ada"),
        lambda: ledger.spent("ada"),
        lambda: ledger.exhausted(["ada"], per_user("1/8")),
    ]
    for look in looks:
        assert "user 'ada': its counters do not match" in refusal(look, LedgerDamaged)
    # Only that one of several charges.
    outcomes = ledger.charge_many([wanted("ada", "1/8", "two"), wanted("eve", "1/8", "three")])
    assert [type(each) for each in outcomes] == [LedgerDamaged, Receipt]
    assert ledger.remaining("eve") == {"rho": Fraction(7, 8)}


@by_day(1)
def test_without_the_mark_a_user_who_is_spent_pays_again(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.charge(["ada"], per_user(1), batch="one")
    with ledger._store.writing() as connection:
        connection.exec_driver_sql(FLIP)
    blind = mutated(Book.accounts, "account.row(self.identity, name) == cells", "True")
    monkeypatch.setattr(Book, "accounts", blind)
    assert ledger.charge(["ada"], per_user("1/8"), batch="two").number == 2
