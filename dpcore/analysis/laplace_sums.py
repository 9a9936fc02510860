r"""Tails of sums of many discrete Laplace draws, at a cost independent of the number of draws.

The noise of a locally private batch is the sum of n draws of scale s, PolyaDifference(n, s). With
beta = e^(-1/s) its moment generating function exists for |c| < 1/s:

    M(z) = ((1-beta)^2 / ((1-beta e^z)(1-beta e^-z)))^n,      z = c + i theta,

and for c > 0, the N points z_j = c + 2 pi i j/N and t > 0 (docs/proofs/coin_and_theta_sums.md)

    (1/N) sum_j M(z_j) e^(-z_j t)/(1-e^(-z_j)) = sum_m e^(cmN) P(X >= t + mN),

where Chernoff's bound limits the terms m != 0. The values at high frequencies decrease as

    |M(c + i theta)| = M(c) ((1 + q(c)(1 - cos theta))(1 + q(-c)(1 - cos theta)))^(-n/2),
    q(c) = 2 beta e^c/(1 - beta e^c)^2,

which is fast for n >= 16. Proofs: docs/proofs/radius.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Final

from flint import acb, arb, ctx

from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.numbers.parameter import RationalLike, integer, positive_rational

FEWEST_DRAWS: Final = 16
r"""With fewer draws the frequencies decrease too slowly; use the tails of PolyaDifference."""

_GUARD: Final = 24
_GAP: Final = 4.0
_STEPS: Final = 60
_NARROWEST: Final = Fraction(1, 1 << 32)
_WIDEST: Final = Fraction(1 << 128)
_MOST_EXPONENT: Final = 600.0


def sum_tail(*, draws: RationalLike, scale: RationalLike, least: int, bits: int) -> Enclosure:
    r"""Enclose P(X >= t) for t = ``least`` > 0, with relative width at most 2^-bits."""
    count = positive_rational("draws", draws, "a sum without draws adds no noise")
    if count < FEWEST_DRAWS:
        raise InvalidParameter("draws", draws, f"must be >= {FEWEST_DRAWS}: use PolyaDifference")
    width = positive_rational("scale", scale, "scale 0 adds no noise")
    if not _NARROWEST <= width <= _WIDEST:
        raise InvalidParameter("scale", scale, "must lie in [2^-32, 2^128]")
    line = _line(float(count), width, integer("least", least, at_least=1))
    return narrow(lambda: _sum(count, width, least, *line), bits)


def pair_tail(*, scale: RationalLike, least: int, bits: int) -> Enclosure:
    r"""Enclose P(X >= t) for the sum X of two draws and t = ``least`` >= 0, in closed form.

    P(X >= t) = ((1-beta)/(1+beta))^2 beta^t ((t + coth(1/s))/(1-beta) + beta/(1-beta)^2).
    """
    rate = 1 / positive_rational("scale", scale, "scale 0 adds no noise")
    t = integer("least", least, at_least=0)

    def tail() -> arb:
        x = ball(rate)
        beta, rest = (-x).exp(), -(-x).expm1()
        inner = (t + x.coth()) * rest + beta
        return (-x * t).exp() * inner / (1 + beta) ** 2

    return narrow(tail, bits)


def quick_tail(
    *, draws: int | Fraction, scale: RationalLike, least: int, bits: int
) -> Enclosure | None:
    """Enclose P(X >= t) by the fastest method for ``draws``; None if PolyaDifference is faster."""
    if draws == 2:
        return pair_tail(scale=scale, least=least, bits=bits)
    if draws >= FEWEST_DRAWS:
        return sum_tail(draws=draws, scale=scale, least=least, bits=bits)
    return None


def _line(n: float, s: Fraction, t: int) -> tuple[Fraction, Fraction]:
    # The tilt c and the gap a, 0 < a <= c, c + a < 1/s; the bounds hold for any such pair. Floats
    # search in units of 1/s, where c lies in (0, 1) for every scale.
    rate, reach = float(1 / s), float(t / s)

    def rest(x: float) -> float:  # (1 - e^(-x/s)) s, about x
        return -math.expm1(-x * rate) / rate

    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        up, down = math.exp((middle - 1) * rate), math.exp(-(middle + 1) * rate)
        slope = n * (up / rest(1 - middle) - down / rest(1 + middle)) if middle < 1 else math.inf
        low, high = (middle, high) if slope < reach else (low, middle)
    spread = math.sqrt(2 * n * math.exp((low - 1) * rate)) / rest(1 - low)
    # Because of the pole of 1/(1 - e^-z) at 0 the best line is to the right of the saddle point.
    room = 1 - Fraction(low)
    c = Fraction(low) + min(Fraction(_GAP / (spread + reach)), room / 2)
    gap = min(c, Fraction(_GAP / spread), (1 - c) / 2)
    return c / s, gap / s


def _sum(n: Fraction, s: Fraction, t: int, tilt: Fraction, gap: Fraction) -> arb:
    need = (ctx.prec + _GUARD) * math.log(2)
    points = math.ceil(Fraction(need) / gap) + 1
    turn = 2 * arb.pi() / points
    c, count = ball(tilt), ball(n)
    up, down = _Pole.at(ball(tilt - 1 / s)), _Pole.at(ball(-tilt - 1 / s))
    last = min(_last(need, float(n), float(up.q.mid()), float(down.q.mid()), points), points // 2)
    total = acb(0)
    for j in range(last + 1):
        theta = turn * j
        turned = 2 * (theta / 2).sin() ** 2  # 1 - cos theta, without cancellation
        power = up.log(turned, theta.sin()) + down.log(turned, -theta.sin())
        term = (-count * power + acb(0, -theta * t)).exp() / -acb(-c, -theta).expm1()
        total += term if j == 0 or 2 * j == points else 2 * term.real
    real = total.real
    if last < points // 2:
        lowered = 2 * (turn * (last + 1) / 2).sin() ** 2
        fall = ((1 + up.q * lowered).log() + (1 + down.q * lowered).log()) * count / 2
        real += arb(0, ((-fall).exp() * points / -(-c).expm1()).upper())
    a = ball(gap)
    alias = arb(0)
    for step in (a, -a):
        alias += (_log_moment(n, s, c + step) - _log_moment(n, s, c) - step * t).exp()
    decay = (-a * points).exp()
    real += arb(0, (alias * decay / (1 - decay) * points).upper())
    return (_log_moment(n, s, c) - c * t).exp() * real / points


def _log_moment(n: Fraction, s: Fraction, c: arb) -> arb:
    rate = ball(1 / s)
    one = -(-rate).expm1()
    return ball(n) * (2 * one.log() - (-(c - rate).expm1()).log() - (-(-c - rate).expm1()).log())


def _last(need: float, n: float, up: float, down: float, points: int) -> int:
    # The y = 1 - cos theta with (n/2) log((1 + q y)(1 + q' y)) = need, beyond which frequencies are
    # negligible: the root of q q' y^2 + (q + q') y = e^(2 need/n) - 1.
    both, grown = up + down, math.expm1(min(2 * need / n, _MOST_EXPONENT))
    y = 2 * grown / (both * (1 + math.sqrt(1 + 4 * (up / both) * (down / both) * grown)))
    angle = 2 * math.asin(math.sqrt(min(y / 2, 1.0)))
    return math.ceil(angle / (2 * math.pi) * points) + 1


@dataclass(frozen=True, kw_only=True)
class _Pole:
    # The factor (1 - r)/(1 - r e^(i theta)), r = e^x < 1.
    ratio: arb
    rest: arb

    @classmethod
    def at(cls, exponent: arb) -> _Pole:
        return cls(ratio=exponent.exp(), rest=-exponent.expm1())

    @cached_property
    def q(self) -> arb:
        return 2 * self.ratio / (self.rest * self.rest)

    def log(self, turned: arb, sine: arb) -> acb:
        # log((1 - r e^(i theta))/(1 - r)): the real part of the argument is at least 1.
        scaled = self.ratio / self.rest
        return acb(scaled * turned, -scaled * sine).log1p()
