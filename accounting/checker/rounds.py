r"""Which shifts of which laws a certificate's parts stand for, and so what its worst case is of.

In each coordinate and direction the largest shift is the worst at every epsilon (the pages on
curves). What is left is a maximum: over directions for a law that is not symmetric, in every
coordinate of its own, and over the shapes of a norm. A neighbour may choose anew in every round,
also by what was released before, so with several rounds only one choice is checked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from accounting.checker.laws.law import REAL_LAWS, Law, Unchecked
from accounting.checker.text.reading import Part

if TYPE_CHECKING:
    from accounting.checker.laws.density import Density

__all__ = ["Rounds", "alternatives"]

_MOST_SHIFTS: Final = 64
_ONE_SIDED: Final = ("poisson", "poisson-group")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    r"""``count`` rounds of one law under one step, or of a stated (epsilon, delta).

    A sampled law holds each of ``members`` with chance ``rate``, in the direction ``way``. Of noise
    on the reals ``squared`` is the squared length of the shift, from below and above.
    """

    law: Law | None
    step: int = 0
    mirrored: bool = False
    squared: tuple[Fraction, Fraction] | None = None
    rate: Fraction = Fraction(1)
    way: str = "present"
    members: int = 1
    stated: tuple[Fraction, Fraction] = (Fraction(0), Fraction(0))
    count: int

    @property
    def density(self) -> Density | None:
        r"""The density of noise on the reals, for the second path.

        Raises :class:`Unchecked` for sizes that no float sums.
        """
        if self.law is None or self.squared is None:
            return None
        from accounting.checker.laws.density import Density  # here: the kernel's file has none

        return Density.of(self.law, self.squared[0], self.rate, self.way, self.members)


def alternatives(parts: tuple[Part, ...]) -> list[tuple[Rounds, ...]]:
    r"""The lists of rounds of which the worst is claimed.

    Raises :class:`Unchecked` where rounds may differ in shift or direction and there is more than
    one: then more lists are possible than are tried here.
    """
    if any(part.sampling in _ONE_SIDED for part in parts):
        # Who was added belongs to the datasets: one direction for all rounds of all parts.
        return [_in_one_direction(parts, way) for way in ("present", "absent")]
    choices = [_choices(part) for part in parts]
    if any(len(each) > 1 for each in choices) and sum(part.rounds for part in parts) > 1:
        raise Unchecked("rounds whose worst shift or direction may differ")
    if len(parts) == 1:
        return choices[0]
    return [tuple(one for each in choices for one in each[0])]


def _in_one_direction(parts: tuple[Part, ...], way: str) -> tuple[Rounds, ...]:
    found: list[Rounds] = []
    for part in parts:
        if part.sampling not in _ONE_SIDED:
            choices = _choices(part)
            if len(choices) > 1:
                raise Unchecked("rounds whose worst shift or direction may differ")
            found += choices[0]
        elif part.law is not None and part.law.name in REAL_LAWS:
            found.append(_real(part, part.law, way))
        elif part.law is not None and part.norm == "absolute":
            (step,) = part.amounts
            one = Rounds(law=part.law, step=step, rate=part.rate, way=way, count=part.rounds)
            found.append(one)
        else:
            raise Unchecked("samples of several coordinates of noise on integers")
    return tuple(found)


def _real(part: Part, law: Law, way: str) -> Rounds:
    # Gaussian noise has one coordinate, by rotation; in l1 all in one is worst for both laws.
    squared = Fraction(sum(step**2 for step in part.amounts))
    if part.norm == "l2-squared":
        squared = Fraction(part.amounts[0])
    # A run is one Gaussian of the sensitivity of its strategy, whatever is made of it.
    low, high = (1, 1) if part.correlated is None else part.correlated.squared
    return Rounds(
        law=law,
        squared=(squared * low, squared * high),
        rate=part.rate,
        way=way,
        members=part.members,
        count=part.rounds,
    )


def _choices(part: Part) -> list[tuple[Rounds, ...]]:
    law = part.law
    if law is not None and law.name in REAL_LAWS:
        return [(_real(part, law, "replaced" if part.sampling else "present"),)]
    if law is None:
        assert part.stated is not None  # noqa: S101 - a part has one of the two
        word, values = part.stated
        if word == "zcdp":
            raise Unchecked("a curve from a zCDP claim: it gives an upper bound only")
        lost = values[1] if word == "approx" else Fraction(0)
        one = Rounds(law=None, stated=(values[0], lost), count=part.rounds)
        return [(one,)]
    return [
        tuple(
            Rounds(
                law=law,
                step=step,
                mirrored=mirrored,
                count=part.rounds * count,
            )
            for step, mirrored, count in moves
        )
        for shift in _shifts(part, law)
        for moves in _directions(sorted(shift.items()), law)
    ]


def _directions(shift: list[tuple[int, int]], law: Law) -> list[list[tuple[int, bool, int]]]:
    # (step, down, count): coordinates of one step are alike, so it matters how many go down.
    if law.symmetric:
        return [[(step, False, count) for step, count in shift]]
    if math.prod(count + 1 for _, count in shift) > _MOST_SHIFTS:
        raise Unchecked(f"more than {_MOST_SHIFTS} choices of a direction in every coordinate")
    found = []
    for downs in itertools.product(*(range(count + 1) for _, count in shift)):
        both = (
            (step, mirrored, number)
            for (step, count), down in zip(shift, downs, strict=True)
            for mirrored, number in ((False, count - down), (True, down))
        )
        found.append([move for move in both if move[2]])
    return found


def _shifts(part: Part, law: Law) -> list[dict[int, int]]:
    # Steps with their counts. In l1 the whole shift in one coordinate is worst for discrete
    # Laplace; otherwise every partition that no step can enlarge is tried.
    if part.norm == "absolute" or (part.norm == "l1" and law.name == "discrete-laplace"):
        return [{part.amounts[0]: 1}]
    if part.norm == "box":
        return [{step: part.amounts.count(step) for step in part.amounts}]
    if not law.symmetric:
        raise Unchecked(f"a norm of several coordinates of {law.name}")
    power = 2 if part.norm == "l2-squared" else 1
    found = []
    for shift in _partitions(part.amounts[0], part.amounts[0], power):
        found.append(shift)
        if len(found) > _MOST_SHIFTS:
            raise Unchecked(f"more than {_MOST_SHIFTS} shifts")
    return found


def _partitions(amount: int, largest: int, power: int) -> Iterator[dict[int, int]]:
    if amount > 400:
        raise Unchecked("a norm sensitivity above 400")
    if amount == 0:
        yield {}
        return
    for step in range(1, largest + 1):
        if step**power > amount:
            return
        for rest in _partitions(amount - step**power, step, power):
            yield {**rest, step: rest.get(step, 0) + 1}
