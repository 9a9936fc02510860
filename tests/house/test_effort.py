"""A part of the cases by day, all of them by night, and none lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import effort
from tests.effort import some

ROOT = Path(__file__).parents[2]


def test_a_part_by_day_and_all_by_night(monkeypatch: pytest.MonkeyPatch) -> None:
    for everything, runs in ((False, 3), (True, 300)):
        monkeypatch.setattr(effort, "_everything", everything)
        assert effort.effort(3, 300) == runs
    with pytest.raises(ValueError, match=r"part = 4: must be in 1\.\.3"):
        effort.effort(4, 3)


def test_cases_kept_are_spread_and_the_others_are_marked() -> None:
    marked = some([*range(9), pytest.param(9, id="last")], 4)
    by_night = [case for case in marked if getattr(case, "marks", ())]
    assert [getattr(case, "values", (case,))[0] for case in marked] == [*range(10)]
    assert [case.values[0] for case in by_night] == [1, 2, 4, 5, 7, 8]
    assert some([(1, 2), (3, 4)], 2) == [(1, 2), (3, 4)]
    assert some([(1, 2), (3, 4)], 1)[1].values == (3, 4)
    with pytest.raises(ValueError, match=r"most = 3: must be in 1\.\.2"):
        some([1, 2], 3)


@pytest.mark.parametrize(("marks", "told"), [("not nightly", "2 passed"), ("", "9 passed")])
def test_a_run_without_a_choice_of_marks_runs_everything(
    tmp_path: Path, marks: str, told: str
) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\nfrom tests.effort import effort, some\n"
        "@pytest.mark.parametrize('n', some(range(8), 1))\ndef test_cases(n): pass\n"
        f"def test_effort(): assert effort(1, 9) == {1 if marks else 9}\n"
    )
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-m", marks),
            *("-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")),
            *("--rootdir", str(ROOT), str(tmp_path)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told in run.stdout, run.stdout + run.stderr
