r"""Enclosures of exp, log and the normal distribution function in integer fixed-point arithmetic.

A real x is represented by an integer near x * 2^bits. Every function returns two integers (below,
above) between which the exact value lies. Proofs: docs/proofs/kernel.md.
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
    r"""Fixed point with ``bits`` fractional bits; ``tick`` is called often, and may raise.

    >>> low, high = Fixed(100).exp(1 << 100)
    >>> high - low < 8 and abs(low / 2**100 - math.e) < 1e-15
    True
    """

    def __init__(self, bits: int, tick: Callable[[], None] = lambda: None) -> None:
        self.bits, self.one, self.tick = bits, 1 << bits, tick
        self._wide: dict[int, Fixed] = {}

    @cached_property
    def peak(self) -> int:
        r"""The constant 1/sqrt(2 pi), rounded down."""
        root = math.isqrt(2 * (self._pi() + 64) << (self.bits + 64)) + 1
        return (1 << (2 * self.bits + 64)) // root

    def of(self, value: Fraction) -> tuple[int, int]:
        r"""Bounds (below, above) on the rational ``value``."""
        below = (value.numerator << self.bits) // value.denominator
        return below, below + (value * self.one != below)

    def exp(self, x: int) -> tuple[int, int]:
        r"""Bounds (below, above) on e^x."""
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

    def log(self, n: int) -> tuple[int, int]:
        r"""Bounds (below, above) on log x, x = n * 2^-bits > 0."""
        guess = math.log(n) - self.bits * math.log(2)
        start = int(Fraction(guess) * self.one)
        low, high = self.exp(-start)
        below, above = (n * low >> self.bits) - self.one, (n * high >> self.bits) + 1 - self.one
        return start + self._log1p(below)[0], start + self._log1p(above)[1]

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
        r"""An integer within 8 units of the distribution function of N(0, 1) at z."""
        far = abs(z)
        square = far * far >> self.bits
        if square > 2 * self.bits << self.bits:
            return self.one if z > 0 else 0
        # e^(-z^2/2) multiplies a sum of up to e^(z^2/2), which needs that many more bits.
        wide = self._wider((3 * square >> self.bits + 2) + 24)
        shift = wide.bits - self.bits
        far, square = far << shift, square << shift
        term, total, odd = far, far, 1
        while term:
            odd += 2
            term = (term * square >> wide.bits) // odd
            total += term
        # phi(z) (z + z^3/3 + z^5/15 + ...) is the mass of [0, z].
        mass = (wide.exp(-square >> 1)[0] * wide.peak >> wide.bits) * total >> wide.bits
        mass >>= shift
        return (self.one >> 1) + (mass if z > 0 else -mass)

    def _wider(self, more: int) -> Fixed:
        more += -more % 32
        if more not in self._wide:
            self._wide[more] = Fixed(self.bits + more, self.tick)
        return self._wide[more]

    def _pi(self) -> int:
        # Machin: pi = 16 arctan(1/5) - 4 arctan(1/239), with 64 additional bits.
        one = 1 << (self.bits + 64)

        def arctan(inverse: int) -> int:
            term = total = one // inverse
            count, sign = 1, -1
            while term:
                term //= inverse * inverse
                count += 2
                total += sign * (term // count)
                sign = -sign
            return total

        return 16 * arctan(5) - 4 * arctan(239)
