r"""Noise that is not fresh, not independent, or not always there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from audit.catalogue.entry import Entry, Twin, laplace
from audit.catalogue.scale import COUNT
from dpcore import DiscreteLaplace, Enclosure, SeededRng
from dpcore.numbers.arrays import Integers

__all__ = ["AMOUNT", "ENTRIES", "rounded_amount"]

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

ENTRIES: Final = (
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
