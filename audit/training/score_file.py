r"""Read canary scores from a CSV file: the columns ``score`` and ``included``, found by header."""

from __future__ import annotations

import csv
import io
import math
import sys
from pathlib import Path
from typing import Final

from dpcore.command.input_file import read_text
from dpcore.errors import InvalidParameter

__all__ = ["read_scores"]

_COLUMNS: Final = ("score", "included")
_INCLUDED: Final = {"1": True, "true": True, "0": False, "false": False}
_MOST: Final = 1 << 30


def read_scores(path: str) -> tuple[list[float], list[bool]]:
    r"""Read the scores and inclusions of a CSV file; "-" is standard input.

    Further columns are left alone. Raises :class:`InvalidParameter` with the line of what is wrong.
    """
    if path == "-":
        text = sys.stdin.read(_MOST)
    else:
        text = read_text("SCORES", Path(path), most=_MOST)
    return parsed(text, path)


def parsed(text: str, path: str) -> tuple[list[float], list[bool]]:
    r"""The same, of the text of the file.

    >>> parsed("id,score,included\na,0.5,1\nb,-2,0\n", "scores.csv")
    ([0.5, -2.0], [True, False])
    >>> parsed("score,included\nnan,1\n", "scores.csv")
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: scores.csv, line 2: score = nan: must be a finite number
    """
    try:
        rows = csv.reader(io.StringIO(text), strict=True)
        header = [name.strip() for name in next(rows, [])]
        places = {}
        for name in _COLUMNS:
            if header.count(name) != 1:
                reason = f"must have one column {name!r} in its first line: {','.join(_COLUMNS)}"
                raise InvalidParameter("SCORES", path, reason)
            places[name] = header.index(name)
        scores, included = [], []
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            where = f"{path}, line {rows.line_num}"
            if len(row) != len(header):
                reason = f"must have {len(header)} values, as the first line has"
                raise InvalidParameter(where, ",".join(row), reason)
            scores.append(_score(where, row[places["score"]]))
            included.append(_included(where, row[places["included"]]))
    except csv.Error as error:
        raise InvalidParameter("SCORES", path, f"is not CSV: {error}") from None
    if not scores:
        raise InvalidParameter("SCORES", path, "has no canaries below its first line")
    return scores, included


def _score(where: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise InvalidParameter(f"{where}: score", text.strip(), "must be a finite number")
    return found


def _included(where: str, text: str) -> bool:
    found = _INCLUDED.get(text.strip().lower())
    if found is None:
        raise InvalidParameter(f"{where}: included", text.strip(), "must be 1 or 0 (true or false)")
    return found
