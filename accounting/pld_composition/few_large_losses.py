r"""The total loss of many rounds of which only a few have a large loss.

An example is subsampling at a small rate. Most of the mass of the total loss is close to 0, and the
remaining mass determines delta. The terms of a single contour integral then far exceed their sum,
whose digits are lost in the rounding of the terms. So delta is split by the number j of rounds with
a large loss. For k rounds with the total loss L and g(L) = (1 - e^(epsilon - L))+,

    E[g(L)] = sum_j binom(k, j) E[g(L); the first j rounds have a large loss, and no others],

and each term is computed by its own contour integral. Only small j contribute. Proofs:
docs/proofs/total_loss.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np
from flint import arb

from accounting.pairs.enclose_curve import joined, within
from accounting.pld.finite_pld import Listing
from accounting.pld_composition.cell_refinement import ListedLoss, TabledLoss
from accounting.pld_composition.contour_sum import (
    ContourSum,
    MixedSum,
    epsilon_between,
)
from accounting.pld_composition.delta_of_total_loss import (
    PRECISION,
    ContourIntegral,
    smoothing,
    spare_mass,
    sum_at,
)
from accounting.pld_composition.enumerate_outcomes import epsilon_of
from accounting.pld_composition.factor import LossPart
from accounting.pld_composition.saddle_point import (
    Saddle,
    calm,
    saddle_at_epsilon,
)
from dpcore.numbers.arrays import one_thread
from dpcore.numbers.enclosure import Enclosure, ball, precision

# These constants only affect speed and width.
_SMALL: Final = 0.125  # losses below this share of epsilon are small
_MOST_LARGE: Final = 8.0  # the largest expected number of large losses
_MOST_TERMS: Final = 64
_CELLS: Final = 1 << 14
_ROUGH: Final = 0.05  # the relative error of the first sums, which show the sizes of the terms
_SHARE: Final = 0.25  # the share of the requested width for each of the dominant terms
_TRIES: Final = 3
_ATTEMPTS: Final = 4
_LESS: Final = 0.2
_SPARE: Final = 1e-3
_LEAST_LOG: Final = -60.0  # the least log of the relative error of a sum
_HALF: Final = Fraction(1, 2)

_Parts: TypeAlias = tuple[tuple[LossPart, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FewLargeLosses:
    r"""The total loss of k = ``rounds`` >= 2 rounds with the loss ``part``; large losses are rare.

    ``near`` is a pair (epsilon, delta) close to the point at which the curve is needed.
    """

    part: TabledLoss
    rounds: int
    near: tuple[float, float]

    @classmethod
    def of(cls, line: ContourIntegral, epsilon: float, delta: float) -> FewLargeLosses | None:
        r"""The total loss of ``line``, or None if its rounds differ or large losses are not rare.

        They count as rare if :meth:`ContourIntegral.misplaced` holds at ``epsilon`` and ``delta``.
        """
        match line.parts:
            case ((TabledLoss() as part, rounds),) if (
                rounds > 1
                and 0 < epsilon < math.inf
                and 0 < delta < 1
                and line.misplaced(epsilon, delta)
            ):
                return cls(part=part, rounds=rounds, near=(epsilon, delta))
        return None

    def epsilon(self, delta: Fraction, relative: Fraction) -> Enclosure | None:
        r"""The epsilon at ``delta`` > 0; None if large losses are not rare or a sum is too long."""

        def solved(total: MixedSum, hidden: arb) -> Enclosure | None:
            goal = ball(delta) - hidden
            return epsilon_between(total, goal, math.inf) if goal > 0 else None

        best, size = Enclosure(Fraction(0), math.inf), 1.0
        # Approximately the epsilon at which one large loss alone gives delta.
        one = float(epsilon_of(self._finite(), delta / self.rounds).upper)
        near = min(self.near[0], one or self.near[0])
        with precision(PRECISION), one_thread():
            for _ in range(_TRIES):
                found = self._answer(near, float(delta), size * float(relative), solved, steep=True)
                if found is None:
                    return None
                best = joined(best, found, 1 if self.part.above else -1)
                if best.width <= relative * best.upper:
                    break
                near, size = min(float(best.upper), near), size * _LESS
        return best

    def delta(self, epsilon: Fraction, relative: Fraction) -> Enclosure | None:
        r"""The delta at ``epsilon`` > 0; None if large losses are not rare or a sum is too long."""

        def evaluated(total: MixedSum, hidden: arb) -> Enclosure:
            low, high = (hidden + end for end in total.bounds(epsilon))
            return within(Enclosure.of(low.union(high)), Fraction(0), Fraction(1))

        at, rough = self.near
        # A useless integral has a bound far above the delta of one large loss.
        near = min(rough, self.rounds * self._finite().delta(Fraction(at))[1]) or rough
        with precision(PRECISION), one_thread():
            return self._answer(at, near, float(relative), evaluated, steep=False)

    def _finite(self) -> Listing:
        return replace(self.part.listing(), hidden=0.0)

    def _answer(
        self,
        epsilon: float,
        delta: float,
        relative: float,
        answer: Callable[[MixedSum, arb], Enclosure | None],
        *,
        steep: bool,
    ) -> Enclosure | None:
        # The answer from sums near the point (epsilon, delta); if `steep`, the width is relative to
        # epsilon.
        spare = spare_mass(delta, relative, self.rounds)
        part = self.part.cut(spare) if spare else self.part
        tilt = saddle_at_epsilon(epsilon, ((part, self.rounds),)).tilt
        at = Saddle(tilt=tilt, epsilon=epsilon, log_delta=math.log(delta))
        split = Split(part.listing(at.focus, _CELLS), self.rounds, _SMALL * epsilon)
        found = split.terms(_SPARE * relative * delta)
        if found is None:
            return None
        numbers, rest = found
        rough = _placed((_term(w, split.parts(j), epsilon), _ROUGH) for j, w in numbers)
        if rough is None:
            return None
        whole, slope = _mixed(rough, rest).logarithm(epsilon, upper=True)
        if not (math.isfinite(whole) and slope < 0):
            return None
        wanted = whole + math.log(_SHARE * relative * (epsilon * -slope if steep else 1))
        fine = _placed(
            (term, math.exp(min(max(wanted - term.log_size, _LEAST_LOG), 0.0))) for term in rough
        )
        hidden = -(self.rounds * (-arb(split.listing.hidden)).log1p()).expm1()
        return None if fine is None else answer(_mixed(fine, rest), hidden)


@dataclass(frozen=True, slots=True)
class Split:
    r"""The discretised loss of a round; a loss is small if it is below ``least``, else large."""

    listing: Listing
    rounds: int
    least: float

    @property
    def _first(self) -> int:
        return int(np.searchsorted(self.listing.losses, self.least))

    def parts(self, large: int) -> _Parts:
        r"""The losses of all rounds if only the first ``large`` rounds have a large loss.

        The result has a pair (loss, number of rounds) for the small losses, and one for the large.
        """
        losses, masses, first = self.listing.losses, self.listing.masses, self._first
        both = ((slice(first), self.rounds - large), (slice(first, None), large))
        # The direction of a listing does not matter here: its atoms are exact.
        return tuple(
            (ListedLoss(listing=Listing(losses[at], masses[at], 0.0), above=True), count)
            for at, count in both
            if count
        )

    def terms(self, spare: float) -> tuple[list[tuple[int, int]], Fraction] | None:
        r"""The pairs (j, binom(rounds, j)) for all relevant numbers j of rounds with a large loss.

        A bound on the sum of the terms of all other j, at most ``spare``, is returned as well. None
        is returned if large losses are not rare, or if one kind of loss does not occur.
        """
        mass = Fraction(float(self.listing.masses[self._first :].sum()))
        mass *= 1 + Fraction(1, 1 << 40)
        if not (self._first and mass) or mass * self.rounds > _MOST_LARGE:
            return None
        found: list[tuple[int, int]] = []
        for j in range(min(self.rounds, _MOST_TERMS) + 1):
            weight, ratio = math.comb(self.rounds, j), mass * self.rounds / (j + 1)
            # The other rounds have a mass of at most (1 + 2^-50)^rounds < 2.
            if j > 1 and ratio <= _HALF and 4 * weight * mass**j < spare:
                return found, 4 * weight * mass**j
            found.append((j, weight))
        return (found, Fraction(0)) if len(found) > self.rounds else None


@dataclass(frozen=True, slots=True)
class _Term:
    # A weight, the parts of the total that it multiplies, the saddle point of the sum, and the sum
    # once it is computed.
    weight: int
    parts: _Parts
    saddle: Saddle
    total: ContourSum | None = None

    @property
    def log_size(self) -> float:
        return math.log(self.weight) + self.saddle.log_delta


def _term(weight: int, parts: _Parts, epsilon: float) -> _Term:
    return _Term(weight, parts, calm(parts, saddle_at_epsilon(epsilon, parts)))


def _placed(terms: Iterable[tuple[_Term, float]]) -> list[_Term] | None:
    # The terms with sums of these relative errors; None if a sum is too long.
    found: list[_Term] = []
    for term, error in terms:
        known = term.total is not None and error >= _ROUGH
        placed = term if known else _summed(term, error)
        if placed is None:
            return None
        found.append(placed)
    return found


def _summed(term: _Term, error: float) -> _Term | None:
    saddle, total = term.saddle, None
    for _ in range(_ATTEMPTS):
        total = sum_at(term.parts, saddle, error, smoothing(error, saddle.tilt))
        if total is None:
            return None
        # The saddle point may overestimate the size.
        low, high = total.bounds(Fraction(saddle.epsilon))
        before, saddle = saddle, saddle.less(float(high))
        if low > high * (1 - 4 * error) or saddle == before:
            break
    return replace(term, saddle=saddle, total=total)


def _mixed(terms: list[_Term], rest: Fraction) -> MixedSum:
    sums = [(term, term.total) for term in terms if term.total is not None]
    largest = max(sums, key=lambda each: each[0].log_size)[1]
    return MixedSum(
        terms=tuple((term.weight, total) for term, total in sums), rest=rest, window=largest.window
    )
