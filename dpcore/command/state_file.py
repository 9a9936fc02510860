r"""An append-only file of finished work, locked while it is open.

What is appended is on the disk when :meth:`StateFile.append` returns. Nothing is buffered: what the
system refuses is refused there and then, and never again when the file is closed. A new file is
private to its owner (mode 0600), whatever the umask.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

from dpcore.command.input_file import require_plain
from dpcore.errors import InvalidParameter

Place: TypeAlias = str | Path


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFile:
    r"""An open file and its lock; ``reader`` reads it from the beginning."""

    argument: str
    path: Path
    handle: int
    reader: BinaryIO

    def append(self, data: bytes) -> None:
        r"""Append data; returns when it is on disk."""
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(self.handle, left) :]
            os.fsync(self.handle)
        except OSError as error:
            raise self.refused(error) from None

    def cut(self, size: int) -> None:
        r"""Drop the data after the first ``size`` bytes."""
        try:
            os.ftruncate(self.handle, size)
        except OSError as error:
            raise self.refused(error) from None

    def restart(self, data: bytes) -> None:
        r"""Replace the content by ``data``; returns when the file and its name are on disk."""
        self.cut(0)
        self.append(data)
        try:
            _sync_folder(self.path)
        except OSError as error:
            raise self.refused(error) from None

    def refused(self, error: OSError) -> InvalidParameter:
        r"""Convert an operating-system error to one that names the file."""
        return InvalidParameter(self.argument, str(self.path), error.strerror or str(error))


@contextmanager
def open_state(argument: str, path: Place, *, owner: str) -> Iterator[StateFile]:
    r"""Open and lock the file, or create it; ``owner`` names other programs that may hold it.

    It is never truncated by opening, and removed again where the block fails before it holds a
    byte.
    """
    try:
        import fcntl
    except ImportError:
        reason = "file locking (fcntl) is not available here"
        raise InvalidParameter(argument, str(path), reason) from None
    place = Path(path)
    require_plain(argument, place)
    fresh = not os.path.lexists(place)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        handle = os.open(place, flags, 0o600)
    except OSError as error:
        raise InvalidParameter(argument, str(path), error.strerror or str(error)) from None
    with os.fdopen(handle, "rb") as reader:
        found = StateFile(argument=argument, path=place, handle=handle, reader=reader)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise InvalidParameter(argument, str(path), "is not a regular file")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            reason = f"is in use by another {owner}"
            raise InvalidParameter(argument, str(path), reason) from None
        except OSError as error:
            raise found.refused(error) from None
        if not os.fstat(handle).st_size:
            # Made beforehand by somebody else, who may have left it open to others.
            with suppress(OSError):
                os.fchmod(handle, 0o600)
        try:
            yield found
        except BaseException:
            if fresh and not os.fstat(handle).st_size:
                with suppress(OSError):
                    place.unlink()
            raise


def _sync_folder(path: Path) -> None:
    handle = os.open(path.resolve().parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
