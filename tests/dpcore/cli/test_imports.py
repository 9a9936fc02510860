r"""Tests of `dpcore.cli.imports`: errors name a module that shadows one of the packages."""

from __future__ import annotations

import base64
import hashlib
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from dpcore.cli import app as cli
from dpcore.cli import imports
from dpcore.cli.imports import (
    ShadowedPackage,
    package_names,
    prefer_own_packages,
    require_own_packages,
)
from tests.support.run_command import ROOT, python

BUDGET = ["budget", "epsilon", "--noise", "discrete-laplace:scale=1", "--delta", "1e-6"]
AUDIT = ["--claim", "epsilon=1", "--pair", "0", "1", "-n", "400", "--seed", "1"]
Capture = pytest.CaptureFixture[str]


def test_the_checked_names_are_those_of_the_installed_packages() -> None:
    assert {path.parent.name for path in ROOT.glob("*/py.typed")} == set(package_names())


@pytest.mark.parametrize(
    ("where", "way"), [("accounting.py", "the folder"), ("audit/__init__.py", "the path")]
)
def test_a_module_that_shadows_a_package_is_named(where: str, way: str, tmp_path: Path) -> None:
    (tmp_path / where).parent.mkdir(exist_ok=True)
    (tmp_path / where).write_text("x = 1\n")
    kept = [str(tmp_path), str(ROOT)] if way == "the path" else [str(ROOT)]
    folder = tmp_path if way == "the folder" else ROOT.parent
    done = python("-m", "dpcore", *BUDGET, folder=folder, path=os.pathsep.join(kept))
    assert done.returncode == 2
    name = Path(where).parts[0].removesuffix(".py")
    assert f"dpcore's own package {name}: {tmp_path / where} shadows it" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_folder_without_code_shadows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (tmp_path / "audit").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    require_own_packages()
    assert cli.run(BUDGET) == 0
    (tmp_path / "audit" / "__init__.py").touch()
    with pytest.raises(ShadowedPackage, match="shadows it"):
        require_own_packages()
    assert cli.run(BUDGET) == 2
    assert "a defect" not in capsys.readouterr().err


TARGETS = {
    "from accounting import rows": 2,
    "def f(d): import accounting": 2,
    "import indirect": 3,
    "import accountings": 3,
    "x = 1": 0,
}


def audited(folder: Path, line: str) -> int:
    (folder / "accounting").mkdir()
    (folder / "accounting" / "__init__.py").write_text("rows = 1\n")
    (folder / "indirect.py").write_text("from accounting import rows\n")
    (folder / "t.py").write_text(f"{line}\ndef f(d, rng): return d + int(rng.integers(9))\n")
    before = list(sys.path)
    try:
        return cli.run(["audit", f"{folder / 't.py'}:f", *AUDIT])
    finally:
        sys.path[:] = before
        sys.modules.pop("indirect", None)


@pytest.mark.parametrize("line", TARGETS)
def test_a_target_that_imports_a_shadowing_module_is_refused(
    line: str, tmp_path: Path, capsys: Capture
) -> None:
    code = audited(tmp_path, line)
    said = capsys.readouterr().err
    assert code == TARGETS[line] or (code in {0, 1} and TARGETS[line] == 0), said
    assert (f"{tmp_path / 'accounting'} has the name" in said) == (TARGETS[line] != 0)


def test_the_packages_are_found_for_any_order_of_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "accounting.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", [PathFinder])

    def found_first() -> str | None:
        specs = (finder.find_spec("accounting", None) for finder in sys.meta_path)
        return next(spec.origin for spec in specs if spec is not None)

    assert found_first() == str(tmp_path / "accounting.py")
    prefer_own_packages()
    prefer_own_packages()
    assert len(sys.meta_path) == 2
    assert found_first() == str(ROOT / "accounting" / "__init__.py")


def test_an_overwritten_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "accounting" / "__init__.py"
    file.parent.mkdir()
    file.write_text("ours = 1\n")
    digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).decode()

    class Installed:
        def read_text(self, name: str) -> str:
            return f"accounting/__init__.py,sha256={digest.rstrip('=')},9\n"

    monkeypatch.setattr(imports, "_HOME", tmp_path)
    monkeypatch.setattr(imports, "distribution", lambda name: Installed())
    monkeypatch.setattr(
        imports, "packages_distributions", lambda: {"accounting": ["dpcore", "invoices"]}
    )
    spec = imports._FINDER.find_spec("accounting", None)
    assert spec is not None
    assert spec.origin == str(file)
    file.write_text("theirs = 1\n")
    with pytest.raises(
        ShadowedPackage, match=r"is not the file that dpcore installed; invoices also installs"
    ):
        imports._FINDER.find_spec("accounting", None)
    assert imports._FINDER.find_spec("accounting.rows", [str(tmp_path)]) is None
    assert imports._FINDER.find_spec("json", None) is None
