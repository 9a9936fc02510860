r"""The five tests of a number of draws fixed beforehand, and how they are joined.

Statements and proofs: ``docs/proofs/known_laws.md``.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from scipy import stats
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, xlogy

from audit.fit.cells import FitCells, Floats, Integers, Seen

WEIGHTS: Final = {
    "directed": 0.5,
    "omnibus": 0.25,
    "tilted": 0.1,
    "cells": 0.1,
    "residues": 0.05,
}
SIMULATIONS: Final = 1999
_LEAST: Final = 1e-300
# Statistics this close count as equal: a tie goes against refuting.
_TIE: Final = 1e-9
# The relative error of binomial tails, and of a sum of logarithms over all draws.
_ROUNDING: Final = 2.0**-40


def fit_p_values(cells: FitCells, seen: Seen, coins: np.random.Generator) -> dict[str, float]:
    r"""Every test's own p-value, valid for each law within the cells' enclosures."""
    return {
        **_calibrated(cells, seen.counts, coins),
        "tilted": _tilted(cells, seen.counts),
        "cells": _binomial(seen.counts, cells.lower, cells.upper),
        "residues": _by_residue(cells, seen),
    }


def joined(found: dict[str, float]) -> float:
    r"""The p-value of several tests: min p_i / w_i, at most 1.

    >>> joined({"directed": 0.25, "cells": 0.5})
    0.5
    """
    return min(1.0, *(p / WEIGHTS[name] for name, p in found.items()))


def _calibrated(cells: FitCells, counts: Integers, coins: np.random.Generator) -> dict[str, float]:
    draws = int(counts.sum())
    mass = cells.nominal / cells.nominal.sum()
    tables = np.vstack((counts, coins.multinomial(draws, mass, size=SIMULATIONS)))
    floored = np.maximum(mass, _LEAST)
    found = {
        "directed": np.max(np.abs(tables @ cells.scores.T), axis=1, initial=0.0),
        "omnibus": xlogy(tables, tables / (draws * floored)).sum(axis=1),
    }
    # The simulated law and the claimed one differ by at most the gap in each draw.
    slack = draws * cells.gap
    return {name: min(1.0, _rank(values) + slack) for name, values in found.items()}


def _rank(values: Floats) -> float:
    # The share of values that are at least as extreme as the first, the data's own, which counts.
    own = values[0]
    if np.isnan(own):
        return 1.0  # no score, no evidence
    return float(np.count_nonzero(values >= own - _TIE * (1 + abs(own)))) / len(values)


def _tilted(cells: FitCells, counts: Integers) -> float:
    # P(T >= t) <= inf over theta > 0 of e^(-theta t) E[e^(theta score)]^n, each direction.
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

    # Any theta gives a bound; the search only has to come close to the best, which for small
    # deviations is the deviation of one draw, as a score has variance 1.
    ends = (0.0, 20 * gained / draws)
    found = minimize_scalar(log_bound, bounds=ends, method="bounded", options={"xatol": 1e-9})
    theta = float(found.x)
    size = draws * (1 + theta * float(np.abs(score).max()))
    return min(1.0, math.exp(min(0.0, log_bound(theta) + _ROUNDING * size)))


def _binomial(counts: Integers, lower: Floats, upper: Floats) -> float:
    # Few are hardest on the least probability, many on the greatest; Bonferroni over all.
    draws = int(counts.sum())
    few = stats.binom.cdf(counts, draws, lower)
    many = stats.binom.sf(counts - 1, draws, upper)
    both = 2 * np.minimum(few, many) * (1 + _ROUNDING)
    return min(1.0, float(both.min()) * len(counts))


def _by_residue(cells: FitCells, seen: Seen) -> float:
    best = 1.0
    for modulus, counts in zip(cells.moduli, seen.residues, strict=True):
        lower, upper = cells.residue(modulus)
        p_value = _binomial(counts, np.full(modulus, lower), np.full(modulus, upper))
        best = min(best, len(cells.moduli) * p_value)
    return best
