r"""Masses and tails of wide laws by quadrature of the inversion integral."""

from __future__ import annotations

import math
from collections.abc import Callable

from mpmath import mp, mpf

from tests.support.dpcore.mpmath_precision import Real

_LOST = 60  # digits of v and k themselves, up to 2^80 each


def integral(
    log_moment: Callable[[Real], Real], k: int, line: Real, spread: Real, *, tail: bool
) -> Real:
    r"""Return the integral over ``line`` + i t, for a law of deviation about ``spread`` there."""
    digits = mp.dps
    with mp.workdps(digits + _LOST):
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
