r"""Functions that all rows share: parallel repeats, mechanisms at the boundary, exact bounds.

Runs are counted over both datasets together. A repeat depends only on its number, so the results
do not depend on the number of processes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from audit.broken_mechanisms import Subject
from audit.outputs.output_parser import Outputs, draw_worlds, interleave
from dpcore.numbers.clopper_pearson import lower_end, upper_end

__all__ = [
    "ALPHA",
    "BOUNDARY",
    "LAPLACE",
    "Effort",
    "Row",
    "at_least",
    "at_most",
    "drawn",
    "laplace",
    "share",
    "timed",
]

ALPHA: Final = 0.05
_ROUND: Final = 4

Worlds: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    r"""One row of the results.

    ``to_reach`` describes the goal that ``reached`` refers to; None if there is none. ``repeats``
    is the number of repeats, and ``seed`` is the first word of every repeat's seed.
    """

    what: str
    value: dict[str, Any]
    to_reach: str | None = None
    reached: bool | None = None
    repeats: int = 1
    seed: int = 0

    def to_json(self, seconds: float) -> dict[str, Any]:
        r"""The fields by name, and the seconds."""
        return {
            "what": self.what,
            "value": self.value,
            "to_reach": self.to_reach,
            "reached": self.reached,
            "seconds": round(seconds, 2),
            "repeats": self.repeats,
            "seed": self.seed,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    r"""The number of repeats and processes, and the interpreter of the peer.

    ``only`` are the names of the mechanisms to measure, if not all of a section.
    """

    parallel: Parallel
    jobs: int
    quick: bool
    peer_python: str | None = None
    only: tuple[str, ...] = ()

    def count(self, quick: int, full: int) -> int:
        r"""Return the first number of repeats for a quick run, otherwise the second."""
        return quick if self.quick else full

    def verdict(self, reached: bool) -> bool | None:  # noqa: FBT001 - a value, and no switch
        r"""Return ``reached`` if there were enough repeats; a quick run decides nothing."""
        return None if self.quick else reached

    def repeat(self, work: Callable[[int], Any], count: int, *, start: int = 0) -> list[Any]:
        r"""Return ``work(i)`` for ``count`` numbers i from ``start`` on, in order."""
        return list(self.parallel(delayed(work)(i) for i in range(start, start + count)))

    def batches(self, work: Callable[[range], list[Any]], count: int) -> list[Any]:
        r"""Apply ``work`` to parts of the first ``count`` numbers and join the results in order."""
        cut = np.linspace(0, count, min(count, 2 * self.jobs) + 1).astype(int).tolist()
        parts = [range(a, b) for a, b in pairwise(cut)]
        return [found for part in self.parallel(delayed(work)(p) for p in parts) for found in part]


def at_most(hits: int, repeats: int) -> float:
    r"""Upper 95% bound on a rate.

    >>> round(at_most(0, 59), 4), at_most(3, 3)
    (0.0495, 1.0)
    """
    return float(upper_end(hits, repeats, 0.05))


def at_least(hits: int, repeats: int) -> float:
    r"""Lower 95% bound on a rate.

    >>> at_least(0, 3), round(at_least(59, 59), 4)
    (0.0, 0.9505)
    """
    return float(lower_end(hits, repeats, 0.05))


def share(hits: int, repeats: int) -> dict[str, Any]:
    r"""A rate with its exact one-sided 95% bounds.

    >>> share(59, 59)
    {'hits': 59, 'rate': 1.0, 'at_least': 0.9505, 'at_most': 1.0}
    """
    return {
        "hits": hits,
        "rate": round(hits / repeats, _ROUND),
        "at_least": round(at_least(hits, repeats), _ROUND),
        "at_most": round(at_most(hits, repeats), _ROUND),
    }


def drawn(subject: Subject, runs: int, rng: np.random.Generator) -> tuple[Outputs, Worlds]:
    r"""Outputs of a mechanism on its pair, in run order, and the dataset of each run."""
    worlds = draw_worlds(runs, rng)
    in_b = int(np.count_nonzero(worlds))
    sides = (
        subject.run(subject.pair[0], runs - in_b, rng),
        subject.run(subject.pair[1], in_b, rng),
    )
    return interleave(*sides, worlds, rng), worlds


def laplace(value: int, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    r"""Discrete Laplace noise of scale 1 by numpy: exactly 1-DP up to floating-point errors."""
    p = -math.expm1(-1)
    return value + rng.geometric(p, n) - rng.geometric(p, n)


def response(value: int, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    r"""Randomised response at exactly epsilon = 1: every output is at the boundary."""
    return np.where(rng.random(n) < 1 / (1 + math.exp(-1)), value, 1 - value)


def revealing(value: int, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    r"""Randomised response that with probability 0.05 reveals the bit: exactly (1, 0.05)-DP."""
    return np.where(rng.random(n) < 0.05, 2 + value, response(value, n, rng))


LAPLACE: Final = Subject(
    name="discrete Laplace, scale 1", run=laplace, pair=(0, 1), epsilon=Fraction(1)
)
r"""Every output is at the boundary of the claim, in one of the two directions."""

BOUNDARY: Final = (
    Subject(name="randomised response, epsilon 1", run=response, pair=(0, 1), epsilon=Fraction(1)),
    LAPLACE,
    Subject(
        name="randomised response, 1 run in 20 revealed",
        run=revealing,
        pair=(0, 1),
        epsilon=Fraction(1),
        delta=Fraction(1, 20),
    ),
)
r"""Mechanisms exactly at the boundary of their claims."""


def timed(rows: Iterator[Row]) -> Iterator[tuple[Row, float]]:
    r"""Yield each row with the seconds that it took."""
    start = time.perf_counter()
    for row in rows:
        yield row, time.perf_counter() - start
        start = time.perf_counter()
