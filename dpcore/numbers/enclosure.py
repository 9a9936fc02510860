r"""Enclosures: proven lower and upper bounds on a real number, and their comparisons.

An :class:`Enclosure` states ``lower <= x <= upper`` with exact rational (or infinite) bounds, which
are not rounded. Enclosures are computed by ball arithmetic (``arb`` of python-flint, Johansson
2017): a ball is an interval given by a midpoint and a radius, and every operation returns a ball
that contains the true result. The working precision affects the width of the result and never its
correctness.

A comparison such as ``bound <= 1`` may hold for all numbers in an interval, for none, or only for
some. In the third case the comparison is undecided and raises an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from typing import Final, NoReturn, TypeAlias

from flint import arb, ctx, fmpq, fmpz

from dpcore.errors import InvalidParameter, PrecisionExhausted, Undecided
from dpcore.forks import ProcessLock
from dpcore.numbers.parameter import rational

End: TypeAlias = Fraction | float
"""One bound of an enclosure: an exact rational, or ``math.inf`` / ``-math.inf``."""

_LOCK: Final = ProcessLock()
_MOST_BITS: Final = 1 << 22
_PRINTED_BITS: Final = 1 << 12
_DIGITS: Final = 17
_NUMBERS: Final = (int, float, Fraction, Decimal)


class Ordered:
    r"""A base class that compares intervals with numbers and with each other: <, <=, > and >=.

    A float is read as its shortest decimal form: 0.1 is one tenth. Comparing an interval with a
    number using ``==``, or using an interval as a truth value, raises :class:`TypeError`; an
    undecided comparison raises :class:`Undecided`.
    """

    __slots__ = ()

    def _interval(self) -> tuple[Fraction | float, Fraction | float]:
        # Both ends; infinite where there is no bound.
        raise NotImplementedError

    def __lt__(self, other: object) -> bool:
        return _below(self, other, "<", strictly=True)

    def __le__(self, other: object) -> bool:
        return _below(self, other, "<=", strictly=False)

    def __gt__(self, other: object) -> bool:
        found = _below(self, other, ">", strictly=False)
        return found if found is NotImplemented else not found

    def __ge__(self, other: object) -> bool:
        found = _below(self, other, ">=", strictly=True)
        return found if found is NotImplemented else not found

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self!r} has no truth value; compare it with a number, as in bound <= 1")

    def _refuse_number(self, other: object) -> None:
        # An interval is not a number: == would be False even for the value that it encloses.
        if isinstance(other, _NUMBERS):
            raise TypeError(f"{self!r} == {other!r} is undefined: compare with <, <=, > or >=")


def _below(one: Ordered, other: object, sign: str, *, strictly: bool) -> bool:
    ends = _ends(other)
    if ends is None:
        return NotImplemented  # type: ignore[no-any-return]  # as a comparison does
    (low, high), (least, most) = one._interval(), ends
    if high < least or (high == least and not strictly):
        return True
    if low > most or (low == most and strictly):
        return False
    raise Undecided(f"{one!r} {sign} {other!r}")


def _ends(value: object) -> tuple[Fraction | float, Fraction | float] | None:
    if isinstance(value, Ordered):
        return value._interval()
    if not isinstance(value, _NUMBERS):
        return None
    if isinstance(value, (float, Decimal)) and math.isinf(value):
        return float(value), float(value)
    exact = rational("number", value)
    return exact, exact


@contextmanager
def precision(bits: int) -> Iterator[None]:
    r"""Set the precision of balls to ``bits`` within the block, for one thread at a time.

    The precision of FLINT is global to the process, so the block holds a lock. Without the lock,
    another thread's precision could make balls wider, but never wrong.
    """
    with _LOCK.here():
        before = ctx.prec
        ctx.prec = bits
        try:
            yield
        finally:
            ctx.prec = before


def ball(value: Fraction | int) -> arb:
    r"""Return a ball around an exact rational at the current precision.

    The ball has radius 0 if its midpoint can represent the rational.
    """
    if isinstance(value, int):
        return arb(fmpz(value))
    return arb(fmpq(value.numerator, value.denominator))


def nearest(value: arb) -> float:
    r"""Round a ball with at least 60 accurate bits to a float.

    The relative error is at most 2^-52 for values above 2^-1022.
    """
    if not (value.is_exact() or value.rel_accuracy_bits() >= 60):
        raise PrecisionExhausted("the enclosure is too wide to be rounded to a float")
    return float(value.mid())


@dataclass(frozen=True, slots=True)
class Enclosure(Ordered):
    r"""A proven statement ``lower <= x <= upper`` about one real number x.

    Comparisons are those of :class:`~dpcore.numbers.enclosure.Ordered`. ``float(x)`` and
    ``f"{x:.3f}"`` raise an error, because which bound is safe depends on the use of the number.

    >>> with precision(64):
    ...     third = Enclosure.of(arb(1) / 3)
    >>> Fraction(1, 3) in third, third.lower < Fraction(1, 3) < third.upper
    (True, True)
    >>> third
    Enclosure([0.33333333333333333, 0.33333333333333334])
    >>> third < 0.5, third >= 1, third < third
    Traceback (most recent call last):
    ...
    dpcore.errors.Undecided: Enclosure([0.33333333333333333, ... is undecided: ...

    Raises :class:`InvalidParameter` if the bounds are out of order, or one is nan.
    """

    lower: End
    upper: End

    def __post_init__(self) -> None:
        if not self.lower <= self.upper:
            raise InvalidParameter("lower", self.lower, f"must be <= upper = {self.upper}")

    @classmethod
    def of(cls, value: arb) -> Enclosure:
        r"""The exact bounds of a ball; infinite for an unbounded ball.

        >>> Enclosure.of(arb(2))
        Enclosure([2, 2])
        """
        if value.is_nan():
            raise PrecisionExhausted("the computation gave NaN, so there is no enclosure")
        return cls(_floor(value.lower()), -_floor(-value.upper()))

    @classmethod
    def exactly(cls, value: Fraction | int) -> Enclosure:
        r"""The enclosure of width 0 around an exact value.

        >>> Enclosure.exactly(3).width
        Fraction(0, 1)
        """
        return cls(Fraction(value), Fraction(value))

    @classmethod
    def infinite(cls) -> Enclosure:
        r"""The enclosure of +infinity: the value itself is infinite, not only its upper bound.

        >>> Enclosure.infinite().lower
        inf
        """
        return cls(math.inf, math.inf)

    @property
    def width(self) -> End:
        if self.upper == self.lower:
            return Fraction(0)
        return self.upper - self.lower

    @property
    def lower_float(self) -> float:
        r"""The lower bound as a float, rounded by :func:`round_down`."""
        return round_down(self.lower)

    @property
    def upper_float(self) -> float:
        r"""The upper bound as a float, rounded by :func:`round_up`."""
        return round_up(self.upper)

    def _interval(self) -> tuple[End, End]:
        return self.lower, self.upper

    def __eq__(self, other: object) -> bool:
        self._refuse_number(other)
        if not isinstance(other, Enclosure):
            return NotImplemented
        return self._interval() == other._interval()

    def __hash__(self) -> int:
        return hash((self.lower, self.upper))

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, (int, float, Fraction)):
            return False
        return self.lower <= value <= self.upper

    def overlaps(self, other: Enclosure) -> bool:
        r"""Whether the two enclosures intersect, as enclosures of the same number always do."""
        return self.lower <= other.upper and other.lower <= self.upper

    def __repr__(self) -> str:
        return (
            f"Enclosure([{_write(self.lower, ROUND_FLOOR)}, {_write(self.upper, ROUND_CEILING)}])"
        )


def _write(end: End, rounding: str) -> str:
    # Decimals are also rounded outwards, so that the printed interval is still an enclosure.
    if isinstance(end, float) or (end.denominator == 1 and abs(end) < 10**17):
        return str(end)
    if max(end.numerator.bit_length(), end.denominator.bit_length()) > _PRINTED_BITS:
        # 2^(e-1) < |end| < 2^(e+1), where e is the difference of the bit lengths.
        exponent = end.numerator.bit_length() - end.denominator.bit_length()
        exponent += 1 if (end > 0) == (rounding == ROUND_CEILING) else -1
        return f"{'-' if end < 0 else ''}2**{exponent}"
    with localcontext(prec=_DIGITS, rounding=rounding):
        return str(Decimal(end.numerator) / Decimal(end.denominator))


def _floor(end: arb) -> End:
    # A number with an exponent beyond a few million is too large to be written as a rational: the
    # bound moves outwards to a number that can be, which keeps the enclosure valid.
    if not end.is_finite():
        return math.inf if end > 0 else -math.inf
    mantissa, exponent = (int(part) for part in end.mid().man_exp())
    if exponent > _MOST_BITS:
        return Fraction(1 << _MOST_BITS) if mantissa > 0 else -math.inf
    if exponent < -2 * _MOST_BITS:
        return Fraction(0) if mantissa >= 0 else Fraction(-1, 1 << _MOST_BITS)
    if exponent >= 0:
        return Fraction(mantissa << exponent)
    return Fraction(mantissa, 1 << -exponent)


def integer_below(value: arb) -> int:
    r"""An integer <= all numbers in the ball, normally the floor of its lower end."""
    floor = value.lower().floor().unique_fmpz()
    if floor is None:
        raise PrecisionExhausted("the enclosure is not finite, so it has no integer bound")
    return int(floor)


def round_up(value: End) -> float:
    r"""The smallest float >= ``value`` whose shortest decimal form is also >= ``value``.

    Text and JSON print this decimal form, which may lie below the float. A ``value`` that is a
    float is returned unchanged.
    """
    if isinstance(value, float):
        return value
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.nextafter(math.inf, 0)
    if nearest >= value and Fraction(repr(nearest)) >= value:
        return nearest
    return math.nextafter(nearest, math.inf)


def decimal_up(value: Fraction) -> float:
    r"""The smallest float whose shortest decimal form is >= ``value``; it may lie below ``value``.

    Unlike :func:`round_up` it keeps a decimal such as 0.3, for documents that are read as decimals.
    """
    nearest = float(value)
    return nearest if Fraction(repr(nearest)) >= value else math.nextafter(nearest, math.inf)


def round_down(value: End) -> float:
    r"""The largest float <= ``value`` whose shortest decimal form is also <= ``value``."""
    return 0.0 - round_up(-value)  # not -0.0 for 0


def narrow(compute: Callable[[], arb], bits: int) -> Enclosure:
    r"""Evaluate a ball computation at increasing precision until its relative width is <= 2^-bits.

    The ball that ``compute`` returns must contain the true value at any precision. Raises
    :class:`PrecisionExhausted` if four million bits do not suffice. A bound of size below
    2^-4194304 or above 2^4194304 moves outwards to 0, to that power or to infinity: the result is
    still an enclosure, but not narrow.
    """
    working, topped = bits + 32, False
    while working <= _MOST_BITS:
        with precision(working):
            value = compute()
        if value.is_finite() and (value.rel_accuracy_bits() > bits + 1 or value.is_exact()):
            # The width is at most 2^-(bits+1), which leaves room to round outwards; rounding is
            # done at the working precision and adds less than 2^-(bits+29).
            with precision(working):
                return Enclosure.of(value)
        # If only a few bits are missing, the precision grows by these bits, but only once;
        # doubling is expensive.
        found = value.rel_accuracy_bits() if value.is_finite() else 0
        short = bits + 2 - found
        if found > 0 and 2 * short < working and not topped:
            working, topped = working + short + 32, True
        else:
            working *= 2
    raise PrecisionExhausted(f"no enclosure of relative width 2^-{bits} within {_MOST_BITS} bits")
