r"""Convert input to integer arrays, and evaluate float64 functions with proven error bounds.

numpy does not guarantee the last bits of its exp, so the exponential here uses tables of values
that are computed as balls and rounded once, and a Taylor polynomial in +, - and *, which IEEE 754
rounds correctly. The bounds are derived in docs/proofs/numbers.md:

    |exp_neg(x) - e^(-x)| <= 2^-48 e^(-x)           for 0 <= x <= 700,
    |log1p(x) - log(1 + x)| <= 2^-48 |log(1 + x)|   for 2^-1000 - 1 <= x <= 2^1000.
"""

from __future__ import annotations

import math
import sys
from contextlib import AbstractContextManager
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from flint import arb

from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import nearest, precision
from dpcore.numbers.parameter import integer

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
IntegersLike = int | npt.NDArray[Any] | list[Any] | tuple[Any, ...]

EXP_NEG_ERROR: Final = 2.0**-48
LOG1P_ERROR: Final = 2.0**-48
_STEPS: Final = 64
_LARGEST: Final = 745
_ROOT_HALF: Final = 0.7071
_SHORT: Final = 1024
_FAR: Final = 2.0**1000  # no sum of at most _SHORT smaller numbers overflows
_LOG_TWO: Final = 0.6931471805599453
_SPLITTER: Final = 2.0**27 + 1


class Split(NamedTuple):
    r"""An unevaluated sum high + low of two floats, with twice the precision of one float."""

    high: Floats
    low: Floats


@cache
def _tables() -> tuple[Floats, Floats]:
    with precision(96):
        whole = np.array([nearest((-arb(j)).exp()) for j in range(_LARGEST + 2)])
        part = np.array([nearest((-arb(j) / _STEPS).exp()) for j in range(_STEPS)])
    return whole, part


def exp_neg(x: Floats) -> Floats:
    r"""Return e^(-x) for x >= 0, with relative error <= 2^-48 up to x = 700; 0 beyond 745."""
    whole, part = _tables()
    clipped = np.minimum(x, _LARGEST + 0.5)
    cell = np.floor(clipped * _STEPS)
    rest = clipped - cell / _STEPS  # exact: multiples of ulp(clipped), with a smaller result
    index = cell.astype(np.int64)
    # Taylor to order 7 on [0, 1/64]: the remainder is below (1/64)^8/8! < 2^-63.
    series = rest * (-1 / 5040) + 1 / 720
    for coefficient in (-1 / 120, 1 / 24, -1 / 6, 1 / 2, -1.0, 1.0):
        series = series * rest + coefficient
    value: Floats = whole[index >> 6] * part[index & 63] * series
    return np.where(x > _LARGEST, 0.0, value)


def log1p(x: Floats) -> Floats:
    r"""Return log(1 + x) for x > -1, with relative error at most 2^-48."""
    near = (x >= -0.25) & (x <= 0.5)
    mantissa, exponent = np.frexp(np.where(near, 1.0, 1.0 + x))
    low = mantissa < _ROOT_HALF
    mantissa, exponent = np.where(low, 2 * mantissa, mantissa), exponent - low
    # 2 atanh s, s = x/(2 + x): |s| <= 1/5, so the remainder is below s^27/27 < 2^-62 s.
    s = np.where(near, x / (2.0 + np.where(near, x, 0.0)), (mantissa - 1.0) / (mantissa + 1.0))
    square_of_s = s * s
    series = np.full_like(s, 1 / 25)
    for odd in range(23, 2, -2):
        series = series * square_of_s + 1 / odd
    value: Floats = 2 * s + 2 * s * square_of_s * series
    return np.where(near, value, exponent * _LOG_TWO + value)


def two_sum(a: Floats, b: Floats) -> Split:
    r"""Return the exact sum a + b as the rounded sum and its rounding error (Knuth 1969)."""
    total = a + b
    back = total - a
    return Split(total, (a - (total - back)) + (b - back))


def two_product(a: Floats, b: Floats) -> Split:
    r"""Return the product a b as the rounded product and its rounding error (Dekker 1971).

    The result is exact if each factor is 0 or has a magnitude between 2^-200 and 2^200, so that
    nothing overflows or underflows.
    """
    total = a * b
    wide_a, wide_b = a * _SPLITTER, b * _SPLITTER
    high_a, high_b = wide_a - (wide_a - a), wide_b - (wide_b - b)
    low_a, low_b = a - high_a, b - high_b
    return Split(
        total, ((high_a * high_b - total) + high_a * low_b + low_a * high_b) + low_a * low_b
    )


def compensated_sum(values: Floats) -> tuple[float, float]:
    r"""Return the sum of ``values`` by pairwise compensated summation, and a bound on its error.

    The rounding error of each addition is computed exactly (Knuth 1969) and added to a second sum.
    Errors remain only in the second sum and in the final addition of the two sums. A short sum of
    finite values is rounded once (:func:`math.fsum`).
    """
    if len(values) <= _SHORT and np.isfinite(values).all() and np.abs(values).max(initial=0) < _FAR:
        exact = math.fsum(values.tolist())
        return exact, 2.0**-53 * abs(exact)
    count, low, size = len(values), 0.0, 0.0
    with np.errstate(invalid="ignore"):  # a sum of infinities of both signs is nan
        while len(values) > 1:
            half = len(values) // 2
            pairs = two_sum(values[:half], values[half : 2 * half])
            low += float(pairs.low.sum())
            size += float(np.abs(pairs.low).sum())
            values = np.concatenate((pairs.high, values[2 * half :]))
    total = float(values.sum()) + low
    return total, 3 * (count + 1) * (1 + 2.0**-20) * 2.0**-53 * size + 2.0**-53 * abs(total)


def pair_of(values: Integers | Fraction) -> Split:
    r"""Convert integers (exactly) or a rational (relative error 2^-105) to a :class:`Split`."""
    if isinstance(values, Fraction):
        high = float(values)
        return Split(np.array([high]), np.array([float(values - Fraction(high))]))
    rounded = values.astype(np.float64)
    # The float 2^63 does not fit int64, so values are capped before the error is computed.
    safe = np.minimum(rounded, float(2**63 - 1024))
    return Split(safe, (values - safe.astype(np.int64)).astype(np.float64))


def product(a: Split, b: Split) -> Split:
    r"""Return the product a b with relative error at most 2^-100."""
    high = two_product(a.high, b.high)
    return two_sum(high.high, high.low + (a.high * b.low + a.low * b.high))


def decayed(exponent: Split) -> Floats:
    r"""Return e^(-|x|) for x = high + low, with relative error <= 2^-47 up to |x| = 700."""
    # + 0.0: where the exponential is 0 the low part may exceed 1, and -0 must not be returned.
    low = np.where(exponent.high < 0, -exponent.low, exponent.low)
    value: Floats = exp_neg(np.abs(exponent.high)) * (1 - low) + 0.0
    return value


def refuse_masked(argument: str, value: object) -> None:
    r"""Raise an error for masked entries, because numpy would read the numbers under the mask."""
    if isinstance(value, np.ndarray) and np.any(getattr(value, "mask", False)):
        must = "must not have masked entries: fill or remove them first"
        raise InvalidParameter(argument, "(not shown)", must)


def integers(k: IntegersLike) -> Integers:
    r"""Return ``k`` as a flat int64 array, or raise :class:`InvalidParameter`."""
    try:
        array = np.asarray(k)
    except ValueError:
        raise InvalidParameter("k", k, "must be an integer or an array of integers") from None
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    if array.dtype.kind not in "iu":
        reason = (
            "must fit in int64; enclose_pmf, enclose_cdf and enclose_sf take any integer"
            if array.dtype.kind == "O"
            else "must be an integer or an array of integers"
        )
        raise InvalidParameter("k", k, reason)
    if array.dtype.kind == "u" and bool(np.any(array > np.uint64(2**63 - 1))):
        raise InvalidParameter("k", k, "must fit in int64")
    return array.astype(np.int64).reshape(-1)


def shaped(k: IntegersLike, values: Floats) -> float | Floats:
    r"""Reshape the flat ``values`` to the shape of ``k``; return a float for an integer ``k``."""
    shape = np.shape(k)
    return values.reshape(shape) if shape else float(values[0])


def shape_of(size: int | tuple[int, ...]) -> tuple[int, ...]:
    r"""Return ``size`` as a shape tuple; raise an error if it is too large or negative."""
    parts = size if isinstance(size, tuple) else (size,)
    shape = tuple(integer("size", part, at_least=0) for part in parts)
    if math.prod(shape) >= 1 << 60 or max(shape, default=0) >= 1 << 60:
        raise InvalidParameter("size", size, "does not fit in memory")
    return shape


def one_thread() -> AbstractContextManager[object]:
    r"""Return a context in which BLAS runs in the calling thread.

    For small matrices, threads spend more time waiting than computing, especially on a busy
    machine.
    """
    # Finding the loaded libraries takes milliseconds; only an import can load another one.
    found: AbstractContextManager[object] = _libraries(len(sys.modules)).limit(limits=1)
    return found


@lru_cache(maxsize=1)
def _libraries(_modules: int) -> Any:
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # it has no types

    return ThreadpoolController().select(user_api="blas")
