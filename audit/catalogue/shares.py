r"""Noise that parties add in shares.

Sums of 1/m-shares of Polya noise, X - Y with X, Y ~ Polya(1/m, beta) from m parties, are discrete
Laplace of scale 1/ln(1/beta). A share is drawn as a Poisson whose mean is Gamma(1/m) times the odds
beta/(1 - beta): in floating point that is a simulation, not an exact draw.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import numpy as np
from flint import arb

from audit.catalogue.entry import Entry, Twin
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import narrow

__all__ = ["ENTRIES", "PARTIES"]

PARTIES: Final = 8
_SENSITIVITY: Final = 16
_BETA: Final = math.exp(-0.5 / _SENSITIVITY)


def _sum_of_shares(value: int, odds: float, n: int, rng: np.random.Generator) -> Integers:
    plus, minus = rng.poisson(rng.gamma(1 / PARTIES, odds, (2, n, PARTIES))).sum(axis=2)
    noisy: Integers = value + (plus - minus)
    return noisy


def polya(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""A fixed-point sum that moves by at most 16, at epsilon = 1/2: beta = e^(-1/32)."""
    return _sum_of_shares(value, _BETA / (1 - _BETA), n, rng)


def inverted_polya(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The same with (1 - beta)/beta: noise of scale 1/ln(1/(1 - beta)), 0.29 instead of 32."""
    return _sum_of_shares(value, (1 - _BETA) / _BETA, n, rng)


def _true_epsilon() -> arb:
    # Sixteen steps, each worth ln(1/(1 - beta)).
    beta = (-1 / (2 * arb(_SENSITIVITY))).exp()
    return -_SENSITIVITY * (1 - beta).log()


ENTRIES: Final = (
    Entry(
        name="inverted-odds",
        number=35,
        sentence="The odds of the noise shares are upside down: 94 sums in 100 carry no noise.",
        source="the Polya sampler of MABPrivate.py in sayakrc/Differentially-Private-Bandits; "
        "written anew",
        run=inverted_polya,
        pair=(0, _SENSITIVITY),
        epsilon=Fraction(1, 2),
        true_epsilon=narrow(_true_epsilon, 64),
        runs=100,
        twin=Twin(name="polya-shares", run=polya, pair=(0, _SENSITIVITY), epsilon=Fraction(1, 2)),
    ),
)
