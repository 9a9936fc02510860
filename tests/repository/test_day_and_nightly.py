"""Tests of `tests.day_and_nightly`: some cases by day, all of them nightly, none lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.run_command import pytest_alone

CASES = """
import pytest
from tests.day_and_nightly import by_day, effort

@by_day(3)
@pytest.mark.parametrize("n", [*range(8), pytest.param(8, marks=pytest.mark.nightly)])
def test_cases(n): print("case", n)

@by_day(5)
@pytest.mark.parametrize("n", range(2))
def test_few(n): pass

def test_effort(): assert effort(1, 9) == EXPECTED
"""


@pytest.mark.parametrize(
    ("marks", "told", "cases"),
    [
        ("not nightly", "6 passed, 6 deselected", {"0", "4", "7"}),
        ("", "12 passed", {str(n) for n in range(9)}),
    ],
    ids=["by day", "by night"],
)
def test_a_run_without_a_choice_of_marks_runs_everything(
    tmp_path: Path, marks: str, told: str, cases: set[str]
) -> None:
    (tmp_path / "test_it.py").write_text(CASES.replace("EXPECTED", "1" if marks else "9"))
    run = pytest_alone(tmp_path, "-s", "-m", marks)
    assert told in run.stdout, run.stdout + run.stderr
    assert ("wait for the night" in run.stdout) is bool(marks)
    assert {line[-1] for line in run.stdout.splitlines() if "case " in line} == cases
