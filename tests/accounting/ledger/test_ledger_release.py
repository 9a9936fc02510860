"""Tests of releases through a ledger: the value is stored with its charge, and given again."""

from __future__ import annotations

import json
import random
import tempfile
import time
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from sqlalchemy import text

from accounting import guarantee, guarantee_from_json
from accounting.guarantees.stated_guarantees import Pure
from accounting.ledger import (
    AlreadyCharged,
    BudgetExhausted,
    Ledger,
    LedgerDamaged,
    ValueLost,
    backup,
)
from accounting.ledger.charge_or_refuse import Book
from dpcore import DiscreteGaussian, DiscreteLaplace, Mechanism, Sensitivity
from dpcore.errors import InvalidParameter
from dpcore.local import FAMILIES, LocalHashing, LocalReport, ShuffledReports
from dpcore.mechanism import Scope, Unit
from dpcore.sampling.rng import SeededRng
from dpcore.selection import AboveThreshold, NoisyMax, NoisyThreshold, Selection
from tests.day_and_nightly import effort
from tests.support.dpcore.refusals import refusal
from tests.support.ledger.budget import BUDGET
from tests.support.ledger.workers import NOISY, processes, release_on

CELLS = Mechanism(
    noise=DiscreteGaussian(sigma_squared=400),
    sensitivity=Sensitivity.l1(2),
    scope=Scope(unit="user"),  # type: ignore[arg-type]  # by value
)


def test_a_repeated_batch_returns_the_stored_value_and_is_charged_once(ledger: Ledger) -> None:
    first = ledger.release(NOISY, 10**9, users=["ada", "bob"], batch="one")
    again = ledger.release(NOISY, -(10**9), users=["bob", "ada"], batch="one")
    assert (first.repeated, again.repeated) == (False, True)
    assert (first.value, first) == (again.value, again)
    assert ledger.charges() == 1
    assert ledger.remaining("ada") == {"rho": 1 - Fraction(1, 80000)}
    cells = ledger.release(CELLS, np.array([5, 6, 7]), users=["ada"], batch="two").value
    assert cells.dtype == np.int64
    assert cells.shape == (3,)
    lines = [json.loads(line) for line in ledger.export()]
    assert [line["value"] for line in lines[1:]] == [first.value, cells.tolist()]
    assert ledger.check(first) == ()
    assert [charge.released is not None for charge in ledger.history()] == [True, True]


MANY: list[tuple[Any, Any]] = [
    (NoisyMax(epsilon="1/4", sensitivity=1, scope=CELLS.scope), [3, 9, 1]),
    (AboveThreshold(epsilon="1/4", sensitivity=1, threshold=5, scope=CELLS.scope), [3, 90, 1]),
    (Selection(epsilon="1/4", sensitivity=1, scope=CELLS.scope), [3, 9, 1]),
    *((family(epsilon="1/4", values=5, scope=CELLS.scope), [4, 0]) for family in FAMILIES.values()),
    (
        ShuffledReports(report=LocalHashing(epsilon="1/4", values=5, scope=CELLS.scope), users=2),
        [4, 0],
    ),
]


@pytest.mark.parametrize(("mechanism", "value"), MANY, ids=lambda each: type(each).__name__)
def test_every_mechanism_is_charged_its_guarantee(mechanism: Any, value: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        budget = Pure(1, scope=CELLS.scope)
        with Ledger.create(f"{folder}/l.db", budget=budget) as ledger:
            users = ["ada", "bob"]
            cost = Fraction(guarantee(mechanism).pure().upper)
            assert Fraction("0.249") < cost <= Fraction(1, 4)
            ledger.charge(users, mechanism, batch="charged")
            found = [ledger.release(mechanism, value, users=users, batch="b") for _ in range(2)]
            assert np.array_equal(found[0].value, found[1].value)
            assert found[1].repeated
            left = ledger.remaining("bob")["epsilon"]
            assert 1 - 2 * cost - Fraction(1, 10**15) < left <= 1 - 2 * cost
            if isinstance(mechanism, LocalReport):
                assert mechanism.estimate(found[0].value).users == 2
                for wrong in ([4], [4, 0, 1], [4, 5]):
                    with pytest.raises(InvalidParameter, match="value"):
                        ledger.release(mechanism, wrong, users=users, batch="c")
            assert (ledger.charges(), ledger.check()) == (2, ())


def test_all_answers_of_a_threshold_are_charged_and_stored(ledger: Ledger) -> None:
    # An error after the draw would reveal something about the answers, at no cost.
    values: list[list[int]] = [[-(10**6), 10**6], [10**6], [10**30], [-(10**6)], []]
    for gap, value in product((False, True), values):
        above = AboveThreshold(
            epsilon="1/4", sensitivity=1, threshold=5, gap=gap, scope=Scope(unit=Unit.USER)
        )
        asked: Any = {"users": ["ada"], "batch": f"{gap}: {value}"}
        found = [ledger.release(above, value, **asked) for _ in range(2)]
        assert found[0].value == found[1].value
        assert [type(each.value) for each in found] == [list, list]
        said = [answer > 0 for answer in value]
        assert [each is not None and each is not False for each in found[0].value] == said
        assert all(type(each) in (bool, int, type(None)) for each in found[0].value)
    assert (ledger.charges(), ledger.check()) == (2 * len(values), ())


def test_keys_that_cannot_be_stored_are_refused_before_the_draw(tmp_path: Path) -> None:
    counts = Mechanism(noise=DiscreteLaplace(scale=1), sensitivity=Sensitivity.l1(2))
    keys = NoisyThreshold(mechanism=counts, threshold=20)
    with Ledger.create(str(tmp_path / "l.db"), budget="epsilon=100,delta=1e-3") as ledger:
        asked: Any = {"users": ["ada"], "rows_per_user": 1}
        for number, key in enumerate([(1, 2), 10**5000]):
            for rows in (1, 10**9):
                wrong: Any = {key: rows}
                with pytest.raises(InvalidParameter, match="has a key that a ledger cannot store"):
                    ledger.release(keys, wrong, batch=f"{number}", **asked)
        assert ledger.charges() == 0
        assert ledger.release(keys, {"a": 10**9, "b": 1}, batch="2", **asked).value.keys() == {"a"}


LONG = AboveThreshold(
    epsilon=1, sensitivity=1, threshold=5, gap=True, scope=Scope(unit=Unit.USER)
)  # a value far above the threshold has more digits than Python prints


@pytest.mark.parametrize(
    ("mechanism", "value", "low"),
    [
        (NOISY, 10**4301, 10**4300 - 10**9),
        (LONG, np.array([10**5000], dtype=object), np.array([0], dtype=object)),
    ],
    ids=["a sum", "a gap"],
)
def test_a_value_that_cannot_be_stored_after_its_draw_is_charged(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, mechanism: Any, value: Any, low: Any
) -> None:
    # If rolled back, an error could reveal how large the value was, unpaid and at every repetition.
    asked: Any = {"users": ["ada"], "batch": "one"}
    before = ledger.remaining("ada")
    with monkeypatch.context() as patched:
        patched.setattr(Book, "_add_up", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):  # nothing is returned before COMMIT
            ledger.release(mechanism, value, **asked)
    assert (ledger.charges(), ledger.check()) == (0, ())
    with pytest.raises(ValueLost, match="its users were charged") as lost:
        ledger.release(mechanism, value, **asked)
    receipt = lost.value.receipt
    assert (receipt.number, receipt.paid, receipt.value, receipt.repeated) == (1, 1, None, False)
    assert (ledger.charges(), ledger.check(receipt)) == (1, ())
    assert ledger.remaining("ada") != before
    for again in (value, low):
        with pytest.raises(InvalidParameter, match="charged before, and its value is not in"):
            ledger.release(mechanism, again, **asked)
    assert ledger.charges() == 1
    ledger.release(mechanism, low, users=["ada"], batch="two")
    assert ledger.charges() == 2


def test_a_refused_release_is_not_charged(ledger: Ledger) -> None:
    asked: dict[str, Any] = {"users": ["ada"], "batch": "one"}
    for mechanism, value in (
        (NOISY, np.arange(5)),  # the guarantee of one number does not cover five
        (NOISY, 1.5),
        (NOISY, "ten"),
        (CELLS, np.array([1.5])),
    ):
        with pytest.raises(InvalidParameter, match="value"):
            ledger.release(mechanism, value, **asked)
    with pytest.raises(InvalidParameter, match="seed = 7: is not private"):
        ledger.release(NOISY, 1, **asked, rng=SeededRng(7))
    with pytest.raises(InvalidParameter, match=r"mechanism|guarantee"):
        ledger.release(7, 1, **asked)  # type: ignore[arg-type]  # deliberately of the wrong type
    dear = Mechanism(noise=DiscreteGaussian(sigma_squared="1/4"), sensitivity=1, scope=CELLS.scope)
    refusal(lambda: ledger.release(dear, 1, **asked), BudgetExhausted)
    assert ledger.charges() == 0
    ledger.release(NOISY, 1, **asked)
    for question in ("how many", ""):
        with pytest.raises(InvalidParameter, match="for another question"):
            ledger.release(NOISY, 1, **asked, question=question)
    for mechanism, users in ((NOISY, ["bob"]), (CELLS, ["ada"])):
        with pytest.raises(InvalidParameter, match="was charged before"):
            ledger.release(mechanism, 1, users=users, batch="one")


def test_mechanisms_with_the_same_guarantee_are_distinguished(ledger: Ledger) -> None:
    asked: dict[str, Any] = {"users": ["ada"], "batch": "one", "rows_per_user": 1}
    first = NoisyMax(epsilon="1/10", sensitivity=1)
    released = ledger.release(first, [3, 4], **asked, question="which")
    (charge,) = ledger.history()
    assert guarantee_from_json(charge.guarantee).pure().upper == guarantee(first).pure().upper
    for other in (
        NoisyMax(epsilon="1/10", sensitivity=1, monotonic=True),
        AboveThreshold(epsilon="1/10", sensitivity=1, threshold=4),
        Selection(epsilon="1/10", sensitivity=1),
    ):
        with pytest.raises(InvalidParameter, match="for another mechanism"):
            ledger.release(other, [3, 4], **asked, question="which")
    assert ledger.release(first, [3, 4], **asked, question="which").value == released.value
    assert ledger.charges() == 1


def test_a_charge_and_a_release_of_one_batch_are_distinguished(ledger: Ledger) -> None:
    asked: Any = {"batch": "charged"}
    ledger.charge(["ada"], NOISY, **asked)
    with pytest.raises(InvalidParameter, match=r"and its value is not in the ledger"):
        ledger.release(NOISY, 1, users=["ada"], **asked)
    refusal(lambda: ledger.charge(["ada"], NOISY, **asked), AlreadyCharged)
    ledger.release(NOISY, 1, users=["ada"], batch="released")
    for repeat_ok in (False, True):
        with pytest.raises(InvalidParameter, match=r"was charged by Ledger\.release"):
            ledger.charge(["ada"], NOISY, batch="released", repeat_ok=repeat_ok)


VALUE, PAID = "released value was edited or deleted", "rows in ledger_paid were edited"


@pytest.mark.parametrize(
    ("edit", "found", "exported"),
    [
        ("UPDATE ledger_released SET value = '41'", VALUE, VALUE),
        ("DELETE FROM ledger_released", VALUE, VALUE),
        ("INSERT INTO ledger_released VALUES (2, '41')", VALUE, ""),
        ("INSERT INTO ledger_released VALUES (9, '41')", "value that was added later", ""),
        ("UPDATE ledger_released SET value = CAST(value AS BLOB)", "", VALUE),
        ("UPDATE ledger_paid SET name = CAST(name AS BLOB)", "", PAID),
        ("UPDATE ledger_paid SET name = 'eve'", "", PAID),
    ],
)
def test_an_edited_value_or_name_is_detected(
    url: str, edit: str, found: str, exported: str
) -> None:
    if "BLOB" in edit and url.startswith("postgresql"):
        return  # its columns keep their types
    with Ledger.create(url, budget=BUDGET) as ledger:
        ledger.release(NOISY, 10**6, users=["ada"], batch="one")
        ledger.charge(["ada"], NOISY, batch="two")
        assert ledger.check() == ()
        with ledger._store.writing() as connection:
            connection.execute(text(edit))
        assert found in str(ledger.check()[0])
        if exported:
            with pytest.raises(LedgerDamaged, match=exported):
                [*ledger.export()]
        if found and exported:
            with pytest.raises(LedgerDamaged, match=f"charge 1 .*{VALUE}"):
                ledger.release(NOISY, 0, users=["ada"], batch="one")


def test_a_ledger_created_before_stored_values_accepts_them(url: str, tmp_path: Path) -> None:
    with Ledger.create(url, budget=BUDGET) as ledger:
        ledger.charge(["ada"], NOISY, batch="old")
        with ledger._store.reading() as connection:
            found = connection.exec_driver_sql(
                "SELECT count(*) FROM sqlite_master WHERE name = 'ledger_released'"
                if ledger._store.is_file
                else "SELECT count(*) FROM pg_tables WHERE tablename = 'ledger_released'"
                " AND schemaname = current_schema()"
            ).scalar_one()
        assert found == 0
        value = ledger.release(NOISY, 3, users=["ada"], batch="new").value
        assert ledger.check() == ()
    with Ledger.open(url) as ledger:
        assert ledger.release(NOISY, 3, users=["ada"], batch="new").value == value
    if not url.startswith("postgresql"):
        assert backup(url, tmp_path / "copy.db") == 2


def test_kills_at_any_moment_lose_no_value_and_charge_once(tmp_path: Path) -> None:
    """A process publishes the released values and is killed; the next requests the same batches."""
    context, coins = processes(), random.Random(3)
    url, path, kills = str(tmp_path / "ledger.db"), tmp_path / "published", effort(7, 200)
    Ledger.create(url, budget=BUDGET).close()
    for _ in range(kills):
        before = path.stat().st_size if path.exists() else 0
        process = context.Process(target=release_on, args=(url, str(path), 1), daemon=True)
        process.start()
        enough = before + 7 * coins.randrange(5)  # a line has about 7 bytes
        while process.is_alive() and (not path.exists() or path.stat().st_size <= enough):
            time.sleep(0.0005)
        time.sleep(coins.expovariate(1 / 0.01))
        process.kill()
        process.join(30)
    published: dict[str, set[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        batch, value = line.split()
        published.setdefault(batch, set()).add(value)
    assert len(published) > 5
    # No batch was published with two values, and each batch was paid for once.
    assert all(len(values) == 1 for values in published.values())
    with Ledger.open(url) as ledger:
        assert ledger.check() == ()
        batches = [charge.batch for charge in ledger.history()]
        assert len(batches) == len(set(batches))
        assert set(published) <= set(batches)
        for batch, (value,) in published.items():
            found = ledger.release(NOISY, 0, users=["ada", "bob"], batch=batch)
            assert (str(found.value), found.repeated) == (value, True)
        assert ledger.remaining("ada")["rho"] == 1 - len(batches) * Fraction(1, 80000)
