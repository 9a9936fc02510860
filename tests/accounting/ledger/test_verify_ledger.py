"""Tests of `Ledger.check` on databases edited by hand: the edit is detected and its place named."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert, select, text

from accounting.guarantees.stated_guarantees import Assumed
from accounting.ledger import Ledger, LedgerDamaged
from accounting.ledger.errors import Receipt
from accounting.ledger.hash_chain import Charge, Tables
from accounting.privacy_filters import SHARES
from tests.day_and_nightly import by_day
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refusal
from tests.support.ledger.budget import BUDGET, per_user

# The edit, and the message of the check.
EDITS = [
    ("UPDATE ledger_charges SET owed_0 = 1 WHERE id = 2", "charge 2 (batch 'two'): was edited"),
    ("UPDATE ledger_charges SET guarantee = '{}' WHERE id = 2", "charge 2 (batch 'two'): was edit"),
    ("UPDATE ledger_charges SET paid = 1 WHERE id = 2", "has 2 rows in ledger_paid"),
    ("UPDATE ledger_charges SET digest = 'x' WHERE id = 2", "charge 2 (batch 'two'): was edited"),
    ("UPDATE ledger_charges SET previous = 'x' WHERE id = 2", "does not follow the charge before"),
    ("UPDATE ledger_charges SET id = 9 WHERE id = 2", "charge 9 (batch 'two'): was edited"),
    ("DELETE FROM ledger_charges WHERE id = 2", "charge 2: is missing"),
    ("DELETE FROM ledger_charges WHERE id = 3", "last charge differs: 3 is recorded, 2 was"),
    ("DELETE FROM ledger_charges", "1: there is no such charge, but ledger_paid"),
    ("DELETE FROM ledger_paid WHERE charge = 2", "has 0 rows in ledger_paid"),
    ("INSERT INTO ledger_paid VALUES (7, 'eve')", "charge 7: there is no such charge"),
    ("UPDATE ledger_paid SET name = 'eve' WHERE name = 'bob'", "its rows in ledger_paid were"),
    ("UPDATE ledger_spared SET name = 'eve'", "its rows in ledger_spared were edited"),
    ("UPDATE ledger_users SET spent_0 = 0 WHERE name = 'bob'", "user 'bob': rho is 0, but the"),
    ("UPDATE ledger_users SET assumed = 2 WHERE name = 'bob'", "user 'bob': assumed charges is 2"),
    ("DELETE FROM ledger_users WHERE name = 'bob'", "user 'bob': was charged, but has no counters"),
    ("INSERT INTO ledger_users VALUES ('eve', 1, 0, 'x')", "user 'eve': rho is 1, but the history"),
    ("DELETE FROM ledger", "the row of the ledger is missing"),
    ("UPDATE ledger SET charges = 2", "last charge differs: 2 is recorded, 3 was"),
    ("UPDATE ledger SET head = 'x'", "last charge differs: 3 is recorded, 3 was"),
    ("UPDATE ledger SET filter = replace(filter, '\"1\"', '\"2\"')", "its filter differs from"),
    # The same content with other spacing: still not the stored text.
    ("UPDATE ledger SET filter = replace(filter, ':', ': ')", "its filter differs from the one"),
    ("UPDATE ledger SET identity = 'x'", "ledger: its identity differs from the one"),
    ("UPDATE ledger_users SET mark = 'x' WHERE name = 'bob'", "'bob': its row does not match its"),
    ("UPDATE ledger SET format = 3", "ledger: must have format 2"),
    ("UPDATE ledger_charges SET guarantee = replace(guarantee, ':', ': ') WHERE id = 2",
     "charge 2 (batch 'two'): was edited: its guarantee is not in canonical form"),
    ("INSERT INTO ledger_users VALUES ('eve', 0, 0, 'x')", "user 'eve': has counters, but was"),
]  # fmt: skip


# The table of released values is created with the first release: test_ledger_release.py.
TABLES = [
    kept for kept in Tables((SHARES,)).metadata.sorted_tables if kept.name != "ledger_released"
]


def three_charges(ledger: Ledger) -> list[Receipt]:
    return [
        ledger.charge(["ada", "bob"], per_user("1/2"), batch="one"),
        ledger.charge(["ada", "bob"], per_user("1/4"), batch="two"),
        ledger.charge(["ada", "cid", "dan"], per_user("1/2"), batch="three", skip_exhausted=True),
    ]


def edit(ledger: Ledger, *statements: str, **values: object) -> None:
    with ledger._store.writing() as connection:
        for statement in statements:
            connection.execute(text(statement), values)


def said(ledger: Ledger, *receipts: Receipt) -> str:
    return "\n".join(str(damage) for damage in ledger.check(*receipts))


@by_day(1)
def test_every_edit_is_detected_at_its_place(url: str) -> None:
    with Ledger.create(url, budget=BUDGET) as ledger:
        receipts = three_charges(ledger)
        assert ledger.check(*receipts) == ()
        with ledger._store.reading() as connection:
            whole = [(kept, connection.execute(select(kept)).mappings().all()) for kept in TABLES]
        for statement, expected in EDITS:
            edit(ledger, statement)
            assert expected in said(ledger), statement
            with ledger._store.writing() as connection:
                for kept, rows in whole:
                    connection.execute(delete(kept))
                    connection.execute(insert(kept), [*map(dict, rows)])
        assert ledger.check(*receipts) == ()


@pytest.mark.parametrize(
    ("statement", "match"),
    [
        ("UPDATE ledger_charges SET owed_0 = 1 WHERE id = 3", "charge 3 .*was edited: its digest"),
        ("DELETE FROM ledger_charges WHERE id = 3", "charge 2 differs from the last charge"),
        ("UPDATE ledger SET filter = replace(filter, '\"1\"', '\"2\"')", "its filter was edited"),
    ],
)
def test_no_charge_is_appended_to_a_damaged_history(url: str, statement: str, match: str) -> None:
    with Ledger.create(url, budget=BUDGET) as ledger:
        three_charges(ledger)
        edit(ledger, statement)
        with pytest.raises(LedgerDamaged, match=match):
            ledger.charge(["eve"], per_user("1/4"), batch="four")
        with Ledger.open(url) as again:
            assert again.check()


def test_edited_entries_are_not_shown_as_history(url: str) -> None:
    with Ledger.create(url, budget=BUDGET) as ledger:
        ledger.charge(["ada"], Assumed(per_user("1/4"), "a data sheet"), batch="zero")
        three_charges(ledger)
        edit(ledger, "UPDATE ledger_charges SET guarantee = '{}' WHERE id = 1")
        for look in (
            lambda: ledger.spent("ada"),
            ledger.history,
            lambda: list(ledger.export()),
            lambda: ledger.charge(["ada"], per_user("1/4"), batch="zero", repeat_ok=True),
        ):
            with pytest.raises(LedgerDamaged, match=r"charge 1 \(batch 'zero'\): was edited"):
                look()


@pytest.mark.parametrize(
    ("statement", "found", "match"),
    [
        *(
            (f"DROP TABLE {name}", "its tables differ from those of", "some of the tables of a")
            for name in ("ledger_charges", "ledger")
        ),
        ("UPDATE ledger SET filter = '{}'", "its filter differs", "ledger: its filter was edited"),
    ],
)
def test_missing_tables_and_an_unreadable_filter_are_damage(
    url: str, statement: str, found: str, match: str
) -> None:
    with Ledger.create(url, budget=BUDGET) as ledger:
        three_charges(ledger)
        edit(ledger, statement)
        assert found in said(ledger)
    for method in (Ledger.open, Ledger.create):
        with pytest.raises(LedgerDamaged, match=match):
            method(url, budget=BUDGET)


# A value of each SQLite type, and the same cell as bytes and with a space.
VALUES = ["0", "7", "-1", "9223372036854775807", "1.5", "'x'", "x'ff'", "CAST(x'ff' AS TEXT)"]
VALUES += ["CAST({column} AS BLOB)", "{column} || ' '"]


@pytest.mark.nightly
def test_a_change_of_any_cell_is_detected(tmp_path: Path) -> None:
    file = str(tmp_path / "ledger.db")
    with (
        Ledger.create(file, budget=BUDGET) as ledger,
        closing(sqlite3.connect(file, isolation_level=None)) as hand,
        closing(sqlite3.connect(":memory:")) as saved,
    ):
        ledger.charge(["ada"], per_user("1/2"), batch="one")
        # A name equal to the text form of bytes.
        ledger.charge(["b'x'"], Assumed(per_user("1/4"), "a data sheet"), batch="b'x'")
        ledger.charge(["b'x'"], per_user(1), batch="nobody", skip_exhausted=True)
        hand.execute("PRAGMA ignore_check_constraints = ON")
        hand.backup(saved)
        edits = 0
        for table, column, where, row in cells(saved):
            whole = content(hand, table, column)
            for value in VALUES:
                to = value.format(column=column)
                change = f"UPDATE {table} SET {column} = {to} {where}"  # noqa: S608 - by hand
                with suppress(sqlite3.IntegrityError):
                    hand.execute(change, row)
                if content(hand, table, column) != whole:
                    edits += 1
                    assert said(ledger), (change, row)
                    saved.backup(hand)
        assert edits > 300
        assert ledger.check() == ()


def cells(connection: sqlite3.Connection) -> Iterator[tuple[str, str, str, tuple[object, ...]]]:
    """Yield table, column, and the row selector of each cell."""
    for table in TABLES:
        key = [column.name for column in table.primary_key]
        where = f"WHERE {' AND '.join(f'{name} IS ?' for name in key)}"
        for row in connection.execute(f"SELECT {', '.join(key)} FROM {table}"):  # noqa: S608 - by hand
            yield from ((table.name, column.name, where, row) for column in table.columns)


def content(connection: sqlite3.Connection, table: str, column: str) -> list[tuple[object, ...]]:
    look = f"SELECT typeof({column}), hex({column}) FROM {table}"  # noqa: S608 - by hand
    return connection.execute(look).fetchall()


def rewrite(ledger: Ledger, forget: int) -> None:
    """Remove the last ``forget`` charges, as an attacker who knows the format would."""
    last = ledger.charges() - forget
    kept = ledger.history()[last - 1]
    edit(
        ledger,
        "DELETE FROM ledger_paid WHERE charge > :last",
        "DELETE FROM ledger_spared WHERE charge > :last",
        "DELETE FROM ledger_charges WHERE id > :last",
        "UPDATE ledger SET charges = :last, head = :digest",
        "UPDATE ledger_users SET spent_0 = COALESCE((SELECT SUM(owed_0) FROM ledger_paid p"
        " JOIN ledger_charges c ON c.id = p.charge WHERE p.name = ledger_users.name), 0)",
        "DELETE FROM ledger_users WHERE name NOT IN (SELECT name FROM ledger_paid)",
        last=last,
        digest=kept.digest,
    )


def test_a_completely_rewritten_history_is_detected_by_receipts(url: str) -> None:
    with Ledger.create(url, budget=BUDGET) as ledger:
        receipts = three_charges(ledger)
        rewrite(ledger, forget=1)
        assert ledger.check() == ()  # the file is consistent, but has another history
        assert said(ledger, *receipts) == "charge 3: is missing, but has a receipt"
        ledger.charge(["eve"], per_user("1/4"), batch="three")
        # Of two receipts for one charge, one is wrong.
        again = ledger.charge(["eve"], per_user("1/4"), batch="three", repeat_ok=True)
        for shown in (receipts, [receipts[-1], again], [again, receipts[-1]]):
            assert "differs from the charge in its receipt" in said(ledger, *shown)


def test_without_chained_digests_an_edit_would_be_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, chained in (("chained.db", True), ("unchained.db", False)):
        if not chained:
            digest: Any = Charge.__dict__["digest"]
            mutant = mutated(digest.fget, "self.spared_digest, self.previous", "self.spared_digest")
            monkeypatch.setattr(Charge, "digest", mutant)
        with Ledger.create(str(tmp_path / name), budget=BUDGET) as ledger:
            three_charges(ledger)
            # The second charge and the places that name its digest change, but no later digest.
            edit(
                ledger,
                "UPDATE ledger_charges SET batch = 'renamed', digest = :digest WHERE id = 2",
                "UPDATE ledger_charges SET previous = :digest WHERE id = 3",
                digest=replace(ledger.history()[1], batch="renamed").digest,
            )
            assert bool(ledger.check()) == chained


def test_overwritten_bytes_are_reported_as_damage(tmp_path: Path) -> None:
    file, page = tmp_path / "ledger.db", 4096
    with Ledger.create(str(file), budget=BUDGET) as ledger:
        ledger.charge([f"user {n}" for n in range(2000)], per_user("1/8"), batch="one")
    content = bytearray(file.read_bytes())
    assert len(content) > 20 * page
    content[12 * page : 12 * page + 100] = bytes(100)
    file.write_bytes(content)
    with Ledger.open(str(file)) as ledger:
        assert ledger.check()
    content[:100] = b"not a database".ljust(100)
    file.write_bytes(content)
    assert "is not an intact database" in refusal(lambda: Ledger.open(str(file)), LedgerDamaged)
