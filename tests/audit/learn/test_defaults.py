r"""What an audit looks at by default follows the first outputs, and the shares add up."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from audit.learn.defaults import default_family

_NOISE = np.random.default_rng(1).laplace(size=(32, 5))
_FLOATS = ["identity", "lowest-bit"]
_FLOAT_VECTORS = ["identity", "coordinates", "learned", "grid"]
_VECTORS = ["identity", "coordinates", "learned"]


def _cut(number: float) -> float | int:
    # As a library cuts it off: the bound is an int.
    return max(min(number, 2), -2)


@pytest.mark.parametrize(
    ("outputs", "features"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([1.5] * 32, [], id="one value"),
        pytest.param(list(range(32)), [], id="integers"),
        pytest.param([f"row {k}" for k in range(32)], [], id="labels"),
        pytest.param([float(k) for k in range(32)], [], id="whole floats"),
        pytest.param([0.5, 1.5] * 16, [], id="floats that come again"),
        pytest.param(_NOISE[:, 0].tolist(), _FLOATS, id="floats"),
        pytest.param(_NOISE[:, 0], _FLOATS, id="an array of floats"),
        pytest.param([*_NOISE[:30, 0].tolist(), 10**400, None], _FLOATS, id="with a few others"),
        pytest.param(_NOISE, _FLOAT_VECTORS, id="float vectors"),
        pytest.param(np.tile(_NOISE, 22)[:, :64], _FLOAT_VECTORS, id="64 floats"),
        pytest.param(np.tile(_NOISE, 22)[:, :65], _VECTORS, id="65 floats have no grids"),
        pytest.param(
            [(float(x), k % 2) for k, x in enumerate(_NOISE[:, 0])], _FLOAT_VECTORS, id="records"
        ),
        pytest.param([(k, k % 3) for k in range(32)], _VECTORS, id="integer vectors"),
        pytest.param([(k % 2, k % 3) for k in range(32)], _VECTORS, id="vectors that come again"),
    ],
)
def test_the_family_follows_the_outputs(outputs: Any, features: list[str]) -> None:
    family = default_family(outputs)
    assert sorted(share.feature for share in family) == sorted(features)
    assert sum(share.share for share in family) == (Fraction(1) if features else 0)


def test_a_float_cut_off_at_an_integer_is_a_float() -> None:
    cut = [_cut(number) for number in _NOISE[:, 0].tolist()]
    assert 0 < sum(isinstance(number, int) for number in cut) < 8
    assert [share.feature for share in default_family(cut)] == _FLOATS
