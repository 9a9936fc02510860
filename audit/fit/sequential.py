r"""A test martingale for a claimed law: look whenever you like.

The wealth after n draws is a mixture, with weights fixed for ever, of likelihood ratios of fixed
alternatives to the law: laws tilted along the scores of the cells, draws from an urn that learns
any shape (Dirichlet), and the same urn for residues. It depends on the counts alone. Where the law
holds it is a supermartingale that starts at 1, so it ever reaches 1/alpha with probability at most
alpha (Ville 1939). Statement and proof: ``docs/proofs/known_laws.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import numpy as np
from scipy.special import gammaln, logsumexp, xlogy

from audit.fit.cells import FitCells, Floats, Integers, Seen

TILTED_WEIGHT: Final = 0.5
_URN_WEIGHT: Final = 0.4
_RESIDUE_WEIGHT: Final = 0.1
# How far a tilted law is from the claimed one, in standard deviations of its score a draw.
TILTS: Final = tuple(2.0**-k for k in range(1, 12))
# How many draws an urn's opening counts are worth.
_URNS: Final = tuple(4.0**k for k in range(11))
# The functions and sums here are far more accurate than this, relative to their largest term.
_ROUNDING: Final = 2.0**-40
_LEAST: Final = 1e-300


def log_wealth(cells: FitCells, seen: Seen) -> float:
    r"""The logarithm of the wealth after these draws, rounded down."""
    return float(logsumexp([value for _, value in log_wealths(cells, seen)]))


def log_wealths(cells: FitCells, seen: Seen) -> Iterator[tuple[str, float]]:
    r"""The logarithm of each weighted part of the wealth, by the name of its family."""
    tilted = _tilted(cells, seen)
    for value in tilted.tolist():
        yield "tilted", value + math.log(TILTED_WEIGHT / len(tilted))
    for size in _URNS:
        value = _urn(seen.counts, size * np.maximum(cells.nominal, _LEAST), cells.upper)
        yield "urn", value + math.log(_URN_WEIGHT / len(_URNS))
    for modulus, counts in zip(cells.moduli, seen.residues, strict=True):
        above = np.full(modulus, cells.residue(modulus)[1])
        value = _urn(counts, np.ones(modulus), above)
        yield "residues", value + math.log(_RESIDUE_WEIGHT / len(cells.moduli))


def _tilted(cells: FitCells, seen: Seen) -> Floats:
    # Each draw multiplies by e^(tilt score) over its greatest mean under the law.
    exponents, norms = _tilts(cells)
    gained = exponents @ seen.counts
    size = np.abs(exponents) @ seen.counts + seen.draws * (1 + np.abs(norms))
    found: Floats = gained - seen.draws * norms - _ROUNDING * size
    return found


@lru_cache(maxsize=16)
def _tilts(cells: FitCells) -> tuple[Floats, Floats]:
    both = np.array([sign * tilt for tilt in TILTS for sign in (1, -1)])
    exponents = (both[:, None, None] * cells.scores).reshape(-1, len(cells))
    norms: Floats = logsumexp(exponents, b=cells.upper, axis=1)
    return exponents, norms


def _urn(counts: Integers, opening: Floats, above: Floats) -> float:
    # The chance of these draws from an urn that opens with these real counts and gains one of what
    # is drawn, over the greatest chance the law gives them.
    total = float(opening.sum())
    draws = int(counts.sum())
    came = counts > 0
    n, a = counts[came], opening[came]
    risen = gammaln(a + n) - gammaln(a)
    chance = xlogy(n, above[came])
    size = float(np.sum(np.abs(gammaln(a + n)) + np.abs(gammaln(a)) + np.abs(chance)))
    all_risen = gammaln(total + draws) - gammaln(total)
    size += float(abs(gammaln(total + draws)) + abs(gammaln(total))) + draws
    return float(risen.sum() - all_risen - chance.sum()) - _ROUNDING * size
