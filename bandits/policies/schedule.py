r"""Choose how long batches are: too long costs regret, too short costs releases.

An elimination that keeps nothing of earlier batches pulls an arm l(1) + ... + l(b) times, where
l(b) is the first length that tells it apart. With l(b) = l(1) eta^(b-1), and the length that would
have been enough anywhere within a factor eta on a logarithmic scale, that is eta/ln(eta) times what
was enough on average: 2.89 for eta = 2 and 4, 2.73 for 3, least at e. Batches too short to tell any
arms apart are lost. Proofs: docs/proofs/radius.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from typing import Final

from bandits.batch import arms_and_horizon, confidence_of
from bandits.privatizers.privatizer import Privatizer
from bandits.radius.radius import ExactRadius
from dpcore.numbers.parameter import RationalLike, integer, make_integers

__all__ = ["EXACT_GROWTH", "EXACT_SCALING", "PAPER", "RELEASED", "Schedule", "exact_schedule"]

EXACT_GROWTH: Final = 3
r"""The integer with the least eta/ln(eta)."""

EXACT_SCALING: Final = 4
r"""The multiple of the paper's g = ceil(epsilon sqrt n) with which rounding does not show.

Rounding in steps of 1/g gives a sum a variance of at most n/(4 g^2), that is 1/(64 epsilon^2) for
this g: 1/128 of the variance of discrete Laplace noise, at two bits a user. (A certified width has
no rounding term; what rounding costs is that the mean itself is less sure.)
"""

_SURE_GAP: Final = Fraction(1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    r"""l(b) = ``first`` * ``growth``^(b-1) pulls of every active arm in batch b = 1, 2, and so on.

    >>> schedule = Schedule(first=100, growth=3)
    >>> schedule.pulls(3), schedule.batches(10**6)
    (900, 8)

    Raises :class:`InvalidParameter` for a first batch below 1 or a growth below 2.
    """

    first: int
    growth: int

    def __post_init__(self) -> None:
        make_integers(self, "first")
        make_integers(self, "growth", at_least=2)

    def pulls(self, batch: int) -> int:
        r"""l(b), b = ``batch`` >= 1."""
        return self.first * int(self.growth ** (integer("batch", batch, at_least=1) - 1))

    def batches(self, horizon: int) -> int:
        r"""The most batches that ``horizon`` rounds can complete, and at least 1.

        Two arms are active in every batch: nothing is learned, or released, where one is left.
        """
        left = integer("horizon", horizon, at_least=1)
        for batch in count(1):
            left -= 2 * self.pulls(batch)
            if left < 0:
                return max(batch - 1, 1)
        raise AssertionError  # the loop ends: lengths grow


PAPER: Final = Schedule(first=2, growth=2)
r"""CZ Algorithm 1: l(b) = 2^b."""

RELEASED: Final = Schedule(first=4, growth=4)
r"""The code released with the paper, for its distributed algorithms: l(b) = 4^b."""


def exact_schedule(
    privatizer: Privatizer, *, arms: int, horizon: int, failure: RationalLike
) -> Schedule:
    r"""The shortest first batch that is sure to tell a gap of 1/2, growing by 3.

    With D the certified gap of l pulls (``ExactRadius.gap`` for all ``arms`` active, at p =
    ``failure`` shared equally among the batches that ``horizon`` has room for), an arm more than
    2 D below the best is dropped. l(1) is the least l of the form 2^i or 3 2^i with 2 D <= 1/2, as
    the first epoch of DP-SE promises too, and at most half of the horizon goes into it.

    Nothing of the rewards enters: one rule for every instance.

    >>> from bandits.privatizers.sums import SumPrivatizer
    >>> pure = SumPrivatizer(trust="pure", epsilon=1, failure="1e-6", scaling=EXACT_SCALING)
    >>> exact_schedule(pure, arms=10, horizon=10**6, failure="0.1")
    Schedule(first=128, growth=3)

    Raises :class:`InvalidParameter` for arms < 1, a horizon below the number of arms, and a failure
    outside of (0, 1/2).
    """
    arms, rounds = arms_and_horizon(arms, horizon)
    chance = confidence_of(failure, argument="failure")
    lengths = _lengths(max(rounds // (2 * arms), 1))

    def sure(length: int) -> bool:
        schedule = Schedule(first=length, growth=EXACT_GROWTH)
        radius = ExactRadius(batches=schedule.batches(rounds))
        gap = radius.gap(privatizer, length, batch=1, active=arms, failure=chance)
        return 2 * gap <= _SURE_GAP

    # Gaps fall with the length: the least length that is sure, or the longest.
    place = bisect_left(lengths, x=True, hi=len(lengths) - 1, key=sure)
    return Schedule(first=lengths[place], growth=EXACT_GROWTH)


def _lengths(most: int) -> list[int]:
    powers = [1 << i for i in range(math.floor(math.log2(most)) + 1)]
    return sorted({*powers, *(3 * p for p in powers if 3 * p <= most)})
