"""Tests of the changelog's table of moved modules: every new path exists in the tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
CHANGELOG: Final = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
PACKAGES: Final = ("dpcore", "accounting", "audit", "bandits", "benchmarks")
DOTTED: Final = re.compile(rf"`((?:{'|'.join(PACKAGES)})(?:\.\w+)*)`")


def rows(text: str) -> Iterator[tuple[str, str]]:
    """Return the cells "was" and "is" of each row of the table."""
    _, _, rest = text.partition("| was | is |\n|---|---|\n")
    for line in rest.splitlines():
        if not line.startswith("|"):
            return
        _, was, found, _ = line.split("|")
        yield was, found


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def lost(text: str) -> list[str]:
    """Return the modules in the column "is" that the tree does not have."""
    return [
        name for _, found in rows(text) for name in DOTTED.findall(found) if not is_module(name)
    ]


def test_every_new_path_of_a_moved_module_exists() -> None:
    assert len(list(rows(CHANGELOG))) > 100
    assert lost(CHANGELOG) == []


@pytest.mark.parametrize(
    "name", ["audit.statistical_tests.sample_verdict", "audit.outputs.watchdog"]
)
def test_a_module_that_moved_again_is_detected(name: str) -> None:
    row = f"| `audit.verdict` | `{name}` |\n"
    assert lost(CHANGELOG.replace("|---|---|\n", f"|---|---|\n{row}", 1)) == [name]
