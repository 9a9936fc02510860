r"""Compositions with few outcomes: the discrete law of the total loss, by enumeration.

The outcomes of short listings are few enough to be enumerated, and losses of large probability, for
which a smoothed integral gives wide bounds, are then exact. Every rounding keeps the direction of
the listings. Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from accounting.numerical_composition.factor import LossPart
from accounting.pld.discrete_pld import Floats, Listing
from dpcore.numbers.enclosure import Enclosure

MOST_OUTCOMES: Final = 1 << 14
"""The largest number of outcome pairs to enumerate before an integral is tried: milliseconds."""

MANY_OUTCOMES: Final = 1 << 22
"""The largest number to enumerate if the integral gives wide bounds: about a second."""

_NEGLECTED: Final = (1e-20, 1e-40, 1e-80, 1e-160, 0.0)
"""Outcomes of smaller mass count as infinite losses in upper bounds; lower bounds omit them."""

_SAME: Final = 2.0**-48
_UNIT: Final = 2.0**-53


@dataclass(frozen=True, slots=True, kw_only=True)
class Enumeration:
    r"""The total loss of ``parts``, pairs (loss, count), if it has few outcomes.

    ``coarse``: for upper bounds, excess outcomes are merged upwards instead of returning None.

    >>> from accounting.numerical_composition.cell_refinement import TabledLoss
    >>> from accounting.law_pairs.laplace import LaplacePair
    >>> from accounting.pld.integer_cells import IntegerPair
    >>> table = IntegerPair(pair=LaplacePair(scale=Fraction(1), shift=1))
    >>> law = TabledLoss(kinds=((Fraction(1), table),), above=True)
    >>> Enumeration(parts=((law, 2),)).delta(Fraction(1), Fraction(1, 10**9)).upper_float
    0.33783...
    """

    parts: tuple[tuple[LossPart, int], ...]
    most: int = MOST_OUTCOMES
    coarse: bool = False

    def delta(self, epsilon: Fraction, relative: Fraction) -> Enclosure | None:
        r"""The delta of the total at ``epsilon`` >= 0; None if it has too many outcomes."""
        for total in self._totals():
            # A listing from above may have a mass of a little more than 1.
            found = Enclosure(*(min(Fraction(end), Fraction(1)) for end in total.delta(epsilon)))
            if found.width <= relative * found.lower:
                return found
        return None

    def epsilon(self, delta: Fraction, relative: Fraction) -> Enclosure | None:
        r"""The epsilon of the total at ``delta`` > 0; None if it has too many outcomes."""
        for total in self._totals():
            if total.delta(Fraction(0))[1] <= delta:
                return Enclosure.exactly(0)
            low, high = (_last(total, delta, end) for end in (0, 1))
            if low == math.inf:
                return Enclosure.infinite()
            high = math.nextafter(high, math.inf)
            if high < math.inf and high - low <= relative * high:
                return Enclosure(Fraction(low), Fraction(high))
        return None

    def listing(self, least: float) -> Listing | None:
        r"""The law of the total without outcomes of mass below ``least``; None if there are too
        many.
        """
        listed: list[tuple[Listing, int, bool]] = []
        for law, count in self.parts:
            # The last product has two halves, each with more outcomes than rounds.
            if count > 2 * math.isqrt(self.most):
                return None
            atoms = law.few_atoms(least, coarse=self.coarse)
            if atoms is None or law.above is None:
                return None
            listed.append((_without(atoms, least, law.above), count, law.above))
        return self._sum(listed)

    def _totals(self) -> Iterator[Listing]:
        # The omitted mass decreases.
        for least in _NEGLECTED:
            total = self.listing(least)
            if total is None:
                return
            yield total

    def _sum(self, listed: list[tuple[Listing, int, bool]]) -> Listing | None:
        # Return None as soon as there are too many outcomes.
        total: Listing | None = None
        for one, count, up in sorted(listed, key=lambda part: -part[1]):
            power: Listing | None = one
            for bit in bin(count)[3:]:
                power = power and self._product(power, power, up)
                power = power and (self._product(power, one, up) if bit == "1" else power)
            if power is None:
                return None
            total = power if total is None else self._product(total, power, up)
            if total is None:
                return None
        return total

    def _product(self, one: Listing, two: Listing, up: bool) -> Listing | None:  # noqa: FBT001  # the side
        if len(one.losses) * len(two.losses) > self.most:
            if not self.coarse:
                return None
            one, two = (each.coarser(math.isqrt(self.most)) for each in (one, two))
        sign = 1 if up else -1
        losses = np.nextafter(np.add.outer(one.losses, two.losses).ravel(), sign * np.inf)
        masses = np.multiply.outer(one.masses, two.masses).ravel() * (1 + sign * 4 * _UNIT)
        losses, masses = _merged(losses, masses, up=up)
        hidden = one.hidden + two.hidden - one.hidden * two.hidden
        return Listing(losses, masses, max(hidden * (1 + sign * 8 * _UNIT), 0.0))


def _without(listing: Listing, least: float, up: bool) -> Listing:  # noqa: FBT001  # the side
    kept = listing.masses >= least
    if kept.all() or not kept.any():
        return listing
    gone = float(listing.masses[~kept].sum()) * (1 + len(kept) * 2 * _UNIT)
    hidden = listing.hidden + gone * (1 + 4 * _UNIT) if up else listing.hidden
    return Listing(listing.losses[kept], listing.masses[kept], hidden)


def _merged(losses: Floats, masses: Floats, *, up: bool) -> tuple[Floats, Floats]:
    # Losses that differ only by rounding are merged, at the upper or lower end of their range.
    if not losses.size:  # every loss is infinite
        return losses, masses
    order = np.argsort(losses, kind="stable")
    losses, masses = losses[order], masses[order]
    apart = np.diff(losses) > _SAME * (1 + np.abs(losses[1:]))
    starts = np.concatenate(([0], np.flatnonzero(apart) + 1))
    stops = np.append(starts[1:], len(losses))
    counts = stops - starts
    sums = np.add.reduceat(masses, starts) * (1 + (2 if up else -2) * counts * _UNIT)
    return losses[stops - 1] if up else losses[starts], sums


def _last(total: Listing, delta: Fraction, end: int) -> float:
    # Approximately the last float >= 0 at which this bound on the decreasing curve exceeds delta.
    def above(x: float) -> bool:
        return total.delta(Fraction(x))[end] > delta

    low, high = 0.0, max(float(total.losses[-1]), 0.0) if len(total.losses) else 0.0
    if above(math.nextafter(high, math.inf)):
        return math.inf
    if not above(0.0):
        return 0.0
    while low < (middle := (low + high) / 2) < high and high - low > 4 * _UNIT * high:
        low, high = (middle, high) if above(middle) else (low, middle)
    return low if not above(high) else high
