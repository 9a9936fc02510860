r"""Read canary scores: the columns ``score`` and ``included`` of a CSV file, or the arrays of these
names in an ``.npz`` file of numpy.
"""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from pathlib import Path
from typing import Final

import numpy as np

from dpcore.command.input_file import read_text, rows_of
from dpcore.errors import InvalidParameter

_COLUMNS: Final = ("score", "included")
_INCLUDED: Final = {"1": True, "true": True, "0": False, "false": False}
_ARRAYS: Final = ".npz"
_MOST: Final = 1 << 30


def read_scores(path: str) -> tuple[list[float], list[bool]]:
    r"""Read the scores and inclusions of a CSV or .npz file; "-" is standard input, as CSV.

    Further columns and arrays are left alone. Raises :class:`InvalidParameter` with the line of
    what is wrong.
    """
    if path.endswith(_ARRAYS):
        return _read_arrays(path)
    return parsed(read_text("SCORES", path, most=_MOST, stdin=True), path)


def _read_arrays(path: str) -> tuple[list[float], list[bool]]:
    try:
        with Path(path).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            found = {name: np.asarray(file[name]) for name in _COLUMNS if name in file.files}
    except OSError as error:
        raise InvalidParameter("SCORES", path, error.strerror or str(error)) from None
    except (ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error):
        raise InvalidParameter("SCORES", path, "is not an .npz file of numbers") from None
    shapes = {array.shape for array in found.values()}
    if len(found) != len(_COLUMNS) or len(shapes) != 1 or len(*shapes) != 1:
        reason = f"must hold two arrays of one length: {' and '.join(_COLUMNS)}"
        raise InvalidParameter("SCORES", path, reason)
    score, included = (found[name] for name in _COLUMNS)
    if not len(score):
        raise InvalidParameter("SCORES", path, "has no canaries")
    if score.dtype.kind not in "iuf" or not bool(np.isfinite(score).all()):
        raise InvalidParameter(f"{path}: score", score.dtype.name, "must be finite numbers")
    if included.dtype.kind not in "biuf" or not bool(np.isin(included, (0, 1)).all()):
        raise InvalidParameter(f"{path}: included", included.dtype.name, "must be 1 or 0")
    return score.astype(np.float64).tolist(), included.astype(np.bool_).tolist()


def parsed(text: str, path: str) -> tuple[list[float], list[bool]]:
    r"""The same, of the text of the file."""
    rows = rows_of("SCORES", path, io.StringIO(text))
    header = [name.strip() for name in next(rows, (0, []))[1]]
    for name in _COLUMNS:
        if header.count(name) != 1:
            reason = f"must have one column {name!r} in its first line: {','.join(_COLUMNS)}"
            raise InvalidParameter("SCORES", path, reason)
    score, inclusion = (header.index(name) for name in _COLUMNS)
    scores, included = [], []
    for line, row in rows:
        where = f"{path}, line {line}"
        if len(row) != len(header):
            reason = f"must have {len(header)} values, as the first line has"
            raise InvalidParameter(where, ",".join(row), reason)
        scores.append(_score(where, row[score]))
        included.append(_included(where, row[inclusion]))
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
