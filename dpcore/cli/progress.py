r"""Progress bars, on standard error if it is a terminal, or in a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_STEPS: Final = 500
_OFTEN: Final = 0.2


@contextmanager
def progress_bar(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    r"""Yield a callback for the number of finished items; shows nothing without a terminal."""
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
    r"""Yield a callback for the number of finished items; shows nothing outside a notebook."""
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
