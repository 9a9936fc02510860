r"""Run audited code in a child process, so that its crash does not end the auditor.

The child is forked and leads its own session. The auditor and the child communicate over a socket;
each request and answer is a frame encoded with ``audit.outputs.sandbox_encoding``. Shared memory
contains the number of the running call and its deadline. The auditor kills the child and its
children when their work is done, or if the child

- is far beyond the time limit of a call;
- stops itself (SIGSTOP);
- does not react to Ctrl-C.

The child ends if the auditor ends.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import math
import mmap
import os
import select
import signal
import socket
import struct
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from audit.errors import TargetFailed
from audit.outputs import time_limit
from audit.outputs.sandbox_encoding import Objects, pack, unpack
from audit.outputs.time_limit import RAISED, failure, flush, reading, signal_name, stdout_to_stderr
from dpcore.errors import ABSENT, InvalidParameter

_TRACED: Final = 1 << 14


def run_work(name: str, work: Callable[[], object]) -> tuple[str, object]:
    r"""Return ("done", result of ``work()``), or the kind and the data of the raised error."""
    try:
        return "done", work()
    except InvalidParameter as error:
        given = None if error.value is ABSENT else str(error.value)
        return "refused", (error.argument, given, error.reason)
    except KeyboardInterrupt:
        return "interrupted", None
    except RAISED as error:
        if isinstance(error, TargetFailed):
            return "failed", error_fields(error)
        failed = failure(name, error)
        failed.__cause__ = error
        return "failed", error_fields(failed)


def result_of(name: str, kind: object, value: Any) -> Any:
    r"""Return the result that :func:`run_work` encoded, or raise the error that it encoded."""
    match kind, value:
        case "done", _:
            return value
        case "refused", (str(argument), None | str() as given, str(reason)):
            raise InvalidParameter(argument, ABSENT if given is None else given, reason)
        case "failed", _:
            raise error_from_fields(value)
    raise TargetFailed(name, "raised KeyboardInterrupt")


def error_fields(error: TargetFailed) -> tuple[Any, ...]:
    r"""Encode an error, with its traceback for ``--debug``, as plain data for another process."""
    traced = "".join(traceback.format_exception(error))[-_TRACED:]
    return error.target, error.reason, error.dataset, error.run, traced


def error_from_fields(value: Any) -> TargetFailed:
    r"""Decode an error encoded by :func:`error_fields`."""
    match value:
        case (str(target), str(reason), dataset, run, str(traced)):
            failed = TargetFailed(target, reason, dataset=dataset, run=run)
            failed.add_note(f"traceback from its process:\n{traced}")
            return failed
    raise ValueError("invalid answer from a worker")


LENGTH: Final = struct.Struct("<Q")
r"""The header of a frame: the number of its bytes."""

_CALLS, _DUE, _STOP = 0, 8, 16
_leave: Final = os._exit  # saved, because a target may patch the module


@dataclass(slots=True, kw_only=True)
class SharedMemory:
    r"""Memory shared with the child: the number of started calls, a deadline, a stop request."""

    held: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, _STOP + 1))
    calls: int = 0
    # A cast memoryview stores all bytes of a number at once. struct.pack_into clears the bytes
    # first, so the other process could read a deadline of 0.
    _calls: memoryview[int] = field(init=False, repr=False)
    _due: memoryview[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._calls = memoryview(self.held)[_CALLS:_DUE].cast("Q")
        self._due = memoryview(self.held)[_DUE:_STOP].cast("d")
        self.end()

    def begin(self, due: float) -> None:
        self.calls += 1
        self._calls[0], self._due[0] = self.calls, due

    def end(self) -> None:
        self._calls[0], self._due[0] = self.calls, math.inf

    def read(self) -> tuple[int, float]:
        r"""The number of started calls, and the deadline of the running one (inf if none runs)."""
        return self._calls[0], self._due[0]

    def clear(self) -> None:
        r"""Reset the number of calls and the stop request, before a new request is handled."""
        self.calls = 0
        self.end()
        self.held[_STOP] = 0

    def stop(self) -> None:
        self.held[_STOP] = 1

    @property
    def stopped(self) -> bool:
        return bool(self.held[_STOP])


@dataclass(slots=True, kw_only=True)
class Pipe:
    r"""The child's end of the connection, which receives requests and sends answers."""

    socket: socket.socket
    memory: SharedMemory
    name: str
    process: int = field(default_factory=os.getpid)
    objects: Objects = field(default_factory=Objects)

    def requests(self) -> Iterator[Any]:
        r"""Yield the requests until the auditor closes the connection."""
        while (head := self._read(LENGTH.size)) is not None:
            request = self._read(*LENGTH.unpack(head))
            if request is None:
                return
            self.memory.clear()
            yield unpack(request, {}, self.objects)

    def _read(self, size: int) -> bytes | None:
        found = bytearray()
        while len(found) < size:
            piece = self.socket.recv(min(size - len(found), _PIECE))
            if not piece:
                return None
            found += piece
        return bytes(found)

    def answer(self, work: Callable[[], object]) -> None:
        r"""Call ``work``, and send its result or the error that it raised."""
        self.send(*run_work(self.name, work))

    def send(self, kind: str, value: object) -> None:
        r"""Send a piece of an answer; ``kind`` is "part" for all but the last piece."""
        if os.getpid() != self.process:
            # The target forked and this is the child: only the original process answers.
            _leave(0)
        flush()  # this process may be killed before it flushes
        with reading(self.name):
            packed = pack((kind, value), self.objects)
        self.socket.sendall(LENGTH.pack(len(packed)) + packed)


_GRACE: Final = 2.0
_LOOKS: Final = 0.1
_PATIENCE: Final = 0.5
_PIECE: Final = 1 << 20
_LOST: Final = 125  # the exit code if the connection is lost
_GAVE_UP: Final = (
    "lost its connection to the auditor: it called os.exec, or closed a file descriptor that it "
    "does not own"
)
_DEATH_SIGNAL, _SET_REAPER, _GET_REAPER = 1, 36, 37  # options of prctl(2)


class Ended(TargetFailed):
    r"""Raised if the process ended; ``calls`` counts the calls that the request had started."""

    def __init__(self, target: str, reason: str, calls: int) -> None:
        super().__init__(target, reason)
        self.calls = calls


@dataclass(slots=True, kw_only=True)
class IsolatedProcess:
    r"""A process that runs ``work(pipe)``; the first request starts it.

    ``seconds`` limits each call. Ctrl-C requests a stop through shared memory. With
    ``forwards_ctrl_c=True``, the process also receives SIGINT, and the auditor waits for its
    answer.
    """

    name: str
    work: Callable[[Pipe], None]
    seconds: float | None
    forwards_ctrl_c: bool = False
    memory: SharedMemory = field(default_factory=SharedMemory)
    process: int | None = None
    _socket: Any = None
    _known: dict[int, Any] = field(default_factory=dict)
    _received: bytearray = field(default_factory=bytearray)
    _how: str = ""
    _overdue: tuple[int, float] | None = None
    _reaper: ctypes.c_int = field(default_factory=ctypes.c_int)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, request: object) -> Generator[Any, None, Any]:
        r"""Send a request, yield the parts of the answer, and return the final value of the answer.

        After a first Ctrl-C, the available parts are still yielded, and then KeyboardInterrupt is
        raised; a second Ctrl-C raises KeyboardInterrupt at once. Raises :class:`Ended` if the
        process ends. Also raises an :class:`InvalidParameter` or a :class:`TargetFailed` that was
        raised in the process.
        """
        if self.process is None:
            self._begin()
        self.memory.clear()
        packed = pack(request, Objects())
        unsent = memoryview(LENGTH.pack(len(packed)) + packed)
        pressed: KeyboardInterrupt | None = None
        until = math.inf
        over = False
        try:
            while True:
                try:
                    unsent = self._exchange(unsent, until)
                except KeyboardInterrupt as error:
                    if pressed is not None:
                        raise
                    pressed, until = error, self._interrupt()
                for kind, value in self._frames():
                    if kind == "part":
                        yield value
                        continue
                    over = True
                    if pressed is not None and not (self.forwards_ctrl_c and kind == "done"):
                        raise pressed
                    return result_of(self.name, kind, value)
                if self.process is None:
                    raise pressed or Ended(self.name, self._how, self.memory.read()[0])
        finally:
            if not over and self.process is not None:
                self._abandon()

    # -- during work ------------------------------------------------------------------------------

    def _exchange(self, unsent: memoryview, until: float) -> memoryview:
        # Send and receive available data, and check the process.
        gone = False
        reads, writes, _ = select.select(
            [self._socket], [self._socket] if unsent else [], [], _LOOKS
        )
        try:
            if writes:
                unsent = unsent[self._socket.send(unsent[:_PIECE]) :]
            if reads:
                piece = self._socket.recv(_PIECE)
                self._received += piece
                gone = not piece
        except OSError:  # the other end is closed
            gone = True
        if gone or not reads:
            self._look_after(gone=gone, until=until)
        return unsent

    def _look_after(self, *, gone: bool, until: float) -> None:
        status = self._status(_PATIENCE if gone else 0.0)
        now, running = time.monotonic(), self.memory.read()
        # The two numbers are not read atomically, so a call must be found overdue twice.
        overdue, self._overdue = self._overdue, running if now > running[1] + _GRACE else None
        if status is not None and os.WIFSTOPPED(status):
            self.end(f"stopped itself with {signal_name(os.WSTOPSIG(status))}")
        elif status is not None:
            self.end(_exit_reason(os.waitstatus_to_exitcode(status)), reaped=True)
        elif gone:
            self.end(_GAVE_UP)
        elif overdue is not None and overdue == self._overdue:
            self.end(
                f"no answer within {self.seconds:g} s, and its process had to be killed, because "
                "nothing else interrupts it; set a longer limit with --timeout"
            )
        elif now > until:
            self.end("interrupted")

    def _status(self, patience: float) -> int | None:
        # The wait status of the process if it ends or stops within ``patience`` seconds, else None.
        end = time.monotonic() + patience
        while self.process is not None:
            found, status = os.waitpid(self.process, os.WNOHANG | os.WUNTRACED)
            if found:
                return status
            if time.monotonic() >= end:
                break
            time.sleep(0.002)
        return None

    def _frames(self) -> Iterator[tuple[str, Any]]:
        while len(self._received) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._received)[0]
            if len(self._received) < end:
                return
            frame = bytes(self._received[LENGTH.size : end])
            del self._received[:end]
            try:
                kind, value = unpack(frame, self._known)
            except ValueError as error:
                self.end("interrupted")
                raise TargetFailed(self.name, f"its process sent {error}") from error
            yield kind, value

    def _interrupt(self) -> float:
        # Ask the process to stop; return the time until which to wait for its answer.
        self.memory.stop()
        if self.forwards_ctrl_c and self.process is not None:
            os.kill(self.process, signal.SIGINT)
        return time.monotonic() + (_GRACE if self.forwards_ctrl_c else _PATIENCE)

    def _abandon(self) -> None:
        # Discard the remaining answer. The process is not killed if it accepts further requests.
        try:
            until = self._interrupt()
            unsent = memoryview(b"")
            while self.process is not None:
                unsent = self._exchange(unsent, until)
                if any(kind != "part" for kind, _ in self._frames()):
                    return
        except BaseException:
            self.end("interrupted")
            raise

    # -- start and end ----------------------------------------------------------------------------

    def _begin(self) -> None:
        ours, theirs = socket.socketpair()
        time_limit.flush()  # so that no output is printed twice
        self._known, self._received = {}, bytearray()
        _prctl(_GET_REAPER, ctypes.byref(self._reaper))
        _prctl(_SET_REAPER, 1)
        parent, leave = os.getpid(), os._exit
        with warnings.catch_warnings():
            # Ignore the warning about forks with threads: numpy's threads support forks, and the
            # child does not use the thread of the progress bar.
            warnings.simplefilter("ignore", DeprecationWarning)
            process = os.fork()
        if not process:
            try:
                ours.close()
                self._be(theirs, parent)
            finally:
                # Whatever happens, the child must never continue the auditor's code.
                leave(_LOST)
        self.process = process
        theirs.close()
        ours.settimeout(0)
        self._socket = ours

    def _be(self, theirs: socket.socket, parent: int) -> None:
        os.setsid()
        _prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            return
        # Only the auditor's own process runs its exit handlers and the finalizers of its objects,
        # which may wait for a thread that does not exist in this process.
        atexit._clear()
        gc.freeze()
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            # A handler instead of SIG_IGN, which the target's children would inherit.
            handler: Any = signal.default_int_handler if self.forwards_ctrl_c else lambda *_: None
            signal.signal(signal.SIGINT, handler)
        time_limit.publish(self.memory)
        with stdout_to_stderr():
            self.work(Pipe(socket=theirs, memory=self.memory, name=self.name))
            if os.getpid() == os.getsid(0):  # not in a child that the target forked
                atexit._run_exitfuncs()

    def end(self, how: str, *, reaped: bool = False) -> None:
        r"""Kill the process and its children; ``how`` is the reason that :class:`Ended` states."""
        process, self.process = self.process, None
        if process is None:
            return
        self._how = how
        self._socket.close()
        end_group(process, reaped=reaped)
        _prctl(_SET_REAPER, self._reaper)

    def close(self) -> None:
        r"""Close the connection, so that the process exits normally, and kill it if it does not."""
        try:
            if self.process is not None:
                self._socket.shutdown(socket.SHUT_WR)
                status = self._status(_GRACE)
                self.end("closed", reaped=status is not None and not os.WIFSTOPPED(status))
        except BaseException:
            self.end("closed")
            raise


def end_group(process: int, *, reaped: bool = False) -> None:
    r"""Kill all processes in the process group that ``process`` leads."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)
    if not reaped:
        with suppress(ChildProcessError):
            os.waitpid(process, 0)
    # Reap orphans, which are now children of this process if the system supports subreapers.
    end = time.monotonic() + _PATIENCE
    with suppress(ChildProcessError):
        while time.monotonic() < end:
            if os.waitpid(-process, os.WNOHANG) == (0, 0):
                time.sleep(0.002)


def _exit_reason(code: int) -> str:
    if code == _LOST:
        return _GAVE_UP
    if code >= 0:
        return f"ended its process with exit code {code}, for example by os._exit or os.exec"
    return f"its process was killed by {signal_name(-code)}"


def _prctl(option: int, value: Any) -> None:
    # Only on Linux. Elsewhere init reaps orphans.
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
