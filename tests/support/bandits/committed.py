"""The committed figures: their numbers, and a check of the page and pictures against them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.figures.page import page

ROOT = Path(__file__).parents[3]
FIGURES = ROOT / "docs" / "figures"


def results_of(folder: Path) -> Any:
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


OTHERS = frozenset({"dpsgd.svg"})
"""Pictures of other pages: this one is of no bandit."""


def complaints(folder: Path) -> list[str]:
    """Missing or unused pictures, and a page that differs from its numbers."""
    results = results_of(folder)
    found = []
    if (folder / "README.md").read_text(encoding="utf-8") != page(results):
        found.append("README.md")
    shown = {f"{p['name']}.svg" for s in results["sections"].values() for p in s["pictures"]}
    drawn = {path.name for path in folder.glob("*.svg")} - OTHERS
    return found + sorted(shown ^ drawn)


def rows_of(results: Any, section: str, **where: Any) -> list[Any]:
    return [
        row
        for row in results["sections"][section]["rows"]
        if all(row[key] == value for key, value in where.items())
    ]


def row_of(results: Any, section: str, **where: Any) -> Any:
    found = rows_of(results, section, **where)
    if len(found) != 1:
        raise LookupError(f"{len(found)} rows of {section} have {where}")
    return found[0]
