"""Precision helpers of the reference implementations: mpmath at a stated number of digits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from mpmath import mp, mpf

from dpcore import Enclosure

Real = Any  # mpmath ships no types


@contextmanager
def digits(count: int) -> Iterator[None]:
    r"""Work at ``count`` decimal digits."""
    with mp.workdps(count):
        yield


def real(value: Fraction | float | str | Real) -> Real:
    r"""A rational as an mpf, rounded once; an mpf as it is."""
    if isinstance(value, mpf):
        return value
    exact = Fraction(value)
    return mpf(exact.numerator) / exact.denominator


def holds(enclosure: Enclosure, value: Real, digits: int = 55) -> bool:
    r"""lower <= value <= upper, to so many digits; an exact 0 must be known exactly."""
    slack = abs(value) * mpf(10) ** -digits
    lower, upper = Fraction(enclosure.lower), Fraction(enclosure.upper)
    return bool(real(lower) <= value + slack and value - slack <= real(upper))


def floor_to(value: Real, bits: int) -> Fraction:
    r"""Return the multiple of 2^-bits at or below a positive mpf, as an exact rational."""
    return Fraction(int(mp.floor(mp.ldexp(value, bits))), 1 << bits)


def next_to(border: Real) -> list[Fraction]:
    r"""Return numbers next to a probability: at tiny distances, words, and the margin of floats."""
    word = 1 << 64
    exact = floor_to(border, 700)
    steps = [Fraction(1, 1 << depth) for depth in (63, 64, 65, 66, 100, 128, 190, 256)]
    steps += [exact / (1 << depth) for depth in (20, 38, 39, 40, 41, 44, 48, *range(50, 55), 60)]
    cells = [Fraction(int(exact * word) + off, word) for off in (-2, -1, 0, 1, 2)]
    cells += [
        cell + rest
        for cell in cells
        for rest in (exact % Fraction(1, word), (1 - Fraction(1, word)) / word)
    ]
    found = [exact + sign * step for step in steps for sign in (1, -1)]
    return [v for v in dict.fromkeys([*found, *cells]) if 0 < v < 1]
