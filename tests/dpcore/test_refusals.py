r"""What is refused: by name, with the value and the reason, on one line, with nothing drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpcore import (
    DiscreteGaussian,
    DiscreteLaplace,
    DpcoreError,
    InvalidParameter,
    Mechanism,
    Noise,
    PrecisionExhausted,
    Release,
    Scope,
    SeededRng,
    Sensitivity,
    SystemRng,
    Unrepresentable,
    read_noise,
)
from dpcore.errors import _SHOWN
from dpcore.exact import bernoulli, bernoulli_exp, geometric_exp
from dpcore.parameter import integer, positive_rational, rational
from dpcore.rng import Rng
from dpcore.spelling import noise_from_json
from tests.dpcore.scripted import NeverAsked

LAPLACE = DiscreteLaplace(scale=10)
GAUSSIAN = DiscreteGaussian(sigma_squared=400)
LAWS: list[tuple[type[Noise], str]] = [
    (DiscreteLaplace, "scale"),
    (DiscreteGaussian, "sigma_squared"),
]
NEVER = NeverAsked()


def refusal(act: Callable[[], object], kind: type[DpcoreError] = InvalidParameter) -> str:
    r"""The one line that the refusal says; fails when nothing was refused."""
    with pytest.raises(kind) as caught:
        act()
    line = str(caught.value)
    assert "\n" not in line
    assert line == line.strip()
    return line


def names(line: str, argument: str, value: object = None) -> bool:
    head, _, reason = line.partition(": ")
    shown = "" if value is None else f"{value}"
    return head.startswith(f"{argument} = ") and shown in head and len(reason) > 5


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError


NOT_NUMBERS: list[Any] = [
    *(None, True, False, np.True_, object(), [1], (1,), {1}, b"1", 1j, np.array([1, 2]), np.array(1)),
    *("", " ", "ten", "1/0", "0x10", "1,5", "1e", "--1", "1 2", "\n"),
    *(math.nan, math.inf, -math.inf, np.float32("nan"), np.float64("inf"), np.longdouble("inf")),
    *("nan", "inf", "-inf", "Infinity", Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity")),
    Unprintable(),
    *("1" + "0" * 10_000, "1e999999999", "1e-999999999", Decimal("1e999999"), "1e" + "9" * 5000),
    *("9" * 5000, "1/" + "9" * 5000, "0." + "9" * 20_000),
]
NOT_POSITIVE: list[Any] = [0, -1, 0.0, -0.0, "0", "-1e-9", Fraction(-1, 3), Decimal(0), np.int8(-5)]


def ident(value: object) -> str:
    try:
        text = value if isinstance(value, str) else repr(value)
    except (RuntimeError, ValueError):
        return f"unprintable {type(value).__name__}"
    return f"{type(value).__name__} {text[:60]} {len(text)}"


@pytest.mark.parametrize("value", NOT_NUMBERS + NOT_POSITIVE, ids=ident)
@pytest.mark.parametrize(("law", "argument"), LAWS)
def test_a_parameter_that_is_no_positive_number(
    law: type[Noise], argument: str, value: object
) -> None:
    build: Any = law
    line = refusal(lambda: build(**{argument: value}))
    assert names(line, argument)
    assert len(line) < _SHOWN + 120, "a value of any length must leave a line that can be read"


def test_a_refusal_names_argument_value_and_reason() -> None:
    line = refusal(lambda: DiscreteLaplace(scale=0))
    assert line == "scale = 0: must be > 0: scale 0 adds no noise"
    assert names(refusal(lambda: DiscreteGaussian(sigma_squared="-1/3")), "sigma_squared", "-1/3")


@pytest.mark.parametrize("law", [law for law, _ in LAWS])
def test_parameters_are_given_by_name(law: Any) -> None:
    with pytest.raises(TypeError):
        law(10)
    with pytest.raises(TypeError):
        law()


# -- parameters as numbers -----------------------------------------------------------------------

READ: list[tuple[Any, str]] = [
    (0.1, "1/10"),
    (np.float64(0.1), "1/10"),
    (np.float32(0.1), "1/10"),
    (np.float16(0.1), "1/10"),
    (np.float32(1e10), "10000000000"),
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
    (Fraction(7, 3), "7/3"),
]


@pytest.mark.parametrize(("value", "exact"), READ, ids=ident)
def test_a_number_is_read_exactly(value: object, exact: str) -> None:
    assert rational("x", value) == Fraction(exact)


@pytest.mark.parametrize("value", [1.0, 1.5, "1", None, True, np.False_, Fraction(2), Decimal(2), 1j])
def test_an_integer_is_not_something_that_looks_like_one(value: object) -> None:
    assert names(refusal(lambda: integer("n", value)), "n")


def test_an_integer_keeps_its_range() -> None:
    assert integer("n", 0, at_least=0) == 0
    assert integer("n", np.uint64(2**64 - 1)) == 2**64 - 1
    assert "n = -1: must be >= 0" in refusal(lambda: integer("n", -1, at_least=0))
    assert "x = 0" in refusal(lambda: positive_rational("x", 0, "because"))


def test_every_number_that_is_accepted_can_be_written() -> None:
    # Python writes at most 4300 digits: a law that could not print itself could not be recorded.
    for text in ("1e300", "1e-300", "1e4000", "9" * 4000, "1e4299", "1e4301", "1e9999"):
        for value in (text, Fraction(1), None):
            try:
                exact = rational("scale", text) if value is None else None
                noise = DiscreteLaplace(scale=exact or text)
            except InvalidParameter:
                continue
            assert eval(repr(noise)) == noise  # noqa: S307 - what a repr is for
            assert noise_from_json(noise.to_json()) == noise


def test_a_huge_integer_is_refused_or_can_be_written() -> None:
    for value in (10**5000, Fraction(1, 10**5000), Fraction(10**5000 + 1, 10**5000)):
        try:
            noise = DiscreteLaplace(scale=value)
        except InvalidParameter as refused:
            assert names(str(refused), "scale")
        else:
            assert noise_from_json(noise.to_json()) == noise


# -- drawing -----------------------------------------------------------------------------------

BAD_SIZES: list[Any] = [
    *(-1, (3, -1), 1.0, 1.5, "3", True, (2, True), [2, 3], (2.0,), np.float64(2), object()),
    *(1 << 59, 1 << 60, 1 << 64, 1 << 200, (1 << 40, 1 << 40), (1 << 70, 0), (0, 1 << 64)),
]


@pytest.mark.parametrize("size", BAD_SIZES, ids=ident)
@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN, DiscreteGaussian(sigma_squared=2**60)])
def test_a_size_that_is_none(noise: Noise, size: Any) -> None:
    assert names(refusal(lambda: noise.sample(size, rng=NEVER)), "size")


@pytest.mark.parametrize(
    "rng",
    [None, 7, "system", np.random.default_rng(1), np.random.RandomState(1), SystemRng, Rng, object()],
    ids=ident,
)
@pytest.mark.parametrize("size", [None, 3, (2, 2), 0])
def test_a_source_that_is_none(rng: Any, size: int | tuple[int, ...] | None) -> None:
    assert names(refusal(lambda: LAPLACE.sample(size, rng=rng)), "rng")


@pytest.mark.parametrize("rng", [None, np.random.default_rng(1)], ids=ident)
def test_a_release_refuses_such_a_source_too(rng: Any) -> None:
    mechanism = Mechanism(noise=LAPLACE, sensitivity=Sensitivity(1))
    assert names(refusal(lambda: mechanism.release(3, rng=rng)), "rng")
    assert names(refusal(lambda: mechanism.release(np.array([3]), rng=rng)), "rng")


HUGE: list[Noise] = [
    DiscreteLaplace(scale=2**56),
    DiscreteLaplace(scale=2**62),
    DiscreteLaplace(scale=2**80),
    DiscreteLaplace(scale="1e300"),
    DiscreteGaussian(sigma_squared=2**118),
    DiscreteGaussian(sigma_squared=2**160),
    DiscreteGaussian(sigma_squared=2**300),
    DiscreteGaussian(sigma_squared="1e300"),
]


@pytest.mark.parametrize("noise", HUGE, ids=repr)
@pytest.mark.parametrize("size", [0, 1, 3, (2, 2)])
def test_a_batch_that_could_leave_int64_draws_nothing(
    noise: Noise, size: int | tuple[int, ...]
) -> None:
    line = refusal(lambda: noise.sample(size, rng=NEVER), Unrepresentable)
    assert repr(noise) in line
    mechanism = Mechanism(noise=noise, sensitivity=Sensitivity(1))
    refusal(lambda: mechanism.release(np.arange(3), rng=NEVER), Unrepresentable)


@pytest.mark.parametrize("noise", HUGE, ids=repr)
def test_a_single_draw_still_works(noise: Noise) -> None:
    drawn = [noise.sample(rng=SeededRng(seed)) for seed in range(4)]
    assert all(type(x) is int for x in drawn)
    assert max(map(abs, drawn)) > 1 << 50
    assert type(noise.sample()) is int
    mechanism = Mechanism(noise=noise, sensitivity=Sensitivity(1))
    assert type(mechanism.release(10**100)) is int


@pytest.mark.parametrize("noise", [DiscreteLaplace(scale=2**55), DiscreteGaussian(sigma_squared=2**110)])
def test_a_batch_just_inside_int64_is_drawn(noise: Noise) -> None:
    # The twin of the refusal: it does not refuse what fits.
    assert noise.sample(100, rng=SeededRng(1)).dtype == np.int64


# -- releasing -----------------------------------------------------------------------------------

MECHANISM = Mechanism(noise=LAPLACE, sensitivity=Sensitivity(1))
ROOM = 1 << 62


@pytest.mark.parametrize(
    "value",
    [
        np.array([ROOM]),
        np.array([-ROOM]),
        np.array([0, ROOM, 1]),
        np.array([2**63 - 1]),
        np.array([-(2**63)]),
        np.array([2**64 - 1], dtype=np.uint64),
        np.array(ROOM),
    ],
    ids=ident,
)
def test_an_array_that_leaves_no_room_for_noise(value: Any) -> None:
    line = refusal(lambda: MECHANISM.release(value, rng=NEVER), Unrepresentable)
    assert "value" in line


def test_an_array_that_leaves_just_enough_room_is_released() -> None:
    value = np.array([ROOM - 1, 1 - ROOM])
    noisy = MECHANISM.release(value, rng=SeededRng(1))
    assert np.all(np.abs(noisy - value) < 1000)
    assert value.tolist() == [ROOM - 1, 1 - ROOM], "the caller's array is not the place for noise"


def test_a_python_integer_of_any_size_is_released_exactly() -> None:
    for value in (ROOM, -ROOM, 2**63, 10**100):
        assert abs(MECHANISM.release(value) - value) < 1000


@pytest.mark.parametrize(
    "value",
    [
        *(1.0, 1.5, "3", None, True, [1, 2], (1,), Fraction(1), math.nan, np.float64(1), np.True_),
        *(np.array([1.0]), np.array([True]), np.array(["1"]), np.array([1], dtype=object)),
        np.array([np.nan]),
    ],
    ids=ident,
)
def test_a_value_that_is_no_integer(value: Any) -> None:
    assert names(refusal(lambda: MECHANISM.release(value, rng=NEVER)), "value")


@pytest.mark.parametrize("amount", [0, -1, 1.0, 0.5, "1", None, True, math.nan, (1,), [1], 10j], ids=ident)
def test_a_sensitivity_that_is_none(amount: Any) -> None:
    for build in (
        lambda: Sensitivity(amount),
        lambda: Sensitivity.l1(amount),
        lambda: Sensitivity.l2_squared(amount),
        lambda: Sensitivity.box((1, amount)),
        lambda: Mechanism(noise=LAPLACE, sensitivity=amount),
    ):
        assert names(refusal(build), "sensitivity")


@pytest.mark.parametrize("bounds", [(), 5, None, (0,), (1, -1), (1.0,)], ids=ident)
def test_a_box_that_is_none(bounds: Any) -> None:
    assert names(refusal(lambda: Sensitivity.box(bounds)), "sensitivity")


@pytest.mark.parametrize("norm", ["l1", "absolute", None, 1], ids=ident)
def test_a_norm_is_no_text(norm: Any) -> None:
    # Either it is read as the norm it names, or it is refused; it never stays a string.
    try:
        built = Sensitivity(1, norm)
    except InvalidParameter:
        return
    assert built == Sensitivity.l1(1) or built == Sensitivity(1)


@pytest.mark.parametrize("noise", [None, "discrete-laplace:scale=10", 10, DiscreteLaplace], ids=ident)
def test_a_noise_that_is_none(noise: Any) -> None:
    assert names(refusal(lambda: Mechanism(noise=noise, sensitivity=Sensitivity(1))), "noise")


@pytest.mark.parametrize("scope", [None, "user", {"unit": "user"}], ids=ident)
def test_a_scope_that_is_none(scope: Any) -> None:
    line = refusal(lambda: Mechanism(noise=LAPLACE, sensitivity=Sensitivity(1), scope=scope))
    assert names(line, "scope")


@pytest.mark.parametrize("word", ["User", "users", None, 1, "", []], ids=ident)
def test_scope_words_are_named_with_their_choices(word: Any) -> None:
    line = refusal(lambda: Scope(unit=word))
    assert names(line, "unit")
    assert "'contribution', 'user'" in line
    assert "'replace', 'add-remove'" in refusal(lambda: Scope(relation=word))


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        *(("mechanism", None), ("mechanism", LAPLACE), ("batch", ""), ("batch", None), ("batch", 3)),
        *(("honest", 0), ("honest", -1), ("honest", 2), ("honest", Fraction(3, 2))),
        *(("honest", math.nan), ("honest", "none"), ("honest", True), ("honest", None)),
        *(("participants", ("a", "a")), ("participants", "abc"), ("participants", (1, 2))),
        ("participants", None),
    ],
    ids=ident,
)
def test_a_record_that_says_nothing(argument: str, value: Any) -> None:
    good: dict[str, Any] = {"mechanism": MECHANISM, "batch": "a"}
    line = refusal(lambda: Release(**{**good, argument: value}))
    assert names(line, argument)


# -- asking for the law --------------------------------------------------------------------------

BAD_PLACES: list[Any] = [1.0, "1", None, True, [1.5], [True], ["1"], [None], 2**63, 2**64, -(2**70), 1j]


@pytest.mark.parametrize("k", [*BAD_PLACES, np.array([2**64 - 1], dtype=np.uint64), [[1], [2, 3]]], ids=ident)
@pytest.mark.parametrize("function", ["pmf", "log_pmf", "cdf", "sf"])
def test_a_place_that_is_no_int64(function: str, k: Any) -> None:
    assert names(refusal(lambda: getattr(LAPLACE, function)(k)), "k")


@pytest.mark.parametrize("k", [1.0, "1", None, True, [1], Fraction(1)], ids=ident)
@pytest.mark.parametrize("function", ["enclose_pmf", "enclose_cdf", "enclose_sf"])
def test_an_enclosure_is_asked_at_an_integer(function: str, k: Any) -> None:
    assert names(refusal(lambda: getattr(GAUSSIAN, function)(k)), "k")


@pytest.mark.parametrize("bits", [0, 7, -1, 1 << 21, 64.0, "64", None, True], ids=ident)
def test_an_enclosure_is_asked_in_bits(bits: Any) -> None:
    assert names(refusal(lambda: GAUSSIAN.enclose_pmf(1, bits)), "bits")


@pytest.mark.parametrize("t", [-1, 1.0, None], ids=ident)
def test_a_tail_starts_at_zero(t: Any) -> None:
    assert names(refusal(lambda: GAUSSIAN.enclose_tail(t)), "t")
    assert names(refusal(lambda: GAUSSIAN.tail(t)), "t")


BAD_LEVELS: list[Any] = [
    *(0, 1, 0.0, 1.0, -0.1, 1.1, math.nan, math.inf, True, None, "half", 1j),
    *([0.5, 1.0], [0.5, math.nan], Fraction(0), Fraction(1), Fraction(-1, 2), Fraction(3, 2)),
    *([[0.5], [0.1, 0.2]], [None], np.array([0.5 + 0.5j]), "0.5", np.array(["0.5"])),
]


@pytest.mark.parametrize("p", BAD_LEVELS, ids=ident)
def test_a_level_lies_strictly_between_0_and_1(p: Any) -> None:
    assert names(refusal(lambda: LAPLACE.quantile(p)), "p")


@pytest.mark.parametrize(
    ("noise", "argument"),
    [
        (DiscreteLaplace(scale="9e-7"), "scale"),
        (DiscreteLaplace(scale=2**46 + 1), "scale"),
        (DiscreteGaussian(sigma_squared="9e-13"), "sigma_squared"),
        (DiscreteGaussian(sigma_squared=2**92 + 1), "sigma_squared"),
    ],
    ids=str,
)
def test_floats_outside_their_range_point_to_the_enclosures(noise: Noise, argument: str) -> None:
    for act in (
        lambda: noise.pmf(0),
        lambda: noise.log_pmf(0),
        lambda: noise.cdf(0),
        lambda: noise.sf([0]),
        lambda: noise.quantile(0.5),
    ):
        line = refusal(act)
        assert names(line, argument)
        assert "enclose_pmf" in line
    assert noise.enclose_pmf(0).lower > 0


# -- spelling ------------------------------------------------------------------------------------

SPELLINGS = [
    *("", ":", "scale=10", "laplace:scale=10", "discrete-laplace", "discrete-laplace:"),
    *("discrete-laplace:scale", "discrete-laplace:scale=", "discrete-laplace:scale=ten"),
    *("discrete-laplace:scale=0", "discrete-laplace:scale=1,scale=2", "discrete-laplace:s=1"),
    *("discrete-laplace:scale=10,sigma_squared=4", "Discrete-Laplace:scale=10"),
    *("discrete-laplace:scale=1:2", "discrete-laplace:scale=nan", "discrete-laplace:=10"),
]


@pytest.mark.parametrize("text", SPELLINGS)
def test_a_spelling_that_is_none(text: str) -> None:
    refusal(lambda: read_noise(text))


@pytest.mark.parametrize("text", [None, 5, b"discrete-laplace:scale=10"], ids=ident)
def test_a_spelling_is_text(text: Any) -> None:
    refusal(lambda: read_noise(text))


@pytest.mark.parametrize(
    "data",
    [{}, {"law": "normal"}, {"law": "discrete-laplace"}, {"law": "discrete-laplace", "s": "1"},
     {"law": "discrete-laplace", "scale": "0"}, {"law": None}, {"law": ["discrete-laplace"]}],
    ids=ident,
)  # fmt: skip
def test_json_that_is_none(data: Any) -> None:
    refusal(lambda: noise_from_json(data))


# -- coins, sources, errors ------------------------------------------------------------------------


@pytest.mark.parametrize("p", [Fraction(-1, 2), Fraction(3, 2)])
def test_a_coin_is_no_more_than_certain(p: Fraction) -> None:
    assert names(refusal(lambda: bernoulli(NEVER, p)), "probability")


def test_exponents_keep_their_range() -> None:
    assert names(refusal(lambda: bernoulli_exp(NEVER, Fraction(-1, 2))), "exponent")
    assert names(refusal(lambda: geometric_exp(NEVER, Fraction(0))), "exponent")
    assert names(refusal(lambda: geometric_exp(NEVER, Fraction(-1))), "exponent")


@pytest.mark.parametrize("bound", [0, -1, -(2**70)])
def test_below_nothing(bound: int) -> None:
    assert names(refusal(lambda: NEVER.below(bound)), "bound")


@pytest.mark.parametrize("seed", [-1, 1.0, "7", None, True], ids=ident)
def test_a_seed_is_a_count(seed: Any) -> None:
    assert names(refusal(lambda: SeededRng(seed)), "seed")


def test_every_refusal_is_caught_as_one_kind_and_as_pythons_own() -> None:
    assert issubclass(InvalidParameter, (DpcoreError, ValueError))
    assert issubclass(InvalidParameter, ValueError)
    assert issubclass(Unrepresentable, OverflowError)
    assert issubclass(PrecisionExhausted, ArithmeticError)
    for kind in (InvalidParameter, Unrepresentable, PrecisionExhausted):
        assert issubclass(kind, DpcoreError)


def test_an_error_survives_being_sent_to_another_process() -> None:
    import pickle

    error = InvalidParameter("scale", Fraction(0), "must be > 0")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert str(copy) == str(error)
    assert (copy.argument, copy.value, copy.reason) == ("scale", Fraction(0), "must be > 0")


@pytest.mark.parametrize(
    "value", [10**5000, "two\nlines", "a" * 1000, Unprintable(), np.arange(3000), [[0] * 99] * 99], ids=ident
)
def test_an_error_is_one_short_line_whatever_the_value(value: object) -> None:
    line = str(InvalidParameter("x", value, "no"))
    assert "\n" not in line
    assert len(line) <= _SHOWN + 20
    assert line.startswith("x = ")
    assert line.endswith(": no")
