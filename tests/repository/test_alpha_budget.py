"""Tests of the settings of a run: one budget of false alarms, and some cases only at night."""

from __future__ import annotations

import os
import re
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest

from tests.alpha_budget import BUDGET, TOTAL
from tests.support.run_command import pytest_alone

ROOT = Path(__file__).parents[2]


def test_the_run_has_one_budget() -> None:
    assert Fraction(1, 10**6) == TOTAL
    assert BUDGET.total == TOTAL * Fraction(os.environ.get("ALPHA_SHARE", "1"))


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


@pytest.mark.parametrize("by_day", [True, False], ids=["by day", "by night"])
def test_a_run_without_a_choice_of_marks_runs_everything_within_one_budget(
    tmp_path: Path, by_day: bool
) -> None:
    """Two modules of each run share one budget, and by day exceed it together."""
    (tmp_path / "test_it.py").write_text(CASES.replace("EXPECTED", "1" if by_day else "9"))
    for name, alpha in {"first": "5e-7", "second": "7e-7" if by_day else "4e-7"}.items():
        (tmp_path / f"test_{name}.py").write_text(
            "from tests.alpha_budget import buy_alpha\n"
            f"def test_{name}(): buy_alpha({name!r}, {alpha!r})\n"
        )
    run = pytest_alone(tmp_path, "-s", "-m", "not nightly" if by_day else "")
    told = run.stdout + run.stderr
    assert ("1 failed, 7 passed, 6 deselected" if by_day else "14 passed") in told, told
    assert ("wait for the night" in told) is by_day
    cases = {line[-1] for line in told.splitlines() if "case " in line}
    assert cases == ({"0", "4", "7"} if by_day else {str(n) for n in range(9)})
    assert ("1 purchase spent 5e-7" if by_day else "2 purchases spent 9e-7") in told
    assert ("'second' needs alpha = 7e-7, but only 5e-7 of 1e-6 is left" in told) is by_day


def test_the_parts_of_a_run_cover_all_tests_and_share_one_budget(
    pytestconfig: pytest.Config,
) -> None:
    told = subprocess.run(
        ["make", "-n", "test", "OPTIONS=-x"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    jobs = re.findall(r"ALPHA_SHARE=1/(\d+) \S+ -m pytest -x (.*?) *\|\|", told.stdout)
    assert {int(share) for share, _ in jobs} == {len(jobs)}
    for file in (
        p for folder in pytestconfig.getini("testpaths") for p in (ROOT / folder).rglob("*.py")
    ):
        above = {str(folder) for folder in file.relative_to(ROOT).parents}
        left_out = {f"--ignore={folder}" for folder in above}
        words = [set(part.split()) for _, part in jobs]
        assert sum(bool(above & part) and not left_out & part for part in words) == 1, file
