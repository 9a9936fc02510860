r"""Arms from tables: rewards of one's own, and logged clicks of the Open Bandit Dataset.

``own`` is a CSV whose columns are arms and whose rows are rewards in [0, 1]. Rewards are drawn with
replacement, each arm from its own column: what was seen together in a row is drawn apart. A first
row that holds no number at all names the arms.

``obd`` is a log of impressions on the items of a fashion shop, with columns ``item_id`` and
``click`` (0 or 1) among others. Each item is an arm with binary rewards, whose mean is its logged
click rate. Positions are pooled, and so are users: a rate is that of the log, not of an item shown
to everybody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Final

from bandits.worlds.cz import CZ_ALGORITHMS
from bandits.worlds.environment import Bernoulli, Table
from bandits.worlds.preset import FromFile, Preset
from dpcore.command.input_file import csv_rows
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import rational

__all__ = ["OBD", "OWN", "obd_arms", "table_arms"]


def table_arms(path: Path, arms: int | None = None) -> Table:
    r"""One arm a column, in the order of the file; values are exact decimals or fractions.

    Raises :class:`InvalidParameter` for what is no plain file, cannot be read or has no rewards, a
    row of another length than the first, a cell that is no number in [0, 1], and columns that are
    not as many as ``arms`` where that is given.
    """
    columns: list[list[Fraction]] = []
    for line, row in _rows(path):
        columns = columns or [[] for _ in row]
        for number, (column, cell) in enumerate(zip(columns, row, strict=True), start=1):
            value = _number(cell)
            if value is None or not 0 <= value <= 1:
                reason = f"line {line}, column {number}: {cell[:40]!a} is no reward in [0, 1]"
                raise InvalidParameter("data", str(path), reason)
            column.append(value)
    if not columns:
        raise InvalidParameter("data", str(path), "holds no row of rewards")
    if arms is not None and len(columns) != arms:
        reason = f"must be {len(columns)}: so many columns are in the file"
        raise InvalidParameter("arms", arms, reason)
    return Table(rewards=columns)


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    width = 0
    for line, row in csv_rows("data", path):
        names = not width and all(cell.strip() and _number(cell) is None for cell in row)
        width = width or len(row)
        if len(row) != width:
            reason = f"line {line} has {len(row)} cells, the first line {width}"
            raise InvalidParameter("data", str(path), reason)
        if not names:
            yield line, row


def _number(cell: str) -> Fraction | None:
    # NaN and infinity are refused as rewards, and not taken for the name of an arm.
    if cell.strip().lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return Fraction(-1)
    try:
        return rational("data", cell.strip())
    except InvalidParameter:
        return None


OWN: Final = Preset(
    name="own",
    sentence="an arm a column of your own table of rewards in [0, 1] (--rewards FILE)",
    source=FromFile(
        read=table_arms,
        wanted="--rewards FILE: a CSV whose columns are arms and whose rows are rewards in [0, 1]",
    ),
    algorithms=CZ_ALGORITHMS,
    epsilons=("0.5", "1"),
    horizon=10**5,
    arms=None,
)


_COLUMNS: Final = ("item_id", "click")
_CLICKS: Final = {"0": 0, "1": 1, "0.0": 0, "1.0": 1}


def obd_arms(path: Path, arms: int | None = None) -> Bernoulli:
    r"""One arm an item, in rising order of ``item_id``; means are click rates.

    Raises :class:`InvalidParameter` for what is no plain file, cannot be read or has no rows, a
    missing column, an item that is no whole number >= 0, a click that is neither 0 nor 1, and items
    that are not as many as ``arms`` where that is given.
    """
    shown: Counter[int] = Counter()
    clicked: Counter[int] = Counter()
    for item, click in _obd_rows(path):
        shown[item] += 1
        clicked[item] += click
    if not shown:
        raise InvalidParameter("data", str(path), "holds no rows")
    if arms is not None and len(shown) != arms:
        raise InvalidParameter("arms", arms, f"must be {len(shown)}: so many items are in the file")
    return Bernoulli(means=[Fraction(clicked[item], shown[item]) for item in sorted(shown)])


def _obd_rows(path: Path) -> Iterator[tuple[int, int]]:
    rows = csv_rows("data", path)
    _, header = next(rows, (0, []))
    missing = [name for name in _COLUMNS if name not in header]
    if missing:
        reason = f"has no column {missing[0]}: it must be a CSV of the Open Bandit Dataset"
        raise InvalidParameter("data", str(path), reason)
    item, click = (header.index(name) for name in _COLUMNS)
    for line, row in rows:
        try:
            yield _item(row[item]), _CLICKS[row[click]]
        except (ValueError, KeyError, IndexError):
            reason = f"line {line} holds no item number and click 0 or 1"
            raise InvalidParameter("data", str(path), reason) from None


def _item(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(text)
    return int(text)


OBD: Final = Preset(
    name="obd",
    sentence="an arm an item of the Open Bandit Dataset, rewards are clicks (--data FILE)",
    source=FromFile(
        read=obd_arms,
        wanted="--data FILE: a CSV of the Open Bandit Dataset, e.g. random/all/all.csv",
    ),
    algorithms=("sdp-ae", "vb-sdp-ae", "dist-dp-se", "se"),
    epsilons=("0.5", "1", "5"),
    horizon=10**6,
    arms=None,
)
