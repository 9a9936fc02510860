r"""Slips in the noise that is added: its scale, its shape, the variance of Gaussian noise.

Noise of the right kind and the wrong size.

Noise of another law than the proof speaks of.

Gaussian noise of the wrong variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np

from audit.catalogue.entry import Entry, Twin, laplace, seeded
from dpcore import DiscreteGaussian, Enclosure, Relation
from dpcore.numbers.arrays import Integers

__all__ = ["COUNT", "ENTRIES", "MODULUS", "count"]

# -- scale ----------------------------------------------------------------------------------------


def count(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""A count that one person moves by at most 1, released at epsilon = 1: scale 1/1."""
    return value + laplace(1, n, rng)


def half_scale(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The same with scale 1/2: the variance was taken for twice the scale."""
    return value + laplace(Fraction(1, 2), n, rng)


def ten_percent(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The same with scale 10/11: a rounded constant."""
    return value + laplace(Fraction(10, 11), n, rng)


def five_percent(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The same with scale 20/21."""
    return value + laplace(Fraction(20, 21), n, rng)


def histogram(records: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""How many records are 0 and how many are 1, at epsilon = 1/2: scale 1/epsilon = 2 a bin."""
    return np.bincount(records, minlength=2) + laplace(2, (n, 2), rng)


def inverted_histogram(records: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The same with scale epsilon = 1/2."""
    return np.bincount(records, minlength=2) + laplace(Fraction(1, 2), (n, 2), rng)


COUNT: Final = Twin(name="count", run=count)

_SCALE: Final = (
    Entry(
        name="half-scale",
        number=1,
        sentence="The noise has half the scale that the claim needs, so epsilon is twice as large.",
        source="the plainest slip: a variance or a width taken for a scale",
        run=half_scale,
        true_epsilon=Enclosure.exactly(2),
        runs=300,
        twin=COUNT,
    ),
    Entry(
        name="ten-percent",
        number=2,
        sentence="The scale is 10/11 of what the claim needs: a small slip, and easy to overlook.",
        source="the plainest slip, as small as it comes",
        run=ten_percent,
        true_epsilon=Enclosure.exactly(Fraction(11, 10)),
        runs=20_000,
        twin=COUNT,
    ),
    Entry(
        name="five-percent",
        number=3,
        sentence="The scale is 20/21 of what the claim needs, which a thousand outputs do not "
        "show.",
        source="the plainest slip, smaller still",
        run=five_percent,
        true_epsilon=Enclosure.exactly(Fraction(21, 20)),
        runs=100_000,
        twin=COUNT,
    ),
    Entry(
        name="inverted-scale",
        number=8,
        sentence="Noise of scale epsilon where 1/epsilon belongs: the stricter the claim, the less "
        "noise.",
        source="Ding et al. 2018 (arXiv 1805.10559), histogram with the wrong scale",
        run=inverted_histogram,
        pair=([0, 0, 1], [0, 0, 1, 1]),
        epsilon=Fraction(1, 2),
        relation=Relation.ADD_REMOVE,
        true_epsilon=Enclosure.exactly(2),
        runs=200,
        twin=Twin(
            name="histogram",
            run=histogram,
            pair=([0, 0, 1], [0, 0, 1, 1]),
            epsilon=Fraction(1, 2),
            relation=Relation.ADD_REMOVE,
        ),
    ),
)

# -- noise shape ----------------------------------------------------------------------------------

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


_NOISE_SHAPE: Final = (
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

# -- gaussian -------------------------------------------------------------------------------------

_EPSILON: Final = Fraction("2.02")
_DELTA: Final = Fraction("1e-5")
_CURVE: Final = "discrete-gaussian:sigma_squared=4@1"


def gaussian_of_four(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""A count plus discrete Gaussian noise of sigma^2 = 4: (2.02, 1e-5)."""
    return value + DiscreteGaussian(sigma_squared=4).sample(n, rng=seeded(rng))


def gaussian_of_two(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The same with sigma^2 = 2: the deviation 2 was passed where its square belongs."""
    return value + DiscreteGaussian(sigma_squared=2).sample(n, rng=seeded(rng))


_GAUSSIAN: Final = (
    Entry(
        name="sigma-for-its-square",
        number=30,
        sentence="The deviation 2 is passed where the variance 4 belongs: at delta = 1e-5 epsilon "
        "is 2.942.",
        source="samplers that take sigma in one library and sigma squared in another",
        run=gaussian_of_two,
        epsilon=_EPSILON,
        delta=_DELTA,
        curve=_CURVE,
        # At delta = 1e-5.
        true_epsilon=Enclosure(Fraction("2.942006"), Fraction("2.942007")),
        # At the point. On the curve 10,000 are enough.
        runs=1_000_000,
        twin=Twin(
            name="gaussian-of-four",
            run=gaussian_of_four,
            epsilon=_EPSILON,
            delta=_DELTA,
            curve=_CURVE,
        ),
    ),
)

ENTRIES: Final = (*_SCALE, *_NOISE_SHAPE, *_GAUSSIAN)
