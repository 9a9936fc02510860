r"""Pairs for noise on 0, 1, 2, ...: it is asymmetric, so both directions are needed.

X on {0, 1, ...} (up to n for the binomial law) against X - d, and X - d against X, which is the
pair of -X under the same shift. Under each dataset there are outputs that the other cannot produce:
in the second direction X < d, in the first, for the binomial law, X > n - d. So the largest loss
and every Renyi divergence are infinite, and epsilon(delta) is infinite for delta below that mass.
Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from flint import arb

from accounting.pairs.log_concave import ShiftedPair
from accounting.pairs.pair import Loss, Pair
from dpcore.numbers.enclosure import Enclosure

_MOST_EXACT: Final = 1 << 12


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSidedPair(ShiftedPair):
    r"""The pair (X, X - d), or if ``mirrored`` (-X, -X - d), for a log-concave X >= 0.

    ``most`` is the largest value of X, None if there is none.
    """

    mirrored: bool = True

    @property
    def sign(self) -> int:
        return -1 if self.mirrored else 1

    # -- what a law provides ------------------------------------------------------------------

    @property
    def most(self) -> int | None:
        r"""The largest value of X, or None if there is none."""
        return None

    @abstractmethod
    def log_odds(self, k: int) -> arb:
        r"""The log odds log p(k)/p(k+d), increasing in k, where both values have mass."""

    @abstractmethod
    def odds(self, k: int) -> Fraction | None:
        r"""The odds p(k)/p(k+d), if rational."""

    @abstractmethod
    def crossing(self, level: float) -> float:
        r"""The approximate k with log_odds(k) = ``level``; raises ArithmeticError without one."""

    # -- the pair -----------------------------------------------------------------------------

    def mirror(self) -> Pair:
        return replace(self, mirrored=not self.mirrored)

    def loss(self, m: int) -> arb:
        r"""The loss log p(m)/p(m+d), or log p(-m)/p(-m-d); infinite beyond an end of a support."""
        here, there = (-m, -m - self.shift) if self.mirrored else (m, m + self.shift)
        if not self._possible(here):
            # Outside the support of P, any loss that keeps the order is valid: to the left of all
            # its values -infinity, to the right +infinity.
            least = 0 if not self.mirrored else -math.inf if self.most is None else -self.most
            return arb("-inf") if m < least else arb("inf")
        if not self._possible(there):
            return arb("inf")
        return -self.log_odds(there) if self.mirrored else self.log_odds(here)

    def _possible(self, k: int) -> bool:
        return k >= 0 and (self.most is None or k <= self.most)

    def near(self, epsilon: Fraction) -> int:
        r"""The first m by the inverse of log_odds in floats; any integer is sound."""
        try:
            level = float(-epsilon if self.mirrored else epsilon)
            k = math.floor(self.crossing(level))
        except (ArithmeticError, ValueError):
            return 0
        return -k - self.shift if self.mirrored else k

    def lowest(self) -> float:
        r"""No lower bound: the law is asymmetric."""
        return -math.inf

    def even(self, m: int) -> bool:
        r"""Whether L(m) = 0, exactly, if the odds are rational."""
        if self.shift > _MOST_EXACT:
            return False
        return self.odds(-m - self.shift if self.mirrored else m) == 1

    def hidden(self) -> Loss:
        r"""The mass of infinite loss: P(X > most - d), or P(X < d) if mirrored."""
        if self.most is not None and self.shift > self.most:
            return Fraction(1)
        if self.mirrored:
            return self.noise.cdf_ball(self.shift - 1)
        return Fraction(0) if self.most is None else self.noise.sf_ball(self.most - self.shift)

    def largest_loss(self) -> Enclosure:
        r"""Infinite, as some outcome has mass under only one dataset, or the loss is unbounded."""
        return Enclosure.infinite()

    def renyi(self, order: Fraction) -> Loss:
        r"""D_alpha: infinite if a loss is infinite; otherwise :class:`NotDerived` is raised."""
        if self.mirrored or self.most is not None:
            return arb("inf")
        return ShiftedPair.renyi(self, order)

    def zcdp(self) -> Loss | Enclosure:
        r"""The zCDP parameter, infinite in the same cases as the Renyi divergences."""
        return self.renyi(Fraction(2)) if self.mirrored else ShiftedPair.zcdp(self)

    def bends(self) -> tuple[int, ...]:
        r"""The last m in both supports: from the next m on L is infinite."""
        if self.mirrored:
            return (-self.shift,)
        return () if self.most is None else (self.most - self.shift,)
