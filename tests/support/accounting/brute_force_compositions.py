"""Reference values of compositions: products of plain sums over integers, in mpmath.

Engines, directions, dominating pairs and worst shifts are not used.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from mpmath import mp, mpf

from dpcore.noise import Noise
from tests.support.dpcore.mpmath_precision import real
from tests.support.laws import LAWS

Atom = tuple[Any, Any]
"""(P, Q) of one outcome; either may be 0."""

DIGITS = 40
BITS = 200


def round_of(noise: Noise, shift: int, low: int, high: int) -> list[Atom]:
    """Return the outcomes low..high of X under P and X - shift under Q; others are omitted."""
    law = LAWS[noise.name]
    with mp.workdps(DIGITS):
        return [(law.pmf(noise, k), law.pmf(noise, k + shift)) for k in range(low, high + 1)]


def response(epsilon: str, delta: str = "0") -> list[Atom]:
    """Return randomised response that reveals everything with probability delta."""
    with mp.workdps(DIGITS):
        e, d = mp.exp(real(Fraction(epsilon))), real(Fraction(delta))
        yes, no = (1 - d) * e / (1 + e), (1 - d) / (1 + e)
        return [(d, mpf(0)), (yes, no), (no, yes), (mpf(0), d)]


def delta(rounds: Sequence[Iterable[Atom]], epsilon: Fraction) -> Any:
    """sum of (P - e^epsilon Q)+ over the product of all outcomes, in fixed point of 2^-BITS."""
    with mp.workdps(DIGITS + 20):
        factor = int(mp.ldexp(mp.exp(real(epsilon)), BITS))
        units = [[(_fixed(p), _fixed(q)) for p, q in outcomes] for outcomes in rounds]
        total = 0
        for point in itertools.product(*units):
            p = q = 1 << BITS
            for here, there in point:
                p, q = p * here >> BITS, q * there >> BITS
            total += max(p - (factor * q >> BITS), 0)
        return mp.ldexp(mpf(total), -BITS)


def _fixed(value: Any) -> int:
    return int(mp.ldexp(value, BITS))


def lost(rounds: Sequence[Sequence[Atom]]) -> Any:
    """Return an upper bound of the P-mass of the omitted outcomes."""
    with mp.workdps(DIGITS):
        return 1 - mp.fprod(mp.fsum(p for p, _ in outcomes) for outcomes in rounds)
