r"""Laws that are not symmetric, in both directions: the pairs of noise on 0, 1, 2, ...

X on {0, 1, ...} (to n for the binomial law) against X - d, and X - d against X, which is the pair
of -X under the same shift. Each world shows values that the other never does: in the second
direction X < d, in the first, for the binomial law, X > n - d. So the largest loss and every Renyi
divergence are infinite, and epsilon(delta) is infinite for delta below that mass.

A listing is read in values k of X. X against X - d: t(k) = p(k) (p(k)/p(k+d))^c, the loss rising in
k. The mirrored direction: t(k) = p(k) (p(k)/p(k-d))^c for k >= d, the loss falling in k; k < d is
hidden. Proofs: docs/proofs/curve.md and docs/proofs/cells.md.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Final

from flint import arb

from accounting.pairs.balls import as_ball
from accounting.pairs.listing import Cut, geometric, nothing, outward
from accounting.pairs.log_concave import ShiftedPair
from accounting.pairs.monotone import Cell
from accounting.pairs.pair import Loss, Pair
from dpcore.numbers.enclosure import Enclosure, ball
from dpcore.numbers.integer_search import least

__all__ = ["OneSidedPair", "flat_rest", "one_sided_cut", "one_sided_ends", "two_ended_rest"]

_SUMMED: Final = 64
_WIDEST: Final = 8
_MOST_EXACT: Final = 1 << 12


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSidedPair(ShiftedPair):
    r"""X against X - d, or with ``mirrored`` -X against -X - d, for a log-concave X >= 0.

    ``most`` is the largest value of X, None where there is none.
    """

    mirrored: bool = True

    # -- what a law provides ------------------------------------------------------------------

    @property
    def most(self) -> int | None:
        r"""The largest value of X."""
        return None

    @abstractmethod
    def log_odds(self, k: int) -> arb:
        r"""log p(k)/p(k+d), rising in k, where both values have mass."""

    @abstractmethod
    def odds(self, k: int) -> Fraction | None:
        r"""p(k)/p(k+d) where it is rational."""

    @abstractmethod
    def crossing(self, level: float) -> float:
        r"""About the k with log_odds(k) = ``level``; or raises ArithmeticError."""

    # -- the pair -----------------------------------------------------------------------------

    def mirror(self) -> Pair:
        r"""The other direction."""
        return replace(self, mirrored=not self.mirrored)

    def loss(self, m: int) -> arb:
        r"""log p(m)/p(m+d), or log p(-m)/p(-m-d); infinite beyond an end of a support."""
        here, there = (-m, -m - self.shift) if self.mirrored else (m, m + self.shift)
        if not self._shown(here):
            # Left of every value of P, or right of them all: where the second lies, and P has no
            # mass, any loss will do that keeps the order.
            return arb("-inf") if self._left_of_all(m) else arb("inf")
        if not self._shown(there):
            return arb("inf")
        return -self.log_odds(there) if self.mirrored else self.log_odds(here)

    def _shown(self, k: int) -> bool:
        return k >= 0 and (self.most is None or k <= self.most)

    def _left_of_all(self, m: int) -> bool:
        # P has mass on 0..most, or on -most..0 when mirrored.
        if not self.mirrored:
            return m < 0
        return self.most is not None and m < -self.most

    def near(self, epsilon: Fraction) -> int:
        r"""From the inverse of log_odds, in floats; any integer is sound."""
        try:
            level = float(-epsilon if self.mirrored else epsilon)
            k = math.floor(self.crossing(level))
        except (ArithmeticError, ValueError):
            return 0
        return -k - self.shift if self.mirrored else k

    def ray(self, epsilon: Fraction) -> Cell | None:
        r"""By bisection; ties at epsilon = 0 are settled exactly where the odds are rational."""
        level = ball(epsilon)
        last = least(lambda m: bool(self.loss(m) > level), self.near(epsilon))
        first = last
        while last - first < _WIDEST and not self.loss(first - 1) <= level:
            if epsilon == 0 and self._even(first - 1):
                break
            first -= 1
        return first, last

    def _even(self, m: int) -> bool:
        # Whether L(m) = 0, exactly.
        if self.shift > _MOST_EXACT:
            return False
        return self.odds(-m - self.shift if self.mirrored else m) == 1

    def tails(self, m: int) -> tuple[arb, arb]:
        r"""P(X >= m) and P(X >= m+d), or P(X <= -m) and P(X <= -m-d)."""
        if not self.mirrored:
            return ShiftedPair.tails(self, m)
        rest = self.noise.cdf_ball(-m - self.shift)
        if self.shift > _SUMMED:
            return self.noise.cdf_ball(-m) - rest, rest
        return sum((self.noise.pmf_ball(-m - j) for j in range(self.shift)), arb(0)), rest

    def below(self, m: int) -> arb:
        r"""P(X < m), or P(X > -m)."""
        return self.noise.sf_ball(-m) if self.mirrored else self.noise.cdf_ball(m - 1)

    def hidden(self) -> Loss:
        r"""P(X > most - d), or P(X < d) in the mirrored direction."""
        if self.most is not None and self.shift > self.most:
            return Fraction(1)
        if self.mirrored:
            return self.noise.cdf_ball(self.shift - 1)
        return Fraction(0) if self.most is None else self.noise.sf_ball(self.most - self.shift)

    def largest_loss(self) -> Enclosure:
        r"""Infinite: a mass is hidden, or the loss grows without bound."""
        return Enclosure.infinite()

    def renyi(self, order: Fraction) -> Loss:
        r"""Infinite where a mass is hidden; else the sum is not needed, for the mirror's is."""
        if self.mirrored or self.most is not None:
            return arb("inf")
        return ShiftedPair.renyi(self, order)

    def zcdp(self) -> Loss | Enclosure:
        r"""As every Renyi divergence."""
        return self.renyi(Fraction(2)) if self.mirrored else ShiftedPair.zcdp(self)

    # -- losses -------------------------------------------------------------------------------

    @abstractmethod
    def step(self, k: int) -> arb:
        r"""p(k+1)/p(k), falling in k."""

    @abstractmethod
    def log_step(self, k: float) -> float:
        r"""About log p(k+1)/p(k), in floats, for real k >= 0; nothing rests on it but speed."""

    @abstractmethod
    def rest(self, last: int, mass: arb, loss: arb) -> tuple[Callable[[arb], arb], arb]:
        r"""For X against X - d: a bound on sum_{k > last} p(k) e^(c loss(k)), and sup loss.

        ``mass`` and ``loss`` are those at ``last``.
        """

    def ends(self, tilt: float, need: float) -> tuple[int, int]:
        r"""From the mean outwards."""
        return one_sided_ends(self, tilt, need)

    def cut(self, low: int, high: int) -> Cut:
        r"""In values k of X: p(k) and log p(k)/p(k+d), or in the mirrored direction p(k)/p(k-d)."""
        return one_sided_cut(self, low, high)


def one_sided_ends(pair: OneSidedPair, tilt: float, need: float) -> tuple[int, int]:
    r"""Where the terms have fallen by e^-``need`` for c = 0 and ``tilt``: a guess."""
    (least, most), back = _values(pair), _back(pair)

    def rising(c: float, k: float) -> float:
        if k < least or (most is not None and k > most):
            return need if k < least else -need
        here = pair.log_step(k)
        return here + c * (here - pair.log_step(k + back))

    mean = pair.noise.mean
    start = max(math.floor(mean if isinstance(mean, Fraction) else mean.lower), least)
    start = start if most is None else max(min(start, most), least)
    tilts = ((tilt, need), (0.0, need), (2 * tilt, 1.0))
    first = min(outward(partial(rising, c), start, fall, -1) for c, fall in tilts)
    last = max(outward(partial(rising, c), start, fall) for c, fall in tilts)
    return (-last, -first) if pair.mirrored else (first, last)


def one_sided_cut(pair: OneSidedPair, low: int, high: int) -> Cut:
    r"""The masses by their ratios from one end, and the rests on either side."""
    hidden, (least, most) = as_ball(pair.hidden()), _values(pair)
    if most is not None and most < least:
        return Cut(masses=(), losses=(), left=nothing, right=nothing, hidden=hidden, largest=arb(0))
    first, last = (-high, -low) if pair.mirrored else (low, high)
    first = max(first, least) if most is None else min(max(first, least), most)
    last = max(last, first) if most is None else max(min(last, most), first)
    masses = _masses(pair, first, last)
    others = _masses(pair, first + _back(pair), last + _back(pair))
    losses = tuple((here / there).log() for here, there in zip(masses, others, strict=True))
    # P(X > last) or P(X < first), geometric, where the loss is below that at the end.
    if pair.mirrored:
        step = pair.step(last)
        left = partial(flat_rest, geometric(masses[-1] * step, step), losses[-1])
        right, largest = _near_shift(pair, first, masses[0], losses[0]), -pair.log_odds(0)
    else:
        step = 1 / pair.step(first - 1) if first else arb(0)
        left = partial(flat_rest, geometric(masses[0] * step, step), losses[0])
        right, largest = pair.rest(last, masses[-1], losses[-1])
    return Cut(masses=masses, losses=losses, left=left, right=right, hidden=hidden, largest=largest)


def flat_rest(mass: arb, loss: arb, c: arb) -> arb:
    r"""A mass whose losses are at most ``loss``, at c >= 0."""
    return mass * (c * loss).exp()


def two_ended_rest(
    count: int,
    ratio: tuple[arb, arb],
    near: tuple[arb, arb],
    far: tuple[arb, arb],
    c: arb,
) -> arb:
    r"""``count`` terms beyond the term ``near``, the last of them ``far``: (p, L) for p e^(cL).

    The first of them is ``ratio`` times the near one, (r, s) for r s^c. If that is less than 1,
    they fall and then may rise, so none is above both ends. Infinite otherwise.
    """
    if not ratio[0] * (c * ratio[1].log()).exp() < 1:
        return arb("inf")
    return count * flat_rest(*near, c).max(flat_rest(*far, c))


def _values(pair: OneSidedPair) -> tuple[int, int | None]:
    # The values of X with finite losses; none where the second is below the first.
    if pair.mirrored:
        return pair.shift, pair.most
    return 0, None if pair.most is None else pair.most - pair.shift


def _back(pair: OneSidedPair) -> int:
    # The loss at k compares p(k) with p(k + back).
    return -pair.shift if pair.mirrored else pair.shift


def _masses(pair: OneSidedPair, first: int, last: int) -> tuple[arb, ...]:
    found = [pair.noise.pmf_ball(first)]
    for k in range(first, last):
        found.append(found[-1] * pair.step(k))
    return tuple(found)


def _near_shift(pair: OneSidedPair, first: int, mass: arb, loss: arb) -> Callable[[arb], arb]:
    # The terms at k = d..first-1 of the mirrored direction.
    count = first - pair.shift
    if count == 0:
        return nothing
    step = pair.step(first - 1)
    ratio = 1 / step, pair.step(first - 1 - pair.shift) / step
    far = pair.noise.pmf_ball(pair.shift), -pair.log_odds(0)
    return partial(two_ended_rest, count, ratio, (mass, loss), far)
