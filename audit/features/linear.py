r"""A linear form of standardised coordinates, by ridge regression of the dataset on them.

The amount of shrinkage, and its target (0 or the common mean), are chosen by cross-validation on
the two halves of the runs. Weak shrinkage to 0 is Fisher's linear discriminant, which removes
correlated noise; strong shrinkage to 0 is the difference of the means; strong shrinkage to the
common mean is the sum of all coordinates, which requires no learning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from audit.outputs.rows import Floats

_RIDGES: Final = (1.0, 10.0, 100.0, 1e3, 1e5)
_RIDGE: Final = 1e-3
_STRETCH: Final = 16384
_LEAST: Final = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretches:
    r"""Columns that are computed for a slice of runs at a time, which saves memory: ``rows(part)``
    returns the rows of one slice.
    """

    runs: int
    width: int
    rows: Callable[[slice], Floats]

    @classmethod
    def of(cls, columns: Floats) -> Stretches:
        return cls(runs=len(columns), width=columns.shape[1], rows=lambda part: columns[part])

    def __iter__(self) -> Iterator[tuple[slice, Floats]]:
        for start in range(0, self.runs, _STRETCH):
            part = slice(start, min(start + _STRETCH, self.runs))
            yield part, self.rows(part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    r"""Sums over some runs: ``gram`` of products of columns, ``cross`` of products of columns and
    datasets. With fewer runs than columns, the centred ``columns`` are kept instead of ``gram``.
    """

    gram: Any
    columns: Floats | None
    cross: Floats
    runs: int

    @classmethod
    def of(cls, columns: Stretches, y: Floats, chosen: NDArray[np.bool_]) -> Moments:
        r"""The moments of the chosen rows: centred columns, and centred datasets ``y``."""
        runs = int(np.count_nonzero(chosen))
        if runs < columns.width:
            some = np.concatenate([rows[chosen[part]] for part, rows in columns])
            moved = some - some.mean(axis=0)
            return cls(gram=None, columns=moved, cross=moved.T @ y[chosen], runs=runs)
        total, cross = np.zeros(columns.width), np.zeros(columns.width)
        gram = np.zeros((columns.width, columns.width))
        for part, rows in columns:
            some = rows[chosen[part]]
            total += some.sum(axis=0)
            cross += some.T @ y[part][chosen[part]]
            gram += some.T @ some
        mean = total / runs
        gram -= runs * np.outer(mean, mean)
        return cls(gram=gram, columns=None, cross=cross - mean * y[chosen].sum(), runs=runs)

    def __add__(self, other: Moments) -> Moments:
        cross = self.cross + other.cross
        if self.columns is not None and other.columns is not None:
            both = np.concatenate((self.columns, other.columns))
            return Moments(gram=None, columns=both, cross=cross, runs=len(both))
        gram = self.products() + other.products()
        return Moments(gram=gram, columns=None, cross=cross, runs=self.runs + other.runs)

    def products(self) -> Floats:
        if self.columns is None:
            return np.asarray(self.gram)
        return self.columns.T @ self.columns

    def correlation(self, slope: Floats) -> float:
        r"""The correlation of a linear form with the datasets of these runs, up to a factor."""
        if self.columns is None:
            moves = float(slope @ self.gram @ slope)
        else:
            moves = float(((self.columns @ slope) ** 2).sum())
        return float(slope @ self.cross) / math.sqrt(max(moves * max(self.runs, 1), _LEAST))

    def slopes(self, ridge: float) -> tuple[Floats, Floats]:
        r"""The weights shrunk towards 0, and those shrunk towards their common mean."""
        width = len(self.cross)
        penalty = ridge * (_RIDGE + width / max(self.runs, 1)) * max(self.runs, 1)
        same = np.full(width, width**-0.5)
        drawn = np.full(width, penalty + _LEAST)
        right = np.stack((self.cross, same), axis=1)
        to_zero, towards = solve_ridge(self.gram, self.columns, drawn, right).T
        # Sherman-Morrison: the same system without a penalty on the mean.
        left = max(1.0 - penalty * float(same @ towards), _LEAST)
        return to_zero, to_zero + towards * (penalty * float(same @ to_zero) / left)


def solve_ridge(gram: Any, columns: Floats | None, penalty: Floats, right: Floats) -> Floats:
    r"""Solve (gram + diag(penalty)) x = right. If columns are given, gram is their Gram matrix, and
    the size of the system is the number of rows (Woodbury).
    """
    if columns is None:
        found: Floats = np.linalg.solve(gram + np.diag(penalty), right)
        return found
    share = right / (penalty if right.ndim == 1 else penalty[:, None])
    lighter = columns / penalty
    inner = lighter @ columns.T + np.eye(len(columns))
    return share - lighter.T @ np.linalg.solve(inner, columns @ share)


def learn_linear(columns: Stretches, y: Floats, fold: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    r"""Fit on all runs; return weights and cross-fitted scores."""
    halves = [Moments.of(columns, y, half) for half in (~fold, fold)]
    tried = []
    for ridge in _RIDGES:
        for first, second in zip(*(half.slopes(ridge) for half in halves), strict=True):
            seen = halves[1].correlation(first) + halves[0].correlation(second)
            tried.append((seen, first, second))
    best = max(range(len(tried)), key=lambda i: tried[i][0])
    ridge, target = divmod(best, 2)
    crossed = np.zeros(len(y))
    _, first, second = tried[best]
    for part, rows in columns:
        crossed[part] = np.where(fold[part], rows @ first, rows @ second)
    return (halves[0] + halves[1]).slopes(_RIDGES[ridge])[target], crossed
