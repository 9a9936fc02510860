r"""Masses and tails of sums of coins, by a contour sum with a proven bound on the remainder.

For laws that are limits of sums of independent signed coins (discrete Gaussian, Poisson,
binomial, Skellam, and their sums), K(z) = log E[e^(zX)] gives every mass and tail at a cost that
does not depend on the parameters: with z_j = c + 2 pi i j/N,

    (1/N) sum_j M(z_j) e^(-z_j t)              = sum_n e^(cnN) P(X = t + nN),
    (1/N) sum_j M(z_j) e^(-z_j t)/(1-e^(-z_j)) = sum_n e^(cnN) P(X >= t + nN)   for c > 0.

By Chernoff's bound at c - a and c + a, a > 0 (and a <= c for tails), the terms n != 0 are at most
(M(c-a) e^(-(c-a)t) + M(c+a) e^(-(c+a)t)) e^(-aN)/(1 - e^(-aN)). High frequencies are small because
a coin of tilted probability p has |M(c+i theta)|^2 = M(c)^2 (1 - 2p(1-p)(1 - cos theta)), so

    |M(c + i theta)| <= M(c) e^(-V(1 - cos theta)),   V = K''(c), the tilted variance.

The bounds hold for any c and a, so floats choose them. All balls are at the ambient precision.
Proofs: docs/proofs/coin_and_theta_sums.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Final, Protocol

from flint import acb, arb, ctx

from dpcore.numbers.enclosure import ball

_GUARD: Final = 24
_GAP: Final = 4
_WIDEST_GAP: Final = Fraction(1)
_FAR: Final = Fraction(10**30)
_FLAT: Final = Fraction(1, 10**9)


class CoinSum(Protocol):
    r"""The interface of a law that is a limit of sums of independent coins."""

    @property
    def mean(self) -> Fraction:
        r"""The mean E[X]."""
        ...

    def log_moment(self, c: arb) -> arb:
        r"""The cumulant function K(c) for real c, as a ball."""
        ...

    def tilted_characteristic(self, c: arb, theta: arb) -> acb:
        r"""The tilted characteristic function M(c + i theta)/M(c) for real c and theta."""
        ...

    def tilted_variance(self, c: arb) -> arb:
        r"""The tilted variance K''(c) for real c, as a ball."""
        ...

    def tilt(self, t: int) -> Fraction:
        r"""An approximate solution c of K'(c) = t; only speed depends on its accuracy."""
        ...


def mass(law: CoinSum, k: int) -> arb:
    r"""P(X = k), with small relative width."""
    tilt = law.tilt(k)
    spread = _deviation(law.tilted_variance(ball(tilt)))
    gap = _rounded(min(_GAP / spread, _WIDEST_GAP))
    return _contour(law, k, tilt, gap, tail=False)


def upper_tail(law: CoinSum, least: int) -> arb:
    r"""P(X >= t) for t = ``least`` > E[X], with small relative width even far in the tail."""
    # Because of the pole of 1/(1 - e^-z) at 0 the best line is to the right of the saddle point.
    saddle = law.tilt(least)
    spread = _deviation(law.tilted_variance(ball(saddle)))
    scaled = min(abs(least - law.mean) / spread, _FAR)
    widest = _rounded(min(_GAP / spread, _WIDEST_GAP))
    tilt = saddle + _rounded(min(_GAP / ((1 + scaled) * spread), _WIDEST_GAP))
    if tilt <= 0:
        tilt = widest
    gap = min(tilt, widest)
    return _contour(law, least, tilt, gap, tail=True)


def lower_tail(law: CoinSum, most: int) -> arb:
    r"""P(X <= t) for t = ``most`` < E[X]: the upper tail of -X."""
    return upper_tail(_Mirrored(law=law), -most)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mirrored:
    law: CoinSum

    @property
    def mean(self) -> Fraction:
        return -self.law.mean

    def log_moment(self, c: arb) -> arb:
        return self.law.log_moment(-c)

    def tilted_characteristic(self, c: arb, theta: arb) -> acb:
        return self.law.tilted_characteristic(-c, -theta)

    def tilted_variance(self, c: arb) -> arb:
        return self.law.tilted_variance(-c)

    def tilt(self, t: int) -> Fraction:
        return -self.law.tilt(-t)


def _deviation(variance: arb) -> Fraction:
    # The approximate square root of a variance of any size; bounds do not depend on its accuracy.
    if not (variance.is_finite() and variance.mid() > 0):
        return Fraction(1)
    mantissa, exponent = (int(part) for part in variance.mid().man_exp())
    unit = Fraction(2) ** ((mantissa.bit_length() + exponent) // 2 - 30)
    return math.isqrt(math.floor(mantissa * Fraction(2) ** exponent / unit**2)) * unit


def _rounded(value: Fraction) -> Fraction:
    # A short dyadic number near a positive rational: balls represent it exactly at any precision.
    size = value.numerator.bit_length() - value.denominator.bit_length()
    unit = Fraction(2) ** (size - 12)
    return math.floor(value / unit) * unit


def _contour(law: CoinSum, t: int, tilt: Fraction, gap: Fraction, *, tail: bool) -> arb:
    need = (ctx.prec + _GUARD) * math.log(2)
    points = math.ceil(Fraction(need) / gap) + 1
    turn = 2 * arb.pi() / points
    c = ball(tilt)
    variance = law.tilted_variance(c)
    last = min(_last_frequency(need, variance, points), points // 2)
    total = acb(0)
    for j in range(last + 1):
        theta = turn * j
        # M(c) e^(-ct) is factored out, so that no term is large.
        term = law.tilted_characteristic(c, theta) * acb(0, -theta * t).exp()
        if tail:
            term /= 1 - acb(-c, -theta).exp()
        total += term if j == 0 or 2 * j == points else 2 * term.real
    base = law.log_moment(c)
    pole = 1 - (-c).exp() if tail else arb(1)
    real = total.real + _neglected(variance, turn, pole, last, points)
    alias = _chernoff(law, c, ball(gap), t, base) + _chernoff(law, c, -ball(gap), t, base)
    decay = (-ball(gap) * points).exp()
    real += arb(0, (alias * decay / (1 - decay) * points).upper())
    return (base - c * t).exp() * real / points


def _last_frequency(need: float, variance: arb, points: int) -> int:
    # The theta with V(1 - cos theta) = 2 V sin^2(theta/2) = need; bounds hold for any choice.
    sine = Fraction(math.sqrt(need / 2)) / _deviation(variance)
    if sine >= 1:
        return points
    half = Fraction(math.asin(sine)) if sine > _FLAT else sine
    return math.ceil(half / Fraction(math.pi) * points) + 1


def _neglected(variance: arb, turn: arb, pole: arb, last: int, points: int) -> arb:
    # A bound on frequencies beyond `last`, each at most e^(-V(1 - cos theta))/|1 - e^(-c)|, where
    # 1 - cos theta = 2 sin^2(theta/2) increases on [0, pi].
    if last >= points // 2:
        return arb(0)
    lowered = 2 * (turn * (last + 1) / 2).sin() ** 2
    each = (-variance * lowered).exp() / pole
    return arb(0, (each * points).upper())


def _chernoff(law: CoinSum, c: arb, step: arb, t: int, base: arb) -> arb:
    # The ratio of M(c + a) e^(-(c+a)t) to M(c) e^(-ct), where a = `step`.
    return (law.log_moment(c + step) - base - step * t).exp()


def central_masses(law: CoinSum, reach: int) -> list[arb]:
    r"""P(X = k) for k = 0, ..., ``reach`` of a symmetric law, to *absolute* width about 2^-prec.

    One line, Re z = 0, is used for every k; for masses far below 2^-prec use :func:`mass`.
    """
    need = (ctx.prec + _GUARD) * math.log(2)
    variance = law.tilted_variance(arb(0))
    gap = _rounded(min(_GAP / _deviation(variance), _WIDEST_GAP))
    growth = law.log_moment(ball(gap))
    # P(X >= s) <= M(a) e^(-as): masses from `beyond` on need no sum, so that a narrow law costs no
    # more than its width. The nearest alias of k <= near is at N - near.
    beyond = max(math.ceil(Fraction(need + float(growth.mid())) / gap), 0)
    near = min(reach, beyond)
    points = near + beyond + 1
    turn = 2 * arb.pi() / points
    last = min(_last_frequency(need, variance, points), points // 2)
    line = [law.tilted_characteristic(arb(0), turn * j).real for j in range(last + 1)]
    cosine = cache(lambda place: (turn * place).cos())
    alias = 2 * (growth - ball(gap) * (points - near)).exp() / (1 - (-ball(gap) * points).exp())
    rest = _neglected(variance, turn, arb(1), last, points) / points + arb(0, alias.upper())
    found = []
    for k in range(near + 1):
        total = arb(0)
        for j in range(1, last + 1):
            term = line[j] * cosine(j * k % points)
            total += term if 2 * j == points else 2 * term
        found.append((line[0] + total) / points + rest)
    further = arb(0, (growth - ball(gap) * (near + 1)).exp().upper())
    return found + [further] * (reach - near)
