r"""Tables of a symmetric law, for floats and for sampling, from its masses at 0, 1, 2, ...

For laws of moderate width whose masses come as balls, one after the other. Proofs:
docs/proofs/laws.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np
from flint import arb

from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import nearest
from dpcore.numbers.floating import Floats
from dpcore.sampling.inversion import InversionTable, table_of_masses

EXTRA: Final = 64
r"""Values beyond a number of standard deviations, for laws too narrow to be nearly Gaussian."""


class FloatTable(NamedTuple):
    r"""P(X = k) and P(X > k) for k = 0, 1, ...; the final 0 represents all larger k."""

    masses: Floats
    tails: Floats

    def mass(self, k: Integers) -> Floats:
        r"""P(X = k) for every entry, of either sign."""
        # ~k = -k-1 without overflow at either end of int64; the table ends with two zeros.
        size = np.minimum(np.where(k >= 0, k, ~k), len(self.masses) - 2) + (k < 0)
        found: Floats = self.masses[size]
        return found

    def upper(self, k: Integers) -> Floats:
        r"""P(X > k) for every entry k >= 0."""
        return self.tails[np.minimum(k, len(self.tails) - 1)]


def float_table(masses: Sequence[arb], beyond: arb) -> FloatTable:
    r"""Each value rounded once, from balls of P(X = 0), ..., P(X = n) and of P(X > n)."""
    tails = [*accumulate(masses[:0:-1], initial=beyond)]
    return FloatTable(
        np.array([*map(nearest, masses), 0.0, 0.0]), np.array([*map(nearest, reversed(tails)), 0.0])
    )


def table_reach(variance: Fraction) -> int:
    r"""At least nine standard deviations: the table checks that less than 2^-64 lies beyond."""
    return math.isqrt(86 * math.ceil(variance)) + EXTRA


def symmetric_table(
    masses: Sequence[tuple[int, int]], below: tuple[int, int], cdf: Callable[[int], arb]
) -> InversionTable:
    r"""The table on -n, ..., n from intervals of P(X = 0), ..., P(X = n) and of P(X < -n).

    As :func:`dpcore.sampling.inversion.table_of_masses`, in units of 2^-FIXED_BITS.
    """
    both = [*masses[:0:-1], *masses]
    return table_of_masses(1 - len(masses), below, both, cdf)
