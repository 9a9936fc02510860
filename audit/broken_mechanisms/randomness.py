r"""Bugs in randomness: reused noise, leaks in rare runs, floating-point noise, timing.

A branch without noise depends on a draw, so a replay that sets each draw to its extremes reaches
it, however rare it is. The possible outputs of floating-point noise depend on the data: Mironov,
"On significance of the least significant bits for differential privacy" (2012). The time of a
private answer may reveal the data: Haeberlen, Pierce and Narayan, "Differential Privacy Under Fire"
(2011), on timing channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from audit.broken_mechanisms.catalogue_entry import Entry, Layer, Twin, laplace
from audit.broken_mechanisms.noise import COUNT
from dpcore import DiscreteLaplace, Enclosure, SeededRng
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import ball, narrow

# -- randomness -----------------------------------------------------------------------------------

_SEED: Final = 20


def two_days(
    counts: Sequence[int], n: int, rng: np.random.Generator, *, draws: int = 2
) -> Integers:
    r"""Two counts that one person changes by at most 1 each, released at epsilon = 1/2; with one
    cached draw for both days, their difference has no noise.
    """
    return np.asarray(counts) + laplace(2, (n, draws), rng)


def arms(sums: Sequence[int], n: int, rng: np.random.Generator, *, draws: int = 3) -> Integers:
    r"""Reward sums of three arms, with noise of scale 1 for each arm. A single draw for all arms
    cancels in every comparison of arms.

    The arm that a person pulled is public: only the reward in {0, 1} may differ.
    """
    return np.asarray(sums) + laplace(1, (n, draws), rng)


def rounded_amount(amount: float, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""An amount in [0, 1] rounded to an integer, plus noise of scale 1."""
    return math.floor(amount + 0.5) + laplace(1, n, rng).astype(np.float64)


def leaking(amount: float, n: int, rng: np.random.Generator, *, rate: float) -> NDArray[np.float64]:
    r"""Like :func:`rounded_amount`, but a fraction ``rate`` of runs returns the exact amount."""
    noisy = rounded_amount(amount, n, rng)
    return np.where(rng.random(n) < rate, amount, noisy)


def fixed_seed(value: int, n: int, rng: np.random.Generator) -> Integers:  # noqa: ARG001 - the slip
    r"""A count plus noise from a generator with the same seed in every call."""
    noise = DiscreteLaplace(scale=1).sample(rng=SeededRng(_SEED))
    return np.full(n, value + noise, dtype=np.int64)


_AMOUNTS: Final = (0.25, 0.75)
AMOUNT: Final = Twin(name="rounded-amount", run=rounded_amount)

_RANDOMNESS: Final = (
    Entry(
        name="noise-reused",
        number=16,
        sentence="Two releases share one draw of noise, so their difference is exact.",
        source="a noisy offset cached and used again",
        run=partial(two_days, draws=1),
        pair=([3, 5], [4, 5]),
        true_epsilon=Enclosure.infinite(),
        runs=100,
        twin=Twin(name="two-days", run=two_days, pair=([3, 5], [4, 6])),
    ),
    Entry(
        name="broadcast-draw",
        number=36,
        sentence="One draw is added to the whole vector of arm sums, so the best arm is "
        "released exactly.",
        source="DP-SE of MABPrivate.py in sayakrc/Differentially-Private-Bandits; reimplemented",
        run=partial(arms, draws=1),
        pair=([5, 4, 3], [6, 4, 3]),
        true_epsilon=Enclosure.infinite(),
        runs=100,
        twin=Twin(name="arms", run=arms),
    ),
    Entry(
        name="raw-in-a-hundred",
        number=31,
        sentence="One run in a hundred returns the amount unrounded and without noise.",
        source="an exception handler or a debug path that returns its input",
        run=partial(leaking, rate=1e-2),
        pair=_AMOUNTS,
        true_epsilon=Enclosure.infinite(),
        runs=20_000,
        twin=AMOUNT,
    ),
    Entry(
        name="fixed-seed",
        number=34,
        sentence="The generator is seeded with a constant, so the noise is the same every time and "
        "anyone can subtract it.",
        source="a seed left in from debugging",
        run=fixed_seed,
        true_epsilon=Enclosure.infinite(),
        runs=100,
        twin=COUNT,
    ),
)

# -- rare -----------------------------------------------------------------------------------------

_RARE: Final = (
    Entry(
        name="raw-in-a-thousand",
        number=32,
        sentence="One run in a thousand returns the amount unrounded and without noise.",
        source="a timeout, a retry or a cache that falls back to the input",
        run=partial(leaking, rate=1e-3),
        pair=_AMOUNTS,
        true_epsilon=Enclosure.infinite(),
        runs=200_000,
        twin=AMOUNT,
    ),
    Entry(
        name="raw-in-a-hundred-thousand",
        number=33,
        sentence="One run in a hundred thousand returns the amount without noise: below the "
        "resolution of a sample.",
        source="an error path that tests never reach",
        run=partial(leaking, rate=1e-5),
        pair=_AMOUNTS,
        true_epsilon=Enclosure.infinite(),
        runs=200_000,
        layer=Layer.REPLAY,
        twin=AMOUNT,
    ),
)

# -- floating point -------------------------------------------------------------------------------

_SCALE: Final = 16.0
_STEPS: Final = 8


def grid(amount: float, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""An amount in [0, 1] in eighths, with exact noise in eighths: epsilon = 1/10. Outputs are
    integers/8 for all data.
    """
    steps = math.floor(amount * _STEPS + 0.5)
    return (steps + laplace(10 * _STEPS, n, rng)) / _STEPS


def float_laplace(amount: float, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""An amount in [0, 1] plus Laplace noise of scale 16 in double precision; with real numbers
    this would cost 1/16.

    1 + z is a multiple of 2^-53 for every float z: z itself is such a multiple if \|z\| >= 1/2;
    otherwise 1 + z is at least 1/2 and is rounded to one. 0 + z is z, and most floats below 1/2 are
    not multiples of 2^-53.
    """
    return amount + rng.laplace(scale=_SCALE, size=n)


_FLOATING_POINT: Final = (
    Entry(
        name="float-laplace",
        number=28,
        sentence="Laplace noise in floating point: the last bits of an output reveal the value "
        "below the noise.",
        source="Mironov 2012, on the least significant bits; most textbook samplers",
        run=float_laplace,
        pair=(0.0, 1.0),
        epsilon=Fraction(1, 10),
        true_epsilon=Enclosure.infinite(),
        runs=10_000,
        features=("lowest-bit",),
        twin=Twin(name="integer-laplace", run=grid),
    ),
)

# -- timing ---------------------------------------------------------------------------------------

_OTHERS: Final = 1000
_WHOLE: Final = 1000
_KEPT: Final = 731  # e/(e + 1) = 0.7310...


def answers(present: int, n: int, rng: np.random.Generator) -> Integers:
    r"""Whether a person is in the records, true with probability 0.731; epsilon is ln 2.717..."""
    kept = rng.integers(_WHOLE, size=n) < _KEPT
    return np.where(kept, present, 1 - present).astype(np.int64)


def _records(present: int) -> list[int]:
    # The requested person comes first if present; all other records are of other people.
    return [present, *[0] * _OTHERS]


def found_early(present: int, rng: np.random.Generator) -> int:
    r"""Return at the first match, after one comparison or a thousand."""
    found = 0
    for record in _records(present):
        if record == 1:
            found = 1
            break
    return int(answers(found, 1, rng)[0])


def looked_at_all(present: int, rng: np.random.Generator) -> int:
    r"""Compare every record, even after a match."""
    found = 0
    for record in _records(present):
        found |= record
    return int(answers(found, 1, rng)[0])


_TIMING: Final = (
    Entry(
        name="found-early",
        number=51,
        sentence="A search ends at the first match: its answer is private, but the time of a "
        "call reveals the position (--feature time).",
        source="Haeberlen, Pierce and Narayan 2011, on timing channels; a return within a loop",
        run=answers,
        call=found_early,
        true_epsilon=narrow(lambda: ball(Fraction(_KEPT, _WHOLE - _KEPT)).log(), 64),
        runs=1000,
        layer=Layer.TIME,
        twin=Twin(name="looked-at-all", run=answers, call=looked_at_all),
    ),
)

ENTRIES: Final = (*_RANDOMNESS, *_RARE, *_FLOATING_POINT, *_TIMING)
