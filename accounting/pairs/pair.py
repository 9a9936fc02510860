r"""The output laws of a release on two neighbouring datasets: a noise law and its shifted copy.

P is the law of the output on one dataset, Q the law on the other. Both are laws on the integers m,
with the privacy loss L(m) = log(P(m)/Q(m)). :class:`Pair` is the interface of such a pair, and
``law_pairs`` defines the pair of each noise law. If a reflection swaps P and Q (symmetric noise),
the pair (P, Q) suffices. If not, :meth:`Pair.mirror` returns the other direction (Q, P).

:class:`RayPair` is for laws with an increasing loss. Then every optimal test rejects on a ray
{m, m+1, ...}, and the curves are enclosed by a search for the optimal m. With A(m) = P([m, oo)) and
B(m) = Q([m, oo)):

    delta(epsilon)  = max_m  A(m) - e^epsilon B(m)
    epsilon(delta)  = max(0, max_m  log((A(m) - delta)/B(m)))
    tradeoff(alpha) = max_m  1 - A(m) + e^(L(m-1)) (B(m) - alpha)

:class:`ShiftedPair` needs only the mass function p of a symmetric log-concave law, because
L(m) = log p(m)/p(m+d) is then increasing for every shift d. Laws without an increasing loss are
discretised (:mod:`accounting.pld`). Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import ClassVar, Final, Protocol, TypeAlias

from flint import arb

from accounting.errors import NotDerived
from accounting.pairs.enclose_curve import (
    as_ball,
    hull,
    middle,
    narrowed,
    supremum_over_orders,
    within,
)
from dpcore.errors import PrecisionExhausted
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, ball, precision
from dpcore.numbers.integer_search import least

_BITS: Final = 64

Loss: TypeAlias = Fraction | arb
"""A loss or divergence: exact where it is rational, otherwise a ball (possibly infinite)."""

Cell: TypeAlias = tuple[int, int]
"""(first, last): the least m with L(m) > epsilon is certified to lie in first..last."""

_STEPS: Final = 100
_WIDEST_TIE: Final = 4
_NEARBY: Final = 4
_ALMOST: Final = 1 - Fraction(1, 1 << 32)
_SUMMED: Final = 64
_WIDEST: Final = 8
_FAR: Final = 1 << 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    r"""P and Q as shifted copies of the mass function p of ``noise``.

    P(m) = p(``sign`` m + ``here``) and Q(m) = p(``sign`` m + ``there``).
    """

    noise: Noise
    here: int = 0
    there: int
    sign: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair(ABC):
    r"""The pair (P, Q) of a noise law and its copy under one shift.

    L is the privacy loss log(P(m)/Q(m)). All balls are computed at the current precision.
    """

    everywhere: ClassVar[bool] = False
    r"""Whether each outcome has mass under both laws, so that no loss is infinite."""

    @abstractmethod
    def loss(self, m: int) -> Loss:
        r"""The loss L(m) = log(P(m)/Q(m))."""

    @abstractmethod
    def largest_loss(self) -> Enclosure:
        r"""The largest loss, possibly infinite; raises :class:`NotDerived` if it is unknown."""

    def mirror(self) -> Pair:
        r"""The pair (Q, P), or this pair if a reflection swaps P and Q."""
        return self

    def hidden(self) -> Loss:
        r"""The P-mass of outcomes impossible under Q; raises :class:`NotDerived` if unknown."""
        if self.everywhere:
            return Fraction(0)
        raise NotDerived("the mass outside the shifted support of this noise", "use alpha > 0")

    def offsets(self) -> Offsets:
        r"""P and Q as shifted copies of one law; raises :class:`NotDerived` if they are not."""
        raise NotDerived(f"a table of the losses of {self!r}", "compose its guarantee instead")

    def mass_balls(self, first: int, last: int) -> list[arb] | None:
        r"""The noise masses from ``first`` to ``last``; None if the caller must use ``pmf``."""
        del first, last
        return None

    def losses_beyond(self, m: int, *, right: bool) -> tuple[arb, arb]:
        r"""Lower and upper bounds on L on one side of m, including m.

        The side is {m, m+1, ...} if ``right`` is true, else {..., m-1, m}. The default
        implementation is for an increasing L.
        """
        here = as_ball(self.loss(m))
        largest, least = largest_known(self).upper, largest_known(self.mirror()).upper
        if right:
            return here, ball(largest) if isinstance(largest, Fraction) else arb("inf")
        return -ball(least) if isinstance(least, Fraction) else arb("-inf"), here

    def bends(self) -> tuple[int, ...]:
        r"""The turning points of L, and the last m before L becomes infinite."""
        return ()

    def constant_beyond(self) -> tuple[int, int] | None:
        r"""Integers (a, b): L is constant for m <= a and for m >= b; None if none are known."""
        return None

    def renyi(self, order: Fraction) -> Loss:
        r"""The Renyi divergence D_alpha(P || Q), alpha = ``order`` > 1."""
        raise NotDerived(f"the Renyi divergence of order {order} of this noise", "use delta()")

    def zcdp(self) -> Loss | Enclosure:
        r"""The zCDP parameter of (P, Q): the supremum of D_alpha/alpha over alpha > 1."""
        if not isinstance(self.largest_loss().upper, Fraction):
            raise NotDerived("the zCDP parameter of this noise", "use delta()")
        return supremum_over_orders(self.renyi, self.bound_beyond)

    def bound_beyond(self, order: Fraction) -> Loss:
        r"""An upper bound on D_alpha/alpha that holds for all alpha >= ``order``."""
        return Fraction(self.largest_loss().upper) / order


class _Lossy(Protocol):
    def largest_loss(self) -> Enclosure: ...


def largest_known(source: _Lossy) -> Enclosure:
    r"""The largest loss, or [0, infinity] if it is unknown."""
    try:
        return source.largest_loss()
    except NotDerived:
        return Enclosure(Fraction(0), math.inf)


class ClosedPair(Pair):
    r"""A pair whose curves can be enclosed to any requested width, without discretisation."""

    __slots__ = ()

    @abstractmethod
    def delta(self, epsilon: Fraction) -> arb:
        r"""The hockey-stick divergence at ``epsilon`` >= 0."""

    @abstractmethod
    def guess(self, delta: Fraction) -> int | None:
        r"""An m close to the optimal one for ``epsilon(delta)``; None if the precision is too low.

        Only speed depends on this value.
        """

    @abstractmethod
    def epsilon(self, delta: Fraction, guess: int | None) -> arb:
        r"""The epsilon at ``delta`` > 0; a wide ball or NaN if the precision is too low."""

    @abstractmethod
    def smallest_loss(self) -> Loss:
        r"""The approximate smallest positive loss, relative to which a tiny epsilon is enclosed."""

    @abstractmethod
    def tradeoff(self, alpha: Fraction) -> arb:
        r"""The least type II error of a test of Q against P with type I error 0 < ``alpha`` < 1."""

    def enclose_delta(self, epsilon: Fraction, bits: int) -> Enclosure:
        r"""The hockey-stick divergence at ``epsilon`` >= 0, to a relative width of 2^-bits."""
        return within(narrowed(partial(self.delta, epsilon), bits), Fraction(0), Fraction(1))

    def enclose_epsilon(self, delta: Fraction, bits: int) -> Enclosure:
        r"""The epsilon at 0 < ``delta`` < 1, to a relative width of 2^-bits.

        If 0 < epsilon < 2^-bits times the smallest positive loss, the width is relative to that
        loss instead of epsilon.
        """
        for working in (_BITS, 2 * _BITS, 8 * _BITS):
            with precision(working):
                guess = self.guess(delta)
                smallest = Enclosure.of(as_ball(self.smallest_loss())).lower
            if guess is not None:
                break
        negligible = Fraction(smallest) / 2**bits if 0 < smallest < math.inf else Fraction(0)
        found = narrowed(lambda: self.epsilon(delta, guess), bits, negligible)
        return within(found, Fraction(0), math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class RayPair(ClosedPair):
    r"""A pair on the integers m whose loss L is increasing in m, so that optimal tests are rays.

    A(m) and B(m) are the masses of the ray {m, m+1, ...} under P and under Q.
    """

    # -- what a law provides ------------------------------------------------------------------

    @abstractmethod
    def ray(self, epsilon: Fraction) -> Cell | None:
        r"""A range (first, last) that contains the first m with L > ``epsilon``.

        The result is None if no m has such a loss.
        """

    @abstractmethod
    def tails(self, m: int) -> tuple[arb, arb]:
        r"""A(m) - B(m) and B(m), each with a small relative error."""

    @abstractmethod
    def below(self, m: int) -> arb:
        r"""The mass 1 - A(m) below m under P, with a small relative error."""

    def start(self, delta: Fraction) -> Fraction:
        r"""The starting value of the search for ``epsilon(delta)``; any value is valid."""
        del delta
        return Fraction(0)

    # -- delta(epsilon) -----------------------------------------------------------------------

    def delta(self, epsilon: Fraction) -> arb:
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
        # Newton's method on log delta(epsilon) within a bracket.
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
        r"""The epsilon at ``delta`` > 0; NaN if the precision is too low.

        Every m gives a lower bound E(m) = log((A(m) - delta)/B(m)). The largest one is
        epsilon(delta), attained by an m with L(m-1) <= E(m) <= L(m). Integers m near ``guess`` are
        tried until both comparisons are certified. If E(m) and L(m) cannot be separated, m + 1 is
        tried too, and the result contains all bounds E that may be the largest.
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
        r"""The lower bound E(m) = log((A(m) - delta)/B(m)) on epsilon(delta).

        It is -infinity if A(m) <= delta. It is also -infinity if this cannot be excluded but
        E(m) < 0 is certain, since a negative bound is useless.
        """
        gap, rest = self.tails(m)
        left = gap - ball(delta)
        if left + rest <= 0 or (left < 0 and not left + rest > 0):
            return arb("-inf")
        if rest == 0:
            return arb("inf") if left > 0 else arb("nan")
        return (left / rest).log1p()

    def smallest_loss(self) -> Loss:
        return self.loss(self.bottom())

    def bottom(self) -> int:
        r"""The first m with a positive loss; at a low precision, possibly a smaller m."""
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
        # The test rejects Q on a ray, and with some probability at the value before it.
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
    r"""The ball [0, 1], returned if the precision is too low to bound a probability."""
    return arb(0.5, 0.5)


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
        r"""The sign s for which the pair is (sX, sX - d), where X is the noise and d the shift."""
        return 1

    def loss(self, m: int) -> Loss:
        here, there = self.noise.pmf_ball(m), self.noise.pmf_ball(m + self.shift)
        if here == 0 or there == 0:
            # m determines the end, as the union of the two supports is symmetric around -d/2.
            return arb("inf") if 2 * m > -self.shift else arb("-inf")
        return (here / there).log()

    def lowest(self) -> float:
        r"""A lower bound on the optimal m: by symmetry, L(m) <= 0 for 2m <= -d."""
        return -(self.shift // 2)

    def near(self, epsilon: Fraction) -> int:
        r"""The starting value of the search for the first loss above ``epsilon``; any is valid."""
        del epsilon
        return -(self.shift // 2)

    def even(self, m: int) -> bool:
        r"""Whether L(m) is known to be exactly 0, which ball arithmetic alone cannot prove."""
        del m
        return False

    def ray(self, epsilon: Fraction) -> Cell | None:
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
        # A(m) = P(sX >= m) and B(m) = P(sX >= m+d).
        rest = self._above(m + self.shift)
        if self.shift > _SUMMED:
            return self._above(m) - rest, rest
        masses = (self.noise.pmf_ball(self.sign * (m + j)) for j in range(self.shift))
        return sum(masses, arb(0)), rest

    def _above(self, m: int) -> arb:
        return self.noise.sf_ball(m - 1) if self.sign > 0 else self.noise.cdf_ball(-m)

    def below(self, m: int) -> arb:
        return self.noise.cdf_ball(m - 1) if self.sign > 0 else self.noise.sf_ball(-m)

    def largest_loss(self) -> Enclosure:
        # The mass function does not determine the largest loss.
        raise NotDerived(f"the largest loss of {self.noise!r}", "use epsilon(delta) with delta > 0")

    def offsets(self) -> Offsets:
        return Offsets(noise=self.noise, there=self.sign * self.shift, sign=self.sign)
