r"""Read input files of a command: only regular files up to a given size."""

from __future__ import annotations

import csv
import json
import math
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from dpcore.errors import InvalidParameter


@contextmanager
def file_errors(argument: str, path: str | Path) -> Iterator[None]:
    r"""Report errors of the operating system as errors of ``argument`` that name the file."""
    try:
        yield
    except OSError as error:
        raise InvalidParameter(argument, str(path), error.strerror or str(error)) from error


def read_bytes(argument: str, path: str | Path, *, most: int, stdin: bool = False) -> bytes:
    r"""Read the first ``most`` bytes of a regular file.

    Devices and pipes raise an error, because reading them could block forever. With ``stdin`` the
    path ``-`` is standard input.
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
        raise InvalidParameter(argument, str(path), f"must have at most {most:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidParameter(argument, str(path), "is not text in UTF-8") from None


def parse_json(text: str | bytes, **hooks: Any) -> Any:
    r"""Parse JSON; ``hooks`` are those of :func:`json.loads`.

    Raises ValueError also for NaN, for numbers beyond the range of floats, and for deep nesting.
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
    r"""Raise an error unless the path is a regular file: reading a pipe could block forever."""
    with suppress(OSError):
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise InvalidParameter(argument, str(path), "is not a regular file")


def csv_rows(
    argument: str, path: str | Path, *, whole: bool = False
) -> Iterator[tuple[int, list[str]]]:
    r"""Yield the non-blank rows of a CSV file lazily, each with its line number."""
    require_plain(argument, path)
    try:
        with (
            file_errors(argument, path),
            Path(path).open(encoding="utf-8-sig", newline="") as file,
        ):
            lines = _ended(argument, path, file) if whole else file
            yield from rows_of(argument, path, lines)
    except UnicodeDecodeError as error:
        raise InvalidParameter(argument, str(path), f"is not valid CSV ({error})") from None


def rows_of(
    argument: str, path: str | Path, lines: Iterable[str]
) -> Iterator[tuple[int, list[str]]]:
    r"""Yield the non-blank CSV rows of ``lines``; errors name ``path``."""
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
