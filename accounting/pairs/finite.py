r"""Pairs with finitely many losses: staircase noise, and mechanisms of bounded range.

The privacy loss is a sufficient statistic, so outcomes with equal loss are merged into one. The
distinct losses and their masses then determine the pair. Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar, Final, TypeAlias

from flint import arb, ctx

from accounting.errors import NotDerived
from accounting.pairs.enclose_curve import as_ball
from accounting.pairs.pair import Cell, Loss, RayPair
from dpcore.laws.staircase import Staircase
from dpcore.numbers.enclosure import Enclosure, ball, narrow

Listed: TypeAlias = tuple[tuple[Loss, arb, arb], ...]
"""(loss, P-mass, Q-mass) in order of increasing loss, where P = e^loss Q > 0."""

_BITS: Final = 64
_MOST_STEPS: Final = 1 << 10
_NODES: Final = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FinitePair(RayPair):
    r"""A pair (P, Q) with finitely many losses, where outcome m = 0, 1, ... has the m-th loss."""

    everywhere: ClassVar[bool] = True

    @abstractmethod
    def listed(self) -> Listed:
        r"""All losses in increasing order, each with its P-mass and its Q-mass."""

    def loss(self, m: int) -> Loss:
        rows = self.listed()
        return rows[m][0] if 0 <= m < len(rows) else arb("-inf" if m < 0 else "inf")

    def ray(self, epsilon: Fraction) -> Cell | None:
        gaps = [
            loss - epsilon if isinstance(loss, Fraction) else loss - ball(epsilon)
            for loss, _, _ in self.listed()
        ]
        first = sum(bool(gap <= 0) for gap in gaps)
        return None if first == len(gaps) else (first, sum(not gap > 0 for gap in gaps))

    def tails(self, m: int) -> tuple[arb, arb]:
        # A(m) - B(m) is summed over the side of m where all terms have one sign.
        rows, m = self.listed(), max(m, 0)
        rest = sum((q for _, _, q in rows[m:]), arb(0))
        above = bool(rows[m:]) and rows[m][0] >= 0
        moved = (q * as_ball(loss).expm1() for loss, _, q in (rows[m:] if above else rows[:m]))
        gap = sum(moved, arb(0))
        return gap if above else -gap, rest

    def below(self, m: int) -> arb:
        return sum((p for _, p, _ in self.listed()[: max(m, 0)]), arb(0))

    def largest_loss(self) -> Enclosure:
        last = self.listed()[-1][0]
        if isinstance(last, Fraction):
            return Enclosure.exactly(last)
        return narrow(lambda: as_ball(self.listed()[-1][0]), _BITS)

    def renyi(self, order: Fraction) -> arb:
        excess = order - 1
        terms = (p * (ball(excess) * as_ball(loss)).exp() for loss, p, _ in self.listed())
        return sum(terms, arb(0)).log() / ball(excess)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaircasePair(FinitePair):
    r"""The pair (X, X - d) for staircase noise X with the shift d.

    If d is at most the sensitivity of the law, the losses are 0 and +-epsilon.

    >>> pair = StaircasePair(noise=Staircase(epsilon=3, sensitivity=10), shift=10)
    >>> pair.largest_loss(), [str(loss) for loss, _, _ in pair.listed()]
    (Enclosure([3, 3]), ['-3', '0', '3'])

    Raises :class:`NotDerived` if d is more than 1024 times the sensitivity of the law.
    """

    noise: Staircase
    shift: int

    def __post_init__(self) -> None:
        if self.shift > _MOST_STEPS * self.noise.sensitivity:
            raise NotDerived(
                f"the curve of {self.noise!r} under a shift of {self.shift}",
                f"a shift may be at most {_MOST_STEPS} times the sensitivity of the law",
            )

    def listed(self) -> Listed:
        return _of_steps(self.noise, self.shift, ctx.prec)


def _step(noise: Staircase, number: int) -> tuple[int, int]:
    # The first and last integer of a step: step 0 is the plateau, steps to its left are negative.
    if number < 0:
        first, last = _step(noise, -number)
        return -last, -first
    last = noise.plateau - 1 + number * noise.sensitivity
    return (last - noise.sensitivity + 1 if number else -last), last


@lru_cache(maxsize=64)
def _of_steps(noise: Staircase, shift: int, bits: int) -> Listed:
    # All steps to the right of the plateau overlap the same number of shifted steps, and so do all
    # steps to the left of step -ceil(d/Delta): steps 1 and `far` represent them, with the geometric
    # sum of the weights.
    del bits
    far = -(-shift // noise.sensitivity) + 1
    all_behind = 1 / (1 - (-ball(noise.epsilon)).exp())
    found: dict[int, arb] = {}
    for number in range(-far, 2):
        first, last = _step(noise, number)
        weight = noise.pmf_ball(first) * (all_behind if number in (-far, 1) else 1)
        for other in range(_number(noise, first + shift), _number(noise, last + shift) + 1):
            left, right = (end - shift for end in _step(noise, other))
            met = min(last, right) - max(first, left) + 1
            passed = abs(other) - abs(number)
            found[passed] = found.get(passed, arb(0)) + weight * met
    return tuple((noise.epsilon * m, found[m], found[-m]) for m in sorted(found))


def _number(noise: Staircase, k: int) -> int:
    return noise.level(k) if k > 0 else -noise.level(k)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedRangePair(FinitePair):
    r"""A pair that dominates every selection mechanism of bounded range ``length``.

    The losses of such a mechanism lie in an interval of this length. At epsilon = t, the smallest
    delta that holds for all of them is H(t) = (1 - e^((t - length)/2))^2/(1 - e^-length). The
    losses of this pair are equally spaced numbers t from -length to length. At these t its curve is
    H(t); between them it is interpolated linearly in e^t, which gives an upper bound.
    """

    length: Fraction

    def listed(self) -> Listed:
        return _of_chords(self.length, ctx.prec)


@lru_cache(maxsize=32)
def _of_chords(epsilon: Fraction, bits: int) -> Listed:
    del bits
    whole = -ball(-epsilon).expm1()
    losses = [epsilon * Fraction(2 * i - _NODES, _NODES) for i in range(_NODES + 1)]
    nodes = [ball(loss).exp() for loss in losses]
    heights = [ball((loss - epsilon) / 2).expm1() ** 2 / whole for loss in losses]
    lines = zip(pairwise(heights), pairwise(nodes), strict=True)
    slopes = [(b - a) / (y - x) for (a, b), (x, y) in lines]
    masses = [right - left for left, right in pairwise([arb(-1), *slopes, arb(0)])]
    return tuple((loss, x * q, q) for loss, x, q in zip(losses, nodes, masses, strict=True))
