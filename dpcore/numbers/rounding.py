r"""Directed rounding of bounds to a few significant digits."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction

from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import End

_BITS = 4096
_LONGEST = 30
_BRIEF = 12


def down(value: End, digits: int = 4) -> str:
    r"""Format ``value`` rounded down to ``digits`` significant digits, for a lower bound."""
    return _rounded(value, digits, ROUND_FLOOR)


def up(value: End, digits: int = 4) -> str:
    r"""Format ``value`` rounded up to ``digits`` significant digits, for an upper bound."""
    return _rounded(value, digits, ROUND_CEILING)


def exactly(value: Fraction) -> str:
    r"""Format ``value`` exactly, as a decimal if thirty digits suffice, otherwise as a fraction."""
    text = down(value, _LONGEST)
    return text if Fraction(text) == value else str(value)


def shortest(value: Fraction) -> str:
    r"""Format ``value`` exactly, as the shorter of decimal and fraction; decimal on a tie."""
    return min(exactly(value), str(value), key=len)


def brief(value: Fraction, rounded: Callable[[End, int], str]) -> str:
    """Format ``value`` exactly if twelve characters suffice, otherwise to 6 significant digits.

    ``rounded`` is the function :func:`down` or :func:`up`.
    """
    text = min(str(value), exactly(value), key=len)
    return text if len(text) <= _BRIEF else rounded(value, 6)


def _rounded(value: End, digits: int, rounding: str) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            raise InvalidParameter("value", value, "must be a number, not nan")
        return "infinity" if value > 0 else "-infinity"
    with localcontext(prec=digits, rounding=rounding, Emin=MIN_EMIN, Emax=MAX_EMAX):
        exact = _quotient(*value.as_integer_ratio(), digits, rounding).normalize()
        if not exact or -6 < exact.adjusted() < 12:
            return f"{exact:f}"
        return f"{exact:e}"


def _quotient(numerator: int, denominator: int, digits: int, rounding: str) -> Decimal:
    # Numbers with millions of digits are first reduced to a few more digits than are needed:
    # Decimal is slow for such numbers, and int is not.
    if max(abs(numerator).bit_length(), denominator.bit_length()) <= _BITS:
        return Decimal(numerator) / Decimal(denominator)
    decades = (abs(numerator).bit_length() - denominator.bit_length()) * math.log10(2)
    places = digits + 3 - math.floor(decades)
    top = abs(numerator) * 10 ** max(places, 0)
    whole, rest = divmod(top, denominator * 10 ** max(-places, 0))
    away = (rounding == ROUND_CEILING) == (numerator > 0)
    whole += 1 if rest and away else 0
    return Decimal(whole if numerator > 0 else -whole).scaleb(-places)
