"""The plugin is found by pytest where dpcore is installed, and costs nothing until it is used."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.effort import by_day
from tests.support.audit.plugin_runs import HEAD, PLUGIN, ROOT, Ran, mutant, started

HEAVY = ("numpy", "scipy", "dpcore", "accounting", "audit.report", "audit.targets", "audit.sample")

CONFTEST = f"""
import sys
def pytest_sessionfinish(session):
    print()
    print("loaded:", *(name for name in {HEAVY!r} if name in sys.modules))
"""
QUIET = "def test_it(): pass\n"
MARKED = (
    HEAD
    + """
@pytest.mark.dp(epsilon=1, pair=(0, 1), runs=2000)
def test_it(dp): dp.audit(kept)
"""
)


def installed(folder: Path, *options: str, body: str = QUIET, plugin: str | None = None) -> Ran:
    """A suite where pytest finds what pyproject.toml declares, as in an installed dpcore."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    points = declared["project"]["entry-points"]["pytest11"]
    place = folder / "site" / "dpcore_suite-0.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: dpcore-suite\nVersion: 0\n")
    lines = [f"{name} = {plugin or module}" for name, module in points.items()]
    (place / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_suite.py").write_text(body)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\nstrict = true\n")
    words = ("-m", "pytest", "-p", "no:cacheprovider", "-s", *options)
    return started(folder, *words, path=folder / "site")


def test_a_suite_that_audits_nothing_loads_nothing(tmp_path: Path) -> None:
    run = installed(tmp_path)
    assert run.code == 0, run.out
    assert "\nloaded:\n" in run.out
    assert "--dp-alpha" in installed(tmp_path / "help", "--help").out


def test_a_plugin_that_loads_numpy_is_caught(tmp_path: Path) -> None:
    name = mutant(tmp_path, "import argparse\n", "import argparse\nimport numpy\n")
    run = installed(tmp_path, plugin=name)
    assert "\nloaded: numpy\n" in run.out


@by_day(1)
@pytest.mark.parametrize("options", [(), ("-p", PLUGIN)], ids=["found", "found and named"])
def test_a_marked_test_audits_and_the_plugin_is_registered_once(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    run = installed(tmp_path, *options, "--dp-seed", "7", body=MARKED)
    assert run.code == 0, run.out
    assert run.line.startswith("dp: 1 statistical test ran, of 1 collected")
