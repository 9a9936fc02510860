"""Tests of the wheel, installed in an empty environment."""

from __future__ import annotations

import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.repository.test_oldest_dependencies import run

ROOT = Path(__file__).parents[2]
PACKAGES = ("dpcore", "accounting", "audit", "bandits")

pytestmark = pytest.mark.nightly


def test_the_wheel_contains_exactly_the_typed_packages(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for package in PACKAGES:
        assert f"{package}/py.typed" in names
        here = {str(p.relative_to(ROOT)) for p in (ROOT / package).rglob("*.py")}
        assert {n for n in names if n.startswith(package + "/") and n.endswith(".py")} == here
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.startswith("dpcore-")} == set(PACKAGES)


def test_the_source_archive_contains_licence_tests_and_pages(tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty/bin/python"
    run(python, "-m", "pip", "install", "-qq", "hatchling>=1.27", cwd=tmp_path)
    code = f"from hatchling.build import build_sdist; build_sdist({str(tmp_path)!r})"
    run(python, "-c", code, cwd=ROOT)
    (built,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(built) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    kept = (
        "LICENSE",
        "CITATION.cff",
        "README.md",
        "tests/conftest.py",
        "docs/index.md",
        "Makefile",
    )
    assert set(kept) <= names
    assert not {name for name in names if "__pycache__" in name or name.startswith(".venv")}


def test_the_command_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=True)
    programs = tmp_path / "empty/bin"
    run(programs / "python", "-m", "pip", "install", "-qq", wheel, cwd=tmp_path)
    assert "audit" in run(programs / "dpcore", "--help", cwd=tmp_path)
    drawn = run(
        *(programs / "dpcore", "sample", "discrete-laplace:scale=10", "-n", "5", "--seed", "1"),
        cwd=tmp_path,
    )
    assert len([int(line) for line in drawn.split()]) == 5
    (site,) = (tmp_path / "empty/lib").glob("python3*/site-packages")
    kept = (site / "accounting/__init__.py").read_text()
    (site / "accounting/__init__.py").write_text("rows = []\n")
    words = ["budget", "epsilon", "--noise", "discrete-laplace:scale=1", "--delta", "1e-6"]
    told = run(programs / "dpcore", *words, cwd=tmp_path, code=2)
    assert "accounting/__init__.py is not the file that dpcore installed" in told
    (site / "accounting/__init__.py").write_text(kept)
    run(programs / "dpcore", *words, cwd=tmp_path)
    told = "import dpcore, accounting, audit, bandits; print(dpcore.__file__)"
    assert str(tmp_path) in run(programs / "python", "-W", "error", "-c", told, cwd=tmp_path)
    run(programs / "python", "-m", "pip", "install", "-qq", "pytest", cwd=tmp_path)
    page = (ROOT / "docs/start.md").read_text()
    lines = page.split("## A test in your suite")[1].split("```")[1].splitlines()[1:]
    code = [line[4:] for line in lines if line[:4] in (">>> ", "... ")]
    assert code[-1] == "test_the_count_is_private()"
    (tmp_path / "test_counts.py").write_text("\n".join(code[:-1]))
    assert "1 passed" in run(
        programs / "python", "-m", "pytest", "-q", "test_counts.py", cwd=tmp_path
    )
