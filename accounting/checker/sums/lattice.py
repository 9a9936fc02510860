r"""Totals whose losses lie on one lattice: delta(epsilon) by a finite Fourier sum, fifty digits.

The total is offset + unit S for an integer S, and delta = sum over s >= t of P(S = s)
(1 - e^(epsilon - offset - unit s)), t the least s with a positive term. With z_j = c unit + 2 pi i
j/N and F(z) = E e^(zS) this is (1/N) sum_j F(z_j) e^(-z_j t) (1/(1 - e^(-z_j)) -
e^(epsilon - offset - unit t)/(1 - e^(-z_j - unit))) up to aliases e^(-c unit N).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from accounting.checker.clock import tick, ticking
from accounting.checker.laws.law import Unchecked
from accounting.checker.laws.losses import Grid, Losses
from accounting.checker.laws.masses import REAL, Number, real
from accounting.checker.laws.value import Value
from accounting.checker.sums.tilt import best_tilt, scan, tilted

__all__ = ["Lattice"]

_MOST_STEPS: Final = 1 << 22
_MOST_KEPT: Final = 1 << 12
_BITS: Final = 192
_RELATIVE: Final = REAL.mpf(10) ** -24


@dataclass(frozen=True, slots=True, kw_only=True)
class Lattice:
    r"""A list of rounds whose losses are all ``offset`` + ``unit`` times an integer in total.

    They are tilted by e^(``tilt`` L), and ``size`` is the N of the sum.
    """

    listed: tuple[tuple[Losses, Grid, int], ...]
    offset: Fraction
    unit: Fraction
    blur: float
    tilt: float
    size: int

    @classmethod
    def of(cls, listed: Sequence[tuple[Losses, int]], epsilon: Fraction) -> Lattice | None:
        r"""None where a round has no lattice, or theirs have no common one of a useful grain."""
        gridded = tuple((one, one.grid, count) for one, count in listed if one.grid)
        if len(gridded) < len(listed):
            return None
        units = [grid.unit for _, grid, _ in gridded]
        bottom = math.lcm(*(unit.denominator for unit in units))
        unit = Fraction(math.gcd(*(int(each * bottom) for each in units)), bottom)
        offset = sum((count * grid.offset for _, grid, count in gridded), Fraction(0))
        blur = sum(count * grid.blur for _, grid, count in gridded)
        plain, at = [*listed], float(epsilon)
        c = best_tilt(plain, at)
        level, double = (
            sum(one.count * one.log_moment for one in tilted(plain, t)) - t * at for t in (c, 2 * c)
        )
        # Aliases are 2 e^(-cT) (1 + M(2c) e^(-2c epsilon)) at most: e^-70 of delta or less.
        span = (80 + max(double, 0.0) + max(8 + 2 * math.log1p(c) - level, 0.0)) / c
        size = math.ceil(span / float(unit))
        if size > _MOST_STEPS:
            return None
        return cls(listed=gridded, offset=offset, unit=unit, blur=blur, tilt=c, size=size)

    def deltas(self, epsilons: Sequence[Fraction]) -> list[Value]:
        r"""delta at each epsilon, which are close to each other: one tilt serves all."""
        c, size = self.tilt, self.size
        laws = tilted([(one, count) for one, _, count in self.listed], c)
        # The kernel of a lattice is at most pi^2/4 times that of the line, up to half a period.
        eta, weight = 2 * math.pi / (size * float(self.unit)), 16 * (c * c + c)
        kept = [p.j for p in scan(laws, eta, size // 2, 1e-32, weight) if p.matters]
        if len(kept) > _MOST_KEPT:
            raise Unchecked("too many frequencies matter")
        prepared = [self._prepared(one, grid, count, c) for one, grid, count in self.listed]
        moments = [(j, _product(prepared, j, size)) for j in kept]
        found = [self._delta(c, size, moments, epsilon) for epsilon in epsilons]
        if not self.blur:
            return found
        # Each total is off by the blur at most, and delta falls.
        blur = Fraction(self.blur)
        low = [self._delta(c, size, moments, epsilon + blur) for epsilon in epsilons]
        high = [self._delta(c, size, moments, epsilon - blur) for epsilon in epsilons]
        return [
            Value(value=one.value, error=one.error + down.error + up.error + up.value - down.value)
            for one, down, up in zip(found, low, high, strict=True)
        ]

    def _prepared(self, one: Losses, grid: Grid, count: int, c: float) -> _Waves:
        tilts = ticking(zip(grid.places, one.here, strict=True))
        raw = {s: p * REAL.exp(c * real(grid.unit * s)) for s, p in tilts}
        total = REAL.fsum(raw.values())
        fixed = {s: int(REAL.floor(w / total * (1 << _BITS))) for s, w in raw.items()}
        most = max(map(abs, fixed))
        ends = [(fixed.get(n, 0), fixed.get(-n, 0)) for n in range(1, most + 1)]
        return _Waves(
            centre=fixed.get(0, 0),
            even=tuple(right + left for right, left in ends),
            odd=tuple(right - left for right, left in ends),
            scale=total,
            stride=int(grid.unit / self.unit),
            count=count,
        )

    def _delta(
        self, c: float, size: int, moments: list[tuple[int, Number]], epsilon: Fraction
    ) -> Value:
        step, at = real(self.unit), epsilon - self.offset
        first = math.floor(at / self.unit) + 1
        rest, terms = REAL.exp(real(at - self.unit * first)), []
        for j, moment in moments:
            z = REAL.mpc(c * step, 2 * REAL.pi * j / size)
            turn = REAL.expjpi(-2 * REAL.mpf(j * first % size) / size)
            kernel = 1 / (1 - REAL.exp(-z)) - rest / (1 - REAL.exp(-z - step))
            doubled = 1 if j == 0 or 2 * j == size else 2
            terms.append(doubled * (moment * turn * kernel).real)
        scale = REAL.exp(-c * step * first) / size
        spread = REAL.fsum(map(abs, terms)) * scale
        return Value(value=REAL.fsum(terms) * scale, error=spread * _RELATIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waves:
    # One law under the tilt, in fixed point: its even and odd parts about place 0.
    centre: int
    even: tuple[int, ...]
    odd: tuple[int, ...]
    scale: Number
    stride: int
    count: int

    def moment(self, j: int, size: int) -> Number:
        tick()
        turn = 2 * REAL.pi * (j * self.stride % size) / size
        one, zero = 1 << _BITS, 0
        cosine, sine = (int(REAL.floor(wave(turn) * one)) for wave in (REAL.cos, REAL.sin))
        before, here, cosines = one, cosine, []
        low, high, sines = zero, sine, []
        for _ in ticking(self.even):
            cosines.append(here)
            sines.append(high)
            before, here = here, (cosine * here >> (_BITS - 1)) - before
            low, high = high, (cosine * high >> (_BITS - 1)) - low
        across = (self.centre << _BITS) + sum(map(int.__mul__, self.even, cosines))
        along = sum(map(int.__mul__, self.odd, sines))
        unit = REAL.mpf(1 << 2 * _BITS)
        return (self.scale * REAL.mpc(across / unit, along / unit)) ** self.count


def _product(prepared: list[_Waves], j: int, size: int) -> Number:
    found = REAL.one
    for waves in prepared:
        found *= waves.moment(j, size)
    return found
