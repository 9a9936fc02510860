r"""The loss of one round of noise on the reals, sampled or not: its moments as sums, in floats.

In units of the shift D: Gaussian noise has the variance v = sigma^2/D^2, Laplace noise the scale
1/l, l = D/scale. Q is its law around 0 and P around 1, u = log P/Q, B(u) = 1 - rate + rate e^u.
One unit with a chance of ``rate`` to be in the sample makes one of three pairs, each B Q or Q or
their mirror images, of which the loss L is

    present: log B(u);   absent: -log B(u);   replaced: log B(u) - log B of the mirrored shift.

A group of k units, all there or all gone, moves Gaussian noise by j of them with the chance w_j of
a binomial: B(u) = sum_j w_j e^(E_j), E_j = ju - j(j-1)/2v.

Why the sums are that near to the moments: docs/proofs/checker.md.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

from mpmath import MPContext

from accounting.checker.clock import ticking
from accounting.checker.laws.law import Law, Unchecked
from accounting.checker.laws.masses import REAL, Number, real

__all__ = ["Density", "Nodes", "chances"]

_NATS: Final = 42.0
_WIDE: Final = 10.0
_ENDS: Final = math.exp(-48)
"""More than what lies beyond ten deviations, over the whole."""

_ANGLES: Final = tuple(1.5 * 0.5**i for i in range(10))
_FINE: Final = 8
_FEWEST: Final = 256
_MOST_NODES: Final = 1 << 15
_LOSS_BITS: Final = 140
_POINTS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    r"""E[e^((c+iy)L)] as the sum of e^(power + iy loss), off by ``off`` of the sum at y = 0."""

    powers: list[float]
    losses: list[float]
    off: float

    @property
    def log_moment(self) -> float:
        r"""The logarithm of the sum at y = 0."""
        return _log_sum(self.powers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Density:
    r"""One round of the real ``law``: ``size`` is v of a Gaussian, l of a Laplace one.

    >>> one = Density(law="gaussian", size=Fraction(1), rate=Fraction(1), way="present")
    >>> round(one.nodes(1.0).log_moment, 12)  # E e^L = e^(1/v)
    1.0
    """

    law: str
    size: Fraction
    rate: Fraction
    way: str
    members: int = 1

    @classmethod
    def of(cls, law: Law, squared: Fraction, rate: Fraction, way: str, members: int = 1) -> Density:
        r"""The law under a shift whose squared length is ``squared``, a square for Laplace noise.

        Raises :class:`Unchecked` for sizes that no float sums.
        """
        (parameter,) = law.parameters
        if law.name == "gaussian":
            size = parameter**2 / squared
        else:
            size = math.isqrt(int(squared)) / parameter
            if way == "replaced":
                raise Unchecked("samples with Laplace noise of which a unit is replaced")
        if not Fraction(1, 10**6) < size < 10**12 or (law.name == "laplace" and size > 500):
            raise Unchecked(f"{law.name}: noise that is too small or too large for floats")
        if rate < Fraction(1, 10**12):
            raise Unchecked("a rate below 1e-12")
        return cls(law=law.name, size=size, rate=rate, way=way, members=members)

    @property
    def hidden(self) -> Number:
        r"""P(L = oo) = 0."""
        return REAL.zero

    @property
    def most(self) -> Fraction | float:
        r"""A bound of L, which is sup L to 2^-139 where that is no rational."""
        if self.rate == 1:
            return self.size if self.law == "laplace" else math.inf
        if self.way == "present" and self.law == "gaussian":
            return math.inf
        rate, other = real(self.rate), real(1 - self.rate)
        if self.law == "gaussian":
            found = -self.members * REAL.log(other)
            if self.way == "replaced":
                return math.inf
        else:
            end = REAL.exp(real(self.size if self.way == "present" else -self.size))
            found = abs(REAL.log(other + rate * end))
        return Fraction(int(REAL.ceil(found * (1 << _LOSS_BITS))) + 1, 1 << _LOSS_BITS)

    def nodes(self, c: float, reach: float = 0.0) -> Nodes:
        r"""The sum for |y| <= ``reach``.

        Raises :class:`Unchecked` where it needs more than 2^15 nodes.
        """
        return self._panels(c, reach) if self.law == "laplace" else self._trapezoid(c, reach)

    def far(self, c: float, y: float, log_moment: float) -> float:
        r"""A bound of \|E e^((c+iy')L)\|/E e^(cL) for every y' >= ``y`` > 0."""
        if self.law == "laplace":
            return min(self._edges(c, y) * math.exp(-log_moment), 1.0)
        best = min(self._beside(c, angle / self.members, -y) for angle in _ANGLES)
        return min(math.exp(min(best - log_moment, 0.0)) + _ENDS, 1.0)

    # -- Gaussian noise: a trapezoid rule in x, u = (2x - 1)/2v ----------------------------------

    def _trapezoid(self, c: float, reach: float) -> Nodes:
        sigma = math.sqrt(self.size)
        low, high = self._span(c, 0.0)
        v = float(self.size)
        chosen = self._grid(low, high, min(sigma, v / self.members) / _FINE)
        if reach:
            # Off by 2 N/(e^(2 pi a/h) - 1), N the integral beside the real line at height a.
            level = _log_sum([self._power(x, c) for x in chosen]) + math.log(chosen[1] - chosen[0])
            angles = [angle / self.members for angle in _ANGLES]
            step = max(
                2 * math.pi * angle * v / (max(self._beside(c, angle, reach) - level, 0.0) + _NATS)
                for angle in angles
            )
            chosen = self._grid(low, high, min(step, sigma / 2))
        width = math.log(chosen[1] - chosen[0])
        pairs = [(self._power(x, c) + width, self._loss(x)) for x in ticking(chosen)]
        powers = [power for power, _ in pairs]
        return Nodes(
            powers=powers,
            losses=[loss for _, loss in pairs],
            off=4 * math.exp(-_NATS) + _rounding(powers),
        )

    def _grid(self, low: float, high: float, step: float) -> list[float]:
        count = max(math.ceil((high - low) / step), _FEWEST)
        if count > _MOST_NODES:
            raise Unchecked(f"the moments of {self.law} noise need over {_MOST_NODES} nodes")
        return [low + (high - low) * j / count for j in range(count + 1)]

    def _span(self, c: float, rise: float) -> tuple[float, float]:
        # Beyond it a slope of at least 10/sigma leads down from what is inside: e^-50 of it.
        sigma, k = math.sqrt(self.size), self.members
        right = _WIDE * sigma + sigma * math.sqrt(2 * rise)
        match self.way:
            case "present":
                return -_WIDE * sigma, k * (c + 1) + right
            case "absent":
                return -k * c - _WIDE * sigma, right
        return -_WIDE * sigma, 2 * c + 1 + right

    def _power(self, x: float, c: float) -> float:
        # log of p e^(cL), p the density of the first dataset.
        v = float(self.size)
        found = -x * x / (2 * v) - math.log(2 * math.pi * v) / 2
        match self.way:
            case "present":
                return found + (c + 1) * self._mixed(2 * x - 1)
            case "absent":
                return found - c * self._mixed(2 * x - 1)
        return found + (c + 1) * self._mixed(2 * x - 1) - c * self._mixed(-2 * x - 1)

    def _loss(self, x: float) -> float:
        match self.way:
            case "present":
                return self._mixed(2 * x - 1)
            case "absent":
                return -self._mixed(2 * x - 1)
        return self._mixed(2 * x - 1) - self._mixed(-2 * x - 1)

    def _mixed(self, place: float) -> float:
        u, rate = place / (2 * float(self.size)), float(self.rate)
        return _log_mixed(u, rate) if self.members == 1 else self._of_members(u)

    def _of_members(self, u: float) -> float:
        # log B of a group.
        logs, exponents = self._exponents(u)
        if max(exponents) < 1:
            pairs = zip(logs, exponents, strict=True)
            return math.log1p(math.fsum(math.exp(w) * math.expm1(e) for w, e in pairs))
        return _log_sum([w + e for w, e in zip(logs, exponents, strict=True)])

    def _exponents(self, u: float) -> tuple[tuple[float, ...], list[float]]:
        # log w_j, and E_j.
        twice = 2 * float(self.size)
        found = [j * u - j * (j - 1) / twice for j in range(self.members + 1)]
        return _log_chances(self.members, self.rate), found

    def _turned(self, place: float, angle: float) -> tuple[float, float]:
        # log |B| and arg B at u + i angle; 0 <= members angle < pi/2.
        u = place / (2 * float(self.size))
        if self.members == 1:
            return _turned(u, angle, float(self.rate))
        logs, exponents = self._exponents(u)
        sizes = [w + e for w, e in zip(logs, exponents, strict=True)]
        top = max(sizes)
        value = sum(cmath.rect(math.exp(each - top), j * angle) for j, each in enumerate(sizes))
        return top + math.log(abs(value)), cmath.phase(value)

    def _beside(self, c: float, angle: float, reach: float) -> float:
        # log of the integral of |p e^((c+iy)L)| at x + i a, a = angle v, from above for every
        # |y| <= reach; for reach < 0 on the side where it falls in y, for all y >= -reach.
        v, k = float(self.size), self.members
        turns = 2 if self.way == "replaced" else k
        low, high = self._span(c, max(reach, 0.0) * angle * turns)
        # Steps that resolve both the normal factor and B, whose zeros lie beyond the angle pi/k.
        places = self._grid(low, high, min(math.sqrt(v), v / k) / _FINE)
        logs = []
        for x in ticking(places):
            size, turn = self._turned(2 * x - 1, angle)
            match self.way:
                case "present":
                    power = (c + 1) * size
                case "absent":
                    power = -c * size
                case _:
                    # Of the mirrored shift the angle is -angle, so both turns add.
                    other, back = self._turned(-2 * x - 1, angle)
                    power, turn = (c + 1) * size - c * other, turn + back
            logs.append(power - x * x / (2 * v) + reach * turn)
        height = angle * angle * v / 2 - math.log(2 * math.pi * v) / 2
        return _log_sum(logs) + math.log(places[1] - places[0]) + height

    # -- Laplace noise: two atoms at u = -l and l, and between the density e^(-(u+l)/2)/4 of Q -----

    def _panels(self, c: float, reach: float) -> Nodes:
        spread, rate = float(self.size), float(self.rate)
        r = c + 1 if self.way == "present" else -c
        sign = 1 if self.way == "present" else -1
        places = [(-spread, -math.log(2)), (spread, -spread - math.log(2))]
        half = min(0.4, 3 / (abs(r) + reach + 1), spread / 2)
        count = math.ceil(spread / half)
        if count * _POINTS > _MOST_NODES:
            raise Unchecked(f"the moments of {self.law} noise need over {_MOST_NODES} nodes")
        half = spread / count
        for j in ticking(range(count)):
            centre = -spread + (2 * j + 1) * half
            for root, weight in _LEGENDRE:
                u = centre + half * root
                places.append((u, math.log(half * weight / 4) - (u + spread) / 2))
        mixed = [_log_mixed(u, rate) for u, _ in places]
        powers = [mass + r * log for (_, mass), log in zip(places, mixed, strict=True)]
        losses = [sign * log for log in mixed]
        return Nodes(powers=powers, losses=losses, off=1e-17 + _rounding(powers))

    def _edges(self, c: float, y: float) -> float:
        # The atoms stay; the density f = g/|dL/du| in L has one valley at most.
        spread, rate = float(self.size), float(self.rate)
        r = c + 1 if self.way == "present" else -c
        total = 0.0
        for u, mass in ((-spread, 0.5), (spread, math.exp(-spread) / 2)):
            log = _log_mixed(u, rate)
            total += mass * math.exp(r * log)
            total += math.exp((r + 1) * log - (3 * u + spread) / 2) / (2 * rate * y)
        return total


def _turned(u: float, angle: float, rate: float) -> tuple[float, float]:
    # log |B| and arg B at u + i angle.
    if u > 0:
        share = (1 - rate) * math.exp(-u)
        real_part, imaginary = share + rate * math.cos(angle), rate * math.sin(angle)
        return u + math.log(math.hypot(real_part, imaginary)), math.atan2(imaginary, real_part)
    grown = rate * math.exp(u)
    real_part, imaginary = 1 - rate + grown * math.cos(angle), grown * math.sin(angle)
    return math.log(math.hypot(real_part, imaginary)), math.atan2(imaginary, real_part)


def _log_mixed(u: float, rate: float) -> float:
    # log(1 - rate + rate e^u), near to 0 and far from it.
    if u > 1:
        return u + math.log(rate + (1 - rate) * math.exp(-u))
    return math.log1p(rate * math.expm1(u)) if rate < 1 else u


@lru_cache(maxsize=64)
def chances(members: int, rate: Fraction) -> tuple[Number, ...]:
    r"""w_0, ..., w_k: how likely so many members of a group are sampled.

    >>> [float(w) for w in chances(2, Fraction(1, 4))]
    [0.5625, 0.375, 0.0625]
    """
    k = members
    return tuple(real(math.comb(k, j) * rate**j * (1 - rate) ** (k - j)) for j in range(k + 1))


@lru_cache(maxsize=64)
def _log_chances(members: int, rate: Fraction) -> tuple[float, ...]:
    return tuple(float(REAL.log(each)) for each in chances(members, rate))


def _log_sum(logs: list[float]) -> float:
    top = max(logs)
    return top + math.log(math.fsum(math.exp(each - top) for each in logs))


def _rounding(powers: list[float]) -> float:
    # What the rounding of the powers that count makes of their sum.
    top = max(powers)
    largest = max(abs(power) for power in powers if power > top - _NATS)
    return (largest + 4) * 2.0**-52


def _legendre(count: int) -> Iterator[tuple[float, float]]:
    # Nodes and weights of the Gauss-Legendre rule, by Newton's method on the recurrence.
    exact = MPContext()
    exact.prec = 120
    for k in range(count):
        x = exact.cos(exact.pi * (4 * k + 3) / (4 * count + 2))
        for _ in range(8):
            before, here = exact.one, x
            for n in range(2, count + 1):
                before, here = here, ((2 * n - 1) * x * here - (n - 1) * before) / n
            slope = count * (x * here - before) / (x * x - 1)
            x -= here / slope
        yield float(x), float(2 / ((1 - x * x) * slope**2))


_LEGENDRE: Final = tuple(_legendre(_POINTS))
