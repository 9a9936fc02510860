r"""Local randomisers: randomised response, RAPPOR, subset selection, hashing, Hadamard response.

Probabilities are multiples of 1/1000, or of 2^-32 if dpcore.local draws the reports, so that every
law is exact. They are rounded such that a correct mechanism costs slightly less than its claim.

Sources: Warner, "Randomized response" (1965); Erlingsson, Pihur and Korolova, "RAPPOR: Randomized
Aggregatable Privacy-Preserving Ordinal Response" (2014). RAPPOR's permanent response flips each bit
with probability f/2. If the encodings of two values differ in 2 h bits, it costs epsilon = 2 h
ln((1 - f/2)/(f/2)). Here encodings are one-hot, so h = 1.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np
from flint import arb

from audit.broken_mechanisms import seeded
from dpcore.local import (
    HadamardResponse,
    LocalHashing,
    LocalReport,
    RandomisedResponse,
    SubsetSelection,
)
from dpcore.local.local_report import Reports
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import ball
from dpcore.numbers.parameter import RationalLike, rational
from dpcore.sampling.rng import Rng

_ANSWERS: Final = 4
_WHOLE: Final = 1000
_KEPT: Final = 475  # e/(e + 3) = 0.4753...
_FLIPPED: Final = 378  # 1/(e^(1/2) + 1) = 0.3775...
_REPORTED_WRONG: Final = 100


def _happens(thousandths: int, shape: int | tuple[int, ...], rng: np.random.Generator) -> Integers:
    # Draws that are 1 with a probability of exactly ``thousandths``/1000, otherwise 0.
    return (rng.integers(_WHOLE, size=shape) < thousandths).astype(np.int64)


def four_answers(truth: int, n: int, rng: np.random.Generator, *, kept: int = _KEPT) -> Integers:
    r"""Randomised response with four answers; the true one has probability ``kept``/1000.

    The default, 0.475, costs epsilon = ln 2.714..., slightly less than 1.
    """
    other = (truth + rng.integers(1, _ANSWERS, size=n)) % _ANSWERS
    return np.where(_happens(kept, n, rng) == 1, truth, other)


def permanent(
    value: int, n: int, rng: np.random.Generator, *, width: int = 4, flipped: int = _FLIPPED
) -> Integers:
    r"""RAPPOR's permanent response: the one-hot bits of a value, each flipped with probability f/2.

    Here f/2 = ``flipped``/1000. At epsilon = 1 the correct f/2 is 0.378, because the encodings of
    two values differ in two bits. With f/2 = 0.269 each of the two bits costs 1, and all cost 2.
    """
    bits = (np.arange(width) == value).astype(np.int64)
    return np.asarray(bits ^ _happens(flipped, (n, width), rng))


def memoised(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""Two reports of a value, both derived from one permanent response of two bits.

    A report is the permanent response with each bit flipped again with probability 1/10. So any
    number of reports reveals no more than the permanent response.
    """
    kept = permanent(value, n, rng, width=2)
    return np.concatenate([kept ^ _happens(_REPORTED_WRONG, (n, 2), rng) for _ in range(2)], axis=1)


def one_time_twice(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""Two reports of a value without memoisation: each is a new permanent response of two bits."""
    return np.concatenate([permanent(value, n, rng, width=2) for _ in range(2)], axis=1)


class SubsetAsTwoAnswers(SubsetSelection):
    r"""Subset selection that contains the true value with probability e^epsilon/(e^epsilon + 1).

    The probability is correct only if a subset contains half of all values.
    """

    @property
    def own(self) -> Fraction:
        return RandomisedResponse(epsilon=self.epsilon, values=2).own


class HashingSeededByValue(LocalHashing):
    r"""Local hashing whose seed is computed from the user's value, and contained in the report."""

    def _encode(self, values: Integers, rng: Rng) -> Reports:
        seeds = (5 * values + 2) % self.base**self._digits
        response = RandomisedResponse(epsilon=self.epsilon, values=self.base)
        return np.stack((seeds, response.report(self._hash(seeds, values), rng=rng)), axis=1)


_MECHANISMS: Final[dict[str, type[LocalReport]]] = {
    each.__name__: each
    for each in (SubsetSelection, SubsetAsTwoAnswers, LocalHashing, HashingSeededByValue)
}


def reported(value: int, n: int, rng: np.random.Generator, *, by: str, values: int) -> Reports:
    r"""The reports of n users with ``value`` at epsilon = 1, by a mechanism of dpcore.local."""
    return _reports(value, n, rng, _MECHANISMS[by](epsilon=1, values=values))


def _reports(value: int, n: int, rng: np.random.Generator, by: LocalReport) -> Reports:
    # At least one user must report.
    return by.report(np.full(max(n, 1), value), rng=seeded(rng))[:n]


def two_coefficients(
    value: int, n: int, rng: np.random.Generator, *, each: RationalLike
) -> Reports:
    r"""Two reports of one value by Hadamard response; ``each`` is the epsilon of one report."""
    one = HadamardResponse(epsilon=each, values=3)
    return _reports(value, 2 * n, rng, one).reshape(n, 2)


def loss(*, true: RationalLike | None = None, others: int = 1, times: int = 1) -> arb:
    r"""The largest privacy loss of ``times`` answers by randomised response, drawn independently.

    The true answer has probability ``true``, and each of ``others`` other answers has probability
    (1 - true)/others. By default ``true`` is that of binary randomised response at epsilon = 1.
    """
    own = RandomisedResponse(epsilon=1, values=2).own if true is None else rational("true", true)
    return times * ball(others * own / (1 - own)).log()
