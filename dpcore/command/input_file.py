r"""Read a file that a command was given: a plain file, and no more of it than is asked for."""

from __future__ import annotations

import stat
from contextlib import suppress
from pathlib import Path

from dpcore.errors import InvalidParameter

__all__ = ["read_text", "require_plain"]


def read_text(argument: str, path: str | Path, *, most: int) -> str:
    r"""Read the text of a plain file of at most ``most`` bytes, in UTF-8, less a byte order mark.

    A device may never end and a pipe never answer: neither is read.

    >>> read_text("--pairs", "/dev/zero", most=1 << 20)
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: --pairs = /dev/zero: is not a plain file

    Raises :class:`InvalidParameter`, naming the argument, for anything else.
    """
    if "\0" in str(path):
        raise InvalidParameter(argument, str(path), "is not a valid file name")
    require_plain(argument, path)
    try:
        with Path(path).open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise InvalidParameter(argument, str(path), error.strerror or str(error)) from None
    if len(data) > most:
        raise InvalidParameter(argument, str(path), f"must have at most {most:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidParameter(argument, str(path), "is not text in UTF-8") from None


def require_plain(argument: str, path: str | Path) -> None:
    r"""Refuse a path that is not a regular file: reading a pipe could block for ever.

    >>> require_plain("--data", "/dev/zero")
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: --data = /dev/zero: is not a plain file

    Raises :class:`InvalidParameter`, naming the argument.
    """
    with suppress(OSError):
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise InvalidParameter(argument, str(path), "is not a plain file")
