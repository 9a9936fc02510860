r"""The page of the corpus shows the entries as they are."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from audit.corpus.entry import Entry, entries
from benchmarks.corpus import page_table as peers_table
from dpcore.numbers.rounding import down

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "corpus.md"


def page_table(listed: Sequence[Entry]) -> str:
    """The table of docs/corpus.md."""
    lines = [
        "| entry, package | failure | claim | true | measured | twin |",
        "|---|---|---|---|---|---|",
    ]
    for e in listed:
        twin = "none" if e.twin is None else f"{_cell(e.twin.known)}: {_number(e.twin.seen)}"
        lines.append(
            f"| `{e.name}`, {e.package} {e.version} | {_cell(e.failure)} ([source]({e.source})) "
            f"| {e.broken.claim} | {' '.join(e.true)} | {_number(e.broken.seen)} | {twin} |"
        )
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").rstrip(".")


def _number(value: float) -> str:
    return "infinite" if value == math.inf else down(Fraction(repr(value)), 4)


def test_the_page_shows_every_entry_as_it_is() -> None:
    # To write it: print(page_table(entries())).
    assert page_table(entries()) in PAGE.read_text(encoding="utf-8")


def test_a_figure_that_moved_is_noticed() -> None:
    first, *others = entries()
    moved = replace(first, broken=replace(first.broken, seen=first.broken.seen / 2))
    assert page_table([moved, *others]) not in PAGE.read_text(encoding="utf-8")


def test_the_page_shows_what_the_other_auditor_said() -> None:
    # To write it: print(page_table of benchmarks/results/corpus.json).
    results = ROOT / "benchmarks" / "results" / "corpus.json"
    rows = json.loads(results.read_text(encoding="utf-8"))["rows"]
    page = PAGE.read_text(encoding="utf-8")
    assert peers_table(rows) in page
    told = [row["broken"]["jax_privacy"]["says"] for row in rows]
    asked = [says for says in told if not says.startswith("not asked")]
    assert f"could be asked about {len(asked)} of them, found {told.count('found')}, " in page
    ours = [row["broken"]["dpcore"]["says"] for row in rows]
    assert f"found\n{ours.count('found')} of {len(rows)} failures" in page
    assert {row["name"] for row in rows} <= {entry.name for entry in entries()}
