r"""Skellam noise and its shifts.

With r_n = p(n+1)/p(n) = I_{n+1}(v)/I_n(v) and Amos' bounds (Math. Comp. 28, 1974),

    v/(n + 1/2 + sqrt((n + 3/2)^2 + v^2)) <= r_n <= v/(n + 1/2 + sqrt((n + 1/2)^2 + v^2)), n >= 0,

the loss grows without bound like d asinh(m/v), every Renyi divergence is finite, and D_alpha/alpha
decreases to 0. Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final

from flint import arb

from accounting.law_pairs.discrete_gaussian import real_gaussian_epsilon
from accounting.pairs.log_concave import ShiftedPair
from accounting.pairs.monotone import RayPair
from accounting.pairs.symmetric_sum import SummedPair
from dpcore.laws.skellam import Skellam
from dpcore.numbers.enclosure import Enclosure, ball

_HALVINGS: Final = 40
_BENT: Final = 0.25


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
        r"""The point v sinh(epsilon/d) - d/2, since L(m) is about d asinh((m + d/2)/v)."""
        try:
            slope = math.sinh(epsilon / self.shift)
            return math.floor(self.noise.variance * Fraction(slope) - Fraction(self.shift, 2)) + 1
        except OverflowError:
            return ShiftedPair.near(self, epsilon)

    def guess(self, delta: Fraction) -> int | None:
        r"""The optimal m for real Gaussian noise, in floats, or else that of the general search."""
        near = real_gaussian_epsilon(self.shift**2 / self.noise.variance, delta)
        # If epsilon/d is not small, L bends, and the ray of the Gaussian is far in the tail.
        if self.noise.variance < self.shift**2 or not 0 < near <= self.shift * _BENT:
            return RayPair.guess(self, delta)
        return self.near(Fraction(near))

    def start(self, delta: Fraction) -> Fraction:
        r"""The approximate loss at which the Chernoff bound on the tail equals delta."""
        v, goal = float(self.noise.variance), _log(delta)
        low, high = 0.0, 2.0
        while _chernoff(high, v) > goal:
            low, high = high, 2 * high
        for _ in range(_HALVINGS):
            center = (low + high) / 2
            low, high = (center, high) if _chernoff(center, v) > goal else (low, center)
        return Fraction(self.shift * math.asinh(high / v)) if v > 0 else Fraction(0)

    def largest_loss(self) -> Enclosure:
        r"""The largest loss: infinite, since L(m) >= d asinh((m + 1/2)/v) for m >= 0."""
        return Enclosure.infinite()

    def bound_beyond(self, order: Fraction) -> arb:
        r"""An upper bound on D_alpha/alpha for all alpha >= ``order``; +oo for order close to 1.

        With k = alpha - 1 = (v/d) theta cosh theta, (alpha - 1) D_alpha <= X + e^-X, where
        X = v (cosh theta - 1 + theta^2 cosh theta - theta sinh theta) + theta (d/2 + 1).
        """
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
        r"""Bound the terms of the sum in D_alpha from ``first`` on, by a geometric series."""
        excess = ball(order - 1)
        ratio = ball(self.noise.variance) / self._amos(first, 1)
        ratio *= (self._amos(first + self.shift, 3) / self._amos(first, 1)) ** excess
        if not ratio < 1:
            return arb("inf")
        start = (ball(order) * logs[first] - excess * logs[first + self.shift]).exp()
        rest = (start / (1 - ratio)).upper()
        return arb(rest / 2, rest / 2)

    def reach(self, order: Fraction, bits: int) -> int:
        r"""The range that suffices for a Gaussian of the same variance, tilted by the order."""
        width = math.isqrt(math.ceil(2 * self.noise.variance * bits))
        return self.shift * math.ceil(order) + width + 8

    def _amos(self, n: int, halves: int) -> arb:
        # x + sqrt(x^2 + v^2) at x = n + halves/2.
        x = ball(Fraction(2 * n + halves, 2))
        return x + (x * x + ball(self.noise.variance) ** 2).sqrt()


def _log(delta: Fraction) -> float:
    return math.log(delta.numerator) - math.log(delta.denominator)


def _chernoff(m: float, v: float) -> float:
    # Close to log P(X >= m): the infimum over theta of v (cosh theta - 1) - theta m, in floats.
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
