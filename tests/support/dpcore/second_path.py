r"""What the second path of every law shares: mpmath at a stated number of digits, and nothing else.

The laws themselves, told a second time, are in tests/dpcore/laws/.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from mpmath import mp, mpf

Real = Any  # mpmath ships no types


@contextmanager
def digits(count: int) -> Iterator[None]:
    r"""Work at ``count`` decimal digits."""
    with mp.workdps(count):
        yield


def real(value: Fraction | int) -> Real:
    r"""A rational as an mpf, rounded once."""
    exact = Fraction(value)
    return mpf(exact.numerator) / exact.denominator


def floor_to(value: Real, bits: int) -> Fraction:
    r"""The multiple of 2^-bits at or below a positive mpf, as an exact rational."""
    return Fraction(int(mp.floor(mp.ldexp(value, bits))), 1 << bits)
