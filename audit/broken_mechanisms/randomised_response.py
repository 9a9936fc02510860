r"""Local randomisers: randomised response, RAPPOR, subset selection, hashing, Hadamard response.

Probabilities are whole thousandths, or multiples of 2^-32 where dpcore.local draws the reports, so
that every law is exact. They are rounded so that a correct mechanism spends slightly less than its
claim.

Sources: Warner, "Randomized response" (1965); Erlingsson, Pihur and Korolova, "RAPPOR: Randomized
Aggregatable Privacy-Preserving Ordinal Response" (2014), whose permanent response flips each bit
with probability f/2 and costs 2 h ln((1 - f/2)/(f/2)) for values that differ in 2 h bits; here h =
1.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Final

import numpy as np

from audit.broken_mechanisms.catalogue_entry import Entry, Twin, seeded
from dpcore.local import (
    HadamardResponse,
    LocalHashing,
    LocalReport,
    RandomisedResponse,
    SubsetSelection,
)
from dpcore.local.local_report import Reports
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.numbers.parameter import RationalLike
from dpcore.sampling.rng import Rng

_ANSWERS: Final = 4
_WHOLE: Final = 1000
# e/(e + 3) = 0.4753..., e/(e + 1) = 0.7310..., 1/(e^(1/2) + 1) = 0.3775..., 1/(e + 1) = 0.2689...
_KEPT: Final = 475
_KEPT_OF_TWO: Final = 731
_FLIPPED: Final = 378
_FLIPPED_FOR_ONE_BIT: Final = 269
_REPORTED_WRONG: Final = 100


def _happens(thousandths: int, shape: int | tuple[int, ...], rng: np.random.Generator) -> Integers:
    # 1 with exactly this probability.
    return (rng.integers(_WHOLE, size=shape) < thousandths).astype(np.int64)


def four_answers(truth: int, n: int, rng: np.random.Generator, *, kept: int = _KEPT) -> Integers:
    r"""One of four answers, the true one with probability 0.475; this costs ln 2.714..."""
    other = (truth + rng.integers(1, _ANSWERS, size=n)) % _ANSWERS
    return np.where(_happens(kept, n, rng) == 1, truth, other)


def permanent(
    value: int, n: int, rng: np.random.Generator, *, width: int = 4, flipped: int = _FLIPPED
) -> Integers:
    r"""The one-hot bits of a value, each flipped with probability f/2. Probability 0.378 is right
    for the two bits in which values differ; 0.269 costs epsilon for each bit, so 2 epsilon for a
    value.
    """
    bits = (np.arange(width) == value).astype(np.int64)
    return np.asarray(bits ^ _happens(flipped, (n, width), rng))


def memoised(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""Two reports on one permanent response of two bits, each bit flipped again with probability
    1/10: any number of reports reveals no more than the permanent response.
    """
    kept = permanent(value, n, rng, width=2)
    return np.concatenate([kept ^ _happens(_REPORTED_WRONG, (n, 2), rng) for _ in range(2)], axis=1)


def one_time_twice(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""Two reports by the one-time variant, whose permanent response is not stored."""
    return np.concatenate([permanent(value, n, rng, width=2) for _ in range(2)], axis=1)


def reported(value: int, n: int, rng: np.random.Generator, *, by: LocalReport) -> Reports:
    r"""Reports of n users with this value, by a mechanism of dpcore.local."""
    # At least one user must report.
    return by.report(np.full(max(n, 1), value), rng=seeded(rng))[:n]


class SubsetAsTwoAnswers(SubsetSelection):
    r"""Subset selection with truth probability e^epsilon/(e^epsilon + 1), which is right only for
    subsets of half of the values.
    """

    @property
    def own(self) -> Fraction:
        return RandomisedResponse(epsilon=self.epsilon, values=2).own


class HashingSeededByValue(LocalHashing):
    r"""Local hashing with a seed computed from the value; the report contains it."""

    def _encode(self, values: Integers, rng: Rng) -> Reports:
        seeds = (5 * values + 2) % self.base**self._digits
        response = RandomisedResponse(epsilon=self.epsilon, values=self.base)
        return np.stack((seeds, response.report(self._hash(seeds, values), rng=rng)), axis=1)


def two_coefficients(
    value: int, n: int, rng: np.random.Generator, *, each: RationalLike
) -> Reports:
    r"""Two Hadamard coefficients of one value, each reported at epsilon = ``each``."""
    one = HadamardResponse(epsilon=each, values=3)
    return reported(value, 2 * n, rng, by=one).reshape(n, 2)


def _cost(true: Fraction, others: int = 1, times: int = 1) -> Enclosure:
    # Each of ``others`` alternatives to the truth has probability (1 - true)/others.
    return narrow(lambda: times * ball(others * true / (1 - true)).log(), 64)


# e/(e + 1), rounded down.
_TRUE_OF_TWO: Final = RandomisedResponse(epsilon=1, values=2).own


ENTRIES: Final = (
    Entry(
        name="four-answers-as-two",
        number=25,
        sentence="Four possible answers are randomised with the truth probability that is right "
        "for two.",
        source="randomised response generalised by hand from a yes-or-no question",
        run=partial(four_answers, kept=_KEPT_OF_TWO),  # right for two answers
        true_epsilon=_cost(Fraction(_KEPT_OF_TWO, _WHOLE), others=3),
        runs=200,
        twin=Twin(name="four-answers", run=four_answers),
    ),
    Entry(
        name="rappor-for-one-bit",
        number=39,
        sentence="RAPPOR's f is chosen for the one bit that a value sets, but two values differ "
        "in two bits.",
        source="the factor 2 of 2 h ln((1 - f/2)/(f/2)) left out; Erlingsson et al. 2014 "
        "(arXiv 1407.6981)",
        run=partial(permanent, flipped=_FLIPPED_FOR_ONE_BIT),
        true_epsilon=_cost(1 - Fraction(_FLIPPED_FOR_ONE_BIT, _WHOLE), times=2),
        runs=700,
        twin=Twin(name="rappor", run=permanent),
    ),
    Entry(
        name="one-time-rappor-twice",
        number=40,
        sentence="One-time RAPPOR, without memoisation, reports twice: each report has fresh "
        "noise and costs epsilon.",
        source="the one-time form of Erlingsson et al. 2014 (arXiv 1407.6981) in a repeated "
        "collection",
        run=one_time_twice,
        true_epsilon=_cost(1 - Fraction(_FLIPPED, _WHOLE), times=4),
        runs=1500,
        twin=Twin(name="memoised-rappor", run=memoised),
    ),
    Entry(
        name="subset-as-two-answers",
        number=57,
        sentence="A random subset of 2 of 6 values contains the user's value with the truth "
        "probability that is right for two answers.",
        source="subset selection (Ye and Barg 2018, arXiv 1702.00610) without the size of the "
        "subset in its probability",
        run=partial(reported, by=SubsetAsTwoAnswers(epsilon=1, values=6)),
        # 4 values outside the subset against 2 inside: 1 + ln 2.
        true_epsilon=_cost(_TRUE_OF_TWO, others=4 // 2),
        runs=1000,
        twin=Twin(
            name="subset-selection", run=partial(reported, by=SubsetSelection(epsilon=1, values=6))
        ),
    ),
    Entry(
        name="hashing-seeded-by-value",
        number=58,
        sentence="The seed of a local hash is computed from the user's value and reported, so it "
        "reveals the value.",
        source="local hashing (Wang et al. 2017) with a reproducible seed instead of a random one",
        run=partial(reported, by=HashingSeededByValue(epsilon=1, values=9)),
        true_epsilon=Enclosure.infinite(),
        runs=100,
        twin=Twin(
            name="local-hashing", run=partial(reported, by=LocalHashing(epsilon=1, values=9))
        ),
    ),
    Entry(
        name="hadamard-two-coefficients",
        number=59,
        sentence="Two Hadamard coefficients of a value are reported, each with the noise for one.",
        source="Hadamard response (Acharya, Sun and Zhang 2019, arXiv 1802.04705), several reports "
        "of a user for a smaller error",
        run=partial(two_coefficients, each=1),
        true_epsilon=_cost(_TRUE_OF_TWO, times=2),
        runs=2000,
        twin=Twin(name="hadamard-composed", run=partial(two_coefficients, each=Fraction(1, 2))),
    ),
)
