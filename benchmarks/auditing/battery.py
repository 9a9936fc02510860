r"""Twenty mechanisms that claim epsilon = 0.1: the battery of DP-Sniper's paper, reimplemented.

Laws, parameters, pairs and published bounds are those of Bichsel, Steffen, Bogunovic and Vechev,
"DP-Sniper: Black-Box Discovery of Differential Privacy Violations using Classifiers" (IEEE S&P
2021) and of the public repository of its authors: mechanisms after Ding et al. (CCS 2018), Lyu, Su
and Li (VLDB 2017), Wang et al. (PLDI 2019), Erlingsson, Pihur and Korolova (CCS 2014), Balcer and
Vadhan (2018). Every mechanism is ``f(dataset, n, rng)`` and returns n outputs, one per row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BATTERY",
    "EPSILON",
    "HASHES",
    "Case",
    "Floats",
    "Law",
    "SparseVector",
    "edges",
]

EPSILON: Final = 0.1
r"""The claim of each mechanism."""

Floats: TypeAlias = NDArray[np.float64]
Law: TypeAlias = Callable[[Any, int, np.random.Generator], NDArray[Any]]

_BELOW: Final = -1000.0
_ENDED: Final = -2000.0


def laplace(data: Any, n: int, rng: np.random.Generator, *, scale: float) -> Floats:
    r"""Each entry with Laplace noise; a single entry gives one float per run."""
    values = np.asarray(data, dtype=np.float64)
    noisy: Floats = values + rng.laplace(scale=scale, size=(n, len(values)))
    return noisy[:, 0] if len(values) == 1 else noisy


def copies(data: Any, n: int, rng: np.random.Generator, *, of: int, scale: float) -> Floats:
    r"""One number, released many times with independent noise."""
    return laplace(list(data) * of, n, rng, scale=scale)


def prefix_sums(data: Any, n: int, rng: np.random.Generator) -> Floats:
    r"""Prefix sums of the entries, with noise added to each entry once."""
    sums: Floats = np.cumsum(laplace(data, n, rng, scale=1 / EPSILON), axis=1)
    return sums


def noisy_max(
    data: Any, n: int, rng: np.random.Generator, *, noise: str, index: bool
) -> NDArray[Any]:
    r"""The index, or the value, of the largest noisy entry."""
    values = np.asarray(data, dtype=np.float64)
    noisy = values + getattr(rng, noise)(scale=2 / EPSILON, size=(n, len(values)))
    found: NDArray[Any] = noisy.argmax(axis=1) if index else noisy.max(axis=1)
    return found


def bloom(data: Any, n: int, rng: np.random.Generator, *, f: float, again: bool) -> Floats:
    r"""The Bloom filter (20 bits) of a value, each bit replaced by a coin with probability f.

    With ``again`` each bit is reported as 1 with probability .55 if it is 1, and .45 otherwise.
    """
    bits = np.zeros(20)
    bits[HASHES[int(data[0])]] = 1.0
    kept = np.where(rng.random((n, 20)) < f, rng.integers(0, 2, (n, 20)), bits)
    if not again:
        return kept
    return (rng.random((n, 20)) < np.where(kept == 1.0, 0.55, 0.45)).astype(np.float64)


HASHES: Final = ([0, 11, 18], [3, 10, 13])
r"""The positions, among 20 bits, of four hashes (MurmurHash3, seeds 0 to 3) of 0 and of 1."""


def edges(count: int) -> list[int]:
    r"""The thresholds of GeoSample of Balcer and Vadhan on {0, ..., 5} for a ``count``.

    For a uniform integer from 1 to the last threshold, the output is the index of the first
    threshold that is at least this integer.
    """
    most, k = 5, math.ceil(math.log(2 / EPSILON))
    top, step = (2 ** (k + 1) + 1) * (2**k + 1) ** (most - 1), 2**k
    below = [step ** (count - z) * (step + 1) ** (most - (count - z)) for z in range(count)]
    above = [
        top - step ** (z - count + 1) * (step + 1) ** (most - 1 - (z - count))
        for z in range(count, most)
    ]
    return [*below, *above, top]


def truncated_geometric(data: Any, n: int, rng: np.random.Generator) -> Floats:
    r"""Outputs of GeoSample for a single count, as floats."""
    ends = edges(data[0])
    return np.searchsorted(np.array(ends), rng.integers(1, ends[-1] + 1, n)).astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseVector:
    r"""A sparse vector mechanism, in the variants of Lyu, Su and Li.

    ``threshold`` and ``query`` are noise scales (0: no noise). The mechanism stops after ``most``
    answers above; None means that it never stops. ``values`` releases noisy answers instead of
    "above": the compared ones ("same"), or fresh ones with scale ``fresh``.
    """

    threshold: float
    query: float
    most: int | None = 1
    values: str = ""
    fresh: float = 0.0
    t: float = 1.0

    def __call__(self, data: Any, n: int, rng: np.random.Generator) -> Floats:
        r"""One row per run: 0 below, 1 above (or the noisy answer), -1 after the end."""
        answers = np.asarray(data, dtype=np.float64)
        shape = (n, len(answers))
        noisy = answers + (rng.laplace(scale=self.query, size=shape) if self.query else 0.0)
        bar = rng.laplace(scale=self.threshold, size=(n, 1)) + self.t
        above = noisy >= bar
        if self.values == "same":
            said = np.where(above, noisy, _BELOW)
        elif self.values:
            said = np.where(above, answers + rng.laplace(scale=self.fresh, size=shape), 0.0)
        else:
            said = above.astype(np.float64)
        if self.most is None:
            return said
        before: NDArray[np.int64] = np.cumsum(above, axis=1) - above
        ended = {"same": _ENDED, "fresh": _BELOW}.get(self.values, -1.0)
        return np.where(before >= self.most, ended, said)

    def patterns(self, x: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        r"""Masks of the entries of outputs that are "above", and of those after the end."""
        if self.values == "same":
            return x > _BELOW, x == _ENDED
        if self.values:
            return (x != 0.0) & (x != _BELOW), x == _BELOW
        return x == 1.0, x == -1.0


def beside(data: Any, n: int, rng: np.random.Generator, *, parts: tuple[Law, ...]) -> Floats:
    r"""Run several mechanisms on the same data and concatenate their outputs."""
    return np.concatenate([part(data, n, rng) for part in parts], axis=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    r"""A mechanism, the pair with DP-Sniper's largest bound, and that bound.

    ``keeps`` states whether the mechanism is epsilon-DP apart from floating-point effects.
    """

    name: str
    run: Law
    pair: tuple[list[float], list[float]]
    published: float
    keeps: bool


_HALVES: Final = ([0.0] * 5 + [1.0] * 5, [1.0] * 5 + [0.0] * 5)
_SPREAD: Final = ([1.0] * 10, [2.0] * 5 + [0.0] * 5)
_FIVE: Final = ([1.0] * 5, [2.0] * 5)
_SIDE: Final = ([1.0] * 5, [0.0] + [2.0] * 4)
_BIT: Final = ([0.0], [1.0])

BATTERY: Final = (
    Case(name="laplace", run=partial(laplace, scale=10.0), pair=_BIT, published=0.0976, keeps=True),
    Case(
        name="truncated-geometric",
        run=truncated_geometric,
        pair=([2], [1]),
        published=0.1155,
        keeps=False,
    ),
    Case(
        name="noisy-histogram",
        run=partial(laplace, scale=10.0),
        pair=([1.0] * 5, [0.0] + [1.0] * 4),
        published=0.0977,
        keeps=True,
    ),
    Case(
        name="noisy-histogram-scale-epsilon",
        run=partial(laplace, scale=0.1),
        pair=([0.0] + [1.0] * 4, [1.0] * 5),
        published=4.6015,
        keeps=False,
    ),
    Case(
        name="noisy-max-index-laplace",
        run=partial(noisy_max, noise="laplace", index=True),
        pair=_SIDE,
        published=0.0925,
        keeps=True,
    ),
    Case(
        name="noisy-max-index-exponential",
        run=partial(noisy_max, noise="exponential", index=True),
        pair=_SIDE,
        published=0.0979,
        keeps=True,
    ),
    Case(
        name="noisy-max-value-laplace",
        run=partial(noisy_max, noise="laplace", index=False),
        pair=_FIVE,
        published=0.2488,
        keeps=False,
    ),
    Case(
        name="noisy-max-value-exponential",
        run=partial(noisy_max, noise="exponential", index=False),
        pair=_FIVE,
        published=0.3534,
        keeps=False,
    ),
    Case(
        name="sparse-vector-1",
        run=SparseVector(threshold=20, query=40, t=0.5),
        pair=_SPREAD,
        published=0.0858,
        keeps=True,
    ),
    Case(
        name="sparse-vector-2",
        run=SparseVector(threshold=20, query=40),
        pair=_HALVES,
        published=0.0852,
        keeps=True,
    ),
    Case(
        name="sparse-vector-3",
        run=SparseVector(threshold=20, query=20, values="same"),
        pair=_HALVES,
        published=0.1822,
        keeps=False,
    ),
    Case(
        name="sparse-vector-4",
        run=SparseVector(threshold=40, query=1 / 0.075),
        pair=_SPREAD,
        published=0.1696,
        keeps=False,
    ),
    Case(
        name="sparse-vector-5",
        run=SparseVector(threshold=20, query=0, most=None),
        pair=([0.0] + [2.0] * 9, [1.0] * 10),
        published=1.7610,
        keeps=False,
    ),
    Case(
        name="sparse-vector-6",
        run=SparseVector(threshold=20, query=20, most=None),
        pair=_HALVES,
        published=0.2698,
        keeps=False,
    ),
    Case(
        name="rappor",
        run=partial(bloom, f=0.75, again=True),
        pair=_BIT,
        published=0.3008,
        keeps=False,
    ),
    Case(
        name="one-time-rappor",
        run=partial(bloom, f=0.95, again=False),
        pair=_BIT,
        published=0.5999,
        keeps=False,
    ),
    Case(
        name="twenty-laplace",
        run=partial(copies, of=20, scale=200.0),
        pair=_BIT,
        published=0.0350,
        keeps=True,
    ),
    Case(
        name="sparse-vectors-side-by-side",
        run=partial(
            beside,
            parts=(
                SparseVector(threshold=20, query=40, most=2, values="same"),
                SparseVector(threshold=40, query=1 / 0.075, most=2),
            ),
        ),
        pair=_SPREAD,
        published=0.2616,
        keeps=False,
    ),
    Case(
        name="prefix-sums",
        run=prefix_sums,
        pair=([1.0] * 10, [0.0] * 10),
        published=0.5774,
        keeps=False,
    ),
    Case(
        name="numerical-sparse-vector",
        run=SparseVector(threshold=30, query=120, most=2, values="fresh", fresh=60),
        pair=([1.0] * 5 + [0.0] * 5, [0.0] * 5 + [1.0] * 5),
        published=0.0345,
        keeps=True,
    ),
)
r"""In the order of the paper's table."""
