"""Tests of ``dpcore release``."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_command import Answer, typed

LINES = ["user_id,city,amount"] + [f"u{i % 40},{'ab'[i % 2]},{i % 7}.25" for i in range(400)]


class Shell:
    """Run commands in a folder with ``visits.csv`` and ``cities.txt``."""

    def __init__(self, folder: Path, streams: pytest.CaptureFixture[str]) -> None:
        self.folder, self.streams = folder, streams
        (folder / "visits.csv").write_text("\n".join(LINES) + "\n", encoding="utf-8")
        (folder / "cities.txt").write_text("a\nb\nz\n", encoding="utf-8")

    def __call__(self, query: str, *words: object, file: str = "visits.csv") -> Answer:
        asked = ["release", *query.split(), self.folder / file, "--user", "user_id", *words]
        return typed(self.streams, *asked)

    def open(self, *words: object) -> str:
        url = str(self.folder / "year.db")
        assert typed(self.streams, "ledger", "open", "--db", url, *words).code == 0
        return url


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, capsys)


NUMBERS = ("--column", "amount", "--clip", "0", "8", "--step", "0.25")
PRECISE = ("--rows-per-user", "10", "--epsilon", "100000")
DOCUMENT = {
    "schema", "query", "standard_error", "interval", "confidence", "noise", "guarantee",
    "rows_per_user", "charge", "repeated", "private", "note",
}  # fmt: skip


def test_printed_numbers_are_rounded_to_the_safe_side(shell: Shell) -> None:
    for epsilon in ("1/3", "2/3", "1/7"):
        text = shell("plan count", "--epsilon", epsilon).out
        lines = dict(line.split(maxsplit=1) for line in text.splitlines())
        assert Fraction(lines["guarantee"].split()[0].removeprefix("epsilon=")) >= Fraction(epsilon)
        exact = shell("plan count", "--epsilon", epsilon, "--json").json["standard_error"]
        assert float(lines["standard"].removeprefix("error").strip()) >= exact
    # A mean has no short decimals: the printed interval is not narrower than the exact one.
    asked = ("mean", *NUMBERS, "--epsilon", "1", "--seed", "5", "--confidence", "0.9")
    ends = shell(*asked, "--json").json["interval"]
    low, high = shell(*asked).out.split("interval: ")[1].split(")")[0].split(" to ")
    assert Fraction(low) <= Fraction(ends[0]) + Fraction(1, 10**15)
    assert Fraction(high) >= Fraction(ends[1]) - Fraction(1, 10**15)
    # Large sums keep all digits.
    most = 2**32 - 1
    rows = [f"u{i},{most}" for i in range(1000)]
    large = "\n".join(["user_id,amount", *rows, "eve,1"]) + "\n"
    (shell.folder / "large.csv").write_text(large, encoding="utf-8")
    words = ("--column", "amount", "--clip", "0", most, "--rho", "1e30")
    shown = shell("sum", *words, file="large.csv").out.split()[1]
    assert Fraction(shown) == 1000 * most + 1
    # The confidence of a quantile is never printed as one.
    sure = f"--epsilon 1 --confidence 0.{'9' * 400}"
    for options in ("--rho 1e400", "--epsilon 1e400", "--epsilon 1e-400", sure):
        found = shell("quantile", *NUMBERS, *options.split(), "--seed", "1")
        assert (found.code, found.err, "100%" in found.out) == (0, "", False)


def test_each_query_prints_its_result(shell: Shell) -> None:
    true = sum(i % 7 + 0.25 for i in range(400))
    wanted: list[tuple[str, tuple[object, ...], Any]] = [
        ("count", (), 400),
        ("sum", NUMBERS, true),
        ("mean", NUMBERS, true / 400),
        ("quantile", (*NUMBERS, "-q", "0.5"), 3.25),
        ("histogram", ("--column", "city", "--keys", shell.folder / "cities.txt"), (200, 200, 0)),
        ("top", ("--column", "city", "--keys", shell.folder / "cities.txt", "-k", "2"), ["a", "b"]),
    ]
    for query, words, value in wanted:
        found = shell(query, *words, *PRECISE, "--json").json
        assert set(found) - {"value", "values"} == DOCUMENT
        shown = found.get("value", tuple(found.get("values", {}).values()))
        if query == "top":
            shown = sorted(shown)
        assert shown == value, query
        guarantee = {"epsilon": 100000, "unit": "user", "relation": "add-remove"}
        assert (found["guarantee"], found["private"]) == (guarantee, True)
        assert shell(query, *words, *PRECISE).out.splitlines()
    unknown = ("--column", "city", "--unknown-keys", "--delta", "1e-6", *PRECISE, "--json")
    assert shell("histogram", *unknown).json["values"] == {"a": 200, "b": 200}


def test_a_note_says_which_rows_are_counted_and_what_is_not_private(shell: Shell) -> None:
    column = ("--column", "city", "--keys", shell.folder / "cities.txt")
    one = "at most 1 row of each user, chosen at random, is counted"
    assert shell("count", "--epsilon", "1", "--json").json["note"] == one
    seeded = [shell("count", "--epsilon", "1/10", "--seed", "5", "--json").json for _ in range(2)]
    assert seeded[0] == seeded[1]
    assert seeded[0]["private"] is False
    assert "never publish this" in shell("count", "--epsilon", "1/10", "--seed", "5").out
    ten = one.replace("1 row", "10 rows").replace(" is ", " are ")
    for asked in (("sum", *NUMBERS), ("mean", *NUMBERS), ("quantile", *NUMBERS), ("top", *column)):
        assert shell(*asked, *PRECISE, "--json").json["note"].startswith(ten), asked
    found = shell("count", "--epsilon", "1", "--confidence", "90%", "--json").json
    assert found["confidence"] == 0.9
    plan = ("plan sum", *NUMBERS, "--epsilon", "1")
    assert "discrete-laplace:scale=32, in steps of 0.25\n" in shell(*plan).out
    assert "steps" not in shell("plan count", "--epsilon", "1").out


def test_a_repeated_batch_is_charged_once_and_returns_the_stored_value(shell: Shell) -> None:
    url = shell.open("--budget", "rho=1/50")
    words = (*NUMBERS, "--rho", "0.01", "--ledger", url, "--batch", "2026-11", "--json")
    first, again = shell("sum", *words).json, shell("sum", *words).json
    assert (first["repeated"], again["repeated"]) == (False, True)
    assert first["value"] == again["value"]
    assert first["charge"] == again["charge"] == {"charge": 1, "users": 40}
    assert first["guarantee"] == {"rho": 0.01, "unit": "user", "relation": "replace"}
    planned = shell("plan sum", *words[:-1], "--json")
    assert planned.json["charge"] == {"costs": {"rho": "1/100"}, "fits": True}
    assert planned.json["value"] is None
    assert shell("count", "--rho", "0.01", "--ledger", url, "--batch", "b").code == 0
    poor = shell("count", "--rho", "0.01", "--ledger", url, "--batch", "c")
    assert (poor.code, poor.out) == (1, "")
    assert "have too little budget left" in poor.err
    assert shell("sum", *words).json["value"] == first["value"]  # also when the budget is exhausted


def test_a_plan_shows_the_true_cost_and_whether_it_fits(shell: Shell) -> None:
    url = shell.open("--budget", "epsilon=1")
    for epsilon, code in (("10", 1), ("3/2", 1), ("1", 0), ("1/3", 0)):
        words = ("--epsilon", epsilon, "--ledger", url)
        found = shell("plan count", *words)
        assert f"costs           epsilon={epsilon}\n" in found.out
        assert "budget          epsilon=1 before any charge; --users-file" in found.out
        assert (found.code, "does not fit" in found.out) == (code, code == 1)
        whole = shell("plan count", *words, "--json")
        exact = {"costs": {"epsilon": str(Fraction(epsilon))}, "fits": code == 0}
        assert (whole.code, whole.json["charge"]) == (code, exact)
    # A dry run is a plan; a release is refused with the same cost.
    assert shell("count", "--epsilon", "10", "--db", url, "--dry-run").code == 1
    refused = shell("count", "--epsilon", "10", "--db", url, "--batch", "one")
    assert (refused.code, "the batch costs epsilon=10;" in refused.err) == (1, True)
    keys = ("--column", "city", "--unknown-keys", "--epsilon", "1/8", "--delta", "1e-6")
    for query in ("histogram", "plan histogram"):
        found = shell(query, *keys, "--ledger", url, "--batch", "two")
        assert (found.code, found.out) == (2, "")
        assert "--ledger = epsilon=1: has no delta for unknown keys: name the keys" in found.err


def test_an_approximate_budget_is_counted_as_rho(shell: Shell) -> None:
    url = shell.open("--budget", "epsilon=1,delta=1e-5")
    counted = "(an epsilon,delta budget is counted as rho and delta)"
    for epsilon, code in (("3/2", 1), ("1/4", 1), ("1/5", 0)):
        found = shell("plan count", "--epsilon", epsilon, "--ledger", url)
        (line,) = (each for each in found.out.splitlines() if each.startswith("costs "))
        assert (found.code, line.endswith(counted)) == (code, True)
        assert max(map(len, found.out.splitlines())) < 100  # no exact fraction is printed
    refused = shell("count", "--epsilon", "1/2", "--ledger", url, "--batch", "one")
    assert refused.code == 1
    assert f"the batch costs rho=0.12246, delta=0 {counted}" in refused.err
    keys = ("--column", "city", "--unknown-keys", "--delta", "1e-6")
    words = ("--epsilon", "1/20", "--ledger", url, "--batch", "two")
    assert shell("histogram", *keys, *words).code == 0
    shown = typed(shell.streams, "ledger", "show", "--ledger", url, "--user", "u1")
    assert (shown.code, "/" in shown.out) == (0, False)


def test_a_plan_and_a_dry_run_read_the_header_only(shell: Shell) -> None:
    (shell.folder / "bad.csv").write_text("user_id,amount\nada,?\n,\n", encoding="utf-8")
    words = (*NUMBERS, "--rho", "0.01")
    for query, more in (("plan sum", ()), ("sum", ("--dry-run",)), ("mean", ("--dry-run",))):
        assert shell(query, *words, *more, file="bad.csv").code == 0
    assert shell("sum", *words, file="bad.csv").code == 2
    keys = ("--column", "city", "--keys", shell.folder / "cities.txt", "--epsilon", "1")
    for query in ("histogram", "top", "count"):
        assert shell(f"plan {query}", *(keys if query != "count" else keys[-2:])).code == 0
    assert shell("plan quantile", *NUMBERS, "--epsilon", "1", "-q", "0.9").code == 0


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ("count", "give either epsilon or rho"),
        ("count --epsilon 1e-300", "--epsilon = 1/1000"),
        ("plan count --rho 1e300", "--rho = 1000"),
        ("count --epsilon 1 --batch x", "--batch = x: is valid only with a ledger"),
        ("count --epsilon 1 --confidence 1", "--confidence = 1"),
        ("count --epsilon 1 --rows-per-user 0", "--rows-per-user = 0"),
        ("count --epsilon 1 --confidence 95", "--confidence = 95: must lie between 0% and 100%"),
        ("sum --column city --clip 0 8 --rho 1", "row 1, column city = a"),
        ("sum --column no --clip 0 8 --rho 1", "--column = no: is not a column"),
        ("sum --column amount --clip 8 0 --rho 1", "--clip = 8 0"),
        ("sum --column amount --clip 0 8 --step 3 --rho 1", "--step = 3: must divide both bounds"),
        ("histogram --column city --epsilon 1", "give exactly one of --keys"),
        (
            "histogram --column city --keys red,green --epsilon 1",
            "--keys = red,green: there is no such file: give a file with one key per line",
        ),
        ("plan median --epsilon 1", "No such command 'median'"),
        ("plan sum --epsilon 1", "Missing option '--column'"),
    ],
)
def test_an_invalid_request_names_its_option(shell: Shell, asked: str, named: str) -> None:
    found = shell(asked)
    assert (found.code, found.out) == (2, "")
    assert named in found.err
    assert found.err.count("\n") == 1


def test_under_add_remove_all_invited_users_are_charged(shell: Shell) -> None:
    url = shell.open("--budget", "epsilon=1", "--relation", "add-remove")
    words = ("--epsilon", "1", "--ledger", url, "--batch", "one")
    missing = shell("count", *words)
    assert missing.code == 2
    assert "--users-file: must be given under add-remove" in missing.err
    asked = shell.folder / "asked.txt"
    asked.write_text("".join(f"u{i}\n" for i in range(50)), encoding="utf-8")
    found = shell("count", *words, "--users-file", asked, "--json")
    assert found.json["charge"] == {"charge": 1, "users": 50}
    assert found.json["guarantee"]["relation"] == "add-remove"
    planned = shell("plan count", *words, "--users-file", asked, "--json").json
    costs = {"costs": {"epsilon": "1"}, "least_left": {"epsilon": "0"}}
    assert planned["charge"] == {**costs, "fits": False}
    some = shell("plan count", *words, "--users-file", asked)
    assert (some.code, "least left      epsilon=0\ndoes not fit " in some.out) == (1, True)
    other = shell("count", *words, "--users-file", asked, "--relation", "replace")
    assert (other.code, "--relation" in other.err) == (2, True)


def test_a_damaged_ledger_gives_exit_code_3_and_a_missing_one_2(shell: Shell) -> None:
    url = shell.open("--budget", "epsilon=4")
    words = ("--epsilon", "1", "--ledger", url, "--batch", "one")
    assert shell("count", *words).code == 0
    with closing(sqlite3.connect(url)) as database, database:
        database.execute("UPDATE ledger_released SET value = '7'")
    damaged = shell("count", *words)
    assert (damaged.code, damaged.out) == (3, "")
    assert "its released value was edited" in damaged.err
    absent = shell("count", "--epsilon", "1", "--ledger", f"{url}x", "--batch", "one")
    assert (absent.code, absent.out) == (2, "")
