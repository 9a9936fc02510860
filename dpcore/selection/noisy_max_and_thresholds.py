r"""Choices by comparing noisy numbers: the sparse vector technique and report noisy max.

Noise is discrete Laplace or one-sided geometric with exact rational scales, so comparisons are of
integers. Proofs: docs/proofs/selection.md. Published variants that spare a noise or a stop are in
the catalogue of the audit, refuted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import partial
from typing import Any, Final

import numpy as np

from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.mechanism import A_SCOPE, Scope
from dpcore.numbers.arrays import Integers
from dpcore.numbers.exponential import ExpRational
from dpcore.numbers.parameter import Choice, Exact, Of, Whole, check_fields, integer
from dpcore.sampling.rng import SYSTEM, Rng
from dpcore.selection.selection import checked_scores, shared

_ZERO: Final = "with epsilon 0 the choice would not depend on the scores"
_LARGEST: Final = 1 << 52


@dataclass(frozen=True, slots=True, kw_only=True)
class AboveThreshold:
    r"""Say of one answer after the other whether it reaches ``threshold``, until ``count`` do.

    The sparse vector technique (Dwork and Roth 2014, Algorithm 1; Lyu, Su and Li 2017, Algorithm
    1): answers below the threshold cost nothing. ``sensitivity`` is the most that neighbouring data
    move any one answer; ``epsilon`` is for the whole stream, half of it for the threshold.

    >>> from dpcore import SeededRng
    >>> above = AboveThreshold(epsilon=2, sensitivity=1, threshold=100)
    >>> above.release([3, 90, 60, 170, 20], rng=SeededRng(1))
    [False, False, False, True]

    Raises :class:`InvalidParameter` for an epsilon that is not > 0 and for fields that are not
    integers in range.
    """

    epsilon: Exact = Exact(zero=_ZERO)
    sensitivity: Whole = Whole(at_most=_LARGEST)
    threshold: Whole = Whole(at_least=-_LARGEST, at_most=_LARGEST)
    count: Whole = Whole(1, at_most=1 << 20)
    scope: Of[Scope] = Of(Scope, A_SCOPE, Scope())

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def scales(self) -> tuple[Fraction, Fraction]:
        r"""Of the noise of the threshold, 2 Delta/epsilon, and of an answer, 4 count Delta/epsilon.

        >>> AboveThreshold(epsilon=1, sensitivity=1, threshold=0, count=3).scales
        (Fraction(2, 1), Fraction(12, 1))
        """
        unit = self.sensitivity / self.epsilon
        return 2 * unit, 4 * self.count * unit

    def release(self, value: Sequence[int] | Integers, *, rng: Rng = SYSTEM) -> list[bool]:
        r"""Whether each answer reaches the threshold; shorter than ``value`` where it stopped.

        Raises :class:`InvalidParameter` for answers that are not integers.
        """
        return list(self.stream([integer("value", each) for each in value], rng=rng))

    def stream(self, answers: Iterable[int], *, rng: Rng = SYSTEM) -> Iterator[bool]:
        r"""The same, one by one: an answer may depend on what was said of those before it.

        Each call of ``stream`` is a release of its own.

        >>> above = AboveThreshold(epsilon=2, sensitivity=1, threshold=100)
        >>> next(above.stream(iter([10**6])))
        True
        """
        of_threshold, of_answer = (DiscreteLaplace(scale=scale) for scale in self.scales)
        bar = self.threshold + of_threshold.sample(rng=rng)
        left = self.count
        for answer in answers:
            above = integer("answer", answer) + of_answer.sample(rng=rng) >= bar
            yield above
            left -= above
            if not left:
                return

    def law(self, answers: Sequence[int]) -> dict[tuple[bool, ...], ExpRational]:
        r"""The probability of each list that :meth:`release` may give, exact.

        >>> law = AboveThreshold(epsilon=2, sensitivity=1, threshold=0).law([0, 1])
        >>> law[True,].enclose(64).upper_float
        0.589098...
        """
        of_bar, of_answer = self.scales
        x = ExpRational.base(1 / of_answer)
        wide = x ** (of_answer / of_bar).numerator

        def mass(row: tuple[bool, ...]) -> ExpRational:
            def at(bar: int) -> ExpRational:
                found = _mass(wide, bar - self.threshold)
                for answer, above in zip(answers, row, strict=False):
                    below = _below(x, bar - answer)
                    found *= 1 - below if above else below
                return found

            ratios = [wide * x**count for count in range(len(row) + 1)]
            return _total(at, [self.threshold, *answers], ratios)

        return {row: mass(row) for row in self.rows(len(answers))}

    def rows(self, answers: int) -> list[tuple[bool, ...]]:
        r"""The lists that :meth:`release` may give of so many answers."""
        found: list[tuple[bool, ...]] = [()]
        for _ in range(answers):
            ended = [row for row in found if sum(row) == self.count]
            going = [row for row in found if sum(row) < self.count]
            found = [*ended, *((*row, above) for row in going for above in (False, True))]
        return found

    def to_json(self) -> dict[str, Any]:
        r"""All fields, as text."""
        return {
            "mechanism": "above-threshold",
            "epsilon": str(self.epsilon),
            "sensitivity": self.sensitivity,
            "threshold": self.threshold,
            "count": self.count,
            "scope": self.scope.to_json(),
        }


class MaxNoise(Enum):
    r"""The noise of :class:`NoisyMax`."""

    LAPLACE = "laplace"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyMax:
    r"""Release the index of the largest noisy score, uniform among equal ones.

    Each score has noise of scale 2 Delta/epsilon of its own, discrete Laplace or, with less error,
    exponential on 0, 1, 2, ... (P(k) proportional to e^(-epsilon k/(2 Delta))). Only the index is
    released: the noisy score itself would cost more.

    >>> from dpcore import SeededRng
    >>> best = NoisyMax(epsilon=8, sensitivity=1)
    >>> [best.release([0, 9, 10, 3], rng=SeededRng(n)) for n in range(4)]
    [2, 2, 2, 2]

    Raises :class:`InvalidParameter` as :class:`Selection`.
    """

    epsilon: Exact = Exact(zero=_ZERO)
    sensitivity: Whole = Whole(at_most=_LARGEST)
    noise: Choice[MaxNoise] = Choice(MaxNoise, MaxNoise.EXPONENTIAL)
    scope: Of[Scope] = Of(Scope, A_SCOPE, Scope())

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def scale(self) -> Fraction:
        r"""2 Delta/epsilon: scores may move in opposite directions."""
        return 2 * self.sensitivity / self.epsilon

    def release(self, value: Sequence[int] | Integers, *, rng: Rng = SYSTEM) -> int:
        r"""The chosen index into the scores ``value``.

        Raises :class:`InvalidParameter`, with nothing drawn, unless the scores are integers of size
        at most 2^52.
        """
        scores = checked_scores(value, 1)
        noise = DiscreteLaplace(scale=self.scale)
        drawn = noise.sample(len(scores), rng=rng)
        if self.noise is MaxNoise.EXPONENTIAL:
            # Given that it is not negative, discrete Laplace noise is exponential.
            again = np.flatnonzero(drawn < 0)
            while len(again):
                drawn[again] = noise.sample(len(again), rng=rng)
                again = again[drawn[again] < 0]
        noisy = scores + drawn
        best = np.flatnonzero(noisy == noisy.max())
        return int(best[rng.below(len(best))])

    def law(self, scores: Sequence[int]) -> tuple[ExpRational, ...]:
        r"""The probability of each index, exact.

        >>> [p.enclose(64).upper_float for p in NoisyMax(epsilon=1, sensitivity=1).law([0, 2])]
        [0.183939720585721..., 0.8160602794142...]
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

        def wins(index: int, k: int) -> ExpRational:
            others = [u for i, u in enumerate(scores) if i != index]
            tie = shared((below(k - u), mass(k - u)) for u in others)
            return mass(k - scores[index]) * tie

        ratios = [x**count for count in range(1, len(scores) + 1)]
        return tuple(_total(partial(wins, index), scores, ratios) for index in range(len(scores)))

    def to_json(self) -> dict[str, Any]:
        r"""All fields, as text."""
        return {
            "mechanism": "noisy-max",
            "noise": self.noise.value,
            "epsilon": str(self.epsilon),
            "sensitivity": self.sensitivity,
            "scope": self.scope.to_json(),
        }


def _mass(x: ExpRational, k: int) -> ExpRational:
    # P(X = k) of discrete Laplace noise with the ratio x.
    return (1 - x) / (1 + x) * x ** abs(k)


def _below(x: ExpRational, k: int) -> ExpRational:
    # P(X < k).
    return x ** (1 - k) / (1 + x) if k <= 0 else 1 - x**k / (1 + x)


def _total(
    at: Callable[[int], ExpRational], bends: Sequence[int], ratios: Sequence[ExpRational]
) -> ExpRational:
    # The sum of at(k) over all integers. From the last bend outwards, in both directions, at(k) is
    # a sum of geometric sequences with these ratios, so its generating function is a polynomial of
    # lower degree than their number over prod(1 - ratio z): the first values give it, at z = 1.
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
