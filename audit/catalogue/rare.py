r"""Runs without noise, so rare that no sample of ordinary size meets one.

The branch hangs on a draw, so a replay that sets each draw to its extremes walks into it, however
rare it is.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from audit.catalogue.entry import Entry, Layer
from audit.catalogue.randomness import AMOUNT, rounded_amount
from dpcore import Enclosure

__all__ = ["ENTRIES"]


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


ENTRIES: Final = (
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
