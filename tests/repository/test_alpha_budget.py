"""Tests of `tests.alpha_budget`: one budget of false alarms per run, with a printed summary."""

from __future__ import annotations

import os
import re
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest

from tests.alpha_budget import BUDGET, TOTAL
from tests.day_and_nightly import by_day
from tests.support.run_command import pytest_alone

ROOT = Path(__file__).parents[2]


def test_the_run_has_one_budget() -> None:
    assert Fraction(1, 10**6) == TOTAL
    assert BUDGET.total == TOTAL * Fraction(os.environ.get("ALPHA_SHARE", "1"))


@by_day(1)
@pytest.mark.parametrize(("second", "passed"), [("4e-7", True), ("7e-7", False)])
def test_a_run_that_exceeds_the_alpha_budget_fails_and_every_run_prints_its_total(
    tmp_path: Path, second: str, passed: bool
) -> None:
    """Two modules share one budget; together they may not exceed its total."""
    body = (
        "from tests.alpha_budget import buy_alpha\ndef test_it(): buy_alpha({name!r}, {alpha!r})\n"
    )
    for name, alpha in {"first": "5e-7", "second": second}.items():
        (tmp_path / f"test_{name}.py").write_text(body.format(name=name, alpha=alpha))
    run = pytest_alone(tmp_path)
    assert run.returncode == (0 if passed else 1), run.stdout + run.stderr
    account = "2 purchases spent 9e-7" if passed else "1 purchase spent 5e-7"
    assert account in run.stdout
    if not passed:
        assert "'second' needs alpha = 7e-7, but only 5e-7 of 1e-6 is left" in run.stdout


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
