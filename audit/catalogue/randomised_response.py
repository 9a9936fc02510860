r"""Local randomisers: randomised response and RAPPOR.

Probabilities are whole thousandths, drawn from integers, so that every law is exact. They are
rounded so that a correct mechanism spends slightly less than its claim.

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
from flint import arb

from audit.catalogue.entry import Entry, Twin
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import Enclosure, ball, narrow

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
    bits: Integers = (np.arange(width) == value).astype(np.int64)
    response: Integers = bits ^ _happens(flipped, (n, width), rng)
    return response


def memoised(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""Two reports on one permanent response of two bits, each bit flipped again with probability
    1/10: any number of reports reveals no more than the permanent response.
    """
    kept = permanent(value, n, rng, width=2)
    return np.concatenate([kept ^ _happens(_REPORTED_WRONG, (n, 2), rng) for _ in range(2)], axis=1)


def one_time_twice(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""Two reports by the one-time variant, whose permanent response is not stored."""
    return np.concatenate([permanent(value, n, rng, width=2) for _ in range(2)], axis=1)


def _four_as_two() -> arb:
    return ball(Fraction(3 * _KEPT_OF_TWO, _WHOLE - _KEPT_OF_TWO)).log()


def _bits(flipped: int, differing: int) -> Enclosure:
    # Each bit that differs costs ln((1 - f/2)/(f/2)).
    return narrow(lambda: differing * ball(Fraction(_WHOLE - flipped, flipped)).log(), 64)


ENTRIES: Final = (
    Entry(
        name="four-answers-as-two",
        number=25,
        sentence="Four possible answers are randomised with the truth probability that is right "
        "for two.",
        source="randomised response generalised by hand from a yes-or-no question",
        run=partial(four_answers, kept=_KEPT_OF_TWO),  # right for two answers
        true_epsilon=narrow(_four_as_two, 64),
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
        true_epsilon=_bits(_FLIPPED_FOR_ONE_BIT, 2),
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
        true_epsilon=_bits(_FLIPPED, 4),
        runs=1500,
        twin=Twin(name="memoised-rappor", run=memoised),
    ),
)
