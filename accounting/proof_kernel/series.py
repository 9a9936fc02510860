r"""Enclosures of exp, log and the normal distribution function in integer fixed-point arithmetic.

A real x is represented by an integer near x * 2^bits. All functions but :meth:`Fixed.normal` return
two integers (below, above) between which the exact value lies. Proofs: docs/proofs/kernel.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import Final

_HALVED: Final = 8
_LARGEST: Final = 1 << 14


class Fixed:
    r"""Functions of fixed-point numbers with ``bits`` fractional bits.

    Every exponential calls ``tick``, which stops a long computation by raising an exception.

    >>> low, high = Fixed(100).exp(1 << 100)
    >>> high - low < 8 and abs(low / 2**100 - math.e) < 1e-15
    True
    """

    def __init__(self, bits: int, tick: Callable[[], None] = lambda: None) -> None:
        self.bits, self.one, self.tick = bits, 1 << bits, tick

    def of(self, value: Fraction) -> tuple[int, int]:
        r"""Integers (below, above) around the rational ``value``, in units of 2^-bits."""
        below = (value.numerator << self.bits) // value.denominator
        return below, below + (value * self.one != below)

    def exp(self, x: int) -> tuple[int, int]:
        r"""Bounds (below, above) on e^x; raises ArithmeticError if x is above 2^14."""
        self.tick()
        if x < -(self.bits + 1) * self.one:
            return 0, 1
        whole = abs(x) >> self.bits
        if x > _LARGEST << self.bits:
            raise ArithmeticError(f"exp: x must be at most {_LARGEST}")
        halved = whole.bit_length() + _HALVED
        # e^-|x| is computed with guard bits; if x > 0 its reciprocal needs relative precision.
        more = halved + 12 + (4 * whole + 4 if x > 0 else 0)
        bits = self.bits + more
        y = (abs(x) << more) >> halved
        term = total = 1 << bits
        count = 0
        while term:
            count += 1
            term = (term * y >> bits) // count
            total += term if count % 2 == 0 else -term
        for _ in range(halved):
            total = total * total >> bits
        error = (count + 4) << halved
        if x > 0:
            full = 1 << (self.bits + bits)
            return full // (total + error), full // (total - error) + 1
        return max((total - error) >> more, 0), ((total + error) >> more) + 1

    def decay(self, x: Fraction) -> tuple[int, int]:
        r"""Bounds (below, above) on e^-x for a rational x >= 0."""
        low, high = self.exp(-self.of(x)[1])
        return low, high + 1

    def log(self, n: int) -> tuple[int, int]:
        r"""Bounds (below, above) on log x, where x = n * 2^-bits > 0."""
        start = int(Fraction(math.log(n) - self.bits * math.log(2)) * self.one)
        low, high = self.exp(-start)
        ends = (n * low >> self.bits) - self.one, (n * high >> self.bits) + 1 - self.one
        return start + self._log1p(ends[0])[0], start + self._log1p(ends[1])[1]

    def _log1p(self, u: int) -> tuple[int, int]:
        if abs(u) >> (self.bits - 20):
            raise ArithmeticError("log: the initial approximation is too inaccurate")
        total, power, count = 0, u, 0
        while power not in (0, -1):
            count += 1
            total += power // count if count % 2 else -(power // count)
            power = power * u >> self.bits
        return total - 2 * count - 2, total + 2 * count + 2

    def normal(self, z: int) -> int:
        r"""The distribution function of N(0, 1) at z, within 8 units of 2^-bits."""
        mass = self._area(min(abs(z), self._far)) * self.one // (2 * self._whole)
        return (self.one >> 1) + (mass if z > 0 else -mass)

    @cached_property
    def _far(self) -> int:
        # The tail beyond z is at most e^(-z^2/2)/2, below half a unit at z^2 = 2 bits.
        return math.isqrt(2 * self.bits << 2 * self.bits)

    @cached_property
    def _whole(self) -> int:
        return self._area(self._far)

    def _area(self, z: int) -> int:
        # The integral of e^(-t^2/2) over [0, z] is e^(-z^2/2) (z + z^3/3 + z^5/15 + ...). The sum
        # is at most e^(z^2/2), so about 3/4 z^2 more bits are needed.
        more = (3 * z * z >> 2 * self.bits + 2) + 24
        wide = Fixed(self.bits + more, self.tick)
        z <<= more
        square = z * z >> wide.bits
        term, total, odd = z, z, 1
        while term:
            odd += 2
            term = (term * square >> wide.bits) // odd
            total += term
        return (wide.exp(-square >> 1)[0] * total >> wide.bits) >> more
