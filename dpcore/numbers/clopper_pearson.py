r"""Confidence bounds on a probability from a number of hits (Clopper and Pearson 1934)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

import numpy as np
from flint import arb

from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import Floats
from dpcore.numbers.enclosure import Enclosure, ball, precision
from dpcore.numbers.integer_search import least

_GRID: Final = 1 << 40
_BITS: Final = 96


def lower_end(hits: Any, runs: Any, level: float) -> Floats:
    r"""A lower bound on P(hit), from ``hits`` in ``runs``; P(bound too large) <= ``level``."""
    return np.where(hits > 0, _quantile(np.maximum(hits, 1), runs - hits + 1, level), 0.0)


def upper_end(hits: Any, runs: Any, level: float) -> Floats:
    r"""An upper bound on P(hit), from ``hits`` in ``runs``; P(bound too small) <= ``level``."""
    return np.where(hits < runs, _quantile(hits + 1, np.maximum(runs - hits, 1), 1.0 - level), 1.0)


def _quantile(a: Any, b: Any, level: float) -> Any:
    from scipy.special import betaincinv

    return betaincinv(a, b, level)


def proven_upper_end(seen: int, trials: int, level: Fraction) -> Fraction:
    r"""A proven u with P(Bin(trials, u) <= seen) <= ``level``, at most 2^-39 above the least u."""
    if not 0 <= seen < trials:
        raise InvalidParameter("seen", seen, f"must be >= 0 and below trials = {trials}")

    def enough(point: int) -> bool:
        if point >= _GRID:
            return True
        if point <= 0:
            return False
        # P(Bin <= s) = 1 - I_u(s + 1, n - s) = I_(1-u)(n - s, s + 1).
        with precision(_BITS):
            missed: arb = ball(Fraction(_GRID - point, _GRID)).beta_lower(
                arb(trials - seen), arb(seen + 1), regularized=1
            )
            return bool(missed.is_finite()) and Enclosure.of(missed).upper <= level

    start = float(upper_end(seen, trials, float(level)))  # only a starting point
    near = int(start * _GRID) if np.isfinite(start) else _GRID // 2
    return Fraction(least(enough, near), _GRID)
