"""The purse keeps its account, and refuses what would break it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from tests.effort import by_day
from tests.purse import TOTAL, Purse, PurseError, purse

ROOT = Path(__file__).parents[2]


def test_the_account_is_exact() -> None:
    own = Purse("1e-6")
    for index in range(10):
        own.buy(f"test {index}", 1e-7)  # ten times the float 1e-7 is not the float 1e-6
    assert own.spent == Fraction(1, 10**6)
    assert own.left == 0


def test_a_name_is_sold_once() -> None:
    own = Purse("1e-6")
    own.buy("cells", "1e-9")
    with pytest.raises(PurseError, match="'cells' is bought already"):
        own.buy("cells", "1e-9")


@pytest.mark.parametrize("alpha", [0, 1, -1, "1.5", "-1e-9"])
def test_an_alpha_lies_between_0_and_1(alpha: int | str) -> None:
    with pytest.raises(PurseError, match="strictly between 0 and 1"):
        Purse(10).buy("a", alpha)


def test_the_run_has_one_purse() -> None:
    assert Fraction(1, 10**6) == TOTAL
    assert purse.total == TOTAL * Fraction(os.environ.get("PURSE_SHARE", "1"))


@by_day(1)
@pytest.mark.parametrize(("second", "passed"), [("4e-7", True), ("7e-7", False)])
def test_a_run_that_overspends_fails_and_every_run_prints_its_account(
    tmp_path: Path, second: str, passed: bool
) -> None:
    """Two modules share one purse; together they may not pass its total."""
    body = "from tests.purse import purse\ndef test_it(): purse.buy({name!r}, {alpha!r})\n"
    for name, alpha in {"first": "5e-7", "second": second}.items():
        (tmp_path / f"test_{name}.py").write_text(body.format(name=name, alpha=alpha))
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest"),
            *("-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")),
            *("--rootdir", str(ROOT), str(tmp_path)),
        ],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "PURSE_SHARE"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == (0 if passed else 1), run.stdout + run.stderr
    account = "2 purchases spent 9e-07" if passed else "1 purchases spent 5e-07"
    assert account in run.stdout
    if not passed:
        assert "'second' asks for 7e-07, and 5e-07 of 1e-06 is left" in run.stdout


def test_the_parts_of_a_run_are_all_of_it_and_share_one_purse(pytestconfig: pytest.Config) -> None:
    told = subprocess.run(
        ["make", "-n", "test", "OPTIONS=-x"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    jobs = re.findall(r"PURSE_SHARE=1/(\d+) \S+ -m pytest -x (.*?) *\|\|", told.stdout)
    assert {int(share) for share, _ in jobs} == {len(jobs)}
    for file in (
        p for folder in pytestconfig.getini("testpaths") for p in (ROOT / folder).rglob("*.py")
    ):
        above = {str(folder) for folder in file.relative_to(ROOT).parents}
        left_out = {f"--ignore={folder}" for folder in above}
        words = [set(part.split()) for _, part in jobs]
        assert sum(bool(above & part) and not left_out & part for part in words) == 1, file
