r"""LZJ: Li, Zhou and Ji, "Differentially Private Linear Bandits with Partial Distributed Feedback"
(WiOpt 2022): the shuffle protocols of its Algorithms 2 and 4, and its Gaussian mechanism.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from flint import arb

from accounting.papers.arguments import (
    WIDTH_BITS,
    BitNoise,
    ceil_sqrt,
    ceiling,
    delta_of,
    epsilon_of,
    log_of,
    users_of,
)
from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.numbers.parameter import RationalLike, integer

__all__ = ["lzj_classical_gaussian", "lzj_scalar", "lzj_scalar_lemma", "lzj_vector"]


def lzj_vector(
    users: int, coordinates: int, epsilon: RationalLike, delta: RationalLike
) -> BitNoise:
    r"""LZJ Algorithm 2: vectors of s coordinates and l2 norm at most Delta, g steps on 2 Delta;
    e = epsilon/(18 sqrt(ln(2/delta))), g = max{e sqrt(n)/(6 sqrt(5 ln(4s/delta))), sqrt s, 10}
    rounded up, b = ceil(180 g^2 ln(4s/delta)/(e^2 n)), p = 90 g^2 ln(4s/delta)/(b e^2 n).

    >>> found = lzj_vector(1000, 1, 1, "1e-6")
    >>> found.precision, found.bits
    (10, 1286293)
    """
    n, e, d = users_of(users), epsilon_of(epsilon), delta_of(delta)
    s = integer("coordinates", coordinates, at_least=1)
    log, log_two = log_of(4 * s / d), log_of(2 / d)
    growing = ceiling(
        lambda: ball(e) * arb(n).sqrt() / (18 * log_two().sqrt() * 6 * (5 * log()).sqrt())
    )
    g = max(growing, ceil_sqrt(Fraction(s)), 10)
    return _cheu(n, g, lambda: log() * 18**2 * log_two() / ball(e * e))


def lzj_scalar(users: int, precision: int, epsilon: RationalLike, delta: RationalLike) -> BitNoise:
    r"""LZJ Algorithm 4, eq. (60), as printed: g >= 2B sqrt n is the caller's,
    b = ceil(180 g^2 ln(2/delta)/((epsilon/2)^2 n)), p = 90 g^2 ln(2/delta)/(b (epsilon/2)^2 n).

    It does not match the lemma it cites (:func:`lzj_scalar_lemma`); neither is needed, for the
    exact number of bits is known (``shuffle.fewest_bits``).

    >>> lzj_scalar(100, 20, 1, "1e-6").bits
    41785
    """
    n, e, d = users_of(users), epsilon_of(epsilon) / 2, delta_of(delta)
    g, log = integer("precision", precision, at_least=1), log_of(2 / d)
    return _cheu(n, g, lambda: log() / ball(e * e))


def lzj_scalar_lemma(
    users: int, precision: int, epsilon: RationalLike, delta: RationalLike
) -> BitNoise:
    r"""LZJ Lemma C.5 (Cheu et al. 2021, Lemma 3.1), at equality: ln(1/delta) in b, ln(2/delta) in
    p, for (epsilon (2/g + 1), delta) with ``epsilon`` < 15; so p can exceed 1/2.

    >>> lzj_scalar_lemma(100, 20, 1, "1e-6").bits
    9948
    """
    n, e, d = users_of(users), epsilon_of(epsilon), delta_of(delta)
    top, bottom = log_of(2 / d), log_of(1 / d)
    g = integer("precision", precision, at_least=1)
    bits = ceiling(lambda: 180 * g * g * bottom() / ball(e * e * n))
    chance = narrow(lambda: 90 * g * g * top() / ball(e * e * n * bits), WIDTH_BITS)
    return BitNoise(users=n, precision=g, bits=bits, probability=chance)


def lzj_classical_gaussian(epsilon: RationalLike, delta: RationalLike) -> Enclosure:
    r"""LZJ Theorems 4.2, 4.4, C.1 and C.3: sigma/Delta = sqrt(2 ln(1.25/delta))/epsilon.

    Proven for epsilon <= 1 only (Dwork and Roth 2014, Theorem A.1); ``real_gaussian`` has the
    exact one, and what this one truly gives.

    >>> lzj_classical_gaussian(10, "0.25")
    Enclosure([0.17941225779941014, 0.17941225779941015])
    """
    e, log = epsilon_of(epsilon), log_of(Fraction(5, 4) / delta_of(delta))
    return narrow(lambda: (2 * log()).sqrt() / ball(e), WIDTH_BITS)


def _cheu(n: int, g: int, factor: Callable[[], arb]) -> BitNoise:
    bits = ceiling(lambda: 180 * g * g * factor() / n)
    chance = narrow(lambda: 90 * g * g * factor() / (n * bits), WIDTH_BITS)
    # At most 1/2, as bits was rounded up.
    high = min(Fraction(chance.upper), Fraction(1, 2))
    return BitNoise(users=n, precision=g, bits=bits, probability=Enclosure(chance.lower, high))
