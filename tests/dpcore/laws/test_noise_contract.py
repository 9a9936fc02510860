r"""Contract tests of every law: equality, text form, copies and shapes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dpcore
from accounting import Gaussian
from dpcore import Noise, SeededRng, SystemRng, read_noise, write_noise
from dpcore.errors import InvalidParameter
from dpcore.noise import LawType, batch_of
from dpcore.parse_noise import LAWS, noise_from_json
from dpcore.spec_syntax import parameter_names
from tests.day_and_nightly import by_day
from tests.support.laws import BEYOND_INT64, EVERYDAY, SPELLED, reach

NAMES = {name: getattr(dpcore, name) for name in dpcore.__all__}


@pytest.fixture(params=SPELLED)
def noise(request: pytest.FixtureRequest) -> Noise:
    return read_noise(request.param)


def test_a_law_is_a_value_of_its_parameters(noise: Noise) -> None:
    for name, value in noise.parameters.items():
        # A probability stays below 1, a count stays an integer.
        other = value / 2 if name == "probability" else value + 1
        assert type(noise)(**{**noise.parameters, name: other}) != noise
    every = [read_noise(text) for text in SPELLED]
    assert every.count(noise) == 1
    for name in (*parameter_names(type(noise)), "name", "anything"):
        with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
            setattr(noise, name, 1)
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
        delattr(noise, parameter_names(type(noise))[0])


def test_laws_with_equal_numbers_do_not_share_a_sampler() -> None:
    laplace: Noise = dpcore.DiscreteLaplace(scale=400)
    gaussian: Noise = dpcore.DiscreteGaussian(sigma_squared=400)
    assert laplace != gaussian
    assert batch_of(laplace) is not batch_of(gaussian)


def test_a_wrong_parameter_name_is_refused(noise: Noise, monkeypatch: pytest.MonkeyPatch) -> None:
    law, good = type(noise), dict(noise.parameters)
    first = next(iter(good))

    def misnamed() -> None:
        with pytest.raises(InvalidParameter, match=rf"^nmae = 20: {law.__name__} needs .*{first}="):
            law(**good, nmae=20)  # type: ignore[call-arg]  # deliberately of the wrong type
        with pytest.raises(InvalidParameter, match=rf"^{law.__name__} = .*by name: .* {first}="):
            law(*good.values())
        with pytest.raises(InvalidParameter, match=r"^\w+: must be given: .*="):
            law()

    misnamed()
    monkeypatch.delattr(LawType, "__call__")
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        misnamed()


@pytest.mark.parametrize(
    ("law", "wrong", "meant"),
    [
        (dpcore.DiscreteGaussian, {"sigma": 20}, r"sigma = 20: .* needs sigma_squared= \(sigma"),
        (dpcore.Skellam, {"std": 3}, r"std = 3: Skellam needs variance= \(std"),
        (Gaussian, {"sigma_squared": 4}, "sigma_squared = 4: Gaussian needs sigma=$"),
    ],
)
def test_the_intended_parameter_is_named(law: Any, wrong: dict[str, int], meant: str) -> None:
    with pytest.raises(InvalidParameter, match=meant):
        law(**wrong)


@pytest.mark.parametrize("text", SPELLED + BEYOND_INT64)
def test_a_law_survives_a_round_trip_through_text(text: str) -> None:
    noise = read_noise(text)
    assert eval(repr(noise), NAMES) == noise  # noqa: S307 - what a repr is for
    assert read_noise(write_noise(noise)) == noise
    assert noise_from_json(json.loads(json.dumps(noise.to_json()))) == noise


def through_bytes(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes


def in_mechanism(noise: Noise) -> dpcore.Mechanism:
    return dpcore.Mechanism(noise=noise, sensitivity=dpcore.Sensitivity(1))


# Laws whose values hardly ever repeat.
WIDE = [text for text in SPELLED if reach(read_noise(text)) >= 10**12]
COPIES: dict[str, Callable[[Noise], Noise]] = {
    "pickle": through_bytes,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "replace": dataclasses.replace,
    "deepcopy in a list": lambda noise: copy.deepcopy([noise])[0],
    "pickle in a mechanism": lambda noise: through_bytes(in_mechanism(noise)).noise,
}


def reservoirs(noise: Noise) -> list[Any]:
    r"""Return the state of an instance besides its parameters."""
    hidden = [f.name for f in dataclasses.fields(noise) if not f.init]
    assert hidden, "the law keeps its reservoir in a field that this test must find"
    return [getattr(noise, name) for name in hidden]


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("text", WIDE)
def test_no_copy_contains_buffered_noise(text: str, name: str) -> None:
    noise = read_noise(text)
    seen = [noise.sample(), *noise.sample(10).tolist()]
    twin = COPIES[name](noise)
    assert twin == noise
    assert twin is not noise
    for mine, its in zip(reservoirs(noise), reservoirs(twin), strict=True):
        assert mine is not its
        assert len(its) == 0
    for _ in range(200):
        seen += [noise.sample(), twin.sample(), *noise.sample(5).tolist(), *twin.sample(5).tolist()]
    assert len(set(seen)) == len(seen), "a value of 40 bits was dealt twice"


def test_a_copy_that_shares_its_reservoir_is_detected() -> None:
    noise = read_noise("discrete-laplace:scale=2e12")
    noise.sample()
    twin = read_noise("discrete-laplace:scale=2e12")
    (mine,), (its,) = reservoirs(noise), reservoirs(twin)
    its.extend(mine)
    assert {noise.sample() for _ in range(50)} & {twin.sample() for _ in range(50)}


@by_day(16)
@pytest.mark.parametrize("source", [SystemRng(), SeededRng(1)], ids=repr)
def test_a_single_draw_is_a_python_integer(noise: Noise, source: Any) -> None:
    assert type(noise.sample(rng=source)) is int
    assert type(noise.sample_reference(source)) is int


@pytest.mark.parametrize(
    "size", [0, 1, 5, (), (0,), (3,), (2, 3), (2, 0, 4), np.int64(4), (np.int8(2), 2)]
)
def test_draws_have_the_requested_shape(size: Any) -> None:
    for text in EVERYDAY.values():
        drawn = read_noise(text).sample(size)
        assert drawn.shape == (tuple(size) if isinstance(size, tuple) else (size,))
        assert drawn.dtype == np.int64
        assert drawn.flags.writeable
        assert drawn.flags.c_contiguous


def test_arrays_of_draws_belong_to_the_caller(noise: Noise) -> None:
    # Writing into one array of draws changes neither other arrays nor later draws.
    first, second = noise.sample(50), noise.sample(50)
    kept = second.copy()
    first[:] = 2**40 + 123
    assert second.tolist() == kept.tolist()
    assert 2**40 + 123 not in noise.sample(4000)
    assert 2**40 + 123 not in [noise.sample() for _ in range(100)]


@by_day(2)
@pytest.mark.parametrize(
    ("shape", "dtype"), [((), "int8"), ((0, 3), "int64"), ((5,), "uint16"), ((2, 1, 2), "uint64")]
)
def test_functions_keep_the_shape_of_their_argument(shape: tuple[int, ...], dtype: str) -> None:
    places = np.arange(np.prod(shape, dtype=int), dtype=dtype).reshape(shape)
    for text in EVERYDAY.values():
        noise = read_noise(text)
        for name in ("pmf", "log_pmf", "cdf", "sf"):
            function = getattr(noise, name)
            found = function(places)
            assert np.shape(found) == shape
            assert np.asarray(found).dtype == np.float64
            one_by_one = [function(int(k)) for k in places.reshape(-1)]
            assert np.asarray(found).reshape(-1).tolist() == one_by_one
            assert all(type(value) is float for value in one_by_one)


def test_quantiles_keep_the_shape_of_their_levels() -> None:
    for text in EVERYDAY.values():
        noise = read_noise(text)
        alone = noise.quantile(0.3)
        assert type(alone) is type(noise.quantile(np.float64(0.3))) is int
        assert type(noise.quantile(Fraction(3, 10))) is int
        for shape in ((0,), (2, 1)):
            found: Any = noise.quantile(np.full(shape, 0.3))
            assert found.shape == shape
            assert found.dtype == np.int64
            assert np.all(found == alone)


def test_the_public_list_of_laws_is_complete() -> None:
    assert sorted(dpcore.__all__) == list(dpcore.__all__)
    assert {law.__name__ for law in LAWS.values()} <= set(dpcore.__all__)
    assert all(inspect.getdoc(getattr(dpcore, name)) for name in dpcore.__all__)
    assert {"run", "IdealAggregation", "MaskedAggregation", "Shuffler"} <= set(dpcore.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Aggregator'"):
        _ = dpcore.Aggregator
