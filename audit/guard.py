r"""Between an audit and the code it runs: a time limit, and a standard output kept clean."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from audit.errors import TargetFailed, Unreadable

__all__ = ["RAISED", "TimeUp", "Watchdog", "failure", "stdout_to_stderr"]

_RING_AGAIN = 1.0


class TimeUp(BaseException):
    r"""A call ran too long. Not an Exception, so that a target's own ``except`` lets it pass."""


RAISED = (Exception, SystemExit, TimeUp)
r"""Everything a call may raise that is the target's doing; Ctrl-C is the user's."""


class Watchdog:
    r"""A limit on each call of Python code: ``restart()`` before it, ``stop()`` after.

    It interrupts the interpreter of the main thread, so it ends any loop written in Python; native
    code that never returns cannot be ended within its own process (``exec:`` targets can). Outside
    of the main thread, or without POSIX timers, it does nothing, and ``active`` says so.

    ``interrupted`` tells a user's Ctrl-C from a KeyboardInterrupt that the target raised itself.

    >>> with Watchdog(0.05) as watchdog:
    ...     watchdog.restart()
    ...     while True:
    ...         pass
    Traceback (most recent call last):
    ...
    audit.guard.TimeUp: no answer within 0.05 s
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._before: Any = None
        self._process = os.getpid()
        main = threading.current_thread() is threading.main_thread()
        self.active = seconds is not None and main and hasattr(signal, "setitimer")
        # Where Ctrl-C means what it always does, a watch is kept on it; else each one counts.
        self._hears = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        self.interrupted = not self._hears

    def __enter__(self) -> Self:
        if self.active:
            self._before = signal.signal(signal.SIGALRM, self._ring)
        if self._hears:
            signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.active:
            self.stop()
            signal.signal(signal.SIGALRM, self._before)
        if self._hears:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def restart(self) -> None:
        r"""Start the time of one call."""
        if self.active and self.seconds is not None:
            # It rings again: a target that catches everything catches it once.
            signal.setitimer(signal.ITIMER_REAL, self.seconds, _RING_AGAIN)

    def stop(self) -> None:
        r"""No call is running."""
        if os.getpid() != self._process:
            # A target forked and returned twice: the audit goes on in one process only.
            os._exit(0)
        if self.active:
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = True
        signal.default_int_handler(number, frame)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        raise TimeUp(f"no answer within {self.seconds:g} s")


def failure(
    target: str, error: BaseException, *, dataset: str | None = None, run: int | None = None
) -> TargetFailed:
    r"""What a call raised, as one line that says what and where.

    >>> print(failure("f.py:f", SystemExit(1), dataset="A"))
    f.py:f: called sys.exit(1) (dataset A)
    """
    match error:
        case TimeUp():
            reason = f"{error}; a longer limit is set with --timeout"
        case Unreadable():
            reason = str(error)
        case SystemExit():
            reason = f"called sys.exit({error.code!r})"
        case _:
            shown = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
            reason = f"raised {shown}"
            frames = traceback.extract_tb(error.__traceback__)
            if frames and frames[-1].lineno is not None:
                reason += f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}"
    return TargetFailed(target, reason, dataset=dataset, run=run)


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    r"""Whatever is printed inside goes to standard error: by Python, native code or a child.

    The first thread to enter turns the stream of the whole process, the last to leave turns it
    back.

    >>> with stdout_to_stderr():
    ...     print("from the target")
    """
    with _DOOR:
        if not _inside:
            _turned.enter_context(redirect_stdout(sys.stderr))
            _turned.enter_context(_descriptor_to_stderr())
        _inside.append(threading.get_ident())
    try:
        yield
    finally:
        with _DOOR:
            _inside.pop()
            if not _inside:
                _turned.close()


_DOOR = threading.Lock()
_inside: list[int] = []
_turned = ExitStack()


@contextmanager
def _descriptor_to_stderr() -> Iterator[None]:
    try:
        _flush()
        kept = os.dup(1)
    except OSError:  # no standard output at all: nothing to keep clean
        yield
        return
    try:
        os.dup2(2, 1)
        yield
    finally:
        _flush()
        os.dup2(kept, 1)
        os.close(kept)


def _flush() -> None:
    # What was printed before or inside must leave by the door that was open then, also from the
    # buffers of C libraries.
    for stream in (sys.stdout, sys.__stdout__, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()  # type: ignore[union-attr]  # None where there is no such stream
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)
