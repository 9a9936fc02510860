r"""The discrete Laplace law: tanh(1/(2s)) e^(-|k|/s) and its geometric sums, by mpmath."""

from __future__ import annotations

import math
from fractions import Fraction

from mpmath import mp

from dpcore import DiscreteLaplace, Noise
from tests.support.dpcore.mpmath_precision import Real, real

NAME = "discrete-laplace"
ROWS = ("scale=1/10", "scale=1/3", "scale=10", "scale=1000000", "scale=2e12")
BEYOND = "scale=1e30"
GRID: list[Noise] = [
    DiscreteLaplace(scale=s) for s in ("1e-6", "1/50", "1/3", 1, 10, "1048576.3", 2**46, 2**80)
]


def _scale(noise: Noise) -> Fraction:
    return Fraction(noise.parameters["scale"])


def pmf(noise: Noise, k: int) -> Real:
    r"""tanh(1/(2s)) e^(-|k|/s)."""
    scale = real(_scale(noise))
    return mp.tanh(1 / (2 * scale)) * mp.exp(-abs(k) / scale)


def log_pmf(noise: Noise, k: int) -> Real:
    r"""log tanh(y) = log1p(-q) - log1p(q) with q = e^(-2y): no digit is lost near 0."""
    scale = real(_scale(noise))
    q = mp.exp(-1 / scale)
    return mp.log1p(-q) - mp.log1p(q) - abs(k) / scale


def sf(noise: Noise, k: int) -> Real:
    r"""P(X > k), by the geometric series of the pmf."""
    scale = real(_scale(noise))
    return mp.exp(-(k + 1) / scale) / (1 + mp.exp(-1 / scale))


def variance(noise: Noise) -> Real:
    half = 1 / (2 * real(_scale(noise)))
    return 2 / (mp.exp(half) - mp.exp(-half)) ** 2


def reach(noise: Noise) -> int:
    return max(1, math.ceil(_scale(noise)))


def decay(noise: Noise, k: int) -> float:
    return float(min(abs(k) / _scale(noise), Fraction(10**9)))
