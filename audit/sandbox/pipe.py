r"""The far end of the pipe between the auditor and the process that runs audited code.

Requests and answers are frames of ``audit.outputs.wire`` on a socket. Shared memory
shows the auditor which call is running and when that should end, and the process whether it should
stop.
"""

from __future__ import annotations

import math
import mmap
import os
import socket
import struct
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from audit.errors import TargetFailed
from audit.outputs.guard import RAISED, failure, flush, reading
from audit.outputs.wire import Objects, pack, unpack
from dpcore.errors import ABSENT, InvalidParameter

_TRACED: Final = 1 << 14


def answered(name: str, work: Callable[[], object]) -> tuple[str, object]:
    r"""Do the work of the target ``name``: ("done", what it returns), or the kind of its error."""
    try:
        return "done", work()
    except InvalidParameter as error:
        given = None if error.value is ABSENT else str(error.value)
        return "refused", (error.argument, given, error.reason)
    except KeyboardInterrupt:
        return "interrupted", None
    except RAISED as error:
        if isinstance(error, TargetFailed):
            return "failed", told(error)
        failed = failure(name, error)
        failed.__cause__ = error
        return "failed", told(failed)


def result_of(name: str, kind: object, value: Any) -> Any:
    r"""What work returned that :func:`answered` did.

    >>> result_of("six", *answered("six", lambda: 2 * 3))
    6

    Raises :class:`InvalidParameter` and :class:`TargetFailed` as the work did.
    """
    match kind, value:
        case "done", _:
            return value
        case "refused", (str(argument), None | str() as given, str(reason)):
            raise InvalidParameter(argument, ABSENT if given is None else given, reason)
        case "failed", _:
            raise failed_of(value)
    raise TargetFailed(name, "raised KeyboardInterrupt")


def told(error: TargetFailed) -> tuple[Any, ...]:
    r"""The error as plain data, with its traceback for ``--debug``: it is of another process."""
    traced = "".join(traceback.format_exception(error))[-_TRACED:]
    return error.target, error.reason, error.dataset, error.run, traced


def failed_of(value: Any) -> TargetFailed:
    r"""The error that :func:`told` told."""
    match value:
        case (str(target), str(reason), dataset, run, str(traced)):
            failed = TargetFailed(target, reason, dataset=dataset, run=run)
            failed.add_note(f"where it runs:\n{traced}")
            return failed
    raise ValueError("no answer of a worker")


LENGTH: Final = struct.Struct("<Q")
r"""What stands before a frame: how many bytes it has."""

_PIECE: Final = 1 << 20
_CALLS, _DUE, _STOP = 0, 8, 16
_leave: Final = os._exit  # whatever a target makes of the module


@dataclass(slots=True, kw_only=True)
class SharedMemory:
    r"""Memory that both processes share: calls begun, when the last must end, whether to stop."""

    held: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, _STOP + 1))
    calls: int = 0
    # Each number is stored whole. struct.pack_into clears the bytes first, and a look in between
    # would find a call that should have ended at time 0.
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
        r"""Calls begun, and when the last one should end: inf where none is running."""
        return self._calls[0], self._due[0]

    def clear(self) -> None:
        r"""Before a piece of work: no calls, and no wish to stop."""
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
    r"""The other process's end: what it is asked, and its answers."""

    socket: socket.socket
    memory: SharedMemory
    name: str
    process: int = field(default_factory=os.getpid)
    objects: Objects = field(default_factory=Objects)

    def requests(self) -> Iterator[Any]:
        r"""Yield the requests until the auditor closes the pipe."""
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
        r"""Do a piece of work and send what it returns, or how it failed."""
        self.send(*answered(self.name, work))

    def send(self, kind: str, value: object) -> None:
        r"""Send a part of an answer, read where the code of its own classes is."""
        if os.getpid() != self.process:
            # A target forked, and this is the child: the auditor hears one process only.
            _leave(0)
        flush()  # this process may be ended before it would print what waits
        with reading(self.name):
            packed = pack((kind, value), self.objects)
        self.socket.sendall(LENGTH.pack(len(packed)) + packed)
