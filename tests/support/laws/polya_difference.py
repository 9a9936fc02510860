r"""The difference of two Polya variables by mpmath: plain sums, and an integral around the cut."""

from __future__ import annotations

from fractions import Fraction

from mpmath import mp, mpf

from dpcore import Noise
from dpcore.laws.polya import PolyaDifference
from tests.support.dpcore.mpmath_precision import Real, real
from tests.support.laws import polya
from tests.support.laws.polya import around_cut, far_enough, masses, one_mass, scale_of, shape_of

NAME = "polya-difference"
ROWS = (
    *("shape=1/3,scale=1/10", "shape=0.9,scale=10", "shape=7/2,scale=3/2"),
    *("shape=1/1024,scale=1000", "shape=1/16,scale=1048576"),
)
BEYOND, reach, decay = polya.BEYOND, polya.reach, polya.decay
GRID: list[Noise] = [PolyaDifference(**noise.parameters) for noise in polya.GRID]
_SUMMED = 64


def pmf(noise: Noise, k: int) -> Real:
    r"""tanh(1/(2s)) beta^|k| for shape 1, sum_y P(Y = y) P(Y = y + |k|), or the integral."""
    shape, scale, k = shape_of(noise), scale_of(noise), abs(k)
    if shape == 1:
        return mp.tanh(1 / (2 * real(scale))) * mp.exp(-k / real(scale))
    if scale <= _SUMMED:
        if k > 800 * scale + 1000:
            return _far(shape, scale, k)
        one, _ = masses(shape, scale, mp.dps, far_enough(shape, scale, k))
        return mp.fsum(a * b for a, b in zip(one, one[k:], strict=False))
    return around_cut(shape, scale, k, left=True, tail=False)


def log_pmf(noise: Noise, k: int) -> Real:
    r"""log P(X = k); where P(X = 0) is next to 1, from the remaining mass."""
    shape, scale = shape_of(noise), scale_of(noise)
    if k == 0 and scale < 1:
        with mp.workdps(mp.dps + 10):
            r, beta = real(shape), mp.exp(-1 / real(scale))
            rest = mp.nsum(
                lambda j: (mp.rf(r, j) / mp.factorial(j)) ** 2 * beta ** (2 * j), [1, 90]
            )
            return 2 * r * mp.log1p(-beta) + mp.log1p(rest)
    with mp.workdps(mp.dps + 20):
        return mp.log(pmf(noise, k))


def sf(noise: Noise, k: int) -> Real:
    r"""P(X > k) = sum_y P(Y = y) P(Y > y + k), or the integral around the cut."""
    shape, scale = shape_of(noise), scale_of(noise)
    if shape == 1:
        return mp.exp(-(k + 1) / real(scale)) / (1 + mp.exp(-1 / real(scale)))
    if scale <= _SUMMED:
        if k > 800 * scale + 1000:
            return _far(shape, scale, k + 1) / -mp.expm1(-1 / real(scale))  # magnitude only
        one, tails = masses(shape, scale, mp.dps, far_enough(shape, scale, k))
        return mp.fsum(a * b for a, b in zip(one, tails[k + 1 :], strict=False))
    return around_cut(shape, scale, k + 1, left=True, tail=True)


def _far(shape: Fraction, scale: Fraction, k: int) -> Real:
    # P(X = k) = P(one = k) (1+beta)^-r (1 + O(1/k)): so far out only the magnitude is used, but
    # also its logarithm, so the series sum_y P(Y = y) P(Y = k+y)/P(Y = k) is summed.
    with mp.workdps(mp.dps + 10):
        r, beta = real(shape), mp.exp(-1 / real(scale))
        total, term, y = mpf(0), one_mass(shape, scale, 0), 0
        while term > mp.eps * total or y < 2 * shape:
            total += term
            term *= beta**2 * (y + r) / (y + 1) * (k + y + r) / (k + y + 1)
            y += 1
        return total * one_mass(shape, scale, k)


def variance(noise: Noise) -> Real:
    return 2 * polya.variance(noise)
