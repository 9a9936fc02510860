r"""TKMS: Tenenbaum, Kaplan, Mansour and Stemmer, "Differentially Private Multi-Armed Bandits in the
Shuffle Model" (NeurIPS 2021): the binary summation of its Algorithm 3.
"""

from __future__ import annotations

from fractions import Fraction

from accounting.papers.arguments import (
    WIDTH_BITS,
    BitNoise,
    ceiling,
    delta_of,
    epsilon_of,
    log_of,
    users_of,
)
from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.numbers.parameter import RationalLike

__all__ = ["tkms_bits", "tkms_threshold"]


def tkms_threshold(epsilon: RationalLike, delta: RationalLike) -> Enclosure:
    r"""TKMS Algorithm 3: tau = 96 ln(2/delta)/epsilon^2, for epsilon in (0, 1).

    >>> tkms_threshold("0.5", "1e-6")
    Enclosure([5571.3245715933002, 5571.3245715933003])
    """
    e, log = epsilon_of(epsilon), log_of(2 / delta_of(delta))
    return narrow(lambda: 96 * log() / ball(e * e), WIDTH_BITS)


def tkms_bits(users: int, epsilon: RationalLike, delta: RationalLike) -> BitNoise:
    r"""TKMS Algorithm 3 for m users: ceil(tau/m) fair noise bits each while m <= tau, else one bit
    of probability tau/2m.

    >>> tkms_bits(1, "0.5", "1e-6").trials, tkms_bits(1, "0.1", "1e-6").trials
    (5572, 139284)
    """
    m, tau = users_of(users), tkms_threshold(epsilon, delta)
    if tau.lower >= m:
        e, log = epsilon_of(epsilon), log_of(2 / delta_of(delta))
        bits = ceiling(lambda: 96 * log() / ball(e * e * m))
        return BitNoise(
            users=m, precision=1, bits=bits, probability=Enclosure.exactly(Fraction(1, 2))
        )
    low, high = (Fraction(end) / (2 * m) for end in (tau.lower, tau.upper))
    return BitNoise(users=m, precision=1, bits=1, probability=Enclosure(low, high))
