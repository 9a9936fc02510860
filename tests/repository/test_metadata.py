"""Tests of package and citation metadata: licence, version, interpreters, dependencies."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LICENCE = "Apache-2.0"


def citation() -> dict[str, str]:
    """Return the plain fields of CITATION.cff."""
    lines = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    fields = (re.fullmatch(r'([\w-]+): "?([^"]+)"?', line) for line in lines)
    return {field[1]: field[2] for field in fields if field}


def packages(text: str) -> set[str]:
    """Return the packages in the table of docs/dependencies.md, without extras and bounds."""
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| ")]
    names = ",".join(re.sub(r"\(.*?\)|[<>=].*", "", cell) for cell in cells[1:])
    return {name.strip().lower() for name in names.split(",")} - {""}


def required() -> set[str]:
    """Return the packages that pyproject.toml requires, for the core and every extra."""
    wanted = [*PROJECT["dependencies"]]
    for listed in PROJECT["optional-dependencies"].values():
        wanted += listed
    names = {re.split(r"[\[<>=]", one)[0].lower() for one in wanted}
    return names - {PROJECT["name"]}


def test_every_file_names_the_same_licence() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License\n" in text
    assert "Version 2.0, January 2004" in text
    assert text.rstrip().endswith("limitations under the License.")
    assert PROJECT["license"] == citation()["license"] == LICENCE
    assert PROJECT["license-files"] == ["LICENSE"]
    # Package indexes refuse a licence classifier beside `license` (PEP 639).
    assert not [one for one in PROJECT["classifiers"] if one.startswith("License ::")]


def test_the_citation_is_of_this_version() -> None:
    told = citation()
    assert told["version"] == PROJECT["version"]
    assert told["title"].startswith("dpcore")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {told['version']} " in changes


def test_the_page_of_dependencies_lists_exactly_the_required_packages() -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    assert packages(text.partition("## ")[0]) == required()
    table = "| package | for |\n|---|---|\n| numpy | x |\n| typer, rich (extra `plot`) | y |\n"
    assert packages(table) == {"numpy", "typer", "rich"}
    assert packages(table + "| scikit-learn < 1.6 (extra `peers`) | z |\n") == {
        *("numpy", "typer", "rich", "scikit-learn")
    }
