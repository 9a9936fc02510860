r"""Pairs with an increasing loss L(m), for which every optimal test is a ray {m, m+1, ...}.

With A(m) = P([m, oo)) and B(m) = Q([m, oo)):

    delta(epsilon)  = max_m  A(m) - e^epsilon B(m)
    epsilon(delta)  = max(0, max_m  log((A(m) - delta)/B(m)))
    tradeoff(alpha) = max_m  1 - A(m) + e^(L(m-1)) (B(m) - alpha)

This module encloses these for any law that provides its loss and its tails. Proofs:
docs/proofs/curve.md.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

from flint import arb

from accounting.errors import NotDerived
from accounting.pairs.ball_arithmetic import as_ball, hull, middle
from accounting.pairs.pair import ClosedPair, Loss, largest_known
from dpcore.numbers.enclosure import ball
from dpcore.numbers.integer_search import least

Cell: TypeAlias = tuple[int, int]
"""(first, last): the least m with L(m) > epsilon is certified to lie in first..last."""

_STEPS: Final = 100
_WIDEST_TIE: Final = 4
_NEARBY: Final = 4
_ALMOST: Final = 1 - Fraction(1, 1 << 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class RayPair(ClosedPair):
    r"""(P, Q) on integers m, with the loss increasing in m. Balls have the ambient precision."""

    # -- what a law provides ------------------------------------------------------------------

    @abstractmethod
    def ray(self, epsilon: Fraction) -> Cell | None:
        r"""The first m at which L exceeds epsilon >= 0; None if there is none."""

    @abstractmethod
    def tails(self, m: int) -> tuple[arb, arb]:
        r"""The tails (A(m) - B(m), B(m)), each with a small relative error."""

    @abstractmethod
    def below(self, m: int) -> arb:
        r"""The mass P((-oo, m)) = 1 - A(m), with a small relative error."""

    def start(self, delta: Fraction) -> Fraction:
        r"""The start of the search for epsilon(delta): any value is valid, a close one is fast."""
        del delta
        return Fraction(0)

    # -- delta(epsilon) -----------------------------------------------------------------------

    def delta(self, epsilon: Fraction) -> arb:
        r"""The hockey-stick divergence at epsilon >= 0."""
        cell = self.ray(epsilon)
        if cell is None:
            return arb(0)
        if cell[1] - cell[0] > _WIDEST_TIE:
            return unknown_probability()
        # The payoff of a ray increases up to the best ray and decreases after it: the best ray is
        # in the cell, and the hull of the cell's payoffs contains its payoff.
        tails = (self.tails(m) for m in range(cell[0], cell[1] + 1))
        return hull(gap - ball(epsilon).expm1() * rest for gap, rest in tails)

    # -- epsilon(delta) -----------------------------------------------------------------------

    def guess(self, delta: Fraction) -> int | None:
        r"""A ray close to the optimum for epsilon(delta), or None if the precision is too low.

        The method is Newton's on log delta(epsilon) within a bracket; it affects only the speed.
        """
        goal, bottom = ball(delta).log(), self.bottom()
        low, high = Fraction(-1), largest_known(self).upper
        if isinstance(high, Fraction) and self._ray_or(high * _ALMOST, bottom) == bottom:
            return bottom
        epsilon = max(self.start(delta), Fraction(0))
        if isinstance(high, Fraction):
            epsilon = min(epsilon, high / 2)
        before, followed = None, False
        for _ in range(_STEPS):
            ray = self._ray_or(epsilon, bottom)
            # A repeated ray is the answer only after a full Newton step: a truncated step may
            # return to its starting ray, however far away the answer is.
            if ray == before and followed:
                return ray
            gap, rest = self.tails(ray)
            payoff = gap - ball(epsilon).expm1() * rest
            step = (payoff.log() - goal) * payoff / (rest * ball(epsilon).exp())
            if not step.is_finite():
                return None
            if step > 0:
                low = epsilon
            elif epsilon == 0:
                return ray
            else:
                high = epsilon
            # Where Q has little mass left the tangent is flat, and its root is far too large.
            most = epsilon + 1
            followed = not step > ball(most)
            # A target below 0 is replaced by -1, as it may be a number of a billion digits.
            far = followed and not step > -ball(most)
            move = -most if far else middle(step) if followed else most
            before, epsilon = ray, epsilon + move
            if low < 0:
                epsilon = max(epsilon, Fraction(0))
            elif not low < epsilon < high:
                followed = False
                epsilon = (low + high) / 2 if isinstance(high, Fraction) else 2 * low
        return before

    def epsilon(self, delta: Fraction, guess: int | None) -> arb:
        r"""The epsilon at delta > 0; wide or infinite if the precision is too low.

        Each ray gives a lower bound E(m) = log((A(m) - delta)/B(m)); the one that attains it is the
        m with L(m-1) <= E(m) <= L(m). Rays are tried from ``guess`` until both comparisons are
        certified. If E(m) cannot be separated from L(m), ray m + 1 is computed too, and the result
        encloses all bounds that were kept.
        """
        bottom = self.bottom()
        start = self._left_end(bottom if guess is None else max(guess, bottom), bottom, delta)
        if start is None:
            return arb("nan")
        first, value = start
        last, found = first, [value]
        while not found[-1] <= as_ball(self.loss(last)):
            if last - first == _WIDEST_TIE:
                return arb("nan")
            last += 1
            found.append(self.bound(last, delta))
        # If the last ray gives no bound it is not the deciding ray: see the proof.
        value = hull(found[:-1] if len(found) > 1 and found[-1] == arb("-inf") else found)
        if first > bottom or value > 0:
            return value
        return arb(0) if value <= 0 else hull([arb(0), value.upper()])

    def _left_end(self, ray: int, bottom: int, delta: Fraction) -> tuple[int, arb] | None:
        # A ray m with L(m-1) <= E(m), and E(m): the deciding ray is m or to its right. The
        # best ray at epsilon = E(m) has a better bound than m: Newton's method, in e^epsilon.
        back = 1
        for _ in range(_STEPS):
            value = self.bound(ray, delta)
            if value.is_nan():
                return None
            certified = ray == bottom or bool(value >= as_ball(self.loss(ray - 1)))
            if certified and not (value.is_finite() and value > as_ball(self.loss(ray))):
                return ray, value
            better = self._ray_or(middle(value), ray) if value.is_finite() and value > 0 else ray
            if certified and better == ray:
                return ray, value
            # From the right, single steps are tried first: in a far tail Newton jumps back too far.
            if certified or (back > _NEARBY and better != ray):
                ray = better
            else:
                ray, back = max(ray - back, bottom), 2 * back
        return None

    def bound(self, m: int, delta: Fraction) -> arb:
        r"""The lower bound E(m) = log((A(m) - delta)/B(m)); -oo if A(m) <= delta.

        Also -oo if A(m) = delta cannot be excluded but E(m) < 0 is certain, which bounds nothing.
        """
        gap, rest = self.tails(m)
        left = gap - ball(delta)
        if left + rest <= 0 or (left < 0 and not left + rest > 0):
            return arb("-inf")
        if rest == 0:
            return arb("inf") if left > 0 else arb("nan")
        return (left / rest).log1p()

    def smallest_loss(self) -> Loss:
        r"""The loss of the lowest ray, or of one before it if the precision leaves a tie."""
        return self.loss(self.bottom())

    def bottom(self) -> int:
        r"""The least ray with a positive loss, the optimum at epsilon = 0."""
        # Two different laws have a positive loss somewhere, so the cell exists.
        return (self.ray(Fraction(0)) or (0, 0))[0]

    def _ray_or(self, epsilon: Fraction, otherwise: int) -> int:
        # Used only by the search: a ray that is not certified is not tried.
        try:
            cell = self.ray(epsilon)
        except NotDerived:
            return otherwise
        return otherwise if cell is None else cell[1]

    # -- tradeoff(alpha) ----------------------------------------------------------------------

    def tradeoff(self, alpha: Fraction) -> arb:
        r"""The least type II error of a test of Q against P with type I error alpha in (0, 1).

        The test rejects Q on a ray, and with some probability at the value before it.
        """
        level = ball(alpha)
        last = least(lambda m: bool(self.tails(m)[1] <= level), 0)
        first = last
        while not self.tails(first - 1)[1] > level:
            if last - first == _WIDEST_TIE:
                return unknown_probability()
            first -= 1
        # B(first-1) > alpha >= B(last): the line of the correct cell is among these.
        return hull(self._line(m, level) for m in range(first, last + 1))

    def _line(self, m: int, level: arb) -> arb:
        return self.below(m) - as_ball(self.loss(m - 1)).exp() * (level - self.tails(m)[1])


def unknown_probability() -> arb:
    r"""The ball [0, 1]; a higher precision may give a narrower one."""
    return arb(0.5, 0.5)
