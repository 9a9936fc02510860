r"""The pairs of Skellam noise, of Polya differences, and of one-sided Polya noise of shape <= 1.

All pairs have the form (X, X - d) for noise X with masses p and a shift d, except that the pair of
one-sided Polya noise covers both directions.

For Skellam noise of variance v, the ratio r_n = p(n+1)/p(n) = I_{n+1}(v)/I_n(v) of modified Bessel
functions has Amos' bounds (Math. Comp. 28, 1974),

    v/(n + 1/2 + sqrt((n + 3/2)^2 + v^2)) <= r_n <= v/(n + 1/2 + sqrt((n + 1/2)^2 + v^2)), n >= 0.

The loss grows like d asinh(m/v) without bound, but every Renyi divergence D_alpha is finite, and
D_alpha/alpha decreases to 0.

For a Polya difference of shape r and scale s, let q be the masses of the Polya law, with
q(k+1)/q(k) = beta (k+r)/(k+1) and beta = e^(-1/s). The difference has the masses p(n) = sum_j q(j)
q(n+j). p(n+1)/p(n) is a mean of ratios of q, so it decreases to beta if r > 1 and increases to beta
if r < 1. The loss at m >= 0 has the limit d/s.

The Renyi divergences of both laws are computed from a table of log p(0), ..., log p(R). With
t(m) = p(m) (p(m)/p(m+d))^(alpha-1), D_alpha = log(sum_m t(m))/(alpha - 1); the terms outside the
table have proven bounds. Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Final, TypeAlias

from flint import arb, ctx

from accounting.errors import NotDerived
from accounting.law_pairs.discrete_gaussian import real_gaussian_epsilon
from accounting.pairs.enclose_curve import hull, supremum_over_orders
from accounting.pairs.pair import (
    ClosedPair,
    Offsets,
    Pair,
    RayPair,
    ShiftedPair,
    unknown_probability,
)
from dpcore.laws.polya import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.numbers.integer_search import least

MOST_MASSES: Final = 1 << 20

_MOST_SEARCHED: Final = 1 << 14
_SEARCH_BITS: Final = 192
_SECOND: Final = Fraction(2)
_TOLERANCE: Final = Fraction(1, 10**4)

Masses: TypeAlias = tuple[list[arb], list[arb]]
"""p(n) and log p(n) for n = 0, 1, ..."""

_HALVINGS: Final = 40
_BENT: Final = 0.25
_BITS: Final = 64
_BITS_PER_SCALE: Final = Fraction(7, 10)


class SummedPair(Pair):
    r"""The pair (X, X - d) for symmetric noise X with masses that decrease away from 0."""

    __slots__ = ()

    everywhere: ClassVar[bool] = True

    noise: Skellam | PolyaDifference
    shift: int

    def loss(self, m: int) -> arb:
        if 2 * m == -self.shift:
            return arb(0)
        here, there = abs(m), abs(m + self.shift)
        return log_mass(self.noise, here, ctx.prec) - log_mass(self.noise, there, ctx.prec)

    def table(self, reach: int) -> Masses:
        r"""The masses p(n) of X and their logarithms for n = 0, ..., ``reach``."""
        return _table(self.noise, reach, ctx.prec)

    @abstractmethod
    def beyond(self, first: int, order: Fraction, logs: Sequence[arb]) -> arb:
        r"""An enclosure of the sum of t(m) (module docstring) over m >= ``first``, or infinity."""

    @abstractmethod
    def reach(self, order: Fraction, bits: int) -> int:
        r"""An estimate of the largest m needed for a Renyi divergence of ``bits`` bits."""

    def mass_balls(self, first: int, last: int) -> list[arb]:
        masses, _ = self.table(max(abs(first), abs(last)))
        return [masses[abs(n)] for n in range(first, last + 1)]

    def renyi(self, order: Fraction) -> arb:
        reach, shift = max(self.reach(order, ctx.prec), 1), self.shift
        while reach + shift < MOST_MASSES:
            _, logs = self.table(_rounded(reach + shift + 1))
            # On the left p(n+d) < p(n): t(-d-n) = p(n+d) (p(n+d)/p(n))^k <= p(n+d).
            left = self.noise.sf_ball(reach + shift).upper()
            right = self.beyond(reach + 1, order, logs)
            if right.is_finite():
                total = _within(logs, shift, reach, order)
                if max(left, right.rad()) <= total * arb(2) ** (-ctx.prec):
                    return (total + right + arb(left / 2, left / 2)).log() / ball(order - 1)
            reach *= 2
        raise NotDerived(
            f"the Renyi divergence of order {order} of {self.noise!r}",
            f"the sum needs more masses than the limit of {MOST_MASSES}: use epsilon(delta)",
        )

    def zcdp(self) -> Enclosure:
        if self.reach(_SECOND, _SEARCH_BITS) > _MOST_SEARCHED:
            raise NotDerived(
                f"the zCDP parameter of {self.noise!r}",
                "no theorem applies, and a search would add more masses than the limit of "
                f"{_MOST_SEARCHED}: use renyi(order)",
            )
        return supremum_over_orders(self.renyi, self.bound_beyond, tolerance=_TOLERANCE)


def _rounded(reach: int) -> int:
    # Round to a few table sizes, so that similar orders share a table.
    grain = 1 << max(reach.bit_length() - 3, 5)
    return -(-reach // grain) * grain


@lru_cache(maxsize=8)
def _table(noise: Skellam | PolyaDifference, reach: int, bits: int) -> Masses:
    # From p(0) and the ratios p(n+1)/p(n).
    del bits
    mass = noise.pmf_ball(0)
    masses, logs = [mass], [mass.log()]
    for ratio in reversed(noise.ratios(0, reach)):
        masses.append(masses[-1] * ratio)
        logs.append(logs[-1] + ratio.log())
    return masses, logs


@lru_cache(maxsize=1 << 12)
def log_mass(noise: Noise, n: int, bits: int) -> arb:
    r"""The logarithm of the mass of ``noise`` at n; ``bits`` is only part of the cache key."""
    del bits
    return noise.pmf_ball(n).log()


def _within(logs: Sequence[arb], shift: int, reach: int, order: Fraction) -> arb:
    # m = -d-reach..reach, where |m| and |m+d| lie within the table.
    alpha, excess = ball(order), ball(order - 1)
    total = arb(0)
    for m in range(-shift - reach, reach + 1):
        total += (alpha * logs[abs(m)] - excess * logs[abs(m + shift)]).exp()
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class SkellamPair(SummedPair, ShiftedPair):
    r"""The pair (X, X - d) for Skellam noise X.

    >>> pair = SkellamPair(noise=Skellam(variance=16), shift=4)
    >>> pair.renyi(Fraction(32)).str(6, radius=False)
    '5.82614'
    """

    strict: ClassVar[bool] = True

    noise: Skellam

    def near(self, epsilon: Fraction) -> int:
        # L(m) is about d asinh((m + d/2)/v).
        try:
            slope = math.sinh(epsilon / self.shift)
            return math.floor(self.noise.variance * Fraction(slope) - Fraction(self.shift, 2)) + 1
        except OverflowError:
            return ShiftedPair.near(self, epsilon)

    def guess(self, delta: Fraction) -> int | None:
        near = real_gaussian_epsilon(self.shift**2 / self.noise.variance, delta)
        # If epsilon/d is not small, L bends, and the ray of the Gaussian is far in the tail.
        if self.noise.variance < self.shift**2 or not 0 < near <= self.shift * _BENT:
            return RayPair.guess(self, delta)
        return self.near(Fraction(near))

    def start(self, delta: Fraction) -> Fraction:
        # The approximate loss at which the Chernoff bound on the tail equals delta.
        v, goal = float(self.noise.variance), _log(delta)
        low, high = 0.0, 2.0
        while _chernoff(high, v) > goal:
            low, high = high, 2 * high
        for _ in range(_HALVINGS):
            center = (low + high) / 2
            low, high = (center, high) if _chernoff(center, v) > goal else (low, center)
        return Fraction(self.shift * math.asinh(high / v)) if v > 0 else Fraction(0)

    def largest_loss(self) -> Enclosure:
        # L(m) >= d asinh((m + 1/2)/v) for m >= 0.
        return Enclosure.infinite()

    def bound_beyond(self, order: Fraction) -> arb:
        # With k = alpha - 1 = (v/d) theta cosh theta, (alpha - 1) D_alpha <= X + e^-X, where X = v
        # (cosh theta - 1 + theta^2 cosh theta - theta sinh theta) + theta (d/2 + 1).
        v, target = self.noise.variance, (order - 1) * self.shift / self.noise.variance
        theta = ball(_root_below(target))
        if not (theta > 0 and theta * theta.cosh() <= ball(target)):
            return arb("inf")
        cosh = theta.cosh()
        bound = ball(v) * (2 * (theta / 2).sinh() ** 2 + theta**2 * cosh - theta * theta.sinh())
        bound += theta * ball(Fraction(self.shift, 2) + 1)
        excess = ball(v / self.shift) * theta * cosh
        return (bound + (-bound).exp()) / excess**2

    def beyond(self, first: int, order: Fraction, logs: Sequence[arb]) -> arb:
        excess = ball(order - 1)
        ratio = ball(self.noise.variance) / self._amos(first, 1)
        ratio *= (self._amos(first + self.shift, 3) / self._amos(first, 1)) ** excess
        if not ratio < 1:
            return arb("inf")
        start = (ball(order) * logs[first] - excess * logs[first + self.shift]).exp()
        rest = (start / (1 - ratio)).upper()
        return arb(rest / 2, rest / 2)

    def reach(self, order: Fraction, bits: int) -> int:
        # The range that suffices for a Gaussian of the same variance, tilted by the order.
        width = math.isqrt(math.ceil(2 * self.noise.variance * bits))
        return self.shift * math.ceil(order) + width + 8

    def _amos(self, n: int, halves: int) -> arb:
        # x + sqrt(x^2 + v^2) at x = n + halves/2.
        x = ball(Fraction(2 * n + halves, 2))
        return x + (x * x + ball(self.noise.variance) ** 2).sqrt()


def _log(delta: Fraction) -> float:
    return math.log(delta.numerator) - math.log(delta.denominator)


def _chernoff(m: float, v: float) -> float:
    # Approximately log P(X >= m): the infimum over theta of v (cosh theta - 1) - theta m, in
    # floats.
    return m * m / (math.hypot(m, v) + v) - m * math.asinh(m / v) if v > 0 else -math.inf


def _root_below(target: Fraction) -> Fraction:
    # A theta >= 0 with theta cosh theta slightly below the target.
    if target > 10**300:
        return Fraction(1)
    goal = float(target)
    low, high = 0.0, min(goal, 800.0)
    for _ in range(80):
        center = (low + high) / 2
        if center < 700 and center * math.cosh(center) <= goal:
            low = center
        else:
            high = center
    return Fraction(low * (1 - 1e-12))


class _Difference(SummedPair):
    # The common part of both kinds of difference, whose losses have different shapes.
    __slots__ = ()

    noise: PolyaDifference

    def beyond(self, first: int, order: Fraction, logs: Sequence[arb]) -> arb:
        # The tail times e^(kL), k = alpha - 1, for all losses L between L(first) and d/s.
        excess, tail = ball(order - 1), self.noise.sf_ball(first - 1)
        near = logs[first] - logs[first + self.shift]
        far = ball(self.shift / self.noise.scale)
        return tail * hull([(excess * near).exp(), (excess * far).exp()])

    def reach(self, order: Fraction, bits: int) -> int:
        # The tails decrease like beta^n times n^(r-1).
        del order
        return _far(self.noise.scale, bits) + math.ceil(self.noise.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolyaDifferenceAboveOne(_Difference, ShiftedPair):
    r"""The pair (X, X - d) for a Polya difference X of shape r >= 1, which is log-concave.

    >>> noise = PolyaDifference(shape=2, scale=10)
    >>> PolyaDifferenceAboveOne(noise=noise, shift=1).largest_loss()
    Enclosure([0.1, 0.1])
    """

    strict: ClassVar[bool] = True

    noise: PolyaDifference

    def largest_loss(self) -> Enclosure:
        return Enclosure.exactly(self.shift / self.noise.scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolyaDifferenceBelowOne(_Difference):
    r"""The pair (X, X - d) for a Polya difference X of shape r < 1.

    The masses are log-convex away from 0. So the loss L increases from -L(0) at -d to L(0) at 0,
    and then decreases towards its limit d/s for the scale s. Optimal tests are not rays
    {m, m+1, ...}, so the curve is computed from discretised losses.

    >>> noise = PolyaDifference(shape="1/2", scale=1)
    >>> pair = PolyaDifferenceBelowOne(noise=noise, shift=1)
    >>> pair.largest_loss().upper_float
    1.6751386322897275
    """

    noise: PolyaDifference
    shift: int

    @property
    def tail_loss(self) -> Fraction:
        r"""The limit d/s of the loss at m for large m, which is below the loss at every m >= 0."""
        return self.shift / self.noise.scale

    def largest_loss(self) -> Enclosure:
        return narrow(lambda: self.loss(0), _BITS)

    def offsets(self) -> Offsets:
        return Offsets(noise=self.noise, there=self.shift)

    def bends(self) -> tuple[int, ...]:
        return -self.shift, 0

    def losses_beyond(self, m: int, *, right: bool) -> tuple[arb, arb]:
        here, limit = self.loss(m), ball(self.tail_loss)
        return (limit, here) if right else (here, -limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevealingPair(ClosedPair):
    r"""The worst pair of one-sided Polya noise X of shape r <= 1 and its shift X - d.

    In the worse direction, P is the law of X - d and Q the law of X. P takes the values -d, ...,
    -1, which are impossible under Q, with mass P(X < d). Every other loss is negative, because the
    masses of X decrease. So delta(epsilon) = P(X < d) for all epsilon >= 0. At epsilon = 0 this is
    the total variation distance, which is the same in both directions.

    >>> from dpcore.laws.polya import Polya
    >>> noise = Polya(shape=1, scale=1)
    >>> RevealingPair(noise=noise, shift=1).delta(Fraction(5)).str(8, radius=False)
    '0.63212056'
    """

    noise: Noise
    shift: int

    def loss(self, m: int) -> arb:
        # Infinite on -d..-1, which are the last values in the order of losses.
        if m < 0:
            return arb("inf") if m >= -self.shift else arb("-inf")
        return (self.noise.pmf_ball(m + self.shift) / self.noise.pmf_ball(m)).log()

    def delta(self, epsilon: Fraction) -> arb:
        del epsilon
        return self.hidden()

    def guess(self, delta: Fraction) -> int | None:
        del delta
        return 0

    def smallest_loss(self) -> arb:
        return arb("inf")

    def epsilon(self, delta: Fraction, guess: int | None = None) -> arb:
        del guess
        if self.hidden() > ball(delta):
            return arb("inf")
        return arb(0) if self.hidden() <= ball(delta) else arb("nan")

    def hidden(self) -> arb:
        return self.noise.cdf_ball(self.shift - 1)

    def offsets(self) -> Offsets:
        return Offsets(noise=self.noise, here=self.shift, there=0)

    def largest_loss(self) -> Enclosure:
        return Enclosure.infinite()

    def renyi(self, order: Fraction) -> arb:
        del order
        return arb("inf")

    def zcdp(self) -> arb:
        return arb("inf")

    def tradeoff(self, alpha: Fraction) -> arb:
        r"""The least type II error of a test with type I error ``alpha``, in the worse direction.

        If P is the law of X - d, the test rejects -d, ..., -1 and then the largest values, as the
        loss increases. If P is the law of X, it rejects 0, 1, ..., and has no type II error once it
        rejects every value of X - d.
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
