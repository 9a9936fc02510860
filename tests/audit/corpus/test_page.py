r"""The page of the corpus shows the entries as they are."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from audit.corpus.entry import Entry, entries
from benchmarks.auditing.peers import PEERS
from benchmarks.corpus import page_counts
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


def peers_shown(found: dict[str, Any], page: str) -> bool:
    """Whether the page has both tables of the auditors."""
    return page_counts(found) in page and peers_table(found["rows"]) in page


def test_the_page_shows_what_other_auditors_said() -> None:
    # To write it: print(page_counts(found), page_table(found["rows"])) of benchmarks/corpus.py.
    results = ROOT / "benchmarks" / "results" / "corpus.json"
    found = json.loads(results.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    assert peers_shown(found, page)
    assert [row["name"] for row in found["rows"]] == [entry.name for entry in entries()]
    assert set(found["auditors"]) == {"dpcore", *(peer.name for peer in PEERS)}
    # A verdict that changed is noticed: of a failure in both tables, of a twin as an alarm.
    for role, says in (("broken", "missed"), ("twin", "false alarm")):
        changed = deepcopy(found)
        changed["rows"][0][role]["dpcore"]["says"] = says
        assert not peers_shown(changed, page)
