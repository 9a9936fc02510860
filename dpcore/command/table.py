r"""Tables and facts as lines of plain text, or as HTML for a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

_GAP: Final = "  "


def aligned(rows: Sequence[Sequence[str]], *, right: Iterable[int] = ()) -> list[str]:
    r"""Rows as lines with aligned columns; the columns in ``right`` end together.

    >>> aligned([("a", "10"), ("bcd", "2")], right=(1,))
    ['a    10', 'bcd   2']
    """
    ends = set(right)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        _GAP.join(
            cell.rjust(width) if i in ends else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def fact(name: str, value: str, *, margin: int) -> str:
    r"""A name and what it says, which begins ``margin`` letters from the left.

    >>> fact("rounds", "1000", margin=9)
    'rounds   1000'
    """
    return f"{name.ljust(margin)}{value}"


def html_table(title: str, rows: Iterable[Sequence[object]]) -> str:
    r"""A table under a title, for a notebook: what ``_repr_html_`` of a result returns.

    >>> html_table("Bound", [("upper", "<1")])
    '<table><caption>Bound</caption><tr><th>upper</th><td>&lt;1</td></tr></table>'
    """
    lines = [
        f"<tr><th>{escape(str(name))}</th>"
        + "".join(f"<td>{escape(str(value))}</td>" for value in values)
        + "</tr>"
        for name, *values in rows
    ]
    return f"<table><caption>{escape(title)}</caption>{''.join(lines)}</table>"
