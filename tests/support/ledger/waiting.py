"""Callers that wait while another caller is inside a transaction."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from accounting.ledger.charge_or_refuse import Charged


class Held:
    """Work whose first call blocks until released, and which records the size of each group."""

    def __init__(self, work: Callable[[Any], list[Charged]]) -> None:
        self.work, self.groups = work, list[int]()
        self.inside, self.go = threading.Event(), threading.Event()

    def __call__(self, requests: Any) -> list[Charged]:
        self.groups.append(len(requests))
        if not self.inside.is_set():
            self.inside.set()
            assert self.go.wait(30)
        return self.work(requests)


def until(reached: Callable[[], bool]) -> None:
    last = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < last
        time.sleep(0.001)


def behind(
    held: Held,
    first: Callable[[], Any],
    others: Sequence[Callable[[], Any]],
    waiting: Callable[[], int],
) -> list[Future[Any]]:
    """``first`` is inside when ``others`` arrive; it continues when ``waiting`` counts them all."""
    with ThreadPoolExecutor(1 + len(others)) as pool:
        futures = [pool.submit(first)]
        assert held.inside.wait(30)
        for number, other in enumerate(others, start=1):
            futures.append(pool.submit(other))
            until(partial(_is, waiting, number))
        held.go.set()
    return futures


def _is(counted: Callable[[], int], number: int) -> bool:
    return counted() == number
