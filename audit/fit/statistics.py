r"""Test statistics for goodness of fit: counts of draws in cells, p-values, and an e-process.

The cells are intervals of integers, and depend on the law and the number of draws, but not on the
drawn values. The probability of every cell lies between two floats, which are computed from the
law's float functions and their proven error. Every test uses the bound that makes rejection harder.

If the number of draws is fixed beforehand, five p-values are combined. A sequential test uses a
wealth that starts at 1 and is a nonnegative supermartingale if the draws follow the law. So the
test may stop after any draw. The wealth is a mixture, with fixed weights, of likelihood ratios of
fixed alternatives. The alternatives are the law tilted along a score of the cells, and Polya urns
for the counts of all cells, of residues, of each cell and of each half-line. Statements and proofs:
``docs/proofs/exact_audits.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, logsumexp, rel_entr, xlogy

from audit.claims import log_bar
from audit.formats.result import fact
from dpcore.errors import PrecisionExhausted
from dpcore.noise import FLOAT_ERROR, Noise

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

_MOST: Final = 256
_FEWEST_EXPECTED: Final = 5
# The far tails beyond these quantiles are separate cells: a single draw there is evidence.
_FAR: Final = 2.0**-50
_MODULI: Final = (2, 3, 5)
# The relative error of a difference of two float values, from both errors and from rounding.
_ERROR: Final = 4 * FLOAT_ERROR
# An absolute error, because the float functions have no proven relative error below 1e-300.
_ADDED: Final = 4e-300
_INT64: Final = np.iinfo(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellCounts:
    r"""The numbers of draws in each cell (``counts``) and in each residue class of each modulus.

    ``least`` and ``most`` are pairs: the smallest and the largest draw, each with its count.
    """

    counts: Integers
    residues: tuple[Integers, ...]
    least: tuple[int, int]
    most: tuple[int, int]

    @property
    def draws(self) -> int:
        return int(self.counts.sum())

    def plus(self, other: CellCounts) -> CellCounts:
        least, most = min(self.least[0], other.least[0]), max(self.most[0], other.most[0])
        return CellCounts(
            counts=self.counts + other.counts,
            residues=tuple(a + b for a, b in zip(self.residues, other.residues, strict=True)),
            least=(least, sum(n for x, n in (self.least, other.least) if x == least)),
            most=(most, sum(n for x, n in (self.most, other.most) if x == most)),
        )


# Compared by identity, because arrays have no single truth value and no hash.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FitCells:
    r"""A partition of the integers into intervals (cells), with bounds on their probabilities.

    - ``edges``: the first value of each cell except the first cell, which is unbounded below;
    - ``lower``, ``upper``: bounds on the probability of each cell under the law;
    - ``nominal``: a probability between the bounds for each cell, which defines the nominal law;
    - ``scores``: the position, the distance from the mean, and its square, as functions that are
      constant on each cell and have mean 0 and variance 1 under the nominal law;
    - ``spread``: the standard deviation of the distance from the mean, divided by its expectation;
    - ``moduli``, ``slack``: P(X = r mod m) is within ``slack`` of 1/m for each of the ``moduli`` m,
      each residue r, and a draw X.
    """

    edges: Integers
    lower: Floats
    upper: Floats
    nominal: Floats
    scores: Floats
    spread: float
    moduli: tuple[int, ...]
    slack: float

    @classmethod
    def of(cls, noise: Noise, draws: int) -> Self:
        edges = _cut(noise, draws)
        lower, nominal, upper = _masses(noise, edges)
        wide = bool(np.any(np.diff(edges[1:-1]) > 1)) if len(edges) > 3 else False
        residual = wide and noise.log_concave
        scores, spread = _scores(noise, edges, nominal)
        return cls(
            edges=edges,
            lower=lower,
            upper=upper,
            nominal=nominal,
            scores=scores,
            spread=spread,
            moduli=_MODULI if residual else (),
            slack=_largest_mass(noise) if residual else 0.0,
        )

    def __len__(self) -> int:
        return len(self.nominal)

    @property
    def gap(self) -> float:
        r"""An upper bound on the total variation distance of ``nominal`` from the claimed law."""
        return float(np.sum(self.upper - self.lower)) * (1 + _ERROR)

    def count(self, draws: Integers) -> CellCounts:
        places = np.searchsorted(self.edges, draws, side="right")
        least, most = int(draws.min()), int(draws.max())
        return CellCounts(
            counts=np.bincount(places, minlength=len(self)).astype(np.int64),
            residues=tuple(
                np.bincount(draws % m, minlength=m).astype(np.int64) for m in self.moduli
            ),
            least=(least, int(np.count_nonzero(draws == least))),
            most=(most, int(np.count_nonzero(draws == most))),
        )

    def residue(self, modulus: int) -> tuple[float, float]:
        r"""Bounds on P(X = r mod ``modulus``) for a draw X, which hold for every residue r."""
        lower = (1 / modulus - self.slack) * (1 - _ERROR)
        return max(0.0, lower), min(1.0, (1 / modulus + self.slack) * (1 + _ERROR))

    def words(self, cell: int, last: int | None = None) -> str:
        r"""Describe the values in a cell, or in the cells from ``cell`` to ``last``."""
        last = cell if last is None else last
        if cell == 0 and last == len(self) - 1:
            return "any x"
        if cell == 0:
            return f"x <= {self.edges[last] - 1}"
        if last == len(self) - 1:
            return f"x >= {self.edges[cell - 1]}"
        low, high = int(self.edges[cell - 1]), int(self.edges[last]) - 1
        return f"x = {low}" if low == high else f"{low} <= x <= {high}"

    def impossible(self, noise: Noise, seen: CellCounts) -> tuple[str, int] | None:
        r"""An event that occurred although the law excludes it, and its count; otherwise None."""
        least, most = seen.least, seen.most
        if least[0] < self.edges[0] and _is_zero(noise, least[0], below=True):
            return f"x <= {least[0]}", least[1]
        if most[0] >= self.edges[-1] and _is_zero(noise, most[0], below=False):
            return f"x >= {most[0]}", most[1]
        return None


@lru_cache(maxsize=64)
def cells_of(noise: Noise, runs: int) -> FitCells:
    r"""The same as :meth:`FitCells.of`, cached."""
    return FitCells.of(noise, runs)


def _is_zero(noise: Noise, x: int, *, below: bool) -> bool:
    # An enclosure with upper bound 0 is a proof; a failed enclosure is not.
    try:
        found = noise.enclose_cdf(x, 64) if below else noise.enclose_sf(x - 1, 64)
    except PrecisionExhausted:
        return False
    return found.upper == 0


def _cut(noise: Noise, draws: int) -> Integers:
    tail = min(max(_FEWEST_EXPECTED / draws, 4 * _FAR), 0.25)
    ends = np.asarray(noise.quantile([_FAR, tail, 1 - tail, 1 - _FAR]))
    far_low, low, high, far_high = (int(x) for x in ends)
    if high - low < _MOST:
        inner = np.arange(low, high + 2)
    else:
        # Cells of equal mass, and in the tails cells whose masses halve towards the ends.
        halves = tail * 2.0 ** np.arange(max(0, int(np.log2(1 / _MOST / tail))) + 1)
        even = np.arange(1, _MOST) / _MOST
        levels = np.unique(np.concatenate((halves, even, 1 - halves)))
        inner = np.unique(np.concatenate((noise.quantile(levels), [low, high + 1])))
    edges = np.concatenate(([far_low], _merged(noise, inner, draws), [far_high + 1]))
    return np.unique(edges[edges > _INT64.min]).astype(np.int64)


def _merged(noise: Noise, edges: Integers, draws: int) -> list[int]:
    # Merge cells from the left until each has enough expected draws; never merge with a tail.
    _, nominal, _ = _masses(noise, edges)
    enough = _FEWEST_EXPECTED * (1 - 2.0**-10)
    kept, expected = [int(edges[0])], 0.0
    for end, mass in zip(edges[1:].tolist(), nominal[1:-1].tolist(), strict=True):
        expected += draws * mass
        if expected >= enough:
            kept.append(end)
            expected = 0.0
    if expected and len(kept) > 1:
        kept.pop()
    return kept if kept[-1] == edges[-1] else [*kept, int(edges[-1])]


def _masses(noise: Noise, edges: Integers) -> tuple[Floats, Floats, Floats]:
    # Differences of the distribution function or of the survival function (the smaller of the two),
    # or the probability mass if a cell is a single value.
    below, above = noise.cdf(edges - 1), noise.sf(edges - 1)
    left, right = np.concatenate(([0.0], below)), np.concatenate((above, [0.0]))
    from_left = np.concatenate((below, [1.0])) - left
    from_right = np.concatenate(([1.0], above)) - right
    use_left = np.concatenate((below, [1.0])) <= 0.5
    mass = np.where(use_left, from_left, from_right)
    error = np.where(use_left, np.append(below, 1.0), np.append(1.0, above)) * _ERROR
    single = 1 + np.flatnonzero(np.diff(edges) == 1)
    if len(single):
        mass[single] = noise.pmf(edges[single - 1])
        error[single] = mass[single] * _ERROR
    mass = np.maximum(mass, 0.0)
    upper = np.minimum(mass + error + _ADDED, 1.0)
    return np.maximum(mass - error - _ADDED, 0.0), np.minimum(mass, 1.0), upper


def _scores(noise: Noise, edges: Integers, nominal: Floats) -> tuple[Floats, float]:
    # Any fixed numbers are valid scores. A tail is represented by its value nearest to the centre.
    mean = noise.mean
    centre = float(mean) if isinstance(mean, Fraction) else mean.lower_float
    starts = edges.astype(np.float64)
    middle = (starts[:-1] + starts[1:] - 1) / 2
    values = np.concatenate(([starts[0] - 1], middle, [starts[-1]])) - centre
    mass = nominal / nominal.sum()
    distance = np.abs(values)
    rows = []
    for score in (values, distance, values**2):
        centred = score - mass @ score
        size = math.sqrt(float(mass @ centred**2))
        if size > 0:
            rows.append(centred / size)
    typical = float(mass @ distance)
    variance = float(mass @ (distance - typical) ** 2)
    spread = math.sqrt(variance) / typical if typical > 0 and variance > 0 else math.inf
    return np.array(rows).reshape(len(rows), len(mass)), spread


def _largest_mass(noise: Noise) -> float:
    # Bobkov, Marsiglietti and Melbourne 2022, Theorem 1.1: no mass exceeds 2/sqrt(1 + 4 Var) for a
    # log-concave law on the integers.
    variance = noise.variance
    least = float(variance) if isinstance(variance, Fraction) else variance.lower_float
    return 2 / math.sqrt(1 + 4 * least) * (1 + _ERROR)


WEIGHTS: Final = {
    "directed": 0.5,
    "omnibus": 0.25,
    "tilted": 0.1,
    "cells": 0.1,
    "residues": 0.05,
}
_SIMULATIONS: Final = 1999
_LEAST: Final = 1e-300
# Statistics this close count as ties, which make the p-value larger.
_TIE: Final = 1e-9
# A bound on the relative error of binomial tails, and of sums of logarithms over all draws.
_ROUNDING: Final = 2.0**-40


def fit_p_values(cells: FitCells, seen: CellCounts, rng: np.random.Generator) -> dict[str, float]:
    r"""The p-value of each test, valid for all laws within the bounds of the cells."""
    return {
        **_calibrated(cells, seen.counts, rng),
        "tilted": _tilted(cells, seen.counts),
        "cells": _by_cell(cells, seen),
        "residues": _by_residue(cells, seen),
    }


def joined(found: dict[str, float]) -> float:
    r"""The combined p-value min(1, min_i p_i / w_i) of tests with p-values p_i and weights w_i."""
    return min(1.0, *(p / WEIGHTS[name] for name, p in found.items()))


def _calibrated(cells: FitCells, counts: Integers, rng: np.random.Generator) -> dict[str, float]:
    draws = int(counts.sum())
    mass = cells.nominal / cells.nominal.sum()
    tables = np.vstack((counts, rng.multinomial(draws, mass, size=_SIMULATIONS)))
    floored = np.maximum(mass, _LEAST)
    found = {
        "directed": np.max(np.abs(tables @ cells.scores.T), axis=1, initial=0.0),
        "omnibus": xlogy(tables, tables / (draws * floored)).sum(axis=1),
    }
    # Per draw, the total variation distance of the simulated from the claimed law is at most gap.
    slack = draws * cells.gap
    return {name: min(1.0, _rank(values) + slack) for name, values in found.items()}


def _rank(values: Floats) -> float:
    # The fraction of values at least as large as the first one, the value for the data.
    own = values[0]
    if np.isnan(own):
        return 1.0  # without a score there is no evidence
    return float(np.count_nonzero(values >= own - _TIE * (1 + abs(own)))) / len(values)


def _tilted(cells: FitCells, counts: Integers) -> float:
    # P(T >= t) <= inf over theta > 0 of e^(-theta t) E[e^(theta score)]^n, in each direction.
    draws = int(counts.sum())
    best, tests = 1.0, 2 * len(cells.scores)
    for score in (*cells.scores, *-cells.scores):
        gained = float(counts @ score)
        if gained > 0:
            best = min(best, tests * _chernoff(score, cells.upper, gained, draws))
    return best


def _chernoff(score: Floats, upper: Floats, gained: float, draws: int) -> float:
    def log_bound(theta: float) -> float:
        return float(draws * logsumexp(theta * score, b=upper) - theta * gained)

    # Any theta gives a valid bound, so the search may be approximate. For small deviations the best
    # theta is the mean deviation per draw, because a score has variance 1.
    ends = (0.0, 20 * gained / draws)
    found = minimize_scalar(log_bound, bounds=ends, method="bounded", options={"xatol": 1e-9})
    theta = float(found.x)
    size = draws * (1 + theta * float(np.abs(score).max()))
    return min(1.0, math.exp(min(0.0, log_bound(theta) + _ROUNDING * size)))


def _by_cell(cells: FitCells, seen: CellCounts) -> float:
    return most_extreme(seen.draws, *_events(cells, seen))[1]


def _events(cells: FitCells, seen: CellCounts) -> tuple[Integers, Floats, Floats]:
    # The counts of cells and half-lines, and bounds on their probabilities.
    counts, lower, upper = map(_with_tails, (seen.counts, cells.lower, cells.upper))
    return counts, lower * (1 - _ERROR), np.minimum(upper * (1 + _ERROR), 1.0)


def _with_tails(cells: NDArray[Any]) -> NDArray[Any]:
    # The values of all cells, and of the half-lines that consist of at most half of the cells.
    most = len(cells) // 2
    return np.concatenate((cells, np.cumsum(cells)[1:most], np.cumsum(cells[::-1])[1:most]))


def most_extreme(
    draws: int, counts: Integers, lower: Floats | float, upper: Floats | float
) -> tuple[int, float]:
    r"""Find the least probable of several counts.

    Returns the index of this count, and a p-value for all counts together (Bonferroni). Under the
    law, each count is binomial, with ``draws`` trials and a probability between ``lower`` and
    ``upper``.
    """
    # Upper bounds on both tails: the lower tail is largest for the lower probability, the upper
    # tail for the upper probability. The p-value has a Bonferroni correction over all counts.
    few = stats.binom.cdf(counts, draws, lower)
    many = stats.binom.sf(counts - 1, draws, upper)
    both = 2 * np.minimum(few, many) * (1 + _ROUNDING)
    return int(both.argmin()), min(1.0, float(both.min()) * len(counts))


def _by_residue(cells: FitCells, seen: CellCounts) -> float:
    best = 1.0
    for modulus, counts in zip(cells.moduli, seen.residues, strict=True):
        _, p_value = most_extreme(seen.draws, counts, *cells.residue(modulus))
        best = min(best, len(cells.moduli) * p_value)
    return best


_TILTED_WEIGHT: Final = 0.5
_URN_WEIGHT: Final = 0.3
_CELLS_WEIGHT: Final = 0.1
_RESIDUE_WEIGHT: Final = 0.1
# The shifts of the tilted laws, in standard deviations of the score per draw.
_TILTS: Final = tuple(2.0**-k for k in range(1, 12))
# The total initial counts of the urns; each draw adds 1.
_URNS: Final = tuple(4.0**k for k in range(11))
_COINS: Final = _URNS[::5]


def log_wealth(cells: FitCells, seen: CellCounts) -> float:
    r"""The logarithm of the wealth of the sequential test after these draws, rounded down."""
    return float(logsumexp([value for _, value in log_wealths(cells, seen)]))


def log_wealths(cells: FitCells, seen: CellCounts) -> Iterator[tuple[str, float]]:
    r"""The terms of the sequential test's wealth: family names and weighted logarithms."""
    tilted = _tilted_wealths(cells, seen)
    for value in tilted.tolist():
        yield "tilted", value + math.log(_TILTED_WEIGHT / len(tilted))
    for size in _URNS:
        value = float(_urn(seen.counts, size * np.maximum(cells.nominal, _LEAST), cells.upper))
        yield "urn", value + math.log(_URN_WEIGHT / len(_URNS))
    coins = np.concatenate([_coins(cells, seen, size) for size in _COINS])
    yield "cells", float(logsumexp(coins)) + math.log(_CELLS_WEIGHT / len(coins))
    for modulus, counts in zip(cells.moduli, seen.residues, strict=True):
        above = np.full(modulus, cells.residue(modulus)[1])
        value = float(_urn(counts, np.ones(modulus), above))
        yield "residues", value + math.log(_RESIDUE_WEIGHT / len(cells.moduli))


def _tilted_wealths(cells: FitCells, seen: CellCounts) -> Floats:
    # Each draw multiplies the wealth by e^(tilt score) and divides it by an upper bound on the mean
    # of e^(tilt score) under the law.
    exponents, norms = _tilts(cells)
    gained = exponents @ seen.counts
    size = np.abs(exponents) @ seen.counts + seen.draws * (1 + np.abs(norms))
    found: Floats = gained - seen.draws * norms - _ROUNDING * size
    return found


@lru_cache(maxsize=16)
def _tilts(cells: FitCells) -> tuple[Floats, Floats]:
    both = np.array([sign * tilt for tilt in _TILTS for sign in (1, -1)])
    exponents = (both[:, None, None] * cells.scores).reshape(-1, len(cells))
    norms: Floats = logsumexp(exponents, b=cells.upper, axis=1)
    return exponents, norms


def _coins(cells: FitCells, seen: CellCounts, size: float) -> Floats:
    # For each cell and half-line, an urn with two colours: draws in this set, and all other draws.
    counts, lower, upper = _events(cells, seen)
    both = np.stack((counts, seen.draws - counts), axis=1)
    above = np.stack((upper, 1 - lower), axis=1)
    return _urn(both, size * np.maximum(above, _LEAST), above)


def _urn(counts: Integers, opening: Floats, above: Floats) -> Floats:
    # The log-probability of draws with these counts from a Polya urn with the initial counts
    # ``opening`` (each draw adds 1 to its cell), minus an upper bound on their log-probability
    # under the law; cells are on the last axis.
    total, draws = opening.sum(axis=-1), counts.sum(axis=-1)
    high, low, chance = gammaln(opening + counts), gammaln(opening), xlogy(counts, above)
    after, before = gammaln(total + draws), gammaln(total)
    gained = np.where(counts > 0, high - low, 0.0)
    size = np.where(counts > 0, np.abs(high) + np.abs(low) + np.abs(chance), 0.0).sum(axis=-1)
    size += np.abs(after) + np.abs(before) + draws
    found: Floats = gained.sum(axis=-1) - (after - before) - chance.sum(axis=-1) - _ROUNDING * size
    return found


# -- what a report states about the draws -------------------------------------------------------

_DETECTED: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class FitWitness:
    r"""The event whose count in the draws deviates most from the claimed law.

    ``probability`` contains bounds on the probability of the event under the law. If the event had
    been chosen before the draws, its count would lie outside ``expected`` with probability at most
    alpha. But it is chosen after the draws, so only the p-value or e-value of the report is
    evidence.
    """

    event: str = fact("the event, in words")
    count: int = fact("draws in the event")
    draws: int
    expected: tuple[int, int] = fact("[least, most] usual count")
    probability: tuple[float, float] = fact("[lower, upper] of the probability of the event")

    def __str__(self) -> str:
        low, high = self.expected
        usual = f"{low:,} to {high:,}" if low < high else f"{low:,}"
        return f"{self.event}: {self.count:,} of {self.draws:,} draws, {usual} expected"


def excluded(event: str, count: int, seen: CellCounts) -> FitWitness:
    r"""The :class:`FitWitness` of an event that has probability 0 under the law, but occurred."""
    return FitWitness(
        event=event, count=count, draws=seen.draws, expected=(0, 0), probability=(0.0, 0.0)
    )


def witness(cells: FitCells, seen: CellCounts, alpha: Fraction) -> FitWitness:
    r"""The cell, half-line or residue class whose count deviates most from its probability.

    The deviation is measured by the likelihood ratio of the count. The result describes the draws,
    and is not a test.
    """
    last = len(cells) - 1
    inner = range(1, last)
    spans = [(i, i) for i in range(last + 1)]
    spans += [span for i in inner for span in ((0, i), (i, last))]
    first, end = np.array(spans).T
    sums = (np.append(0, np.cumsum(each)) for each in (seen.counts, cells.lower, cells.upper))
    count, low, high = (upto[end + 1] - upto[first] for upto in sums)
    # Sums over cells have rounding errors: round outwards.
    low, high = np.maximum(low - _ROUNDING, 0.0), np.minimum(high + _ROUNDING, 1.0)
    low[: last + 1], high[: last + 1] = cells.lower, cells.upper
    words = [partial(cells.words, *span) for span in spans]
    for modulus, counts in zip(cells.moduli, seen.residues, strict=True):
        least, most = cells.residue(modulus)
        count, low = np.append(count, counts), np.append(low, [least] * modulus)
        high = np.append(high, [most] * modulus)
        words += [partial("x mod {} = {}".format, modulus, r) for r in range(modulus)]
    share = count / seen.draws
    p = np.clip(share, low, high)
    best = int(np.argmax(rel_entr(share, p) + rel_entr(1 - share, 1 - p)))
    tail, least, most = float(alpha) / 2, float(low[best]), float(high[best])
    fewest = int(stats.binom.ppf(tail, seen.draws, least))
    largest = int(stats.binom.isf(tail, seen.draws, most))
    return FitWitness(
        event=words[best](),
        count=int(count[best]),
        draws=seen.draws,
        expected=(fewest, largest),
        probability=(least, most),
    )


def resolution(cells: FitCells, draws: int, alpha: Fraction, *, sequential: bool) -> float:
    r"""The smallest relative error of scale that 95 of 100 tests would detect.

    The scale is the mean absolute deviation. The estimate uses a normal approximation, and is
    infinite for a law whose distance from its mean is constant.
    """
    if sequential:
        # Each tilt is twice the next, so one of them is 2/3 to 4/3 of the best tilt, and loses at
        # most a ninth of the best tilt's gain.
        share = _TILTED_WEIGHT / (2 * len(cells.scores) * len(_TILTS)) if len(cells.scores) else 1.0
        needed = math.sqrt(2 * (log_bar(alpha) - math.log(share)) * 9 / 8)
    else:
        tests = max(1, 2 * len(cells.scores))
        by_simulation = float(stats.norm.isf(float(alpha) * WEIGHTS["directed"] / tests))
        by_bound = math.sqrt(2 * (log_bar(alpha) + math.log(tests / WEIGHTS["tilted"])))
        reached = float(alpha) * WEIGHTS["directed"] >= 2 / (1 + _SIMULATIONS)
        needed = by_simulation if reached else by_bound
    return (needed + float(stats.norm.ppf(_DETECTED))) * cells.spread / math.sqrt(draws)
