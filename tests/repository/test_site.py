"""Tests of the site: its navigation and reference are complete, and its tutorials run."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from docs.generated import PACKAGES, appended, external_assets, navigation
from tests.repository.test_docs import ROOT, every_page
from tests.repository.test_options import COMMANDS

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
SECONDS = 180  # for each cell, on a busy machine


def pages() -> set[str]:
    found = [*every_page(), *TUTORIALS]
    return {path.relative_to(ROOT).with_suffix("").as_posix() for path in found}


def unreached(existing: set[str]) -> set[str]:
    """Return the pages that the navigation omits, or lists although they do not exist."""
    listed = [page for listed in navigation().values() for page in listed]
    folders = [appended(page).splitlines() for page in listed if page.endswith("/README")]
    below = {line.removeprefix("/") for lines in folders for line in lines if line[:1] == "/"}
    assert len(listed) == len(set(listed))
    return existing ^ {"docs/index", *listed, *below}


def undocumented(reference: str) -> list[str]:
    """Return the commands and options in the help that the reference does not have."""
    found = []
    for words, command in COMMANDS.items():
        path = " ".join(("dpcore", *words))
        if command.hidden or f"## `{path}`\n" in reference:
            section = reference.partition(f"## `{path}`\n")[2].partition("\n## ")[0]
            options = [] if command.hidden or words == ("audit",) else command.params
            found += [
                f"{path} {one.opts[0]}"
                for one in options
                if one.param_type_name == "option" and not one.hidden and one.opts[0] not in section
            ]
        else:
            found.append(path)
    return found


def test_the_navigation_reaches_every_page() -> None:
    assert unreached(pages()) == set()
    assert unreached(pages() | {"docs/absent"}) == {"docs/absent"}
    assert unreached(pages() - {"docs/ledger"}) == {"docs/ledger"}


def test_the_reference_has_every_command_and_every_option() -> None:
    reference = appended("docs/reference/commands")
    assert undocumented(reference) == []
    renamed = reference.replace("## `dpcore pmf`\n", "## `dpcore mass`\n")
    assert undocumented(renamed) == ["dpcore pmf"]
    without = reference.replace("--honest", "")
    assert "dpcore protocol plan --honest" in undocumented(without)


def test_the_reference_has_every_public_name() -> None:
    for package in PACKAGES:
        reference = appended(f"docs/reference/{package}")
        names = import_module(package).__all__
        assert [name for name in names if f":: {package}.{name}\n" not in reference] == []


def test_an_asset_of_another_host_is_detected() -> None:
    for text in (
        '<script src="https://cdn.example.org/x.js">',
        '<link rel="stylesheet" href="//cdn.example.org/x.js">',
        "a { background: url(https://cdn.example.org/x.js) }",
        '@import "https://cdn.example.org/x.js";',
    ):
        (found,) = external_assets(text)
        assert found.endswith("//cdn.example.org/x.js")
    own = '<script src="../_static/a.js"><link href="a.css"> url(data:image/png;base64,//aa)'
    assert external_assets(f'<a href="https://example.org">{own}') == []


def unstripped(notebook: str) -> list[str]:
    cells = json.loads(notebook)["cells"]
    return [cell["id"] for cell in cells if cell.get("outputs") or cell.get("execution_count")]


def test_tutorials_are_stored_without_outputs() -> None:
    for text in (path.read_text(encoding="utf-8") for path in TUTORIALS):
        assert unstripped(text) == []
        assert unstripped(text.replace('"execution_count": null', '"execution_count": 1', 1)) != []


def run(notebook: Any, folder: Path) -> None:
    from nbclient import NotebookClient

    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=SECONDS, resources=resources).execute()


@pytest.mark.nightly
@pytest.mark.filterwarnings("default")  # warnings of Jupyter are not ours
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_every_tutorial_runs(path: Path, tmp_path: Path) -> None:
    import nbformat

    run(nbformat.read(path, as_version=4), tmp_path)


@pytest.mark.nightly
@pytest.mark.filterwarnings("default")
def test_a_tutorial_that_raises_is_detected(tmp_path: Path) -> None:
    from nbclient.exceptions import CellExecutionError
    from nbformat import v4

    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        run(v4.new_notebook(cells=[v4.new_code_cell("1 / 0")]), tmp_path)
