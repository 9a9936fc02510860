r"""Tests of `secure_aggregation.pseudorandom_vector`: AES-256-CTR, rejection, no overflow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import InvalidParameter
from dpcore.secure_aggregation.pseudorandom_vector import LARGEST_MODULUS, add, mask, subtract
from tests.support.dpcore.mutants import mutated
from tests.support.secure_aggregation.independent_server import residues

KEY = bytes(range(32))
MODULI = [2, 7, 1000, 2**31 - 1, 3 * 2**60, 2**62 - 57, 2**62]


@pytest.mark.parametrize("modulus", MODULI)
@pytest.mark.parametrize("count", [0, 7, 100])
def test_masks_agree_with_an_independent_computation(modulus: int, count: int) -> None:
    found = mask(KEY, count=count, modulus=modulus)
    assert found.dtype == np.int64
    assert found.tolist() == residues(KEY, count=count, modulus=modulus)


MUTANTS = {
    "no rejection": ("drawn[drawn <= last]", "drawn"),
    "last multiple rejected": ("- 1 - (1 << 64) % modulus", "- 1 - modulus - (1 << 64) % modulus"),
    "big-endian words": ('"<u8"', '">u8"'),
    "from counter 1": ("bytes(16)", "bytes(15) + b'1'"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_of_the_mask_is_detected(name: str) -> None:
    mutant = mutated(mask, *MUTANTS[name])
    found = mutant(KEY, count=100, modulus=3 * 2**60).tolist()
    assert found != residues(KEY, count=100, modulus=3 * 2**60)


drawn_pairs = st.integers(2, LARGEST_MODULUS).flatmap(
    lambda m: st.tuples(st.just(m), st.integers(0, m - 1), st.integers(0, m - 1))
)


@given(drawn_pairs)
def test_sums_and_differences_are_exact(drawn: tuple[int, int, int]) -> None:
    m, a, b = drawn
    left, right = np.array([a, m - 1, 0]), np.array([b, m - 1, m - 1])
    assert add(left, right, m).tolist() == [(a + b) % m, (2 * m - 2) % m, m - 1]
    assert subtract(left, right, m).tolist() == [(a - b) % m, 0, 1]
    assert left.tolist() == [a, m - 1, 0]


def test_a_mutant_of_add_is_detected_at_the_border() -> None:
    mutant = mutated(add, "total >= modulus", "total > modulus")
    assert mutant(np.array([3]), np.array([4]), 7).tolist() != [0]


@pytest.mark.parametrize(
    ("argument", "key", "count", "modulus"),
    [
        ("modulus", KEY, 1, 1),
        ("modulus", KEY, 1, 2**62 + 1),
        ("modulus", KEY, 1, 2.0),
        ("count", KEY, -1, 5),
        ("key", KEY[:16], 1, 5),
    ],
)
def test_an_invalid_mask_is_refused(argument: str, key: bytes, count: int, modulus: Any) -> None:
    with pytest.raises(InvalidParameter) as refused:
        mask(key, count=count, modulus=modulus)
    assert refused.value.argument == argument
