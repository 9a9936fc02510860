"""Tests of `tests.effort`: part of the cases by day, all of them nightly, and none lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CASES = """
import pytest
from tests.effort import by_day, effort

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
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-s", "-p", "tests.conftest", "-m", marks),
            *("-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")),
            *("--rootdir", str(ROOT), str(tmp_path)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told in run.stdout, run.stdout + run.stderr
    assert ("wait for the night" in run.stdout) is bool(marks)
    assert {line[-1] for line in run.stdout.splitlines() if "case " in line} == cases
