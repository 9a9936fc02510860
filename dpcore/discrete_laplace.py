r"""The discrete Laplace law: P(X = k) = tanh(1/(2s)) e^(-|k|/s).

Ghosh, Roughgarden and Sundararajan, "Universally utility-maximizing privacy mechanisms" (2009),
call it the two-sided geometric. Under a query that moves by at most Delta it is Pure(Delta/s)
exactly. Proofs: docs/proofs/discrete_laplace.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import ClassVar, Final, cast

import numpy as np
from flint import arb

from dpcore.enclosure import Enclosure, ball, narrow, nearest, precision
from dpcore.errors import InvalidParameter
from dpcore.exact import geometric_exp
from dpcore.floating import Floats, Pair, exp_neg, pair_of, product
from dpcore.inversion import (
    FIXED_BITS,
    Batch,
    Integers,
    InversionTable,
    fixed_point,
    in_blocks,
    place,
)
from dpcore.noise import Noise
from dpcore.parameter import RationalLike, integer, positive_rational
from dpcore.rng import Rng
from dpcore.symmetric import SymmetricNoise

__all__ = ["DiscreteLaplace"]

_FLOAT_SCALES: Final = (Fraction(1, 10**6), Fraction(2**46))
_TABLE_SCALE: Final = 64
_DIGIT_BITS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DiscreteLaplace(SymmetricNoise):
    r"""P(X = k) = tanh(1/(2s)) e^(-|k|/s) on the integers, s = ``scale`` > 0.

    With beta = e^(-1/s): P(X = k) = (1 - beta)/(1 + beta) beta^|k|, P(X > m) = beta^(m+1)/(1+beta)
    for m >= 0, variance 2 beta/(1 - beta)^2. Private only through the ratio of neighbouring
    masses, e^(1/s): a release under sensitivity Delta is (Delta/s)-DP, and no smaller epsilon.

    The float64 functions cover 1e-6 <= scale <= 2^46. Raises :class:`InvalidParameter` for a
    scale that is not a positive rational.

    >>> noise = DiscreteLaplace(scale=10)
    >>> noise.pmf(3), noise.sf(0)
    (0.03701007444444673, 0.47502081252106)
    >>> noise.enclose_pmf(3).width < Fraction(1, 2**130)
    True
    """

    name: ClassVar[str] = "discrete-laplace"

    scale: RationalLike

    def __post_init__(self) -> None:
        exact = positive_rational("scale", self.scale, "scale 0 adds no noise")
        object.__setattr__(self, "scale", exact)

    @property
    def _s(self) -> Fraction:
        return cast(Fraction, self.scale)  # __post_init__ made it one

    @property
    def log_concave(self) -> bool:
        r"""Always: |k| is convex."""
        return True

    @property
    def variance(self) -> Enclosure:
        r"""2 beta/(1 - beta)^2 = 1/(2 sinh^2(1/(2s))), enclosed to 128 bits.

        >>> DiscreteLaplace(scale=10).variance.lower_float
        199.83341663360943
        """
        return narrow(lambda: 1 / (2 * (1 / (2 * ball(self._s))).sinh() ** 2), 128)

    def pmf_ball(self, k: int) -> arb:
        r"""tanh(1/(2s)) e^(-|k|/s)."""
        rate = 1 / ball(self._s)
        return (rate / 2).tanh() * (-rate * abs(k)).exp()

    def sf_ball(self, k: int) -> arb:
        r"""beta^(k+1)/(1 + beta) for k >= 0, and 1 - P(X > -k-1) below."""
        if k < 0:
            return 1 - self.sf_ball(-k - 1)
        rate = 1 / ball(self._s)
        return (-rate * (k + 1)).exp() / (1 + (-rate).exp())

    def sample_reference(self, rng: Rng) -> int:
        r"""One draw as in Canonne, Kamath and Steinke (arXiv 2004.00010v5), Algorithm 2.

        A geometric magnitude and a fair sign; the pair (-, 0) is rejected, because it would
        give zero twice its mass.
        """
        while True:
            magnitude = geometric_exp(rng, 1 / self._s)
            negative = rng.flip()
            if not (negative and magnitude == 0):
                return -magnitude if negative else magnitude

    def build_batch(self) -> Batch:
        r"""Independent digits, each by certified inversion (docs/proofs/discrete_laplace.md)."""
        return _Digits(self._s)

    def share(self, parties: int) -> Noise:
        r"""One of ``parties`` shares: PolyaDifference(1/parties, scale), a difference of urns.

        >>> DiscreteLaplace(scale=10).share(4)
        PolyaDifference(shape='1/4', scale=10)
        """
        from dpcore.polya_difference import PolyaDifference  # its batches are made of this law

        parties = integer("parties", parties, at_least=1)
        return PolyaDifference(shape=Fraction(1, parties), scale=self._s)

    def check_float_range(self) -> None:
        r"""The float64 functions cover 1e-6 <= scale <= 2^46."""
        if not _FLOAT_SCALES[0] <= self._s <= _FLOAT_SCALES[1]:
            raise InvalidParameter(
                "scale",
                self._s,
                "the float functions cover 1e-6 <= scale <= 2^46; "
                "use enclose_pmf, enclose_cdf and enclose_sf",
            )

    def _exponent(self, k: Integers) -> Pair:
        return product(pair_of(k), pair_of(1 / self._s))

    def _decay(self, k: Integers) -> Floats:
        # k >= 0 or the absolute value as floats: |int64 min| has no int64.
        exponent = self._exponent(k)
        sign = np.where(exponent.high < 0, -1.0, 1.0)
        # + 0.0: where the exponential is 0 the low part may exceed 1, and -0 must not leave.
        return exp_neg(sign * exponent.high) * (1 - sign * exponent.low) + 0.0

    def _pmf(self, k: Integers) -> Floats:
        with precision(96):
            peak = nearest((1 / (2 * ball(self._s))).tanh())
        return peak * self._decay(k)

    def _log_pmf(self, k: Integers) -> Floats:
        with precision(96):
            if self._s < 1:  # the mass at 0 is near 1: its logarithm from the rest of the mass
                beta = (-1 / ball(self._s)).exp()
                peak = nearest((-2 * beta / (1 + beta)).log1p())
            else:
                peak = nearest((1 / (2 * ball(self._s))).tanh().log())
        return peak - np.abs(self._exponent(k).high)

    def _upper(self, k: Integers) -> Floats:
        with precision(96):
            start = nearest(self.sf_ball(0))
        return start * self._decay(k)

    def _quantile_guess(self, p: Floats) -> Integers:
        small = np.minimum(p, 1 - p)
        with precision(96):
            offset = float((1 + (-1 / ball(self._s)).exp()).log().mid())
        # P(X > k) = beta^(k+1)/(1+beta) <= q  iff  k + 1 >= s (-log q - log(1+beta)).
        steps = np.maximum(np.ceil(float(self._s) * (-np.log(small) - offset)), 0.0)
        k = steps.astype(np.int64)
        return np.where(p > 0.5, k - 1 + (k == 0), -k)


class _Digits:
    # X = 2^t H + L with L in [0, 2^t). For X >= 0 the digits of the geometric X are independent:
    # e^(-x/s) factorises over them. For X < 0 the same holds for ~X = -X-1, whose low digits are
    # those of X complemented. H carries the sign, so one table decides sign and top digit.

    def __init__(self, scale: Fraction) -> None:
        low_bits = max(0, math.ceil(math.log2(scale / _TABLE_SCALE))) if scale > 1 else 0
        self._low: list[tuple[int, InversionTable]] = []
        for start in range(0, low_bits, _DIGIT_BITS):
            width = min(_DIGIT_BITS, low_bits - start)
            self._low.append((start, _digit(scale / 2**start, 1 << width)))
        self._low_bits = low_bits
        self._top = _top(scale, 1 << low_bits)

    def draw(self, rng: Rng, count: int) -> Integers:
        return in_blocks(count, partial(self._fill, rng))

    def _fill(self, rng: Rng, target: Integers) -> None:
        self._top.fill(rng, target)
        if not self._low:
            return
        low = (target >> 63) & ((1 << self._low_bits) - 1)
        target <<= self._low_bits
        digit = np.empty_like(target)
        for start, table in self._low:
            table.fill(rng, digit)
            digit <<= start
            low ^= digit
        target |= low


def _digit(scale: Fraction, size: int) -> InversionTable:
    # P(L <= k) = (1 - q^(k+1))/(1 - q^size), q = e^(-1/scale): a geometric cut to one digit.
    def cdf(k: int) -> arb:
        rate = -1 / ball(scale)
        if k + 1 >= size:
            return arb(1)
        return (rate * max(k + 1, 0)).expm1() / (rate * size).expm1()

    with precision(FIXED_BITS + 32):
        masses = [fixed_point(cdf(k)) for k in range(size)]
    return InversionTable(0, place(masses, 0, cdf), cdf)


def _top(scale: Fraction, unit: int) -> InversionTable:
    # H for X = unit H + L: P(H > m) = g^(m+1)/(1+beta) and P(H <= -1-m) = beta g^m/(1+beta),
    # m >= 0, with g = beta^unit; for unit = 1 this is the law of X itself.
    def cdf(k: int) -> arb:
        rate = -1 / ball(scale)
        beta = rate.exp()
        if k < 0:
            return beta * (rate * unit * (-k - 1)).exp() / (1 + beta)
        return 1 - (rate * unit * (k + 1)).exp() / (1 + beta)

    with precision(FIXED_BITS + 32):
        ratio = (-ball(Fraction(unit)) / ball(scale)).exp()
        beta = (-1 / ball(scale)).exp()
        below = [*_powers(beta / (1 + beta), ratio)]
        above = [*_powers(ratio / (1 + beta), ratio)]
    full = 1 << FIXED_BITS
    masses = [*reversed(below), *((full - high, full - low) for low, high in above)]
    return InversionTable(-len(below), place(masses, -len(below), cdf), cdf)


def _powers(start: arb, ratio: arb) -> Iterator[tuple[int, int]]:
    # start * ratio^m for m = 0, 1, ... as integer intervals, until one lies below 2^-64. Each
    # step rounds outwards by one unit of 2^-192, far from the 64 bits that are used.
    low, high = fixed_point(start)
    ratio_low, ratio_high = fixed_point(ratio)
    last = 1 << (FIXED_BITS - 64)
    while True:
        yield low, high
        if high < last:
            return
        low, high = (low * ratio_low) >> FIXED_BITS, ((high * ratio_high) >> FIXED_BITS) + 1
