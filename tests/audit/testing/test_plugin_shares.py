"""Tests of the pytest plugin's shares of alpha: fixed at collection, summed exactly."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

from audit.testing.alpha_budget import AlphaBudget
from audit.testing.pytest_plugin import _Run
from tests.effort import by_day
from tests.support.audit.plugin_runs import mutant, ran

SHARED = """
import json, pathlib
def noted(dp):
    bought = dp.buy()
    with pathlib.Path("spent").open("a") as file: file.write(f"{bought.alpha} {bought.runs}\\n")
pytestmark = pytest.mark.dp(runs=70)
@pytest.mark.parametrize("i", range(3))
def test_each(dp, i): noted(dp)
@pytest.mark.dp(audits=2, runs=90)
def test_two(dp): noted(dp), noted(dp)
@pytest.mark.skip
def test_never(dp): noted(dp)
def test_red(dp): noted(dp); assert False
def test_last(dp): noted(dp)
"""
# Options, the alpha spent (7 tests collected; 1e-3/7 each), and how many tests spent it.
RUNS: dict[str, tuple[tuple[str, ...], list[str], int]] = {
    "all": ((), ["1/7000 70"] * 3 + ["1/14000 90"] * 2 + ["1/7000 70"] * 2, 6),
    "-k": (("-k", "each"), ["1/7000 70"] * 3, 3),
    "-x": (("-x",), ["1/7000 70"] * 3 + ["1/14000 90"] * 2 + ["1/7000 70"], 5),
    "a file's part": (("test_suite.py::test_two",), ["1/2000 90"] * 2, 1),
    "--deselect": (("--deselect", "test_suite.py::test_each", "-k", "two"), ["1/14000 90"] * 2, 1),
    "nightly": (("-k", "last", "--dp-effort=nightly", "--dp-alpha=7e-9"), ["1/1000000000 700"], 1),
    "nothing": (("-k", "never"), [], 0),
}  # fmt: skip


def truth(folder: Path, told: str) -> tuple[bool, list[str]]:
    """Whether the printed line agrees with the shares noted by the tests, and these notes."""
    file = folder / "spent"
    spent = file.read_text().splitlines() if file.exists() else []
    total = sum((Fraction(entry.split()[0]) for entry in spent), Fraction())
    found = re.search(r"at most (\S+) \(", told)
    rate = Fraction(found[1]) if found else Fraction()
    return total <= rate <= total * Fraction(101, 100), spent


@by_day(1)
@pytest.mark.parametrize("case", RUNS)
def test_shares_are_fixed_at_collection_whatever_runs(tmp_path: Path, case: str) -> None:
    options, spent, tests = RUNS[case]
    run = ran(tmp_path, SHARED, *options)
    assert truth(tmp_path, run.line) == (True, spent), run.out
    collected = 1 if case == "a file's part" else 7
    ending = "" if tests == 1 else "s"
    assert run.line.startswith(
        f"dp: {tests} statistical test{ending} ran, of {collected} collected"
    )


@by_day(1)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sum(run.audited.values(), Fraction())", "max(run.audited.values())"),
        ("self.audited.get(test, Fraction()) + price", "price"),
    ],
    ids=["the largest for the sum", "the last for the sum"],
)
def test_a_line_that_says_less_than_was_spent_is_noticed(
    tmp_path: Path, old: str, new: str
) -> None:
    run = ran(tmp_path, SHARED, plugin=mutant(tmp_path, old, new))
    assert truth(tmp_path, run.line)[0] is False


def test_a_test_that_is_collected_twice_is_counted_twice(tmp_path: Path) -> None:
    twice = ("test_suite.py", "test_suite.py", "--keep-duplicates", "-k", "last")
    run = ran(tmp_path, SHARED, *twice)
    assert truth(tmp_path, run.line) == (True, ["1/14000 70"] * 2), run.out
    assert run.line.startswith("dp: 2 statistical tests ran, of 14 collected")


def test_an_interrupted_run_says_what_it_spent(tmp_path: Path) -> None:
    body = (
        SHARED
        + """
import os, signal
@pytest.mark.dp(epsilon=1, pair=(0, 1))
def test_z(dp):
    def stop(bit):
        os.kill(os.getpid(), signal.SIGINT)
        return bit
    signal.signal(signal.SIGINT, signal.default_int_handler)
    dp.audit(stop)
@pytest.mark.dp
def test_zz(dp): noted(dp)
"""
    )
    run = ran(tmp_path, body, "-k", "last or test_z")
    assert run.code == pytest.ExitCode.INTERRUPTED, run.out
    assert "dp: 2 statistical tests ran, of 9 collected" in run.line
    assert "at most 2.23e-4" in run.line


@pytest.mark.nightly
def test_workers_share_one_seed_and_one_budget(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    for options, tests in ((("-n", "2"), 6), (("-n", "2", "--dist", "each"), 6)):
        (tmp_path / "spent").unlink(missing_ok=True)
        run = ran(tmp_path, SHARED, *options)
        assert truth(tmp_path, run.line)[0] is True, run.out
        assert f"dp: {tests} statistical tests ran, of 7 collected" in run.line
    bad = "@pytest.mark.dp(epsilon=-1)\ndef test_it(dp): pass\n"
    run = ran(tmp_path, bad, "-n", "2")
    assert (run.code, "@pytest.mark.dp: epsilon = -1" in run.out) == (1, True)


def test_a_second_attempt_is_the_first_again() -> None:
    # A test that is run again after its failure asks for the same audit under the same name.
    run = _Run(alpha=Fraction(1, 10), effort="quick", seed=1, budget=AlphaBudget("1/10"))
    first, again = (run.bought("test_red", Fraction(1, 10), 1, 70) for _ in range(2))
    assert first == again
    assert run.audited == {"test_red": Fraction(1, 10)}
