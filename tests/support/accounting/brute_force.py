"""Reference values of one release: plain sums over integers in mpmath, all shifts and directions.

Rays, closed forms and worst shifts are not used.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath

from dpcore import DiscreteGaussian, DiscreteLaplace, Noise
from dpcore.numbers.enclosure import Enclosure
from tests.support.dpcore import mpmath_precision
from tests.support.laws import second

DIGITS = 50
EPSILONS = ("0", "1/1000", "1/10", "1/3", "1", "5/2", "7")
Mass = Callable[[int], Any]


real = mpmath_precision.real


def mass_of(noise: Noise) -> Mass:
    """Return the masses of a law from its reference module, at the ambient digits."""
    return lambda k: second(noise, "pmf", k)


def laplace(scale: Fraction | int | str) -> Mass:
    return mass_of(DiscreteLaplace(scale=scale))


def gaussian(variance: Fraction | int | str) -> Mass:
    return mass_of(DiscreteGaussian(sigma_squared=variance))


def triangle(half: int) -> Mass:
    return lambda k: mpmath.mpf(max(half + 1 - abs(k), 0)) / (half + 1) ** 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Brute:
    """All given vector shifts, over the cube |x_i| <= reach, in both directions."""

    mass: Mass
    shifts: tuple[tuple[int, ...], ...]
    reach: int

    def worlds(self) -> Iterable[list[tuple[Any, Any]]]:
        single = {k: self.mass(k) for k in range(-2 * self.reach - 1, 2 * self.reach + 2)}
        for shift in self.shifts:
            for signed in (shift, tuple(-step for step in shift)):
                axes = [
                    [(single[x], single[x - step]) for x in range(-self.reach, self.reach + 1)]
                    for step in signed
                ]
                yield [
                    (mpmath.fprod(p for p, _ in point), mpmath.fprod(q for _, q in point))
                    for point in itertools.product(*axes)
                ]

    def delta(self, epsilon: Fraction | int | str) -> Any:
        with mpmath.workdps(DIGITS):
            factor = mpmath.exp(real(epsilon))
            return max(
                mpmath.fsum(max(p - factor * q, 0) for p, q in world) for world in self.worlds()
            )

    def renyi(self, order: Fraction | int | str) -> Any:
        with mpmath.workdps(DIGITS):
            alpha = real(order)
            return max(
                mpmath.log(mpmath.fsum(p**alpha * q ** (1 - alpha) for p, q in world)) / (alpha - 1)
                for world in self.worlds()
            )

    def divergence(self) -> Any:
        with mpmath.workdps(DIGITS):
            return max(
                mpmath.fsum(p * mpmath.log(p / q) for p, q in world) for world in self.worlds()
            )

    def tradeoff(self, alpha: Fraction | int | str) -> Any:
        """Neyman and Pearson: reject the null in rising order of null over alternative."""
        with mpmath.workdps(DIGITS):
            return min(self._type_two(world, real(alpha)) for world in self.worlds())

    @staticmethod
    def _type_two(world: list[tuple[Any, Any]], left: Any) -> Any:
        missed = mpmath.mpf(1)
        for null, other in sorted(world, key=lambda both: both[0] / both[1]):
            share = min(left / null, 1)
            missed -= share * other
            left -= share * null
        return missed


def close(found: Enclosure, truth: Any, *, relative: str = "1e-30") -> bool:
    """Whether the enclosure contains a reference that is accurate to a relative error."""
    with mpmath.workdps(DIGITS):
        slack = abs(truth) * mpmath.mpf(relative)
        return bool(
            real(Fraction(found.lower)) - slack <= truth <= real(Fraction(found.upper)) + slack
        )
