"""One direction of imports; the contract that holds it goes red when it is broken."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """The project's own contract, over the packages in ``folder``."""
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
    for package in PACKAGES:
        (folder / package).mkdir()
        (folder / package / "__init__.py").touch()
        (folder / package / "deep.py").touch()
    if importer:
        (folder / importer / "deep.py").write_text(
            f"def late():\n    from {imported} import deep\n    return deep\n"
        )


def test_this_tree_keeps_its_layers() -> None:
    run = lint(ROOT)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Contracts: 1 kept, 0 broken." in run.stdout


@pytest.mark.parametrize(("importer", "imported"), PAIRS, ids=lambda name: name)
def test_a_forbidden_import_breaks_the_contract(
    tmp_path: Path, importer: str, imported: str
) -> None:
    """Even inside a function of a module below the package."""
    plant(tmp_path, importer, imported)
    run = lint(tmp_path)
    if (importer, imported) in ALLOWED:
        assert run.returncode == 0, run.stdout + run.stderr
    else:
        assert run.returncode == 1
        assert f"{importer}.deep -> {imported}.deep" in run.stdout


def test_the_contract_names_every_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = settings["tool"]["importlinter"]["contracts"]
    named = " | ".join(contract["layers"]).split(" | ")
    assert sorted(named) == sorted(PACKAGES)
