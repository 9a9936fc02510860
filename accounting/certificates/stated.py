r"""Claims of a certificate: enclosures as decimals that are one unit of the last digit apart.

The truth lies at least a sixteenth of a unit inside either end, so that an estimate with a much
smaller error can tell the stated pair from every other pair of neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from accounting.certificates.form import THEOREMS
from accounting.claims.bound import Bound
from accounting.errors import NotDerived
from accounting.kernel.exact import exact_value
from accounting.kernel.laws import Refused
from accounting.kernel.neighbours import Part
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.parameter import write_rational

FEWEST_DIGITS: Final = 3
"""Below this many significant digits no claim is worth making."""

_MARGIN: Final = Fraction(1, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    r"""A requested claim: a quantity, its argument, and the engine that bounds it."""

    quantity: str
    key: str
    at: Fraction
    bound: Callable[[Fraction, Fraction], Bound]

    def claim(self, digits: int) -> dict[str, Any]:
        r"""The claim with as many significant digits as the enclosure determines."""
        for spare in (1, 2):
            try:
                lower, upper = self.ends(Fraction(1, 10 ** (digits + spare)))
            except PrecisionExhausted:
                if spare == 1:
                    raise
                break
            decimals = _decimals(upper, digits)
            cell = _cell(lower, upper, decimals)
            if cell is not None:
                return self._written(*cell, decimals)
        if digits > FEWEST_DIGITS:
            return self.claim(digits - 1)
        raise NotDerived(
            self._wanted, "its enclosure is too wide, or contains a decimal of that precision"
        )

    def between(self, lower: Fraction, upper: Fraction, digits: int) -> dict[str, Any]:
        r"""The claim with these ends, rounded outwards to ``digits`` significant digits."""
        decimals = _decimals(upper, digits)
        ends = math.floor(lower * 10**decimals), math.ceil(upper * 10**decimals)
        return self._written(*ends, decimals)

    def ends(self, relative: Fraction) -> tuple[Fraction, Fraction]:
        r"""The engine's bounds. Raises :class:`NotDerived` unless both are finite numbers."""
        found = self.bound(self.at, relative)
        if found.lower is None:
            raise NotDerived(self._wanted, f"only an upper bound is known: {found.theorem}")
        if not isinstance(found.upper, Fraction) or not isinstance(found.lower, Fraction):
            why = "it is infinite, or not known to be finite; state it at a delta > 0"
            raise NotDerived(self._wanted, why)
        return found.lower, found.upper

    @property
    def _wanted(self) -> str:
        return f"{self.quantity} at {self.key} {self.at} in a certificate"

    def _written(self, lower: int, upper: int, decimals: int) -> dict[str, Any]:
        return {
            "quantity": self.quantity,
            self.key: write_rational(self.at),
            "lower": _decimal(lower, decimals),
            "upper": _decimal(upper, decimals),
            "digits": decimals,
            "theorem": THEOREMS[self.quantity],
        }


def _decimals(value: Fraction, digits: int) -> int:
    # Decimals after the point for this many significant digits, none after a large value.
    if value <= 0:
        return digits
    size = math.floor((math.log2(value.numerator) - math.log2(value.denominator)) / math.log2(10))
    return max(digits - 1 - size, 0)


def _cell(lower: Fraction, upper: Fraction, decimals: int) -> tuple[int, int] | None:
    # The one cell of the decimal grid that holds the enclosure and a margin around it; a single
    # point where the value is a decimal exactly.
    low, high = lower * 10**decimals, upper * 10**decimals
    if low == high and low.denominator == 1:
        return int(low), int(low)
    cell = math.floor(low - _MARGIN)
    return (cell, cell + 1) if cell == math.floor(high + _MARGIN) else None


def _decimal(scaled: int, decimals: int) -> str:
    if decimals == 0:
        return str(scaled)
    text = str(scaled).rjust(decimals + 1, "0")
    return f"{text[:-decimals]}.{text[-decimals:]}"


def exact_claims(parts: tuple[Part, ...]) -> Iterator[dict[str, Any]]:
    r"""The pure-DP and zCDP parameters of a list of rounds, if they are known exactly."""
    for quantity, key in (("pure", "epsilon"), ("zcdp", "rho")):
        with suppress(Refused):
            value = write_rational(exact_value(parts, quantity, Fraction(0)))
            yield {"quantity": quantity, key: value, "theorem": THEOREMS[quantity]}
