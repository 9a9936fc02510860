r"""Tests of `dpcore.numbers.parameter`: exact parsing, refusals by name, error messages."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError, dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from accounting.ledger.charge_request import sorted_names
from dpcore import (
    DiscreteGaussian,
    DiscreteLaplace,
    DpcoreError,
    InvalidParameter,
    Mechanism,
    PrecisionExhausted,
    Release,
    Sensitivity,
    Unrepresentable,
)
from dpcore.errors import _SHOWN
from dpcore.laws.poisson_and_binomial import Binomial, Poisson
from dpcore.numbers.parameter import Exact, check_fields, integer, name, rational
from dpcore.parse_noise import noise_from_json, read_noise
from tests.support.dpcore.refusals import Unprintable, ident, names, refusal

LAWS: list[tuple[Any, str]] = [
    (DiscreteLaplace, "scale"),
    (DiscreteGaussian, "sigma_squared"),
    (Poisson, "mean"),
    (partial(Binomial, trials=3), "probability"),
]

NOT_NUMBERS: list[Any] = [
    *(
        None,
        True,
        False,
        np.True_,
        object(),
        [1],
        (1,),
        {1},
        b"1",
        1j,
        np.array([1, 2]),
        np.array(1),
    ),
    *("", " ", "ten", "1/0", "0x10", "1,5", "1e", "--1", "1 2", "\n", "٣"),
    *(math.nan, math.inf, -math.inf, np.float32("nan"), np.float64("inf"), np.longdouble("inf")),
    *("nan", "inf", "-inf", "Infinity", Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity")),
    Unprintable(),
    *("1" + "0" * 10_000, "1e999999999", "1e-999999999", Decimal("1e999999"), "1e" + "9" * 5000),
    *("9" * 5000, "1/" + "9" * 5000, "0." + "9" * 20_000),
]
NOT_POSITIVE: list[Any] = [0, -1, 0.0, -0.0, "0", "-1e-9", Fraction(-1, 3), Decimal(0), np.int8(-5)]


@pytest.mark.parametrize("value", NOT_NUMBERS + NOT_POSITIVE, ids=ident)
@pytest.mark.parametrize(("law", "argument"), LAWS)
def test_a_parameter_that_is_not_a_positive_number_is_refused(
    law: Any, argument: str, value: object
) -> None:
    line = refusal(lambda: law(**{argument: value}))
    assert names(line, argument)
    assert len(line) < _SHOWN + 120, "a value of any length must leave a line that can be read"


READ: list[tuple[Any, str]] = [
    (0.1, "1/10"),
    (np.float64(0.1), "1/10"),
    (np.float32(0.1), "1/10"),
    (np.float32(3), "3"),
    (5e-324, "5e-324"),
    (1.7976931348623157e308, "17976931348623157e292"),
    (-0.0, "0"),
    (np.int8(-5), "-5"),
    (np.uint64(2**64 - 1), str(2**64 - 1)),
    (10**30, str(10**30)),
    (Decimal("0.10"), "1/10"),
    (Decimal("1E+3"), "1000"),
    (" 1/3 ", "1/3"),
    ("1e-6", "1/1000000"),
    ("+2.5E1", "25"),
]


@pytest.mark.parametrize(("value", "exact"), READ, ids=ident)
def test_a_number_is_read_exactly(value: object, exact: str) -> None:
    assert rational("x", value) == Fraction(exact)


@pytest.mark.parametrize(
    "value", [1.0, 1.5, "1", None, True, np.False_, Fraction(2), Decimal(2), 1j]
)
def test_values_that_resemble_integers_are_refused(value: object) -> None:
    assert names(refusal(lambda: integer("n", value)), "n")


def test_every_number_that_is_accepted_can_be_written() -> None:
    # Python prints at most 4300 digits: a law that cannot be printed cannot be recorded.
    for text in ("1e300", "1e-300", "1e3999", "9" * 3999, "1e4299", "1e-4301", "1e9999"):
        try:
            noise = DiscreteLaplace(scale=text)
        except InvalidParameter:
            continue
        assert eval(repr(noise)) == noise  # noqa: S307 - what a repr is for
        assert noise_from_json(noise.to_json()) == noise


def test_an_error_can_be_pickled_and_is_of_a_builtin_class() -> None:
    error = InvalidParameter("scale", Fraction(0), "must be > 0")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert str(copy) == str(error)
    assert (copy.argument, copy.value, copy.reason) == ("scale", Fraction(0), "must be > 0")
    assert issubclass(InvalidParameter, ValueError)
    assert issubclass(Unrepresentable, OverflowError)
    assert issubclass(PrecisionExhausted, ArithmeticError)
    for kind in (InvalidParameter, Unrepresentable, PrecisionExhausted):
        assert issubclass(kind, DpcoreError)


@pytest.mark.parametrize(
    "value",
    [10**5000, "two\nlines", "a" * 1000, Unprintable(), np.arange(3000), [[0] * 99] * 99],
    ids=ident,
)
def test_an_error_is_one_short_line_for_any_value(value: object) -> None:
    line = str(InvalidParameter("x", value, "no"))
    assert "\n" not in line
    assert len(line) <= _SHOWN + 20
    assert line.startswith("x = ")
    assert line.endswith(": no")


class LyingText(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "9"

    def __eq__(self, other: object) -> bool:
        return False

    def __len__(self) -> int:
        return 1

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        return ("discrete-laplace", ":", "scale=9")

    __repr__ = __str__
    __hash__ = str.__hash__
    strip = isprintable = __str__  # type: ignore[assignment]  # deliberately of the wrong type


class LyingInt(int):
    def __int__(self) -> int:
        return 9

    __index__ = __trunc__ = __abs__ = __int__

    def __ge__(self, other: int) -> bool:
        return True


class LyingFraction(Fraction):
    numerator = denominator = property(lambda self: 9)

    def __lt__(self, other: Any) -> bool:
        return False

    __le__ = __lt__


class LyingFloat(float):
    def __repr__(self) -> str:
        return "9"

    __float__ = lambda self: 9.0  # noqa: E731  # a lie


class LyingDecimal(Decimal):
    def __str__(self) -> str:
        return "9"

    def is_finite(self) -> bool:
        return True


class Claims:
    __class__ = property(lambda self: Fraction)


LIARS: list[Any] = [LyingText, LyingInt, LyingFraction, LyingFloat, LyingDecimal]


@pytest.mark.parametrize("liar", LIARS)
def test_a_value_of_a_subclass_is_read_as_its_plain_value(liar: Any) -> None:
    lie: Any = liar("3") if liar is LyingText else liar(3)
    read = rational("x", lie)
    assert type(read) is Fraction
    assert (type(read.numerator), read.numerator, read.denominator) == (int, 3, 1)
    law = DiscreteLaplace(scale=lie)
    assert repr(law) == "DiscreteLaplace(scale=3)"
    assert type(law.scale) is Fraction
    # Overridden methods do not bypass a check.
    negative = liar("-3") if liar is LyingText else liar(-3)
    with pytest.raises(InvalidParameter):
        DiscreteLaplace(scale=negative)
    with pytest.raises(InvalidParameter):
        integer("x", negative, at_least=0)
    if liar is LyingInt:
        assert (type(integer("x", lie)), Sensitivity(lie).amount) == (int, 3)
    # An object that only claims to be a number.
    hollow = object.__new__(LyingFraction)
    for value in (Claims(), hollow, LyingDecimal("NaN"), LyingFloat("nan")):
        with pytest.raises(InvalidParameter, match=r"^x = "):
            rational("x", value)


def test_text_of_a_subclass_becomes_plain_text() -> None:
    mechanism = Mechanism(noise=DiscreteLaplace(scale=3), sensitivity=1)
    record = Release(mechanism=mechanism, batch=LyingText("a"), participants=(LyingText("b"),))
    kept = (record.batch, *record.participants)
    assert kept == ("a", "b")
    assert {type(name) for name in kept} == {str}
    assert read_noise(LyingText("discrete-laplace:scale=3")).parameters == {"scale": 3}
    assert type(name("user", LyingText("ada"))) is str
    assert "printable" in refusal(lambda: name("user", LyingText("ada\n")))
    assert "twice" in refusal(lambda: sorted_names([LyingText("ada"), LyingText("ada")]))
    assert str(InvalidParameter("x", LyingText("what it is"), "is shown")).startswith("x = what")


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    price: Exact = Exact(zero="nothing is free")
    tax: Exact = Exact("1/4", within="[0, 1]", reason="a part of the price")

    def __post_init__(self) -> None:
        check_fields(self)


def test_a_field_accepts_any_rational_and_stores_a_fraction() -> None:
    one = Priced(price="0.5")
    assert (one.price, one.tax) == (Fraction(1, 2), Fraction(1, 4))
    assert {type(one.price), type(one.tax)} == {Fraction}
    assert one == Priced(price=0.5, tax=Fraction(1, 4)) == pickle.loads(pickle.dumps(one))  # noqa: S301 - made here
    assert hash(one) == hash(replace(one, price=Decimal("0.50")))
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'price'"):
        Priced()
    with pytest.raises(FrozenInstanceError):
        one.price = 2  # type: ignore[misc]  # deliberately of the wrong type
    assert "price = 0: must be > 0: nothing is free" in refusal(lambda: Priced(price=0))
    for tax, said in ((math.nan, "tax = nan"), (2, r"tax = 2: must lie in \[0, 1\]: a part of")):
        with pytest.raises(InvalidParameter, match=said):
            Priced(price=1, tax=tax)
