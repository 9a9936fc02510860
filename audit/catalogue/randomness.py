r"""Slips in the draws: noise reused, leaks in rare runs, floating-point noise, time of a call.

Noise that is not fresh, not independent, or not always there.

Runs without noise, so rare that no sample of ordinary size meets one.

The branch hangs on a draw, so a replay that sets each draw to its extremes walks into it, however
rare it is.

Noise drawn as floats: which floats can come out depends on the data.

Source: Mironov, "On significance of the least significant bits for differential privacy" (2012).

A private answer that is given sooner or later: the time of a call tells the data.

Source: Haeberlen, Pierce and Narayan, "Differential Privacy Under Fire" (2011), on timing channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from audit.catalogue.entry import Entry, Layer, Twin, laplace
from audit.catalogue.noise import COUNT
from dpcore import DiscreteLaplace, Enclosure, SeededRng
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import ball, narrow

__all__ = ["AMOUNT", "ENTRIES", "rounded_amount"]

# -- randomness -----------------------------------------------------------------------------------

_LEAK: Final = 0.01
_SEED: Final = 20


def two_days(counts: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""Two counts, each moved by at most 1 by one person and released at epsilon = 1/2."""
    return np.asarray(counts) + laplace(2, (n, 2), rng)


def reused(counts: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The same with one cached draw for both days: their difference has no noise."""
    return np.asarray(counts) + laplace(2, (n, 1), rng)


def arms(sums: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""Reward sums of three arms; scale 1, a draw an arm.

    Which arm a person pulled is public: only the reward in {0, 1} may differ.
    """
    return np.asarray(sums) + laplace(1, (n, 3), rng)


def broadcast(sums: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The same with one draw for the whole vector: it cancels in every comparison of arms."""
    return np.asarray(sums) + laplace(1, (n, 1), rng)


def rounded_amount(amount: float, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""An amount in [0, 1] rounded to an integer and noised with scale 1."""
    return math.floor(amount + 0.5) + laplace(1, n, rng).astype(np.float64)


def leaking(amount: float, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""The same, but one run in a hundred takes the fallback and returns the amount as it is."""
    noisy = rounded_amount(amount, n, rng)
    return np.where(rng.random(n) < _LEAK, amount, noisy)


def fixed_seed(value: int, n: int, rng: np.random.Generator) -> Integers:  # noqa: ARG001 - the slip
    r"""A count plus noise from a generator that every call starts from the same seed."""
    noise = DiscreteLaplace(scale=1).sample(rng=SeededRng(_SEED))
    return np.full(n, value + noise, dtype=np.int64)


AMOUNT: Final = Twin(name="rounded-amount", run=rounded_amount, pair=(0.25, 0.75))

_RANDOMNESS: Final = (
    Entry(
        name="noise-reused",
        number=16,
        sentence="Two releases share one draw of noise, so their difference is exact.",
        source="a noisy offset cached and used again",
        run=reused,
        pair=([3, 5], [4, 5]),
        true_epsilon=Enclosure.infinite(),
        runs=100,
        twin=Twin(name="two-days", run=two_days, pair=([3, 5], [4, 6])),
    ),
    Entry(
        name="broadcast-draw",
        number=36,
        sentence="One draw is added to the whole vector of arm sums, so which arm is ahead is "
        "released exactly.",
        source="DP-SE of MABPrivate.py in sayakrc/Differentially-Private-Bandits; written anew",
        run=broadcast,
        pair=([5, 4, 3], [6, 4, 3]),
        true_epsilon=Enclosure.infinite(),
        runs=100,
        twin=Twin(name="arms", run=arms, pair=([5, 4, 3], [6, 4, 3])),
    ),
    Entry(
        name="raw-in-a-hundred",
        number=31,
        sentence="One run in a hundred returns the amount unrounded and without noise.",
        source="an exception handler or a debug path that returns its input",
        run=leaking,
        pair=AMOUNT.pair,
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


def _raw(amount: float, rate: float, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    noisy = rounded_amount(amount, n, rng)
    return np.where(rng.random(n) < rate, amount, noisy)


def raw_in_a_thousand(amount: float, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""A rounded amount with noise of scale 1, but one run in 1,000 returns it as it is."""
    return _raw(amount, 1e-3, n, rng)


def raw_in_a_hundred_thousand(
    amount: float, n: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    r"""The same, but one run in 100,000."""
    return _raw(amount, 1e-5, n, rng)


_RARE: Final = (
    Entry(
        name="raw-in-a-thousand",
        number=32,
        sentence="One run in a thousand returns the amount unrounded and without noise.",
        source="a timeout, a retry or a cache that falls back to the input",
        run=raw_in_a_thousand,
        pair=AMOUNT.pair,
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
        run=raw_in_a_hundred_thousand,
        pair=AMOUNT.pair,
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
    integers/8, whatever the data.
    """
    steps = math.floor(amount * _STEPS + 0.5)
    return (steps + laplace(10 * _STEPS, n, rng)) / _STEPS


def float_laplace(amount: float, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""An amount in [0, 1] plus Laplace noise of scale 16 in double precision: on the reals that
    costs 1/16.

    1 + z is a multiple of 2^-53 for every float z: it is where \|z\| >= 1/2, and else 1 + z is at
    least 1/2 and is rounded to one. 0 + z is z, and below 1/2 most floats are not.
    """
    return amount + rng.laplace(scale=_SCALE, size=n)


_FLOATING_POINT: Final = (
    Entry(
        name="float-laplace",
        number=28,
        sentence="Laplace noise in floating point: the last bits of an output tell what the noise "
        "was added to.",
        source="Mironov 2012, on the least significant bits; most textbook samplers",
        run=float_laplace,
        pair=(0.0, 1.0),
        epsilon=Fraction(1, 10),
        true_epsilon=Enclosure.infinite(),
        runs=10_000,
        features=("lowest-bit",),
        twin=Twin(name="integer-laplace", run=grid, pair=(0.0, 1.0), epsilon=Fraction(1, 10)),
    ),
)

# -- timing ---------------------------------------------------------------------------------------

_OTHERS: Final = 1000
_WHOLE: Final = 1000
_KEPT: Final = 731  # e/(e + 1) = 0.7310...


def answers(present: int, n: int, rng: np.random.Generator) -> Integers:
    r"""Whether somebody is among the records, kept with chance 0.731: ln 2.717..."""
    kept = rng.integers(_WHOLE, size=n) < _KEPT
    return np.where(kept, present, 1 - present).astype(np.int64)


def _records(present: int) -> list[int]:
    # Who is asked for, or is not, and before the others, who are not.
    return [present, *[0] * _OTHERS]


def found_early(present: int, rng: np.random.Generator) -> int:
    r"""Leaves at the first match, after one comparison or a thousand."""
    found = 0
    for record in _records(present):
        if record == 1:
            found = 1
            break
    return int(answers(found, 1, rng)[0])


def looked_at_all(present: int, rng: np.random.Generator) -> int:
    r"""Compares every record, whatever it finds."""
    found = 0
    for record in _records(present):
        found |= record
    return int(answers(found, 1, rng)[0])


_TIMING: Final = (
    Entry(
        name="found-early",
        number=51,
        sentence="A search ends at the first match: its answer is private, and the time of a call "
        "tells what it hides (--feature time).",
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
