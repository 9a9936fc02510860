r"""Theta sums with rigorous error bounds, for a discrete Gaussian of any variance.

A discrete Gaussian X with parameter v = sigma^2 has masses proportional to e^(-k^2/2v). The
functions here are sums over all integers. They equal Jacobi theta functions, so the cost of
computing them does not grow with v. Results are balls (:mod:`dpcore.numbers.enclosure`) at the
current precision.

:class:`ThetaSum` is the law of a sum of independent discrete Gaussians. It is a limit of sums of
Bernoulli variables, as :mod:`dpcore.analysis.contour_sums` requires: by Jacobi's triple product,
E[e^(zX)] is, up to a constant factor, the product of (1 + q_n e^z)(1 + q_n e^-z) over n = 1, 2,
..., where q_n = e^(-(2n-1)/2v). Proofs: docs/proofs/coin_and_theta_sums.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from flint import acb, arb, ctx

from dpcore.analysis import contour_sums as contour
from dpcore.numbers.enclosure import ball

_DIRECT_VARIANCE: Final = 16
_SUMMED_VARIANCE: Final = 1 << 14
_STAIRS_VARIANCE: Final = 4
_HALVINGS: Final = 64
_LEAST_BITS: Final = 5


def partition(variance: Fraction) -> arb:
    r"""The sum of e^(-k^2/2v) over all integers k, where v = ``variance``.

    It equals theta_3(0 | i/(2 pi v)).
    """
    return acb.modular_theta(acb(0), _tau(variance))[2].real


def moment(variance: Fraction, z: acb) -> acb:
    r"""Return M(z) e^(-v z^2/2), where M(z) = E[e^(zX)] for one draw X and v = ``variance``.

    X is discrete Gaussian. By Poisson summation the result is, up to a constant factor, the sum of
    e^(-2 pi^2 v j^2 - 2 pi i j v z) over all integers j. The factor, which is close to 1 for large
    v, makes the result 1 at z = 0. The ball is correct for every z.
    """
    # The pair of terms at j has size at most 2 e^(-2 pi^2 v j^2 + 2 pi v |Im z| j). The ratio of
    # successive bounds decreases: if the first is tiny, both sums lie within 3 `first` of 1.
    v = ball(variance)
    first = (2 * arb.pi() * v * (abs(z.imag) - arb.pi())).exp()
    if first < arb(2) ** -max(ctx.prec, _LEAST_BITS):
        slip = arb(0, (7 * first).upper())
        return acb(1 + slip, slip)
    # FLINT reduces tau and keeps the ball tight.
    return _theta(variance, z) / partition(variance) * (-v * z * z / 2).exp()


def log_moment(variance: Fraction, order: arb) -> arb:
    r"""Return log E[e^(cX)] of one discrete Gaussian draw X for real c = ``order``."""
    # M(c + n/v) = M(c) e^(cn + n^2/2v), the quasi-periodicity of theta_3: reducing c modulo 1/v
    # keeps the argument small, so that the ball stays tight for huge orders.
    v = ball(variance)
    steps, rest = _reduced(v, order)
    inner = moment(variance, acb(rest)).real.log() + v * rest * rest / 2
    return inner + rest * steps + steps * steps / (2 * v)


def second_moment(variance: Fraction) -> arb:
    r"""Return E[X^2] of one discrete Gaussian draw X with the parameter v = ``variance``."""
    if variance >= 1:
        return ThetaSum(variance=variance).tilted_variance(arb(0))
    # The ratio of successive terms is at most (4/3)^2 e^(-7/2) < 1/2 from j = 3: twice the next
    # term bounds the remainder. `not term > cut`, because a ball too wide to be compared must end
    # the loop.
    rate, total = 1 / (2 * ball(variance)), arb(0)
    cut = (-rate).exp() * arb(2) ** (-ctx.prec)
    j = 1
    while True:
        term = 2 * j * j * (-rate * j * j).exp()
        if j >= 4 and not term > cut:
            return (total + arb(0, (2 * term).upper())) / partition(variance)
        total += term
        j += 1


def upper_tail(variance: Fraction, least: int) -> arb:
    r"""Return P(X >= ``least``) of one discrete Gaussian draw X for ``least`` >= 1.

    The result is a ball of small *relative* width.
    """
    if variance < _SUMMED_VARIANCE:
        return _direct_tail(variance, least)
    return contour.upper_tail(ThetaSum(variance=variance), least)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThetaSum:
    r"""The law of a sum of ``count`` independent discrete Gaussians of parameter ``variance``."""

    variance: Fraction
    count: int = 1

    @property
    def mean(self) -> Fraction:
        return Fraction(0)

    def log_moment(self, c: arb) -> arb:
        return self.count * log_moment(self.variance, c)

    def tilted_characteristic(self, c: arb, theta: arb) -> acb:
        # M(r + j/v) = M(r) e^(jr + j^2/2v) for complex r: j steps give a factor e^(i j theta).
        v = ball(self.variance)
        steps, rest = _reduced(v, c)
        if self.variance < _DIRECT_VARIANCE:
            one = _theta(self.variance, acb(rest, theta)) / _theta(self.variance, acb(rest))
            return (one * acb(0, steps * theta).exp()) ** self.count
        # The Gaussian factors, with v rest + steps = v c.
        ratio = moment(self.variance, acb(rest, theta)) / moment(self.variance, acb(rest))
        turn = self.count * v * theta
        return ratio**self.count * acb(-turn * theta / 2, turn * c).exp()

    def tilted_variance(self, c: arb) -> arb:
        # The period of K''(c) in c is 1/v.
        _, rest = _reduced(ball(self.variance), c)
        value, slope, bend = (_theta(self.variance, acb(rest), order) for order in range(3))
        second: arb = ((slope / value) ** 2 - bend / value).real
        return self.count * second / (2 * arb.pi()) ** 2

    def tilt(self, t: int) -> Fraction:
        # t/(count v), or a floating-point root if v is small.
        # c is not rounded: far in the tail, M(c) e^(-ct) grows like e^(V (c - saddle)^2/2).
        target = Fraction(t, self.count)
        if self.variance >= _STAIRS_VARIANCE:
            return target / self.variance
        return (math.floor(target) + self._centre(target)) / self.variance

    def _centre(self, target: Fraction) -> Fraction:
        # The y in [0, 1] for which a discrete Gaussian centred at floor(target) + y has the mean
        # `target`.
        wanted, twice = float(target - math.floor(target)), 2 * float(self.variance)
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            y = (low + high) / 2
            # The nearest value has weight 1, so that nothing underflows for tiny v.
            best = min(y, 1 - y) ** 2
            weights = [(k, math.exp((best - (k - y) ** 2) / twice)) for k in range(-12, 14)]
            mean = sum(k * w for k, w in weights) / sum(w for _, w in weights)
            low, high = (y, high) if mean < wanted else (low, y)
        return Fraction(high)


def _reduced(v: arb, order: arb) -> tuple[arb, arb]:
    # order = steps/v + rest with an integer number of steps: exact for any choice of steps.
    steps = (order * v).mid().floor()
    steps = steps if steps.is_finite() else arb(0)
    return steps, order - steps / v


def _theta(variance: Fraction, z: acb, derivative: int = 0) -> acb:
    # theta_3 with nome e^(-1/2v) at z/(2 pi i), or a derivative of theta_3 there.
    return acb.modular_theta(z / acb(0, 2 * arb.pi()), _tau(variance), derivative)[2]


def _tau(variance: Fraction) -> acb:
    return acb(0, 1) / (2 * arb.pi() * ball(variance))


def _direct_tail(variance: Fraction, least: int) -> arb:
    # w(k+1)/w(k) = e^(-(2k+1)/2v) decreases in k: the remainder is below w(k+1)/(1 - ratio).
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
