r"""Exact laws of small protocols, by convolution, without code of the protocols."""

from __future__ import annotations

import math
from fractions import Fraction

from dpcore.noise import Noise

UNIT = 1 << 96

Masses = dict[int, int]
"""Lower masses in units of 2^-96."""


def masses(noise: Noise, reach: int) -> Masses:
    r"""Return masses of -reach .. reach, rounded down."""
    found = {}
    for k in range(-reach, reach + 1):
        low = noise.enclose_pmf(k, 110).lower
        found[k] = math.floor(low * UNIT)
    return {k: mass for k, mass in found.items() if mass}


def convolved(a: Masses, b: Masses) -> Masses:
    total: Masses = {}
    for i, p in a.items():
        for j, q in b.items():
            total[i + j] = total.get(i + j, 0) + p * q
    return {k: mass // UNIT for k, mass in total.items() if mass >= UNIT}


def power(a: Masses, count: int) -> Masses:
    total = a
    for _ in range(count - 1):
        total = convolved(total, a)
    return total


def rounding(x: Fraction, steps: int) -> Masses:
    r"""Return the law of E(x), in units of 2^-96; the fraction must be a small dyadic."""
    whole = math.floor(x * steps)
    up = (x * steps - whole) * UNIT
    assert up.denominator == 1
    return {whole: UNIT - int(up), whole + 1: int(up)} if up else {whole: UNIT}
