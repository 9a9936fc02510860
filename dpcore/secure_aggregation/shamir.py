r"""Shamir secret sharing: ``threshold`` shares reconstruct a secret, and fewer reveal nothing.

The secret is the value at 0 of a uniformly random polynomial of degree below ``threshold`` over a
prime field; the share of a point x is the value at x (A. Shamir, "How to share a secret", CACM
22(11), 1979). The default field has 2^257 - 93 elements, so that 32 bytes fit in one element and
two uniform elements are almost never equal. The running time depends on the values: there is no
protection against an attacker who measures it. Proof: docs/proofs/masked_aggregation.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from flint import fmpz_mod_ctx, fmpz_mod_poly_ctx

from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import integer
from dpcore.sampling.rng import SYSTEM, Rng

PRIME: Final = (1 << 257) - 93
ELEMENT_BYTES: Final = 33


def share(
    secret: int, *, threshold: int, points: Sequence[int], rng: Rng = SYSTEM, prime: int = PRIME
) -> dict[int, int]:
    r"""Draw the share f(x) mod ``prime`` of each point x, where f(0) = ``secret``."""
    secret = integer("secret", secret, at_least=0)
    threshold = integer("threshold", threshold, at_least=1)
    if secret >= prime:
        # The value is a secret: the error does not repeat it.
        raise InvalidParameter("secret", "(not shown)", "must be below the prime of the field")
    _distinct(points, prime)
    if threshold > len(points):
        reason = f"must be <= {len(points)}, the number of points"
        raise InvalidParameter("threshold", threshold, reason)
    coefficients = [secret, *(rng.below(prime) for _ in range(threshold - 1))]
    polynomial = _polynomials(prime)(coefficients)
    values = polynomial.multipoint_evaluate(list(points))
    return {x: int(value) for x, value in zip(points, values, strict=True)}


def weights(points: Sequence[int], *, prime: int = PRIME) -> list[int]:
    r"""The Lagrange coefficients at 0, w_i = prod_(j != i) x_j / (x_j - x_i) mod ``prime``.

    f(0) = sum_i w_i f(x_i) for every polynomial f of degree below the number of points.
    """
    _distinct(points, prime)
    product = math.prod(points)
    below = (math.prod(y - x for y in points if y != x) for x in points)
    pairs = zip(points, below, strict=True)
    return [product // x * pow(apart, -1, prime) % prime for x, apart in pairs]


def interpolate(coefficients: Sequence[int], values: Sequence[int], *, prime: int = PRIME) -> int:
    r"""Compute f(0) from the :func:`weights` of some points and the values of f at these points.

    Too few shares, or shares of different secrets, give a meaningless number; compare the result
    with a published commitment.
    """
    terms = zip(coefficients, values, strict=True)
    return sum(weight * value for weight, value in terms) % prime


def write_element(value: int) -> bytes:
    r"""Encode an element of the default field as 33 bytes, most significant first."""
    if not 0 <= value < PRIME:
        raise InvalidParameter("value", "(not shown)", "must be in [0, PRIME)")
    return value.to_bytes(ELEMENT_BYTES, "big")


def read_element(encoded: bytes) -> int:
    r"""Decode an element from 33 bytes; the encoding is unique."""
    value = int.from_bytes(encoded, "big")
    if len(encoded) != ELEMENT_BYTES or value >= PRIME:
        raise InvalidParameter(
            "encoded", "(not shown)", "must be 33 bytes that encode a number below PRIME"
        )
    return value


def _distinct(points: Sequence[int], prime: int) -> None:
    if not points:
        raise InvalidParameter("points", points, "must not be empty")
    if len(set(points)) != len(points) or not all(0 < x < prime for x in points):
        raise InvalidParameter("points", points, "must be distinct and in [1, prime)")


@lru_cache(maxsize=8)
def _polynomials(prime: int) -> Any:
    return fmpz_mod_poly_ctx(fmpz_mod_ctx(prime))
