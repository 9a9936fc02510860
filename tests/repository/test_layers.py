"""Tests of the import contracts: they hold for this tree, and fail for forbidden imports."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.effort import by_day

ROOT = Path(__file__).parents[2]
PACKAGES = ("dpcore", "accounting", "audit", "bandits")
ALLOWED = {
    ("accounting", "dpcore"),
    ("audit", "dpcore"),
    ("audit", "accounting"),
    ("bandits", "dpcore"),
    ("bandits", "accounting"),
}
PAIRS = [(a, b) for a in PACKAGES for b in PACKAGES if a != b]
SETTINGS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BETWEEN, CIRCLES, *INSIDE = SETTINGS["tool"]["importlinter"]["contracts"]
FLOORS = {
    contract["containers"][0]: [layer.split(" | ") for layer in contract["layers"]]
    for contract in INSIDE
}


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the project's own contracts on the packages in ``folder``."""
    probe = "import sys; from importlinter.cli import lint_imports_command as run; run()"
    return subprocess.run(
        [sys.executable, "-c", probe, "--no-cache", "--config", str(ROOT / "pyproject.toml")],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def plant(folder: Path, importer: str = "", imported: str = "") -> None:
    """Create the four packages with their folders, empty but for one import."""
    for package in PACKAGES:
        for room in [name for floor in FLOORS[package] for name in floor]:
            (folder / package / room).mkdir(parents=True)
            (folder / package / room / "__init__.py").touch()
        (folder / package / "__init__.py").touch()
    if importer:
        (folder / importer.replace(".", "/") / "deep.py").write_text(
            f"def late():\n    import {imported}\n    return {imported}\n"
        )


def test_this_tree_keeps_its_layers() -> None:
    run = lint(ROOT)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"Contracts: {2 + len(PACKAGES)} kept, 0 broken." in run.stdout


@by_day(4)
@pytest.mark.parametrize(("importer", "imported"), PAIRS, ids=lambda name: name)
def test_a_forbidden_import_breaks_the_contract(
    tmp_path: Path, importer: str, imported: str
) -> None:
    """The import is found even inside a function of a module below the package."""
    ground, top = FLOORS[importer][-1][0], FLOORS[imported][0][0]
    plant(tmp_path, f"{importer}.{ground}", f"{imported}.{top}")
    run = lint(tmp_path)
    if (importer, imported) in ALLOWED:
        assert run.returncode == 0, run.stdout + run.stderr
    else:
        assert run.returncode == 1
        assert f"{importer}.{ground}.deep -> {imported}.{top}" in run.stdout


@by_day(2)
@pytest.mark.parametrize("package", PACKAGES)
def test_an_import_of_a_higher_floor_or_a_neighbour_breaks_the_contract(
    tmp_path: Path, package: str
) -> None:
    floors = FLOORS[package]
    wide = next(floor for floor in floors if len(floor) > 1)
    for number, (low, high) in enumerate([(floors[-1][0], floors[0][0]), (wide[0], wide[1])]):
        folder = tmp_path / str(number)
        plant(folder, f"{package}.{low}", f"{package}.{high}")
        run = lint(folder)
        assert run.returncode == 1
        assert f"{package}.{low}.deep -> {package}.{high}" in run.stdout


def test_a_folder_that_no_floor_names_breaks_the_contract(tmp_path: Path) -> None:
    plant(tmp_path)
    assert lint(tmp_path).returncode == 0
    (tmp_path / "audit" / "attic").mkdir()
    (tmp_path / "audit" / "attic" / "__init__.py").touch()
    assert "attic" in lint(tmp_path).stdout


def test_the_contracts_name_every_package() -> None:
    named = " | ".join(BETWEEN["layers"]).split(" | ")
    assert sorted(named) == sorted(PACKAGES) == sorted(FLOORS) == sorted(CIRCLES["ancestors"])
    assert all(contract["exhaustive"] for contract in INSIDE)


@pytest.mark.parametrize("package", PACKAGES)
def test_files_that_import_each_other_in_a_circle_break_the_contract(
    tmp_path: Path, package: str
) -> None:
    room = f"{package}.{FLOORS[package][-1][0]}"
    plant(tmp_path, room, f"{room}.other")
    assert lint(tmp_path).returncode == 0
    (tmp_path / room.replace(".", "/") / "other.py").write_text(f"import {room}.deep\n")
    run = lint(tmp_path)
    assert run.returncode == 1
    assert f"No cycles are allowed in {room}" in run.stdout
