r"""Tables of a symmetric law from half of its masses, asked at both ends of int64.

The law is rational, P(X = k) = (4 - |k|)/16, and summed by hand. Mutants: a sign forgotten, an
absolute value that int64 does not have, a tail that counts its own mass, a table one place off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flint import arb

from dpcore.errors import InvalidParameter
from dpcore.laws.skellam import Skellam
from dpcore.sampling.inversion import (
    FIXED_BITS,
    FloatTable,
    InversionTable,
    float_table,
    symmetric_table,
)
from dpcore.sampling.rng import SeededRng
from tests.support.dpcore.mutants import mutated, rewired

ENDS = [-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1]
PLACES = np.array([*range(-9, 10), *ENDS])
SIZES = np.array([*range(10), *ENDS[2:]])
UNIT = 1 << (FIXED_BITS - 4)
LookUp = Callable[[FloatTable, Any], Any]


def weight(k: int) -> int:
    return max(4 - abs(k), 0)


def cdf(k: int) -> arb:
    return arb(sum(weight(j) for j in range(-9, min(k, 9) + 1))) / 16


def table(build: Callable[..., FloatTable] = float_table) -> FloatTable:
    return build([arb(weight(k)) / 16 for k in range(4)], arb(0))


def wrong_floats(found: FloatTable, mass: LookUp, upper: LookUp) -> bool:
    masses = [weight(k) / 16 for k in PLACES.tolist()]
    tails = [sum(weight(j) for j in range(k + 1, 9)) / 16 for k in SIZES.tolist()]
    try:
        read: list[float] = mass(found, PLACES).tolist() + upper(found, SIZES).tolist()
    except IndexError:
        return True
    return read != masses + tails


def support(build: Callable[..., InversionTable] = symmetric_table) -> list[int]:
    masses = [(weight(k) * UNIT, weight(k) * UNIT) for k in range(5)]
    return sorted(set(build(masses, (0, 0), cdf).draw(SeededRng(1), 4096).tolist()))


def test_half_the_masses_give_everything() -> None:
    assert not wrong_floats(table(), FloatTable.mass, FloatTable.upper)
    assert support() == [-3, -2, -1, 0, 1, 2, 3]


@pytest.mark.parametrize(
    ("old", "new"), [(" + (k < 0)", ""), ("k, ~k", "k, -k"), ("k >= 0, k, ~k", "k >= 0, k, k")]
)
def test_a_mass_read_at_the_wrong_place_is_caught(old: str, new: str) -> None:
    broken = mutated(FloatTable.mass, old, new)
    assert wrong_floats(table(), broken, FloatTable.upper)


def test_a_tail_with_its_own_mass_is_caught() -> None:
    broken = mutated(float_table, "masses[:0:-1]", "masses[::-1]")
    assert wrong_floats(table(broken), FloatTable.mass, FloatTable.upper)


def test_a_table_one_place_off_is_caught() -> None:
    assert support(mutated(symmetric_table, "1 - len(masses)", "-len(masses)")) != support()


def test_a_table_that_reaches_too_near_is_refused() -> None:
    noise = Skellam(variance=400)
    build = Skellam.build_batch.__globals__["_table"]
    with pytest.raises(InvalidParameter, match="F\\(first\\)"):
        rewired(build, table_reach=lambda _: 100)(noise)
