r"""A law and its shifted copy: the two worlds that neighbouring data make of one release.

P is the law of the output under one dataset, Q the law under the other, both on integers m, with
the loss L(m) = log P(m)/Q(m). This file says what a curve asks of such a pair; ``ray`` answers for
the laws whose loss rises, ``log_convex`` for those whose loss rises and then falls, and ``laws``
says which law has which. Where P and Q swap under a reflection (the noise is symmetric) one
direction stands for both; elsewhere ``mirror`` is the other one.
Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from flint import arb

from accounting.errors import NotDerived
from accounting.pairs.losses import Losses
from accounting.pairs.renyi import supremum_over_orders
from dpcore.numbers.enclosure import Enclosure

__all__ = ["Loss", "Pair"]

Loss: TypeAlias = Fraction | arb
"""A loss or divergence: exact where it is rational, else a ball (possibly infinite)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair(ABC):
    r"""(P, Q) of one noise under one shift. Balls are at the ambient precision."""

    @abstractmethod
    def loss(self, m: int) -> Loss:
        r"""L(m) = log P(m)/Q(m)."""

    @abstractmethod
    def delta(self, epsilon: Fraction) -> arb:
        r"""The hockey-stick divergence at epsilon >= 0."""

    @abstractmethod
    def guess(self, delta: Fraction) -> int | None:
        r"""A place near the one that decides epsilon(delta), or None at too low a precision.

        Nothing rests on the result but speed.
        """

    @abstractmethod
    def epsilon(self, delta: Fraction, guess: int | None) -> arb:
        r"""The inverse of delta at delta > 0; wide or not finite where the precision is too low."""

    @abstractmethod
    def smallest_loss(self) -> Loss:
        r"""About the smallest positive loss: what is far below it is 0 for a width."""

    @abstractmethod
    def tradeoff(self, alpha: Fraction) -> arb:
        r"""The least type II error of a test of Q against P with type I error alpha in (0, 1)."""

    @abstractmethod
    def largest_loss(self) -> Enclosure:
        r"""sup_m L(m) = epsilon(0), possibly infinite; or raises :class:`NotDerived`."""

    def mirror(self) -> Pair:
        r"""The pair (Q, P), or this one itself where a reflection swaps P and Q."""
        return self

    def hidden(self) -> Loss:
        r"""P(L = oo): the mass that the other world never shows; 0 where the supports agree."""
        raise NotDerived("the mass outside the shifted support of this noise", "use alpha > 0")

    def losses(self, tilt: Fraction, bits: int) -> Losses:
        r"""A listing with beyond(c) <= 2^-bits E[e^(cL); L < oo] for every 0 < c <= ``tilt``.

        beyond is finite for c <= 2 ``tilt``. Raises :class:`NotDerived` where a law has none, or
        too long a one.
        """
        del tilt, bits
        raise NotDerived(f"a listing of the losses of {self!r}", "compose its guarantee instead")

    def renyi(self, order: Fraction) -> Loss:
        r"""D_alpha(P || Q) for alpha = ``order`` > 1."""
        raise NotDerived(f"the Renyi divergence of order {order} of this noise", "use the curve")

    def zcdp(self) -> Loss | Enclosure:
        r"""sup over alpha > 1 of D_alpha/alpha: searched, where no theorem of the law gives it."""
        largest = self.largest_loss().upper
        if not isinstance(largest, Fraction):
            raise NotDerived("the zCDP parameter of this noise", "use the curve")
        return supremum_over_orders(self.renyi, largest)
