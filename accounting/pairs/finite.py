r"""A pair with finitely many losses, whose outcomes are in order of increasing loss.

The loss is a sufficient statistic: outcomes with equal loss count as one outcome, so the losses and
their masses determine the pair. Proofs: docs/proofs/curve.md.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final, TypeAlias

from flint import arb

from accounting.pairs.ball_arithmetic import as_ball
from accounting.pairs.monotone import Cell, RayPair
from accounting.pairs.pair import Loss
from dpcore.numbers.enclosure import Enclosure, ball, narrow

Listed: TypeAlias = tuple[tuple[Loss, arb, arb], ...]
"""(loss, P-mass, Q-mass) in order of increasing loss, where P = e^loss Q > 0."""

_BITS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class FinitePair(RayPair):
    r"""P and Q given by their losses; m = 0, 1, ... indexes the outcomes of ``listed()``."""

    everywhere: ClassVar[bool] = True

    @abstractmethod
    def listed(self) -> Listed:
        r"""All losses with their masses, at the ambient precision."""

    def loss(self, m: int) -> Loss:
        r"""The loss of outcome m: -infinity before the first outcome, +infinity after the last."""
        rows = self.listed()
        return rows[m][0] if 0 <= m < len(rows) else arb("-inf" if m < 0 else "inf")

    def ray(self, epsilon: Fraction) -> Cell | None:
        r"""The first loss above ``epsilon``; several are possible if a ball contains it."""
        gaps = [
            loss - epsilon if isinstance(loss, Fraction) else loss - ball(epsilon)
            for loss, _, _ in self.listed()
        ]
        first = sum(bool(gap <= 0) for gap in gaps)
        return None if first == len(gaps) else (first, sum(not gap > 0 for gap in gaps))

    def tails(self, m: int) -> tuple[arb, arb]:
        r"""The sums of Q (e^L - 1) on the side where all terms have the same sign, and of Q."""
        rows, m = self.listed(), max(m, 0)
        rest = sum((q for _, _, q in rows[m:]), arb(0))
        above = bool(rows[m:]) and rows[m][0] >= 0
        moved = (q * as_ball(loss).expm1() for loss, _, q in (rows[m:] if above else rows[:m]))
        gap = sum(moved, arb(0))
        return gap if above else -gap, rest

    def below(self, m: int) -> arb:
        r"""The sum of the P-masses before m."""
        return sum((p for _, p, _ in self.listed()[: max(m, 0)]), arb(0))

    def largest_loss(self) -> Enclosure:
        r"""The last loss, which is attained."""
        last = self.listed()[-1][0]
        if isinstance(last, Fraction):
            return Enclosure.exactly(last)
        return narrow(lambda: as_ball(self.listed()[-1][0]), _BITS)

    def renyi(self, order: Fraction) -> arb:
        r"""The log of the sum of P e^((alpha-1) L), divided by alpha - 1."""
        excess = order - 1
        terms = (p * (ball(excess) * as_ball(loss)).exp() for loss, p, _ in self.listed())
        return sum(terms, arb(0)).log() / ball(excess)
