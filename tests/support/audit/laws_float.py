r"""The law of the lowest bit of Laplace noise in floating point, by the arithmetic of doubles.

A double x is a multiple of 2^(f - 52) where 2^f <= \|x\| < 2^(f+1). Noise is z = 16 ln u, whose
significand is evenly spread: it is a multiple of g more powers of two with chance 2^-(g+1). 0 + z
is z. 1 + z is exact where the result is no coarser than z; where it is d powers of two coarser, a
share 2^-d of the sums lie halfway between two results and are rounded to the even one. What this
leaves out (sums on the edge of a power of two, noise near 2^-50) is a share of less than 2^-40.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import mpmath
from mpmath import mpf

from tests.support.audit.catalogue_laws import Law, Masses

__all__ = ["LAWS"]

_SCALE: Final = 16
_POWERS: Final = range(-40, 10)
_DEEPEST: Final = 60


def _between(low: Any, high: Any) -> Any:
    # P(low <= z < high) for 0 <= low.
    return (mpmath.exp(-mpf(low) / _SCALE) - mpmath.exp(-mpf(high) / _SCALE)) / 2


def _plus_zero() -> Iterator[tuple[int, int, Any]]:
    # The power f of the grain 2^(f - 52) of the output, how much coarser it is than z, the mass.
    for f in _POWERS:
        yield f, 0, 2 * _between(mpf(2) ** f, mpf(2) ** (f + 1))


def _plus_one() -> Iterator[tuple[int, int, Any]]:
    for f in _POWERS:
        low, high = mpf(2) ** f, mpf(2) ** (f + 1)
        if f < 0:
            # 1 <= 1 + z < 2; and 1/2 < 1 - \|z\| < 1, or exact for \|z\| >= 1/2.
            yield 0, -f, _between(low, high)
            yield -1, -1 - f, _between(low, high)
        else:
            # 1 + z stays below the next power of two or passes it; 1 - \|z\| is exact.
            yield f, 0, _between(low, high - 1)
            yield f + 1, 1, _between(high - 1, high)
            yield f, 0, _between(low, high)


def float_laplace(amount: float) -> Masses:
    """The largest power of two that divides the output, for an amount of 0 or 1."""
    masses: Masses = {}
    for f, coarser, mass in _plus_one() if amount else _plus_zero():
        halfway = mpf(2) ** -coarser if coarser else mpf(0)
        for g in range(_DEEPEST):
            share = (1 - halfway) / 2 if g == 0 else (1 + halfway) / mpf(2) ** (g + 1)
            masses[f - 52 + g] = masses.get(f - 52 + g, mpf(0)) + mass * share
    return masses


LAWS: Final[dict[str, Law]] = {"float-laplace": float_laplace}
r"""One law a name, of the entry's feature."""
