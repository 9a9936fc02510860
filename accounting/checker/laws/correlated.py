r"""How far one unit moves C x, found again: the squared l2 sensitivity of a strategy matrix C.

A unit in the rounds of a pattern p, at most ``most`` of them and any two at least ``apart`` apart,
moves C x by the root of sum_(i,j in p) G_ij, G = C^T C >= 0. Proofs: docs/proofs/checker.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Final

from accounting.checker.clock import tick
from accounting.checker.laws.law import Unchecked

__all__ = ["STRATEGIES", "Correlated"]

STRATEGIES: Final = {"tree": (), "banded": ("bands",), "toeplitz": ("coefficients",)}
"""The strategies that a certificate may name, with their fields."""

_MOST_WORK: Final = 1 << 18
_BITS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlated:
    r"""A strategy over ``rounds`` rounds, and in which of them a unit may be.

    ``coefficients`` c_0, c_1, ... are those of C_ij = c_(i-j); of ``banded`` they are the first
    ``bands`` of binom(2k, k)/4^k.

    >>> tree = Correlated(strategy="tree", rounds=8, most=2, apart=3)
    >>> tree.squared
    (Fraction(10, 1), Fraction(10, 1))
    """

    strategy: str
    rounds: int
    most: int
    apart: int
    bands: int = 0
    coefficients: tuple[Fraction, ...] = ()

    @property
    def squared(self) -> tuple[Fraction, Fraction]:
        r"""The largest squared length, from below and above.

        Raises :class:`Unchecked` where there are too many patterns, or products below 0.
        """
        if self.strategy == "tree":
            return self._longest_pattern(), self._longest_pattern()
        if any(each < 0 for each in self.coefficients):
            raise Unchecked("a strategy with a coefficient below 0")
        if self.strategy == "banded" or all(a >= b for a, b in pairwise(self.coefficients)):
            return self._of_earliest()
        return self._longest_pattern(), self._longest_pattern()

    def _of_earliest(self) -> tuple[Fraction, Fraction]:
        # Of coefficients that never rise the earliest rounds are the worst: every row of C u, in
        # units of 2^-256. A coefficient is rounded down by less than its place in the column.
        column = self._column()
        places = range(0, self.rounds, self.apart)[: self.most]
        if len(column) * len(places) > _MOST_WORK:
            raise Unchecked("a strategy of too many rounds and participations")
        rows = [0] * self.rounds
        for place in places:
            for k, each in enumerate(column[: self.rounds - place]):
                tick()
                rows[place + k] += each
        slack, scale = len(column) * len(places), 1 << 2 * _BITS
        low = sum(row * row for row in rows)
        high = sum((row + slack) ** 2 for row in rows)
        return Fraction(low, scale), Fraction(high, scale)

    def _column(self) -> list[int]:
        if self.strategy == "toeplitz":
            return [(each.numerator << _BITS) // each.denominator for each in self.coefficients]
        found = [1 << _BITS]
        for k in range(1, self.bands):
            found.append(found[-1] * (2 * k - 1) // (2 * k))
        return found

    def _longest_pattern(self) -> Fraction:
        # Every pattern, round by round.
        best = Fraction(0)
        work = 0
        waiting: list[tuple[tuple[int, ...], Fraction]] = [((), Fraction(0))]
        while waiting:
            chosen, value = waiting.pop()
            best = max(best, value)
            if len(chosen) == self.most:
                continue
            for at in range(chosen[-1] + self.apart if chosen else 0, self.rounds):
                tick()
                work += 1 + len(chosen)
                if work > _MOST_WORK:
                    raise Unchecked("a strategy with too many patterns of rounds")
                more = self._product(at, at) + 2 * sum(self._product(i, at) for i in chosen)
                waiting.append(((*chosen, at), value + more))
        return best

    def _product(self, first: int, second: int) -> Fraction:
        # G_ij, first <= second, counted from 0.
        if self.strategy == "tree":
            return Fraction(sum(1 for _ in self._blocks(first, second)))
        c, gap = self.coefficients, second - first
        last = min(len(c) - gap, self.rounds - second)
        return sum((c[k] * c[k + gap] for k in range(last)), Fraction(0))

    def _blocks(self, first: int, second: int) -> Iterator[int]:
        # The blocks of 2^level rounds with both: those in the binary form of their own end.
        for level in range(self.rounds.bit_length()):
            block = first >> level
            if block % 2 == 0 and block == second >> level and block + 1 << level <= self.rounds:
                yield level
