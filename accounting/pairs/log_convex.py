r"""Symmetric laws that are log-convex away from 0: the loss rises and then falls again.

p falls in |x| and is log-convex on x >= 0, and L(m) = log p(m)/p(m+d) rises from -L(0) at m = -d
to L(0) at m = 0, then falls towards a limit `tail` > 0, which it never reaches. It is <= 0 for
m <= -d/2. So

    {L > epsilon} = {first, first+1, ...}     for 0 <= epsilon <= tail,
                  = {first, ..., last}        for tail < epsilon < L(0), first <= 0 <= last,
                  = nothing                   for epsilon >= L(0).

For any set S, delta(epsilon) >= P(S) - e^epsilon Q(S), with equality at the optimal one; so a
Newton step finds epsilon(delta) and two values of delta prove it. Proofs:
docs/proofs/curve.md.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from flint import arb, ctx

from accounting.pairs.balls import hull, middle
from accounting.pairs.monotone import unknown_probability
from accounting.pairs.pair import Coordinates, Pair
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.numbers.integer_search import least

_SUMMED: Final = 64
_WIDEST: Final = 4
_NEWTON: Final = 200
_BITS: Final = 64


class Span(NamedTuple):
    r"""A set {first, ..., stop - 1}; ``stop`` None has no end on the right."""

    first: int
    stop: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConvexPair(Pair):
    r"""X against X - ``shift`` for a symmetric noise, falling and log-convex on x >= 0."""

    noise: Noise
    shift: int

    # -- what a law provides ------------------------------------------------------------------

    @property
    @abstractmethod
    def tail_loss(self) -> Fraction:
        r"""The limit of L(m) for m -> oo, below every L(m) with m >= 0."""

    @abstractmethod
    def far(self, bits: int) -> int:
        r"""A value beyond which a noise has about 2^-bits of its mass, or less."""

    # -- the loss -----------------------------------------------------------------------------

    def loss(self, m: int) -> arb:
        r"""log p(m)/p(m+d)."""
        return (self.noise.pmf_ball(m) / self.noise.pmf_ball(m + self.shift)).log()

    def largest_loss(self) -> Enclosure:
        r"""L(0) = log p(0)/p(d), attained at 0."""
        return narrow(lambda: self.loss(0), _BITS)

    def smallest_loss(self) -> arb:
        r"""The loss next to the middle -d/2."""
        return self.loss(-self.shift // 2 + 1)

    def hidden(self) -> Fraction:
        r"""0: every integer has mass."""
        return Fraction(0)

    def coordinates(self) -> Coordinates:
        r"""p(m) and p(m+d)."""
        return Coordinates(noise=self.noise, there=self.shift)

    def bends(self) -> tuple[int, ...]:
        r"""-d, where L is least, and 0, where it is largest."""
        return -self.shift, 0

    def losses_beyond(self, m: int, *, right: bool) -> tuple[arb, arb]:
        r"""Between L(m) and its limit, beyond the bends."""
        here, limit = self.loss(m), ball(self.tail_loss)
        return (limit, here) if right else (here, -limit)

    # -- delta(epsilon) -----------------------------------------------------------------------

    def delta(self, epsilon: Fraction) -> arb:
        r"""P(S) - e^epsilon Q(S) for the optimal S: the hull over those that ties leave open."""
        level = ball(epsilon)
        if self.loss(0) <= level:
            return arb(0)
        if not self.loss(0) > level:
            # A tie with the largest loss: nothing or {0}, if the next ones are certainly below.
            if self.loss(-1) <= level and self.loss(1) <= level:
                return hull([arb(0), self._payoff(Span(0, 1), level, epsilon)])
            return unknown_probability()
        firsts, stops = self._firsts(level), self._stops(epsilon, level)
        if len(firsts) > _WIDEST or len(stops) > _WIDEST:
            return unknown_probability()
        return hull(
            self._payoff(Span(first, stop), level, epsilon) for first in firsts for stop in stops
        )

    def _firsts(self, level: arb) -> range:
        # Where L may exceed the level for the first time, in -d/2..0: L(m) = -L(-d-m) <= 0 on the
        # left of it. L(0) > level is known.
        start = -self.shift // 2 + 1
        last = least(lambda m: m >= 0 or (m >= start and bool(self.loss(m) > level)), start)
        first = last
        while first > start and not self.loss(first - 1) <= level and last - first <= _WIDEST:
            first -= 1
        return range(first, last + 1)

    def _stops(self, epsilon: Fraction, level: arb) -> range | tuple[None]:
        # Where L may fall to the level for the first time on the right of 0, if before `far`: the
        # payoff beyond it is bounded instead.
        if epsilon <= self.tail_loss or self.loss(self.far(2 * ctx.prec)) > level:
            return (None,)
        last = least(lambda m: m > 0 and bool(self.loss(m) <= level), 1)
        first = last
        while first > 1 and not self.loss(first - 1) > level and last - first <= _WIDEST:
            first -= 1
        return range(first, last + 1)

    def _payoff(self, span: Span, level: arb, epsilon: Fraction) -> arb:
        rising = level.expm1()
        here, there = self._measure(span)
        if span.stop is not None or epsilon <= self.tail_loss:
            return here - there - rising * there
        # The set ends beyond `far`: what it leaves out has payoff within [-(e^eps - 1) Q, 0].
        rest = (rising * self.noise.sf_ball(self.far(2 * ctx.prec) + self.shift - 1)).upper()
        return here - there - rising * there + arb(rest / 2, rest / 2)

    def _measure(self, span: Span) -> tuple[arb, arb]:
        # (P(S), Q(S)).
        first, stop = span
        if stop is not None and stop - first <= _SUMMED:
            here = sum((self.noise.pmf_ball(m) for m in range(first, stop)), arb(0))
            there = sum((self.noise.pmf_ball(m + self.shift) for m in range(first, stop)), arb(0))
            return here, there
        here, there = (self.noise.sf_ball(first - 1), self.noise.sf_ball(first + self.shift - 1))
        if stop is None:
            return here, there
        return here - self.noise.sf_ball(stop - 1), there - self.noise.sf_ball(
            stop + self.shift - 1
        )

    def _best(self, epsilon: Fraction) -> Span:
        # A set that is about the best at epsilon in [0, L(0)): for the search only.
        level = ball(epsilon)
        if not self.loss(0) > level:
            return Span(0, 1)
        stop = self._stops(epsilon, level)[-1]
        return Span(self._firsts(level)[-1], stop)

    # -- epsilon(delta) -----------------------------------------------------------------------

    def guess(self, delta: Fraction) -> int | None:
        r"""Newton's method from 0 takes few steps: there is nothing to guess."""
        del delta
        return 0

    def epsilon(self, delta: Fraction, guess: int | None = None) -> arb:
        r"""By Newton's method in e^epsilon, whose limit two values of delta prove.

        From any set S, log((P(S) - delta)/Q(S)) is a lower bound, and the set that is best there
        gives a better one; delta is convex in e^epsilon and linear where the set stays the same.
        """
        del guess
        found = self._newton(delta)
        if not found > 0:
            return arb(0) if self.delta(Fraction(0)) <= ball(delta) else arb("nan")
        width = (found.rad() + abs(found.mid()) * arb(2) ** (12 - ctx.prec)).upper()
        for _ in range(8):
            low, high = middle(found.mid() - width), middle(found.mid() + width)
            above = self.delta(high) <= ball(delta)
            below = low <= 0 or self.delta(low) >= ball(delta)
            if above and below:
                return hull([ball(max(low, Fraction(0))), ball(high)])
            width *= 16
        return arb("nan")

    def _newton(self, delta: Fraction) -> arb:
        before, at, found = None, Fraction(0), arb("nan")
        for _ in range(_NEWTON):
            span = self._best(at)
            if span == before:
                break
            here, there = self._measure(span)
            found = ((here - there - ball(delta)) / there).log1p()
            if not (found.is_finite() and found > 0):
                break
            before, at = span, middle(found)
        return found

    # -- tradeoff(alpha) ----------------------------------------------------------------------

    def tradeoff(self, alpha: Fraction) -> arb:
        r"""Between two thresholds t: T(alpha) = max_t 1 - P(S_t) + e^t (Q(S_t) - alpha).

        The expression is concave in e^t, and the line of any set S lies above it: so the value at a
        threshold is a lower bound, and where two lines of opposite slope meet is an upper one. The
        thresholds are brought together until both agree. Below 0, S_t is the complement of the
        mirror image of S_-t.
        """
        level = ball(alpha)
        # Not from a ball of fixed precision: where the noise is thin p(d) may touch 0 in it.
        reach = Fraction(self.largest_loss().upper) + 1
        low, high = -reach, reach
        left, right = (arb(0), 1 - level), (arb(1), -level)  # S = everything, S = nothing
        floor = arb(0)
        for step in range(ctx.prec + 64):
            place = _meeting(left, right).log()
            center = middle(place) if place.is_finite() else low
            if step % 4 == 3 or not low < center < high:
                center = (low + high) / 2
            floor = floor.max(self._value(center, level))
            here, there = self._threshold(center)
            if there - level > 0:
                low, left = center, (1 - here, there - level)
            elif there - level <= 0:
                high, right = center, (1 - here, there - level)
            else:
                return unknown_probability()
            top = left[0] + left[1] * _meeting(left, right)
            if not top - floor > top * arb(2) ** (8 - ctx.prec):
                break
        return hull([floor.lower(), top.upper()]) if top.is_finite() else unknown_probability()

    def _threshold(self, t: Fraction) -> tuple[arb, arb]:
        # (P(S), Q(S)) for a set about the best at the threshold t, of either sign.
        if t >= 0:
            return self._measure(self._best(t)) if self.loss(0) > ball(t) else (arb(0), arb(0))
        here, there = self._threshold(-t)
        return 1 - there, 1 - here

    def _value(self, t: Fraction, level: arb) -> arb:
        # 1 - H_t - e^t alpha; H_-t of (P, Q) = 1 - e^-t + e^-t H_t.
        if t >= 0:
            return 1 - self.delta(t) - ball(t).exp() * level
        return ball(t).exp() * (1 - self.delta(-t) - level)


def _meeting(left: tuple[arb, arb], right: tuple[arb, arb]) -> arb:
    # The y at which the lines a + b y meet.
    return (right[0] - left[0]) / (left[1] - right[1])
