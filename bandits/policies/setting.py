r"""The parameters of named policies, including their batch lengths.

Batches that are too long increase the regret, batches that are too short waste releases. An
elimination that uses only the current batch pulls an arm l(1) + ... + l(b) times, where l(b) is the
first length that resolves its gap. With l(b) = l(1) eta^(b-1), and the required length uniform on a
logarithmic scale, the mean is eta/ln(eta) times the required length: 2.89 for eta = 2 and 4, 2.73
for eta = 3, with the minimum at eta = e. Batches too short to resolve any gap are wasted. Proofs:
docs/proofs/radius.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from typing import Final, Literal, TypeAlias

from bandits.actions import LinearModel
from bandits.batch import Confidence, arms_and_horizon, check_word, confidence_of, word
from bandits.combinatorial.problem import Problem
from bandits.combinatorial.streams import StreamRelease
from bandits.privatizers.averages import Calibrated
from bandits.privatizers.deployment import EVERYONE, NO_NOISE, Deployment
from bandits.privatizers.privatizer import Privatizer
from bandits.radius.radius import ExactRadius, RadiusName, TailName
from dpcore.numbers.parameter import Exact, RationalLike, Whole, check_fields, integer

EXACT_GROWTH: Final = 3
r"""The integer eta that minimises eta/ln(eta)."""

EXACT_SCALING: Final = 4
r"""The multiple of the paper's g = ceil(epsilon sqrt n) at which rounding is negligible.

Rounding in steps of 1/g gives a sum a variance of at most n/(4 g^2), that is 1/(64 epsilon^2) for
this g: 1/128 of the variance of discrete Laplace noise, for two bits per user. (A certified width
has no rounding term; rounding only increases the variance of the mean.)
"""

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


A_SCHEDULE: Final = "must be a Schedule, e.g. PAPER"

PAPER: Final = Schedule(first=2, growth=2)
r"""The schedule of CZ Algorithm 1: l(b) = 2^b."""

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
    chance = confidence_of(failure, argument="failure")
    lengths = _lengths(max(rounds // (2 * arms), 1))

    def sure(length: int) -> bool:
        schedule = Schedule(first=length, growth=EXACT_GROWTH)
        radius = ExactRadius(batches=schedule.batches(rounds))
        gap = radius.gap(privatizer, length, batch=1, active=arms, failure=chance)
        return 2 * gap <= _SURE_GAP

    # Gaps decrease with the length: the smallest sufficient length, or the longest.
    place = bisect_left(lengths, x=True, hi=len(lengths) - 1, key=sure)
    return Schedule(first=lengths[place], growth=EXACT_GROWTH)


def _lengths(most: int) -> list[int]:
    powers = [1 << i for i in range(math.floor(math.log2(most)) + 1)]
    return sorted({*powers, *(3 * p for p in powers if 3 * p <= most)})


ScheduleName: TypeAlias = Literal["exact", "paper", "released"]
r"""Batch lengths: ``exact_schedule``, 2^b (the paper) or 4^b (its released code)."""

_OF_PAPERS: Final = {"paper": PAPER, "released": RELEASED}
_SHORTEST: Final = Schedule(first=1, growth=2)
_OF_A_SHARE: Final = Fraction(1, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParameters:
    r"""Parameters shared by policies and experiments: the horizon and variants.

    ``confidence`` is p, the error probability of the run. ``renyi_tail`` selects the h of Renyi
    noise in the paper's radius; None selects that of the released code with its schedule and the
    printed one with others (:class:`bandits.radius.radius.PaperRadius`). ``max_visits`` is the
    largest number of visits of each of ``users`` users (None: unlimited), and ``deployment`` plans
    for dropouts. For linear algorithms, ``calibration`` sets the noise and ``alpha`` the growth of
    the number of clients. ``release`` is the release method of cucb-dp.
    """

    horizon: int
    radius: RadiusName = word(RadiusName, "exact")
    confidence: Confidence = Confidence("1/10")
    renyi_tail: TailName | None = None
    calibration: Calibrated = word(Calibrated, "exact")
    users: int | None = None
    alpha: Exact = Exact("4/5", within="(0, 1)")
    release: StreamRelease = word(StreamRelease, "tree")
    max_visits: int | None = None
    deployment: Deployment = EVERYONE

    def __post_init__(self) -> None:
        check_fields(self)
        if self.renyi_tail is not None:
            check_word("renyi_tail", self.renyi_tail, TailName)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(RunParameters):
    r"""The parameters from which a named policy is built: epsilon, delta, horizon, arms.

    Only shuffled bits use ``delta``, as they have no pure epsilon. ``model`` is the server's prior
    knowledge of a linear or combinatorial problem.

    >>> Setting(epsilon="0.5", delta="1e-6", horizon=10**6, arms=10).epsilon
    Fraction(1, 2)

    Raises :class:`InvalidParameter` unless epsilon > 0 and delta is in (0, 1), for arms < 1, a
    horizon below the number of arms, a confidence outside (0, 1/2), and an unknown radius or
    schedule.
    """

    epsilon: Exact = Exact(zero=NO_NOISE)
    delta: Exact = Exact(within="(0, 1)")
    arms: int
    schedule: ScheduleName = word(ScheduleName, "exact")
    model: LinearModel | Problem | None = None

    def __post_init__(self) -> None:
        RunParameters.__post_init__(self)
        arms, horizon = arms_and_horizon(self.arms, self.horizon)
        object.__setattr__(self, "arms", arms)
        object.__setattr__(self, "horizon", horizon)

    @property
    def failure(self) -> Fraction:
        r"""The probability that a sum mod m is decoded incorrectly: 1/T in the paper.

        With the exact radius, a decoding error counts against the share of p of an interval, so its
        probability is also at most a hundredth of the smallest share. No share is below p/(B (B +
        1) K), where B is the largest number of batches, that of 1, 2, 4, ... pulls of two arms.

        >>> from dataclasses import replace
        >>> few = Setting(epsilon=1, delta="1e-6", horizon=10**4, arms=150)
        >>> few.failure, replace(few, radius="paper").failure
        (Fraction(1, 23400000), Fraction(1, 10000))
        """
        paper = Fraction(1, max(self.horizon, 2))
        if self.radius == "paper":
            return paper
        batches = _SHORTEST.batches(self.horizon)
        share = Fraction(self.confidence) / (batches * (batches + 1) * self.arms)
        return min(paper, share * _OF_A_SHARE)

    def schedule_for(self, privatizer: Privatizer) -> Schedule:
        r"""The batch lengths of ``schedule``; exact ones are adapted to the noise."""
        return _OF_PAPERS.get(self.schedule) or exact_schedule(
            privatizer, arms=self.arms, horizon=self.horizon, failure=self.confidence
        )
