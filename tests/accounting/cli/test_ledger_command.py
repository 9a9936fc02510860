r"""Tests of ``dpcore ledger``: charges, refusals, damage, exit codes."""

from __future__ import annotations

import io
import json
import sqlite3
import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest

from accounting.cli.composition_options import read_names
from accounting.ledger import AlreadyCharged, BudgetExhausted, LedgerDamaged, hash_chain
from tests.day_and_nightly import by_day
from tests.support.dpcore.mutants import mutated
from tests.support.run_command import Answer, typed

GAUSSIAN = ["--noise", "discrete-gaussian:sigma_squared=4"]


@dataclass
class Command:
    """Run the command in this process, on one ledger."""

    streams: pytest.CaptureFixture[str]
    path: Path

    def __call__(self, verb: str, *words: object) -> Answer:
        return typed(self.streams, "ledger", verb, "--db", self.path, *words)

    def left(self, user: str) -> Fraction:
        return Fraction(self("show", "--user", user, "--json").json["remaining"]["rho"])


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    return Command(capsys, tmp_path / "ledger.db")


@pytest.fixture
def opened(command: Command) -> Command:
    assert command("open", "--budget", "rho=1/2").code == 0
    return command


def test_a_sampled_release_and_shuffled_reports_are_charged(command: Command) -> None:
    for _ in range(2):
        budget = ["--budget", "epsilon=4,delta=1e-5", "--relation", "add-remove"]
        assert command("open", *budget).code == 0
    for batch, rate in (("all", "100%"), ("some", "1%")):
        given = ["--noise", "gaussian:sigma=4", "--rounds", "10", "--poisson", rate]
        assert command("charge", "--batch", batch, "--users", batch, *given).code == 0
    shown = []
    for user, rows in (("one", ["--sensitivity", 3]), ("three", ["--rows-per-user", 3])):
        noise = ["--noise", "discrete-laplace:scale=10"]
        assert command("charge", "--batch", user, "--users", user, *rows, *noise).code == 0
        shown.append(command("show", "--user", user).out.splitlines()[1:4])
    assert shown[0] == shown[1]
    nobody = command("show", "--user", "nobody").out.splitlines()
    assert nobody[:2] == ["user       nobody, never charged", "spent      epsilon=0,delta=0"]
    spent = [
        Fraction(command("show", "--user", user, "--json").json["spent"]["guarantee"]["epsilon"])
        for user in ("all", "some")
    ]
    assert 0 < 3 * spent[1] < spent[0]
    for words, option in (
        ("--noise gaussian:sigma=4 --scheme fixed-size:sample=1,population=9", "relation"),
        ("--noise local-hashing:epsilon=1,values=9 --scheme shuffled:users=9", "relation"),
        ("--claim rho=1/9 --reason x --poisson 1%", "--poisson"),
    ):
        refused = command("charge", "--batch", "other", "--users", "all", *words.split())
        assert (refused.code, option in refused.err) == (2, True)


def test_budgets_that_renew(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command("open", "--budget", "rho=1/2", "--renews", "year").code == 0
    first = ["budget     rho=1/2 for each year (UTC)", "periods    none"]
    assert command("show").out.splitlines()[::4] == first
    for number, (year, code) in enumerate(((2026, 0), (2026, 0), (2027, 0), (2026, 2))):
        monkeypatch.setattr(hash_chain, "now", lambda at=year: f"{at}-06-01T00:00:00+00:00")
        found = command("charge", "--batch", number, "--users", "ada", *GAUSSIAN)
        assert found.code == code
        if (number, code) == (1, 0):
            assert "\nperiods    1, 2026\n" in command("show").out
    assert "before the last charge in 2027: charges in an earlier period are refused" in found.err
    periods = "\nperiods    2, 2026 to 2027\ntogether   rho=1; each further year adds a budget\n"
    assert periods in command("show").out
    user = command("show", "--user", "ada").out.splitlines()
    assert user[1:6] == [
        "spent      rho=1/8 this year", "left       rho=3/8 this year", "in 2026    rho=1/4",
        "in 2027    rho=1/8", "together   rho=3/8",
    ]  # fmt: skip
    document = command("show", "--json").json
    assert (document["periods"], document["together"]["rho"]) == (["2026", "2027"], "1")
    assert [*command("show", "--user", "ada", "--json").json["periods"]] == ["2026", "2027"]


def test_charges_add_up_and_each_batch_is_charged_once(opened: Command) -> None:
    words = ["--batch", "monday", "--users", "ada, bob", *GAUSSIAN]
    answer = opened("charge", *words)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "charged 2 users for monday, charge 1\n"
    # One release with sigma^2 = 4 and sensitivity 1 is 1/8-zCDP.
    assert opened.left("ada") == opened.left("bob") == Fraction(1, 2) - Fraction(1, 8)
    again = opened("charge", *words)
    assert (again.code, again.err) == (AlreadyCharged.exit_code, "")
    expected = "already charged, so nothing was charged again: charge 1, monday, covered 2 users\n"
    assert again.out == expected
    assert opened("charge", *words, "--repeat-ok").code == 0
    answer = opened("charge", *words, "--json")
    found = answer.json
    assert {"batch", "charge", "digest", "paid", "left_out", "repeated"} == set(found) - {"schema"}
    assert (answer.code, found["repeated"]) == (4, True)
    assert (found["batch"], found["paid"], found["left_out"]) == ("monday", 2, [])
    fresh = opened("charge", "--batch", "tuesday", "--users", "ada", *GAUSSIAN, "--json")
    assert (fresh.code, fresh.json["repeated"]) == (0, False)
    assert opened.left("ada") == Fraction(1, 4)


def test_a_user_with_too_little_budget_is_refused(opened: Command) -> None:
    large = ["--noise", "discrete-gaussian:sigma_squared=5/4"]
    assert opened("charge", "--batch", "one", "--users", "ada", *large).code == 0
    answer = opened("charge", "--batch", "two", "--users", "ada,bob", *large)
    assert (answer.code, answer.out) == (BudgetExhausted.exit_code, "") == (1, "")
    assert len(answer.err.splitlines()) == 1
    assert "1 of 2 users has too little budget left: ada (rho=0.1)" in answer.err
    assert "nobody was charged" in answer.err
    skipped = opened("charge", "--batch", "two", "--users", "ada,bob", *large, "--skip-exhausted")
    assert skipped.code == 0
    assert skipped.out.splitlines() == ["charged 1 user for two, charge 2", "left out: ada"]
    # If no user can take part, nothing is released.
    nobody = opened("charge", "--batch", "three", "--users", "ada", *large, "--skip-exhausted")
    assert nobody.code == 1
    assert opened.left("ada") == opened.left("bob") == Fraction(1, 10)


@pytest.mark.parametrize("text", ["ada\nbob lovelace\n", "\ufeffada\r\nbob lovelace"])
def test_users_are_read_from_a_file_and_from_a_pipe(
    opened: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "users.txt").write_bytes(text.encode())
    answer = opened("charge", "--batch", "one", "--users-file", tmp_path / "users.txt", *GAUSSIAN)
    assert answer.code == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert opened("charge", "--batch", "two", "--users-file", "-", *GAUSSIAN).code == 0
    assert opened.left("ada") == opened.left("bob lovelace") == Fraction(1, 4)


def test_show_and_export_agree_with_the_charges(opened: Command) -> None:
    opened("charge", "--batch", "monday", "--users", "ada,bob", *GAUSSIAN)
    lines = dict(line.split(maxsplit=1) for line in opened("show").out.splitlines())
    assert lines == {
        "budget": "rho=1/2", "neighbours": "replace", "users": "2", "charges": "1",
        "history": "intact", "one": "user   dpcore ledger show --user NAME: budget spent and left",
    }  # fmt: skip
    found = opened("show", "--json").json
    assert (found["users"], found["charges"], found["damages"]) == (2, 1, [])
    assert "never charged" in opened("show", "--user", "eve").out
    claim = ["--claim", "rho=1/10", "--reason", "the vendor says so"]
    assert opened("charge", "--batch", "assumed", "--users", "cid", *claim).code == 0
    assert "assumed: the vendor says so" in opened("show", "--user", "cid").out
    assert opened("show", "--user", "cid", "--json").json["spent"]["claim"] == "assumed"
    text = opened("show", "--user", "ada").out
    assert "monday" in text
    assert "rho=3/8" in text
    records = [json.loads(line) for line in opened("export").out.splitlines()]
    assert records[0]["filter"]["budget"]["rho"] == "1/2"
    assert records[1]["users"] == ["ada", "bob"]
    assert len(records) == 3


def test_a_hand_edited_row_is_reported(opened: Command) -> None:
    opened("charge", "--batch", "monday", "--users", "ada,bob", *GAUSSIAN)
    assert opened("show").code == 0
    with sqlite3.connect(opened.path) as connection:
        connection.execute("UPDATE ledger_charges SET batch = 'tuesday'")
    assert opened("charge", "--batch", "two", "--users", "ada", *GAUSSIAN).code == 3
    for words in ([], ["--user", "bob"]):
        answer = opened("show", *words)
        assert (answer.code, "damaged" in answer.out) == (LedgerDamaged.exit_code, True)
        machine = opened("show", *words, "--json")
        assert (machine.code, bool(machine.json["damages"])) == (3, True)


CHARGE = ["charge", "--batch", "one"]
CLAIM = [*CHARGE, "--users", "ada", "--claim", "rho=1/100", "--reason", "r"]


@by_day(6)
@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["open", "--budget", "rho"], "--budget"),
        (["open", "--budget", "rho=1/2", "--renews", "week"], "--renews = week: must be one of"),
        (["open", "--budget", "rho=1"], "--budget = rho=1 (replace): must be rho=1/2"),
        (["open", "--budget", "rho=1/2", "--relation", "add-remove"], "=1/2 (add-remove): must"),
        ([*CHARGE, "--users", "ada"], "--noise: give exactly one of --noise and --claim"),
        ([*CHARGE, *GAUSSIAN], "--users: give exactly one of --users and --users-file"),
        ([*CHARGE, "--users", "ada", "--users-file", "-", *GAUSSIAN], "--users"),
        ([*CHARGE, "--users", "ada,ada", *GAUSSIAN], "--users"),
        ([*CHARGE, "--users-file", "/no/where", *GAUSSIAN], "--users-file"),
        ([*CHARGE, "--users", "-", *GAUSSIAN], "--users = -: is not a list of users; use --"),
        ([*CHARGE, "--users", "ada", "--claim", "rho=1"], "--reason"),
        ([*CHARGE, "--users", "ada", "--claim", "p=1", "--reason", "x"], "--claim"),
        ([*CLAIM, "--rows-per-user", "0"], "--rows-per-user = 0"),
        (["charge", "--batch", " ", "--users", "ada", *GAUSSIAN], "--batch"),
        # Options that would be ignored are refused.
        ([*CLAIM, "--sensitivity", "50"], "error: --sensitivity = "),
        ([*CHARGE, "--users", "ada", *GAUSSIAN, "--reason", "r"], "error: --reason = "),
        (["show", "--user", " ada"], "--user"),
    ],
)
def test_refusals_name_the_option_in_one_line(
    opened: Command, words: list[str], option: str
) -> None:
    answer = opened(*words)
    assert (answer.code, answer.out) == (2, "")
    assert len(answer.err.splitlines()) == 1
    assert option in answer.err
    assert opened.left("ada") == Fraction(1, 2)


def test_names_in_a_file_are_split_only_at_line_ends(opened: Command, tmp_path: Path) -> None:
    file = tmp_path / "users.txt"
    texts = {"ada\n\nbob\n": f"{file}: line 2 is empty", "ada\N{LINE SEPARATOR}bob\n": ""}
    for text, named in texts.items():
        file.write_text(text, encoding="utf-8")
        answer = opened("charge", "--batch", "one", "--users-file", file, *GAUSSIAN)
        assert (answer.code, f"--users-file = {named}" in answer.err) == (2, True)
    splitting = mutated(read_names, 'text.removesuffix("\\n").split("\\n")', "text.splitlines()")
    assert splitting("--users-file", str(file), "user") == ["ada", "bob"]


def test_a_missing_ledger_is_refused(command: Command, tmp_path: Path) -> None:
    for words in (["show"], ["export"], [*CHARGE, "--users", "ada", *GAUSSIAN]):
        answer = command(*words)
        assert (answer.code, answer.out) == (2, "")
        assert "no such file" in answer.err
    assert not command.path.exists()
    command.path = tmp_path / "no" / "folder.db"
    answer = command("open", "--budget", "rho=1")
    assert (answer.code, "the folder must exist" in answer.err) == (2, True)
