r"""Polya noise and its differences against their shifts.

q is the Polya law of shape r and scale s, with q(k+1)/q(k) = beta (k+r)/(k+1), beta = e^(-1/s);
p(n) = sum_j q(j) q(n+j) the law of a difference. p(n+1)/p(n) is a mean of these ratios, so it falls
to beta for r > 1, rises to it for r < 1, and the loss at m >= 0 has the limit d/s.
Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

from flint import arb, ctx

from accounting.pairs.balls import hull
from accounting.pairs.listing import (
    Cut,
    from_ratios,
    geometric,
    list_losses,
    outward,
    symmetric_cut,
    total_variation_losses,
)
from accounting.pairs.log_concave import ShiftedPair
from accounting.pairs.log_convex import LogConvexPair
from accounting.pairs.losses import Losses
from accounting.pairs.monotone import Cell, unknown_probability
from accounting.pairs.pair import Pair
from accounting.pairs.symmetric_sum import renyi_by_sum, zcdp_by_search
from dpcore.laws.polya_difference import PolyaDifference
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, ball
from dpcore.numbers.integer_search import least

__all__ = ["DisclosingPair", "LeanDifferencePair", "RichDifferencePair"]

_BITS_PER_SCALE: Final = Fraction(7, 10)
_LEAST: Final = 1e-300


class _Difference(Pair):
    # What both kinds of difference have in common, beside their shape of loss.
    __slots__ = ()

    noise: PolyaDifference
    shift: int

    def loss(self, m: int) -> arb:
        r"""log p(m)/p(m+d)."""
        here = _log_mass(self.noise, abs(m), ctx.prec)
        return here - _log_mass(self.noise, abs(m + self.shift), ctx.prec)

    def renyi(self, order: Fraction) -> arb:
        r"""By the sum over all masses; refused beyond 2^20 of them."""
        return renyi_by_sum(self, order)

    def zcdp(self) -> Enclosure:
        r"""By branch and bound, to a relative width of 1e-4."""
        return zcdp_by_search(self, largest_loss=Fraction(self.largest_loss().upper))

    def logarithms(self, reach: int) -> Sequence[arb]:
        r"""From the ratios of neighbouring masses."""
        return _table(self.noise, reach, ctx.prec)[2]

    def beyond(self, first: int, order: Fraction, logarithms: Sequence[arb]) -> arb:
        r"""The loss lies between L(first) and d/s: the tail times e^(kL) at either."""
        excess, tail = ball(order - 1), self.noise.sf_ball(first - 1)
        near = logarithms[first] - logarithms[first + self.shift]
        far = ball(self.shift / self.noise.scale)
        return tail * hull([(excess * near).exp(), (excess * far).exp()])

    def losses(self, tilt: Fraction, bits: int) -> Losses:
        r"""From the ratios of neighbouring masses, with geometric rests."""
        return list_losses(self, tilt, bits)

    def ends(self, tilt: float, need: float) -> tuple[int, int]:
        r"""From ratios of about the root of their recurrence."""
        return _ends(float(self.noise.shape), float(self.noise.scale), self.shift, tilt, need)

    @abstractmethod
    def cut(self, low: int, high: int) -> Cut:
        r"""What lies beyond either end."""

    def reach(self, order: Fraction, bits: int) -> int:
        r"""The tails fall like beta^n, under a power n^(r-1)."""
        del order
        return _far(self.noise.scale, bits) + math.ceil(self.noise.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class RichDifferencePair(_Difference, ShiftedPair):
    r"""X against X - d for a difference of Polya laws of shape r >= 1: log-concave.

    >>> noise = PolyaDifference(shape=2, scale=10)
    >>> RichDifferencePair(noise=noise, shift=1).largest_loss()
    Enclosure([0.1, 0.1])
    """

    noise: PolyaDifference

    def ray(self, epsilon: Fraction) -> Cell | None:
        r"""None from d/s on; at epsilon = 0 the first m > -d/2, for p falls strictly from 0."""
        if epsilon * self.noise.scale >= self.shift:
            return None
        if epsilon == 0:
            first = -self.shift // 2 + 1
            return first, first
        return ShiftedPair.ray(self, epsilon)

    def largest_loss(self) -> Enclosure:
        r"""d/s, exactly: approached, and for r > 1 not attained."""
        return Enclosure.exactly(self.shift / self.noise.scale)

    def hidden(self) -> Fraction:
        r"""0: every integer has mass."""
        return Fraction(0)

    def cut(self, low: int, high: int) -> Cut:
        r"""Beyond ``high`` the loss is below d/s, and p(n+1)/p(n) falls."""
        return _cut(self, low, high, most=ball(self.shift / self.noise.scale))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeanDifferencePair(_Difference, LogConvexPair):
    r"""X against X - d for a difference of Polya laws of shape r < 1: log-convex away from 0.

    >>> noise = PolyaDifference(shape="1/2", scale=1)
    >>> pair = LeanDifferencePair(noise=noise, shift=1)
    >>> pair.largest_loss().upper_float
    1.6751386322897275
    """

    noise: PolyaDifference

    @property
    def tail_loss(self) -> Fraction:
        r"""d/s."""
        return self.shift / self.noise.scale

    def far(self, bits: int) -> int:
        r"""The tails fall like beta^n."""
        return _far(self.noise.scale, bits)

    def cut(self, low: int, high: int) -> Cut:
        r"""Below -d the loss is below -d/s, and p(n+1)/p(n) <= beta."""
        return _cut(self, low, high, least=-ball(self.shift / self.noise.scale))


@dataclass(frozen=True, slots=True, kw_only=True)
class DisclosingPair(Pair):
    r"""One-sided Polya noise X of shape r <= 1 under a shift d: only the mass X < d counts.

    In the worse direction P = X - d, Q = X: P shows -d..-1, which Q never does, with mass P(X < d),
    and every other loss log p(x+d)/p(x) is negative. So delta(epsilon) = P(X < d) for all
    epsilon >= 0, which at epsilon = 0 is the total variation distance of both directions; the
    other direction is never worse. ``loss`` counts x up to -1 as the last of them all.

    >>> from dpcore.laws.polya import Polya
    >>> noise = Polya(shape=1, scale=1)
    >>> DisclosingPair(noise=noise, shift=1).delta(Fraction(5)).str(8, radius=False)
    '0.63212056'
    """

    noise: Noise
    shift: int

    def loss(self, m: int) -> arb:
        r"""log P(m)/Q(m): infinite on -d..-1."""
        if m < 0:
            return arb("inf") if m >= -self.shift else arb("-inf")
        return (self.noise.pmf_ball(m + self.shift) / self.noise.pmf_ball(m)).log()

    def delta(self, epsilon: Fraction) -> arb:
        r"""P(X < d), at every epsilon."""
        del epsilon
        return self.hidden()

    def guess(self, delta: Fraction) -> int | None:
        r"""Nothing to search for."""
        del delta
        return 0

    def smallest_loss(self) -> arb:
        r"""No loss is positive and finite."""
        return arb("inf")

    def epsilon(self, delta: Fraction, guess: int | None = None) -> arb:
        r"""Infinite below P(X < d), and 0 from there on."""
        del guess
        if self.hidden() > ball(delta):
            return arb("inf")
        return arb(0) if self.hidden() <= ball(delta) else arb("nan")

    def hidden(self) -> arb:
        r"""P(X < d)."""
        return self.noise.cdf_ball(self.shift - 1)

    def losses(self, tilt: Fraction, bits: int) -> Losses:
        r"""Of the pair that dominates both directions: all or nothing, with mass P(X < d).

        Exact for rounds of this law alone, where each loss is oo or at most 0. Beside rounds of
        other laws an upper bound: those losses below 0 are counted as 0.
        """
        del tilt, bits
        return total_variation_losses(self.hidden())

    def largest_loss(self) -> Enclosure:
        r"""Infinite: a mass is hidden."""
        return Enclosure.infinite()

    def renyi(self, order: Fraction) -> arb:
        r"""Infinite, for the same reason."""
        del order
        return arb("inf")

    def zcdp(self) -> arb:
        r"""Infinite, for the same reason."""
        return arb("inf")

    def tradeoff(self, alpha: Fraction) -> arb:
        r"""The smaller of the two directions.

        P = X - d: the test rejects -d..-1 and then x from the largest down, for the loss rises.
        P = X: it rejects 0, 1, ..., and misses nothing once all of Q = X - d in reach is spent.
        """
        level = ball(alpha)
        return self._from_above(level).min(self._from_below(level))

    def _from_above(self, level: arb) -> arb:
        # The least M with P(X >= M) <= alpha; part of M - 1 is rejected too.
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
        # The largest M with P(d <= X < M + d) <= alpha; part of M is rejected too.
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


@lru_cache(maxsize=1 << 12)
def _log_mass(noise: Noise, n: int, bits: int) -> arb:
    # `bits` is the ambient precision, part of the key.
    del bits
    return noise.pmf_ball(n).log()


def _ends(r: float, s: float, d: int, tilt: float, need: float) -> tuple[int, int]:
    beta = math.exp(-1 / s)

    def log_ratio(n: float) -> float:
        # Of p(n)/p(n-1), where it hardly changes: the root of its recurrence.
        root = math.hypot(n * (1 - beta * beta), 2 * beta * (r - 1))
        return math.log(max(2 * beta * (n - 1 + r), _LEAST) / (n * (1 + beta * beta) + root))

    def falling(m: float) -> float:
        return (1 + tilt) * log_ratio(m + 0.5) - tilt * log_ratio(m + d + 0.5)

    right = outward(falling, 0, need)
    # The bound on the right takes the largest loss there, which is so much above that at the end.
    right = outward(falling, 0, need + tilt * d * abs(r - 1) / (right + r))
    return -outward(lambda m: log_ratio(m + 0.5), 0, need) - d, right


def _cut(
    pair: RichDifferencePair | LeanDifferencePair,
    low: int,
    high: int,
    *,
    least: arb | None = None,
    most: arb | None = None,
) -> Cut:
    # `least` and `most` bound the loss left of low and right of high, where its value at the end
    # does not.
    low, high = min(low, -pair.shift), max(high, 0)
    reach = max(-low, high + pair.shift)
    ratios, masses, logs = _table(pair.noise, reach, ctx.prec)

    def beyond(n: int) -> arb:
        # P(X > n): the ratios fall for r >= 1, and stay below beta for r < 1.
        ratio = ratios[n] if pair.noise.shape >= 1 else (-1 / ball(pair.noise.scale)).exp()
        return geometric(masses[n] * ratio, ratio)

    below, above = beyond(-low), beyond(high)
    left = logs[-low] - logs[-low - pair.shift] if least is None else least
    right = logs[high] - logs[high + pair.shift] if most is None else most
    sides = (lambda c: below * (c * left).exp(), lambda c: above * (c * right).exp())
    largest = logs[0] - logs[pair.shift] if most is None else most
    return symmetric_cut(masses, logs, pair.shift, low, high, sides, largest)


@lru_cache(maxsize=8)
def _table(noise: PolyaDifference, reach: int, bits: int) -> tuple[list[arb], list[arb], list[arb]]:
    # p(n+1)/p(n), p(n) and log p(n) for n = 0..reach, from
    # rho_n = p(n)/p(n-1) = beta (n-1+r)/((1 + beta^2) n - beta (n+1-r) rho_(n+1)), downwards. The
    # first one lies between beta and beta (n-1+r)/n, so far out that the recurrence, which
    # multiplies a relative error by about beta^2, has shrunk it below 2^-bits; how far decides on
    # width only.
    beta, r = (-1 / ball(noise.scale)).exp(), ball(noise.shape)
    start = reach + math.ceil(noise.scale * bits * _BITS_PER_SCALE / 2) + 3
    both = 1 + beta * beta

    def before(n: int, ratio: arb) -> arb:
        return beta * (n - 1 + r) / (both * n - beta * (n + 1 - r) * ratio)

    # Monotone in its argument, with no pole between: either end by itself stays thin, where the
    # radius of a wide ball would not shrink below that of its own arithmetic.
    low, high = beta, beta * (start + r) / (start + 1)
    for n in range(start, reach + 1, -1):
        low, high = before(n, low), before(n, high)
    ratio, ratios = low.union(high), []
    for n in range(reach + 1, 0, -1):
        ratio = before(n, ratio)
        ratios.append(ratio)
    ratios.reverse()
    return (ratios, *from_ratios(noise.pmf_ball(0), ratios[:-1]))
