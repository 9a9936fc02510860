r"""A noise law and its shifted copy: the output laws of a release on neighbouring datasets.

P is the law of the output under one dataset, Q the law under the other, both on integers m, with
the loss L(m) = log P(m)/Q(m). This file defines the interface of such a pair; ``monotone``
implements it for laws with increasing loss, the listings of :mod:`accounting.pld` for all others,
and ``law_pairs`` registers the pair of each law. If a reflection swaps P and Q (symmetric noise),
one direction suffices; otherwise ``mirror`` is the other one. Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Protocol, TypeAlias

from flint import arb

from accounting.errors import NotDerived
from accounting.pairs.ball_arithmetic import as_ball
from accounting.pairs.renyi_supremum import supremum_over_orders
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, ball

Loss: TypeAlias = Fraction | arb
"""A loss or divergence: exact where it is rational, otherwise a ball (possibly infinite)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinates:
    r"""P(m) = p(``sign`` m + ``here``), Q(m) = p(``sign`` m + ``there``), p the ``noise`` law."""

    noise: Noise
    here: int = 0
    there: int
    sign: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair(ABC):
    r"""The pair (P, Q) of one noise law and one shift. Balls have the ambient precision."""

    everywhere: ClassVar[bool] = False
    r"""Whether each outcome has mass under both laws, so that no loss is infinite."""

    @abstractmethod
    def loss(self, m: int) -> Loss:
        r"""The loss L(m) = log P(m)/Q(m)."""

    @abstractmethod
    def largest_loss(self) -> Enclosure:
        r"""The largest loss, possibly infinite; raises :class:`NotDerived` if it is unknown."""

    def mirror(self) -> Pair:
        r"""The pair (Q, P), or this pair if a reflection swaps P and Q."""
        return self

    def hidden(self) -> Loss:
        r"""The mass P(L = oo) of outcomes that Q cannot produce; 0 if the supports agree."""
        if self.everywhere:
            return Fraction(0)
        raise NotDerived("the mass outside the shifted support of this noise", "use alpha > 0")

    def coordinates(self) -> Coordinates:
        r"""The noise that defines P and Q; raises :class:`NotDerived` if there is none."""
        raise NotDerived(f"a table of the losses of {self!r}", "compose its guarantee instead")

    def mass_balls(self, first: int, last: int) -> list[arb] | None:
        r"""The masses of the noise from ``first`` to ``last``, if its float masses are slow."""
        del first, last
        return None

    def losses_beyond(self, m: int, *, right: bool) -> tuple[arb, arb]:
        r"""Bounds on L at ``m`` and everywhere to its right, or everywhere to its left.

        By default L is increasing, as for most laws.
        """
        here = as_ball(self.loss(m))
        largest, least = largest_known(self).upper, largest_known(self.mirror()).upper
        if right:
            return here, ball(largest) if isinstance(largest, Fraction) else arb("inf")
        return -ball(least) if isinstance(least, Fraction) else arb("-inf"), here

    def bends(self) -> tuple[int, ...]:
        r"""The m at which L changes direction or becomes infinite; it is monotone between them."""
        return ()

    def constant_beyond(self) -> tuple[int, int] | None:
        r"""The pair (a, b) if L is constant on m <= a and on m >= b, otherwise None."""
        return None

    def renyi(self, order: Fraction) -> Loss:
        r"""The Renyi divergence D_alpha(P || Q), alpha = ``order`` > 1."""
        raise NotDerived(f"the Renyi divergence of order {order} of this noise", "use the curve")

    def zcdp(self) -> Loss | Enclosure:
        r"""The supremum of D_alpha/alpha over alpha > 1, by a search unless a theorem gives it."""
        if not isinstance(self.largest_loss().upper, Fraction):
            raise NotDerived("the zCDP parameter of this noise", "use the curve")
        return supremum_over_orders(self.renyi, self.bound_beyond)

    def bound_beyond(self, order: Fraction) -> Loss:
        r"""An upper bound on D_alpha/alpha for all alpha >= ``order``: largest loss/``order``."""
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
    r"""A pair whose curve and tests can be enclosed to any requested width."""

    __slots__ = ()

    @abstractmethod
    def delta(self, epsilon: Fraction) -> arb:
        r"""The hockey-stick divergence at epsilon >= 0."""

    @abstractmethod
    def guess(self, delta: Fraction) -> int | None:
        r"""A position near the optimum for epsilon(delta), or None if the precision is too low.

        Only speed depends on this value.
        """

    @abstractmethod
    def epsilon(self, delta: Fraction, guess: int | None) -> arb:
        r"""The epsilon at delta > 0; wide or infinite if the precision is too low."""

    @abstractmethod
    def smallest_loss(self) -> Loss:
        r"""The approximate smallest positive loss; widths treat far smaller values as 0."""

    @abstractmethod
    def tradeoff(self, alpha: Fraction) -> arb:
        r"""The least type II error of a test of Q against P with type I error alpha in (0, 1)."""
