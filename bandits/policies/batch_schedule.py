r"""Batch lengths of eliminations.

Batches that are too long increase the regret, batches that are too short waste releases. An
elimination that uses only the current batch pulls an arm l(1) + ... + l(b) times, where l(b) is the
first length that resolves its gap. With l(b) = l(1) eta^(b-1), and the required length uniform on a
logarithmic scale, the mean is eta/ln(eta) times the required length: 2.89 for eta = 2 and 4, 2.73
for eta = 3, with the minimum at eta = e. Batches too short to resolve any gap are wasted. Proofs:
docs/proofs/radius.md.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from typing import Final, Literal, TypeAlias

from bandits.batch import arms_and_horizon, failure_probability_of
from bandits.privatizers.privatizer import Privatizer
from bandits.radius.confidence_radii import ExactRadius
from dpcore.numbers.parameter import RationalLike, Whole, check_fields, integer

EXACT_GROWTH: Final = 3
r"""The integer eta that minimises eta/ln(eta)."""

_SURE_GAP: Final = Fraction(1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Batch lengths l(b) = ``first`` * ``growth``^(b-1) per active arm, for b = 1, 2, ..."""

    first: Whole = Whole()
    growth: Whole = Whole(at_least=2)

    def __post_init__(self) -> None:
        check_fields(self)

    def pulls(self, batch: int) -> int:
        r"""The number of pulls l(b) of each active arm in batch b = ``batch`` >= 1."""
        return self.first * int(self.growth ** (integer("batch", batch, at_least=1) - 1))

    def batches(self, horizon: int) -> int:
        r"""The largest number of batches that ``horizon`` rounds can complete, at least 1."""
        left = integer("horizon", horizon, at_least=1)
        for batch in count(1):
            left -= 2 * self.pulls(batch)
            if left < 0:
                return max(batch - 1, 1)
        raise AssertionError  # the loop ends, because lengths grow


PAPER: Final = Schedule(first=2, growth=2)
r"""The schedule of Algorithm 1 of Chowdhury and Zhou 2023: l(b) = 2^b."""

RELEASED: Final = Schedule(first=4, growth=4)
r"""The schedule of the paper's released code for its distributed algorithms: l(b) = 4^b."""


def exact_schedule(
    privatizer: Privatizer, *, arms: int, horizon: int, failure: RationalLike
) -> Schedule:
    r"""The schedule that starts with the shortest batch certified to resolve a gap of 1/2.

    Let D be the certified gap of l pulls (``ExactRadius.gap`` for all ``arms`` active, with p =
    ``failure`` shared equally among the batches that fit in ``horizon``): an arm more than 2 D
    below the best is dropped. l(1) is the smallest l of the form 2^i or 3 2^i with 2 D <= 1/2, as
    in the first epoch of DP-SE, and uses at most half of the horizon. Lengths grow by a factor 3.
    """
    arms, rounds = arms_and_horizon(arms, horizon)
    chance = failure_probability_of(failure, argument="failure")
    most = max(rounds // (2 * arms), 1)
    powers = [1 << i for i in range(most.bit_length())]
    lengths = sorted({*powers, *(3 * p for p in powers if 3 * p <= most)})

    def sure(length: int) -> bool:
        schedule = Schedule(first=length, growth=EXACT_GROWTH)
        radius = ExactRadius(batches=schedule.batches(rounds))
        gap = radius.gap(privatizer, length, batch=1, active=arms, failure=chance)
        return 2 * gap <= _SURE_GAP

    # Gaps decrease with the length: the smallest sufficient length, or the longest.
    place = bisect_left(lengths, x=True, hi=len(lengths) - 1, key=sure)
    return Schedule(first=lengths[place], growth=EXACT_GROWTH)


ScheduleName: TypeAlias = Literal["exact", "paper", "released"]
r"""Batch lengths: ``exact_schedule``, 2^b (the paper) or 4^b (its released code)."""

OF_PAPERS: Final = {"paper": PAPER, "released": RELEASED}
r"""The schedules of the paper and of its code."""
