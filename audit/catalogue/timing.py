r"""A private answer that is given sooner or later: the time of a call tells the data.

Source: Haeberlen, Pierce and Narayan, "Differential Privacy Under Fire" (2011), on timing channels.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np

from audit.catalogue.entry import Entry, Layer, Twin
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import ball, narrow

__all__ = ["ENTRIES"]

_OTHERS: Final = 1000
_WHOLE: Final = 1000
_KEPT: Final = 731  # e/(e + 1) = 0.7310...


def answers(present: int, n: int, rng: np.random.Generator) -> Integers:
    r"""Whether somebody is among the records, kept with chance 0.731: ln 2.717..."""
    kept = rng.integers(_WHOLE, size=n) < _KEPT
    return np.where(kept, present, 1 - present).astype(np.int64)


def _records(present: int) -> list[int]:
    # Who is asked for, or is not, and before the others, who are not.
    return [present, *[0] * _OTHERS]


def found_early(present: int, rng: np.random.Generator) -> int:
    r"""Leaves at the first match, after one comparison or a thousand."""
    found = 0
    for record in _records(present):
        if record == 1:
            found = 1
            break
    return int(answers(found, 1, rng)[0])


def looked_at_all(present: int, rng: np.random.Generator) -> int:
    r"""Compares every record, whatever it finds."""
    found = 0
    for record in _records(present):
        found |= record
    return int(answers(found, 1, rng)[0])


ENTRIES: Final = (
    Entry(
        name="found-early",
        number=51,
        sentence="A search ends at the first match: its answer is private, and the time of a call "
        "tells what it hides (--feature time).",
        source="Haeberlen, Pierce and Narayan 2011, on timing channels; a return within a loop",
        run=answers,
        call=found_early,
        true_epsilon=narrow(lambda: ball(Fraction(_KEPT, _WHOLE - _KEPT)).log(), 64),
        runs=1000,
        layer=Layer.TIME,
        twin=Twin(name="looked-at-all", run=answers, call=looked_at_all),
    ),
)
