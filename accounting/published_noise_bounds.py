r"""Published bounds on integer noise, and the privacy of real Gaussian noise, for comparison.

Other libraries calibrate with the published bounds on integer noise; dpcore uses them only for
comparison, and derives its guarantees from the exact law. Real Gaussian noise is the reference in
the papers; dpcore never samples it. Let r be the ratio of its standard deviation to the
sensitivity. Its privacy curve is delta(epsilon) = Phi(1/(2r) - epsilon r) - e^epsilon Phi(-1/(2r) -
epsilon r), with the standard normal distribution function Phi (Balle and Wang 2018, Theorem 8).
This delta decreases in r, because larger noise is smaller noise plus independent noise.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from flint import arb

from accounting.privacy_curves.real_gaussian_closed_form import NormalLoss
from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.numbers.parameter import (
    RationalLike,
    integer,
    positive_rational,
    rational,
    rational_in,
)

_BITS: Final = 64


def skellam_renyi_bound(order: int, variance: RationalLike, sensitivity: int) -> Fraction:
    r"""An upper bound on the Renyi divergence D_alpha of Skellam noise, alpha = ``order``.

    For an integer order, sensitivity d and variance v (Agarwal, Kairouz and Liu 2021, Theorem 3.5;
    Lemma 3 of Chowdhury and Zhou 2023):

        D_alpha <= alpha d^2/(2v) + min{((2 alpha - 1) d^2 + 6d)/(4 v^2), 3d/(2v)}

    >>> skellam_renyi_bound(32, 16, 4)
    Fraction(131, 8)
    """
    alpha = integer("order", order, at_least=2)
    d = integer("sensitivity", sensitivity, at_least=1)
    v = positive_rational("variance", variance, "variance 0 adds no noise")
    return alpha * d**2 / (2 * v) + min(
        ((2 * alpha - 1) * d**2 + 6 * d) / (4 * v**2), 3 * d / (2 * v)
    )


def gaussian_sum_epsilon(count: int, sigma_squared: RationalLike, sensitivity: int) -> Enclosure:
    r"""The epsilon for which a sum of discrete Gaussians is proven (epsilon^2/2)-zCDP.

    For n terms with v = sigma^2 >= 1/4 and the sensitivity d (Kairouz, Liu and Steinke 2021,
    Proposition 13; Lemma 4 of Chowdhury and Zhou 2023) it is

        min{sqrt(d^2/(n v) + xi/2), d/sqrt(n v) + xi} with xi = 10 sum_{k<n} e^(-2 pi^2 v k/(k+1)).

    >>> gaussian_sum_epsilon(16, 1, 4)
    Enclosure([1.0001360525238399, 1.0001360525238400])
    """
    n, d = integer("count", count, at_least=1), integer("sensitivity", sensitivity, at_least=1)
    v = positive_rational("sigma_squared", sigma_squared, "variance 0 adds no noise")
    if v < Fraction(1, 4):
        raise InvalidParameter("sigma_squared", sigma_squared, "must be >= 1/4 for this bound")

    def bound() -> arb:
        rate = -2 * arb.pi() ** 2 * ball(v)
        xi = 10 * sum(((rate * k / (k + 1)).exp() for k in range(1, n)), arb(0))
        squared = ball(Fraction(d * d) / (n * v))
        return (squared + xi / 2).sqrt().min(squared.sqrt() + xi)

    return narrow(bound, _BITS)


def real_gaussian_delta(ratio: RationalLike, epsilon: RationalLike) -> Enclosure:
    r"""The delta of real Gaussian noise at ``epsilon`` >= 0.

    ``ratio`` is the standard deviation of the noise, divided by the sensitivity.

    >>> real_gaussian_delta("0.179412", 10)
    Enclosure([0.78862271275898857, 0.78862271275898858])

    Raises :class:`InvalidParameter` unless ratio > 0 and epsilon >= 0.
    """
    r, e = positive_rational("ratio", ratio, "sigma 0 adds no noise"), rational("epsilon", epsilon)
    if e < 0:
        raise InvalidParameter("epsilon", epsilon, "must be >= 0")
    return NormalLoss(variance=1 / r**2).delta(e, _BITS)


def real_gaussian_ratio(epsilon: RationalLike, delta: RationalLike) -> Enclosure:
    r"""The least ratio sigma/sensitivity of (epsilon, delta)-DP Gaussian noise, to 12 digits.

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
