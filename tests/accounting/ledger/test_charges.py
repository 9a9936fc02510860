"""Tests of charges in one process: acknowledgements, refusals, display, and several at once."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from accounting.composition.compose import compose
from accounting.derive_guarantee import PoissonSampled
from accounting.errors import NotDerived
from accounting.guarantees.stated_guarantees import Approx, Assumed, Pure, Rdp, ZCdp
from accounting.ledger import (
    AlreadyCharged,
    BudgetExhausted,
    Ledger,
    LedgerDamaged,
    LedgerUnavailable,
    Receipt,
    Request,
    hash_chain,
)
from accounting.ledger import charge_or_refuse as book
from accounting.ledger.charge_or_refuse import Book, Charged
from accounting.ledger.charge_request import cost, sorted_names
from accounting.privacy_curves.release_curve import PrivacyCurve
from accounting.privacy_filters import ApproxFilter, filter_for
from dpcore import DiscreteGaussian, DiscreteLaplace
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Mechanism, Relation, Release, Scope, Unit
from dpcore.numbers.parameter import name
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refusal
from tests.support.ledger.budget import BUDGET, PER_USER, per_user, wanted

# Prices, times and refusals on both databases are tested in test_ledger_model.py.


def test_a_batch_is_charged_once(ledger: Ledger) -> None:
    first = ledger.charge(["ada", "bob"], per_user("1/2"), batch="one")
    with pytest.raises(AlreadyCharged, match="so nothing was charged again") as refused:
        ledger.charge(["bob", "ada"], per_user("1/2"), batch="one")
    receipt = refused.value.receipt
    assert (receipt, receipt.repeated, first.repeated) == (first, True, False)
    # The price is equal, but the release is not the one that was charged.
    for guarantee in (Pure(1, scope=PER_USER), Assumed(per_user("1/2"), "a data sheet")):
        with pytest.raises(InvalidParameter, match="batch = one: was charged before"):
            ledger.charge(["ada", "bob"], guarantee, batch="one")
    nobody = ledger.charge(["bob", "ada"], per_user(2), batch="two", skip_exhausted=True)
    assert (nobody.paid, nobody.left_out) == (0, ("ada", "bob"))
    assert (ledger.charges(), ledger.remaining("ada")) == (2, {"rho": Fraction(1, 2)})
    assert ledger.check(first, nobody) == ()


def test_the_record_of_a_charge_names_users_noise_and_assumptions(ledger: Ledger) -> None:
    mechanism = Mechanism(noise=DiscreteGaussian(sigma_squared=400), sensitivity=1)
    release = Release(mechanism=mechanism, batch="monday", participants=("ada", "bob"))
    receipt = ledger.charge(release, rows_per_user=1)
    assert receipt == ledger.charge(release, rows_per_user=1, repeat_ok=True)
    (charge,) = ledger.history("bob")
    assert (charge.guarantee["claim"], ledger.spent("bob")) == ("curve", per_user("1/800"))
    assert charge.guarantee["scope"] == {"unit": "user", "relation": "replace"}
    ledger.charge(["ada"], GAUSSIAN, batch="tuesday")
    assert ledger.spent("ada") == per_user("1/400")
    three = compose((GAUSSIAN, 2), GAUSSIAN)
    ledger.charge(three, users=["ada"], batch="composed")
    record = ledger.history("ada")[-1].guarantee
    assert record["claim"] == "composition"
    assert [part["rounds"] for part in record["parts"]] == [3]
    for number, reason in enumerate(("a data sheet", "a promise", "a promise")):
        ledger.charge(["ada"], Assumed(per_user("1/8"), reason), batch=f"{number}")
    ledger.charge(compose(GAUSSIAN, Assumed(per_user("1/8"), "hope")), users=["ada"], batch="all")
    spent = ledger.spent("ada")
    assert isinstance(spent, Assumed)
    assert spent.guarantee == per_user(Fraction(1, 2) + Fraction(6, 800))
    assert spent.reason.startswith("a data sheet; a promise; ZCdp(")
    assert spent.reason.endswith(": hope")
    assert ledger.spent("bob") == per_user("1/800")
    with pytest.raises(InvalidParameter, match="must contain at least one user"):
        ledger.charge(Release(mechanism=mechanism, batch="nobody"), rows_per_user=1)
    assert "give no other arguments" in refusal(lambda: ledger.charge(release, batch="one"))  # type: ignore[call-overload]  # deliberately of the wrong type
    with pytest.raises(InvalidParameter, match="is given twice"):
        ledger.charge(["ada"], per_user("1/8"), users=["ada"], batch="one")  # type: ignore[call-overload]  # deliberately of the wrong type
    assert ledger.check(receipt) == ()


@pytest.mark.parametrize(
    ("budget", "guarantee", "times"),
    [
        (Pure(1, scope=PER_USER), Pure("1/13", scope=PER_USER), 12),
        (Rdp({2: 1, 8: 4}, scope=PER_USER), per_user("1/4"), 2),
        (Approx(2, "1e-6", scope=PER_USER), Approx("1/10", "1e-7", scope=PER_USER), 5),
        (
            ApproxFilter(budget=Approx(2, "1e-6", scope=PER_USER), slack="8e-7"),
            per_user("1/100"),
            8,
        ),
    ],
)
def test_every_kind_of_budget_admits_charges_up_to_its_limit(
    tmp_path: Path, budget: Pure, guarantee: Pure, times: int
) -> None:
    file = str(tmp_path / "ledger.db")
    with Ledger.create(file, budget=budget) as ledger:
        for batch in range(times):
            ledger.charge(["ada"], guarantee, batch=f"{batch}")
        refusal(lambda: ledger.charge(["ada"], guarantee, batch="more"), BudgetExhausted)
        assert all(left >= 0 for left in ledger.remaining("ada").values())
        assert ledger.check() == ()
    with Ledger.open(file, budget=budget) as again:
        assert again.charges() == times


def test_a_charge_of_another_scope_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    for scope in (
        Scope(relation=Relation.ADD_REMOVE),
        Scope(unit=Unit.USER, relation=Relation.ADD_REMOVE),
        Scope(unit=Unit.USER, group=2),
    ):
        for guarantee in (ZCdp("1/8", scope=scope), Assumed(ZCdp("1/8", scope=scope), "hope")):
            with pytest.raises(InvalidParameter, match="mixed scopes never compose"):
                ledger.charge(["ada"], guarantee, batch="one")
    with pytest.raises(InvalidParameter, match="must have scope unit 'user'"):
        Ledger.create(str(tmp_path / "other.db"), budget=ZCdp(1))
    assert not (tmp_path / "other.db").exists()
    ledger.charge(["ada"], ZCdp("1/8", scope=PER_USER), batch="a guarantee for the user")
    assert ledger.charges() == 1


# Users, a guarantee and a batch.
REFUSED: list[tuple[Any, Any, Any, str]] = [
    ([], per_user(1), "b", "users = .*must contain at least one user"),
    ("ada", per_user(1), "b", "users = ada: must be a collection"),
    ([7], per_user(1), "b", "users = 7: must be a name"),
    (["a", "a"], per_user(1), "b", "users = a: appears twice"),
    ([""], per_user(1), "b", "must be a name of 1 to 200"),
    (["a" * 201], per_user(1), "b", "a name of 1 to 200"),
    (["\ud800"], per_user(1), "b", "must be printable"),
    (["ada\ufe0f"], per_user(1), "b", "invisible characters"),
    (["a"], per_user(1), "", "batch = .*must be a name"),
    (["a"], per_user(1), None, "batch = None"),
    (["a"], 1, "b", "guarantee = 1: must be a claim"),
    (["a"], Approx(1, "1e-6", scope=PER_USER), "b", "cannot derive"),
]


def test_an_invalid_charge_is_refused_by_name(ledger: Ledger) -> None:
    for users, amount, batch, match in REFUSED:
        with pytest.raises((InvalidParameter, NotDerived), match=match):
            ledger.charge(users, amount, batch=batch)
        many = [wanted("ada", "1/4", "a"), Request(users=users, guarantee=amount, batch=batch)]
        with pytest.raises((InvalidParameter, NotDerived), match=match):
            ledger.charge_many(many)
    assert "requests = 7" in refusal(lambda: ledger.charge_many([7]))  # type: ignore[list-item]  # deliberately of the wrong type
    for look in (ledger.spent, ledger.remaining, ledger.history):
        with pytest.raises(InvalidParameter, match="user = a"):
            look("a ")
    assert (ledger.users(), ledger.charges(), ledger.check()) == (0, 0, ())


@given(st.lists(st.text("ab \n\x00\u00e9\u0301", max_size=3), min_size=1, max_size=3, unique=True))
@example(["a\nb", "c" * 200])
@example(["c" * 201, "a"])
def test_checking_names_together_equals_checking_them_one_by_one(texts: list[str]) -> None:
    try:
        kept = tuple(sorted(name("users", each) for each in texts))
    except InvalidParameter as error:
        with pytest.raises(InvalidParameter, match=re.escape(str(error))):
            sorted_names(texts)
        return
    assert sorted_names(iter(texts)) == kept == tuple(sorted(texts))
    assert not any("\n" in each for each in kept)


def test_a_ledger_is_opened_with_its_own_budget_only(url: str) -> None:
    with pytest.raises(LedgerUnavailable, match=r"no such file|contains no ledger"):
        Ledger.open(url)
    with Ledger.create(url, budget=BUDGET) as ledger:
        ledger.charge(["ada"], per_user("1/2"), batch="one")
    for opened in (
        Ledger.create(url, budget=BUDGET),
        Ledger.open(url, budget=BUDGET),
        Ledger.open(url),
    ):
        with opened:
            assert opened.budget == BUDGET
            assert opened.remaining("ada") == {"rho": Fraction(1, 2)}
    for other in (ZCdp(2, scope=PER_USER), Pure(1, scope=PER_USER)):
        for method in (Ledger.create, Ledger.open):
            with pytest.raises(InvalidParameter, match=r"budget = .*a budget never changes"):
                method(url, budget=other)


def test_a_url_is_a_file_or_postgresql() -> None:
    for url, match in {
        "": "must be a path",
        ":memory:": "not in memory",
        "sqlite:///file:x.db?nolock=1&uri=true": "without options",
        "sqlite://root:secret@host/x.db": "without options",
        "postgresql://root:secret@host:port/x": "must be a path",
        "mysql://root@localhost/x": "must be a path",
        "postgresql+asyncpg://root:secret@localhost/x": "must be a path",
    }.items():
        line = refusal(partial(Ledger.open, url))
        assert match in line
        assert "secret" not in line


def test_an_export_is_checked_without_this_package(ledger: Ledger) -> None:
    odd = ['"; DROP TABLE ledger; --', "%", "\\", "ada", "ö", "日本", "\U0001f600"]
    ledger.charge(odd[::-1], Assumed(per_user("1/2"), "said so"), batch=odd[0])
    last = ledger.charge(["ö", "bob"], per_user("3/4"), batch="zwölf", skip_exhausted=True)
    header, *charges = map(json.loads, ledger.export())

    def text(value: object) -> str:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))

    def of_names(names: list[str]) -> str:
        return hashlib.sha256("".join(f"{name}\n" for name in names).encode()).hexdigest()

    digest = hashlib.sha256(text([header["format"], text(header["filter"])]).encode()).hexdigest()
    for number, charge in enumerate(charges, start=1):
        assert charge["previous"] == digest
        said = [
            *(number, charge["batch"], charge["made"], charge["guarantee"]),
            *([int(amount) for amount in charge["amounts"]], int(charge["assumed"])),
            *(len(charge["users"]), len(charge["left_out"])),
            *(of_names(charge["users"]), of_names(charge["left_out"]), digest),
        ]
        digest = hashlib.sha256(text(said).encode()).hexdigest()
        assert charge["digest"] == digest
    assert digest == last.digest
    assert [charge["users"] for charge in charges] == [odd, ["bob"]]
    assert {ledger.history(user)[0].batch for user in odd} == {odd[0]}
    assert charges[1]["left_out"] == ["ö"]


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


def test_many_charges_at_once_equal_single_charges(
    ledger: Ledger, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hash_chain, "now", lambda: "2026-01-01T12:00:00+00:00")  # in the digests
    with Ledger.create(str(tmp_path / "other.db"), budget=BUDGET) as other:
        one_by_one = told([other.charge_many([request])[0] for request in STORY])
    at_once = ledger.charge_many(STORY)
    assert told(at_once) == one_by_one
    assert [type(each) for each in at_once] == [
        Receipt, Receipt, BudgetExhausted, Receipt, AlreadyCharged, InvalidParameter, Receipt,
    ]  # fmt: skip
    assert ledger.check(*(each for each in at_once if isinstance(each, Receipt))) == ()
    assert ledger.remaining("bob") == ledger.remaining("ada") == {"rho": 0}
    assert ledger.charge_many([]) == ()
    # Counters that are not updated between the charges would overspend.
    pay = "book.pay(accounts, paying,"
    forgetful = mutated(book.charged, pay, "book.pay(dict(accounts), paying,")
    monkeypatch.setattr("accounting.ledger.ledger.charged", forgetful)
    with pytest.raises(KeyError):
        ledger.charge_many([wanted("dan", "1/2", f"{n}") for n in range(3)])
    assert ledger.charges() == 4


GAUSSIAN = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=400), sensitivity=1, scope=PER_USER)
LAPLACE = PrivacyCurve(noise=DiscreteLaplace(scale=10), sensitivity=1, scope=PER_USER)
FIFTH = Pure("1/5", scope=PER_USER)
ORDERS = Rdp({2: "1/10", 8: "1/5"}, scope=PER_USER)
ADDED = Scope(unit=Unit.USER, relation=Relation.ADD_REMOVE)
CLAIM = Approx("1/2", "1e-8", scope=PER_USER)


@pytest.mark.parametrize(
    ("budget", "parts", "costs"),
    [
        (Pure(1, scope=PER_USER), (LAPLACE, (FIFTH, 2)), [Fraction(1, 2)]),
        (ZCdp(1, scope=PER_USER), (GAUSSIAN, FIFTH), [Fraction(17, 800)]),
        (Rdp({2: 1, 8: 4}, scope=PER_USER), (per_user("1/10"), ORDERS), [Fraction(3, 10), 1]),
        (Approx(6, "1e-6", scope=PER_USER), (GAUSSIAN, (CLAIM, 2)), [Fraction(201, 800), "2e-8"]),
        (Pure(1, scope=PER_USER), (CLAIM,), NotDerived),
        (ZCdp(1, scope=PER_USER), (CLAIM,), NotDerived),
        (ZCdp(1, scope=PER_USER), (Rdp({2: "1/10"}, scope=PER_USER),), NotDerived),
        (ZCdp(1, scope=PER_USER), (ZCdp("1/8", scope=ADDED),), InvalidParameter),
    ],
)
def test_a_composition_costs_the_sum_of_its_parts_in_the_unit_of_the_budget(
    budget: Any, parts: Any, costs: Any
) -> None:
    keeper = filter_for(budget)
    if not isinstance(costs, list):
        with pytest.raises(costs):
            cost(keeper, compose(*parts))
        return
    price, _ = cost(keeper, compose(*parts))
    for found, truth in zip(price.costs, map(Fraction, costs), strict=True):
        # Rounded up by at most the width of an enclosure.
        assert truth <= found <= truth + Fraction(1, 10**8)


def test_many_wide_samples_are_charged_their_epsilon_at_a_part_of_the_delta() -> None:
    wide = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=400), sensitivity=1, scope=ADDED)
    sampled = compose((PoissonSampled(curve=wide, rate="1/10"), 5))
    keeper = filter_for(Approx(3, "1e-6", scope=ADDED))
    at = Fraction(keeper.charge_delta or 0)  # type: ignore[attr-defined]  # of an approx budget
    assert cost(keeper, sampled)[0].costs[1] == at
    refusal(lambda: cost(filter_for(Pure(1, scope=ADDED)), sampled), NotDerived)


def test_a_flipped_bit_in_a_counter_is_detected_at_the_next_charge(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.charge(["ada", "bob"], per_user(1), batch="one")
    with ledger._store.writing() as connection:
        flip = f"UPDATE ledger_users SET spent_0 = spent_0 - {1 << 59} WHERE name = 'ada'"  # noqa: S608 - by hand
        connection.exec_driver_sql(flip)
    looks: list[Callable[[], object]] = [
        lambda: ledger.charge(["ada", "eve"], per_user("1/8"), batch="two"),
        lambda: ledger.charge(["ada"], per_user("1/8"), batch="two", skip_exhausted=True),
        lambda: ledger.remaining("ada"),
        lambda: ledger.spent("ada"),
        lambda: ledger.exhausted(["ada"], per_user("1/8")),
    ]
    for look in looks:
        assert "user 'ada': its counters do not match" in refusal(look, LedgerDamaged)
    # Of several charges, only that of the damaged user fails.
    outcomes = ledger.charge_many([wanted("ada", "1/8", "two"), wanted("eve", "1/8", "three")])
    assert [type(each) for each in outcomes] == [LedgerDamaged, Receipt]
    assert ledger.remaining("eve") == {"rho": Fraction(7, 8)}

    # Without the check of a row, an exhausted user would be charged again.
    blind = mutated(Book.accounts, "account.row(self.identity, name) == cells", "True")
    monkeypatch.setattr(Book, "accounts", blind)
    assert ledger.charge(["ada"], per_user("1/8"), batch="two").number == 3
