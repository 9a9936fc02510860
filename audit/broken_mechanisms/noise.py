r"""Bugs in additive noise and in clipping."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Final

import numpy as np
from flint import arb

from audit.broken_mechanisms.catalogue_entry import Entry, Twin, laplace, seeded
from dpcore import DiscreteGaussian, Enclosure, Relation, Staircase
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import narrow
from dpcore.numbers.parameter import RationalLike

# -- scale ----------------------------------------------------------------------------------------


def count(value: int, n: int, rng: np.random.Generator, *, scale: RationalLike = 1) -> Integers:
    r"""A count that one person changes by at most 1, released at epsilon = 1/scale."""
    return value + laplace(scale, n, rng)


def histogram(
    records: Sequence[int], n: int, rng: np.random.Generator, *, scale: RationalLike = 2
) -> Integers:
    r"""The numbers of records equal to 0 and to 1, at epsilon = 1/scale."""
    return np.bincount(records, minlength=2) + laplace(scale, (n, 2), rng)


def score(value: int, n: int, rng: np.random.Generator, *, moves: int) -> Integers:
    r"""A score with staircase noise of epsilon = 1 for a query of sensitivity ``moves``."""
    return value + Staircase(epsilon=1, sensitivity=moves).sample(n, rng=seeded(rng))


COUNT: Final = Twin(name="count", run=count)

_SCALE: Final = (
    Entry(
        name="half-scale",
        number=1,
        sentence="The noise has half the scale that the claim needs, so epsilon is twice as large.",
        source="the simplest error: a variance or a width taken for a scale",
        run=partial(count, scale=Fraction(1, 2)),
        true_epsilon=Enclosure.exactly(2),
        runs=300,
        twin=COUNT,
    ),
    Entry(
        name="ten-percent",
        number=2,
        sentence="The scale is 10/11 of the required one, an error that is easy to overlook.",
        source="the same error, small",
        run=partial(count, scale=Fraction(10, 11)),
        true_epsilon=Enclosure.exactly(Fraction(11, 10)),
        runs=20_000,
        twin=COUNT,
    ),
    Entry(
        name="five-percent",
        number=3,
        sentence="The scale is 20/21 of the required one, which a thousand outputs do not show.",
        source="the same error, smaller still",
        run=partial(count, scale=Fraction(20, 21)),
        true_epsilon=Enclosure.exactly(Fraction(21, 20)),
        runs=100_000,
        twin=COUNT,
    ),
    Entry(
        name="staircase-narrow-steps",
        number=52,
        sentence="The steps of the staircase noise are 2 wide, so a query that moves by 3 passes "
        "two of them: epsilon is twice as large.",
        source="noise made for another query's sensitivity",
        run=partial(score, moves=2),
        pair=(0, 3),
        true_epsilon=Enclosure.exactly(2),
        runs=2_000,
        twin=Twin(
            name="staircase",
            run=partial(score, moves=3),
            laws=("staircase:epsilon=1,sensitivity=3@0", "staircase:epsilon=1,sensitivity=3@3"),
        ),
        laws=("staircase:epsilon=1,sensitivity=2@0", "staircase:epsilon=1,sensitivity=2@3"),
    ),
    Entry(
        name="inverted-scale",
        number=8,
        sentence="The scale is epsilon instead of 1/epsilon: a stricter claim gets less noise.",
        source="Ding et al. 2018 (arXiv 1805.10559), histogram with the wrong scale",
        run=partial(histogram, scale=Fraction(1, 2)),
        pair=([0, 0, 1], [0, 0, 1, 1]),
        epsilon=Fraction(1, 2),
        relation=Relation.ADD_REMOVE,
        true_epsilon=Enclosure.exactly(2),
        runs=200,
        twin=Twin(name="histogram", run=histogram),
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
    r"""The value plus noise clamped to [-4, 4], so the released number is within 4 of the value."""
    return value + np.clip(laplace(1, n, rng), -_CLAMP, _CLAMP)


def clamped_sum(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The value plus noise; the sum is clamped to the public range [-4, 5] (post-processing)."""
    return np.clip(value + laplace(1, n, rng), -_CLAMP, _CLAMP + 1)


def redrawn_noise(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The value plus noise that is redrawn while its absolute value exceeds 6."""
    noise = laplace(1, n, rng)
    while len(beyond := np.flatnonzero(np.abs(noise) > _MOST)):
        noise[beyond] = laplace(1, len(beyond), rng)
    return value + noise


def wrapped_sum(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The sum of value and noise, mod 8, as in secure aggregation; the wrap is post-processing."""
    return (value + laplace(1, n, rng)) % MODULUS


def wrapped_noise(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The value plus (noise mod 8): the released number is 0 to 7 above the value."""
    return value + laplace(1, n, rng) % MODULUS


def gaussian(value: int, n: int, rng: np.random.Generator, *, sigma_squared: int = 1) -> Integers:
    r"""A count plus discrete Gaussian noise; sigma^2 = 4 gives (2.02, 1e-5)."""
    return value + DiscreteGaussian(sigma_squared=sigma_squared).sample(n, rng=seeded(rng))


_NOISE_SHAPE: Final = (
    Entry(
        name="one-sided",
        number=5,
        sentence="Only positive noise is added, so a released count below 1 reveals a count of 0.",
        source="counts that were not allowed to fall, e.g. for plausible-looking tables",
        run=one_sided,
        true_epsilon=Enclosure.infinite(),
        runs=200,
        twin=COUNT,
    ),
    Entry(
        name="clamped-noise",
        number=6,
        sentence="The noise is clamped to +-4 before it is added, instead of the sum to a "
        "public range.",
        source="outliers cut off so that tables look plausible",
        run=clamped_noise,
        true_epsilon=Enclosure.infinite(),
        runs=10_000,
        twin=Twin(name="clamped-sum", run=clamped_sum),
    ),
    Entry(
        name="redrawn-noise",
        number=7,
        sentence="Noise beyond 6 is drawn again, so an output at distance 7 from a value excludes "
        "this value.",
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
        source="secure aggregation that reduces the noise instead of the sum",
        run=wrapped_noise,
        true_epsilon=Enclosure.infinite(),
        runs=200,
        twin=Twin(name="wrapped-sum", run=wrapped_sum),
    ),
    Entry(
        name="gaussian-as-pure",
        number=29,
        sentence="Gaussian noise never gives a pure epsilon: in its tail one dataset is more "
        "than e^epsilon times as likely.",
        source="the delta of the Gaussian mechanism left out of the claim",
        run=gaussian,
        epsilon=Fraction(2),
        true_epsilon=Enclosure.infinite(),
        runs=20_000,
        # The smallest delta at epsilon = 2 is P(X >= 2) - e^2 P(X >= 3) = 0.0248...
        twin=Twin(name="gaussian-with-delta", run=gaussian, delta=Fraction("0.025")),
    ),
)

# -- gaussian -------------------------------------------------------------------------------------

_GAUSSIAN: Final = (
    Entry(
        name="sigma-for-its-square",
        number=30,
        sentence="The standard deviation 2 is passed instead of the variance 4: at delta = 1e-5 "
        "epsilon is 2.942.",
        source="samplers that take sigma in one library and sigma squared in another",
        run=partial(gaussian, sigma_squared=2),
        epsilon=Fraction("2.02"),
        delta=Fraction("1e-5"),
        curve="discrete-gaussian:sigma_squared=4@1",
        # At delta = 1e-5.
        true_epsilon=Enclosure(Fraction("2.942006"), Fraction("2.942007")),
        # For the claimed point; for the curve, 10,000 runs suffice.
        runs=1_000_000,
        twin=Twin(name="gaussian-of-four", run=partial(gaussian, sigma_squared=4)),
    ),
)


# -- sensitivity ----------------------------------------------------------------------------------


def clipped(value: int, n: int, rng: np.random.Generator, *, most: int) -> Integers:
    r"""A value clipped to [0, most], so that one person changes it by at most ``most``; scale 1."""
    return int(np.clip(value, 0, most)) + laplace(1, n, rng)


def clamped_total(values: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The sum of values clamped to the public range [0, 1]; scale 1."""
    return int(np.clip(values, 0, 1).sum()) + laplace(1, n, rng)


def self_clamped_total(values: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""A sum of values clamped to the range of the data, which contains every value."""
    return int(np.clip(values, min(values), max(values)).sum()) + laplace(1, n, rng)


def rounded(value: float, n: int, rng: np.random.Generator, *, scale: RationalLike = 1) -> Integers:
    r"""A value in [0, 1], rounded at random without bias, plus noise: any change of the value can
    change the rounded value by 1.
    """
    whole = int(np.floor(value))
    at_random = whole + (rng.random(n) < value - whole).astype(np.int64)
    return at_random + laplace(scale, n, rng)


def _half_rounded() -> arb:
    # Every output k >= 1 has masses p(k) and (p(k) + p(k - 1))/2 = p(k) (1 + e^2)/2.
    return ((1 + arb(2).exp()) / 2).log()


_SENSITIVITY: Final = (
    Entry(
        name="clipped-to-two",
        number=4,
        sentence="Each person may contribute up to 2, but the noise is for a sensitivity of 1.",
        source="a clipping bound changed in only one of two places",
        run=partial(clipped, most=2),
        pair=(0, 2),
        true_epsilon=Enclosure.exactly(2),
        runs=300,
        twin=Twin(name="clipped-to-one", run=partial(clipped, most=1), pair=(0, 1)),
    ),
    Entry(
        name="bounds-from-data",
        number=18,
        sentence="Values are clamped to their own minimum and maximum, so no value is ever "
        "clamped.",
        source=(
            "bounds left to the library, which computes them from the data; diffprivlib warns of "
            "it (PrivacyLeakWarning)"
        ),
        run=self_clamped_total,
        pair=([0, 1, 0, 1], [0, 1, 5, 1]),
        true_epsilon=Enclosure.exactly(5),
        runs=100,
        twin=Twin(name="public-bounds", run=clamped_total),
    ),
    Entry(
        name="rounded-sensitivity",
        number=19,
        sentence="Values 1/2 apart are rounded at random to integers 1 apart, but the noise is "
        "for 1/2.",
        source="fixed-point encodings; Casacuberta et al. 2022 (arXiv 2207.10635) on the "
        "sensitivity of sums as computed",
        run=partial(rounded, scale=Fraction(1, 2)),  # values differ by at most 1/2
        pair=(0, 0.5),
        true_epsilon=narrow(_half_rounded, 64),
        runs=3000,
        twin=Twin(name="rounded", run=rounded, pair=(0, 1)),
    ),
)

# -- bounds ---------------------------------------------------------------------------------------

_LOWER: Final = 0
_UPPER: Final = 2
_PAIR: Final = ([1, 0], [1, 6])


def clipped_sum(values: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""A sum of values clipped to [0, 2], with noise of scale 2: epsilon = 1."""
    clipped = np.clip(values, _LOWER, _UPPER)
    return int(clipped.sum()) + laplace(_UPPER - _LOWER, n, rng)


def unclipped_sum(values: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""Like :func:`clipped_sum`, but of the unclipped values: the clipped copy is discarded."""
    np.clip(values, _LOWER, _UPPER)
    return sum(values) + laplace(_UPPER - _LOWER, n, rng)


def lower_twice(values: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""A sum without noise: the lower bound is passed twice, so the sensitivity is 0."""
    bounds = (_LOWER, _LOWER)
    sensitivity = bounds[1] - bounds[0]
    total = int(np.clip(values, _LOWER, _UPPER).sum())
    return total + (laplace(sensitivity, n, rng) if sensitivity else np.zeros(n, dtype=np.int64))


_CLIPPED: Final = Twin(name="clipped-sum", run=clipped_sum)

_BOUNDS: Final = (
    Entry(
        name="clipped-copy-unused",
        number=41,
        sentence="Values are clipped into a new array, but the old one is summed: one person's "
        "value is unbounded.",
        source="array functions that return a copy where the caller expects a change in place",
        run=unclipped_sum,
        pair=_PAIR,
        true_epsilon=Enclosure.exactly(3),
        runs=200,
        twin=_CLIPPED,
    ),
    Entry(
        name="lower-bound-twice",
        number=42,
        sentence=(
            "The lower bound is passed twice, also as the upper bound, so the sensitivity is 0 "
            "and no noise is added."
        ),
        source="a pair of bounds unpacked or copied wrongly; scale 0 must be refused, not accepted",
        run=lower_twice,
        pair=_PAIR,
        true_epsilon=Enclosure.infinite(),
        runs=100,
        twin=_CLIPPED,
    ),
)

ENTRIES: Final = (*_SCALE, *_NOISE_SHAPE, *_GAUSSIAN, *_SENSITIVITY, *_BOUNDS)
