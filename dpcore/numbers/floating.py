r"""float64 with a stated error: e^(-x) and exact products of integers with a rational.

numpy promises nothing about the last bits of its exp, so the exponential here is built from
tables rounded once from balls and a Taylor polynomial in +, - and *, which IEEE 754 does round
correctly. The bound is derived in docs/proofs/floating.md:

    |exp_neg(x) - e^(-x)| <= 2^-48 e^(-x)   for 0 <= x <= 700.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from flint import arb

from dpcore.numbers.enclosure import nearest, precision

__all__ = ["EXP_NEG_ERROR", "Floats", "Split", "exp_neg", "pair_of", "product", "square", "two_sum"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

EXP_NEG_ERROR: Final = 2.0**-48
_STEPS: Final = 64
_LARGEST: Final = 745
_SPLITTER: Final = 2.0**27 + 1


class Split(NamedTuple):
    r"""An unevaluated sum high + low of two floats: twice the precision of one."""

    high: Floats
    low: Floats


@cache
def _tables() -> tuple[Floats, Floats]:
    with precision(96):
        whole = np.array([nearest((-arb(j)).exp()) for j in range(_LARGEST + 2)])
        part = np.array([nearest((-arb(j) / _STEPS).exp()) for j in range(_STEPS)])
    return whole, part


def exp_neg(x: Floats) -> Floats:
    r"""e^(-x) for x >= 0, relative error at most 2^-48 up to x = 700; 0 beyond 745.

    >>> float(exp_neg(np.array([1.0]))[0])
    0.36787944117144233
    """
    whole, part = _tables()
    clipped = np.minimum(x, _LARGEST + 0.5)
    cell = np.floor(clipped * _STEPS)
    rest = clipped - cell / _STEPS  # exact: both are multiples of ulp(clipped), result is smaller
    index = cell.astype(np.int64)
    # Taylor to order 7 on [0, 1/64]: the remainder is below (1/64)^8/8! < 2^-63.
    series = rest * (-1 / 5040) + 1 / 720
    for coefficient in (-1 / 120, 1 / 24, -1 / 6, 1 / 2, -1.0, 1.0):
        series = series * rest + coefficient
    value: Floats = whole[index >> 6] * part[index & 63] * series
    return np.where(x > _LARGEST, 0.0, value)


def two_sum(a: Floats, b: Floats) -> Split:
    r"""a + b exactly, as the rounded sum and its error (Knuth 1969).

    >>> two_sum(np.array([1.0]), np.array([2.0**-60])).low.tolist() == [2.0**-60]
    True
    """
    total = a + b
    back = total - a
    return Split(total, (a - (total - back)) + (b - back))


def _two_product(a: Floats, b: Floats) -> Split:
    # Dekker 1971 with Veltkamp's splitting; exact while nothing over- or underflows, which
    # holds here: magnitudes stay between 2^-200 and 2^200.
    total = a * b
    wide_a, wide_b = a * _SPLITTER, b * _SPLITTER
    high_a, high_b = wide_a - (wide_a - a), wide_b - (wide_b - b)
    low_a, low_b = a - high_a, b - high_b
    return Split(
        total, ((high_a * high_b - total) + high_a * low_b + low_a * high_b) + low_a * low_b
    )


def pair_of(values: Integers | Fraction) -> Split:
    r"""An integer array exactly, or a rational to relative error 2^-105, as a pair.

    >>> pair_of(np.array([2**62 + 1])).low.tolist()
    [1.0]
    """
    if isinstance(values, Fraction):
        high = float(values)
        return Split(np.array([high]), np.array([float(values - Fraction(high))]))
    rounded = values.astype(np.float64)
    # 2^63 as a float does not fit int64: step such values down before looking at the error.
    safe = np.minimum(rounded, float(2**63 - 1024))
    return Split(safe, (values - safe.astype(np.int64)).astype(np.float64))


def product(a: Split, b: Split) -> Split:
    r"""a * b to relative error 2^-100.

    >>> p = product(pair_of(np.array([3])), pair_of(Fraction(1, 3)))
    >>> float(p.high[0] + p.low[0])
    1.0
    """
    high = _two_product(a.high, b.high)
    return two_sum(high.high, high.low + (a.high * b.low + a.low * b.high))


def square(a: Split) -> Split:
    r"""a * a to relative error 2^-100.

    >>> float(square(pair_of(np.array([3]))).high[0])
    9.0
    """
    return product(a, a)
