r"""Reports on a terminal: in colour where it has some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from audit.claims.claim import Claim
from audit.wording.result import Told, aligned, terminal_width
from dpcore.command.terminal import page, printable

if TYPE_CHECKING:
    from audit.catalogue import Entry


def show(told: Told, file: TextIO) -> None:
    r"""Print a report; in colour on a terminal that has some.

    >>> import sys
    >>> show(Told(verdict="PROVEN", about="it holds"), sys.stdout)
    PROVEN  it holds
    """
    if not file.isatty():
        file.write(page(told.lines()))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file, highlight=False, soft_wrap=True)
    for line in map(printable, told.lines()):
        text = Text(line)
        text.stylize(told.style, 0, len(told.verdict) if line.startswith(told.verdict) else 0)
        console.print(text)


def catalogue_table(entries: Sequence[Entry]) -> list[str]:
    r"""One line an entry: what to type, what it claims, what is wrong with it.

    >>> from audit.catalogue import ENTRIES
    >>> catalogue_table(ENTRIES)[1].startswith("half-scale")
    True
    """
    rows = []
    for entry in entries:
        claim = Claim(epsilon=entry.epsilon, delta=entry.delta, relation=entry.relation)
        rows.append((entry.name, f"{claim}. {entry.sentence} The correct twin: {entry.twin.name}."))
    title = "dpcore audit TARGET, with TARGET one of"
    return [title, *aligned(rows, terminal_width(), indent=0)]
