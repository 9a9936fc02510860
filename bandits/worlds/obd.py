r"""Arms from the Open Bandit Dataset: logged clicks on the items of a fashion shop.

A row of its CSV is one impression, with columns ``item_id`` and ``click`` (0 or 1) among others.
Each item is an arm with binary rewards, whose mean is its logged click rate. Positions are pooled,
and so are users: a rate is that of the log, not of an item shown to everybody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Final

from bandits.worlds.environment import Bernoulli
from bandits.worlds.preset import FromFile, Preset
from dpcore.command.input_file import csv_rows
from dpcore.errors import InvalidParameter

__all__ = ["OBD", "obd_arms"]

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
    for item, click in _rows(path):
        shown[item] += 1
        clicked[item] += click
    if not shown:
        raise InvalidParameter("data", str(path), "holds no rows")
    if arms is not None and len(shown) != arms:
        raise InvalidParameter("arms", arms, f"must be {len(shown)}: so many items are in the file")
    return Bernoulli(means=[Fraction(clicked[item], shown[item]) for item in sorted(shown)])


def _rows(path: Path) -> Iterator[tuple[int, int]]:
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
