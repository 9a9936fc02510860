r"""Twenty mechanisms that claim epsilon = 0.1: the battery of DP-Sniper's paper, written anew.

Laws, parameters, pairs and published bounds are those of Bichsel, Steffen, Bogunovic and Vechev,
"DP-Sniper: Black-Box Discovery of Differential Privacy Violations using Classifiers" (IEEE S&P
2021) and of the public repository of its authors: mechanisms after Ding et al. (CCS 2018), Lyu, Su
and Li (VLDB 2017), Wang et al. (PLDI 2019), Erlingsson, Pihur and Korolova (CCS 2014), Balcer and
Vadhan (2018). Every mechanism is ``f(dataset, n, rng)`` and returns n outputs, one a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

__all__ = ["BATTERY", "EPSILON", "Case", "ratio_of"]

EPSILON: Final = 0.1
r"""What each of them claims."""

Floats: TypeAlias = NDArray[np.float64]
Law: TypeAlias = Callable[[Any, int, np.random.Generator], NDArray[Any]]

_BELOW: Final = -1000.0
_ENDED: Final = -2000.0


def laplace(data: Any, n: int, rng: np.random.Generator, *, scale: float) -> Floats:
    r"""Each entry with Laplace noise; one entry gives one float a run."""
    values = np.asarray(data, dtype=np.float64)
    noisy: Floats = values + rng.laplace(scale=scale, size=(n, len(values)))
    return noisy[:, 0] if len(values) == 1 else noisy


def copies(data: Any, n: int, rng: np.random.Generator, *, of: int, scale: float) -> Floats:
    r"""One number, released many times with noise of its own."""
    return laplace(list(data) * of, n, rng, scale=scale)


def prefix_sums(data: Any, n: int, rng: np.random.Generator) -> Floats:
    r"""Sums of the first entries, noise added to each entry once."""
    sums: Floats = np.cumsum(laplace(data, n, rng, scale=1 / EPSILON), axis=1)
    return sums


def noisy_max(
    data: Any, n: int, rng: np.random.Generator, *, noise: str, index: bool
) -> NDArray[Any]:
    r"""The place, or the value, of the largest entry after noise."""
    values = np.asarray(data, dtype=np.float64)
    noisy = values + getattr(rng, noise)(scale=2 / EPSILON, size=(n, len(values)))
    found: NDArray[Any] = noisy.argmax(axis=1) if index else noisy.max(axis=1)
    return found


def bloom(data: Any, n: int, rng: np.random.Generator, *, f: float, again: bool) -> Floats:
    r"""A value's bits in a Bloom filter of 20, each replaced by a coin with probability f; with
    ``again`` each is reported as 1 with probability .55 where it is 1, else .45.
    """
    bits = np.zeros(20)
    bits[_HASHES[int(data[0])]] = 1.0
    kept = np.where(rng.random((n, 20)) < f, rng.integers(0, 2, (n, 20)), bits)
    if not again:
        return kept
    return (rng.random((n, 20)) < np.where(kept == 1.0, 0.55, 0.45)).astype(np.float64)


# Where four hashes (MurmurHash3 with seeds 0 to 3) put the values 0 and 1 among 20 bits.
_HASHES: Final = ([0, 11, 18], [3, 10, 13])


def truncated_geometric(data: Any, n: int, rng: np.random.Generator) -> Floats:
    r"""GeoSample of Balcer and Vadhan on {0, ..., 5}, as floats; ``data`` holds the one count."""
    (count,), most, k = data, 5, math.ceil(math.log(2 / EPSILON))
    top, step = (2 ** (k + 1) + 1) * (2**k + 1) ** (most - 1), 2**k
    below = [step ** (count - z) * (step + 1) ** (most - (count - z)) for z in range(count)]
    above = [
        top - step ** (z - count + 1) * (step + 1) ** (most - 1 - (z - count))
        for z in range(count, most)
    ]
    drawn = rng.integers(1, top + 1, n)
    return np.searchsorted(np.array([*below, *above, top]), drawn).astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseVector:
    r"""The variants of Lyu, Su and Li as one: which noise, and what is said.

    ``threshold`` and ``query`` are scales (0: no noise); ``most`` answers above end it, None: all
    are answered. ``values`` releases noisy answers in place of "above": the compared ones ("same"),
    or fresh ones of scale ``fresh``.
    """

    threshold: float
    query: float
    most: int | None = 1
    values: str = ""
    fresh: float = 0.0
    t: float = 1.0

    def __call__(self, data: Any, n: int, rng: np.random.Generator) -> Floats:
        r"""One row a run: 0 below, 1 above, -1 after the end; with values see the class."""
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


def beside(data: Any, n: int, rng: np.random.Generator, *, parts: tuple[Law, ...]) -> Floats:
    r"""Several mechanisms on the same data, their outputs side by side."""
    return np.concatenate([part(data, n, rng) for part in parts], axis=1)


def of_laplace(
    x: NDArray[Any], *, pair: tuple[Any, Any], scale: float, sums: bool = False
) -> Floats:
    r"""The log-likelihood ratio of B to A where each entry has Laplace noise."""
    rows = x.reshape(len(x), -1)
    if sums:
        rows = np.diff(rows, prepend=0.0, axis=1)
    a, b = (np.asarray(side, dtype=np.float64) for side in pair)
    found: Floats = ((np.abs(rows - a) - np.abs(rows - b)) / scale).sum(axis=1)
    return found


def of_bits(x: NDArray[Any], *, one: float) -> Floats:
    r"""The same of bits that are 1 with probability ``one`` where the value has one, else less."""
    zero, other = (x[:, places].sum(axis=1) for places in _HASHES)
    found: Floats = 2.0 * math.log(one / (1.0 - one)) * (other - zero)
    return found


def of_maximum(x: NDArray[Any], *, pair: tuple[Any, Any], noise: str) -> Floats:
    r"""The same of the largest of entries that are all alike."""
    law, scale = getattr(stats, "expon" if noise == "exponential" else noise), 2 / EPSILON

    def log_density(side: Any) -> Floats:
        near = {"loc": side[0], "scale": scale}
        with np.errstate(divide="ignore"):
            found: Floats = law.logpdf(x, **near) + (len(side) - 1) * law.logcdf(x, **near)
        return np.clip(found, -700.0, None)

    a, b = pair
    return log_density(b) - log_density(a)


def counted(x: NDArray[Any], *, run: Law, pair: tuple[Any, Any]) -> Floats:
    r"""The same of few outputs, from a million runs a side of their own."""
    sides = [run(data, 1_000_000, np.random.default_rng([99, i])) for i, data in enumerate(pair)]
    rows = [each.reshape(len(each), -1).astype(np.int64) for each in (*sides, x)]
    powers = 3 ** np.arange(rows[0].shape[1])
    codes = [(each + 1) @ powers for each in rows]
    known, place = np.unique(np.concatenate(codes), return_inverse=True)
    cut = np.cumsum([len(each) for each in codes])[:-1]
    of_a, of_b, mine = np.split(place, cut)
    in_a, in_b = (np.bincount(side, minlength=len(known)) + 0.5 for side in (of_a, of_b))
    found: Floats = np.log(in_b / in_a)[mine]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    r"""A mechanism, the pair on which DP-Sniper's bound was largest, and that bound (95%).

    ``keeps``: whether it is epsilon-DP, but for its floats.
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


def ratio_of(case: Case) -> Callable[[NDArray[Any]], Floats] | None:
    r"""The log-likelihood ratio of the second dataset to the first; None where there is no formula
    and too many outputs to count.
    """
    laplaces: dict[str, dict[str, Any]] = {
        "laplace": {"scale": 10.0},
        "noisy-histogram": {"scale": 10.0},
        "noisy-histogram-scale-epsilon": {"scale": 0.1},
        "twenty-laplace": {"scale": 200.0},
        "prefix-sums": {"scale": 10.0, "sums": True},
    }
    match case.name:
        case name if name in laplaces:
            return partial(of_laplace, pair=case.pair, **laplaces[name])
        case "rappor":
            return partial(of_bits, one=0.5125)
        case "one-time-rappor":
            return partial(of_bits, one=0.525)
        case "noisy-max-value-laplace" | "noisy-max-value-exponential":
            return partial(of_maximum, pair=case.pair, noise=case.name.rpartition("-")[2])
        case "sparse-vector-3" | "sparse-vectors-side-by-side" | "numerical-sparse-vector":
            return None
    return partial(counted, run=case.run, pair=case.pair)
