r"""Run functions at the same time, each in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def at_once(*acts: Callable[[], Result]) -> list[Result]:
    r"""Return the results of the functions, in the order in which they ended."""
    found: list[Result] = []
    gate = threading.Barrier(len(acts))

    def work(act: Callable[[], Result]) -> None:
        gate.wait(10)
        found.append(act())

    crowd = [threading.Thread(target=work, args=(act,)) for act in acts]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join(20)
    assert len(found) == len(acts), "a thread failed or waits"
    return found
