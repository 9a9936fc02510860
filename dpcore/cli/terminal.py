r"""Terminal output that escapes untrusted text such as names, reasons and paths.

Untrusted text may contain characters that control a terminal, reverse letters, or start a line that
imitates a report. Every printed line goes through :func:`say`, which escapes them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final, TextIO


def printable(text: str) -> str:
    r"""Return ``text`` on one line, with unprintable and bidirectional characters escaped."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def page(lines: Iterable[str]) -> str:
    r"""Return the text that :func:`say` prints for ``lines``."""
    return "".join(f"{printable(line)}\n" for line in lines)


def say(lines: Iterable[str], stream: TextIO | None = None) -> None:
    r"""Write each of ``lines`` as one printable line, by default to standard output.

    >>> say(["batch: monday", "user: \x1b]0;ann"])
    batch: monday
    user: \x1b]0;ann
    """
    (sys.stdout if stream is None else stream).write(page(lines))


def show(found: dict[str, Any] | Iterable[str]) -> None:
    r"""Print a dictionary as JSON, or a sequence of lines as text.

    >>> show({"schema": "dpcore-budget/1"})
    {
      "schema": "dpcore-budget/1"
    }
    """
    if isinstance(found, dict):
        print(json.dumps(found, indent=2, default=str, allow_nan=False))
    else:
        say(found)


_GAP: Final = "  "


def aligned(rows: Sequence[Sequence[str]], *, right: Iterable[int] = ()) -> list[str]:
    r"""Format rows with aligned columns; the columns in ``right`` are right-aligned."""
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
    r"""Format a name and its value, at column ``margin`` or one space after a longer name."""
    return f"{name.ljust(margin - 1)} {value}"


def html_table(title: str, rows: Iterable[Sequence[object]]) -> str:
    r"""Return an HTML table with a title, for ``_repr_html_`` of a result."""
    lines = [
        f"<tr><th>{escape(str(name))}</th>"
        + "".join(f"<td>{escape(str(value))}</td>" for value in values)
        + "</tr>"
        for name, *values in rows
    ]
    return f"<table><caption>{escape(title)}</caption>{''.join(lines)}</table>"
