r"""Round significance levels and p-values for reports: always upwards."""

from __future__ import annotations

from fractions import Fraction

from dpcore.numbers.enclosure import round_up
from dpcore.numbers.parameter import RationalLike, rational
from dpcore.numbers.rounding import up

__all__ = ["level_upper", "shown_p_value"]


def level_upper(alpha: RationalLike) -> float:
    r"""The float that reads as ``alpha`` by its shortest decimal form, else the next one above.

    >>> level_upper("0.3"), level_upper("1/3") >= Fraction(1, 3) > 1 / 3
    (0.3, True)
    """
    exact = rational("alpha", alpha)
    return float(exact) if Fraction(str(float(exact))) == exact else round_up(exact)


def shown_p_value(value: float) -> str:
    r"""A p-value in three digits, rounded up; a bound where it is too small for a float.

    >>> shown_p_value(0.0012345), shown_p_value(0.0)
    ('0.00124', 'below 1e-300')
    """
    return "below 1e-300" if value < 1e-300 else up(value, 3)
