r"""Exact integers out of irrational formulas, and the arguments that the papers share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from flint import arb

from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.numbers.enclosure import Enclosure, ball, precision
from dpcore.numbers.parameter import integer, positive_rational, rational, rational_in

__all__ = [
    "WIDTH_BITS",
    "BitNoise",
    "ceil_sqrt",
    "ceiling",
    "delta_of",
    "epsilon_of",
    "failure_of",
    "log_of",
    "scaling_of",
    "users_of",
]

WIDTH_BITS: Final = 64
"""Enclosures of irrational parameters have this relative width."""

_START: Final = 96
_MOST_BITS: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BitNoise:
    r"""What a shuffle protocol of bits chooses: g encoding bits and b noise bits of a user.

    ``probability`` is that of each noise bit, enclosed: it is irrational in general.
    """

    users: int
    precision: int
    bits: int
    probability: Enclosure

    @property
    def trials(self) -> int:
        r"""All the noise bits of a coordinate."""
        return self.users * self.bits

    @property
    def variance(self) -> Enclosure:
        r"""Of the noise of a coordinate, in steps: n b p (1-p)."""
        low, high = Fraction(self.probability.lower), Fraction(self.probability.upper)
        # p (1-p) rises up to 1/2.
        if high <= Fraction(1, 2):
            return Enclosure(self.trials * low * (1 - low), self.trials * high * (1 - high))
        return Enclosure(Fraction(0), Fraction(self.trials, 4))


def ceil_sqrt(squared: Fraction) -> int:
    r"""The least integer k with k^2 >= ``squared``.

    >>> ceil_sqrt(Fraction(16)), ceil_sqrt(Fraction(33, 2))
    (4, 5)
    """
    # k^2 is an integer, so it is >= squared when it is >= its ceiling.
    least = math.ceil(squared)
    root = math.isqrt(least)
    return root if root * root == least else root + 1


def ceiling(compute: Callable[[], arb]) -> int:
    r"""The least integer >= an irrational number, from balls of rising precision.

    >>> ceiling(lambda: arb(2).sqrt())
    2

    Raises :class:`PrecisionExhausted` for a number that 2^16 bits do not tell from an integer.
    """
    bits = _START
    while bits <= _MOST_BITS:
        with precision(bits):
            found = compute().ceil().unique_fmpz()
        if found is not None:
            return int(found)
        bits *= 2
    raise PrecisionExhausted(f"a ceiling is not decided by {_MOST_BITS} bits")


def log_of(value: Fraction) -> Callable[[], arb]:
    r"""ln(value), at the precision of the moment."""
    return lambda: ball(value).log()


def users_of(value: object) -> int:
    r"""n >= 1."""
    return integer("users", value, at_least=1)


def epsilon_of(value: object) -> Fraction:
    r"""epsilon > 0."""
    return positive_rational("epsilon", value, "no noise gives epsilon 0")


def scaling_of(value: object) -> Fraction:
    r"""s >= 1."""
    exact = rational("scaling", value)
    if exact < 1:
        raise InvalidParameter("scaling", value, "must be >= 1")
    return exact


def failure_of(value: object) -> Fraction:
    r"""p in (0, 1)."""
    return rational_in("failure", value, "(0, 1)")


def delta_of(value: object) -> Fraction:
    r"""delta in (0, 1)."""
    return rational_in("delta", value, "(0, 1)")
