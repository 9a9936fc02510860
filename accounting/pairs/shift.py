r"""Shifts of a query between neighbouring datasets: integer vectors, up to order and sign.

A shift is given by its steps with their counts, ``((2, 1), (1, 3))`` for (2, 1, 1, 1), since the
noise has the same symmetric law in every coordinate. A norm sensitivity does not fix the number of
coordinates: a shift may move as many of them as the norm permits. Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from accounting.errors import NotDerived
from dpcore.mechanism import Norm, Sensitivity

Shift: TypeAlias = tuple[tuple[int, int], ...]
"""(step, count) with decreasing steps; the zero shift is excluded."""

_MOST_SHIFTS: Final = 256


def shift_of(steps: Iterable[int]) -> Shift:
    r"""The shift that moves coordinates by ``steps`` >= 1.

    >>> shift_of([1, 2, 1, 1])
    ((2, 1), (1, 3))
    """
    return tuple(sorted(Counter(steps).items(), reverse=True))


def heaviest(sensitivity: Sensitivity) -> Shift:
    r"""The worst shift for the largest loss and for zCDP, for every law.

    For l1 it is one step in one coordinate; for l2 a step of 1 in each of Delta_2^2 coordinates;
    for a box its corner.

    >>> heaviest(Sensitivity.l1(3)), heaviest(Sensitivity.l2_squared(3))
    (((3, 1),), ((1, 3),))
    """
    amount = sensitivity.amount
    if isinstance(amount, tuple):
        return shift_of(amount)
    return ((1, amount),) if sensitivity.norm is Norm.L2_SQUARED else ((amount, 1),)


def maximal(sensitivity: Sensitivity) -> tuple[Shift, ...]:
    r"""The shifts that no coordinate can enlarge; one of them is the worst at every epsilon.

    A larger shift costs more, and an unmoved coordinate can move by 1: these are the partitions of
    the norm into steps (l1) or squares of steps (l2), and the corner of a box.

    >>> maximal(Sensitivity.l2_squared(4))
    (((2, 1),), ((1, 4),))

    Raises :class:`NotDerived` if there are more than 256 such shifts.
    """
    amount = sensitivity.amount
    if isinstance(amount, tuple) or sensitivity.norm is Norm.ABSOLUTE:
        return (heaviest(sensitivity),)
    cost = _square if sensitivity.norm is Norm.L2_SQUARED else _step
    largest = math.isqrt(amount) if cost is _square else amount
    found: list[Shift] = []
    for steps in _partitions(amount, largest, cost):
        found.append(steps)
        if len(found) > _MOST_SHIFTS:
            raise NotDerived(
                f"the exact curve under {sensitivity!r}",
                f"the curve needs more than {_MOST_SHIFTS} shifts; "
                "use zcdp(), pure() or Sensitivity.box",
            )
    return tuple(found)


def _step(step: int) -> int:
    return step


def _square(step: int) -> int:
    return step * step


def _partitions(amount: int, largest: int, cost: Callable[[int], int]) -> Iterator[Shift]:
    # Every way to write amount as a sum of cost(step), with steps <= largest.
    if amount == 0:
        yield ()
        return
    for step in range(largest, 0, -1):
        # Steps of 1 make up the remainder, in exactly one way.
        fewest = amount if step == 1 else 1
        for count in range(amount // cost(step), fewest - 1, -1):
            for rest in _partitions(amount - count * cost(step), step - 1, cost):
                yield ((step, count), *rest)
