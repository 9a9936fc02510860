r"""A few rounds of narrow laws: their total loss, outcome by outcome.

The outcomes of a short list are few enough to be named one by one. Then delta(epsilon) is the sum
of (P - e^epsilon Q)+ over them, in balls, and losses of large probability, on which a smoothed
integral is wide, cost nothing. What the listings leave out is bounded by its exponential moment.
Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import combinations_with_replacement, product
from typing import Final, TypeAlias

from flint import arb

from accounting.errors import NotDerived
from accounting.fourier.factor import LossLaw, listed
from accounting.laws.laplace import LaplacePair
from accounting.pairs.balls import middle
from accounting.pairs.losses import Losses
from accounting.pairs.pair import Pair
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import Enclosure, ball, precision

__all__ = ["MANY_OUTCOMES", "Enumeration"]

MOST_OUTCOMES: Final = 1 << 14
"""The most outcomes that are named before an integral is tried: about 0.1 s."""

MANY_OUTCOMES: Final = 1 << 18
"""The most that are named where the integral stays wide: a few seconds."""

_BITS: Final = 192
_LISTED_BITS: Final = 72
_FIRST_TILT: Final = 2
_LARGEST_TILT: Final = 512
_TILTS: Final = 4
_FEW_ROUNDS: Final = 16
_CHEAP_ROUNDS: Final = 128
_WIDENINGS: Final = 200
_SHORT: Final = 8

_Point: TypeAlias = tuple[arb, arb]
"""(P, Q) of one outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcomes:
    # All outcomes of listed losses; P(L = oo); and, for some c, a bound of E[e^(cL)] over what is
    # left out.
    points: tuple[_Point, ...]
    hidden: arb
    beyond: tuple[tuple[Fraction, arb], ...]

    def rest(self, epsilon: Fraction) -> arb:
        # P(L > epsilon) of what is left out, by Markov at the best of these tilts.
        bounds = [(moment * (-ball(tilt * epsilon)).exp()).upper() for tilt, moment in self.beyond]
        return reduce(arb.min, bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enumeration:
    r"""The total of ``parts``, laws with their counts, where it has few outcomes.

    >>> from accounting.laws.laplace import LaplacePair
    >>> parts = ((LaplacePair(scale=Fraction(1), shift=1), 2),)
    >>> Enumeration(parts=parts).delta(Fraction(1), Fraction(1, 10**9)).upper_float
    0.33783...
    """

    parts: tuple[tuple[LossLaw, int], ...]
    most: int = MOST_OUTCOMES

    def delta(self, epsilon: Fraction, relative: Fraction) -> Enclosure | None:
        r"""The least delta at ``epsilon`` >= 0; None where it takes too many outcomes."""
        with precision(_BITS):
            for outcomes in self._narrowing():
                found = _delta(outcomes, epsilon)
                if found.upper - found.lower <= relative * found.lower:
                    return found
        return None

    def epsilon(self, delta: Fraction, relative: Fraction) -> Enclosure | None:
        r"""The least epsilon at ``delta`` > 0; None where it takes too many outcomes."""
        with precision(_BITS):
            for outcomes in self._narrowing():
                if outcomes.hidden > ball(delta):
                    return Enclosure.infinite()
                if _delta(outcomes, Fraction(0)).upper <= delta:
                    return Enclosure.exactly(0)
                found = _epsilon(outcomes, delta, relative)
                if found is not None and found.upper - found.lower <= relative * found.upper:
                    return found
        return None

    def _narrowing(self) -> Iterator[_Outcomes]:
        # The further the tilt, the smaller a delta that the listings still resolve.
        tilt = Fraction(_FIRST_TILT)
        while tilt <= _LARGEST_TILT:
            found = self._listed(tilt)
            if found is None:
                return
            yield _outcomes(found, tilt)
            tilt *= 4

    def _listed(self, tilt: Fraction) -> list[tuple[Losses, int]] | None:
        # None as soon as the outcomes are too many, or too costly to form.
        found: list[tuple[Losses, int]] = []
        for law, count in sorted(self.parts, key=lambda part: -part[1]):
            if count > _FEW_ROUNDS and isinstance(law, Pair) and not isinstance(law, LaplacePair):
                return None
            try:
                found.append((listed(law, tilt, _LISTED_BITS), count))
            except (NotDerived, PrecisionExhausted):
                return None
            if _count(found) > self.most:
                return None
        return found


def _count(listed: Sequence[tuple[Losses, int]]) -> int:
    outcomes = math.prod(math.comb(len(each.masses) + k - 1, k) for each, k in listed)
    # An outcome of many rounds is a product of as many masses.
    return outcomes * -(-max(k for _, k in listed) // _CHEAP_ROUNDS)


def _outcomes(listed: Sequence[tuple[Losses, int]], tilt: Fraction) -> _Outcomes:
    shown = arb(1)
    for each, count in listed:
        shown *= (1 - each.hidden) ** count
    tilts = [tilt / 4**i for i in range(_TILTS)]
    rounds = [_powers(each, count) for each, count in listed]
    return _Outcomes(
        points=tuple(_joined(parts) for parts in product(*rounds)),
        hidden=1 - shown,
        beyond=tuple((each, _beyond(listed, ball(each))) for each in tilts),
    )


def _beyond(listed: Sequence[tuple[Losses, int]], c: arb) -> arb:
    # prod (M_i + b_i)^k_i - prod M_i^k_i, round by round, so that nothing cancels.
    inside, left_out = arb(1), arb(0)
    for each, count in listed:
        rest = each.beyond(c).upper()
        moment = sum(
            (p * (c * l).exp() for p, l in zip(each.masses, each.losses, strict=True)), arb(0)
        )
        for _ in range(count if rest > 0 else 0):
            left_out = left_out * (moment + rest) + inside * rest
            inside *= moment
        if not rest > 0:
            left_out, inside = left_out * moment**count, inside * moment**count
    return left_out


def _powers(listed: Losses, count: int) -> list[_Point]:
    # Copies in any order are one outcome, as often as they have orders.
    atoms = [(p, p * (-l).exp()) for p, l in zip(listed.masses, listed.losses, strict=True)]
    points = []
    for chosen in combinations_with_replacement(range(len(atoms)), count):
        orders = math.factorial(count)
        for atom in set(chosen):
            orders //= math.factorial(chosen.count(atom))
        here, there = _joined([atoms[atom] for atom in chosen])
        points.append((orders * here, orders * there))
    return points


def _joined(points: Sequence[_Point]) -> _Point:
    here, there = arb(1), arb(1)
    for p, q in points:
        here, there = here * p, there * q
    return here, there


def _delta(outcomes: _Outcomes, epsilon: Fraction) -> Enclosure:
    factor, zero = ball(epsilon).exp(), arb(0)
    total = outcomes.hidden + sum(((p - factor * q).max(zero) for p, q in outcomes.points), zero)
    found = Enclosure.of(total + zero.union(outcomes.rest(epsilon)))
    return Enclosure(max(found.lower, Fraction(0)), min(found.upper, Fraction(1)))


def _epsilon(outcomes: _Outcomes, delta: Fraction, relative: Fraction) -> Enclosure | None:
    # Every set of outcomes S gives the lower bound log((P(S) - delta)/Q(S)); the best is a ray of
    # losses, found in the order of midpoints, which may be wrong and costs only width.
    points = sorted(outcomes.points, key=lambda point: _quotient(*point), reverse=True)
    above, below, best = outcomes.hidden - ball(delta), arb(0), arb("-inf")
    for p, q in points:
        above, below = above + p, below + q
        if above > 0 and below > 0:
            bound = (above / below).log()
            if bound.mid() < best.mid():
                break
            best = bound
    if not best.is_finite():
        return None
    low = max(Fraction(Enclosure.of(best).lower), Fraction(0))
    # A step far below the width that is asked: each one that is too short costs a whole sum.
    step = max(low * relative / 2**_SHORT, Fraction(1, 2**_BITS))
    high = max(middle(best), Fraction(0))
    for _ in range(_WIDENINGS):
        if _delta(outcomes, high).upper <= delta:
            return Enclosure(low, max(high, low))
        high, step = high + step, 2 * step
    return None


def _quotient(p: arb, q: arb) -> float:
    return float((p.mid() / q.mid()).log().mid()) if q.mid() > 0 else math.inf
