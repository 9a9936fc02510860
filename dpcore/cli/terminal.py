r"""Terminal output: escaped text, tables and progress bars.

Untrusted text may contain characters that control a terminal, reverse letters, or start a line that
imitates a report. Every printed line goes through :func:`say`, which escapes such characters.
Progress bars appear on standard error if it is a terminal, or in a notebook.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any, Final, TextIO

from dpcore.errors import printable as printable  # noqa: PLC0414 - a name of this module

_GAP: Final = "  "
_STEPS: Final = 500
_OFTEN: Final = 0.2


def page(lines: Iterable[str]) -> str:
    r"""Return ``lines`` as the text that :func:`say` prints, with control characters escaped."""
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


def aligned(rows: Sequence[Sequence[str]], *, right: Iterable[int] = ()) -> list[str]:
    r"""Format rows with aligned columns; ``right`` contains indices of right-aligned columns."""
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
    r"""Format a name and its value, which starts at column ``margin`` or after a longer name."""
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


@contextmanager
def progress_bar(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    r"""Show a progress bar; yield a callback that receives the number of finished items.

    If standard error is not a terminal, no bar is shown.
    """
    if not sys.stderr.isatty():
        yield _unseen
        return
    from rich.console import Console
    from rich.progress import Progress, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:-1], TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        step = max((total or 0) // _STEPS, 1)

        def advance(done: int) -> None:
            if total is None:
                bar.update(task, description=f"{label}: {done}")
            elif done - bar.tasks[task].completed >= step or done >= total:
                bar.update(task, completed=done)

        yield advance


def in_notebook() -> bool:
    r"""Whether this process runs in a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


@contextmanager
def notebook_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    r"""Show a progress bar in a notebook; yield a callback for the number of finished items.

    Outside a notebook no bar is shown.
    """
    if not in_notebook():
        yield _unseen
        return
    display = sys.modules["IPython"].display
    handle = display.display(display.HTML(""), display_id=True)
    last = [0.0]

    def advance(done: int) -> None:
        now = time.monotonic()
        if now < last[0] + _OFTEN and done < total:
            return
        last[0] = now
        bar = f'<progress value="{done}" max="{total}"></progress>'
        handle.update(display.HTML(f"{bar} {done:,} of {total:,} {label}"))

    try:
        yield advance
    finally:
        handle.update(display.HTML(""))


def _unseen(done: int) -> None:
    del done
