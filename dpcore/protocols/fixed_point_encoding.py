r"""Fixed-point encoding of reals in [0, 1] with exact randomised rounding.

With g = ``precision`` steps per unit, x becomes floor(x g) + Bernoulli(x g - floor(x g)). The
expectation is exactly x g, so a sum of encodings is an unbiased estimate of g times the sum. This
is line 3 of Algorithm 2 in Chowdhury and Zhou (arXiv 2206.05772), without floating-point error.
Proofs: docs/proofs/protocol.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import Floats, Integers, refuse_masked
from dpcore.numbers.parameter import Of, RationalLike, Whole, check_fields, integer, rational
from dpcore.sampling.bernoulli import bernoulli
from dpcore.sampling.inversion import BLOCK
from dpcore.sampling.rng import SYSTEM, Rng

RealsLike: TypeAlias = npt.NDArray[Any] | list[Any] | tuple[Any, ...]
"""Many reals: an array of floats or integers, or a sequence that numpy converts to one."""

MOST_STEPS: Final = 1 << 40
"""The largest precision for which floats compute the integer part exactly (see the proof)."""

_SCALE_BITS: Final = 62
_RANGE: Final = "must lie in [0, 1]; clamp=True clips it"
_KIND: Final = "must be an array of float64 or integers, or of dtype object for exact rationals"


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPoint:
    r"""Encode x in [0, 1] as an integer by randomised rounding of x g, g = ``precision``.

    E(x) = floor(x g) + Bernoulli(x g - floor(x g)), g >= 1. E[E(x)] = x g, and E(x) is floor(x g)
    or ceil(x g), so replacing one value changes a sum by at most g. A float is read as its exact
    binary value, not as its decimal form; write ``"0.1"`` or ``Fraction(1, 10)`` for one tenth.

    ``clamp=True`` clips values outside [0, 1]; otherwise they raise :class:`InvalidParameter`, as
    infinite values and nan always do.

    >>> from dpcore import SeededRng
    >>> encoding = FixedPoint(precision=10)
    >>> encoding.encode("0.3"), encoding.encode(1.0), encoding.decode(3)
    (3, 10, Fraction(3, 10))
    >>> encoding.encode([0.25] * 8, rng=SeededRng(1)).tolist()
    [2, 3, 3, 2, 2, 2, 3, 3]

    Raises :class:`InvalidParameter` if the precision is not an integer in [1, 2^40].
    """

    precision: Whole = Whole(at_most=MOST_STEPS)
    clamp: Of[bool] = Of(bool, "must be True or False", default=False)

    def __post_init__(self) -> None:
        check_fields(self)

    @overload
    def encode(self, x: RationalLike, *, rng: Rng = ...) -> int: ...
    @overload
    def encode(self, x: RealsLike, *, rng: Rng = ...) -> Integers: ...
    def encode(self, x: RationalLike | RealsLike, *, rng: Rng = SYSTEM) -> int | Integers:
        r"""Encode x as a number of steps: an int, or an int64 array with the shape of ``x``.

        The values of an object array are encoded one by one.

        Raises :class:`InvalidParameter`, before any draw, if a value is outside [0, 1] (unless
        ``clamp``), infinite, nan, or not a number.
        """
        if not isinstance(rng, Rng):
            raise InvalidParameter("rng", rng, "must be a dpcore Rng: SystemRng() or SeededRng(n)")
        if isinstance(x, np.ndarray) and x.dtype.kind == "O":
            exact = [self._checked(value) for value in x.reshape(-1)]
            each = [_encode_one(value * self.precision, rng) for value in exact]
            return np.array(each, dtype=np.int64).reshape(x.shape)
        if isinstance(x, (list, tuple)) or (isinstance(x, np.ndarray) and x.shape):
            values = self._checked_array(x)
            return _encode_all(values.reshape(-1), self.precision, rng).reshape(values.shape)
        single = self._checked(x[()] if isinstance(x, np.ndarray) else x)
        return _encode_one(single * self.precision, rng)

    @overload
    def decode(self, total: int) -> Fraction: ...
    @overload
    def decode(self, total: npt.NDArray[np.integer[Any]]) -> Floats: ...
    def decode(self, total: int | npt.NDArray[np.integer[Any]]) -> Fraction | Floats:
        r"""Return ``total``/``precision``: the exact rational, or the nearest floats for an array.

        Array entries beyond 2^53 are also rounded to a float before the division.
        """
        if not isinstance(total, np.ndarray):
            return Fraction(integer("total", total), self.precision)
        if total.dtype.kind not in "iu":
            raise InvalidParameter("total", total, "must contain integers")
        return total.astype(np.float64) / self.precision

    def _checked(self, x: object) -> Fraction:
        exact = _exactly(x)
        if self.clamp:
            return min(max(exact, Fraction(0)), Fraction(1))
        if not 0 <= exact <= 1:
            raise InvalidParameter("x", x, _RANGE)
        return exact

    def _checked_array(self, x: RealsLike) -> Floats:
        given = as_array(x)
        # A float of more than 64 bits would lose digits on the way to float64.
        if given.dtype.kind not in "iuf" or given.dtype.itemsize > 8:
            raise InvalidParameter("x", x, _KIND)
        if not given.size:
            return np.zeros(given.shape)
        if given.dtype.kind == "f" and not np.isfinite([given.min(), given.max()]).all():
            raise InvalidParameter("x", x, "must contain finite numbers")
        if self.clamp:
            given = np.clip(given, 0, 1)
        elif not (given.min() >= 0 and given.max() <= 1):
            raise InvalidParameter("x", x, _RANGE)
        return given.astype(np.float64, copy=False)


def as_array(x: RealsLike) -> npt.NDArray[Any]:
    r"""Convert ``x`` to a numpy array; raises :class:`InvalidParameter` if it is ragged."""
    refuse_masked("x", x)
    try:
        return np.asarray(x)
    except ValueError:
        raise InvalidParameter("x", x, _KIND) from None


def _exactly(x: object) -> Fraction:
    if isinstance(x, (float, np.floating)):
        if not math.isfinite(x):
            raise InvalidParameter("x", float(x), "must be a finite number")
        return Fraction(*x.as_integer_ratio())
    return rational("x", x)


def _encode_one(steps: Fraction, rng: Rng) -> int:
    whole = math.floor(steps)
    return whole + bernoulli(rng, steps - whole)


def _encode_all(x: Floats, steps: int, rng: Rng) -> Integers:
    encoded = np.empty(len(x), dtype=np.int64)
    for start in range(0, len(x), BLOCK):
        piece = slice(start, start + BLOCK)
        encoded[piece] = _encode_block(x[piece], steps, rng.words(len(x[piece])), rng)
    return encoded


def _encode_block(x: Floats, steps: int, words: npt.NDArray[np.uint64], rng: Rng) -> Integers:
    # E(x) = floor(x g + U) for a uniform U with leading word u. In units of 2^-64, x g is
    # I 2^64 + f + (less than 4g), with f from the first 62 bits of x, and U is u + (less than 1).
    # f + u decides whether the sum reaches the next integer, unless f + u mod 2^64 lies within 4g
    # of 2^64. This has probability 4g/2^64 for every x, and then the comparison is made exactly.
    leading = (x * 2.0**_SCALE_BITS).astype(np.int64).view(np.uint64)
    fraction = leading * np.uint64(4 * steps)  # mod 2^64: the integer part vanishes
    # x g - f/2^64 is within 2^-12 of the integer I, so 11 bits of f can be dropped.
    near = x * float(steps) - (fraction >> np.uint64(11)).view(np.int64) * 2.0**-53
    fraction += words
    encoded: Integers = np.rint(near).astype(np.int64)
    encoded += fraction < words
    for place in np.flatnonzero(fraction >= np.uint64((1 << 64) - 4 * steps)):
        exact = Fraction(float(x[place])) * steps
        encoded[place] = _settle(exact, int(words[place]), rng.bits)
    return encoded


def _settle(exact: Fraction, word: int, more: Callable[[int], int]) -> int:
    # floor(exact + U) for a dyadic rational; U needs at most as many bits as that rational has.
    bits, drawn = 64, word
    while True:
        low = math.floor(exact + Fraction(drawn, 1 << bits))
        if exact + Fraction(drawn + 1, 1 << bits) <= low + 1:
            return low
        drawn = (drawn << 64) | more(64)
        bits += 64
