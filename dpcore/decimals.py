r"""Bounds as a person reads them: a few decimals, rounded in the direction that keeps the bound."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext

from dpcore.enclosure import End

__all__ = ["down", "up"]


def down(value: End, digits: int = 4) -> str:
    r"""``value`` in decimals, rounded down: for a lower bound.

    >>> down(1.98366), up(0.00052604, 2), down(20.0), down(1e-9)
    ('1.983', '0.00053', '20', '1e-9')
    """
    return _rounded(value, digits, ROUND_FLOOR)


def up(value: End, digits: int = 4) -> str:
    r"""``value`` in decimals, rounded up: for an upper bound."""
    return _rounded(value, digits, ROUND_CEILING)


def _rounded(value: End, digits: int, rounding: str) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "infinity"
    with localcontext(prec=digits, rounding=rounding):
        numerator, denominator = value.as_integer_ratio()
        exact = (Decimal(numerator) / Decimal(denominator)).normalize()
        if not exact or -6 < exact.adjusted() < 12:
            return f"{exact:f}"
        return f"{exact:e}"
