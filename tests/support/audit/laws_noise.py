r"""Output laws of the catalogue: noise of the wrong size or shape, bounds read off the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import mpmath
from mpmath import mpf

from tests.support.audit.catalogue_laws import Law, Masses, laplace, laplace_upto, number

__all__ = ["LAWS"]


def clamped_noise(value: int) -> Masses:
    """Ends of -4 and 4 hold what lies beyond them."""
    inner = {value + k: laplace(k, 1) for k in range(-3, 4)}
    return {value - 4: laplace_upto(-4, 1), **inner, value + 4: laplace_upto(-4, 1)}


def clamped_sum(value: int) -> Masses:
    """The same with ends of -4 and 5 wherever the value is."""
    inner = {k: laplace(k - value, 1) for k in range(-3, 5)}
    return {-4: laplace_upto(-4 - value, 1), **inner, 5: laplace_upto(value - 5, 1)}


def redrawn_noise(value: int) -> Masses:
    """Laplace noise, given that it is at most 6."""
    kept = mpmath.fsum(laplace(k, 1) for k in range(-6, 7))
    return {value + k: laplace(k, 1) / kept for k in range(-6, 7)}


def bounded_total(values: Sequence[int]) -> int:
    return sum(min(max(value, 0), 1) for value in values)


LAWS: Final[dict[str, Law]] = {
    "five-percent": number(mpf(20) / 21),
    "clamped-noise": clamped_noise,
    "clamped-sum": clamped_sum,
    "redrawn-noise": redrawn_noise,
    "bounds-from-data": number(1, sum),
    "public-bounds": number(1, bounded_total),
}
r"""One law a name, broken or twin."""
