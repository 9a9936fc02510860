r"""Rigorous theta sums: everything a discrete Gaussian needs to be enclosed, at any variance.

With v = sigma^2 and w(k) = e^(-k^2/2v), the three quantities below are Jacobi theta functions or
contour sums of them, so none of them costs more for v = 2^80 than for v = 1.
All functions work at the ambient precision and return balls. Proofs: docs/proofs/theta.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from flint import acb, arb, ctx

from dpcore.enclosure import ball

__all__ = ["log_moment", "moment", "partition", "second_moment", "upper_tail"]

_DIRECT_VARIANCE: Final = 16
_SUMMED_VARIANCE: Final = 1 << 14


def partition(variance: Fraction) -> arb:
    r"""Z = sum over all integers k of e^(-k^2/2v) = theta_3(0 | i/(2 pi v)).

    >>> partition(Fraction(1)).str(10, radius=False)
    '2.506628288'
    """
    return acb.modular_theta(acb(0), _tau(variance))[2].real


def moment(variance: Fraction, z: acb) -> acb:
    r"""M(z) e^(-v z^2/2), where M(z) = E[e^(zX)]: what is left of M beside the Gaussian factor.

    By Poisson summation this is sum_j e^(-2 pi^2 v j^2 - 2 pi i j v z) divided by the same sum at
    z = 0, close to 1 for large v. Sound for every z, fast for |Im z| <= pi, where no term is above
    e^(-2 pi^2 v (j^2 - |j|)).

    >>> moment(Fraction(100), acb(1)).real.str(10, radius=False)
    '1.000000000'
    """
    v = ball(variance)
    if variance < _DIRECT_VARIANCE:
        # theta_3 with nome e^(-1/2v) at z/(2 pi i): flint reduces tau and keeps the ball tight.
        theta = acb.modular_theta(z / acb(0, 2 * arb.pi()), _tau(variance))[2]
        return theta / partition(variance) * (-v * z * z / 2).exp()
    # q = e^(-2 pi^2 v) < 10^-137: the dual series needs only its first few terms.
    # The pair of terms at j is at most 2 e^(-2 pi^2 v j^2 + 2 pi v |Im z| j) in size, and these
    # bounds fall by a factor that falls too: the rest is a geometric series. The stop is asked
    # for in the negative: a ball too wide to be compared must end the loop, with a wide result.
    nome = -2 * arb.pi() ** 2 * v
    lift = 2 * arb.pi() * v * abs(z.imag)
    total, whole = acb(1), arb(1)
    j = 1
    while True:
        size = (nome * j * j + lift * j).exp()
        ratio = (nome * (2 * j + 1) + lift).exp()
        if not (size > arb(2) ** (-ctx.prec) or ratio > 0.5):
            spread = arb(0, (2 * size / (1 - ratio)).upper())
            total += acb(spread, spread)
            whole += spread
            return total / whole
        angle = acb(nome * j * j, 0)
        turn = acb(0, -2 * arb.pi() * j) * v * z
        total += (angle + turn).exp() + (angle - turn).exp()
        whole += 2 * (nome * j * j).exp()
        j += 1


def log_moment(variance: Fraction, order: arb) -> arb:
    r"""log E[e^(cX)] for real c = ``order``.

    >>> log_moment(Fraction(4), arb(1)).str(10, radius=False)
    '2.000000000'
    """
    # theta_3 has period 2 pi i v^-1 in c up to a Gaussian factor: reducing c modulo 1/v keeps the
    # argument small, so that the ball stays tight for huge orders: M(c + n/v) = M(c) e^(cn+n^2/2v).
    v = ball(variance)
    steps = (order * v).mid().floor()
    steps = steps if steps.is_finite() else arb(0)
    rest = order - steps / v
    inner = moment(variance, acb(rest)).real.log() + v * rest * rest / 2
    return inner + rest * steps + steps * steps / (2 * v)


def second_moment(variance: Fraction) -> arb:
    r"""E[X^2] = v - 4 pi^2 v^2 sum_j j^2 q^(j^2) / sum_j q^(j^2), q = e^(-2 pi^2 v).

    The second derivative of M at 0, by Poisson summation; for small v the defining sum.

    >>> second_moment(Fraction(100)).str(10, radius=False)
    '100.0000000'
    """
    v = ball(variance)
    # Both series decay at least like e^(-j^2/2) in their range of v, so the ratio of successive
    # terms is at most (4/3)^2 e^(-7/2) < 1/2 from j = 3 on: twice the next term bounds the rest.
    # The stop is asked for in the negative, as above.
    rate = 1 / (2 * v) if variance < 1 else 2 * arb.pi() ** 2 * v
    total = arb(0)
    cut = (-rate).exp() * arb(2) ** (-ctx.prec)
    j = 1
    while True:
        term = 2 * j * j * (-rate * j * j).exp()
        if j >= 4 and not term > cut:
            total += arb(0, (2 * term).upper())
            break
        total += term
        j += 1
    if variance < 1:
        return total / partition(variance)
    whole = partition(variance) / (2 * arb.pi() * v).sqrt()
    return v - 4 * arb.pi() ** 2 * v * v * total / whole


def upper_tail(variance: Fraction, least: int) -> arb:
    r"""P(X >= t) for t = ``least`` >= 1, with small *relative* width however far out t lies.

    For small v the sum itself with a geometric bound on the rest (its term ratio falls). For
    large v the contour sum: with z_j = c + 2 pi i j/N,

        (1/N) sum_j M(z_j) e^(-z_j t)/(1 - e^(-z_j)) = sum_n e^(cnN) P(X >= t + nN),

    whose terms n != 0 add up to at most, by Chernoff's bound at c - a and c + a for 0 < a <= c,
    (M(c-a) e^(-(c-a)t) + M(c+a) e^(-(c+a)t)) e^(-aN)/(1 - e^(-aN)).

    >>> upper_tail(Fraction(1), 1).str(10, radius=False)
    '0.3005288609'
    """
    if variance < _SUMMED_VARIANCE:
        return _direct_tail(variance, least)
    return _contour_tail(variance, least)


def _tau(variance: Fraction) -> acb:
    return acb(0, 1) / (2 * arb.pi() * ball(variance))


def _direct_tail(variance: Fraction, least: int) -> arb:
    # w(k+1)/w(k) = e^(-(2k+1)/2v) falls in k, so the rest after k is below w(k+1)/(1 - ratio).
    rate = 1 / (2 * ball(variance))
    term = (-rate * least * least).exp()
    ratio = (-rate * (2 * least + 1)).exp()
    shrink = (-2 * rate).exp()
    total = arb(0)
    cut = term * arb(2) ** (-ctx.prec)
    while term > cut:
        total += term
        term *= ratio
        ratio *= shrink
    rest = (term / (1 - ratio)).upper()
    return (total + arb(rest / 2, rest / 2)) / partition(variance)


def _contour_tail(variance: Fraction, least: int) -> arb:
    v = ball(variance)
    sigma = Fraction(_root(variance))
    scaled = float(min(least / sigma, Fraction(10**30)))
    # c near the saddle of M(c) e^(-ct)/(1 - e^(-c)), a at most 4/sigma: any 0 < a <= c is sound,
    # so floats may choose them. t/v must be exact: v (c - t/v)^2/2 is what the balls lose.
    tilt_exact = least / variance + Fraction(4 / (1 + scaled)) / sigma
    gap_exact = min(tilt_exact, 4 / sigma)
    tilt, gap = ball(tilt_exact), ball(gap_exact)
    need = (ctx.prec + 24) * math.log(2)
    points = math.ceil(Fraction(need) / gap_exact) + 1
    turn = 2 * arb.pi() / points
    # |M(c + i theta)| <= M(c) (e^(-v theta^2/2) + small): stop where that is below the need.
    last = math.ceil(Fraction(math.sqrt(2 * need) / (2 * math.pi)) * points / sigma) + 1
    last = min(last, points // 2)
    total = acb(0)
    for j in range(last + 1):
        theta = turn * j
        z = acb(tilt, theta)
        # e^(v z^2/2 - z t) with e^(v c^2/2 - c t) taken out, so that no term is large.
        phase = acb(-v * theta * theta / 2, theta * (v * tilt - least)).exp()
        term = phase * moment(variance, z) / (1 - (-z).exp())
        total += term if j == 0 or 2 * j == points else 2 * term.real
    real = total.real + _neglected(v, turn, tilt, last, points)
    alias = (-gap * points).exp()
    alias *= _chernoff(variance, tilt - gap, least) + _chernoff(variance, tilt + gap, least)
    error = (alias / (1 - (-gap * points).exp())).upper()
    scale = (v * tilt * tilt / 2 - tilt * least).exp()
    return real * scale / points - arb(error / 2, error / 2)


def _chernoff(variance: Fraction, tilt: arb, least: int) -> arb:
    v = ball(variance)
    return (v * tilt * tilt / 2 - tilt * least).exp() * moment(variance, acb(tilt)).real


def _root(variance: Fraction) -> int:
    # floor(sqrt(v)) >= 4: close enough to sigma for every choice made with it.
    return math.isqrt(math.floor(variance))


def _neglected(v: arb, turn: arb, tilt: arb, last: int, points: int) -> arb:
    # Frequencies beyond `last`, each at most (e^(-v theta^2/2) + 3 e^(-pi^2 v/2)) / (1 - e^-c)
    # in size after the factor M(c) e^(-ct) was taken out: for theta in [0, pi] and j != 0,
    # (theta - 2 pi j)^2 >= pi^2, and the j-sum over both signs is below 3 of its first term.
    theta = turn * (last + 1)
    each = (-v * theta * theta / 2).exp() + 3 * (-v * arb.pi() ** 2 / 2).exp()
    bound = (each * points / (1 - (-tilt).exp())).upper() if last < points // 2 else arb(0)
    return arb(0, bound)
