r"""Sums of a few coins with rational probabilities: laws whose masses are known as fractions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache

from flint import acb, arb

from dpcore.numbers.enclosure import ball
from tests.support.dpcore.protocol_laws import summed

Coin = tuple[Fraction, int]


@dataclass(frozen=True, kw_only=True)
class Coins:
    r"""X = sum of signs of the coins that show heads, as required by ``contour_sums.CoinSum``.

    ``lean`` replaces the tilt: every value is valid, even a bad one.
    """

    coins: tuple[Coin, ...]
    lean: Callable[[int], Fraction] | None = field(default=None)

    @property
    def mean(self) -> Fraction:
        return sum((sign * p for p, sign in self.coins), Fraction(0))

    def log_moment(self, c: arb) -> arb:
        total = arb(0)
        for (p, sign), count in Counter(self.coins).items():
            total += count * (ball(1 - p) + ball(p) * (sign * c).exp()).log()
        return total

    def tilted_characteristic(self, c: arb, theta: arb) -> acb:
        # A factor may be 0 (a fair coin at theta = pi), so no logarithm is taken; powers are
        # computed by squaring, because the error of a long product of boxes would grow.
        total = acb(1)
        for (p, sign), count in Counter(self.coins).items():
            turned = acb(ball(1 - p)) + ball(p) * acb(sign * c, sign * theta).exp()
            total *= (turned / (ball(1 - p) + ball(p) * (sign * c).exp())) ** count
        return total

    def tilted_variance(self, c: arb) -> arb:
        total = arb(0)
        for (p, sign), count in Counter(self.coins).items():
            heads = ball(p) * (sign * c).exp()
            tails = ball(1 - p)
            total += count * heads * tails / (heads + tails) ** 2
        return total

    def tilt(self, t: int) -> Fraction:
        if self.lean is not None:
            return self.lean(t)
        low, high = -30.0, 30.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self._slope(middle) < t else (low, middle)
        return Fraction(low)

    def _slope(self, c: float) -> float:
        # K'(c): the mean under the tilt.
        found = 0.0
        for p, sign in self.coins:
            heads = float(p) * math.exp(sign * c)
            found += sign * heads / (heads + 1 - float(p))
        return found

    def masses(self) -> dict[int, Fraction]:
        r"""P(X = k), exact."""
        return _masses(self.coins)

    def above(self, t: int) -> Fraction:
        r"""P(X >= t), exact."""
        return sum((mass for k, mass in self.masses().items() if k >= t), Fraction(0))


@cache
def _masses(coins: tuple[Coin, ...]) -> dict[int, Fraction]:
    return summed({0: 1 - p, sign: p} for p, sign in coins)
