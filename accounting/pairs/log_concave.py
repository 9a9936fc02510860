r"""The pair of any symmetric log-concave law, from its mass function alone; general but slow.

P is the law of X and Q the law of X - d, at the same integer m: L(m) = log p(m)/p(m+d) increases
since p is log-concave. Laws with closed forms have separate files; see ``law_pairs``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final

from flint import arb

from accounting.errors import NotDerived
from accounting.pairs.ball_arithmetic import as_ball
from accounting.pairs.monotone import Cell, RayPair
from accounting.pairs.pair import Coordinates, Loss, largest_known
from dpcore.errors import PrecisionExhausted
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, ball
from dpcore.numbers.integer_search import least

_SUMMED: Final = 64
_WIDEST: Final = 8
_FAR: Final = 1 << 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftedPair(RayPair):
    r"""The pair (X, X - ``shift``) for symmetric log-concave noise X and a shift >= 1.

    >>> from dpcore import DiscreteLaplace
    >>> pair = ShiftedPair(noise=DiscreteLaplace(scale=10), shift=1)
    >>> pair.delta(Fraction(0)).str(10, radius=False)
    '0.04995837496'
    """

    strict: ClassVar[bool] = False
    r"""Whether the masses decrease strictly from 0, so that only -d/2 may have a loss of 0."""

    noise: Noise
    shift: int

    @property
    def sign(self) -> int:
        r"""The sign s of the pair of sX."""
        return 1

    def loss(self, m: int) -> Loss:
        r"""The loss log p(m)/p(m+d); infinite beyond either end of the support."""
        here, there = self.noise.pmf_ball(m), self.noise.pmf_ball(m + self.shift)
        if here == 0 or there == 0:
            # m determines the end, as the union of the two supports is symmetric around -d/2.
            return arb("inf") if 2 * m > -self.shift else arb("-inf")
        return (here / there).log()

    def lowest(self) -> float:
        r"""A lower bound on the m of every optimal test: L(m) = -L(-d-m) <= 0 for 2m <= -d."""
        return -(self.shift // 2)

    def near(self, epsilon: Fraction) -> int:
        r"""The start of the search for the first loss above epsilon: any value is valid."""
        del epsilon
        return -(self.shift // 2)

    def even(self, m: int) -> bool:
        r"""Whether L(m) is known to be exactly 0, which balls cannot decide."""
        del m
        return False

    def ray(self, epsilon: Fraction) -> Cell | None:
        r"""The first m with L above epsilon; a range if balls cannot separate L from epsilon."""
        if self.strict and epsilon == 0:
            return (-self.shift // 2 + 1,) * 2
        if epsilon >= largest_known(self).upper:
            return None
        level, start = ball(epsilon), self.lowest()

        def exceeds(m: int) -> bool:
            loss = as_ball(self.loss(m))
            if loss.is_nan() and m > _FAR:
                raise PrecisionExhausted("the masses are too small for an enclosure")
            return m >= start and bool(loss > level)

        try:
            last = least(exceeds, math.floor(max(self.near(epsilon), start)))
        except PrecisionExhausted:
            raise NotDerived(
                f"whether a loss of {self.noise!r} exceeds {epsilon}",
                "its largest loss is unknown: use a smaller epsilon, or add a pair for this law",
            ) from None
        first = last
        while first > start and last - first < _WIDEST:
            if as_ball(self.loss(first - 1)) <= level or (epsilon == 0 and self.even(first - 1)):
                break
            first -= 1
        return first, last

    def tails(self, m: int) -> tuple[arb, arb]:
        r"""A(m) - B(m) and B(m), for the tails A(m) = P(sX >= m) and B(m) = P(sX >= m+d)."""
        rest = self._above(m + self.shift)
        if self.shift > _SUMMED:
            return self._above(m) - rest, rest
        masses = (self.noise.pmf_ball(self.sign * (m + j)) for j in range(self.shift))
        return sum(masses, arb(0)), rest

    def _above(self, m: int) -> arb:
        return self.noise.sf_ball(m - 1) if self.sign > 0 else self.noise.cdf_ball(-m)

    def below(self, m: int) -> arb:
        r"""The mass P(sX < m)."""
        return self.noise.cdf_ball(m - 1) if self.sign > 0 else self.noise.sf_ball(-m)

    def largest_loss(self) -> Enclosure:
        r"""Always raises :class:`NotDerived`: the mass function alone does not determine it."""
        raise NotDerived(f"the largest loss of {self.noise!r}", "use epsilon(delta) with delta > 0")

    def coordinates(self) -> Coordinates:
        r"""The coordinates with masses p(sm) and p(s(m+d))."""
        return Coordinates(noise=self.noise, there=self.sign * self.shift, sign=self.sign)
