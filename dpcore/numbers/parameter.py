r"""Parse privacy parameters as exact rationals, and check names of users and batches.

Accepted types are ``int``, ``Fraction``, ``Decimal``, ``float``, numpy integers and floats, and
strings such as ``"1/3"``, ``"0.1"``, ``"1e-6"``. A float is read as its shortest decimal form, so
``0.1`` means one tenth and not the nearest binary number. Other types raise an error. Instances of
subclasses are read as plain values.
"""

from __future__ import annotations

import math
import operator
import re
import sys
import unicodedata
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, Final, Generic, Literal, SupportsIndex, TypeAlias, TypeVar

from dpcore.errors import InvalidParameter

RationalLike: TypeAlias = int | str | float | Fraction | Decimal
Given = TypeVar("Given")
T = TypeVar("T")
E = TypeVar("E", bound=Enum)
Interval: TypeAlias = Literal["(0, 1)", "(0, 1]", "[0, 1)", "[0, 1]", "[0, oo)"]


class Declared(Generic[Given, T]):
    r"""A field of a frozen dataclass with slots; :func:`check_fields` converts and validates it."""

    # The slot replaces this object, so that reading a field costs nothing extra; the class keeps
    # the declarations for `check_fields`.

    def __init__(self, default: Any = None) -> None:
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        declared = {**owner.__dict__.get(_DECLARED, {}), name: self}
        setattr(owner, _DECLARED, declared)

    def read(self, argument: str, value: object) -> T:
        r"""Convert ``value`` to the type of this field, or raise :class:`InvalidParameter`."""
        raise NotImplementedError

    def __get__(self, instance: object, owner: type | None = None) -> T:
        if self._default is None:
            raise AttributeError("no default: the argument is required")  # as dataclass() expects
        return self.read("default", self._default)

    def __set__(self, instance: object, value: Given) -> None:
        raise AttributeError(f"the field type {type(self).__name__} needs a dataclass with slots")


class Exact(Declared[RationalLike, Fraction]):
    r"""A field of a frozen dataclass that accepts any rational and stores a :class:`Fraction`.

    ``scale: Exact = Exact()`` has no default, ``Exact("1/2")`` has one. :func:`check_fields` in
    ``__post_init__`` makes the value exact. If ``zero`` is given, values <= 0 are refused, with
    ``zero`` as the reason. If ``within`` is given, values outside this interval are refused, with
    the optional ``reason``.
    """

    def __init__(
        self,
        default: RationalLike | None = None,
        *,
        zero: str = "",
        within: Interval | None = None,
        reason: str = "",
    ) -> None:
        super().__init__(default)
        self._zero, self._within, self._reason = zero, within, reason

    def read(self, argument: str, value: object) -> Fraction:
        if self._within is not None:
            return rational_in(argument, value, self._within, self._reason)
        if self._zero:
            return positive_rational(argument, value, self._zero)
        return rational(argument, value)


class Whole(Declared[int, int]):
    r"""A field of a frozen dataclass that is an ``int`` from ``at_least`` to ``at_most``."""

    def __init__(
        self, default: int | None = None, *, at_least: int = 1, at_most: int | None = None
    ) -> None:
        super().__init__(default)
        self._least, self._most = at_least, at_most

    def read(self, argument: str, value: object) -> int:
        return integer(argument, value, at_least=self._least, at_most=self._most)


class Of(Declared[T, T]):
    """A field that must be an instance of ``kind``; otherwise ``reason`` is the error message."""

    def __init__(self, kind: Callable[..., T], reason: str, default: T | None = None) -> None:
        super().__init__(default)
        self._kind: Any = kind  # a class, also an abstract one
        self._reason = reason

    def read(self, argument: str, value: object) -> T:
        if not isinstance(value, self._kind):
            raise InvalidParameter(argument, value, self._reason)
        held: T = value
        return held


class Choice(Declared[E, E]):
    """A field that is a member of an enumeration, given as a member or by its value."""

    def __init__(self, kind: type[E], default: E | None = None) -> None:
        super().__init__(default)
        self._kind = kind

    def read(self, argument: str, value: object) -> E:
        try:
            return self._kind(value)
        except ValueError:
            choices = ", ".join(repr(member.value) for member in self._kind)
            raise InvalidParameter(argument, value, f"must be one of {choices}") from None


_DECLARED = "_declared_fields"


def check_fields(instance: object) -> None:
    r"""Validate all declared fields of a frozen dataclass in ``__post_init__``.

    The fields of base classes come first.
    """
    declared: dict[str, Declared[Any, Any]] = {}
    for kind in reversed(type(instance).__mro__):
        declared |= kind.__dict__.get(_DECLARED, {})
    for name, field in declared.items():
        object.__setattr__(instance, name, field.read(name, getattr(instance, name)))


# A decimal exponent or digit string beyond this is a typing error or an attack on memory:
# Fraction("1e999999999") would allocate gigabytes before it could be rejected. Python itself
# prints no integer of more than 4300 digits, so larger numbers could not be recorded.
_MOST_DIGITS = 4_000
_LARGEST = 10**_MOST_DIGITS
_SHOWN = 10**6
_NO_NUMBER = "must be a finite number such as 3, 0.1, 1/3 or 1e-6"
_EXPONENT = re.compile(r"[eE]([+-]?\d+)\s*$")


def rational(argument: str, value: object) -> Fraction:
    r"""The exact rational that ``value`` denotes."""
    exact = value if type(value) is Fraction else _exact(argument, value)
    if max(abs(exact.numerator), exact.denominator) >= _LARGEST:
        raise InvalidParameter(argument, value, f"must have at most {_MOST_DIGITS} digits")
    return exact


def _exact(argument: str, value: object) -> Fraction:
    # Methods of a subclass may return anything, so only methods of the base types are called.
    if value.__class__ is not type(value):
        raise InvalidParameter(
            argument, value, "must be an int, a float, a Fraction, a Decimal or a string"
        )
    value = _without_numpy(value)
    match value:
        case bool():
            raise InvalidParameter(argument, value, "must be a number, not a bool")
        case Fraction():
            return value if type(value) is Fraction else _held(argument, value)
        case int():
            return Fraction(operator.index(value))
        case float():
            binary = float.__float__(value)
            if not math.isfinite(binary):
                raise InvalidParameter(argument, binary, "must be a finite number")
            return Fraction(repr(binary))
        case Decimal():
            plain = Decimal(value)
            if not plain.is_finite():
                raise InvalidParameter(argument, plain, "must be a finite number")
            return _from_text(argument, str(plain))
        case str():
            return _from_text(argument, str.__str__(value))
        case _:
            raise InvalidParameter(
                argument, value, "must be an int, a float, a Fraction, a Decimal or a string"
            )


def _without_numpy(value: Any) -> object:
    # Converts a numpy scalar to a Python type, without loading numpy: if numpy is not loaded, there
    # are no such scalars. Floats of other widths are read as their own shortest decimal form, so
    # float32(0.1) is 0.1.
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.generic) or isinstance(value, float):
        return value
    if isinstance(value, numpy.floating):
        exact = math.isfinite(value)
        return Fraction(numpy.format_float_scientific(value)) if exact else float(value)
    return value.item() if isinstance(value, (numpy.bool_, numpy.integer)) else value


def _held(argument: str, value: Fraction) -> Fraction:
    slots = vars(Fraction)
    try:
        ends = [slots[name].__get__(value) for name in ("_numerator", "_denominator")]
        return Fraction(*map(operator.index, ends))
    except (AttributeError, TypeError, ZeroDivisionError):
        raise InvalidParameter(argument, "a Fraction", "must consist of two integers") from None


def _from_text(argument: str, text: str) -> Fraction:
    exponent = _EXPONENT.search(text)
    if len(text) > _MOST_DIGITS or (
        exponent and (len(exponent[1]) > 9 or abs(int(exponent[1])) > _MOST_DIGITS)
    ):
        raise InvalidParameter(argument, text, f"must have at most {_MOST_DIGITS} digits")
    try:
        return Fraction(text if text.isascii() else "")
    except ZeroDivisionError:
        raise InvalidParameter(argument, text, "must not divide by zero") from None
    except ValueError:
        raise InvalidParameter(argument, text, _NO_NUMBER) from None


def positive_rational(argument: str, value: object, reason: str) -> Fraction:
    r"""Parse a rational with :func:`rational`; raise an error with ``reason`` if it is <= 0."""
    exact = rational(argument, value)
    if exact <= 0:
        raise InvalidParameter(argument, value, f"must be > 0: {reason}")
    return exact


def at_least_zero(argument: str, value: object) -> Fraction:
    r"""Parse a rational with :func:`rational`; raise an error if it is < 0."""
    exact = rational(argument, value)
    if exact < 0:
        raise InvalidParameter(argument, value, "must be >= 0")
    return exact


def rational_in(argument: str, value: object, interval: Interval, reason: str = "") -> Fraction:
    r"""Parse a rational with :func:`rational`; raise an error if it is outside ``interval``."""
    exact = rational(argument, value)
    least = exact > 0 if interval.startswith("(") else exact >= 0
    open_end = exact < 1 or interval.endswith("oo)")
    most = open_end if interval.endswith(")") else exact <= 1
    if not (least and most):
        why = f": {reason}" if reason else ""
        raise InvalidParameter(argument, value, f"must lie in {interval}{why}")
    return exact


def make_integers(instance: object, *names: str, at_most: int | None = None) -> None:
    r"""Convert the named fields of a frozen dataclass to ints >= 1, in ``__post_init__``."""
    for name in names:
        exact = integer(name, getattr(instance, name), at_least=1, at_most=at_most)
        object.__setattr__(instance, name, exact)


def integer(
    argument: str,
    value: object,
    *,
    at_least: int | None = None,
    at_most: int | None = None,
    limit: str = "",
) -> int:
    r"""Return ``value`` as an ``int``; raise an error for a float (even integral) or a bool.

    ``limit`` is the name of the bound ``at_most`` in the error message.
    """
    if (
        type(value) is int
        and (at_least is None or value >= at_least)
        and (at_most is None or value <= at_most)
    ):
        return value  # the usual case: an isinstance check of SupportsIndex is slow
    if isinstance(_without_numpy(value), bool) or not isinstance(value, SupportsIndex):
        also = ", not text" if isinstance(value, str) else ""
        raise InvalidParameter(argument, value, f"must be an integer{also}")
    try:
        exact = operator.index(value)
    except TypeError:
        raise InvalidParameter(argument, value, "must be an integer") from None
    if at_least is not None and exact < at_least:
        raise InvalidParameter(argument, value, f"must be >= {at_least}")
    if at_most is not None and exact > at_most:
        named = f"{limit} = " if limit else ""
        raise InvalidParameter(argument, value, f"must be <= {named}{_written(at_most)}")
    return exact


def whole_number(
    argument: str, value: object, *, at_least: int | None = None, at_most: int | None = None
) -> int:
    r"""Parse an integer as a user types it, such as 1000 or 1e3, within optional bounds."""
    between = "" if at_least is None else f" >= {at_least}"
    if at_least is not None and at_most is not None:
        between = f" from {at_least} to {_written(at_most)}"
    wrong = InvalidParameter(argument, value, f"must be a whole number{between}, e.g. 10 or 1e3")
    try:
        exact = rational(argument, value)
    except InvalidParameter as error:
        raise (wrong if error.reason == _NO_NUMBER else error) from None
    low = at_least is not None and exact < at_least
    if exact.denominator != 1 or low or (at_most is not None and exact > at_most):
        raise wrong
    return int(exact)


def _written(number: int) -> str:
    # A large round number in a short form: 2^20 or 1e9.
    if number >= _SHOWN and number & (number - 1) == 0:
        return f"2^{number.bit_length() - 1}"
    digits = str(number).rstrip("0")
    zeros = len(str(number)) - len(digits)
    return f"{digits}e{zeros}" if number >= _SHOWN and len(digits) == 1 else str(number)


def text(argument: str, value: object, reason: str) -> str:
    r"""Return ``value`` as a plain ``str``; raise an error with ``reason`` if it is not text."""
    if not issubclass(type(value), str):
        raise InvalidParameter(argument, value, reason)
    return str.__str__(value)


def write_rational(value: Fraction) -> str:
    r"""Format ``value`` as an integer or in lowest terms, such as ``"3"`` or ``"1/3"``."""
    return str(value)


_LONGEST: Final = 200
# Letters and marks that count as printable but are invisible: fillers, joiners, variation
# selectors, the empty Braille pattern.
_UNSEEN: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)

PLAIN: Final = re.compile(rf"[!-~](?:[ -~]{{0,{_LONGEST - 2}}}[!-~])?")
r"""The pattern of ASCII names, which need no further check."""


def name(argument: str, value: object) -> str:
    r"""Return ``value`` if it is a valid name of a user or a batch; otherwise raise an error."""
    reason = f"must be a name of 1 to {_LONGEST} characters, as text"
    if type(value) is str and PLAIN.fullmatch(value):
        return value
    value = text(argument, value, reason)
    if not 1 <= len(value) <= _LONGEST:
        raise InvalidParameter(argument, value, reason)
    if not value.isprintable() or value != value.strip():
        must = "must be printable, without leading or trailing space"
        raise InvalidParameter(argument, value, must)
    if _UNSEEN.search(value):
        raise InvalidParameter(argument, ascii(value), "must not contain invisible characters")
    if not unicodedata.is_normalized("NFC", value):
        raise InvalidParameter(
            argument,
            value,
            "must be in Unicode normal form NFC: otherwise names that look the same would be "
            "different users",
        )
    return value
