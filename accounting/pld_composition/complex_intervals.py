r"""Arithmetic on arrays of discs in the complex plane, with floating-point centres and radii.

Floats are only multiplied, added, divided or subjected to square roots. These operations are
correctly rounded (IEEE 754 double, to nearest), and each has an a-priori error bound in units of
u = 2^-53. Sines and exponentials have no such bound, so :func:`circle` multiplies entries of a
table, computed once in ball arithmetic, by short Taylor polynomials. Proofs:
docs/proofs/total_loss.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from flint import acb, arb

from dpcore.numbers.arrays import compensated_sum
from dpcore.numbers.enclosure import nearest, precision

Floats: TypeAlias = npt.NDArray[np.float64]
Complexes: TypeAlias = npt.NDArray[np.complex128]
Integers: TypeAlias = npt.NDArray[np.int64]
Turns: TypeAlias = npt.NDArray[np.uint64]

UNIT: Final = 2.0**-53
"""The unit roundoff u: a correctly rounded operation is exact up to a factor 1 + t, |t| <= u."""

SLACK: Final = 1 + 2.0**-44
"""Covers the rounding of a bound computed with fewer than 250 operations on numbers >= 0."""

TINY: Final = 2.0**-400
"""Added to every modulus: an upper bound on the total underflow."""

PRODUCT: Final = 2.2361 * UNIT
"""sqrt(5) u, rounded up: the relative error of a complex product (Brent et al. 2007)."""

CIRCLE: Final = 5 * UNIT
"""The largest error of :func:`circle`."""

TURN_BITS: Final = 128
"""A full turn is 2^128 in fixed point."""

_TABLE_BITS: Final = 8
_REST: Final = np.uint64(64 - _TABLE_BITS)


def gamma(operations: int) -> float:
    r"""The relative error n u/(1 - n u) of n = ``operations`` roundings (Higham 2002), rounded up.

    >>> gamma(1) > UNIT
    True
    """
    return operations * UNIT / (1 - operations * UNIT) * SLACK


def product_error(terms: int) -> float:
    r"""The relative error of sums of n = ``terms`` complex products, in any order of summation.

    The bound holds whether a complex matrix product uses four or three real products (Higham 2002,
    Section 23.2.4).

    >>> product_error(1) > 4 * UNIT
    True
    """
    return max(math.sqrt(2) * gamma(2 * terms), 3.42 * gamma(terms + 4)) * SLACK


def sizes(values: Complexes) -> Floats:
    r"""Positive upper bounds on the moduli of ``values``.

    >>> sizes(np.array([3 + 4j])).item() >= 5
    True
    """
    found: Floats = values.real * values.real
    found += values.imag * values.imag
    np.sqrt(found, out=found)
    found *= SLACK
    found += TINY
    return found


@dataclass(frozen=True, slots=True)
class Discs:
    r"""Discs that contain complex numbers x_i: |x_i - ``centres[i]``| <= ``radii[i]``.

    >>> third = Discs(np.array([1 / 3 + 0j]), np.array([2.0**-54]))
    >>> ninth = third.power(2)
    >>> abs(ninth.centres[0] * 9 - 1).item() < 9 * ninth.radii.item() < 2.0**-50
    True
    """

    centres: Complexes
    radii: Floats

    @classmethod
    def relative(cls, centres: Complexes, error: float | Floats) -> Discs:
        r"""Discs whose radii are ``error`` times the moduli of their centres."""
        return cls(centres, sizes(centres) * error * SLACK)

    def times(self, other: Discs) -> Discs:
        r"""Discs that contain the products x_i y_i, where ``other`` contains the y_i."""
        here = sizes(self.centres)
        there = here if other is self else sizes(other.centres)
        # Step by step in place: new memory for each step would take most of the time.
        with np.errstate(over="ignore"):  # a radius may be infinite
            radii, far = here * other.radii, there + other.radii
            far *= self.radii
            radii += far
            np.multiply(PRODUCT, here, out=far)
            far *= there
            radii += far
            radii *= SLACK
            return Discs(self.centres * other.centres, radii)

    def power(self, exponent: int) -> Discs:
        r"""Discs that contain the powers x_i^n for n = ``exponent`` >= 1."""
        if exponent == 1:
            return self
        half = self.power(exponent // 2)
        square = half.times(half)
        return square.times(self) if exponent % 2 else square

    def real_sum(self) -> tuple[float, float]:
        r"""The approximate real part of sum x_i, and an upper bound on its error.

        >>> Discs(np.array([1 + 1j, 2 - 5j]), np.array([0.0, 0.25])).real_sum()[0]
        3.0
        """
        total, rounding = compensated_sum(self.centres.real)
        radii = float(self.radii.sum()) * (1 + 2 * gamma(len(self.radii)))
        return total, (radii + rounding) * SLACK + TINY


def circle(turns: Turns) -> Complexes:
    r"""The points e^(2 pi i t/2^64) for the integers t in ``turns``, within the error CIRCLE.

    >>> quarter = circle(np.array([1 << 62], dtype=np.uint64))
    >>> abs(quarter.item() - 1j) < CIRCLE
    True
    """
    nearest_entry = (turns + (np.uint64(1) << (_REST - np.uint64(1)))) >> _REST
    rest = (turns - (nearest_entry << _REST)).view(np.int64)
    angle = rest * (math.tau / 2.0**64)
    square = angle * angle
    moved = np.empty(angle.shape, dtype=np.complex128)
    moved.real = square * (-0.5 + square * (1 / 24 - square * (1 / 720)))
    moved.imag = angle * (1 + square * (-1 / 6 + square * (1 / 120)))
    entry = _table()[nearest_entry]
    found: Complexes = entry + entry * moved
    return found


def fixed_point(turns: list[arb]) -> tuple[Turns, Turns]:
    r"""The floors of the midpoints of ``turns``, mod 2^128, as arrays of high and low 64-bit words.

    >>> high, low = fixed_point([arb(-1), arb(2) ** 64 + 4096])
    >>> [hex(x) for x in high.tolist()], [hex(x) for x in low.tolist()]
    (['0xffffffffffffffff', '0x1'], ['0xffffffffffffffff', '0x1000'])
    """
    words = b"".join([_floor(turn).to_bytes(TURN_BITS // 8, "little") for turn in turns])
    pairs = np.frombuffer(words, dtype="<u8").reshape(-1, 2).astype(np.uint64)
    return pairs[:, 1], pairs[:, 0]


def _floor(turn: arb) -> int:
    mantissa, exponent = turn.mid().man_exp()
    whole, shift = int(mantissa), int(exponent)
    return (whole << shift if shift >= 0 else whole >> -shift) & ((1 << TURN_BITS) - 1)


def multiples(high: Turns, low: Turns, counts: Integers) -> Turns:
    r"""The fractional part of n f, in units of 2^-64, for each n in ``counts``.

    f is the fraction of a full turn with the 64-bit words ``high`` and ``low``, in units of 2^-128.
    Results are too small by at most 3 units. Each n must satisfy 0 <= n < 2^62.

    >>> word = np.array([1], dtype=np.uint64)
    >>> multiples(word, word << np.uint64(63), np.array([0, 2, 5, 1 << 40])).tolist()
    [0, 3, 7, 1649267441664]
    """
    n, half, mask = counts.astype(np.uint64), np.uint64(32), np.uint64((1 << 32) - 1)
    top, bottom = n >> half, n & mask
    above, below = low >> half, low & mask
    found: Turns = n * high + top * above
    found += ((top * below) >> half) + ((bottom * above) >> half)
    return found


def upward(value: arb) -> float:
    r"""An upper bound on the nonnegative ball ``value``; infinite if the ball is unbounded."""
    top = value.upper()
    return float(top) * SLACK + TINY if top.is_finite() else math.inf


@lru_cache(maxsize=1)
def _table() -> Complexes:
    count = 1 << _TABLE_BITS
    with precision(128):
        found = [acb(2 * arb(n) / count).exp_pi_i() for n in range(count)]
        entries = [complex(nearest(z.real), nearest(z.imag)) for z in found]
    return np.array(entries, dtype=np.complex128)
