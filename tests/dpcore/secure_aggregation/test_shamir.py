"""Tests of `shamir`: threshold shares give the secret; the law of fewer does not depend on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import InvalidParameter
from dpcore.sampling.rng import Rng, SeededRng, Words
from dpcore.secure_aggregation.shamir import PRIME, interpolate, share, weights, write_element
from tests.support.dpcore.mutants import mutated


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


MUTANTS = {
    "one coefficient too few": ("range(threshold - 1)", "range(threshold - 2)"),
    "never 0": ("rng.below(prime) for", "1 + rng.below(prime) % (prime - 1) for"),
    "constant": ("rng.below(prime) for", "1 for"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_of_the_sharing_reveals_the_secret(name: str) -> None:
    assert leaks(mutated(share, *MUTANTS[name]), 7, 3)


REFUSED: list[tuple[str, Callable[[], object]]] = [
    ("secret", lambda: share(PRIME, threshold=1, points=[1])),
    ("threshold", lambda: share(1, threshold=3, points=[1, 2])),
    ("points", lambda: share(1, threshold=1, points=[0, 1])),
    ("points", lambda: share(1, threshold=1, points=[1, 1])),
    ("points", lambda: share(1, threshold=1, points=[PRIME])),
    ("points", lambda: weights([0, 1])),
    ("value", lambda: write_element(PRIME)),
]


@pytest.mark.parametrize("row", range(len(REFUSED)))
def test_an_invalid_sharing_is_refused(row: int) -> None:
    argument, call = REFUSED[row]
    with pytest.raises(InvalidParameter) as refused:
        call()
    assert refused.value.argument == argument


def test_a_refusal_does_not_contain_the_secret() -> None:
    secret = PRIME + 123456789
    with pytest.raises(InvalidParameter) as refused:
        share(secret, threshold=1, points=[1])
    assert str(secret) not in str(refused.value)
