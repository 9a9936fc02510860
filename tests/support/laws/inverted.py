r"""Masses and tails of wide laws by quadrature of the inversion integral."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache

from mpmath import mp, mpf

from tests.support.dpcore.mpmath_precision import Real, real

_LOST = 60  # digits of v and k themselves, up to 2^80 each


def integral(
    log_moment: Callable[[Real], Real], k: int, saddle: Real, spread: Real, *, tail: bool
) -> Real:
    r"""P(X = k) or P(X >= k), from the saddle of log M(z) - kz and the deviation there."""
    digits = mp.dps
    with mp.workdps(digits + _LOST):
        # For a tail to the right of the saddle, away from the pole at 0.
        line = saddle + (4 / spread if tail else 0)
        need = (digits + 16) * math.log(10)
        across = math.sqrt(need / 2) / min(float(spread), 1e300)
        last = mp.pi if across >= 0.7 else 2 * mp.asin(mpf(1.02 * across))
        level = mp.re(log_moment(mp.mpc(line)) - line * k)

        def height(t: Real) -> Real:
            z = mp.mpc(line, t)
            value = mp.exp(log_moment(z) - z * k - level)
            return mp.re(value / -mp.expm1(-z) if tail else value)

        steps = 32
        corners = (height(mpf(0)) + height(last)) / 2
        corners += sum(height(last * j / steps) for j in range(1, steps))
        while True:
            middles = sum(height(last * (2 * j + 1) / (2 * steps)) for j in range(steps))
            apart = abs(corners / middles - 1)
            corners, steps = corners + middles, 2 * steps
            # Each doubling squares the error: it is now below the square of the last difference.
            if apart < mpf(10) ** -(digits / 2 + 6):
                break
            assert steps < 1 << 14, "the two rules do not agree"
        found = corners * last / steps * mp.exp(level) / mp.pi
    return +found


def of_gaussians(n: int, v: Fraction, k: int, *, tail: bool) -> Real:
    r"""P(X = k), or P(X >= k), of a sum of n discrete Gaussians of parameter v."""
    return +_of_gaussians(n, v, k, mp.dps, tail=tail)


@cache
def _of_gaussians(n: int, v: Fraction, k: int, dps: int, *, tail: bool) -> Real:
    with mp.workdps(dps + 60):
        rate = real(v)
        dual = 2 * mp.pi**2 * rate
        # The term at j is at most e^(-2 pi^2 v (j^2 - |j|)) relative to the largest, for |Im z| <=
        # pi. On the short piece that matters for wide v they are all below e^-v.
        reach = 0 if v > 10**4 else 1
        while reach and reach * (reach + 1) * dual < (dps + 60) * mp.log(10):
            reach += 1
        sizes = [mp.exp(-dual * j * j) for j in range(1, reach + 1)]
        whole = 1 + 2 * sum(sizes)
        saddle = mpf(k) / (n * rate)

        def log_moment(z: Real) -> Real:
            # By Poisson summation, M(z) = sum_j e^(v (z + 2 pi i j)^2/2) / sum_j e^(-2 pi^2 v j^2).
            if not sizes:
                return n * rate * z * z / 2
            turn, total = mp.exp(2j * mp.pi * rate * z), mp.mpc(1)
            for j, size in enumerate(sizes, 1):
                total += size * (turn**j + turn**-j)
            return n * (rate * z * z / 2 + mp.log(total / whole))

        spread = mp.sqrt(n * rate) * (1 if v > 1 else mpf(1) / 2)
    with mp.workdps(dps):
        return integral(log_moment, k, saddle, spread, tail=tail)
