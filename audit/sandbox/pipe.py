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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from audit.outputs.guard import flush, reading
from audit.outputs.wire import Objects, pack, unpack
from audit.sandbox.answers import answered

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
