r"""Which parameters the float64 functions of a law cover; beyond them there are the enclosures."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from dpcore.errors import InvalidParameter

__all__ = ["Covered"]


@dataclass(frozen=True, slots=True)
class Covered:
    r"""``least`` <= ``quantity`` <= ``most``, the quantity an attribute of the law.

    The ends are written as powers. Where the quantity is no parameter, ``argument`` is the one that
    an error names, and ``written`` how it writes the quantity.

    >>> from dpcore.laws.discrete_laplace import DiscreteLaplace
    >>> Covered("scale", "1e-6", "2^46").check(DiscreteLaplace(scale=2**47))
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: scale = 140737488355328: the float functions cover 1e-6 <= ...
    """

    quantity: str
    least: str
    most: str
    argument: str = ""
    written: str = ""

    def check(self, law: object) -> None:
        r"""Raise :class:`InvalidParameter` for a law outside of the range."""
        if not _power(self.least) <= getattr(law, self.quantity) <= _power(self.most):
            argument = self.argument or self.quantity
            covered = f"{self.least} <= {self.written or self.quantity} <= {self.most}"
            reason = (
                f"the float functions cover {covered}; use enclose_pmf, enclose_cdf and enclose_sf"
            )
            raise InvalidParameter(argument, getattr(law, argument), reason)


@cache
def _power(text: str) -> Fraction:
    base, _, exponent = text.partition("^")
    return Fraction(base) ** int(exponent or 1)
