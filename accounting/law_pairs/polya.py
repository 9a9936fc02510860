r"""Polya noise, its differences, and their shifts.

q is the Polya law of shape r and scale s, with q(k+1)/q(k) = beta (k+r)/(k+1), beta = e^(-1/s);
p(n) = sum_j q(j) q(n+j) is the law of a difference. p(n+1)/p(n) is a mean of these ratios, so it
decreases to beta for r > 1 and increases to beta for r < 1, and the loss at m >= 0 has the limit
d/s. Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final

from flint import arb

from accounting.pairs.ball_arithmetic import hull
from accounting.pairs.log_concave import ShiftedPair
from accounting.pairs.monotone import unknown_probability
from accounting.pairs.pair import ClosedPair, Coordinates
from accounting.pairs.symmetric_sum import SummedPair
from dpcore.laws.polya import PolyaDifference
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.numbers.integer_search import least

_BITS: Final = 64
_BITS_PER_SCALE: Final = Fraction(7, 10)


class _Difference(SummedPair):
    # The common part of both kinds of difference, whose losses have different shapes.
    __slots__ = ()

    noise: PolyaDifference

    def beyond(self, first: int, order: Fraction, logs: Sequence[arb]) -> arb:
        r"""The tail times e^(kL), for all losses L between L(first) and d/s."""
        excess, tail = ball(order - 1), self.noise.sf_ball(first - 1)
        near = logs[first] - logs[first + self.shift]
        far = ball(self.shift / self.noise.scale)
        return tail * hull([(excess * near).exp(), (excess * far).exp()])

    def reach(self, order: Fraction, bits: int) -> int:
        r"""A range for the tails, which decrease like beta^n times a power n^(r-1)."""
        del order
        return _far(self.noise.scale, bits) + math.ceil(self.noise.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolyaDifferenceAboveOne(_Difference, ShiftedPair):
    r"""The pair (X, X - d) for a difference of Polya laws of shape r >= 1: it is log-concave.

    >>> noise = PolyaDifference(shape=2, scale=10)
    >>> PolyaDifferenceAboveOne(noise=noise, shift=1).largest_loss()
    Enclosure([0.1, 0.1])
    """

    strict: ClassVar[bool] = True

    noise: PolyaDifference

    def largest_loss(self) -> Enclosure:
        r"""The largest loss d/s: a limit that is not attained for r > 1."""
        return Enclosure.exactly(self.shift / self.noise.scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolyaDifferenceBelowOne(_Difference):
    r"""The pair (X, X - d) for a difference of Polya laws of shape r < 1: log-convex away from 0.

    The loss increases from -L(0) at -d to L(0) at 0, and decreases towards the limit d/s, which it
    never reaches. No ray is the best test, so the curve is computed from listings.

    >>> noise = PolyaDifference(shape="1/2", scale=1)
    >>> pair = PolyaDifferenceBelowOne(noise=noise, shift=1)
    >>> pair.largest_loss().upper_float
    1.6751386322897275
    """

    noise: PolyaDifference
    shift: int

    @property
    def tail_loss(self) -> Fraction:
        r"""The limit d/s of the loss, which is below every L(m) with m >= 0."""
        return self.shift / self.noise.scale

    def largest_loss(self) -> Enclosure:
        r"""The largest loss L(0) = log p(0)/p(d), attained at 0."""
        return narrow(lambda: self.loss(0), _BITS)

    def coordinates(self) -> Coordinates:
        return Coordinates(noise=self.noise, there=self.shift)

    def bends(self) -> tuple[int, ...]:
        r"""The bends of L: -d, where it is smallest, and 0, where it is largest."""
        return -self.shift, 0

    def losses_beyond(self, m: int, *, right: bool) -> tuple[arb, arb]:
        r"""The bounds L(m) and the limit of L, valid beyond the bends."""
        here, limit = self.loss(m), ball(self.tail_loss)
        return (limit, here) if right else (here, -limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevealingPair(ClosedPair):
    r"""One-sided Polya noise X of shape r <= 1 under a shift d: only the mass of X < d matters.

    In the worse direction P = X - d, Q = X: P takes the values -d..-1, which Q does not, with mass
    P(X < d), and every other loss log p(x+d)/p(x) is negative. So delta(epsilon) = P(X < d) for all
    epsilon >= 0, which at epsilon = 0 is the total variation distance of both directions; the other
    direction is never worse. ``loss`` places the values up to -1 last in the order of losses.

    >>> from dpcore.laws.polya import Polya
    >>> noise = Polya(shape=1, scale=1)
    >>> RevealingPair(noise=noise, shift=1).delta(Fraction(5)).str(8, radius=False)
    '0.63212056'
    """

    noise: Noise
    shift: int

    def loss(self, m: int) -> arb:
        r"""The loss log P(m)/Q(m), infinite on -d..-1."""
        if m < 0:
            return arb("inf") if m >= -self.shift else arb("-inf")
        return (self.noise.pmf_ball(m + self.shift) / self.noise.pmf_ball(m)).log()

    def delta(self, epsilon: Fraction) -> arb:
        r"""The value P(X < d) at every epsilon."""
        del epsilon
        return self.hidden()

    def guess(self, delta: Fraction) -> int | None:
        r"""None, since the curve is constant and needs no search."""
        del delta
        return 0

    def smallest_loss(self) -> arb:
        r"""Infinite, since no positive loss is finite."""
        return arb("inf")

    def epsilon(self, delta: Fraction, guess: int | None = None) -> arb:
        r"""The epsilon at delta: infinite if delta < P(X < d), otherwise 0."""
        del guess
        if self.hidden() > ball(delta):
            return arb("inf")
        return arb(0) if self.hidden() <= ball(delta) else arb("nan")

    def hidden(self) -> arb:
        r"""The mass of infinite loss, P(X < d)."""
        return self.noise.cdf_ball(self.shift - 1)

    def coordinates(self) -> Coordinates:
        r"""The shifted laws P(m) = p(m+d) and Q(m) = p(m)."""
        return Coordinates(noise=self.noise, here=self.shift, there=0)

    def largest_loss(self) -> Enclosure:
        r"""Infinite, since one outcome has mass under only one dataset."""
        return Enclosure.infinite()

    def renyi(self, order: Fraction) -> arb:
        del order
        return arb("inf")

    def zcdp(self) -> arb:
        r"""Infinite, like every Renyi divergence."""
        return arb("inf")

    def tradeoff(self, alpha: Fraction) -> arb:
        r"""The smaller type II error of the two directions.

        P = X - d: the test rejects -d..-1 and then the largest x, as the loss increases. P = X: it
        rejects 0, 1, ..., and has no type II error once it rejects every value of Q = X - d.
        """
        level = ball(alpha)
        return self._from_above(level).min(self._from_below(level))

    def _from_above(self, level: arb) -> arb:
        # The least M with P(X >= M) <= alpha; M - 1 is rejected with some probability.
        last = least(lambda m: bool(self.noise.sf_ball(m - 1) <= level), 1)
        found = []
        for m in (last, last - 1):
            part = self.noise.pmf_ball(m - 1 + self.shift) / self.noise.pmf_ball(m - 1)
            kept = self.noise.cdf_ball(m + self.shift - 1) - self.noise.cdf_ball(self.shift - 1)
            found.append(kept - part * (level - self.noise.sf_ball(m - 1)))
            if m == 1 or self.noise.sf_ball(m - 2) > level:
                return hull(found)
        return unknown_probability()

    def _from_below(self, level: arb) -> arb:
        # The largest M with P(d <= X < M + d) <= alpha; M is rejected with some probability.
        before = self.noise.cdf_ball(self.shift - 1)
        if self.noise.sf_ball(self.shift - 1) <= level:
            return arb(0)

        def spent(m: int) -> arb:
            return self.noise.cdf_ball(m + self.shift - 1) - before

        above = least(lambda m: m > 0 and bool(spent(m) > level), 1)
        found = []
        for m in (above - 1, above - 2):
            part = self.noise.pmf_ball(m) / self.noise.pmf_ball(m + self.shift)
            found.append(self.noise.sf_ball(m - 1) - part * (level - spent(m)))
            if m == 0 or spent(m) <= level:
                return hull(found)
        return unknown_probability()


def _far(scale: Fraction, bits: int) -> int:
    return math.ceil(scale * (bits + 16) * _BITS_PER_SCALE) + 2
