"""Two functions with private answers; the time of one of them is not private.

Both answer by randomised response at epsilon = 1 whether a record is in the dataset. `found_early`
stops at the first match, so the time of a call reveals the position of the record, and the feature
`time` detects it; `looked_at_all` always reads every record.

    dpcore audit examples/telling_time.py:found_early --claim epsilon=1 --feature time \
        --pair '{"first": 1, "others": 3000}' '{"first": 0, "others": 3000}' -n 2000
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def _records(dataset: dict[str, int]) -> list[int]:
    # The record of one person, which may match, and the records of the others, which do not.
    return [dataset["first"], *[0] * dataset["others"]]


def _answer(truth: int, rng: np.random.Generator) -> int:
    return truth if rng.random() < math.exp(1) / (1 + math.exp(1)) else 1 - truth


def found_early(dataset: dict[str, int], rng: np.random.Generator) -> Any:
    """Whether a record matches, by randomised response; the search stops at the first match."""
    found = 0
    for record in _records(dataset):
        if record == 1:
            found = 1
            break
    return _answer(found, rng)


def looked_at_all(dataset: dict[str, int], rng: np.random.Generator) -> Any:
    """Whether a record matches, by randomised response; the search reads every record."""
    found = 0
    for record in _records(dataset):
        found |= int(record == 1)
    return _answer(found, rng)
