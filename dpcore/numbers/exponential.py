r"""Exact numbers that rationals and e^(-unit) make by +, -, * and /: an ordered field.

x = e^(-unit) is transcendental for a rational unit > 0 (Lindemann), so the numbers are the rational
functions of x over the rationals: two are equal if they are the same function, and the sign of
every other one is decided by balls of rising precision. No other power of e is among them. Output
laws of choices by coins e^(-k unit) and by geometric noise are such numbers. Proofs:
docs/proofs/numbers.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import total_ordering
from typing import Final, Self

from flint import arb, arb_poly, fmpq, fmpq_poly

from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import Enclosure, ball, narrow

_SIGN_BITS: Final = 8


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class ExpRational:
    r"""The number above(x)/below(x), x = e^(-unit).

    >>> x = ExpRational.base(Fraction(1, 2))
    >>> (1 - x * x) / (1 - x) == 1 + x, 3 * x < 2, (x / x**3).log
    (True, True, Fraction(1, 1))
    """

    unit: Fraction
    above: fmpq_poly
    below: fmpq_poly

    @classmethod
    def base(cls, unit: Fraction) -> ExpRational:
        r"""The number e^(-unit) itself, unit > 0."""
        if not unit > 0:
            raise InvalidParameter("unit", unit, "must be > 0")
        return cls(unit, fmpq_poly([0, 1]), fmpq_poly([1]))

    def of(self, value: Fraction | int) -> ExpRational:
        r"""A rational in the field of this number."""
        exact = Fraction(value)
        return self._made(fmpq_poly([fmpq(exact.numerator, exact.denominator)]), fmpq_poly([1]))

    def power_of_e(self, exponent: Fraction) -> ExpRational | None:
        r"""e^exponent where it is in the field, which is where the unit divides the exponent."""
        steps = -exponent / self.unit
        return ExpRational.base(self.unit) ** int(steps) if steps.denominator == 1 else None

    def ball(self) -> arb:
        r"""A ball at the ambient precision."""
        x = (-ball(self.unit)).exp()
        return arb_poly(self.above)(x) / arb_poly(self.below)(x)

    def enclose(self, bits: int) -> Enclosure:
        r"""Two rationals of relative width 2^-bits; exact where the number is rational."""
        exact = self.rational
        return narrow(self.ball, bits) if exact is None else Enclosure.exactly(exact)

    @property
    def rational(self) -> Fraction | None:
        r"""The number as a fraction, None if it is irrational."""
        if self.above.degree() > 0 or self.below.degree() > 0:
            return None
        found = self.above[0] / self.below[0]
        return Fraction(int(found.p), int(found.q))

    @property
    def log(self) -> Fraction | None:
        r"""The logarithm where it is a multiple of the unit, else None."""
        powers = [
            poly.degree() for poly in (self.above, self.below) if poly == _monomial(poly.degree())
        ]
        return (powers[1] - powers[0]) * self.unit if len(powers) == len("ab") else None

    def __add__(self, other: ExpRational | Fraction | int) -> ExpRational:
        one, two = self, self._other(other)
        return one._made(one.above * two.below + two.above * one.below, one.below * two.below)

    def __mul__(self, other: ExpRational | Fraction | int) -> ExpRational:
        one, two = self, self._other(other)
        return one._made(one.above * two.above, one.below * two.below)

    def __truediv__(self, other: ExpRational | Fraction | int) -> ExpRational:
        one, two = self, self._other(other)
        return one._made(one.above * two.below, one.below * two.above)

    def __rtruediv__(self, other: Fraction | int) -> ExpRational:
        return self.of(other) / self

    def __neg__(self) -> ExpRational:
        return self._made(-self.above, self.below)

    def __sub__(self, other: ExpRational | Fraction | int) -> ExpRational:
        return self + -other

    def __rsub__(self, other: Fraction | int) -> ExpRational:
        return -self + other

    __radd__, __rmul__ = __add__, __mul__

    def __pow__(self, exponent: int) -> ExpRational:
        ends = (self.above, self.below) if exponent >= 0 else (self.below, self.above)
        above, below = (end ** abs(exponent) for end in ends)
        return self._made(above, below)

    def __bool__(self) -> bool:
        return bool(self.above)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExpRational | Fraction | int):
            return NotImplemented
        return not self - other

    def __lt__(self, other: ExpRational | Fraction | int) -> bool:
        gap = self - other
        return bool(gap) and narrow(gap.ball, _SIGN_BITS).upper < 0

    __hash__ = None  # type: ignore[assignment]  # no use for it

    def _other(self, other: ExpRational | Fraction | int) -> ExpRational:
        if not isinstance(other, ExpRational):
            return self.of(other)
        if self.unit != other.unit:
            raise InvalidParameter(
                "unit", other.unit, f"must be {self.unit}, as of the other number"
            )
        return other

    def _made(self, above: fmpq_poly, below: fmpq_poly) -> Self:
        shared = above.gcd(below)
        above, below = above / shared, below / shared
        leading = below.leading_coefficient()
        return type(self)(self.unit, above / leading, below / leading)


def _monomial(degree: int) -> fmpq_poly:
    return fmpq_poly([0] * degree + [1])
