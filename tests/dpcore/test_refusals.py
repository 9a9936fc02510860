r"""Tests of refusals: one line with argument, value and reason, before any draw."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from dpcore import (
    AggregatedSum,
    DiscreteGaussian,
    DiscreteGaussianSum,
    DiscreteLaplace,
    FixedPoint,
    IdealAggregation,
    InvalidParameter,
    Mechanism,
    Noise,
    Polya,
    Release,
    Scope,
    SeededRng,
    Sensitivity,
    Skellam,
    SystemRng,
    Unrepresentable,
    read_noise,
    run,
)
from dpcore.laws.poisson_and_binomial import Binomial, Poisson
from dpcore.local import RandomisedResponse
from dpcore.parse_noise import noise_from_json
from dpcore.selection import NoisyMax, Selection
from tests.day_and_nightly import by_day
from tests.support.dpcore.refusals import ident, names, refusal
from tests.support.dpcore.scripted_rng import NeverAsked
from tests.support.laws import BEYOND_INT64, EVERYDAY, centre

LAPLACE = DiscreteLaplace(scale=10)
NEVER = NeverAsked()


BAD_SIZES: list[Any] = [
    *(-1, (3, -1), 1.0, "3", True, [2, 3], np.float64(2)),
    *(1 << 59, 1 << 64, (1 << 40, 1 << 40), (0, 1 << 64)),
]


@pytest.mark.parametrize("size", BAD_SIZES, ids=ident)
@pytest.mark.parametrize("noise", [LAPLACE, DiscreteGaussian(sigma_squared=2**60)], ids=repr)
def test_an_invalid_size_is_refused(noise: Noise, size: Any) -> None:
    assert names(refusal(lambda: noise.sample(size, rng=NEVER)), "size")


@pytest.mark.parametrize("rng", [None, 7, np.random.default_rng(1), SystemRng], ids=ident)
@pytest.mark.parametrize("size", [None, 3])
def test_an_invalid_source_of_randomness_is_refused(rng: Any, size: int | None) -> None:
    for text in EVERYDAY.values():
        noise = read_noise(text)
        assert names(refusal(partial(noise.sample, size, rng=rng)), "rng")


HUGE: list[Noise] = [
    DiscreteLaplace(scale=2**56),
    DiscreteLaplace(scale="1e300"),
    DiscreteGaussian(sigma_squared=2**118),
    DiscreteGaussian(sigma_squared="1e300"),
]


@by_day(6)
@pytest.mark.parametrize("noise", [*HUGE, *map(read_noise, BEYOND_INT64)], ids=repr)
def test_a_batch_that_could_leave_int64_draws_nothing(noise: Noise) -> None:
    sizes: list[Any] = [0, 1, 3, (2, 2)]
    for size in sizes:
        line = refusal(partial(noise.sample, size, rng=NEVER), Unrepresentable)
        assert repr(noise) in line
    mechanism = Mechanism(noise=noise, sensitivity=Sensitivity.l1(1))
    refusal(lambda: mechanism.release(np.arange(3), rng=NEVER), Unrepresentable)


@by_day(1)
@pytest.mark.parametrize("noise", [*HUGE, *map(read_noise, BEYOND_INT64)], ids=repr)
def test_a_single_draw_still_works(noise: Noise) -> None:
    drawn = [noise.sample(rng=SeededRng(seed)) for seed in range(4)]
    assert all(type(x) is int for x in drawn)
    assert max(map(abs, drawn)) > 1 << 50
    mechanism = Mechanism(noise=noise, sensitivity=Sensitivity(1))
    assert type(mechanism.release(10**100)) is int


@pytest.mark.parametrize(
    "noise", [DiscreteLaplace(scale=2**55), DiscreteGaussian(sigma_squared=2**110)]
)
def test_a_batch_just_inside_int64_is_drawn(noise: Noise) -> None:
    # Counterexample: a batch that fits is not refused.
    assert noise.sample(100, rng=SeededRng(1)).dtype == np.int64


MECHANISM = Mechanism(noise=LAPLACE, sensitivity=Sensitivity.l1(1))
ROOM = 1 << 62


@pytest.mark.parametrize(
    "value",
    [
        np.array([-ROOM]),
        np.array([0, ROOM, 1]),
        np.array([2**64 - 1], dtype=np.uint64),
        np.array(ROOM),
        [1, ROOM],
        [1, -(2**80)],
    ],
    ids=ident,
)
def test_an_array_without_room_for_noise_is_refused(value: Any) -> None:
    line = refusal(lambda: MECHANISM.release(value, rng=NEVER), Unrepresentable)
    assert "value" in line


def test_an_array_with_just_enough_room_is_released() -> None:
    value = np.array([ROOM - 1, 1 - ROOM])
    noisy = MECHANISM.release(value, rng=SeededRng(1))
    assert np.all(np.abs(noisy - value) < 1000)
    assert value.tolist() == [ROOM - 1, 1 - ROOM], "the caller's array is not the place for noise"
    for single in (ROOM, -ROOM, 2**63, 10**100):  # a Python integer may have any size
        assert abs(MECHANISM.release(single) - single) < 1000


@pytest.mark.parametrize(
    "value",
    [
        *(1.0, "3", None, True, Fraction(1), np.True_),
        *(np.array([1.0]), np.array([True]), np.array([1], dtype=object), "12"),
        *([1, True], [1, 2.0], [1, "2"], [[1], [2, 3]], [1, None]),
    ],
    ids=ident,
)
def test_a_value_that_is_not_an_integer_is_refused(value: Any) -> None:
    assert names(refusal(lambda: MECHANISM.release(value, rng=NEVER)), "value")


def test_a_mechanism_of_invalid_parts_is_refused() -> None:
    amounts: list[Any] = [0, 1.0, "1", None, True, (1,)]
    for amount in amounts:
        for build in (Sensitivity, Sensitivity.l1, Sensitivity.l2_squared):
            assert names(refusal(partial(build, amount)), "sensitivity")
        assert names(refusal(partial(Sensitivity.box, (1, amount))), "sensitivity")
        line = refusal(partial(Mechanism, noise=LAPLACE, sensitivity=amount))
        assert names(line, "sensitivity")
    boxes: list[Any] = [(), 5, None, (0,), (1, -1), (1.0,)]
    for bounds in boxes:
        assert names(refusal(partial(Sensitivity.box, bounds)), "sensitivity")
    noises: list[Any] = [None, "discrete-laplace:scale=10", 10, DiscreteLaplace]
    for noise in noises:
        line = refusal(partial(Mechanism, noise=noise, sensitivity=Sensitivity(1)))
        assert names(line, "noise")
    scope: Any = "user"
    line = refusal(lambda: Mechanism(noise=LAPLACE, sensitivity=Sensitivity(1), scope=scope))
    assert names(line, "scope")
    assert 'such as Scope(unit="user", relation="add-remove")' in line
    words: list[Any] = ["User", None]
    for word in words:
        line = refusal(partial(Scope, unit=word))
        assert names(line, "unit")
        assert "'contribution', 'user'" in line
        assert "'replace', 'add-remove'" in refusal(partial(Scope, relation=word))


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        *(("mechanism", LAPLACE), ("batch", ""), ("batch", 3), ("honest", 0), ("honest", 2)),
        *(("honest", math.nan), ("honest", "none"), ("honest", True)),
        *(("participants", ("a", "a")), ("participants", "abc"), ("participants", (1, 2))),
        *(("participants", ("\u00e9", "e\u0301")), ("batch", "e\u0301"), ("batch", "a ")),
    ],
    ids=ident,
)
def test_an_incomplete_record_is_refused(argument: str, value: Any) -> None:
    good: dict[str, Any] = {"mechanism": MECHANISM, "batch": "a"}
    line = refusal(lambda: Release(**{**good, argument: value}))
    assert names(line, argument)
    assert Release(**good, participants=("\u00e9", "\u00e8")).participants == ("\u00e9", "\u00e8")


BAD_LEVELS: list[Any] = [
    *(0, 1.0, -0.1, math.nan, True, None, "half", 1j, [0.5, math.nan], Fraction(1)),
    *([[0.5], [0.1, 0.2]], np.array([0.5 + 0.5j]), np.array(["0.5"])),
]
BAD_PLACES: list[Any] = [1.0, "1", True, [1.5], [True], [None], 2**63]


@pytest.mark.parametrize("text", EVERYDAY.values())
def test_a_place_that_is_not_an_integer_is_refused(text: str) -> None:
    noise = read_noise(text)
    for k in (*BAD_PLACES, np.array([2**64 - 1], dtype=np.uint64), [[1], [2, 3]]):
        for function in (noise.pmf, noise.cdf):
            assert names(refusal(partial(function, k)), "k")
    single: list[Any] = [1.0, None, True, [1]]
    for k in single:
        for enclose in (noise.enclose_pmf, noise.enclose_cdf):
            assert names(refusal(partial(enclose, k)), "k")
    for p in BAD_LEVELS:
        assert names(refusal(partial(noise.quantile, p)), "p")


@pytest.mark.parametrize(
    ("noise", "argument", "range_of"),
    [
        (DiscreteLaplace(scale="9e-7"), "scale", "1e-6 <= scale <= 2^46"),
        (DiscreteGaussian(sigma_squared="9e-13"), "sigma_squared", "sigma_squared"),
        *((Poisson(mean=m), "mean", "mean") for m in ("1e-10", 2**61)),
        (Skellam(variance=2**60 + 1), "variance", "1e-9 <= variance <= 2^60"),
        (Polya(shape=Fraction(1, 2**31), scale=1), "shape", "2^-30 <= shape <= 2^10"),
        (Binomial(trials=2**62 + 1, probability="1e-18"), "trials", "trials <= 2^62"),
        (Binomial(trials=3, probability="1e-10"), "probability", "1e-9 <= trials p (1-p) <= 2^60"),
        (DiscreteGaussianSum(count=5, sigma_squared=2**58), "sigma_squared", "count sigma_squared"),
    ],
    ids=str,
)
def test_float_functions_outside_their_range_name_the_enclosures(
    noise: Noise, argument: str, range_of: str
) -> None:
    functions: list[Any] = [noise.pmf, noise.log_pmf, noise.cdf, noise.sf, noise.quantile]
    for function in functions:
        line = refusal(partial(function, 0.5 if function == noise.quantile else 0))
        assert names(line, argument)
        assert range_of in line
        assert "enclose_pmf" in line
    assert noise.enclose_pmf(centre(noise)).lower > 0


def test_an_invalid_description_of_a_noise_is_refused() -> None:
    for text in ("", "discrete-laplace:scale=1:2", "discrete-laplace:=10"):
        refusal(partial(read_noise, text))
    wrong: list[Any] = [{}, *({"law": law} for law in ("normal", None, ["discrete-laplace"]))]
    laplace = {"law": "discrete-laplace"}
    for data in (*wrong, laplace, {**laplace, "s": "1"}, {**laplace, "scale": "0"}):
        refusal(partial(noise_from_json, data))


def test_masked_entries_are_refused_wherever_private_values_are_read() -> None:
    hidden = np.ma.masked_array([1, 0, 1], mask=[False, True, False])
    protocol = AggregatedSum(
        users=3, precision=1, threshold=9, share=DiscreteLaplace(scale=1).share(3)
    )
    secure = IdealAggregation(modulus=protocol.modulus)
    for read in (
        partial(MECHANISM.release, hidden, rng=NEVER),
        partial(Selection(epsilon=1, sensitivity=1).release, hidden, rng=NEVER),
        partial(NoisyMax(epsilon=1, sensitivity=1).release, hidden, rng=NEVER),
        partial(RandomisedResponse(epsilon=1, values=2).report, hidden, rng=NEVER),
        partial(RandomisedResponse(epsilon=1, values=2).estimate, hidden),
        partial(FixedPoint(precision=4).encode, hidden, rng=NEVER),
        partial(protocol.randomize, hidden, rng=NEVER),
        partial(run, protocol, hidden, secure, batch="monday", rng=NEVER),
    ):
        with pytest.raises(InvalidParameter, match="must not have masked entries"):
            read()


def test_a_message_has_no_character_that_a_terminal_obeys_or_a_file_cannot_hold() -> None:
    error = InvalidParameter("users", "a\x1b[31m\ud800\u202eb", "must be printable")
    assert str(error) == r"users = a\x1b[31m\ud800\u202eb: must be printable"
