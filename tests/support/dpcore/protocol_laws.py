r"""Exact laws of small protocols, by convolution, without code of the protocols."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import product
from typing import Any

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


def summed(laws: Iterable[Mapping[Any, Any]]) -> dict[Any, Any]:
    r"""Return the law of the sum of independent variables; exact for rational masses."""
    total: dict[Any, Any] = {0: 1}
    for law in laws:
        longer: dict[Any, Any] = defaultdict(int)
        for (i, p), (j, q) in product(total.items(), law.items()):
            longer[i + j] += p * q
        total = dict(longer)
    return total


def convolved(a: Masses, b: Masses) -> Masses:
    return {k: mass // UNIT for k, mass in summed((a, b)).items() if mass >= UNIT}


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
