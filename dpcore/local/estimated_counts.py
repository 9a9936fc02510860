r"""Estimated counts from local reports: the estimates, their variance and confidence intervals.

If c of n users have a value, the number of reports that support it is a sum of c Bernoulli(own) and
n - c Bernoulli(other) variables; own and other are the probabilities of
:class:`dpcore.local.local_report.LocalReport`. Estimates, variances and intervals follow from these
two probabilities. Proofs: docs/proofs/local.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpcore.numbers.arrays import Floats, Integers
from dpcore.numbers.clopper_pearson import proven_upper_end
from dpcore.numbers.parameter import RationalLike, integer, rational_in


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frequencies:
    r"""The estimated number of users who have each value.

    ``supports[v]`` is the number of reports that support the value v; ``own`` and ``other`` are the
    probabilities of the mechanism.

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
        r"""The unbiased estimates (S - n other)/(own - other), S = ``supports``, n = ``users``."""
        supports = self.supports.astype(np.float64)
        return (supports - float(self.users * self.other)) / float(self.own - self.other)

    def count(self, value: int) -> Fraction:
        r"""The estimated count of one value, as an exact rational."""
        place = self._place(value)
        return (int(self.supports[place]) - self.users * self.other) / (self.own - self.other)

    def interval(self, value: int, confidence: RationalLike = "0.95") -> tuple[Fraction, Fraction]:
        r"""A confidence interval for the true count of ``value``, with proven coverage.

        The number of supporting reports is a sum of independent Bernoulli variables, so its tails
        are at most those of a binomial with the same mean (Hoeffding 1956). The interval is that of
        Clopper and Pearson, widened so that each end is at least one report away from the observed
        number.
        """
        level = (1 - rational_in("confidence", confidence, "(0, 1)")) / 2
        seen, n = int(self.supports[self._place(value)]), self.users
        high = Fraction(n) if seen >= n - 1 else n * proven_upper_end(seen, n, level)
        low = Fraction(0) if seen <= 1 else n - n * proven_upper_end(n - seen, n, level)
        ends = (min(low, Fraction(seen - 1)), max(high, Fraction(seen + 1)))
        first, last = ((end - n * self.other) / (self.own - self.other) for end in ends)
        return min(max(first, Fraction(0)), Fraction(n)), max(min(last, Fraction(n)), Fraction(0))

    def _place(self, value: int) -> int:
        return integer("value", value, at_least=0, at_most=len(self.supports) - 1)


def count_variance(own: Fraction, other: Fraction, users: int, count: Fraction) -> Fraction:
    r"""The variance of an estimated count if c = ``count`` of n = ``users`` users have the value.

    The variance is (c own (1 - own) + (n - c) other (1 - other))/(own - other)^2.
    """
    supporting = count * own * (1 - own) + (users - count) * other * (1 - other)
    return supporting / (own - other) ** 2
