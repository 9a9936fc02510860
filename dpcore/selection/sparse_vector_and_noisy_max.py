r"""The sparse vector technique and report noisy max.

Noise is discrete Laplace or one-sided geometric with exact rational scales, so all comparisons are
between integers. Proofs: docs/proofs/selection.md. The audit's catalogue contains published
variants that omit noise or do not stop, and refutes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import cache, partial
from math import prod
from typing import ClassVar, Final, final

import numpy as np

from dpcore.errors import ABSENT, InvalidParameter
from dpcore.forks import OwnedState
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.mechanism import InScope
from dpcore.numbers.arrays import Integers
from dpcore.numbers.exp_field import ExpRational
from dpcore.numbers.parameter import Choice, Exact, Of, Whole, integer
from dpcore.sampling.rng import SYSTEM, Rng
from dpcore.selection.exponential_and_permute_and_flip import (
    A_TRUTH,
    LARGEST,
    NO_CHOICE,
    ScoreMechanism,
    checked_scores,
    shared,
)

MOST_GAP: Final = 8
r"""The gap that, in the outcomes of ``law``, stands for itself and for all larger gaps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AboveThreshold(ScoreMechanism):
    r"""Report for each answer in turn whether it reaches ``threshold``, until ``count`` answers do.

    The sparse vector technique (Dwork and Roth 2014, Algorithm 1; Lyu, Su and Li 2017, Algorithm
    1): answers below the threshold cost nothing. ``sensitivity`` bounds the change of any one
    answer between neighbouring datasets; ``epsilon`` is for the whole stream, and is divided so
    that a comparison has nearly the least variance (Lyu, Su and Li, Section 4.2). ``monotonic``
    states that no two answers change in opposite directions, as for counts when a user is added or
    removed: less noise then suffices.

    With ``gap=True``, the report on an answer that reaches the threshold is the gap, the noisy
    answer minus the noisy threshold; the report on any other answer is None. The gap is >= 0 and
    costs nothing more (Ding, Wang, Xiao, Zhang and Kifer, "Free gap information from the
    differentially private sparse vector and noisy max mechanisms", 2019). The gap contains both
    noise terms; the noisy answer itself must not be released.

    >>> from dpcore import SeededRng
    >>> above = AboveThreshold(epsilon=2, sensitivity=1, threshold=100)
    >>> above.release([3, 90, 60, 170, 20], rng=SeededRng(1))
    [False, False, False, True]

    Raises :class:`InvalidParameter` if epsilon is not > 0, if ``sensitivity`` or ``count`` is not
    an integer >= 1, or if ``threshold`` is not an integer.
    """

    name: ClassVar[str] = "above-threshold"

    epsilon: Exact = Exact(zero=NO_CHOICE)
    sensitivity: Whole = Whole(at_most=LARGEST)
    threshold: Whole = Whole(at_least=-LARGEST, at_most=LARGEST)
    count: Whole = Whole(1, at_most=1 << 20)
    gap: Of[bool] = Of(bool, A_TRUTH, default=False)
    monotonic: Of[bool] = Of(bool, A_TRUTH, default=False)
    scope: InScope = InScope()

    @property
    def scales(self) -> tuple[Fraction, Fraction]:
        r"""The noise scales: (1 + m/k) Delta/epsilon for the threshold, k times that for answers.

        Delta is the sensitivity, m is 2 count, or count for monotonic answers, and k is the integer
        next to m^(1/3) with the smaller sum of the squared scales.

        >>> AboveThreshold(epsilon=1, sensitivity=1, threshold=0, count=3).scales
        (Fraction(4, 1), Fraction(8, 1))
        """
        changes = (2 - self.monotonic) * self.count
        root = max(int(math.cbrt(changes)), 1)
        near = (((1 + Fraction(changes, k)) ** 2 * (1 + k * k), k) for k in (root, root + 1))
        _, ratio = min(near)
        scale = (1 + Fraction(changes, ratio)) * self.sensitivity / self.epsilon
        return scale, ratio * scale

    def release(self, value: Sequence[int] | Integers, *, rng: Rng = SYSTEM) -> list[int | None]:
        r"""Report whether each answer reaches the threshold; stop after ``count`` answers that do.

        >>> from dpcore import SeededRng
        >>> gaps = AboveThreshold(epsilon=2, sensitivity=1, threshold=100, gap=True)
        >>> gaps.release([3, 90, 60, 170, 20], rng=SeededRng(1))
        [None, None, None, 68]

        Raises :class:`InvalidParameter` if an answer is not an integer.
        """
        if not isinstance(value, Iterable):
            raise InvalidParameter("value", value, "must be a sequence of integers")
        return list(self.stream([integer("value", each) for each in value], rng=rng))

    def stream(self, answers: Iterable[int], *, rng: Rng = SYSTEM) -> Iterator[int | None]:
        r"""Yield the reports one by one: an answer may depend on the reports about earlier answers.

        Each call of ``stream`` is a separate release, with its own noise and cost. A stream that
        began before a fork raises :class:`InvalidParameter` in the forked process: with the same
        noisy threshold, both processes together would report more than ``count`` answers.

        >>> above = AboveThreshold(epsilon=2, sensitivity=1, threshold=100)
        >>> next(above.stream(iter([10**6])))
        True
        """
        of_threshold, of_answer = (DiscreteLaplace(scale=scale) for scale in self.scales)
        held = _NoisyBar(lambda: self.threshold + of_threshold.sample(rng=rng))
        left = self.count
        for answer in answers:
            noisy = integer("answer", answer) + of_answer.sample(rng=rng)
            bar = held.height()  # after the draw, in which a signal handler may fork
            gap = noisy - bar
            above = gap >= 0
            yield (gap if above else None) if self.gap else above
            left -= above
            if not left:
                return

    def law(self, answers: Sequence[int]) -> dict[tuple[int | None, ...], ExpRational]:
        r"""The exact probability of each list, as a tuple, that :meth:`release` may return.

        Gaps of at least 8 are merged into the outcome 8.

        >>> law = AboveThreshold(epsilon=2, sensitivity=1, threshold=0).law([0, 1])
        >>> law[True,].enclose(64).upper_float
        0.588686...
        """
        of_bar, of_answer = self.scales
        ratio = of_answer / of_bar
        root = ExpRational.base(1 / (of_answer * ratio.denominator))
        x, wide = root**ratio.denominator, root**ratio.numerator

        def report(what: int | None, behind: int) -> ExpRational:
            # The probability of this report for an answer ``behind`` below the noisy threshold.
            if what is None or what is False:
                return _below(x, behind)
            if what is True or what == MOST_GAP:
                return 1 - _below(x, behind + _least(what))
            return _mass(x, behind + what)

        def mass(row: tuple[int | None, ...]) -> ExpRational:
            def at(bar: int) -> ExpRational:
                parts = (report(what, bar - a) for what, a in zip(row, answers, strict=False))
                return prod(parts, start=_mass(wide, bar - self.threshold))

            ratios = [wide * x**count for count in range(len(row) + 1)]
            bends = [a - _least(what) for what, a in zip(row, answers, strict=False)]
            return _total(at, [self.threshold, *answers, *bends], ratios)

        return {row: mass(row) for row in self.rows(len(answers))}

    def rows(self, answers: int) -> list[tuple[int | None, ...]]:
        r"""All tuples of reports on ``answers`` answers, where gaps above 8 count as 8."""
        below, above = (None, range(MOST_GAP + 1)) if self.gap else (False, (True,))
        found: list[tuple[int | None, ...]] = [()]
        ended: list[tuple[int | None, ...]] = []
        for _ in range(answers):
            going = [(*row, report) for row in found for report in (below, *above)]
            ended += [row for row in going if len(row) - row.count(below) == self.count]
            found = [row for row in going if len(row) - row.count(below) < self.count]
        return [*ended, *found]


@final
class _NoisyBar(OwnedState):
    # The noisy threshold of one stream.
    __slots__ = ()

    _one: ClassVar[str] = "a second stream with this threshold would exceed its count"

    def __init__(self, draw: Callable[[], int]) -> None:
        super().__init__(None)  # before the draw, in which a signal handler may fork
        self._state = draw()

    def height(self) -> int:
        if self._gone():
            reason = "belongs to the parent process, and this process is a fork: start a new stream"
            raise InvalidParameter("stream", ABSENT, reason)
        found: int = self._state
        return found


class MaxNoise(Enum):
    r"""The noise laws that :class:`NoisyMax` can add to the scores."""

    LAPLACE = "laplace"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyMax(ScoreMechanism):
    r"""Release the index of the largest noisy score; ties are broken uniformly.

    With Delta = ``sensitivity``, each score gets independent noise of scale 2 Delta/epsilon:
    discrete Laplace or, with less error, exponential on 0, 1, 2, ... (P(k) proportional to
    e^(-epsilon k/(2 Delta))). Only the index is released: releasing the noisy score would cost
    more. If the scores are ``monotonic`` (no two change in opposite directions between neighbours),
    the scale is Delta/epsilon.

    With ``gap=True`` the lead of the chosen score is also released, at no further cost (Ding et al.
    2019). The lead is the chosen noisy score minus the smallest value at which the score would
    still have been chosen. This value is the second largest noisy score, plus 1 if the random
    tie-breaking would have preferred that score. ``gap=True`` needs discrete Laplace noise and at
    least two scores.

    >>> from dpcore import SeededRng
    >>> best = NoisyMax(epsilon=8, sensitivity=1)
    >>> [best.release([0, 9, 10, 3], rng=SeededRng(n)) for n in range(4)]
    [2, 2, 2, 2]

    Raises :class:`InvalidParameter` if epsilon is not > 0, if the sensitivity is not an
    integer >= 1, or if ``gap=True`` is combined with exponential noise.
    """

    name: ClassVar[str] = "noisy-max"

    epsilon: Exact = Exact(zero=NO_CHOICE)
    sensitivity: Whole = Whole(at_most=LARGEST)
    noise: Choice[MaxNoise] = Choice(MaxNoise, MaxNoise.EXPONENTIAL)
    gap: Of[bool] = Of(bool, A_TRUTH, default=False)
    monotonic: Of[bool] = Of(bool, A_TRUTH, default=False)
    scope: InScope = InScope()

    def __post_init__(self) -> None:
        ScoreMechanism.__post_init__(self)
        if self.gap and self.noise is MaxNoise.EXPONENTIAL:
            raise InvalidParameter(
                "gap", self.gap, "needs noise='laplace': only then is the gap proven to be free"
            )

    @property
    def scale(self) -> Fraction:
        r"""The noise scale 2 ``sensitivity``/``epsilon``, or half of that for monotonic scores."""
        return (2 - self.monotonic) * self.sensitivity / self.epsilon

    def release(
        self, value: Sequence[int] | Integers, *, rng: Rng = SYSTEM
    ) -> int | tuple[int, int]:
        r"""Return the chosen index into the scores ``value``, or (index, lead) if ``gap=True``.

        >>> from dpcore import SeededRng
        >>> leading = NoisyMax(epsilon=8, sensitivity=1, noise="laplace", gap=True)
        >>> leading.release([0, 9, 30, 3], rng=SeededRng(1))
        (2, 21)

        Raises :class:`InvalidParameter`, before any draw, unless the scores are integers of
        absolute value at most 2^52.
        """
        scores = checked_scores(value, 1 + self.gap)
        noise = DiscreteLaplace(scale=self.scale)
        drawn = noise.sample(len(scores), rng=rng)
        if self.noise is MaxNoise.EXPONENTIAL:
            # Discrete Laplace noise, conditioned on being >= 0, is exponential.
            again = np.flatnonzero(drawn < 0)
            while len(again):
                drawn[again] = noise.sample(len(again), rng=rng)
                again = again[drawn[again] < 0]
        noisy = scores + drawn
        best = np.flatnonzero(noisy == noisy.max())
        at = int(best[rng.below(len(best))])
        if not self.gap:
            return at
        # Ties go to the first in a uniform order: does a second largest score precede the chosen?
        others = np.delete(noisy, at)
        lead, tied = int(noisy[at] - others.max()), np.count_nonzero(others == others.max())
        return at, lead - (lead > 0 and rng.below(int(tied) + 1) > 0)

    def law(self, scores: Sequence[int]) -> dict[int | tuple[int, int], ExpRational]:
        r"""The exact probability of each index or, with ``gap=True``, of each pair (index, lead).

        Leads of at least 8 are merged into the outcome 8.

        >>> law = NoisyMax(epsilon=1, sensitivity=1).law([0, 2])
        >>> law[0].enclose(64).upper_float, law[1].enclose(64).upper_float
        (0.183939720585721..., 0.8160602794142...)
        """
        x = ExpRational.base(1 / self.scale)
        one_sided = self.noise is MaxNoise.EXPONENTIAL

        def mass(k: int) -> ExpRational:
            if one_sided:
                return (1 - x) * x**k if k >= 0 else x.of(0)
            return _mass(x, k)

        def below(k: int) -> ExpRational:
            if one_sided:
                return 1 - x**k if k >= 0 else x.of(0)
            return _below(x, k)

        @cache
        def wins(index: int, k: int) -> ExpRational:
            # The probability that a noisy score k is chosen over the others.
            others = [u for i, u in enumerate(scores) if i != index]
            return x.of(0) + shared((below(k - u), mass(k - u)) for u in others)

        def leads(index: int, lead: int, k: int) -> ExpRational:
            led = wins(index, k - lead)
            exactly = self.gap and lead < MOST_GAP
            return mass(k - scores[index]) * (led - wins(index, k - lead - 1) if exactly else led)

        ratios = [x**count for count in range(1, len(scores) + 1)]

        def chance(index: int, lead: int) -> ExpRational:
            bends = [u + more for u in scores for more in (0, lead, lead + 1)]
            return _total(partial(leads, index, lead), bends, ratios)

        places = range(len(scores))
        if not self.gap:
            return {index: chance(index, 0) for index in places}
        return {(i, lead): chance(i, lead) for i in places for lead in range(MOST_GAP + 1)}


def _least(reported: int | None) -> int:
    # The smallest gap that is reported as ``reported``.
    return 0 if reported is None or reported is True else int(reported)


def _mass(x: ExpRational, k: int) -> ExpRational:
    # P(X = k) of discrete Laplace noise with ratio x.
    return (1 - x) / (1 + x) * x ** abs(k)


def _below(x: ExpRational, k: int) -> ExpRational:
    # P(X < k) of the same noise.
    return x ** (1 - k) / (1 + x) if k <= 0 else 1 - x**k / (1 + x)


def _total(
    at: Callable[[int], ExpRational], bends: Sequence[int], ratios: Sequence[ExpRational]
) -> ExpRational:
    # The sum of at(k) over all integers. Beyond the first and the last bend, at(k) is a sum of
    # geometric sequences with these ratios, so its generating function is p(z)/prod(1 - ratio z)
    # with deg p < number of ratios: the first values determine p, and p at z = 1 gives the sum.
    first, last = min(bends) - 1, max(bends) + 1
    found = sum((at(k) for k in range(first, last + 1)), ratios[0].of(0))
    below = [ratios[0].of(1)]
    for ratio in ratios:
        none = ratio.of(0)
        below = [a - ratio * b for a, b in zip([*below, none], [none, *below], strict=True)]
    for edge, step in ((first - 1, -1), (last + 1, 1)):
        values = [at(edge + step * i) for i in range(len(ratios))]
        above = [each * below[j] for i, each in enumerate(values) for j in range(len(ratios) - i)]
        found += sum(above, found.of(0)) / sum(below, found.of(0))
    return found
