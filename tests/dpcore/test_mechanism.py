r"""Tests of `dpcore.mechanism`: a release is the value plus one fresh draw per entry; records."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore import (
    DiscreteLaplace,
    InvalidParameter,
    Mechanism,
    Relation,
    Release,
    Scope,
    SeededRng,
    Sensitivity,
    Unit,
)

LAPLACE = DiscreteLaplace(scale=10)
MECHANISM = Mechanism(noise=LAPLACE, sensitivity=Sensitivity(1))
VECTOR = Mechanism(noise=LAPLACE, sensitivity=Sensitivity.l1(1))


def test_a_scope_is_read_from_text() -> None:
    assert Scope() == Scope(unit=Unit.CONTRIBUTION, relation=Relation.REPLACE)
    by_words: Any = {"unit": "user", "relation": "add-remove"}
    scope = Scope(**by_words)
    assert scope == Scope(unit=Unit.USER, relation=Relation.ADD_REMOVE)
    assert scope.unit is Unit.USER
    assert repr(scope) == "Scope(unit='user', relation='add-remove')"
    assert eval(repr(scope)) == scope  # noqa: S307 - what a repr is for


def test_sensitivities_and_mechanisms_are_values_without_an_epsilon() -> None:
    values: list[Any] = [
        *(Sensitivity(1), Sensitivity(2**70), Sensitivity.l1(3), Sensitivity.l2_squared(3)),
        *(Sensitivity.box((1, 2)), Sensitivity.box((5,))),
        *(MECHANISM, VECTOR, dataclasses.replace(MECHANISM, scope=Scope(unit=Unit.USER))),
    ]
    for value in values:
        assert eval(repr(value)) == value  # noqa: S307 - what a repr is for
        copied = pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes
        assert (copied, hash(copy.deepcopy(value))) == (value, hash(value))
        assert values.count(value) == 1
        for field in dataclasses.fields(value):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(value, field.name, 9)
    public = {name for name in dir(MECHANISM) if not name.startswith("_")}
    assert public == {"noise", "release", "scope", "sensitivity"}


@given(st.integers(-(2**80), 2**80), st.integers(0, 2**30))
def test_a_number_is_released_with_one_draw_of_noise(value: int, seed: int) -> None:
    noisy = MECHANISM.release(value, rng=SeededRng(seed))
    assert type(noisy) is int
    assert noisy == value + LAPLACE.sample(rng=SeededRng(seed))


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint64"])
@pytest.mark.parametrize("shape", [(), (5,), (2, 0)])
def test_an_array_is_released_with_one_draw_per_entry(dtype: str, shape: tuple[int, ...]) -> None:
    value = np.full(shape, 100, dtype=dtype)
    noisy = VECTOR.release(value, rng=SeededRng(5))
    assert noisy.dtype == np.int64
    assert noisy.shape == shape
    drawn = LAPLACE.sample(shape, rng=SeededRng(5))
    assert (np.asarray(noisy) - 100).tolist() == drawn.tolist()
    assert np.all(value == 100)


SHAPES: list[Any] = [(), (0,), (1,), (2,), (3,), (1, 2), (2, 1), (2, 2)]


def released_shapes(sensitivity: Sensitivity) -> list[tuple[int, ...]]:
    r"""Return the shapes of released arrays; a number is released exactly where a 0-d array is."""
    mechanism = Mechanism(noise=LAPLACE, sensitivity=sensitivity)
    found = []
    for shape in SHAPES:
        try:
            released = mechanism.release(np.full(shape, 7))
        except InvalidParameter as error:
            line = str(error)
        else:
            line = ""
            assert np.shape(released) == shape
            found.append(shape)
        assert (repr(sensitivity) in line) == line.startswith("value = ") == (line != "")
    if () in found:
        assert type(mechanism.release(7)) is int
    else:
        with pytest.raises(InvalidParameter, match="value = 7"):
            mechanism.release(7)
    return found


def test_a_release_must_have_the_shape_of_its_sensitivity(monkeypatch: pytest.MonkeyPatch) -> None:
    assert released_shapes(Sensitivity(1)) == [()]
    assert released_shapes(Sensitivity.box((1, 1))) == [(2,)]
    assert released_shapes(Sensitivity.box((5,))) == [(), (1,)]
    assert released_shapes(Sensitivity.box((1, 2, 3))) == [(3,)]
    # These guarantees are maxima over all divisions of the sensitivity among any number of entries.
    assert released_shapes(Sensitivity.l1(1)) == SHAPES
    assert released_shapes(Sensitivity.l2_squared(3)) == SHAPES
    monkeypatch.setattr(Mechanism, "_must_fit", lambda self, value, shape: None)
    assert released_shapes(Sensitivity(1)) == SHAPES


def test_two_releases_share_no_noise() -> None:
    wide = Mechanism(noise=DiscreteLaplace(scale=2**45), sensitivity=Sensitivity(1))
    twin = copy.deepcopy(wide)
    released = [wide.release(0) for _ in range(500)] + [twin.release(0) for _ in range(500)]
    many = dataclasses.replace(wide, sensitivity=Sensitivity.l1(1))
    released += many.release(np.zeros(500, dtype=np.int64)).tolist()
    assert len(set(released)) == 1500


def test_the_share_of_honest_noise_is_exact() -> None:
    # A float must not stay a float in a record: it is read by its decimal form.
    shares: list[tuple[Any, Fraction]] = [
        (1, Fraction(1)),
        (Fraction(1, 3), Fraction(1, 3)),
        (0.1, Fraction(1, 10)),
        ("1/2", Fraction(1, 2)),
    ]
    for honest, exact in shares:
        record = Release(mechanism=MECHANISM, batch="a", honest=honest)
        assert isinstance(record.honest, Fraction)
        assert record.honest == exact
