r"""The bound of the best event, known beforehand, on the mechanisms of the battery.

The laws of all twenty mechanisms are known: ``ratio(case, x)`` is the log-likelihood ratio of the
second dataset to the first, computed by formulas and one integral over shared noise (of a
threshold, or of the largest of several values). The best event is a half-line of this ratio (Neyman
and Pearson); :func:`oracle` is the 95% bound that this event gives at its expected counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit, logit

from benchmarks.auditing.battery import EPSILON, HASHES, Case, Floats, SparseVector, edges
from benchmarks.auditing.harness import ALPHA

__all__ = ["oracle", "ratio"]

LogLaw: TypeAlias = Callable[..., Floats]

_DRAWS: Final = 400_000
_NORMAL: Final = 1.6448536269514722
_CELL: Final = 1 / 16  # divides all data, so no density jumps inside a cell
_REACH: Final = 15.0  # the range of an integral, in scales: the mass beyond it is e^-15
_LARGEST: Final = 700.0
_FEWEST: Final = 100.0


def _integral(scale: float, center: float) -> tuple[Floats, Floats, Floats]:
    # The ends of cells, their midpoints, and the logarithms of their masses under Laplace noise.
    half = math.ceil(_REACH * scale / _CELL)
    ends: Floats = np.arange(-half, half + 1, dtype=np.float64) * _CELL + center
    middles: Floats = (ends[1:] + ends[:-1]) / 2
    weights: Floats = stats.laplace.logpdf(middles, center, scale)
    return ends, middles, weights


def _laplace(data: Any, x: NDArray[Any], *, scale: float, sums: bool = False) -> Floats:
    rows = x.reshape(len(x), -1)
    if sums:
        rows = np.diff(rows, prepend=0.0, axis=1)
    found: Floats = -np.abs(rows - np.asarray(data)[: rows.shape[1]]).sum(axis=1) / scale
    return found


def _bits(data: Any, x: NDArray[Any], *, one: float) -> Floats:
    # A bit is 1 with probability ``one`` if the value has it, and 1 - one otherwise.
    set_ = np.isin(np.arange(x.shape[1]), HASHES[int(data[0])])
    found: Floats = np.where((x == 1) == set_, math.log(one), math.log1p(-one)).sum(axis=1)
    return found


def _maximum(data: Any, x: NDArray[Any], *, noise: str, index: bool) -> Floats:
    law, scale = getattr(stats, "expon" if noise == "exponential" else noise), 2 / EPSILON
    if not index:
        values = np.asarray(x, dtype=np.float64)
        each = [
            law.logpdf(values, near, scale)
            + sum(law.logcdf(values, other, scale) for j, other in enumerate(data) if j != i)
            for i, near in enumerate(data)
        ]
        total: Floats = np.logaddexp.reduce(each, axis=0)
        return total
    middles = np.arange(-_REACH * scale, _REACH * scale, _CELL) + _CELL / 2
    below = [law.cdf(middles, near, scale) for near in data]
    masses = [
        (law.pdf(middles, near, scale) * np.prod(below[:i] + below[i + 1 :], axis=0)).sum()
        for i, near in enumerate(data)
    ]
    found: Floats = np.log(masses)[np.asarray(x, dtype=np.int64)]
    return found


def _geometric(data: Any, x: NDArray[Any]) -> Floats:
    ends = edges(int(data[0]))
    chances = [(b - a) / ends[-1] for a, b in zip([0, *ends], ends, strict=False)]
    found: Floats = np.log(chances)[np.asarray(x, dtype=np.int64)]
    return found


def _sparse_vector(data: Any, x: NDArray[Any], *, law: SparseVector) -> Floats:
    r"""The log-likelihoods of sparse-vector outputs, by one integral for each pattern of answers.

    Given the noisy threshold the answers are independent. The integral is cut off at the smallest
    released value if the compared values are released.
    """
    ends, middles, weight = _integral(law.threshold, law.t)
    above, ended = law.patterns(x)
    codes = (above + 2 * ended) @ 3 ** np.arange(x.shape[1])
    _, first, which = np.unique(codes, return_index=True, return_inverse=True)
    sure = partial(stats.laplace.logcdf, scale=law.query)
    under = [sure(middles - a) if law.query else _step(middles > a) for a in data]
    over = [sure(a - middles) if law.query else _step(middles <= a) for a in data]
    found = np.empty(len(x))
    for code, row in enumerate(first):
        rows = np.flatnonzero(which == code)
        said = np.flatnonzero(above[row])
        values = x[np.ix_(rows, said)].astype(np.float64)
        told = 0.0 * values.sum(axis=1)
        inside = weight + sum(under[i] for i in np.flatnonzero(~above[row] & ~ended[row]))
        if law.values == "same":
            told = _laplace([data[i] for i in said], values, scale=law.query)
        else:
            inside = inside + sum(over[i] for i in said)
        if law.values == "fresh":
            told = _laplace([data[i] for i in said], values, scale=law.fresh)
        cut = values.min(axis=1) if law.values == "same" and len(said) else ends[-1]
        most = float(inside.max())
        if most == -math.inf:
            found[rows] = -math.inf
            continue
        below = np.append(0.0, np.cumsum(np.exp(inside - most)))
        with np.errstate(divide="ignore"):
            found[rows] = told + most + np.log(np.interp(cut, ends, below))
    return found


def _step(holds: NDArray[np.bool_]) -> Floats:
    return np.where(holds, 0.0, -math.inf)


def _beside(data: Any, x: NDArray[Any], *, parts: tuple[SparseVector, ...]) -> Floats:
    width = len(data)
    each = (x[:, i * width : (i + 1) * width] for i in range(len(parts)))
    found: Floats = np.sum(
        [_sparse_vector(data, own, law=law) for own, law in zip(each, parts, strict=True)], axis=0
    )
    return found


_LAWS: Final[Mapping[str, LogLaw]] = {
    "laplace": _laplace,
    "prefix_sums": partial(_laplace, scale=1 / EPSILON, sums=True),
    "noisy_max": _maximum,
    "truncated_geometric": _geometric,
    "beside": _beside,
}


def _law(case: Case) -> LogLaw:
    run = case.run
    if isinstance(run, SparseVector):
        return partial(_sparse_vector, law=run)
    of: Any = run
    name, given = (of.func.__name__, of.keywords) if isinstance(run, partial) else (of.__name__, {})
    if name == "bloom":
        kept = 1.0 - given["f"] / 2
        return partial(_bits, one=0.45 + 0.1 * kept if given["again"] else kept)
    if name == "copies":
        count = given["of"]
        return lambda data, x: _laplace(list(data) * count, x, scale=given["scale"])
    return partial(_LAWS[name], **given) if given else _LAWS[name]


def ratio(case: Case, x: NDArray[Any]) -> Floats:
    r"""The log-likelihood ratio of the second dataset to the first, for each output.

    Its exponential has mean 1 on the first dataset:

    >>> from benchmarks.auditing.battery import BATTERY
    >>> (case,) = (case for case in BATTERY if case.name == "sparse-vectors-side-by-side")
    >>> outputs = case.run(case.pair[0], 20_000, np.random.default_rng(1))
    >>> abs(np.exp(ratio(case, outputs)).mean() - 1.0) < 0.003
    np.True_
    """
    law, (a, b) = _law(case), case.pair
    with np.errstate(invalid="ignore"):
        moved = law(b, x) - law(a, x)
    return np.clip(moved, -_LARGEST, _LARGEST)


def oracle(case: Case, runs: int, *, seed: int = 1) -> float:
    r"""The 95% bound of the best half-line of the true ratio at its expected counts.

    Outputs are drawn from both datasets. The probability of an event on either is the mean of a
    function of the ratio over all draws, which reduces the variance for rare events.
    """
    rng = np.random.default_rng(seed)
    drawn = np.concatenate([case.run(data, _DRAWS, rng) for data in case.pair])
    found = np.round(ratio(case, drawn), 9)
    in_b = expit(found)
    best = 0.0
    for right, order in ((in_b, np.argsort(-found)), (1.0 - in_b, np.argsort(found))):
        last = np.append(np.diff(found[order]) != 0, [True])
        hits, misses = (np.cumsum(side[order])[last] for side in (right, 1.0 - right))
        guesses = runs * (hits + misses) / len(found)
        known = guesses >= _FEWEST
        rate, guesses = (hits / (hits + misses))[known], guesses[known]
        low = rate - _NORMAL * np.sqrt(rate * (1.0 - rate) / guesses)
        low = np.minimum(low, ALPHA ** (1.0 / guesses))
        best = max(best, float(logit(np.clip(low, 0.5, 1.0)).max()))
    return round(best, 4)
