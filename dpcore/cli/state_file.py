r"""An append-only file of records, locked while it is open.

A record is a length, the crc32 of the length, a sha256 and a payload. Each sha256 covers the
payload and the previous sha256, so a record is valid only at its position in its file. Only the
last record can be torn, that is, cut short because the process ended, or filled with zeros after a
power cut. Any other invalid record means that the file is damaged. :meth:`StateFile.append` returns
when the data is on disk. Nothing is buffered, so ``append`` raises every error, and closing raises
no error. A new file is private to its owner (mode 0600) for every umask.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from dpcore.cli.files import file_errors, require_plain
from dpcore.errors import InvalidParameter

Place: TypeAlias = str | Path


@dataclass(slots=True, kw_only=True)
class StateFile:
    r"""An open, locked state file: a sequence of records to which records can be appended.

    ``reader`` reads the file from the beginning. ``owner`` is the kind of program that uses the
    file, for error messages. ``digest`` is the sha256 of the last record.
    """

    argument: str
    path: Path
    handle: int
    reader: BinaryIO
    owner: str
    digest: bytes = b""

    def resume(
        self,
        schema: str,
        header: bytes,
        begun: Callable[[bytes], None],
        taken: Callable[[bytes], None],
    ) -> None:
        r"""Read all records of the file, or start the file if it has no complete record.

        ``begun`` is called with the first payload, and ``taken`` with each later one. If the file
        is new, or ends within its first record, its content is replaced by the record ``header``,
        and neither function is called. An incomplete record at the end of the file is dropped.
        """
        start = started(schema)
        first, self.digest = next_record(start, header)
        end = 0
        try:
            with file_errors(self.argument, self.path):
                if is_torn(self.reader, first, f'{{"schema":"{schema}"'.encode()):
                    self.restart(first)
                    return
                for record in read_records(self.reader, start):
                    (taken if end else begun)(record.payload)
                    end, self.digest = record.end, record.digest
        except Damaged as error:
            if end:
                raise self._wrong(f"is damaged at {error}") from None
        except MemoryError:
            raise self._wrong("does not fit in memory") from None
        if not end:
            raise self._wrong(f"is not the state of an {self.owner}")
        self.cut(end)

    def write(self, payload: bytes) -> None:
        r"""Append the next record and return when it is on disk."""
        record, self.digest = next_record(self.digest, payload)
        self.append(record)

    def append(self, data: bytes) -> None:
        r"""Append data and return when it is on disk."""
        with file_errors(self.argument, self.path):
            left = memoryview(data)
            while left:
                left = left[os.write(self.handle, left) :]
            os.fsync(self.handle)

    def cut(self, size: int) -> None:
        r"""Drop the data after the first ``size`` bytes."""
        with file_errors(self.argument, self.path):
            os.ftruncate(self.handle, size)

    def restart(self, data: bytes) -> None:
        r"""Replace the content of the file with ``data``, and flush file and folder to disk."""
        self.cut(0)
        self.append(data)
        with file_errors(self.argument, self.path):
            _sync_folder(self.path)

    def _wrong(self, reason: str) -> InvalidParameter:
        return InvalidParameter(self.argument, str(self.path), reason)


@contextmanager
def open_state(argument: str, path: Place, *, owner: str) -> Iterator[StateFile]:
    r"""Open or create a state file, and keep it locked until the block ends.

    ``owner`` is the kind of program that uses the file, for error messages. Opening never truncates
    the file. If the block fails, a file that was created here and is still empty is removed.
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
    with file_errors(argument, place):
        handle = os.open(place, flags, 0o600)
    with os.fdopen(handle, "rb") as reader:
        found = StateFile(argument=argument, path=place, handle=handle, reader=reader, owner=owner)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise InvalidParameter(argument, str(path), "is not a regular file")
        with file_errors(argument, place):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                reason = f"is in use by another {owner}"
                raise InvalidParameter(argument, str(path), reason) from None
            # Another program may have removed the empty file before this one locked it.
            if not os.path.samestat(os.fstat(handle), place.stat()):
                raise InvalidParameter(argument, str(path), "was replaced while it was opened")
        if not os.fstat(handle).st_size:
            # Another program may have created the file with permissions for others.
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


MOST: Final = 1 << 31
r"""The largest length of a payload."""

_LENGTH: Final = struct.Struct("<Q")
_HEAD: Final = struct.Struct("<QI32s")
_CHECKED: Final = 12  # bytes of the length and its check
_PIECE: Final = 1 << 20
_BLOCK: Final = 1 << 12  # a file system may leave a block of zeros after a short write


class Damaged(ValueError):
    r"""Raised if damage in a file cannot come from an interrupted process or a power cut.

    The message gives the offset of the damage.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    r"""A record in a file: its payload, the offset of its end, and its digest."""

    payload: bytes
    end: int
    digest: bytes


def started(schema: str) -> bytes:
    r"""Return the sha256 that precedes the first record in a file with this schema."""
    return hashlib.sha256(schema.encode()).digest()


def next_record(before: bytes, payload: bytes) -> tuple[bytes, bytes]:
    r"""Return the bytes of the next record, and its sha256; ``before`` is the previous sha256."""
    digest = _digest(before, payload)
    length = len(payload)
    return _HEAD.pack(length, zlib.crc32(_LENGTH.pack(length)), digest) + payload, digest


def read_records(file: BinaryIO, before: bytes) -> Iterator[Record]:
    r"""Yield the records of a file up to its end or a torn record, or raise :class:`Damaged`."""
    size, at = file.seek(0, os.SEEK_END), 0
    while at + _HEAD.size <= size:
        file.seek(at)
        length, check, digest = _HEAD.unpack(file.read(_HEAD.size))
        if not _is_length(length, check):
            # Zeros may start within the length, at the end of a sector.
            if _is_zero(file, at + _CHECKED, size):
                return
            raise Damaged(f"byte {at:,}")
        end = at + _HEAD.size + length
        if end > size:
            return
        payload = file.read(length)
        if _digest(before, payload) != digest:
            if end == size:
                return
            raise Damaged(f"byte {at:,}")
        yield Record(payload=payload, end=end, digest=digest)
        at, before = end, digest


def is_torn(file: BinaryIO, written: bytes, beginning: bytes) -> bool:
    r"""Whether a file contains nothing but an incomplete first record, and can be restarted.

    ``written`` is the record with which the file would be restarted. The payload of every valid
    first record starts with ``beginning``.
    """
    size = file.seek(0, os.SEEK_END)
    if size <= max(len(written), _BLOCK) and _is_zero(file, 0, size):
        return True
    file.seek(0)
    length, check, _ = _HEAD.unpack(file.read(_HEAD.size).ljust(_HEAD.size, b"\0"))
    known = _is_length(length, check)
    whole = _HEAD.size + length if known else len(written)
    if size > whole:
        return False
    file.seek(0)
    there = file.read().rstrip(b"\0")
    if len(there) == whole:
        return False
    payload = there[_HEAD.size :]
    begun = payload.startswith(beginning) or beginning.startswith(payload)
    return written.startswith(there) or (known and begun)


def _is_length(length: int, check: int) -> bool:
    return zlib.crc32(_LENGTH.pack(length)) == check and length <= MOST


def _is_zero(file: BinaryIO, at: int, size: int) -> bool:
    if size - at > MOST:
        return False
    file.seek(at)
    return not any(piece.strip(b"\0") for piece in iter(lambda: file.read(_PIECE), b""))


def _digest(before: bytes, payload: bytes) -> bytes:
    return hashlib.sha256(before + payload).digest()
