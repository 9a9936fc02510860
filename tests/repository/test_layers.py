"""Tests of the import contracts, which `make lint` checks: they fail for forbidden imports."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

from tests.support.run_command import python

ROOT = Path(__file__).parents[2]
PACKAGES = ("dpcore", "accounting", "audit", "bandits")
ALLOWED = {
    ("accounting", "dpcore"),
    ("audit", "dpcore"),
    ("audit", "accounting"),
    ("bandits", "dpcore"),
    ("bandits", "accounting"),
}
FORBIDDEN = {(a, b) for a in PACKAGES for b in PACKAGES if a != b} - ALLOWED
SETTINGS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BETWEEN, CIRCLES, *INSIDE = SETTINGS["tool"]["importlinter"]["contracts"]
FLOORS = {
    contract["containers"][0]: [layer.split(" | ") for layer in contract["layers"]]
    for contract in INSIDE
}
KEPT = f"Contracts: {2 + len(PACKAGES)} kept, 0 broken."


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the project's own contracts on the packages in ``folder``."""
    probe = "import sys; from importlinter.cli import lint_imports_command as run; run()"
    config = ("--no-cache", "--config", str(ROOT / "pyproject.toml"))
    return python("-c", probe, *config, folder=folder, path=folder)


def plant(folder: Path, imports: set[tuple[str, str]], *more: str) -> list[str]:
    """Create the packages with their folders and these imports; return how a complaint names each.

    An import stands inside a function of a module below the package.
    """
    rooms = [
        f"{package}.{room}" for package in PACKAGES for floor in FLOORS[package] for room in floor
    ]
    for name in (*PACKAGES, *rooms, *more):
        (folder / name.replace(".", "/")).mkdir(parents=True, exist_ok=True)
        (folder / name.replace(".", "/") / "__init__.py").touch()
    chains = []
    for number, (importer, imported) in enumerate(sorted(imports)):
        module = f"{importer}.deep_{number}"
        source = f"def late():\n    import {imported}\n    return {imported}\n"
        (folder / f"{module.replace('.', '/')}.py").write_text(source)
        chains.append(f"{module} -> {imported}")
    return chains


def between(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """From the ground floor of one package to the top floor of the other."""
    return {(f"{a}.{FLOORS[a][-1][0]}", f"{b}.{FLOORS[b][0][0]}") for a, b in pairs}


def inside(package: str) -> set[tuple[str, str]]:
    """An import of a higher floor, and of a neighbour on the same floor."""
    floors = FLOORS[package]
    wide = next(floor for floor in floors if len(floor) > 1)
    pairs = [(floors[-1][0], floors[0][0]), (wide[0], wide[1])]
    return {(f"{package}.{a}", f"{package}.{b}") for a, b in pairs}


def test_allowed_imports_break_no_contract(tmp_path: Path) -> None:
    plant(tmp_path, between(ALLOWED))
    run = lint(tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert KEPT in run.stdout


def test_every_forbidden_import_breaks_its_contract(tmp_path: Path) -> None:
    within = {pair for package in PACKAGES for pair in inside(package)}
    chains = plant(tmp_path, between(FORBIDDEN) | within)
    run = lint(tmp_path)
    assert run.returncode == 1
    assert [chain for chain in chains if chain not in run.stdout] == []


def test_import_cycles_and_unnamed_folders_break_their_contracts(tmp_path: Path) -> None:
    """Two files of a package that import each other, and a folder of each package."""
    rooms = [f"{package}.{FLOORS[package][-1][0]}" for package in PACKAGES]
    plant(tmp_path, set(), *(f"{package}.attic" for package in PACKAGES))
    for room in rooms:
        for one, other in (("one", "other"), ("other", "one")):
            (tmp_path / room.replace(".", "/") / f"{one}.py").write_text(f"import {room}.{other}\n")
    told = lint(tmp_path).stdout
    assert [room for room in rooms if f"No cycles are allowed in {room}" not in told] == []
    assert [package for package in PACKAGES if f"- {package}.attic" not in told] == []


def test_the_contracts_name_every_package() -> None:
    named = " | ".join(BETWEEN["layers"]).split(" | ")
    assert sorted(named) == sorted(PACKAGES) == sorted(FLOORS) == sorted(CIRCLES["ancestors"])
    assert all(contract["exhaustive"] for contract in INSIDE)
