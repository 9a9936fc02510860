r"""Load audited code, limit the time of calls, and redirect printed output to stderr."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from contextvars import ContextVar, Token
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, Final, Self, TypeVar

from audit.errors import TargetFailed, Unreadable
from dpcore.errors import DpcoreError

T = TypeVar("T")

_RING_AGAIN: Final = 1.0
_leave: Final = os._exit  # saved, because a target may patch the module
_OURS: Final = frozenset({"audit", "dpcore", "accounting", "numpy", "scipy"})


class TimeUp(BaseException):
    r"""Raised when a call runs too long. A handler ``except Exception`` does not catch it."""


RAISED = BaseException
r"""The exceptions attributed to the target, except for the user's Ctrl-C (:func:`failure`)."""


class Watchdog:
    r"""A time limit on calls of audited Python code.

    Call ``restart()`` before each call and ``stop()`` after it. The watchdog interrupts the main
    thread of the interpreter, so it ends any Python loop that does not catch the exception. It
    cannot stop native code that never returns, code that catches everything, or code that replaces
    the SIGALRM handler. Therefore a sandbox, a worker (``jobs`` other than 1) and an ``exec:``
    target are killed from outside the process. Outside the main thread, without POSIX timers or if
    ``seconds`` is None, the watchdog limits nothing, and ``active`` is false.

    ``interrupted`` is true for a user's Ctrl-C, and false for a KeyboardInterrupt that the target
    raised. ``due`` is the time at which the running call must end, on the clock of
    ``time.monotonic``.
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.due: float | None = None
        self._before: Any = None
        self._token: Token[Watchdog] | None = None
        self._reads = False
        self._call: FrameType | None = None
        self._process: int | None = None
        main = threading.current_thread() is threading.main_thread()
        self.active = seconds is not None and main and hasattr(signal, "setitimer")
        # The installed handler decides the effect of Ctrl-C. Without a handler (a background job
        # ignores the signal) or outside the main thread, Ctrl-C is not received.
        self._pressed: Any = signal.getsignal(signal.SIGINT) if main else None
        self.interrupted = True

    def __enter__(self) -> Self:
        self.interrupted = False
        self._process = os.getpid()
        self._token = _CURRENT.set(self)
        if self.active:
            self._before = signal.signal(signal.SIGALRM, self._ring)
        if callable(self._pressed):
            signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        if self.active:
            self.stop()
            signal.signal(signal.SIGALRM, self._before)
        if callable(self._pressed):
            signal.signal(signal.SIGINT, self._pressed)
        if self._token is not None:
            _CURRENT.reset(self._token)

    def call(
        self,
        work: Callable[[], T],
        target: str,
        *,
        dataset: str | None = None,
        run: int | None = None,
    ) -> T:
        r"""Return ``work()``, called within the time limit. Exceptions become a :func:`failure`."""
        try:
            self.restart()
            found = work()
            self.stop()
        except RAISED as error:
            self.stop()
            raise failure(target, error, dataset=dataset, run=run) from error
        return found

    def restart(self) -> None:
        seconds = self.seconds if self.active and self.seconds is not None else math.inf
        due = time.monotonic() + seconds
        for memory in _published:
            memory.begin(due)
        if seconds < math.inf:
            self._reads, self.due = False, due
            # The timer repeats, because a target that catches everything may catch the first
            # signal.
            signal.setitimer(signal.ITIMER_REAL, seconds, _RING_AGAIN)

    def read(self) -> None:
        r"""Limit the time of each call from the auditor into outside code, until ``stop()``."""
        if self.active and self.seconds is not None:
            self._reads, self._call = True, None
            signal.setitimer(signal.ITIMER_REAL, self.seconds, self.seconds)

    def stop(self) -> None:
        if self._process is not None and os.getpid() != self._process:
            # The target forked and returned twice: only the original process continues the audit.
            _leave(0)
        for memory in _published:
            memory.end()
        if self.active:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            self.due = self._call = None

    def _hear(self, number: int, frame: FrameType | None) -> None:
        try:
            self._pressed(number, frame)
        except KeyboardInterrupt:
            self.interrupted = True
            raise

    def _ring(self, number: int, frame: FrameType | None) -> None:
        del number
        if self._reads:
            # End a call only if it was already running at the previous signal.
            before, self._call = self._call, _call_outside(frame)
            if self._call is None or self._call is not before:
                return
        raise TimeUp(f"no answer within {self.seconds:g} s")


_published: Final[list[Any]] = []


def publish(memory: Any) -> None:
    r"""Record the start and end of each call in ``memory``, which another process can read."""
    _published[:] = [memory]


_CURRENT: Final[ContextVar[Watchdog]] = ContextVar("_CURRENT")
_NOBODY: Final = Watchdog(None)


def current() -> Watchdog:
    r"""The active watchdog of this thread, or else a watchdog without a time limit."""
    return _CURRENT.get(_NOBODY)


@contextmanager
def reading(target: str) -> Iterator[None]:
    r"""A context in which outputs are compared and formatted, which may run code of their classes.

    An output can be an object of any class, and its hash, comparison and repr run code of this
    class. An error or a hang in such code is a failure of the target. An error that involves only
    the auditor's code is raised unchanged.
    """
    watchdog = current()
    try:
        watchdog.read()
        yield
        watchdog.stop()
    except DpcoreError:
        watchdog.stop()
        raise
    except RAISED as error:
        watchdog.stop()
        # The first two frames are this function and the reader of outputs.
        walked = islice(traceback.walk_tb(error.__traceback__), 2, None)
        theirs = any(_is_outside(frame) for frame, _ in walked)
        if not (isinstance(error, Unreadable) or theirs):
            raise
        raise failure(target, error) from error


def _is_outside(frame: FrameType) -> bool:
    package, _, _ = str(frame.f_globals.get("__name__", "")).partition(".")
    return package not in _OURS and package not in sys.stdlib_module_names


def _is_auditor(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", ""))
    return module.startswith("audit.") and not module.startswith("audit.broken_mechanisms.")


def _call_outside(frame: FrameType | None) -> FrameType | None:
    # The outermost frame of outside code that the auditor called, or None if there is none.
    found = None
    while frame is not None and not str(frame.f_globals.get("__name__", "")).startswith("audit."):
        if _is_outside(frame):
            found = frame
        frame = frame.f_back
    return found


def failure(
    target: str, error: BaseException, *, dataset: str | None = None, run: int | None = None
) -> TargetFailed:
    r"""Convert an exception raised in a call to a failure of the target.

    The returned failure states the exception's type, message and location in one line. A user's
    Ctrl-C is raised again.
    """
    if isinstance(error, KeyboardInterrupt) and current().interrupted:
        raise error
    match error:
        case TimeUp():
            reason = f"{error}; set a longer limit with --timeout"
        case Unreadable():
            reason = str(error)
        case TargetFailed():
            reason, run = error.reason, error.run
        case SystemExit():
            reason = f"called sys.exit({error.code!r})"
        case _:
            lines = "".join(traceback.format_exception_only(error)).strip().splitlines()
            # The first lines of a SyntaxError are its location, which is added below.
            first = [] if isinstance(error, SyntaxError) else lines[:-1]
            lines_of_error = [*first[:1], *(["..."] if first[1:] else []), lines[-1].strip()]
            reason = f"raised {' '.join(lines_of_error)}"
            # If the call could not begin, the last frame is the auditor's, and is not shown.
            for frame, line in [*traceback.walk_tb(error.__traceback__)][-1:]:
                if isinstance(error, SyntaxError) and "<frozen" in frame.f_code.co_filename:
                    reason += f" at {Path(str(error.filename)).name}:{error.lineno}"
                elif not _is_auditor(frame):
                    reason += f" at {Path(frame.f_code.co_filename).name}:{line}"
    return TargetFailed(target, reason, dataset=dataset, run=run)


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    r"""Redirect standard output, also of native code and child processes, to standard error.

    The block may close or replace ``sys.stdout`` and ``sys.stderr``; they are restored afterwards.
    The first thread to enter redirects the streams of the whole process, and the last thread to
    leave restores them.
    """
    with _STREAMS_LOCK:
        if not _inside:
            lent: Any = None if sys.stderr is None else _UncloseableStream(sys.stderr)
            _turned.enter_context(redirect_stdout(lent))
            _turned.enter_context(redirect_stderr(lent))
            _turned.enter_context(_descriptor_to_stderr())
        _inside.append(threading.get_ident())
    try:
        yield
    finally:
        with _STREAMS_LOCK:
            _inside.pop()
            if not _inside:
                _turned.close()


_STREAMS_LOCK = threading.Lock()
_inside: list[int] = []
_turned = ExitStack()


class _UncloseableStream:
    # A stream proxy whose close() only flushes.

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Any:
        return iter(self._stream)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


@contextmanager
def _descriptor_to_stderr() -> Iterator[None]:
    try:
        flush()
        kept = os.dup(1)
    except OSError:  # there is no standard output
        yield
        return
    try:
        os.dup2(2, 1)
        yield
    finally:
        flush()
        os.dup2(kept, 1)
        os.close(kept)


def flush() -> None:
    r"""Flush buffered output, including that of C libraries."""
    for stream in (sys.stdout, sys.__stdout__, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()  # type: ignore[union-attr]  # None where there is no such stream
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)


def signal_name(number: int) -> str:
    r"""The name of a signal, or its number if it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def load(spelling: str) -> Any:
    r"""Import the object given by ``module:name`` or ``file.py:name``.

    Importing runs the user's code, so an exception during the import is a failure of the target.
    """
    # Slow imports that a guarded call does not need.
    from dpcore.cli.imports import UserCode, clash_of

    def failed(error: BaseException, folder: Path) -> TargetFailed:
        reason = f"{failure(spelling, error).reason} while it was imported"
        if isinstance(error, (ImportError, AttributeError)) and (clash := clash_of(folder)):
            named = f"{folder / clash} has the name of one of dpcore's packages"
            reason += f" ({named}, which is imported instead)"
        return TargetFailed(spelling, reason)

    code = UserCode(argument="target", spelling=spelling, prefix="audited", failed=failed)
    return code.load(spelling)
