r"""Ball arithmetic helpers for searches over losses."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import reduce
from typing import Final

from flint import arb

from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import ball

BEYOND_FLOATS: Final = (
    "a parameter or a privacy loss is outside the range of floats (1e-308 to 1e308): use less "
    "extreme numbers"
)
r"""The error message for numbers outside the range of floats."""

_MOST_EXPONENT: Final = 1 << 24  # fractions with this many bits are already slow


def as_ball(value: Fraction | arb) -> arb:
    r"""A ball around an exact or enclosed number."""
    return ball(value) if isinstance(value, Fraction) else value


def hull(values: Iterable[arb]) -> arb:
    r"""A ball that contains every number in ``values``.

    >>> 1 in hull([arb(0), arb(2)]), arb(3) in hull([arb(0), arb(2)])
    (True, False)
    """
    return reduce(arb.union, values)


def middle(value: arb) -> Fraction:
    r"""The midpoint of a finite ball; used only by searches, never for reported values.

    It is exact, except that very small values become 0. Raises :class:`PrecisionExhausted` for very
    large values.

    >>> middle(arb("0.5"))
    Fraction(1, 2)
    """
    mantissa, exponent = (int(part) for part in value.mid().man_exp())
    if exponent < -_MOST_EXPONENT:
        return Fraction(0)
    if exponent > _MOST_EXPONENT:
        raise PrecisionExhausted(BEYOND_FLOATS)
    return Fraction(mantissa << exponent) if exponent >= 0 else Fraction(mantissa, 1 << -exponent)
