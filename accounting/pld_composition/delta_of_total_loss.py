r"""Two-sided bounds on delta and epsilon of the total privacy loss of any list of releases.

The total loss is a sum of independent losses, with k_i copies of the i-th loss. Its delta, as a
function of epsilon, is an integral over a line in the complex plane. The integrand is a product of
the moment generating functions of the losses. One further Gaussian release of small loss gives an
upper bound on delta, and subtracting a small bump from the integrand gives a lower bound. Both
bounds are finite sums (:mod:`accounting.pld_composition.contour_sum`). Proofs:
docs/proofs/total_loss.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Final, TypeAlias

import numpy as np
from flint import arb

from accounting.pairs.enclose_curve import joined, within
from accounting.pld_composition.contour_sum import ContourSum, contour_sum, epsilon_between
from accounting.pld_composition.factor import LossPart
from accounting.pld_composition.saddle_point import (
    USUAL_TILT,
    Saddle,
    calm,
    saddle_at_delta,
    saddle_at_epsilon,
    window,
)
from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import one_thread
from dpcore.numbers.enclosure import Enclosure, End, ball, precision
from dpcore.numbers.parameter import RationalLike, integer, positive_rational, rational

# These constants choose the position and resolution of the sums. Every sum is an enclosure, so a
# bad choice costs time or width but never invalidates a bound.
PRECISION: Final = 128  # the precision of balls in bits, far finer than any requested width
_BEYOND: Final = 4.0  # later tilts are at most this multiple of the first one
_ATTEMPTS: Final = 9  # the largest number of sums, after which the best enclosure is returned
_LAST: Final = 4  # the last attempts, which only refine the sum at the same position
_MOST_ROUNDS: Final = 1 << 40
_MOST_SMOOTHING: Final = 0.5  # more smoothing would hide the result
_MOST_ERROR: Final = 0.25  # the largest relative error of a sum that helps to place the next one
_SAME: Final = 0.05  # tilts with a smaller relative difference count as equal
_CERTAIN: Final = 1e-9  # relative to the requested width
_STEP: Final = 0.1  # the least step in log tau that shows how the width decreases
_LISTED: Final = 0.5  # the factor applied to the smoothing if the cells of a part can be refined
_COARSER: Final = 5.0  # the variance added by listings, relative to that of the smoothing
_SURE: Final = 0.9  # above this ratio lower/upper, only the two ends place the next sum
_FROM_AFAR: Final = 0.01  # the permitted relative error of delta if epsilon may be 0
_MOST_GAIN: Final = 64.0  # a larger refinement step may make the sum too long
_LOCATED: Final = 1e-4  # the relative width of a first enclosure of epsilon
_ROUGHLY: Final = 4.0  # the factor by which that enclosure may be wider
_FEW: Final = 32  # the moment of a composition of more rounds decreases fast
_FINEST: Final = Fraction(1, 10**12)  # the least relative width that is attempted
_NO_LOSS: Final = Fraction(1, 10**9)  # a smaller epsilon is treated as this one
_NO_MASS: Final = Fraction(1, 10**300)  # a smaller delta is treated as this one
_SPARED: Final = 0.25  # the share of the width for rare losses that are counted as infinite
_LEAST_SPARE: Final = 1e-306  # floats represent smaller masses inaccurately
_CUTS: Final = 8  # the largest number of cuts for a delta that is not known beforehand
_SEEN: Final = 0.01  # the relative width to which that delta is estimated
_LESS: Final = 2.0**-8  # if delta is below this fraction of the guess, another cut is needed
_FAR_BELOW: Final = 3.0  # the nats by which a saddle point may overestimate delta
_FAR: Final = Fraction(10**9)  # the sum for a larger epsilon is placed here

_Parts: TypeAlias = tuple[tuple[LossPart, int], ...]


@dataclass(frozen=True, slots=True)
class _Aim:
    # The next sum: its saddle point, its permitted relative error, and the slope of log delta.
    saddle: Saddle
    error: float
    slope: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ContourIntegral:
    r"""The total loss L of a composition: a sum of independent losses, k copies of each.

    ``parts`` lists the pairs (loss, k). The delta at epsilon is
    P(L = oo) + E[(1 - e^(epsilon - L))+; L < oo]. The methods take the requested ``relative``
    width, at least 1e-12, where an epsilon below 1e-9 counts as 1e-9, and a delta below 1e-300 as
    1e-300. The enclosure is always valid. It is wider than requested if the requested width would
    take more than a few seconds:

    - if epsilon is a sum of losses of large probability;
    - if delta is close to 1;
    - if delta is so small that epsilon is close to the sum of the largest losses; this sum is then
      the upper bound.

    If ``patient`` is false, a result is not refined when :meth:`misplaced` holds for it.

    >>> from accounting.pld_composition.gaussian_factor import GaussianPart
    >>> loss = GaussianPart(variance=Fraction(400), shift=1)
    >>> found = ContourIntegral(parts=((loss, 1000),)).epsilon("1e-6", "1e-8")
    >>> round(found.upper_float, 6), found.width < Fraction(1, 10**7)
    (8.306226, True)

    Raises :class:`InvalidParameter` if ``parts`` is empty, if a count is below 1 or above 2^40, or
    if an argument is out of range.
    """

    parts: _Parts
    patient: bool = True

    def __post_init__(self) -> None:
        if not self.parts:
            raise InvalidParameter("parts", self.parts, "must contain at least one law")
        checked = tuple((law, integer("count", count, at_least=1)) for law, count in self.parts)
        if (most := max(count for _, count in checked)) > _MOST_ROUNDS:
            must = "must be at most 2^40 (rounds times coordinates of a law)"
            raise InvalidParameter("rounds", most, must)
        object.__setattr__(self, "parts", checked)

    def delta(self, epsilon: RationalLike, relative: RationalLike) -> Enclosure:
        r"""An enclosure of the delta of the total loss at ``epsilon`` >= 0."""
        exact = rational("epsilon", epsilon)
        if exact < 0:
            raise InvalidParameter("epsilon", epsilon, "must be >= 0")
        wanted, near = _width(relative), float(min(exact, _FAR))
        with precision(PRECISION), one_thread():
            guess, most, slope = 1.0, 1.0, 0.0
            if not self.side:
                return self._delta(exact, wanted, guess, slope)[0]
            for _ in range(_CUTS):
                rest = saddle_at_epsilon(near, self._cut(most, wanted).parts)
                guess, hidden = math.exp(rest.log_delta), _SPARED * wanted * most
                if guess >= hidden:
                    break
                # The cut losses may determine delta, so each attempt cuts fewer of them.
                most *= hidden
            for _ in range(_CUTS):
                before = guess
                rough, line = max(wanted, _SEEN), self._cut(guess, wanted)
                found, slope = line._delta(exact, rough, guess, slope, _ROUGHLY)
                guess = min(float(found.upper), guess)
                if not guess < _LESS * before:
                    break
            return self._cut(guess, wanted)._delta(exact, wanted, guess, slope)[0]

    def _delta(
        self, exact: Fraction, wanted: float, most: float, slope: float, enough: float = 1.0
    ) -> tuple[Enclosure, float]:
        # Floats choose the sums for a delta of at most about `most`; `slope` is the slope of its
        # logarithm, if known. A width of `enough` times the wanted width suffices. The slope at the
        # last sum is returned as well.
        parts, near = self.parts, float(min(exact, _FAR))
        saddle = saddle_at_epsilon(near, parts)
        hidden = _hidden(parts)
        known, certain = Enclosure.of(hidden), Fraction(1)
        if hidden >= 1 or _largest(parts) <= ball(exact):
            return within(known, Fraction(0), certain), slope

        saddle = calm(parts, saddle.less(most))

        def evaluate(total: ContourSum) -> Enclosure:
            nonlocal slope
            slope = -total.logarithm(near, upper=True)[1]
            low, high = total.bounds(exact)
            # From above, the bounds on the hidden and on the listed mass may add up to more than 1.
            ends = Enclosure.of((hidden + low).union(hidden + high))
            return within(Enclosure(min(ends.lower, certain), ends.upper), Fraction(0), certain)

        def aim(found: Enclosure) -> _Aim:
            # The hidden mass is known, so the remainder may have a larger relative error.
            rest = saddle.less(float(found.upper - known.lower))
            error = wanted * (1 + float(hidden) * math.exp(-rest.log_delta))
            return _Aim(rest, error, max(rest.tilt, slope))

        best = within(Enclosure(known.lower, certain), Fraction(0), certain)
        excess = partial(
            self._excess, enough * wanted, _NO_MASS, lambda found: (near, float(found.upper))
        )
        return _refined(parts, evaluate, aim, best, excess, self.side), slope

    def epsilon(self, delta: RationalLike, relative: RationalLike) -> Enclosure:
        r"""An enclosure of the epsilon at 0 < ``delta`` < 1; infinite if ``delta`` < P(L = oo)."""
        exact = positive_rational("delta", delta, "use the largest loss")
        if exact >= 1:
            raise InvalidParameter("delta", delta, "must be < 1")
        wanted = _width(relative)
        with precision(PRECISION), one_thread():
            line = self._cut(float(exact), wanted)
            parts = line.parts
            goal = ball(exact) - _hidden(parts)
            saddle = saddle_at_delta(float(goal.log()) if goal > 0 else -math.inf, parts)
            most = max(USUAL_TILT, _BEYOND * saddle.tilt)
            if goal < 0:
                return Enclosure.infinite()
            largest = Enclosure.of(_largest(parts)).upper if goal >= 0 else math.inf
            first = Enclosure(Fraction(0), max(largest, Fraction(0)))
            peak, saddle, looked = saddle.tilt, calm(parts, saddle), list[float]()
            if not goal > 0 or first.upper == 0:
                return first

            tried: list[ContourSum] = []

            def evaluate(total: ContourSum) -> Enclosure:
                tried.append(total)
                return epsilon_between(total, goal, first.upper)

            def aim(found: Enclosure) -> _Aim:
                # |delta'| is about c delta. A coarse sum decides whether epsilon is 0.
                near = found.lower or _unseen(found.upper, first.upper, looked)
                if near == 0 and saddle.epsilon > 0 and not looked:
                    at = saddle
                else:
                    # The last sum gave no bound: rare large losses placed it too far out.
                    guess = float(near) or max(saddle.epsilon, 0.0) / 4.0 ** len(looked)
                    if tried and found.lower < _SURE * found.upper:
                        guess = _led(tried[-1], goal, guess)
                    at = saddle_at_epsilon(guess, parts, most)
                    if math.isclose(at.tilt, peak, rel_tol=_SAME):
                        # Reuse the tilt for which the moments are already known.
                        at = replace(at, tilt=saddle.tilt)
                    at = calm(parts, replace(at, log_delta=saddle.log_delta))
                looked.append(at.epsilon)
                steep = max(
                    at.tilt, -tried[-1].logarithm(at.epsilon, upper=True)[1] if tried else 0
                )
                error = max(near_to * steep * at.epsilon, _FROM_AFAR * (at.epsilon == 0))
                return _Aim(at, error, steep)

            # For few rounds a fine sum far from epsilon is too long, so a coarse sum locates
            # epsilon.
            found, few = first, sum(count for _, count in parts) < _FEW
            for near_to in sorted({max(wanted, _LOCATED if few else 0), wanted}, reverse=True):
                enough = near_to if near_to == wanted else _ROUGHLY * near_to
                excess = partial(
                    line._excess, enough, _NO_LOSS, lambda found: (float(found.upper), float(exact))
                )
                found = _refined(parts, evaluate, aim, found, excess, self.side)
            return found

    def _excess(
        self,
        wanted: float,
        least: Fraction,
        point: Callable[[Enclosure], tuple[float, float]],
        found: Enclosure,
    ) -> float:
        # The width relative to the requested width; values below `least` count as `least`. It is 0
        # for a result that is not refined: `point` gives its epsilon and delta.
        if not found.upper < math.inf:
            return math.inf
        if not self.patient and self.misplaced(*point(found)):
            return 0.0
        return float(Fraction(found.width) / max(Fraction(found.upper), least)) / wanted

    def misplaced(self, epsilon: float, delta: float) -> bool:
        r"""Whether the saddle point for ``delta`` lies at an epsilon far above ``epsilon``.

        Then rare large losses determine delta, and the terms of the sum far exceed the sum, so that
        rounding errors make the bounds wide.
        """
        saddle = saddle_at_delta(math.log(delta) if delta > 0 else -math.inf, self.parts)
        return saddle.tilt * (saddle.epsilon - epsilon) > _FAR_BELOW

    def _cut(self, delta: float, wanted: float) -> ContourIntegral:
        # The same parts without losses too rare to affect this delta.
        spare = spare_mass(delta, wanted, sum(count for _, count in self.parts))
        if not self.side or not spare:
            return self
        return replace(self, parts=tuple((each.cut(spare, wanted), k) for each, k in self.parts))

    @property
    def side(self) -> int:
        r"""1 if any losses are discretised from above, -1 if from below, 0 if all are exact."""
        sides = (part.above for part, _ in self.parts)
        return next((1 if above else -1 for above in sides if above is not None), 0)


def _refined(
    parts: _Parts,
    evaluate: Callable[[ContourSum], Enclosure],
    aim: Callable[[Enclosure], _Aim],
    best: Enclosure,
    excess: Callable[[Enclosure], float],
    side: int,
) -> Enclosure:
    # Reduce the smoothing until the enclosure is narrow or the next sum is too long.
    if excess(best) <= 1:
        return best
    aimed = aim(best)
    tau = smoothing(aimed.error, aimed.slope)
    reached, patience, power, last = _MOST_SMOOTHING, 1.0, 2.0, (0.0, 0.0)
    for attempt in range(_ATTEMPTS):
        total = sum_at(parts, aimed.saddle, min(aimed.error, _MOST_ERROR) * patience, tau)
        if total is None:
            tau = math.sqrt(tau * reached)
            if tau > 0.5 * reached:
                break
            continue
        reached, found = tau, evaluate(total)
        before, best = best, joined(best, found, side)
        over = min(excess(best), _MOST_GAIN)
        here = math.log(tau), math.log(max(excess(found), _CERTAIN))
        if attempt and here[0] < last[0] - _STEP:
            # The width decreases like tau^2, but only like tau at a loss of positive probability.
            power = min(max((last[1] - here[1]) / (last[0] - here[0]), 1.0), 2.0)
        last = here
        if over <= 1:
            break
        placed, aimed = aimed.saddle.tilt, aim(best)
        if math.isclose(aimed.saddle.tilt, placed, rel_tol=_SAME) and total.at_its_finest():
            break
        if best == before and attempt < _ATTEMPTS - _LAST:
            tau, reached = smoothing(aimed.error, aimed.slope), _MOST_SMOOTHING
            continue
        tau *= 0.7 * over ** (-1 / power)
        patience *= min(0.125, 0.5 / over)
    return best


def _unseen(upper: End, largest: End, looked: list[float]) -> End:
    # An upper bound below the largest loss, or 0 if a sum near it has given no lower bound.
    seen = any(math.isclose(upper, each, rel_tol=_SAME) for each in looked)
    return upper if upper < largest and not seen else 0


def _led(total: ContourSum, goal: arb, otherwise: float) -> float:
    # A Newton step with the largest slope -c of log delta, from a point where the sum is too small.
    at, c = total.window.epsilon, total.window.tilt
    most = total.bounds(Fraction(at))[1]
    return max(at - float((goal / most).log()) / c, otherwise) if 0 < most < goal else otherwise


def spare_mass(delta: float, wanted: float, rounds: int) -> float:
    r"""The P-mass of losses that each round may count as infinite; 0 if it is below 1e-306."""
    spare = _SPARED * delta * wanted / rounds
    return 2.0 ** math.floor(math.log2(spare)) if spare >= _LEAST_SPARE else 0.0


def smoothing(error: float, slope: float) -> float:
    r"""A smoothing tau that changes delta by a relative amount of about ``error`` at most."""
    return 0.75 * math.sqrt(min(error, _MOST_ERROR) / (slope * (slope + 1)))


def sum_at(
    parts: tuple[tuple[LossPart, int], ...], saddle: Saddle, error: float, tau: float
) -> ContourSum | None:
    r"""The contour sum for a relative ``error`` in delta; None if the sum has too many terms."""
    # Atoms cost more than frequencies: listings may add more variance than the smoothing.
    listed = any(part.above is not None and part.outputs == math.inf for part, _ in parts)
    chosen_tau = float(np.float32(min(tau * _LISTED if listed else tau, _MOST_SMOOTHING)))
    share = _COARSER * chosen_tau * chosen_tau / len(parts)
    tilt, focus = Fraction(saddle.tilt), saddle.focus
    factors = [(part.factor(tilt, share / count, focus), count) for part, count in parts]
    chosen = window(factors, saddle, error, chosen_tau)
    return None if chosen is None else contour_sum(factors, chosen)


def _hidden(parts: _Parts) -> arb:
    # 1 - prod (1 - h)^k, without cancellation for small h.
    finite = arb(0)
    for part, count in parts:
        if not part.hidden < 1:
            return arb(1) if part.hidden >= 1 else arb(0).union(arb(1))
        finite += count * (-part.hidden).log1p()
    return -finite.expm1()


def _largest(parts: _Parts) -> arb:
    return sum((count * part.largest for part, count in parts), arb(0))


def _width(relative: RationalLike) -> float:
    reason = "an enclosure cannot have width 0"
    return float(max(positive_rational("relative", relative, reason), _FINEST))
