r"""Outputs as scores for the baselines: how often those of each world pass a threshold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from audit.evidence.event import Floats, Integers
from audit.evidence.fixed import read_claim, read_level
from audit.outputs.reading import read, read_worlds
from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import round_down
from dpcore.numbers.parameter import RationalLike, integer

__all__ = ["Asked", "Counts", "Scores", "clopper_pearson_lower", "clopper_pearson_upper"]

_MOST_THRESHOLDS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    r"""delta, rounded up; the error probability alpha, rounded down; the seed of any coins."""

    delta: float
    alpha: float
    seed: int

    @classmethod
    def read(cls, delta: RationalLike, alpha: RationalLike, seed: int) -> Self:
        r"""Raises :class:`InvalidParameter` for what is out of range."""
        return cls(
            delta=read_claim(0, delta)[1],
            alpha=round_down(read_level("alpha", alpha)),
            seed=integer("seed", seed, at_least=0),
        )

    @property
    def coins(self) -> np.random.Generator:
        r"""Always the same."""
        return np.random.default_rng(self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    r"""How often an event came, at each of some thresholds.

    ``hits`` of ``runs`` in the world it points to, ``misses`` of ``others`` in the other world.
    """

    hits: Integers
    runs: int
    misses: Integers
    others: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    r"""Numbers in run order, and the world of each (True for B).

    Only their order is looked at, so what :meth:`read` makes of outputs are their ranks: exact,
    where outputs are no floats.
    """

    numbers: Floats
    worlds: NDArray[np.bool_]

    @classmethod
    def read(cls, outputs: object, worlds: object) -> Self:
        r"""Raises :class:`InvalidParameter` for outputs that are not finite numbers."""
        reading = read(outputs)
        truth = read_worlds(worlds, len(reading))
        if bool((reading.codes >= 0).any()):
            raise InvalidParameter("outputs", outputs, "must be finite numbers for this baseline")
        return cls(numbers=reading.numbers.unique()[2].astype(np.float64), worlds=truth)

    def part(self, chosen: Integers) -> Scores:
        r"""Some of the runs."""
        return Scores(numbers=self.numbers[chosen], worlds=self.worlds[chosen])

    def thresholds(self, most: int = _MOST_THRESHOLDS) -> Floats:
        r"""The distinct numbers, or ``most`` of their quantiles if there are more.

        >>> Scores(numbers=np.arange(9.0), worlds=np.zeros(9, bool)).thresholds(3).tolist()
        [0.0, 4.0, 8.0]
        """
        distinct = np.unique(self.numbers)
        if len(distinct) <= most:
            return distinct
        return np.unique(np.quantile(self.numbers, np.linspace(0, 1, most), method="inverted_cdf"))

    def counts(self, thresholds: Floats) -> Iterator[Counts]:
        r"""Of "<= t" pointing to A, "> t" to A, "<= t" to B and "> t" to B."""
        sides = [np.sort(self.numbers[self.worlds == world]) for world in (False, True)]
        below = [np.searchsorted(side, thresholds, side="right") for side in sides]
        runs = [len(side) for side in sides]
        inside = [below, [n - k for n, k in zip(runs, below, strict=True)]]
        for world in (0, 1):
            for k in inside:
                yield Counts(
                    hits=k[world], runs=runs[world], misses=k[1 - world], others=runs[1 - world]
                )


def clopper_pearson_lower(hits: Integers, runs: int, level: float) -> Floats:
    r"""Exceeds the probability of a hit with probability at most ``level`` (Clopper and Pearson
    1934).

    >>> clopper_pearson_lower(np.array([0, 10]), 10, 0.05).round(4).tolist()
    [0.0, 0.7411]
    """
    found: Floats = np.where(hits > 0, betaincinv(np.maximum(hits, 1), runs - hits + 1, level), 0.0)
    return found


def clopper_pearson_upper(hits: Integers, runs: int, level: float) -> Floats:
    r"""Is below the probability of a hit with probability at most ``level``.

    >>> clopper_pearson_upper(np.array([0, 10]), 10, 0.05).round(4).tolist()
    [0.2589, 1.0]
    """
    found: Floats = np.where(
        hits < runs, betaincinv(hits + 1, np.maximum(runs - hits, 1), 1.0 - level), 1.0
    )
    return found
