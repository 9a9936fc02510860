"""``dpcore audit TARGET``, the straight way: nothing is loaded that does not run, no run twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.effort import by_day
from tests.support.audit.command import ROOT

COUNTED = """
def count(dataset, rng):
    with open("calls", "a") as file:
        file.write("x")
    return dataset + int(rng.integers(4))
"""

PROBE = """
import sys
from dpcore.command.app import main
sys.argv = ["dpcore", "audit", *sys.argv[1:], "--json"]
try:
    main()
except SystemExit as ended:
    print(ended.code, *(name for name in sys.modules if name.split(".")[0] == "accounting"))
"""


def loaded(folder: Path, *words: object) -> list[str]:
    """The modules of accounting that an audit loads, in a fresh process."""
    (folder / "t.py").write_text(COUNTED)
    run = subprocess.run(
        [sys.executable, "-c", PROBE, *map(str, words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    code, *modules = run.stdout.splitlines()[-1].split()
    assert code in {"0", "1"}, run.stderr
    return modules


SAMPLED = ("t.py:count", "--claim", "epsilon=1", "--pair", 0, 1, "-n", 200, "--seed", 7)


def test_a_sampled_audit_loads_nothing_of_accounting(tmp_path: Path) -> None:
    assert loaded(tmp_path, *SAMPLED) == []


@by_day(1)
@pytest.mark.parametrize(
    "words",
    [
        ("discrete-laplace:scale=1", *SAMPLED[1:5], 1, "--seed", 7),
        ("t.py:count", "--claim", "discrete-laplace:scale=1@1", *SAMPLED[3:]),
    ],
    ids=["a known law", "a claimed curve"],
)
def test_an_audit_that_needs_accounting_is_seen_to_load_it(
    tmp_path: Path, words: tuple[object, ...]
) -> None:
    assert "accounting.release.guarantee" in loaded(tmp_path, *words)


def test_no_run_is_drawn_twice(tmp_path: Path) -> None:
    """But the 8 runs, never tested, that show whether the target keeps to its seed."""
    loaded(tmp_path, *SAMPLED)
    assert len((tmp_path / "calls").read_text()) == 200 + 2 * 8
