"""Tests of tables of every kind: invalid ones give a one-line error, and nothing is charged."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]  # it brings no types
import pytest

from accounting import certify, compose, verify
from accounting.guarantees.stated_guarantees import Pure
from accounting.ledger import BudgetExhausted, Ledger, LedgerUnavailable
from accounting.queries import (
    Count,
    Histogram,
    Mean,
    Quantile,
    Session,
    Sum,
    Table,
    TableScope,
    Target,
    TopK,
    release,
)
from accounting.queries import table_with_rows_per_user as tables_module
from accounting.queries.count_sum_mean_quantile import Query
from dpcore import SeededRng
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation
from dpcore.sampling.rng import Rng
from tests.day_and_nightly import by_day
from tests.support.dpcore.refusals import refusal

SCOPE = TableScope(user="user", rows_per_user=2)
REPLACE = TableScope(user="user", rows_per_user=2, relation=Relation.REPLACE)
EXACT = Target(epsilon=2000)  # a count has any noise with probability at most e^-100
DATA: dict[str, list[Any]] = {
    "user": ["ada", "bob", "bob", "bob", "eve"],
    "x": [1.5, 2.0, 2.0, 2.0, 250.0],
    "key": ["a", "b", "b", "b", None],
}
AMOUNT = Sum(column="x", low=0, high=200, step="1/2")


def written(tmp_path: Path, text: str, name: str = "data.csv") -> Table:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return Table.open(path)


@pytest.fixture(scope="module")
def unspent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """A ledger for what is refused and charges nobody."""
    folder = tmp_path_factory.mktemp("unspent")
    with Ledger.create(str(folder / "l.db"), budget="epsilon=9,delta=1/2") as ledger:
        yield ledger


def frames(tmp_path: Path) -> dict[str, Any]:
    frame = pl.DataFrame(DATA)
    frame.write_csv(tmp_path / "a.csv")
    frame.write_parquet(tmp_path / "a.parquet")
    return {
        "polars": frame,
        "lazy": frame.lazy(),
        "pandas": pd.DataFrame(DATA),
        "pyarrow": pa.table(DATA),
        "csv": Table.open(tmp_path / "a.csv"),
        "parquet": Table.open(tmp_path / "a.parquet"),
    }


def test_every_kind_of_table_gives_the_same_answers(tmp_path: Path) -> None:
    for name, frame in frames(tmp_path).items():
        assert release(Count(), frame, SCOPE, EXACT).value == 4, name
        found = release(AMOUNT, frame, SCOPE, Target(epsilon=10**6)).value
        assert found == Fraction("205.5"), name
        keys = Histogram(column="key", keys=("a", "b", "z"))
        assert release(keys, frame, SCOPE, EXACT).value == {"a": 1, "b": 2, "z": 0}, name
        mean = Mean(column="x", low=0, high=200, step="1/2")
        assert release(mean, frame, SCOPE, Target(epsilon=10**6)).value == Fraction("205.5") / 4
        median = Quantile(column="x", low=0, high=200, step="1/2")
        assert release(median, frame, SCOPE, EXACT).value == 2, name


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "is empty"),
        ("user,x,x\nada,1,2\n", "column 3 has the same name 'x' as another"),
        ("user,,x\nada,1,2\n", "column 2 has no name"),
        ("name,x\nada,1\n", "user = user: is not a column of .*, which contains name, x"),
        ("user;x\nada;1,5\n", "which contains user;x: separate the columns by commas"),
        ("user,x\nada,1\n,2\n", "row 2, column user: must be given: every row must have a user"),
        ("x,user\n1,ada\n2, ada\n", "row 2, column user = ada: .* without leading or trailing"),
        ("user,x\nada,1\nada ,1\n,1\n", "row 3, column user: must be given"),
        ("user,x\nada,1\nbob,\n", "row 2, column x: must be a finite number"),
        ("user,x\nada,1\nbob,2\neve,-inf\n", "row 3, column x = -inf"),
        # Also in a row that would not count.
        ("user,x\n" + "bob,1\n" * 20 + "bob,n/a\n", "row 21, column x = n/a: must be a finite"),
        ("user,x\nada,1\nbob,2,3\n", "line 3 has 3 cells, but the header has 2 names"),
        # The CSV reader would take the second row for the amount of the first.
        ("user,x\nada,1\reve\nbob,2\n", "line 2 has a carriage return without a line feed"),
        ("user,x\r\nada,1\r\nbob,2\r", "line 3 has a carriage return without a line feed"),
        # Polars took the whole file for the name of the column, and counted no users.
        ("user\rada\rbob\r", "line 1 has a carriage return without a line feed"),
        ("user\rada\nbob\n", "line 1 has a carriage return without a line feed"),
        # Without quotes the user of both rows would be a first name.
        (
            "name,user,city,x\nHopper, Ada,u1,rome,1\nHopper, Eve,u1,rome,1\nPy,u2,rome,1\n",
            "line 2 has 5 cells, but the header has 4",
        ),
        ("user,x\nZo\udceb,1\n", "is not valid CSV: it must be UTF-8 text"),
        ("user,x\n", "has no row"),
    ],
)
def test_an_invalid_table_gives_a_one_line_error_and_charges_nothing(
    unspent: Ledger, tmp_path: Path, text: str, match: str
) -> None:
    asked: Any = (AMOUNT if "x" in text else Count(), REPLACE, Target(epsilon="1/8"))
    paid: dict[str, Any] = {"ledger": unspent, "batch": "one"}
    said = refusal(lambda: release(asked[0], written(tmp_path, text), *asked[1:], **paid))
    assert re.search(match, said)
    assert unspent.charges() == 0


ONE: dict[str, list[Any]] = {"user": ["ada", "bob"], "x": [1, 2]}
QUESTIONS: dict[str, Query] = {
    "users": Count(),
    "numbers": AMOUNT,
    "mean": Mean(column="x", low=0, high=2),
    "quantile": Quantile(column="x", low=0, high=2),
    "keys": Histogram(column="x", keys=("1", "2")),
    "unknown": Histogram(column="x"),
    "top": TopK(column="x", keys=("1", "2")),
}
NUMBERS = ("numbers", "mean", "quantile")
KEYS = ("keys", "unknown", "top")
NO_TEXT = r"column = {}: (contains .*, but must contain text, integers|contains values of sev)"
# The column, its values in two rows, the query that refuses it, and the message.
BAD: list[tuple[str, list[Any], tuple[str, ...], str]] = [
    ("x", [date(2026, 11, 1)] * 2, NUMBERS, r"column = x: contains Date"),
    ("x", [True, False], NUMBERS, r"column = x: contains Bool"),
    ("x", [True, False], ("keys", "top"), r"keys = 1: must match true.false: the column x con"),
    ("x", [b"1", b"2"], NUMBERS, r"column = x: contains Binary, but must contain numbers"),
    ("x", [1.0, math.nan], NUMBERS, r"row 2, column x"),
    ("x", [1.0, -math.inf], NUMBERS, r"row 2, column x = -inf: must be a finite number"),
    ("x", ["1", "two"], NUMBERS, r"row 2, column x = two: must be a finite number"),
    # 1.0 is not the key 1: no row would be counted.
    ("x", [1.0, 2.0], KEYS, NO_TEXT.format("x")),
    ("x", [[1], [2]], KEYS, NO_TEXT.format("x")),
    ("user", ["ada", None], tuple(QUESTIONS), r"row 2, column user: must be given"),
    ("user", ["ada", ""], tuple(QUESTIONS), r"row 2, column user = : must be given"),
    ("user", ["ada", " bob"], tuple(QUESTIONS), r"row 2, column user = bob: must be printable"),
    ("user", ["ada", "ad\u2800a"], tuple(QUESTIONS), r"row 2, column user = .*invisible"),
    ("user", [timedelta(1)] * 2, tuple(QUESTIONS), NO_TEXT.format("user")),
    ("user", [1.5, math.nan], tuple(QUESTIONS), NO_TEXT.format("user")),
    ("user", [b"ada", b"\xff"], tuple(QUESTIONS), NO_TEXT.format("user")),
]


@pytest.mark.parametrize("kind", QUESTIONS)
def test_two_spellings_of_a_name_are_not_two_users(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def frame(*users: str) -> pl.DataFrame:
        return pl.DataFrame({"user": users, "x": [1, 2]})

    scope = TableScope(user="user")
    target = Target(epsilon=40, delta="1e-9" if kind == "unknown" else 0)
    release(QUESTIONS[kind], frame("\u00e9", "\u00e8"), scope, target)
    with pytest.raises(InvalidParameter, match=r"row 2, column user = .*normal form NFC"):
        release(QUESTIONS[kind], frame("\u00e9", "e\u0301"), scope, target)
    monkeypatch.setattr(tables_module, "_valid", lambda text: True)
    release(QUESTIONS[kind], frame("\u00e9", "e\u0301"), scope, target)


@pytest.mark.parametrize("key", ["01", "one", "1.0", "-0", "\u0661"])
def test_keys_that_no_integer_has_are_refused(key: str) -> None:
    query = Histogram(column="x", keys=("1", key))
    with pytest.raises(InvalidParameter, match=f"keys = {key}: must match"):
        release(query, pl.DataFrame(ONE), TableScope(user="user"), EXACT)


@by_day(8)
@pytest.mark.parametrize(("column", "values", "refusing", "match"), BAD)
def test_an_invalid_frame_gives_a_one_line_error_and_charges_nothing(
    column: str,
    values: list[Any],
    refusing: tuple[str, ...],
    match: str,
    unspent: Ledger,
    tmp_path: Path,
) -> None:
    data = {**ONE, column: values}
    pl.DataFrame(data).write_parquet(tmp_path / "a.parquet")
    tables = {
        "polars": pl.DataFrame(data),
        "pandas": pd.DataFrame(data),
        "pyarrow": pa.table(data),
        "parquet": Table.open(tmp_path / "a.parquet"),
    }
    # Every library with one query, and every query with one library.
    pairs = [(library, refusing[0]) for library in tables]
    for library, name in (*pairs, *(("parquet", name) for name in refusing[1:])):
        target = Target(epsilon="1/8", delta="1/4" if name == "unknown" else 0)
        asked = partial(release, QUESTIONS[name], tables[library], REPLACE, target)
        said = refusal(partial(asked, ledger=unspent, batch="one"))
        assert re.search(match, said), (library, name)
    assert unspent.charges() == 0


def test_a_charged_release_is_stored_and_returned_again(tmp_path: Path) -> None:
    table = pl.DataFrame(DATA)
    with Ledger.create(str(tmp_path / "l.db"), budget="epsilon=1") as ledger:
        first = release(Count(), table, REPLACE, Target(epsilon=1), ledger=ledger, batch="one")
        changed = pl.DataFrame({**DATA, "x": [0.0] * 5})
        again = release(Count(), changed, REPLACE, Target(epsilon=1), ledger=ledger, batch="one")
        assert (first.value, first.repeated) == (again.value, False)
        assert again.repeated
        # The stored value of one query does not answer another query with the same noise.
        other = Sum(column="x", low=0, high=1)
        with pytest.raises(InvalidParameter, match="for another question"):
            release(other, table, REPLACE, Target(epsilon=1), ledger=ledger, batch="one")
        assert ledger.remaining("ada") == {"epsilon": 0}
        # No user can pay, so only the column of users is read, although the other cannot be read.
        broken = pl.DataFrame({**DATA, "x": ["?"] * 5})
        with pytest.raises(BudgetExhausted):
            release(AMOUNT, broken, REPLACE, Target(epsilon=1), ledger=ledger, batch="two")
        assert ledger.charges() == 1


def test_a_file_that_grows_while_it_is_read_is_refused(
    unspent: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, users = written(tmp_path, "user,x\nada,1\n"), Table.users

    def late(self: Table, scope: TableScope) -> list[str]:
        found = users(self, scope)
        with Path(table.name).open("a", encoding="utf-8") as file:
            file.write("eve,1\n")
        return found

    monkeypatch.setattr(Table, "users", late)
    with pytest.raises(InvalidParameter, match="changed while it was read"):
        release(Count(), table, REPLACE, Target(epsilon="1/8"), ledger=unspent, batch="one")
    assert unspent.charges() == 0


def test_under_add_remove_the_invited_users_are_charged(tmp_path: Path) -> None:
    budget = Pure(1, scope=SCOPE.scope)
    with Ledger.create(str(tmp_path / "l.db"), budget=budget) as ledger:
        asked: dict[str, Any] = {"ledger": ledger, "batch": "one"}
        table, target = pl.DataFrame(DATA), Target(epsilon=1)
        with pytest.raises(InvalidParameter, match="users: must be given under add-remove"):
            release(Count(), table, SCOPE, target, **asked)
        with pytest.raises(InvalidParameter, match="users = eve: has rows, but is not among"):
            release(Count(), table, SCOPE, target, **asked, users=["ada", "bob"])
        with pytest.raises(InvalidParameter, match="mixed scopes never compose"):
            release(Count(), table, REPLACE, target, **asked)
        with pytest.raises(InvalidParameter, match="seed = 1: is not private"):
            release(Count(), table, SCOPE, target, **asked, rng=SeededRng(1))
        assert ledger.charges() == 0
        everyone = ["ada", "bob", "eve", "absent"]
        release(Count(), table, SCOPE, target, **asked, users=everyone)
        assert ledger.remaining("absent") == {"epsilon": 0}


def test_a_session_answers_until_its_budget_is_spent(tmp_path: Path) -> None:
    for budget, one, twice in (
        ("epsilon=1", {"epsilon": "2/3"}, {"epsilon": "1/3"}),
        ("epsilon=1,delta=1e-6", {"epsilon": "1/8"}, {"rho": "1/10000"}),
    ):
        session = Session(pl.DataFrame(DATA), SCOPE, budget)
        session.ask(Count(), **one)
        session.ask(Histogram(column="key", keys=("a",)), **twice)
        with pytest.raises(BudgetExhausted, match="too little budget left"):
            session.ask(Sum(column="nothing", low=0, high=1), epsilon=50)  # nothing is read
        assert len(session.answers) == 2
        assert "<table>" in session._repr_html_()
    with Ledger.create(str(tmp_path / "l.db"), budget="epsilon=2") as ledger:
        sessions = [Session(pl.DataFrame(DATA), REPLACE, "epsilon=1", ledger) for _ in range(2)]
        values = [each.ask(Count(), epsilon=1, batch="count").value for each in sessions]
        assert values[0] == values[1]
        assert sessions[1].remaining == ledger.remaining("bob") == {"epsilon": 1}
        # Under a default name, another session would receive the stored answer of this one.
        assert "must name this release" in refusal(lambda: sessions[1].ask(Count(), epsilon=1))


@pytest.mark.parametrize(
    ("budget", "price", "slack"),
    [("epsilon=1", {"epsilon": "1/4"}, None), ("rho=1", {"rho": "1/8"}, "1e-6")],
)
def test_a_session_has_an_odometer_and_a_certificate(
    budget: str, price: dict[str, Any], slack: str | None
) -> None:
    session = Session(pl.DataFrame(DATA), SCOPE, budget)
    assert "at least one" in refusal(lambda: session.total)
    readings = [session.odometer(slack).epsilon]
    for _ in range(2):
        answer = session.ask(Count(), **price)
        readings.append(session.odometer(slack).epsilon)
    assert readings[0] == 0 < readings[1] < readings[2]
    assert session.odometer(slack).delta == Fraction(slack or 0)
    assert session.total == compose((answer.guarantee, 2))
    # A bound that holds at all times is at least the composed cost of the answers.
    assert session.total.epsilon(slack or 0).lower <= readings[2]  # type: ignore[operator]  # two ends
    assert verify(certify(session.total, deltas=["1e-6"]).text()).holds


def test_arguments_of_other_types_are_refused_by_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table, target = pd.DataFrame({"user": ["ada"]}), Target(epsilon=1)
    given: Any
    for given, words in (
        (("count", table, SCOPE, target), r"query = count: must be a Query, such as Count\(\)"),
        ((Count(), table, "user", target), "scope = user: must be a TableScope, such as TableSc"),
        ((Count(), table, SCOPE, 1), "target = 1: must be a Target, such as Target"),
        ((Count(), str(tmp_path / "x.csv"), SCOPE, target), r"must be Table.open\(file\)"),
        ((Count(), {"user": ["ada"]}, SCOPE, target), r"must be Table.open\(file\)"),
    ):
        assert re.search(words, refusal(partial(release, *given)))
    wrong: Any = "user"
    assert "scope = user: must be" in refusal(partial(Session, table, wrong, "epsilon=1"))
    frame: Any = table
    assert "for a frame, use Table.of" in refusal(partial(Table.open, frame))
    twice = pd.DataFrame([[1, 2]], columns=["user", "user"])
    assert "unique" in refusal(partial(Table.of, twice))
    wide, narrow = (
        pa.table({"user": ["ada"], "x": pa.array([Decimal("1.5")], kind)})
        for kind in (pa.decimal256(50, 3), pa.decimal128(30, 3))
    )
    mixed = [pd.DataFrame({"x": pd.Series(values, dtype=object)}) for values in ([1, "x"], [1j, 2])]
    for given in (wide, *mixed):
        line = refusal(partial(Table.of, given))
        assert line.startswith("column = x: contains values of several types")
    assert Table.of(narrow).columns == ("user", "x")
    assert capfd.readouterr().err == ""


def test_threads_do_not_overspend_a_session() -> None:
    # All threads wait in the table until each has submitted its query: each saw the whole budget.
    asked = threading.Barrier(4)
    session = Session(pl.DataFrame(DATA), SCOPE, "epsilon=1")

    class Slow(Count):
        def encode(self, table: Table, scope: TableScope, rng: Rng) -> int:
            with suppress(threading.BrokenBarrierError):
                asked.wait(0.3)
            return super().encode(table, scope, rng)

    def ask() -> int:
        with suppress(BudgetExhausted):
            session.ask(Slow(), epsilon=1)
            return 1
        return 0

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(lambda _: ask(), range(4))) == 1
    assert session.remaining == {"epsilon": 0}


def test_a_session_charges_drawn_answers_and_not_refused_ones(tmp_path: Path) -> None:
    class Interrupted(Count):
        def answer(self, drawn: Any, mechanism: Any, confidence: Fraction) -> NoReturn:
            raise KeyboardInterrupt

    class Lost:  # A ledger that fails after its commit.
        def __init__(self, ledger: Ledger) -> None:
            self.ledger = ledger

        def __getattr__(self, name: str) -> Any:
            return getattr(self.ledger, name)

        def release(self, *args: Any, **asked: Any) -> NoReturn:
            self.ledger.release(*args, **asked)
            raise LedgerUnavailable("ledger", "no answer")

    session = Session(pl.DataFrame(DATA), SCOPE, "epsilon=1")
    refusal(lambda: session.ask(Sum(column="key", low=0, high=1), epsilon=1))
    assert session.remaining == {"epsilon": 1}
    with pytest.raises(KeyboardInterrupt):
        session.ask(Interrupted(), epsilon=1)
    assert session.remaining == {"epsilon": 0}
    with Ledger.create(str(tmp_path / "l.db"), budget="epsilon=2") as ledger:
        lost: Any = Lost(ledger)
        session = Session(pl.DataFrame(DATA), REPLACE, "epsilon=1", lost)
        refusal(lambda: session.ask(Count(), epsilon=1, batch="lost"), LedgerUnavailable)
        lost.release = ledger.release
        # The stored answer was paid for.
        assert session.ask(Count(), epsilon=1, batch="lost").repeated
        assert session.remaining == {"epsilon": 0}


def test_noise_without_an_interval_is_refused_before_its_charge(unspent: Ledger) -> None:
    mean, table = Mean(column="x", low=0, high=10**9), pl.DataFrame(DATA)
    with pytest.raises(InvalidParameter, match="scale"):
        release(mean, table, REPLACE, Target(epsilon="1e-6"), ledger=unspent, batch="mean")
    assert unspent.charges() == 0
    for size in ("1e-251", "1e251"):
        with pytest.raises(InvalidParameter, match="at least 1e-250"):
            Mean(column="x", low=0, high=size, step=size)


def test_lines_may_end_with_crlf_and_quoted_cells_may_contain_it(tmp_path: Path) -> None:
    part = 1 << 20  # the block size: one pair of bytes lies across its end
    row = f'ada,"{"x" * (part - 15)}\r\n"\r\n'
    # Spaces before the name of a column are ignored.
    file = written(tmp_path, f"user, x\r\n{row}eve,1\r\n")
    assert "x" in file.columns
    assert Path(file.name).read_bytes()[part - 1 : part + 1] == b"\r\n"
    assert release(Count(), file, SCOPE, Target(epsilon=10**6)).value == 2


def test_times_that_differ_in_nanoseconds_are_different_users() -> None:
    times = pl.Series([0, 1, 1_000_000]).cast(pl.Time)
    rows = Table.of(pl.DataFrame({"user": times}))
    assert len(rows.users(SCOPE)) == 3
    same = Table.of(pl.DataFrame({"user": pl.Series([1, 1, 1]).cast(pl.Time)}))
    assert len(same.users(SCOPE)) == 1
