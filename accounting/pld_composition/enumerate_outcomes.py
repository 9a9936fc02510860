r"""The distribution of the total privacy loss by enumeration, for compositions with few outcomes.

If a composition has few outcomes, all sums of losses can be enumerated. Its losses may then have
large probabilities, for which a smoothed integral gives wide bounds, while enumeration is exact. If
the losses are discretised from above or from below (:class:`Listing`), every rounding keeps that
direction. Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Final

import numpy as np

from accounting.pairs.enclose_curve import joined, within
from accounting.pld.finite_pld import Listing
from accounting.pld_composition.factor import LossPart
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import Enclosure

MOST_OUTCOMES: Final = 1 << 14
"""The largest number of outcome pairs to enumerate before an integral is tried (milliseconds)."""

MANY_OUTCOMES: Final = 1 << 22
"""The largest number to enumerate if the integral gives wide bounds (about a second)."""

_NEGLECTED: Final = (1e-20, 1e-40, 1e-80, 1e-160, 0.0)
"""Outcomes of smaller mass count as infinite losses in upper bounds; lower bounds omit them."""

_EVENLY: Final = 2048
"""If losses are evenly spaced (a convolution), this many times as many pairs are allowed."""

_MOST_CONVOLVED: Final = 1 << 31
"""The largest number of outcome pairs of a convolution (about a second)."""

_FAR: Final = 700.0
_MANY: Final = 1e10  # about the largest number of outcomes that a product omits


@dataclass(frozen=True, slots=True, kw_only=True)
class Enumeration:
    r"""The total loss of ``parts``, pairs (loss, count), by enumeration of its outcomes.

    ``most`` limits the pairs of outcomes in one sum of two losses. Beyond it the methods return
    None, unless ``coarse`` is true: then outcomes are merged, upwards for an upper bound and
    downwards for a lower bound. They also return None if a loss is exact or has too many rounds.

    >>> from accounting.pld_composition.cell_refinement import TabledLoss
    >>> from accounting.law_pairs.discrete_laplace import LaplacePair
    >>> from dpcore.laws.discrete_laplace import DiscreteLaplace
    >>> from accounting.pld.integer_cells import IntegerPair
    >>> table = IntegerPair(pair=LaplacePair(noise=DiscreteLaplace(scale=1), shift=1))
    >>> law = TabledLoss.of(table, above=True)
    >>> Enumeration(parts=((law, 2),)).delta(Fraction(1), Fraction(1, 10**9)).upper_float
    0.33783...
    """

    parts: tuple[tuple[LossPart, int], ...]
    most: int = MOST_OUTCOMES
    coarse: bool = False

    def delta(self, epsilon: Fraction, relative: Fraction) -> Enclosure | None:
        r"""An enclosure of the delta at ``epsilon`` >= 0; None if there are too many outcomes.

        The enclosure is wider than ``relative`` if a narrower one would need too many outcomes.
        """
        if self.coarse:
            return self._merged(lambda total: _delta_of(total, epsilon), relative)

        def enclose(total: Listing, lost: Fraction) -> tuple[Enclosure, bool]:
            found = _delta_of(total, epsilon)
            low, high = (-lost, 0) if self._up else (0, lost)
            ends = Enclosure(found.lower + low, found.upper + high)
            return within(ends, Fraction(0), Fraction(1)), True

        return self._best(enclose, relative)

    def epsilon(self, delta: Fraction, relative: Fraction) -> Enclosure | None:
        r"""An enclosure of the epsilon at ``delta`` > 0; None if there are too many outcomes."""
        if self.coarse:
            return self._merged(lambda total: epsilon_of(total, delta), relative, delta)

        def enclose(total: Listing, lost: Fraction) -> tuple[Enclosure, bool]:
            found = epsilon_of(total, delta)
            if lost <= relative * delta:
                return found, True
            # The omitted mass may matter: only the end on the side of the listing is known.
            most = found.upper if self._up else math.inf
            return Enclosure(Fraction(0) if self._up else found.lower, most), False

        return self._best(enclose, relative)

    def _best(
        self, enclose: Callable[[Listing, Fraction], tuple[Enclosure, bool]], relative: Fraction
    ) -> Enclosure | None:
        # The omitted mass decreases until the enclosure is certain and narrow.
        best: Enclosure | None = None
        for least in _NEGLECTED:
            total = self._listed(least, above=self._up)
            if total is None:
                break
            found, certain = enclose(*total)
            best = found if best is None else joined(best, found, 1 if self._up else -1)
            narrow = best.upper < math.inf and best.width <= relative * best.upper
            if certain and (narrow or best.lower == math.inf):
                break
        return best

    @property
    def _up(self) -> bool:
        return bool(self.parts[0][0].above)

    def _merged(
        self,
        enclose: Callable[[Listing], Enclosure],
        relative: Fraction,
        delta: Fraction | None = None,
    ) -> Enclosure | None:
        # One end comes from a law above that of the total, the other end from a law below it.
        best: Enclosure | None = None
        for least in _NEGLECTED:
            try:
                up, down = (self._listed(least, above=above) for above in (True, False))
            except PrecisionExhausted:  # from above, every loss is infinite
                break
            if up is None or down is None:
                break
            best = Enclosure(enclose(down[0]).lower, enclose(up[0]).upper)
            if up[1] <= relative * (best.upper if delta is None else delta):
                break
        return best

    def listing(self, least: float) -> Listing | None:
        r"""The discretised total loss, or None if there are too many outcomes.

        Outcomes of mass below ``least`` for a round, or ``least``^2 for a sum, are left out. In an
        upper bound their mass is at infinity.
        """
        found = self._listed(least, above=self._up)
        return None if found is None else found[0]

    def _listed(self, least: float, *, above: bool) -> tuple[Listing, Fraction] | None:
        # The law of the total, and approximately the mass that it omits or counts as infinite.
        if len({law.above for law, _ in self.parts}) > 1 or self.parts[0][0].above is None:
            return None
        listed: list[tuple[Listing, int]] = []
        lost = Fraction(least * least * _MANY)
        for law, count in self.parts:
            # The last product combines two halves, each with more outcomes than rounds.
            known, most = law.outputs < math.inf, 2 * math.isqrt(self.most)
            many = known and law.outputs > most and self.parts != ((law, 1),)
            some = known or self.coarse
            if many or count > (2 * math.isqrt(self.most * _EVENLY) if some else most):
                return None
            atoms = law.few_atoms(least, coarse=self.coarse)
            if atoms is None:
                return None
            listed.append((atoms.without(least, above=above), count))
            lost += count * Fraction(least + float(atoms.masses[atoms.masses < least].sum()))
        total: Listing | None = None
        plus = partial(self._plus, above=above, least=least * least)
        for one, count in sorted(listed, key=lambda part: -part[1]):
            power: Listing | None = one
            for bit in bin(count)[3:]:
                power = plus(power, power)
                power = plus(power, one) if bit == "1" else power
            total = power if total is None else plus(total, power)
            if total is None:
                return None
        return None if total is None else (total, lost)

    def _plus(
        self, one: Listing | None, two: Listing | None, *, above: bool, least: float
    ) -> Listing | None:
        # The sum of two losses without outcomes of mass below `least`; None if there are too many
        # outcomes.
        if one is None or two is None:
            return None
        pairs = len(one.losses) * len(two.losses)
        few = pairs <= min(_EVENLY * self.most, _MOST_CONVOLVED)
        even = one.convolved(two, above=above) if few else None
        if even is not None:
            return even.without(least, above=above, ends=True)
        if pairs > self.most:
            if not self.coarse:
                return None
            one, two = (each.coarser(math.isqrt(self.most), above=above) for each in (one, two))
        return one.plus(two, above=above)


def _delta_of(total: Listing, epsilon: Fraction) -> Enclosure:
    # A listing from above may have a mass of a little more than 1.
    return Enclosure(*(min(Fraction(end), Fraction(1)) for end in total.delta(epsilon)))


def epsilon_of(total: Listing, delta: Fraction) -> Enclosure:
    r"""Enclose the epsilon at ``delta`` > 0, if the privacy loss has the distribution ``total``."""
    if total.delta(Fraction(0))[1] <= delta:
        return Enclosure.exactly(0)
    low, high = (_crossing(total, delta, end)[end] for end in (0, 1))
    ends = (each if each == math.inf else Fraction(each) for each in (low, high))
    return Enclosure(*ends)


def _crossing(total: Listing, delta: Fraction, end: int) -> tuple[float, float]:
    # Floats (x, y) around the point at which this bound on the decreasing curve falls to delta: it
    # exceeds delta at x or x is 0, and does not at y.
    def above(x: float) -> bool:
        return total.delta(Fraction(x))[end] > delta

    guess = _proposed(total, float(delta))
    step = max(guess, 2.0**-45) * 2.0**-45
    low, high = max(guess - step, 0.0), guess + step
    while low > 0 and not above(low):
        step *= 8
        low, high = max(low - step, 0.0), low
    while above(high):
        if not (len(total.losses) and high <= total.losses[-1]):
            return math.inf, math.inf
        step *= 8
        low, high = high, high + step
    return low, high


def _proposed(total: Listing, delta: float) -> float:
    # From the loss before l up to l, delta(x) = hidden + A - e^(x - l) B: A is the P-mass
    # from l on, B its Q-mass times e^l.
    losses, masses = total.losses, total.masses
    a = total.hidden + np.cumsum(masses[::-1])[::-1] - delta
    if len(losses) and np.abs(losses).max() <= _FAR:
        b = np.cumsum((masses * np.exp(-losses))[::-1])[::-1] * np.exp(losses)
    else:
        b, falls = masses.copy(), np.exp(-np.diff(losses))
        for i in reversed(range(len(falls))):
            b[i] += b[i + 1] * falls[i]
    past = np.flatnonzero((a <= b) & (a > 0))
    return (
        max(float(losses[past[0]]) + math.log(a[past[0]] / b[past[0]]), 0.0) if len(past) else 0.0
    )
