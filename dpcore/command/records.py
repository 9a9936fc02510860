r"""A file of records: length, crc32 of the length, sha256, payload.

Each sha256 covers the one before it, so a record stands where it was written and in no other file.
Only the last one can be torn: by an end of the process it is too short, and a power cut can leave
zeros in its place. Anything else is damage.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

MOST: Final = 1 << 31
r"""No payload is longer."""

_LENGTH: Final = struct.Struct("<Q")
_HEAD: Final = struct.Struct("<QI32s")
_CHECKED: Final = 12  # bytes of the length and its check
_PIECE: Final = 1 << 20


class Damaged(ValueError):
    r"""Corruption not explained by an interrupted process or a power cut, with its offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    r"""The payload of a record, the offset after it, and the digest for the next one."""

    payload: bytes
    end: int
    digest: bytes


def started(schema: str) -> bytes:
    r"""The digest before the first record of a schema."""
    return hashlib.sha256(schema.encode()).digest()


def next_record(before: bytes, payload: bytes) -> tuple[bytes, bytes]:
    r"""The bytes of the record that follows digest ``before``, and its digest."""
    digest = _digest(before, payload)
    length = len(payload)
    return _HEAD.pack(length, zlib.crc32(_LENGTH.pack(length)), digest) + payload, digest


def read_records(file: BinaryIO, before: bytes) -> Iterator[Record]:
    r"""Read the records from the beginning of a file to its end, or to a torn record."""
    size, at = file.seek(0, os.SEEK_END), 0
    while at + _HEAD.size <= size:
        file.seek(at)
        length, check, digest = _HEAD.unpack(file.read(_HEAD.size))
        if not _is_length(length, check):
            # Zeros may begin within the length, where a sector ends.
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
    r"""Whether a file ends within its first record, so that no later data can be lost.

    That is ``written``, or any other with a payload that begins with ``beginning``; a payload does
    not end in zeros.
    """
    size = file.seek(0, os.SEEK_END)
    if _is_zero(file, 0, size):
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
