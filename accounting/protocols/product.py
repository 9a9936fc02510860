r"""Several independent coordinates: their loss on a lattice, from above and from below.

One coordinate is a list of outcomes with their masses a in the world P and b in the world Q, by
falling loss log(a/b). delta(epsilon) = P(L = oo) + E_P[(1 - e^(epsilon - L))+] rises with the
P-mass above every loss, for one coordinate and for sums, so each coordinate may be replaced by one
whose losses are multiples of a grain h:

    upper: an outcome is split in two at the nodes around its loss, with the same a and b in total.
           Merging them again is post-processing, so the split coordinate is no more private.
    lower: outcomes are merged, in portions, to groups whose loss is a node (rounded down onto it).
           That is post-processing, so the merged coordinate is no less private.

Both move losses without bias, so the width falls like h^2 where outcomes are denser than nodes.
Masses are integers in units of 2^-bits, rounded up for the upper law and down for the lower one; an
infinite loss is kept apart. Nothing rests on floats: they only propose nodes and portions.
Proofs: docs/proofs/shuffle.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from flint import arb, arb_poly, fmpz_poly

from dpcore.numbers.enclosure import Enclosure, ball, integer_below

__all__ = ["Lattice", "Outcomes", "delta_of_one", "merged", "product", "split"]

_SPARE_BITS: Final = 16
_SHY: Final = 48
_TRIES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    r"""One coordinate. ``here`` and ``there``: the P- and Q-masses > 0, by falling loss.

    ``hidden`` = P(L = oo). ``above`` and ``below`` hold the P-mass of what was left out, of a loss
    above the first outcome (infinite included) and below the last. Balls, of any precision.
    """

    here: tuple[arb, ...]
    there: tuple[arb, ...]
    hidden: arb
    above: arb
    below: arb


def delta_of_one(outcomes: Outcomes, epsilon: Fraction) -> arb:
    r"""delta(epsilon) of one coordinate, a ball: no lattice, the sum of (a - e^epsilon b)+.

    >>> toss = Outcomes(
    ...     here=(arb(0.75), arb(0.25)),
    ...     there=(arb(0.25), arb(0.75)),
    ...     hidden=arb(0),
    ...     above=arb(0),
    ...     below=arb(0),
    ... )
    >>> delta_of_one(toss, Fraction(0)) == 0.5
    True
    """
    factor, zero = ball(epsilon).exp(), arb(0)
    total = outcomes.hidden + zero.union(outcomes.above.upper())
    for a, b in zip(outcomes.here, outcomes.there, strict=True):
        gain = a - factor * b
        if gain < 0:
            # Losses fall: nothing further gains, and what was left out below does not either.
            return total
        total += gain.max(zero)
    return total + zero.union(outcomes.below.upper())


@dataclass(frozen=True, slots=True, kw_only=True)
class Lattice:
    r"""P-masses in units of 2^-``bits``: ``masses[i]`` at the loss (``first`` + i) ``grain``.

    ``upward`` says which way every rounding goes: the law of an upper bound or of a lower one.
    """

    grain: Fraction
    bits: int
    upward: bool
    first: int
    masses: fmpz_poly
    infinite: int

    def times(self, other: Lattice) -> Lattice:
        r"""The law of the sum of two independent losses of the same grain, bits and direction."""
        finite, others = self._finite(), other._finite()
        infinite = self.infinite * (others + other.infinite) + finite * other.infinite
        units = [_scaled(int(m), self) for m in (self.masses * other.masses).coeffs()]
        return _trimmed(self, self.first + other.first, units, _scaled(infinite, self))

    def power(self, count: int) -> Lattice:
        r"""The law of the sum of ``count`` >= 1 independent copies, by squaring."""
        if count == 1:
            return self
        half = self.power(count // 2)
        square = half.times(half)
        return square.times(self) if count % 2 else square

    def delta(self, epsilon: Fraction) -> Enclosure:
        r"""P(L = oo) + sum over nodes l > epsilon of P(L = l) (1 - e^(epsilon - l)), enclosed."""
        start = max(math.floor(epsilon / self.grain) + 1, self.first)
        tail = fmpz_poly(self.masses.coeffs()[start - self.first :])
        scaled = ball(epsilon - start * self.grain).exp()
        seen = scaled * arb_poly(tail)((-ball(self.grain)).exp())
        total = arb(sum(tail.coeffs())) + self.infinite - seen
        return Enclosure.of(total / ball(1 << self.bits))

    def _finite(self) -> int:
        return int(sum(self.masses.coeffs()))


def product(parts: Iterable[tuple[Lattice, int]]) -> Lattice:
    r"""The law of the total loss of independent coordinates: each law with its count >= 1."""
    powers = [law.power(count) for law, count in parts]
    total = powers[0]
    for law in powers[1:]:
        total = total.times(law)
    return total


def split(outcomes: Outcomes, grain: Fraction, bits: int) -> Lattice:
    r"""A lattice law that is no more private than ``outcomes``.

    The share of an outcome at the upper node (j+1)h is (a - b e^(jh))/(1 - e^(-h)).
    """
    masses: dict[int, int] = {}
    # What was left out counts as infinite, whichever end it was cut from.
    unseen = (outcomes.hidden, outcomes.above, outcomes.below)
    apart, infinite = 1 - (-ball(grain)).exp(), sum(_units_above(part, bits) for part in unseen)
    for a, b in zip(outcomes.here, outcomes.there, strict=True):
        node, whole = _proposed(a, b, grain), _units_above(a, bits)
        level = (ball(grain) * (node + 1)).exp()
        for _ in range(_TRIES):
            if a <= b * level:
                break
            node, level = node + 1, (ball(grain) * (node + 2)).exp()
        else:
            infinite += whole
            continue
        # The share is at most a. It is negative when the loss lies below j: then j rounds it up.
        share = (a - b * (ball(grain) * node).exp()) / apart
        high = min(_units_above(share, bits), whole)
        masses[node + 1] = masses.get(node + 1, 0) + high
        masses[node] = masses.get(node, 0) + whole - high
    return _lattice(masses, infinite, grain, bits, upward=True)


def merged(outcomes: Outcomes, grain: Fraction, bits: int) -> Lattice:
    r"""A lattice law that is no less private than ``outcomes``.

    From the highest loss down: a group starts with what is left of one outcome and takes from the
    next ones until its loss has come down to the node below its start.
    """
    masses: dict[int, int] = {}
    here, there, count = outcomes.here, outcomes.there, len(outcomes.here)
    at, left = 0, arb(1)
    while at < count:
        node = _proposed(here[at], there[at], grain)
        level = (ball(grain) * node).exp()
        a, b = left * here[at], left * there[at]
        at, left = at + 1, arb(1)
        while at < count:
            portion = _portion(a - level * b, level * there[at] - here[at])
            a, b = a + portion * here[at], b + portion * there[at]
            if portion < 1:
                left = 1 - portion
                break
            at += 1
        for _ in range(_TRIES):
            if a >= level * b:
                masses[node] = masses.get(node, 0) + _units_below(a, bits)
                break
            node, level = node - 1, (ball(grain) * (node - 1)).exp()
    return _lattice(masses, _units_below(outcomes.hidden, bits), grain, bits, upward=False)


def _proposed(a: arb, b: arb, grain: Fraction) -> int:
    # About floor(log(a/b)/h); what is done with it is checked in balls.
    loss = float((a.mid() / b.mid()).log().mid()) if a.mid() > 0 and b.mid() > 0 else 0.0
    return math.floor(loss / float(grain)) if math.isfinite(loss) else 0


def _portion(excess: arb, cost: arb) -> arb:
    # An exact number in [0, 1], a little shy of the one that would use up the excess.
    if not cost.mid() > 0:
        return arb(1)
    found = (excess.mid() / cost.mid() * (1 - arb(2) ** -_SHY)).mid()
    return found.max(arb(0)).min(arb(1))


def _units_above(value: arb, bits: int) -> int:
    return max(-integer_below(-value * ball(1 << bits)), 0)


def _units_below(value: arb, bits: int) -> int:
    return max(integer_below(value * ball(1 << bits)), 0)


def _scaled(units: int, law: Lattice) -> int:
    # A product of two masses, back to units of 2^-bits, rounded in the law's direction.
    return -((-units) >> law.bits) if law.upward else units >> law.bits


def _lattice(
    masses: dict[int, int], infinite: int, grain: Fraction, bits: int, *, upward: bool
) -> Lattice:
    first, last = min(masses, default=0), max(masses, default=0)
    units = [masses.get(node, 0) for node in range(first, last + 1)]
    frame = Lattice(
        grain=grain, bits=bits, upward=upward, first=first, masses=fmpz_poly([]), infinite=0
    )
    return _trimmed(frame, first, units, infinite)


def _trimmed(frame: Lattice, first: int, units: list[int], infinite: int) -> Lattice:
    # Both ends are cut where at most 2^16 units lie beyond. The upper law raises what was cut: to
    # infinity, or to its lowest node. The lower law lowers it: to its highest node, or to nothing.
    budget = 1 << _SPARE_BITS
    low, high, bottom, top = 0, len(units), 0, 0
    while low < high and bottom + units[low] <= budget:
        bottom, low = bottom + units[low], low + 1
    while high > low and top + units[high - 1] <= budget:
        top, high = top + units[high - 1], high - 1
    kept = units[low:high]
    if frame.upward:
        infinite += top if kept else top + bottom
        if kept:
            kept[0] += bottom
    elif kept:
        kept[-1] += top
    return Lattice(
        grain=frame.grain,
        bits=frame.bits,
        upward=frame.upward,
        first=first + low,
        masses=fmpz_poly(kept),
        infinite=infinite,
    )
