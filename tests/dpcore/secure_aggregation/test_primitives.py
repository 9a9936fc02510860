"""Tests of secret sharing and masks, and of the committed test vectors of whole rounds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import InvalidParameter
from dpcore.sampling.rng import Rng, SeededRng, Words
from dpcore.secure_aggregation.keys_and_masks import add, mask, subtract
from dpcore.secure_aggregation.round_parameters import LARGEST_MODULUS
from dpcore.secure_aggregation.shamir import PRIME, interpolate, share, weights, write_element
from tests.support.dpcore.mutants import mutated
from tests.support.secure_aggregation.independent_server import SecondServer, residues, x25519
from tests.support.secure_aggregation.vectors import PATH, ROUNDS, vectors

KEY = bytes(range(32))


class Coefficients(Rng):
    r"""Deals given field elements."""

    def __init__(self, dealt: Sequence[int]) -> None:
        self.left = list(dealt)

    def bits(self, count: int) -> int:
        raise AssertionError

    def words(self, count: int) -> Words:
        raise AssertionError

    def below(self, bound: int) -> int:
        return self.left.pop(0) % bound


@given(st.integers(1, 8), st.integers(0, 4), st.integers(0, PRIME - 1), st.data())
def test_any_threshold_number_of_shares_gives_the_secret(
    threshold: int, spare: int, secret: int, data: st.DataObject
) -> None:
    points = list(range(1, threshold + spare + 1))
    shares = share(secret, threshold=threshold, points=points, rng=SeededRng(3))
    chosen = data.draw(st.permutations(points))[:threshold]
    assert interpolate(weights(chosen), [shares[x] for x in chosen]) == secret
    assert interpolate(weights(points), list(shares.values())) == secret


@given(st.lists(st.integers(1, 300), min_size=1, max_size=12, unique=True))
def test_lagrange_weights_agree_with_rationals(points: list[int]) -> None:
    for i, weight in enumerate(weights(points)):
        exact = Fraction(1)
        for j, y in enumerate(points):
            if j != i:
                exact *= Fraction(y, y - points[i])
        assert (weight * exact.denominator - exact.numerator) % PRIME == 0


def leaks(draw: Callable[..., Any], prime: int, threshold: int) -> bool:
    r"""Whether threshold - 1 of four shares have a joint law that depends on the secret."""
    points = [1, 2, 3, 4]
    laws: dict[tuple[int, ...], list[Counter[tuple[int, ...]]]] = {}
    for secret in range(prime):
        tables = [
            draw(secret, threshold=threshold, points=points, rng=Coefficients(dealt), prime=prime)
            for dealt in product(range(prime), repeat=threshold - 1)
        ]
        for seen in combinations(points, threshold - 1):
            law = Counter(tuple(table[x] for x in seen) for table in tables)
            laws.setdefault(seen, []).append(law)
    return any(law != several[0] for several in laws.values() for law in several)


@pytest.mark.parametrize(("prime", "threshold"), [(5, 2), (7, 3), (5, 4), (11, 3)])
def test_fewer_shares_reveal_nothing(prime: int, threshold: int) -> None:
    assert not leaks(share, prime, threshold)
    for wrong in ("1 + rng.below(prime) % (prime - 1) for", "1 for"):  # never 0, and constant
        assert leaks(mutated(share, "rng.below(prime) for", wrong), prime, threshold)


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("secret", partial(share, PRIME + 123456789, threshold=1, points=[1])),
        ("threshold", partial(share, 1, threshold=3, points=[1, 2])),
        ("points", partial(share, 1, threshold=1, points=[0, 1])),
        ("points", partial(share, 1, threshold=1, points=[1, 1])),
        ("points", partial(share, 1, threshold=1, points=[PRIME])),
        ("points", partial(weights, [0, 1])),
        ("value", partial(write_element, PRIME)),
        ("modulus", partial(mask, KEY, count=1, modulus=1)),
        ("modulus", partial(mask, KEY, count=1, modulus=2**62 + 1)),
        ("count", partial(mask, KEY, count=-1, modulus=5)),
        ("key", partial(mask, KEY[:16], count=1, modulus=5)),
    ],
)
def test_invalid_sharings_and_masks_are_refused(argument: str, call: Callable[[], object]) -> None:
    with pytest.raises(InvalidParameter) as refused:
        call()
    assert refused.value.argument == argument
    assert str(PRIME + 123456789) not in str(refused.value)  # no secret is in the error


@pytest.mark.parametrize("modulus", [2, 1000, 2**31 - 1, 3 * 2**60, 2**62 - 57, 2**62])
def test_masks_agree_with_an_independent_computation(modulus: int) -> None:
    for count in (0, 7, 100):
        found = mask(KEY, count=count, modulus=modulus)
        assert found.dtype == np.int64
        assert found.tolist() == residues(KEY, count=count, modulus=modulus)
    if modulus == 3 * 2**60:  # no rejection, and the last multiple rejected
        last = "- 1 - (1 << 64) % modulus"
        for edit in (
            ("drawn[drawn <= last]", "drawn"),
            (last, last.replace("1 -", "1 - modulus -")),
        ):
            assert mutated(mask, *edit)(KEY, count=100, modulus=modulus).tolist() != found.tolist()


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
    at_the_border = mutated(add, "total >= modulus", "total > modulus")
    assert at_the_border(np.array([1]), np.array([m - 1]), m).tolist() != [0]


VECTORS: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))


def test_the_code_writes_the_bytes_of_the_vectors() -> None:
    assert json.loads(json.dumps(vectors())) == VECTORS
    seen = {message["type"] for v in VECTORS["rounds"].values() for message in v["messages"]}
    assert seen == set(range(1, 8))


@pytest.mark.parametrize("name", ROUNDS)
def test_an_independent_server_computes_the_sum_from_the_bytes(name: str) -> None:
    vector = VECTORS["rounds"][name]
    total, there = SecondServer(vector).total(vector["messages"])
    rows = [vector["inputs"][name] for name in vector["participants"]]
    plain = [sum(column) % vector["round"]["modulus"] for column in zip(*rows, strict=True)]
    assert total == vector["sum"] == plain
    assert there == vector["participants"]


def test_a_changed_vector_is_detected() -> None:
    vector = VECTORS["rounds"]["no dropouts"]
    at = next(i for i, m in enumerate(vector["messages"]) if m["type"] == 5)
    message = vector["messages"][at]
    data = bytearray.fromhex(message["bytes"])
    data[-40] ^= 1
    edited = [*vector["messages"]]
    edited[at] = {**message, "bytes": data.hex()}
    with pytest.raises(AssertionError):
        SecondServer(vector).total(edited)


def test_the_montgomery_ladder_agrees_with_the_standard() -> None:
    # RFC 7748, section 5.2, the first vector.
    scalar = "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4"
    point = "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"
    product = "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    assert x25519(bytes.fromhex(scalar), bytes.fromhex(point)).hex() == product
