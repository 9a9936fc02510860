r"""Real Gaussian noise, the reference for the calibrations in the papers.

With sigma/Delta = r, delta(epsilon) = Phi(1/2r - epsilon r) - e^epsilon Phi(-1/2r - epsilon r)
(Balle and Wang 2018, Theorem 8). It decreases in r, as more noise is less noise plus independent
noise. dpcore never samples it; it is only for comparison.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from accounting.pld.normal_loss import NormalLoss
from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.parameter import RationalLike, positive_rational, rational, rational_in

_BITS: Final = 64


def real_gaussian_delta(ratio: RationalLike, epsilon: RationalLike) -> Enclosure:
    r"""The delta of real Gaussian noise with sigma/Delta = ``ratio``, at ``epsilon`` >= 0.

    >>> real_gaussian_delta("0.179412", 10)
    Enclosure([0.78862271275898857, 0.78862271275898858])

    Raises :class:`InvalidParameter` unless ratio > 0 and epsilon >= 0.
    """
    r, e = positive_rational("ratio", ratio, "sigma 0 adds no noise"), rational("epsilon", epsilon)
    if e < 0:
        raise InvalidParameter("epsilon", epsilon, "must be >= 0")
    return NormalLoss(variance=1 / r**2).delta(e, _BITS)


def real_gaussian_ratio(epsilon: RationalLike, delta: RationalLike) -> Enclosure:
    r"""The least sigma/Delta that gives (epsilon, delta), to about 12 digits, certified.

    >>> real_gaussian_ratio(10, "0.25").upper_float
    0.24717...
    """
    most = rational_in("delta", delta, "(0, 1)")
    low = high = Fraction(1)
    while real_gaussian_delta(low, epsilon).lower <= most:
        low /= 2
    while real_gaussian_delta(high, epsilon).upper > most:
        high *= 2
    while high - low > low / (1 << 40):
        middle = (low + high) / 2
        found = real_gaussian_delta(middle, epsilon)
        if found.lower > most:
            low = middle
        elif found.upper <= most:
            high = middle
        else:
            break
    return Enclosure(low, high)
