r"""The page of the corpus shows the entries as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from audit.corpus.entry import entries
from audit.corpus.render import page_table

PAGE = Path(__file__).parents[3] / "docs" / "corpus.md"


def test_the_page_shows_every_entry_as_it_is() -> None:
    # To write it: print(page_table(entries())).
    assert page_table(entries()) in PAGE.read_text(encoding="utf-8")


def test_a_figure_that_moved_is_noticed() -> None:
    first, *others = entries()
    moved = replace(first, broken=replace(first.broken, seen=first.broken.seen / 2))
    assert page_table([moved, *others]) not in PAGE.read_text(encoding="utf-8")
