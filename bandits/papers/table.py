r"""Check the theorems of four papers: claim, exact value and verdict.

The papers are CZ (Chowdhury and Zhou 2023), LZJ (Li, Zhou and Ji 2022), TKMS (Tenenbaum, Kaplan,
Mansour and Stemmer 2021) and CSB (Chen and others 2020). Each row is one statement at one choice of
parameters, computed on request. docs/errata.md lists the errors of the papers. The table also
has a row for each corrected statement of this package.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bandits.papers import (
    chen_et_al,
    chowdhury_zhou,
    li_zhou_ji,
    released_code,
    tenenbaum_et_al,
    utility,
)
from bandits.papers.statement import Judgement, LaterRow


def rows(*, quick: bool = False) -> tuple[LaterRow, ...]:
    r"""All rows, computed lazily; ``quick`` uses fewer parameters but includes every erratum.

    >>> len(rows(quick=True)) < len(rows())
    True
    """
    papers = (chowdhury_zhou, li_zhou_ji, tenenbaum_et_al, chen_et_al, utility, released_code)
    return tuple(row for paper in papers for row in paper.rows(quick=quick))


def replay(
    todo: Iterable[LaterRow], progress: Callable[[int], None] = lambda _: None
) -> tuple[Judgement, ...]:
    r"""Compute the rows ``todo``; ``progress(done)`` is called after each of them."""
    found: list[Judgement] = []
    for row in todo:
        found.append(row())
        progress(len(found))
    return tuple(found)


def lines(verdicts: Iterable[Judgement]) -> Iterator[str]:
    r"""Format the rows as text, by paper, with a final line that counts the verdicts."""
    counts: Counter[str] = Counter()
    paper = None
    for row in verdicts:
        if row.paper != paper:
            paper = row.paper
            yield paper
        counts[row.verdict] += 1
        erratum = "" if row.erratum is None else f" [erratum {row.erratum}]"
        yield f"  {row.verdict:8}  {row.statement}{erratum}; {row.parameters}"
        yield f"            {row.explanation}"
    yield ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))


def to_json(verdicts: Iterable[Judgement]) -> dict[str, Any]:
    r"""The rows and the count of each verdict, as a JSON object."""
    listed = tuple(verdicts)
    return {
        "rows": [row.to_json() for row in listed],
        "counts": dict(sorted(Counter(row.verdict for row in listed).items())),
    }
