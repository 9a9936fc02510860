"""Tests of charges in one process: acknowledgements, refusals, display, and several at once."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
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
from accounting.ledger.charge_request import sorted_names
from accounting.privacy_curves.release_curve import PrivacyCurve
from accounting.privacy_filters import SHARES, ApproxFilter
from dpcore import DiscreteGaussian, DiscreteLaplace
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Mechanism, Relation, Release, Scope, Unit
from dpcore.numbers.parameter import name
from tests.day_and_nightly import by_day
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refusal
from tests.support.ledger.budget import BUDGET, PER_USER, per_user, wanted

# Prices, times and refusals on both databases are tested in test_ledger_model.py.


def test_a_refused_charge_leaves_no_trace(ledger: Ledger) -> None:
    ledger.charge(["ada"], per_user("3/4"), batch="one")
    with pytest.raises(BudgetExhausted) as refused:
        ledger.charge(["ada", "bob", "eve"], per_user("1/2"), batch="two")
    assert refused.value.users == ("ada",)
    assert "1 of 3 users has too little budget left: ada (rho=1/4)" in str(refused.value)
    # The batch name is still free.
    receipt = ledger.charge({"bob", "ada", "eve"}, per_user("1/4"), batch="two")
    assert (receipt.paid, receipt.number, receipt.left_out) == (3, 2, ())
    assert ledger.remaining("never seen") == {"rho": 1}
    assert ledger.check(receipt) == ()


def test_a_batch_is_charged_once(ledger: Ledger) -> None:
    ledger.charge(["cid"], per_user(1), batch="zero")
    given: Any = {"batch": "one", "skip_exhausted": True}
    first = ledger.charge(["ada", "bob", "cid"], per_user("1/2"), **given)
    assert (first.paid, first.left_out, first.repeated) == (2, ("cid",), False)
    with pytest.raises(
        AlreadyCharged, match="already charged, so nothing was charged again"
    ) as refused:
        ledger.charge(["ada", "bob", "cid"], per_user("1/2"), **given)
    again = ledger.charge(["cid", "bob", "ada"], per_user("1/2"), **given, repeat_ok=True)
    for receipt in (refused.value.receipt, again):
        assert (receipt, receipt.repeated) == (first, True)
    for users, guarantee, skip in (
        (["ada", "bob"], per_user("1/2"), True),
        (["ada", "bob", "cid", "eve"], per_user("1/2"), True),
        (["ada", "bob", "eve"], per_user("1/2"), True),
        (["ada", "bob", "cid"], per_user("1/4"), True),
        (["ada", "bob", "cid"], per_user("1/2"), False),
        # The price is equal, but the release is not the one that was charged.
        (["ada", "bob", "cid"], Pure(1, scope=PER_USER), True),
        (["ada", "bob", "cid"], Assumed(per_user("1/2"), "a data sheet"), True),
    ):
        with pytest.raises(InvalidParameter, match="batch = one: was charged before"):
            ledger.charge(users, guarantee, batch="one", skip_exhausted=skip)
    nobody = ledger.charge(["bob", "eve"], per_user(2), batch="two", skip_exhausted=True)
    assert (nobody.paid, nobody.left_out) == (0, ("bob", "eve"))
    assert (ledger.charges(), ledger.remaining("ada")) == (3, {"rho": Fraction(1, 2)})
    assert ledger.check(first, nobody) == ()


def test_the_record_of_a_release_names_users_noise_and_batch(ledger: Ledger) -> None:
    mechanism = Mechanism(noise=DiscreteGaussian(sigma_squared=400), sensitivity=1)
    release = Release(mechanism=mechanism, batch="monday", participants=("ada", "bob"))
    receipt = ledger.charge(release, rows_per_user=1)
    assert receipt == ledger.charge(release, rows_per_user=1, repeat_ok=True)
    assert ledger.spent("bob") == ZCdp("1/800", scope=PER_USER)
    (charge,) = ledger.history("bob")
    assert charge.guarantee["claim"] == "curve"
    assert charge.guarantee["scope"] == {"unit": "user", "relation": "replace"}
    curve = PrivacyCurve(noise=mechanism.noise, sensitivity=1, scope=PER_USER)
    ledger.charge(["ada"], curve, batch="tuesday")
    assert ledger.spent("ada") == ZCdp("1/400", scope=PER_USER)
    with pytest.raises(InvalidParameter, match="must contain at least one user"):
        ledger.charge(Release(mechanism=mechanism, batch="nobody"), rows_per_user=1)
    assert "give no other arguments" in refusal(lambda: ledger.charge(release, batch="one"))  # type: ignore[call-overload]  # deliberately of the wrong type


def test_the_reason_of_an_assumed_guarantee_stays_visible(ledger: Ledger) -> None:
    ledger.charge(["ada", "bob"], per_user("1/4"), batch="one")
    ledger.charge(["ada"], Assumed(per_user("1/4"), "a data sheet"), batch="two")
    ledger.charge(["ada"], Assumed(per_user("1/8"), "a promise"), batch="three")
    ledger.charge(["ada"], Assumed(per_user("1/8"), "a promise"), batch="four")
    spent = ZCdp("3/4", scope=PER_USER)
    assert ledger.spent("ada") == Assumed(spent, "a data sheet; a promise")
    assert ledger.spent("bob") == ZCdp("1/4", scope=PER_USER)
    assert ledger.check() == ()


@pytest.mark.parametrize(
    ("budget", "guarantee", "times"),
    [
        (Pure(1, scope=PER_USER), Pure("1/3", scope=PER_USER), 3),
        (Pure(1, scope=PER_USER), Pure("1/13", scope=PER_USER), 12),
        (Rdp({2: 1, 8: 4}, scope=PER_USER), Rdp({2: "1/2", 8: "1/2"}, scope=PER_USER), 2),
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
    (["a\n"], per_user(1), "b", "must be printable"),
    ([" a"], per_user(1), "b", "leading or trailing space"),
    (["\ud800"], per_user(1), "b", "must be printable"),
    (["e\u0301"], per_user(1), "b", "normal form NFC"),
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


@by_day(3)
@pytest.mark.parametrize("odd", ["日本", "\U0001f600", '"; DROP TABLE ledger; --', "\\", "%"])
def test_unusual_names_are_accepted(ledger: Ledger, odd: str) -> None:
    ledger.charge([odd, "ada"], per_user("1/2"), batch=odd)
    assert ledger.remaining(odd) == {"rho": Fraction(1, 2)}
    assert ledger.history(odd)[0].batch == odd
    assert ledger.check() == ()
    with pytest.raises(BudgetExhausted) as refused:
        ledger.charge([odd, "bob"], per_user("3/4"), batch="two")
    assert refused.value.users == (odd,)


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


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("", "must be a path"),
        ("sqlite://", "not in memory"),
        (":memory:", "not in memory"),
        ("sqlite:///file:x.db?nolock=1&uri=true", "without options"),
        ("sqlite:///x.db?timeout=0", "without options"),
        ("sqlite://root:secret@host/x.db", "without options"),
        ("postgresql://root:secret@host:port/x", "must be a path"),
        ("postgresql://root:secret@host/x\n", "must be a path"),
        ("mysql://root@localhost/x", "must be a path"),
        ("postgresql+asyncpg://root:secret@localhost/x", "must be a path"),
    ],
)
def test_a_url_is_a_file_or_postgresql(url: str, match: str) -> None:
    with pytest.raises(InvalidParameter, match=match) as refused:
        Ledger.open(url)
    assert "secret" not in str(refused.value)


def test_an_export_is_checked_without_this_package(ledger: Ledger) -> None:
    ledger.charge(["ada", "ö", "cid"], Assumed(per_user("1/2"), "said so"), batch="one")
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
    assert [charge["users"] for charge in charges] == [["ada", "cid", "ö"], ["bob"]]
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


def alone(ledger: Ledger, request: Request) -> Charged:
    return ledger.charge_many([request])[0]


def test_many_charges_at_once_equal_single_charges(
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


def test_counters_not_updated_between_charges_would_overspend(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgetful = mutated(
        book.charged, "book.pay(accounts, paying,", "book.pay(dict(accounts), paying,"
    )
    monkeypatch.setattr("accounting.ledger.ledger.charged", forgetful)
    with pytest.raises(KeyError):
        ledger.charge_many(STORY)
    assert ledger.charges() == 0


def test_if_one_request_is_invalid_nobody_is_charged(ledger: Ledger) -> None:
    for wrong in (wanted("", "1/4", "b"), wanted("ada ada", "1/4", "b"), wanted("ada", "1/4", "")):
        with pytest.raises(InvalidParameter):
            ledger.charge_many([wanted("ada", "1/4", "a"), wrong])
    assert "requests = 7" in refusal(lambda: ledger.charge_many([7]))  # type: ignore[list-item]  # deliberately of the wrong type
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
def test_a_composition_is_charged_in_the_unit_of_the_budget(
    tmp_path: Any, budget: Any, parts: Any, left: Any
) -> None:
    with Ledger.create(str(tmp_path / "ledger.db"), budget=budget) as ledger:
        ledger.charge(compose(*parts), users=["ada"], batch="one")
        for counter, value in ledger.remaining("ada").items():
            # Rounded up by at most one share, or by the width of an enclosure.
            assert value <= left[counter] <= value + Fraction(1, 10**8)


def test_a_composition_costs_an_approx_budget_the_sum_of_its_parts(tmp_path: Any) -> None:
    budget = Approx(6, "1e-6", scope=PER_USER)
    claim = Approx("1/2", "1e-8", scope=PER_USER)
    parts: list[Any] = [GAUSSIAN, claim, claim]
    spent = []
    for how in ("together", "apart"):
        with Ledger.create(str(tmp_path / f"{how}.db"), budget=budget) as ledger:
            if how == "together":
                ledger.charge(compose(*parts), users=["ada"], batch="one")
            else:
                for number, part in enumerate(parts):
                    ledger.charge(["ada"], part, batch=f"{number}")
            spent.append(ledger.remaining("ada"))
    together, apart = spent
    for counter, value in together.items():
        assert value >= apart[counter] >= value - Fraction(5, SHARES)


def test_sampled_parts_are_converted_together_at_one_delta(tmp_path: Any) -> None:
    relation = Scope(unit=Unit.USER, relation=Relation.ADD_REMOVE)
    curve = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=400), sensitivity=1, scope=relation)
    sampled = compose((PoissonSampled(curve=curve, rate="1/10"), 5))
    budget = Approx(3, "1e-6", scope=relation)
    with Ledger.create(str(tmp_path / "ledger.db"), budget=budget) as ledger:
        ledger.charge(sampled, users=["ada"], batch="one")
        left = Fraction("1e-6") / 2 * Fraction(999, 1000)
        assert 0 <= left - ledger.remaining("ada")["delta"] < Fraction(1, 10**20)
    with (
        Ledger.create(str(tmp_path / "pure.db"), budget=Pure(1, scope=budget.scope)) as ledger,
        pytest.raises(NotDerived),
    ):
        ledger.charge(sampled, users=["ada"], batch="one")


def test_a_sample_costs_at_most_the_release_without_sampling(tmp_path: Any) -> None:
    relation = Scope(unit=Unit.USER, relation=Relation.ADD_REMOVE)
    curve = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=1), sensitivity=1, scope=relation)
    budgets: tuple[Any, ...] = (Approx(8, "1e-6", scope=relation), ZCdp(1, scope=relation))
    for number, budget in enumerate(budgets):
        with Ledger.create(str(tmp_path / f"{number}.db"), budget=budget) as ledger:
            ledger.charge(curve, users=["all"], batch="all")
            for rate in ("1/100", "9/10"):
                sampled = PoissonSampled(curve=curve, rate=rate)
                ledger.charge(sampled, users=[rate], batch=rate)
                assert ledger.remaining(rate)["rho"] >= ledger.remaining("all")["rho"]


def test_the_assumptions_of_a_composition_are_stored_with_the_charge(ledger: Ledger) -> None:
    assumed = Assumed(per_user("1/8"), "a data sheet")
    ledger.charge(compose(GAUSSIAN, assumed), users=["ada"], batch="one")
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
        ledger.charge(["ada"], per_user("1/8"), users=["ada"], batch="one")  # type: ignore[call-overload]  # deliberately of the wrong type
    assert ledger.charges() == 0


FLIP = f"UPDATE ledger_users SET spent_0 = spent_0 - {1 << 59}"  # noqa: S608 - by hand


def test_a_flipped_bit_in_a_counter_is_detected_at_the_next_charge(ledger: Ledger) -> None:
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
    # Of several charges, only that of the damaged user fails.
    outcomes = ledger.charge_many([wanted("ada", "1/8", "two"), wanted("eve", "1/8", "three")])
    assert [type(each) for each in outcomes] == [LedgerDamaged, Receipt]
    assert ledger.remaining("eve") == {"rho": Fraction(7, 8)}


@by_day(1)
def test_without_row_checks_an_exhausted_user_would_be_charged_again(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.charge(["ada"], per_user(1), batch="one")
    with ledger._store.writing() as connection:
        connection.exec_driver_sql(FLIP)
    blind = mutated(Book.accounts, "account.row(self.identity, name) == cells", "True")
    monkeypatch.setattr(Book, "accounts", blind)
    assert ledger.charge(["ada"], per_user("1/8"), batch="two").number == 2
