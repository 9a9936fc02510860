r"""Staircase noise and its shifts: the loss is a multiple of the law's epsilon.

P(x)/Q(x) = p(x)/p(x+d) = e^(epsilon (l(x+d) - l(x))): the exponent counts the steps that a shift
crosses, at most ceil(d/Delta) of them. Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from flint import arb, ctx

from accounting.errors import NotDerived
from accounting.pairs.finite import FinitePair, Listed
from dpcore.laws.staircase import Staircase
from dpcore.numbers.enclosure import ball

_MOST_STEPS: Final = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class StaircasePair(FinitePair):
    r"""The pair (X, X - d) for staircase noise X; for d <= Delta the losses are 0 and +-epsilon.

    >>> pair = StaircasePair(noise=Staircase(epsilon=3, sensitivity=10), shift=10)
    >>> pair.largest_loss(), [str(loss) for loss, _, _ in pair.listed()]
    (Enclosure([3, 3]), ['-3', '0', '3'])

    Raises :class:`NotDerived` for a shift of more than 1024 Delta.
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
        r"""The losses and their masses, from the overlaps of the steps with the shifted steps."""
        return _listed(self.noise, self.shift, ctx.prec)


def _step(noise: Staircase, number: int) -> tuple[int, int]:
    # The first and last integer of a step: step 0 is the plateau, steps to its left are negative.
    if number < 0:
        first, last = _step(noise, -number)
        return -last, -first
    last = noise.plateau - 1 + number * noise.sensitivity
    return (last - noise.sensitivity + 1 if number else -last), last


@lru_cache(maxsize=64)
def _listed(noise: Staircase, shift: int, bits: int) -> Listed:
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
