r"""A time limit for checks: every verification ends in bounded time.

Every loop whose length depends on the certificate calls :func:`tick`, so the limit also applies
within a single computation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

SECONDS: Final = 60.0
"""The default time for a whole certificate."""


class OutOfTime(Exception):
    r"""The time limit was reached before the claim was decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bound:
    start: float
    seconds: float
    watch: Callable[[float], None] | None


_BOUND: ContextVar[_Bound | None] = ContextVar("deadline", default=None)


@contextmanager
def deadline(seconds: float, watch: Callable[[float], None] | None = None) -> Iterator[None]:
    r"""Limit all checks in the block to ``seconds``; ``watch`` is called with the elapsed seconds.

    >>> with deadline(10):
    ...     tick()
    """
    token = _BOUND.set(_Bound(start=time.monotonic(), seconds=seconds, watch=watch))
    try:
        yield
    finally:
        _BOUND.reset(token)


@contextmanager
def bounded() -> Iterator[None]:
    r"""Limit all checks in the block to 60 seconds, unless an enclosing limit is active."""
    if _BOUND.get() is not None:
        yield
        return
    with deadline(SECONDS):
        yield


def tick() -> None:
    r"""Raise :class:`OutOfTime` if the time limit has passed; without a limit do nothing."""
    bound = _BOUND.get()
    if bound is None:
        return
    past = time.monotonic() - bound.start
    if past >= bound.seconds:
        raise OutOfTime(f"not decided in {bound.seconds:g} seconds")
    if bound.watch is not None:
        bound.watch(past)
