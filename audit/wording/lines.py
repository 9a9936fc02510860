r"""A report as a person reads it: the verdict first, then named rows, wrapped to the terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.rounding import down, up

__all__ = ["Told", "aligned", "between", "out_of", "terminal_width"]

_NARROWEST, _WIDEST = 40, 100
_LEAST_GROUP: Final = 100
_MOST_GROUP: Final = 10**15  # from here on by its power


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    r"""What a report says: its verdict in capitals, what that is about, and rows of (name, value).

    Every view of the report shows these sentences. ``style`` is how a terminal colours the verdict.
    """

    verdict: str
    about: str
    rows: tuple[tuple[str, str], ...] = ()
    style: str = "bold"

    def lines(self, width: int | None = None) -> list[str]:
        r"""The lines, none longer than ``width`` where words allow; by default the terminal's.

        >>> Told(verdict="PROVEN", about="it holds", rows=(("runs", "5"), ("seed", "7"))).lines()
        ['PROVEN  it holds', '  runs  5', '  seed  7']
        """
        width = terminal_width() if width is None else width
        head = f"{self.verdict}  {self.about}" if self.verdict else ""
        return [
            *textwrap.wrap(head, width, break_on_hyphens=False),
            *aligned(self.rows, width),
        ]


def aligned(rows: Iterable[tuple[str, str]], width: int, *, indent: int = 2) -> list[str]:
    r"""Rows of (name, value), the values below each other and wrapped to ``width``.

    >>> aligned([("runs", "5"), ("seed", "7")], 80, indent=0)
    ['runs  5', 'seed  7']
    """
    listed = list(rows)
    margin = max((len(name) for name, _ in listed), default=0) + indent + 2
    return [
        line
        for name, value in listed
        for line in textwrap.wrap(
            value,
            width,
            initial_indent=f"{' ' * indent}{name}".ljust(margin),
            subsequent_indent=" " * margin,
            break_on_hyphens=False,
        )
    ]


def terminal_width() -> int:
    r"""The width of the terminal, within what is readable.

    >>> 40 <= terminal_width() <= 100
    True
    """
    return min(max(shutil.get_terminal_size().columns, _NARROWEST), _WIDEST)


def between(value: Enclosure, digits: int = 9) -> str:
    r"""A proven interval, its ends rounded outwards.

    >>> between(Enclosure.exactly(Fraction(1, 10))), between(Enclosure(2, float("inf")))
    ('exactly 0.1', 'between 2 and infinity')
    """
    low, high = down(value.lower, digits), up(value.upper, digits)
    return f"exactly {low}" if low == high else f"between {low} and {high}"


def out_of(probability: Fraction | float, digits: int = 2) -> str:
    r"""A probability as cases of a round number of them, rounded up.

    >>> out_of(Fraction(1, 20)), out_of(0.0015), out_of(Fraction(1, 3)), out_of(Fraction(1, 10**30))
    ('5 of 100', '1.6 of 1,000', '34 of 100', '1 of 10^30')
    """
    exact, group = Fraction(probability), _LEAST_GROUP
    while 0 < exact * group < 1:
        group *= 10
    words = f"{group:,}" if group < _MOST_GROUP else f"10^{len(str(group)) - 1}"
    return f"{up(exact * group, digits)} of {words}"
