r"""Tables and facts as lines of plain text: the columns of every command are aligned here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
