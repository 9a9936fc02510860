r"""Proven bounds on masses and tails of integer noise laws, by sums over a vertical contour.

For an integer random variable X let M(z) = E[e^(zX)] and K = log M. For an integer t, a real c and
the N points z_j = c + 2 pi i j/N, j = 0, ..., N - 1,

    (1/N) sum_j M(z_j) e^(-z_j t)              = sum_n e^(cnN) P(X = t + nN),
    (1/N) sum_j M(z_j) e^(-z_j t)/(1-e^(-z_j)) = sum_n e^(cnN) P(X >= t + nN)   for c > 0.

The left-hand side is computed, and the term n = 0 of the right-hand side is the result. Let a > 0,
and a <= c for tails. By Chernoff's bound at c - a and c + a, the terms n != 0 sum to at most
(M(c-a) e^(-(c-a)t) + M(c+a) e^(-(c+a)t)) e^(-aN)/(1 - e^(-aN)). On the left-hand side, the terms
M(c + i theta) with large |theta| are omitted. They are bounded for two families of laws.

:class:`CoinSum` is a limit of sums of independent signed Bernoulli variables: discrete Gaussian,
Poisson, binomial, Skellam, and their sums. The tilted law has masses e^(ck) P(X = k)/M(c). For a
Bernoulli variable with success probability p under its tilted law, |M(c + i theta)|^2 = M(c)^2
(1 - 2p(1-p)(1 - cos theta)). So with the tilted variance V = K''(c),

    |M(c + i theta)| <= M(c) e^(-V(1 - cos theta)).

:func:`sum_tail` computes tails of the sum of n discrete Laplace draws of scale s, which has the law
PolyaDifference(n, s). This is the noise of a batch of n locally private reports. With
beta = e^(-1/s) and |c| < 1/s,

    M(z) = ((1-beta)^2 / ((1-beta e^z)(1-beta e^-z)))^n,
    |M(c + i theta)| = M(c) ((1 + q(c)(1 - cos theta))(1 + q(-c)(1 - cos theta)))^(-n/2),
    q(c) = 2 beta e^c/(1 - beta e^c)^2,

and M(c + i theta) decreases fast away from theta = 0 for n >= 16.

The cost does not depend on the parameters of the law or on n. The bounds hold for any c and a, so c
and a are chosen in floating point. Results are balls (:mod:`dpcore.numbers.enclosure`) at the
current precision. Proofs: docs/proofs/coin_and_theta_sums.md and docs/proofs/radius.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from typing import Final, Protocol

from flint import acb, arb, ctx

from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.numbers.parameter import RationalLike, integer, positive_rational

_GUARD: Final = 24
_GAP: Final = 4
_WIDEST_GAP: Final = Fraction(1)
_FAR: Final = Fraction(10**30)
_FLAT: Final = Fraction(1, 10**9)
_STEPS: Final = 60
_NARROWEST: Final = Fraction(1, 1 << 32)
_WIDEST: Final = Fraction(1 << 128)
_MOST_EXPONENT: Final = 600.0

FEWEST_DRAWS: Final = 16
r"""The smallest ``draws`` of :func:`sum_tail`; for fewer draws use PolyaDifference's tails."""


class CoinSum(Protocol):
    r"""The interface of a law that is a limit of sums of independent Bernoulli variables."""

    @property
    def mean(self) -> Fraction: ...

    def log_moment(self, c: arb) -> arb:
        r"""K(c) = log E[e^(cX)] for real c, as a ball."""
        ...

    def tilted_characteristic(self, c: arb, theta: arb) -> acb:
        r"""M(c + i theta)/M(c) for real c and theta, where M(z) = E[e^(zX)]."""
        ...

    def tilted_variance(self, c: arb) -> arb:
        r"""The tilted variance K''(c) for real c, as a ball, where K(c) = log E[e^(cX)]."""
        ...

    def tilt(self, t: int) -> Fraction:
        r"""An approximate solution c of K'(c) = t, where K(c) = log E[e^(cX)].

        Its accuracy affects only speed.
        """
        ...


def mass(law: CoinSum, k: int) -> arb:
    r"""Return P(X = k) for a variable X with the law ``law``, as a ball of small relative width."""
    tilt = law.tilt(k)
    spread = _deviation(law.tilted_variance(ball(tilt)))
    gap = _rounded(min(_GAP / spread, _WIDEST_GAP))
    return _contour(law, k, tilt, gap, tail=False)


def upper_tail(law: CoinSum, least: int) -> arb:
    r"""Return P(X >= ``least``) for a variable X with the law ``law``.

    ``least`` must be above E[X]. The result is a ball of small relative width.
    """
    # Because of the pole of 1/(1 - e^-z) at 0, the best c is to the right of the saddle point.
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
    r"""Return P(X <= ``most``) for a variable X with the law ``law``, as an upper tail of -X.

    ``most`` must be below E[X]. The result is a ball of small relative width.
    """
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
    # A dyadic rational with few bits near a positive rational; balls represent it exactly.
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
    # The index of the theta with V(1 - cos theta) = 2 V sin^2(theta/2) = need; any choice is valid.
    sine = Fraction(math.sqrt(need / 2)) / _deviation(variance)
    if sine >= 1:
        return points
    half = Fraction(math.asin(sine)) if sine > _FLAT else sine
    return math.ceil(half / Fraction(math.pi) * points) + 1


def _neglected(variance: arb, turn: arb, pole: arb, last: int, points: int) -> arb:
    # A bound on the terms beyond `last`, each at most e^(-V(1 - cos theta))/|1 - e^(-c)|, where
    # 1 - cos theta = 2 sin^2(theta/2) increases on [0, pi].
    if last >= points // 2:
        return arb(0)
    lowered = 2 * (turn * (last + 1) / 2).sin() ** 2
    each = (-variance * lowered).exp() / pole
    return arb(0, (each * points).upper())


def _chernoff(law: CoinSum, c: arb, step: arb, t: int, base: arb) -> arb:
    # The ratio of M(c + a) e^(-(c+a)t) to M(c) e^(-ct), where a = `step` and base = log M(c).
    return (law.log_moment(c + step) - base - step * t).exp()


def central_masses(law: CoinSum, reach: int) -> list[arb]:
    r"""Return P(X = k) for k = 0, ..., ``reach`` and a symmetric law, with small *absolute* width.

    At a precision of p bits the width of each ball is about 2^-p. For masses far below 2^-p use
    :func:`mass`, which chooses a suitable contour for each k.
    """
    need = (ctx.prec + _GUARD) * math.log(2)
    variance = law.tilted_variance(arb(0))
    gap = _rounded(min(_GAP / _deviation(variance), _WIDEST_GAP))
    growth = law.log_moment(ball(gap))
    # P(X >= s) <= M(a) e^(-as) bounds the masses from `beyond` on without a sum, so the cost for a
    # small variance does not grow with `reach`. The nearest alias of k <= near is at N - near.
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


def sum_tail(*, draws: RationalLike, scale: RationalLike, least: int, bits: int) -> Enclosure:
    r"""Enclose P(X >= ``least``), where X is the sum of ``draws`` discrete Laplace draws.

    ``draws`` is at least 16, and ``least`` at least 1. The relative width is at most 2^-``bits``.
    """
    count = positive_rational("draws", draws, "a sum without draws adds no noise")
    if count < FEWEST_DRAWS:
        raise InvalidParameter("draws", draws, f"must be >= {FEWEST_DRAWS}; or use PolyaDifference")
    width = positive_rational("scale", scale, "scale 0 adds no noise")
    if not _NARROWEST <= width <= _WIDEST:
        raise InvalidParameter("scale", scale, "must lie in [2^-32, 2^128]")
    line = _line(float(count), width, integer("least", least, at_least=1))
    return narrow(lambda: _sum(count, width, least, *line), bits)


def pair_tail(*, scale: RationalLike, least: int, bits: int) -> Enclosure:
    r"""Enclose P(X >= t) for t = ``least`` >= 0, where X is the sum of two discrete Laplace draws.

    With s = ``scale`` and beta = e^(-1/s),

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
    r"""Enclose P(X >= ``least``), where X is the sum of ``draws`` discrete Laplace draws.

    Return None if ``draws`` is below ``FEWEST_DRAWS`` and is not 2, because ``PolyaDifference``
    computes the tail faster; the caller then uses that.
    """
    if draws == 2:
        return pair_tail(scale=scale, least=least, bits=bits)
    if draws >= FEWEST_DRAWS:
        return sum_tail(draws=draws, scale=scale, least=least, bits=bits)
    return None


def _line(n: float, s: Fraction, t: int) -> tuple[Fraction, Fraction]:
    # The tilt c and the gap a, 0 < a <= c, c + a < 1/s; the bounds hold for any such pair. The
    # float search uses units of 1/s, in which c lies in (0, 1) for every scale.
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
    # Because of the pole of 1/(1 - e^-z) at 0, the best c is to the right of the saddle point.
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
    a, base = ball(gap), _log_moment(n, s, c)
    alias = sum(((_log_moment(n, s, c + x) - base - x * t).exp() for x in (a, -a)), arb(0))
    decay = (-a * points).exp()
    real += arb(0, (alias * decay / (1 - decay) * points).upper())
    return (base - c * t).exp() * real / points


def _log_moment(n: Fraction, s: Fraction, c: arb) -> arb:
    rate = ball(1 / s)
    one = -(-rate).expm1()
    return ball(n) * (2 * one.log() - (-(c - rate).expm1()).log() - (-(-c - rate).expm1()).log())


def _last(need: float, n: float, up: float, down: float, points: int) -> int:
    # The index beyond which frequencies are negligible: there y = 1 - cos theta is the root of
    # (n/2) log((1 + q y)(1 + q' y)) = need, that is, of q q' y^2 + (q + q') y = e^(2 need/n) - 1.
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
