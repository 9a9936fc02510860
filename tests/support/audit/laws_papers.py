r"""Output laws of the catalogue: Gaussian noise, and claims of papers run as mechanisms."""

from __future__ import annotations

from typing import Any, Final

import mpmath
from mpmath import mpf

from tests.support.audit.catalogue_laws import Law, Masses, laplace, polya_difference

__all__ = ["LAWS"]

_USERS: Final = 64
_FAR: Final = 24


def gaussian(sigma_squared: int, step: int, reach: int) -> Law:
    """A value in steps, and discrete Gaussian noise."""
    window = range(-reach, reach + 1)
    density = [mpmath.exp(-mpf(k * k) / (2 * sigma_squared)) for k in window]
    total = mpmath.fsum(density)
    noise = {k: mass / total for k, mass in zip(window, density, strict=True)}
    return lambda value: {k + step * value: mass for k, mass in noise.items()}


def bits(chance: str) -> Law:
    """A value in thirds, and eight noise bits."""
    p = mpf(chance)
    return lambda value: {
        3 * value + k: mpmath.binomial(8, k) * p**k * (1 - p) ** (8 - k) for k in range(9)
    }


def sum_and_coin(scale: int) -> Law:
    """The sum of 64 messages, and a coin about the first, split by the noise of the first."""
    u = mpf("1.284")
    likely, other = u / (1 + u), 1 / (u * (1 + u))

    def law(value: int) -> Masses:
        # The noise of the first user makes the message 1, and the others make up the sum.
        one = polya_difference(1 - value, mpf(1) / _USERS, scale)
        masses: Masses = {}
        for seen in range(-_FAR, _FAR + 2):
            whole: Any = laplace(seen - value, scale)
            hit = one * polya_difference(seen - 1, 1 - mpf(1) / _USERS, scale)
            masses[seen, 1] = likely * hit + other * (whole - hit)
            masses[seen, 0] = whole - masses[seen, 1]
        return masses

    return law


LAWS: Final[dict[str, Law]] = {
    "sigma-for-its-square": gaussian(2, 1, 60),
    "gaussian-of-four": gaussian(4, 1, 80),
    "classical-gaussian": gaussian(322, 100, 700),
    "exact-gaussian": gaussian(611, 100, 900),
    "lemma-bits": bits("0.726"),
    "fair-bits": bits("0.5"),
    "relaxed-sum": sum_and_coin(2),
    "shuffled-as-printed": sum_and_coin(1),
}
r"""One law a name, broken or twin."""
