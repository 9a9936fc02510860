r"""A bar on standard error during long work, where standard error is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["progress_bar"]

_STEPS: Final = 500


@contextmanager
def progress_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    r"""A function to be told how many of ``total`` are done; it shows nothing where nobody looks.

    >>> with progress_bar("runs", 1000) as progress:
    ...     progress(1000)
    """
    if not sys.stderr.isatty():
        yield _unseen
        return
    from rich.console import Console
    from rich.progress import Progress, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:-1], TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        step = max(total // _STEPS, 1)

        def advance(done: int) -> None:
            if done - bar.tasks[task].completed >= step or done >= total:
                bar.update(task, completed=done)

        yield advance


def _unseen(done: int) -> None:
    del done
