r"""The staircase law as steps of equal masses, b^j on the j-th, summed by mpmath."""

from __future__ import annotations

import math
from fractions import Fraction

from mpmath import mp

from dpcore import Noise, Staircase
from tests.support.dpcore.mpmath_precision import Real, real

NAME = "staircase"
ROWS = (
    *("epsilon=20,sensitivity=2", "epsilon=1/3,sensitivity=3,plateau=1"),
    *("epsilon=3,sensitivity=20,plateau=12", "epsilon=1/1000,sensitivity=5000,plateau=4000"),
    "epsilon=1/100,sensitivity=1000000000,plateau=3",
)
BEYOND = "epsilon=1e-30,sensitivity=2,plateau=1"
GRID: list[Noise] = [
    Staircase(epsilon=e, sensitivity=d, plateau=r)
    for e, d, r in (
        *((1_000_000, 1 << 30, 5), (50, 3, 1), (50, 3, 2), (3, 1, 1), ("1/3", 7, 7)),
        *((3, 10, 3), ("0.3", 4, 1), (Fraction(1, 2**40), 9, 5), (Fraction(1, 2**16), 1 << 30, 77)),
    )
]


def _parts(noise: Noise) -> tuple[Real, Real, int, int]:
    # b, the sum of b, b^2, ..., Delta and r.
    epsilon, step, r = noise.parameters.values()
    rate = real(Fraction(epsilon))
    return mp.exp(-rate), 1 / mp.expm1(rate), int(step), int(r)


def _whole(noise: Noise) -> Real:
    # All weights: the plateau, and the steps of both sides.
    _, behind, step, r = _parts(noise)
    return 2 * r - 1 + 2 * step * behind


def _passed(noise: Noise, k: int) -> int:
    # The number of integers r, r + Delta, r + 2 Delta, ... that are at most |k|.
    *_, step, r = _parts(noise)
    return 0 if abs(k) < r else (abs(k) - r) // step + 1


def log_pmf(noise: Noise, k: int) -> Real:
    # Next to 1 for a large epsilon: the digits that the logarithm loses are added.
    epsilon = Fraction(noise.parameters["epsilon"])
    with mp.workdps(mp.dps + 30 + min(math.ceil(epsilon), 1000)):
        found = -mp.log(_whole(noise)) - real(_passed(noise, k) * epsilon)
    return +found


def pmf(noise: Noise, k: int) -> Real:
    return _parts(noise)[0] ** _passed(noise, k) / _whole(noise)


def sf(noise: Noise, k: int) -> Real:
    b, behind, step, r = _parts(noise)
    passed = _passed(noise, k)
    left = r + passed * step - 1 - k  # on the step of k, right of it
    return (left + step * behind) * b**passed / _whole(noise)


def reach(noise: Noise) -> int:
    epsilon, step, r = noise.parameters.values()
    return max(1, int(r) // 2, math.ceil(step / epsilon) if epsilon < 1 else 1)


def decay(noise: Noise, k: int) -> float:
    return float(min(_passed(noise, k) * noise.parameters["epsilon"], Fraction(10**9)))
