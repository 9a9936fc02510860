r"""Time limits of commands."""

from __future__ import annotations

import inspect
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Annotated, Any, Final

from dpcore.cli.options import option
from dpcore.errors import DpcoreError
from dpcore.numbers.parameter import whole_number

_SECONDS: Final = "60"
_LONGEST: Final = 10**8

_WITHIN: Final = Annotated[
    str | None,
    option("SECONDS", "Stop with an error after this many seconds.", default=...),
]


class OutOfTime(DpcoreError):
    r"""The computation did not finish within the time limit."""


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    r"""Raise :class:`OutOfTime` if the block uses more than ``seconds`` of processor time.

    A busy machine does not change processor time. There is no limit on systems without a
    processor-time clock (Windows) and in threads other than the main one.
    """
    clock, sign = getattr(signal, "ITIMER_PROF", None), getattr(signal, "SIGPROF", None)
    if clock is None or sign is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise OutOfTime(
            f"no answer within {seconds} s of computing: raise --within, use less extreme numbers, "
            "or request a wider interval"
        )

    before = signal.signal(sign, stop)
    signal.setitimer(clock, seconds)
    try:
        yield
    finally:
        signal.setitimer(clock, 0)
        signal.signal(sign, before)


def with_time_limit(
    command: Callable[..., None], default: str | None = _SECONDS
) -> Callable[..., None]:
    r"""Add an option ``--within`` to a command, with 60 seconds by default."""

    @wraps(command)
    def bounded(*, within: str | None, **given: Any) -> None:
        if within is None:
            command(**given)
            return
        with time_limit(whole_number("--within", within, at_least=1, at_most=_LONGEST)):
            command(**given)

    # The command-line parser reads the signature and the annotations of a command.
    own = inspect.signature(command, eval_str=True)
    limit = inspect.Parameter(
        "within", inspect.Parameter.KEYWORD_ONLY, default=default, annotation=_WITHIN
    )
    bounded.__signature__ = own.replace(parameters=[*own.parameters.values(), limit])  # type: ignore[attr-defined]  # PEP 362
    bounded.__annotations__ = {**command.__annotations__, "within": _WITHIN}
    return bounded


with_optional_time_limit: Final = partial(with_time_limit, default=None)
r"""Add an option ``--within`` to a command, without a limit by default."""
