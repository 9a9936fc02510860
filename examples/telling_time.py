"""Two answers that are private, and a call whose time is not: the feature `time` sees it.

Whether a record that is asked for is among the records is answered by randomised response at
epsilon = 1. `found_early` stops looking at the first match, so that the time of a call tells where
the record stands; `looked_at_all` always looks at every record.

    dpcore audit examples/telling_time.py:found_early --claim epsilon=1 --feature time \
        --pair '{"first": 1, "others": 3000}' '{"first": 0, "others": 3000}' -n 2000
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def _records(dataset: dict[str, int]) -> list[int]:
    # One person who is asked for, or is not, and the others, who are not.
    return [dataset["first"], *[0] * dataset["others"]]


def _answer(truth: int, rng: np.random.Generator) -> int:
    return truth if rng.random() < math.exp(1) / (1 + math.exp(1)) else 1 - truth


def found_early(dataset: dict[str, int], rng: np.random.Generator) -> Any:
    """Leaves at the first match."""
    found = 0
    for record in _records(dataset):
        if record == 1:
            found = 1
            break
    return _answer(found, rng)


def looked_at_all(dataset: dict[str, int], rng: np.random.Generator) -> Any:
    """Takes as long whatever the records are."""
    found = 0
    for record in _records(dataset):
        found |= int(record == 1)
    return _answer(found, rng)
