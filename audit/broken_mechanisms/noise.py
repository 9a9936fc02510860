r"""Mechanisms that add noise to a query, with bugs in the noise, the query or the composition.

A mechanism and its twin are often one function with different arguments (``catalogue.toml``). Many
add Laplace noise of scale b to a query of sensitivity s; the privacy cost is epsilon = s/b.

Continual release: Dwork, Naor, Pitassi and Rothblum, "Differential Privacy under Continual
Observation" (2010); Chan, Shi and Song, "Private and Continual Release of Statistics" (2011). A
tree over T events has floor(log2 T) + 1 levels, and an event is in one node of each level.

Sampling: if a mechanism costs epsilon, the same mechanism on a Poisson sample of rate q costs ln(1
+ q (e^epsilon - 1)) under the relation add-remove: Li, Qardaji and Su, "On Sampling, Anonymization,
and Differential Privacy" (2012).

Rare branches: some mechanisms add no noise if a draw is extreme. A replay sets each draw to its
extremes, so the replay reaches even a very rare branch. Floating point: the possible outputs of
floating-point noise depend on the data (Mironov, "On significance of the least significant bits for
differential privacy", 2012). Time: the duration of a private answer may reveal the data (Haeberlen,
Pierce and Narayan, "Differential Privacy Under Fire", 2011, on timing channels).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np
from flint import arb
from numpy.typing import NDArray

from audit.broken_mechanisms import laplace, seeded
from dpcore import DiscreteGaussian, DiscreteLaplace, SeededRng, Staircase
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import ball
from dpcore.numbers.parameter import RationalLike

# -- noise of a wrong scale or shape --------------------------------------------------------------

_CLAMP: Final = 4
_MOST: Final = 6
_MODULUS: Final = 8


def count(value: int, n: int, rng: np.random.Generator, *, scale: RationalLike = 1) -> Integers:
    r"""A count plus noise, where one person changes the count by at most 1."""
    return value + laplace(scale, n, rng)


def histogram(
    records: Sequence[int], n: int, rng: np.random.Generator, *, scale: RationalLike = 2
) -> Integers:
    r"""The number of records equal to 0 and the number equal to 1, each plus noise."""
    return np.bincount(records, minlength=2) + laplace(scale, (n, 2), rng)


def score(value: int, n: int, rng: np.random.Generator, *, moves: int) -> Integers:
    r"""A score plus staircase noise, calibrated for epsilon = 1 and sensitivity ``moves``."""
    return value + Staircase(epsilon=1, sensitivity=moves).sample(n, rng=seeded(rng))


def gaussian(
    value: int, n: int, rng: np.random.Generator, *, sigma_squared: int = 1, step: int = 1
) -> Integers:
    r"""The value times ``step``, plus discrete Gaussian noise."""
    noise = DiscreteGaussian(sigma_squared=sigma_squared).sample(n, rng=seeded(rng))
    return step * value + noise


def one_sided(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""A count plus the absolute value of noise; the result is never below the true count."""
    return value + np.abs(laplace(1, n, rng))


def clamped_noise(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The value plus noise that was clamped to [-4, 4]; the result is within 4 of the value."""
    return value + np.clip(laplace(1, n, rng), -_CLAMP, _CLAMP)


def clamped_sum(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The sum of value and noise, clamped to the public range [-4, 5] (post-processing)."""
    return np.clip(value + laplace(1, n, rng), -_CLAMP, _CLAMP + 1)


def redrawn_noise(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The value plus noise, where the noise is redrawn until it is in [-6, 6]."""
    noise = laplace(1, n, rng)
    while len(beyond := np.flatnonzero(np.abs(noise) > _MOST)):
        noise[beyond] = laplace(1, len(beyond), rng)
    return value + noise


def wrapped_sum(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The sum of value and noise, reduced mod 8 after the addition (post-processing)."""
    return (value + laplace(1, n, rng)) % _MODULUS


def wrapped_noise(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The value plus noise that was reduced mod 8; the result is 0 to 7 above the value."""
    return value + laplace(1, n, rng) % _MODULUS


# -- sensitivity ----------------------------------------------------------------------------------

_LOWER, _UPPER = 0, 2


def clipped(value: int, n: int, rng: np.random.Generator, *, most: int) -> Integers:
    r"""A value clipped to [0, ``most``], plus noise of scale 1; the sensitivity is ``most``."""
    return int(np.clip(value, 0, most)) + laplace(1, n, rng)


def clamped_total(values: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The sum of values after clamping each to the public range [0, 1], plus noise of scale 1."""
    return int(np.clip(values, 0, 1).sum()) + laplace(1, n, rng)


def self_clamped_total(values: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""Like :func:`clamped_total`, but values are clamped to their own minimum and maximum."""
    return int(np.clip(values, min(values), max(values)).sum()) + laplace(1, n, rng)


def rounded(value: float, n: int, rng: np.random.Generator, *, scale: RationalLike = 1) -> Integers:
    r"""A value in [0, 1] plus noise, after unbiased random rounding of the value to 0 or 1.

    Any change of the value can change the rounded value by 1.
    """
    whole = int(np.floor(value))
    at_random = whole + (rng.random(n) < value - whole).astype(np.int64)
    return at_random + laplace(scale, n, rng)


def half_rounded_loss() -> arb:
    r"""The largest privacy loss of :func:`rounded` between the values 1/2 and 0, at scale 1/2.

    Let p(k) be the probability that the noise is k. The output k >= 1 has probability p(k) for the
    value 0, and (p(k) + p(k - 1))/2 = p(k) (1 + e^2)/2 for the value 1/2.
    """
    return ((1 + arb(2).exp()) / 2).log()


def clipped_sum(values: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The sum of values that are each clipped to [0, 2], plus noise of scale 2: epsilon = 1."""
    clipped = np.clip(values, _LOWER, _UPPER)
    return int(clipped.sum()) + laplace(_UPPER - _LOWER, n, rng)


def unclipped_sum(values: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""Like :func:`clipped_sum`, but the values are not clipped: the clipped copy is not used."""
    np.clip(values, _LOWER, _UPPER)
    return sum(values) + laplace(_UPPER - _LOWER, n, rng)


def lower_twice(values: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The sum of values clipped to [0, 2], without noise because the computed sensitivity is 0."""
    bounds = (_LOWER, _LOWER)
    sensitivity = bounds[1] - bounds[0]
    total = int(np.clip(values, _LOWER, _UPPER).sum())
    return total + (laplace(sensitivity, n, rng) if sensitivity else np.zeros(n, dtype=np.int64))


# -- several numbers: reused draws, composition, continual release --------------------------------


def numbers(
    values: int | Sequence[int],
    n: int,
    rng: np.random.Generator,
    *,
    scale: RationalLike,
    draws: int,
) -> Integers:
    r"""Integers plus noise; if ``draws`` is 1, the same draw is added to all integers."""
    return np.asarray(values) + laplace(scale, (n, draws), rng)


def running_sums(
    stream: Sequence[int], n: int, rng: np.random.Generator, *, ends: list[int], scale: int
) -> Integers:
    r"""The sum of the first k of four events plus noise, for each k in ``ends``.

    Every sum contains the first event, and costs epsilon = 1/scale. The sums of the first 1, 2 and
    4 events are the leftmost nodes of a tree with three levels.
    """
    sums: Integers = np.cumsum(stream)[np.array(ends) - 1]
    return sums + laplace(scale, (n, len(ends)), rng)


def sampled(bits: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The sum of a Poisson sample of rate 3/8, plus noise of scale 1.

    The privacy cost is epsilon = ln(1 + 3/8 (e - 1)) = 0.4973...
    """
    taken = rng.integers(8, size=(n, len(bits))) < 3
    return taken @ np.asarray(bits, dtype=np.int64) + laplace(1, n, rng)


def everyone(bits: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""Like :func:`sampled`, but the sum is over all records, not over a sample."""
    return sum(bits) + laplace(1, n, rng)


def noisy_size(bits: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The number of records and their sum, each plus noise for epsilon = 1/2."""
    return np.array([len(bits), sum(bits)]) + laplace(2, (n, 2), rng)


def exact_size(bits: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The exact number of records, and their sum plus noise for epsilon = 1."""
    size = np.full(n, len(bits), dtype=np.int64)
    return np.column_stack((size, sum(bits) + laplace(1, n, rng)))


# -- randomness: rare branches, seeds, floating point ---------------------------------------------

_SEED: Final = 20
_SCALE: Final = 16.0
_STEPS: Final = 8


def rounded_amount(amount: float, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""An amount in [0, 1] rounded to an integer, plus noise of scale 1."""
    return math.floor(amount + 0.5) + laplace(1, n, rng).astype(np.float64)


def leaking(amount: float, n: int, rng: np.random.Generator, *, rate: float) -> NDArray[np.float64]:
    r"""Like :func:`rounded_amount`, but with probability ``rate`` the exact amount is returned."""
    noisy = rounded_amount(amount, n, rng)
    return np.where(rng.random(n) < rate, amount, noisy)


def fixed_seed(value: int, n: int, rng: np.random.Generator) -> Integers:  # noqa: ARG001 - the bug
    r"""A count plus noise from a generator with the same seed in every call."""
    noise = DiscreteLaplace(scale=1).sample(rng=SeededRng(_SEED))
    return np.full(n, value + noise, dtype=np.int64)


def grid(amount: float, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""An amount in [0, 1], rounded to a multiple of 1/8, plus noise in multiples of 1/8.

    For every dataset the possible outputs are all multiples of 1/8, and epsilon = 1/10.
    """
    steps = math.floor(amount * _STEPS + 0.5)
    return (steps + laplace(10 * _STEPS, n, rng)) / _STEPS


def float_laplace(amount: float, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""An amount in [0, 1] plus Laplace noise z of scale 16, computed in double precision.

    With real numbers, epsilon would be 1/16. But the float 1 + z is always a multiple of 2^-53: if
    \|z\| >= 1/2, then z is such a multiple; otherwise 1 + z is at least 1/2, so it is rounded to
    such a multiple. The float 0 + z is z, and most floats below 1/2 are not multiples of 2^-53.
    """
    return amount + rng.laplace(scale=_SCALE, size=n)


# -- timing ---------------------------------------------------------------------------------------

_OTHERS: Final = 1000
_WHOLE: Final = 1000
_KEPT: Final = 731  # e/(e + 1) = 0.7310...


def answers(present: int, n: int, rng: np.random.Generator) -> Integers:
    r"""Randomised response: ``present`` with probability 0.731, otherwise 1 - ``present``.

    The privacy cost is epsilon = ln(0.731/0.269) = ln 2.717..., slightly less than 1.
    """
    kept = rng.integers(_WHOLE, size=n) < _KEPT
    return np.where(kept, present, 1 - present).astype(np.int64)


def answer_loss() -> arb:
    r"""The largest privacy loss of the randomised response :func:`answers`."""
    return ball(Fraction(_KEPT, _WHOLE - _KEPT)).log()


def _records(present: int) -> list[int]:
    # The requested person comes first if present; all other records are of other people.
    return [present, *[0] * _OTHERS]


def found_early(present: int, rng: np.random.Generator) -> int:
    r"""Randomised response on whether a person is found; the search stops at the first match."""
    found = 0
    for record in _records(present):
        if record == 1:
            found = 1
            break
    return int(answers(found, 1, rng)[0])


def looked_at_all(present: int, rng: np.random.Generator) -> int:
    r"""Like :func:`found_early`, but the search compares every record, even after a match."""
    found = 0
    for record in _records(present):
        found |= record
    return int(answers(found, 1, rng)[0])
