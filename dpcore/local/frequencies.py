r"""Counts that are estimated from local reports, and intervals that hold at any number of users."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from flint import arb

from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import Enclosure, ball, precision
from dpcore.numbers.floating import Floats
from dpcore.numbers.integer_search import least
from dpcore.numbers.parameter import RationalLike, integer, rational_in

_GRID: Final = 1 << 40
_BITS: Final = 96


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frequencies:
    r"""Estimates for each value; ``supports`` are the reports that support it.

    >>> found = Frequencies(
    ...     users=100, supports=np.array([60, 40]), own=Fraction(3, 4), other=Fraction(1, 4)
    ... )
    >>> found.counts.tolist(), found.count(0)
    ([70.0, 30.0], Fraction(70, 1))
    >>> [float(round(end, 2)) for end in found.interval(0)]
    [49.44, 89.34]
    """

    users: int
    supports: Integers
    own: Fraction
    other: Fraction

    @property
    def counts(self) -> Floats:
        r"""(S - n other)/(own - other) for each value, in floats; unbiased."""
        supports = self.supports.astype(np.float64)
        return (supports - float(self.users * self.other)) / float(self.own - self.other)

    def count(self, value: int) -> Fraction:
        r"""The exact estimate of one value."""
        place = self._place(value)
        return (int(self.supports[place]) - self.users * self.other) / (self.own - self.other)

    def interval(self, value: int, confidence: RationalLike = "0.95") -> tuple[Fraction, Fraction]:
        r"""Ends that hold the true count of ``value`` with at least ``confidence``, proven.

        The number of supporting reports is a sum of independent coins, and its tails are at most
        those of a binomial with the same mean (Hoeffding 1956): the ends are those of Clopper and
        Pearson, moved to be at least one report away from the number seen.
        """
        level = (1 - rational_in("confidence", confidence, "(0, 1)")) / 2
        seen, n = int(self.supports[self._place(value)]), self.users
        high = Fraction(n) if seen >= n - 1 else n * upper_end(seen, n, level)
        low = Fraction(0) if seen <= 1 else n - n * upper_end(n - seen, n, level)
        ends = (min(low, Fraction(seen - 1)), max(high, Fraction(seen + 1)))
        first, last = ((end - n * self.other) / (self.own - self.other) for end in ends)
        return min(max(first, Fraction(0)), Fraction(n)), max(min(last, Fraction(n)), Fraction(0))

    def _place(self, value: int) -> int:
        return integer("value", value, at_least=0, at_most=len(self.supports) - 1)


def upper_end(seen: int, trials: int, level: Fraction) -> Fraction:
    r"""A u with P(Bin(trials, u) <= seen) <= ``level``, proven, and within 2^-39 of the least."""
    from scipy.special import betaincinv  # only a place to start from

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

    start = float(betaincinv(seen + 1, trials - seen, 1 - float(level)))
    near = int(start * _GRID) if np.isfinite(start) else _GRID // 2
    return Fraction(least(enough, near), _GRID)
