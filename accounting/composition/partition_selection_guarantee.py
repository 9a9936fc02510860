r"""Partition selection: the guarantee if keys are released whose noisy count reaches a threshold.

Consider the keys that only one user has. Let c_1, ..., c_m be their counts, whose sum is at most R
(``rows_per_user``). With noise X, at least one of these keys is released with probability 1 -
prod_i P(c_i + X < threshold). The delta of the release is the maximum of this probability over m
and all such counts. If none of these keys is released, the release reveals no more than the noisy
counts of keys that other users also have. Proof: docs/proofs/selection.md.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Final

from accounting.composition.compose import Composition, compose
from accounting.derive_guarantee import guarantee
from accounting.guarantees.stated_guarantees import ApproxBound
from dpcore.errors import InvalidParameter
from dpcore.noise import Noise
from dpcore.numbers.integer_search import least
from dpcore.numbers.parameter import RationalLike, rational_in
from dpcore.selection import NoisyThreshold

_BITS: Final = 192


def appearance(noise: Noise, threshold: int, rows_per_user: int) -> Fraction:
    r"""An upper bound on delta, the largest probability that any key of only one user is released.

    >>> from dpcore import DiscreteLaplace
    >>> float(appearance(DiscreteLaplace(scale=1), 10, 1))
    9.02...e-05
    """
    return 1 - _least_hidden(noise, threshold, rows_per_user)[0]


def most_exposed(noise: Noise, threshold: int, rows_per_user: int) -> tuple[int, ...]:
    r"""The worst-case counts of the keys that only one user has, with sum ``rows_per_user``.

    They maximise the probability that at least one of these keys is released.

    >>> from dpcore import DiscreteLaplace
    >>> most_exposed(DiscreteLaplace(scale=1), 10, 3), most_exposed(DiscreteLaplace(scale=9), 10, 3)
    ((3,), (1, 1, 1))
    """
    return _least_hidden(noise, threshold, rows_per_user)[1]


def _least_hidden(noise: Noise, threshold: int, most: int) -> tuple[Fraction, tuple[int, ...]]:
    # For each number of rows: the least probability that no key is released, rounded down, and the
    # number of rows of the first key at that minimum. Probabilities are multiples of 2^-_BITS.
    cdf = (Fraction(noise.enclose_cdf(threshold - 1 - c).lower) for c in range(most + 1))
    hidden = [math.floor(each * (1 << _BITS)) for each in cdf]
    unseen = [(1 << _BITS, 0)]
    for rows in range(1, most + 1):
        found, c = min((hidden[c] * unseen[rows - c][0], c) for c in range(1, rows + 1))
        unseen.append((found >> _BITS, c))
    counts, left = [], most
    while left:
        counts.append(unseen[left][1])
        left -= counts[-1]
    return Fraction(unseen[-1][0], 1 << _BITS), tuple(counts)


def least_threshold(noise: Noise, delta: RationalLike, rows_per_user: int) -> int:
    r"""The least threshold >= 1 at which :func:`appearance` <= ``delta``, for symmetric noise.

    >>> from dpcore import DiscreteLaplace
    >>> least_threshold(DiscreteLaplace(scale=1), "1e-6", 1)
    15
    """
    allowed = rational_in("delta", delta, "(0, 1)")
    if not noise.symmetric:
        raise InvalidParameter("noise", noise, "must be symmetric")
    start = rows_per_user + noise.quantile(1 - allowed / rows_per_user)
    return max(1, least(lambda t: appearance(noise, t, rows_per_user) <= allowed, int(start)))


def threshold_guarantee(mechanism: NoisyThreshold) -> Composition:
    r"""Compose the guarantee of the noisy counts with the delta of revealing a key.

    The result is an upper bound that no user attains: the guarantee of the counts is for a user
    whose keys all occur in the rows of others, and delta is for a user whose keys occur nowhere
    else.
    """
    noise = mechanism.mechanism.noise
    delta = appearance(noise, mechanism.threshold, mechanism.rows_per_user)
    total = compose(guarantee(mechanism.mechanism), ApproxBound(0, delta, scope=mechanism.scope))
    return replace(total, assumptions=())  # delta is derived here, not stated
