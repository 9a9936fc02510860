r"""Read input files of limited size, and write output files atomically, for all commands.

Before a computation, :func:`check_writable` checks that the output file can be written. The file is
written under a temporary name in the same folder and then renamed. The temporary name consists of a
dot, the name of the file, the process ID and random characters. If the process is killed, the next
process that writes the same output file removes the temporary file.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from dpcore.errors import InvalidParameter


@contextmanager
def file_errors(argument: str, path: str | Path) -> Iterator[None]:
    r"""Convert an OSError of the block to an error about the path given as ``argument``."""
    try:
        yield
    except OSError as error:
        raise InvalidParameter(argument, str(path), error.strerror or str(error)) from error


def read_bytes(argument: str, path: str | Path, *, most: int, stdin: bool = False) -> bytes:
    r"""Read at most ``most`` bytes from the beginning of a regular file.

    Raises :class:`InvalidParameter` if the path is a device or a pipe, because reading it could
    block forever. With ``stdin=True`` the path ``-`` means standard input.
    """
    if "\0" in str(path):
        raise InvalidParameter(argument, str(path), "is not a valid file name")
    typed = stdin and str(path) == "-"
    if not typed:
        require_plain(argument, path)
    with (
        file_errors(argument, path),
        nullcontext(sys.stdin.buffer) if typed else Path(path).open("rb") as file,
    ):
        return file.read(most)


def read_text(argument: str, path: str | Path, *, most: int, stdin: bool = False) -> str:
    r"""Read a UTF-8 file of at most ``most`` bytes; a byte order mark is dropped."""
    data = read_bytes(argument, path, most=most + 1, stdin=stdin)
    if len(data) > most:
        raise InvalidParameter(argument, str(path), f"must be at most {most:,} bytes long")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidParameter(argument, str(path), "is not UTF-8 text") from None


def parse_json(text: str | bytes, **hooks: Any) -> Any:
    r"""Parse JSON; ``hooks`` are those of :func:`json.loads`.

    Raises ValueError also if the text contains NaN or a number beyond the range of floats, or is
    nested too deeply.
    """

    def finite(number: str) -> float:
        if not math.isfinite(found := float(number)):
            raise ValueError(f"{number} is not a finite number")
        return found

    try:
        return json.loads(text, **{"parse_constant": finite, "parse_float": finite, **hooks})
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def require_plain(argument: str, path: str | Path) -> None:
    r"""Raise an error if an existing path is not a regular file: reading it could block."""
    with suppress(OSError):
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise InvalidParameter(argument, str(path), "is not a regular file")


def csv_rows(
    argument: str, path: str | Path, *, whole: bool = False
) -> Iterator[tuple[int, list[str]]]:
    r"""Yield the non-blank rows of a CSV file lazily, each with its line number.

    With ``whole=True``, a last line without a newline raises :class:`InvalidParameter`.
    """
    require_plain(argument, path)
    try:
        with (
            file_errors(argument, path),
            Path(path).open(encoding="utf-8-sig", newline="") as file,
        ):
            lines = _ended(argument, path, file) if whole else file
            yield from rows_of(argument, path, lines)
    except UnicodeDecodeError:
        reason = "is not valid CSV: it must be UTF-8 text"
        raise InvalidParameter(argument, str(path), reason) from None


def rows_of(
    argument: str, path: str | Path, lines: Iterable[str]
) -> Iterator[tuple[int, list[str]]]:
    r"""Yield the non-blank CSV rows of ``lines``; error messages give ``path`` as the file."""
    rows = csv.reader(lines, skipinitialspace=True, strict=True)
    try:
        for row in rows:
            if any(cell.strip() for cell in row):
                yield rows.line_num, row
    except csv.Error as error:
        reason = f"is not valid CSV (line {rows.line_num}: {error})"
        raise InvalidParameter(argument, str(path), reason) from None


def _ended(argument: str, path: str | Path, file: Iterable[str]) -> Iterator[str]:
    for line in file:
        if not line.endswith("\n"):
            raise InvalidParameter(
                argument, str(path), "is truncated: its last line has no newline"
            )
        yield line


def check_writable(option: str, path: Path | None) -> None:
    r"""Raise an error, before any computation, if the path (unless None) cannot be written."""
    if path is None:
        return
    if str(path) == "-":
        raise InvalidParameter(
            option, "-", "must be a file: this option cannot write to standard output"
        )
    with file_errors(option, path):
        if path.is_dir():
            raise InvalidParameter(option, str(path), "is a directory")
        if path.exists() and not os.access(path, os.W_OK):
            raise InvalidParameter(option, str(path), "cannot be written to")
        if _special(path):
            return
        folder = _target(path).parent
        if not folder.is_dir():
            raise InvalidParameter(option, str(path), f"there is no folder {path.parent}")
        if not os.access(folder, os.W_OK):
            raise InvalidParameter(option, str(path), "is in a folder that cannot be written to")


@contextmanager
def made_folder(option: str, path: Path | None) -> Iterator[None]:
    r"""Create a missing folder. If the block fails, remove the new folder if it is empty."""
    if path is None:
        yield
        return
    if str(path) == "-":
        raise InvalidParameter(
            option, "-", "must be a folder: this option cannot write to standard output"
        )
    with file_errors(option, path):
        fresh = not path.exists()
        if not fresh and not path.is_dir():
            raise InvalidParameter(option, str(path), "is not a folder")
        path.mkdir(exist_ok=True)
    try:
        if not os.access(path, os.W_OK | os.X_OK):
            raise InvalidParameter(option, str(path), "cannot be written to")
        yield
    except BaseException:
        if fresh:
            with suppress(OSError):
                path.rmdir()
        raise


def write_whole(option: str, path: Path, content: str | bytes) -> None:
    r"""Write a file atomically: write a temporary file, then rename it.

    A symbolic link is followed and its target replaced; a device or a pipe is written to directly.
    """
    data = content.encode() if isinstance(content, str) else content
    with file_errors(option, path):
        if _special(path):
            path.write_bytes(data)
        else:
            _replace(_target(path), data)


def _target(path: Path) -> Path:
    # The file to which a symbolic link points, even if that file does not exist yet.
    with suppress(FileNotFoundError):
        return Path(os.path.realpath(path, strict=True))
    return path.resolve()


def _special(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _sweep(path: Path) -> None:
    # Removes temporary files of processes that no longer run. If the folder cannot be listed, this
    # step is skipped.
    with suppress(OSError):
        names = re.compile(re.escape(f".{path.name}.") + r"(\d+)\.\w{8}")
        for place in path.parent.iterdir():
            found = names.fullmatch(place.name)
            if found and not _runs(int(found[1])):
                place.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _mode(path: Path) -> int:
    # The permissions of the file that is replaced, or those of a new file.
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _replace(path: Path, data: bytes) -> None:
    _sweep(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.{os.getpid()}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(_mode(path))
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink()
        raise
