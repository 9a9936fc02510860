r"""Noise of another law than the proof speaks of."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np

from audit.catalogue.entry import Entry, Twin, laplace, seeded
from audit.catalogue.scale import COUNT
from dpcore import DiscreteGaussian, Enclosure
from dpcore.numbers.arrays import Integers

__all__ = ["ENTRIES", "MODULUS"]

MODULUS: Final = 8
_CLAMP: Final = 4
_MOST: Final = 6


def one_sided(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""A count plus |noise|: released counts are never below the true one."""
    return value + np.abs(laplace(1, n, rng))


def clamped_noise(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""value + noise clamped to [-4, 4]: the released number is within 4 of the value."""
    return value + np.clip(laplace(1, n, rng), -_CLAMP, _CLAMP)


def clamped_sum(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""value + noise, clamped to the public range [-4, 5]: post-processing."""
    return np.clip(value + laplace(1, n, rng), -_CLAMP, _CLAMP + 1)


def redrawn_noise(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""value + noise that is drawn again while it is beyond 6 either way."""
    noise = laplace(1, n, rng)
    while len(beyond := np.flatnonzero(np.abs(noise) > _MOST)):
        noise[beyond] = laplace(1, len(beyond), rng)
    return value + noise


def wrapped_sum(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""(value + noise) mod 8, as secure aggregation releases sums; the wrap is post-processing."""
    return (value + laplace(1, n, rng)) % MODULUS


def wrapped_noise(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""value + (noise mod 8): the released number is at least the value and at most 7 above it."""
    return value + laplace(1, n, rng) % MODULUS


def gaussian(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""A count plus discrete Gaussian noise of sigma^2 = 1."""
    return value + DiscreteGaussian(sigma_squared=1).sample(n, rng=seeded(rng))


ENTRIES: Final = (
    Entry(
        name="one-sided",
        number=5,
        sentence="Only positive noise is added, so every released count below 1 says: it was 0.",
        source="counts that were not allowed to fall, e.g. for plausible-looking tables",
        run=one_sided,
        true_epsilon=Enclosure.infinite(),
        runs=200,
        twin=COUNT,
    ),
    Entry(
        name="clamped-noise",
        number=6,
        sentence="The noise is clamped to +-4 before it is added, not the sum to a public range "
        "afterwards.",
        source="outliers cut off so that tables look plausible",
        run=clamped_noise,
        true_epsilon=Enclosure.infinite(),
        runs=10_000,
        twin=Twin(name="clamped-sum", run=clamped_sum),
    ),
    Entry(
        name="redrawn-noise",
        number=7,
        sentence="Noise beyond 6 is drawn again, so an output 7 away from a value shows that it "
        "was not that value.",
        source="a sampler with a bounded table, or outliers rejected so that tables look plausible",
        run=redrawn_noise,
        true_epsilon=Enclosure.infinite(),
        runs=100_000,
        twin=COUNT,
    ),
    Entry(
        name="wrapped-noise",
        number=17,
        sentence="The noise is reduced modulo 8 before it is added instead of the sum afterwards.",
        source="secure aggregation with the reduction on the wrong side",
        run=wrapped_noise,
        true_epsilon=Enclosure.infinite(),
        runs=200,
        twin=Twin(name="wrapped-sum", run=wrapped_sum),
    ),
    Entry(
        name="gaussian-as-pure",
        number=29,
        sentence="Gaussian noise never gives a pure epsilon: far enough out, one world is always "
        "e^epsilon times likelier.",
        source="the delta of the Gaussian mechanism left out of the claim",
        run=gaussian,
        epsilon=Fraction(2),
        true_epsilon=Enclosure.infinite(),
        runs=20_000,
        # The smallest delta at epsilon = 2 is P(X >= 2) - e^2 P(X >= 3) = 0.0248...
        twin=Twin(
            name="gaussian-with-delta", run=gaussian, epsilon=Fraction(2), delta=Fraction("0.025")
        ),
    ),
)
