r"""A linear form of standardised coordinates, by ridge regression of the dataset on them.

How strongly the weights are drawn together, and whether towards 0 or towards their common mean, is
chosen by how well each half of the runs predicts the other. Towards 0 and weakly is Fisher's linear
discriminant, which undoes correlated noise; towards 0 and strongly is the difference of the means;
towards the common mean and strongly is the sum of all coordinates, which takes no learning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from audit.learn.table import Floats

__all__ = ["Moments", "learn_linear"]

_RIDGES: Final = (1.0, 10.0, 100.0, 1e3, 1e5)
_RIDGE: Final = 1e-3
_LEAST: Final = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    r"""Sums over some runs: ``gram`` of products of columns, ``cross`` of columns and worlds."""

    gram: Floats
    cross: Floats
    runs: int

    @classmethod
    def of(cls, columns: Floats, y: Floats) -> Moments:
        r"""Of columns (runs, width) and centred worlds, both taken about their means."""
        moved = columns - columns.mean(axis=0)
        return cls(
            gram=(moved.T @ moved).astype(np.float64),
            cross=(moved.T @ y).astype(np.float64),
            runs=len(y),
        )

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            gram=self.gram + other.gram,
            cross=self.cross + other.cross,
            runs=self.runs + other.runs,
        )

    def correlation(self, slope: Floats) -> float:
        r"""Of a linear form with the worlds of these runs, but for a constant."""
        moves = float(slope @ self.gram @ slope) * max(self.runs, 1)
        return float(slope @ self.cross) / math.sqrt(max(moves, _LEAST))

    def slopes(self, ridge: float) -> tuple[Floats, Floats]:
        r"""The weights drawn towards 0, and those drawn towards their common mean."""
        width = len(self.cross)
        penalty = ridge * (_RIDGE + width / max(self.runs, 1)) * max(self.runs, 1)
        same = np.full(width, width**-0.5)
        system = self.gram + np.diag(np.full(width, penalty + _LEAST))
        to_zero, towards = np.linalg.solve(system, np.stack((self.cross, same), axis=1)).T
        # Sherman and Morrison: the same system with no penalty on the mean.
        left = max(1.0 - penalty * float(same @ towards), _LEAST)
        return to_zero, to_zero + towards * (penalty * float(same @ to_zero) / left)


def learn_linear(columns: Floats, y: Floats, fold: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    r"""The weights that all runs teach, and of each run what the other half's weights say of it.

    >>> rng = np.random.default_rng(1)
    >>> y = (rng.random(2000) < 0.5) - 0.5
    >>> columns = rng.normal(size=(2000, 50)) + 0.1 * y[:, None]
    >>> slope, _ = learn_linear(columns, y, np.arange(2000) % 2 == 0)
    >>> bool(slope.std() < 0.01 * slope.mean())  # all move alike
    True
    """
    halves = [Moments.of(columns[half], y[half]) for half in (~fold, fold)]
    tried = []
    for ridge in _RIDGES:
        for first, second in zip(*(half.slopes(ridge) for half in halves), strict=True):
            seen = halves[1].correlation(first) + halves[0].correlation(second)
            tried.append((seen, first, second))
    best = max(range(len(tried)), key=lambda i: tried[i][0])
    ridge, target = divmod(best, 2)
    crossed = np.zeros(len(y))
    for half, slope in zip((fold, ~fold), tried[best][1:], strict=True):
        crossed[half] = columns[half] @ slope
    return (halves[0] + halves[1]).slopes(_RIDGES[ridge])[target], crossed
