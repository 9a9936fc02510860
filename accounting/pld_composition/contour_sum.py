r"""The contour integral for the total privacy loss as a finite sum, with bounds on every error.

For the total loss L, let M(z) = E[e^(zL); L < oo] and z = c + iy, with any tilt c > 0 and any
smoothing tau > 0. The curve is the part E[(1 - e^(epsilon - L))+; L < oo] of delta. The function

    upper(epsilon) = (1/2 pi) int M(z) e^(-z epsilon) e^(tau^2 z(z+1)/2)/(z(z+1)) dy

is the curve after one more release, a Gaussian of loss variance tau^2; so it is an upper bound. The
same integral with 1/(z(z+1)) - tau^2 e^(tau^2/8) in place of 1/(z(z+1)) is a lower bound. Both are
computed as trapezoid sums over the same frequencies y.

:func:`epsilon_between` computes the epsilon at which the curve has a given value. Floats propose
two numbers a <= b. As the curve is non-increasing, a is a lower bound on epsilon if the lower bound
on the curve at a is at least this value. Likewise, b is an upper bound on epsilon if the upper
bound on the curve at b is at most this value. Proofs: docs/proofs/total_loss.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np
from flint import arb

from accounting.pld_composition.complex_intervals import (
    CIRCLE,
    SLACK,
    TINY,
    TURN_BITS,
    UNIT,
    Discs,
    Floats,
    Integers,
    circle,
    fixed_point,
    multiples,
    upward,
)
from accounting.pld_composition.factor import Factor, Grid
from dpcore.numbers.arrays import EXP_NEG_ERROR, exp_neg
from dpcore.numbers.enclosure import Enclosure, End, ball, nearest, round_down

_FALL: Final = 5 * UNIT
_LOOSE: Final = 1 + 2.0**-30
_MASS: Final = 1.001
_MOST_FREQUENCIES: Final = 1 << 19
_STEPS: Final = 60
_LEAP: Final = 16
_NUDGE: Final = 2.0**-46
_NUDGES: Final = 50
_GROWTH: Final = 4
_BLURRED: Final = 2.0**-10


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    r"""The parameters of a contour sum: tilt, smoothing, frequencies, and omitted terms.

    The tilt c >= 2^-20 and the smoothing tau <= 1 of the module docstring are floats of at most 24
    bits. A trapezoid sum adds shifted copies of the curve (aliases); the moment M((1 + ``lift``)
    c), with 0 < ``lift`` <= 1, bounds them. Frequencies whose terms sum to at most ``budget`` may
    be omitted. This affects only the cost and the width, because the bounds include the omitted
    terms. ``epsilon`` is approximately the point at which the sum will be evaluated.
    """

    epsilon: float
    tilt: float
    smoothing: float
    lift: Fraction
    grid: Grid
    budget: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ContourSum:
    r"""The two bounds of the module docstring as sums over frequencies y, for any epsilon.

    With phi(y) = M(c + iy) up to a constant, the terms are ``smooth`` = phi(y) e^(-tau^2
    y^2/2)/(z(z+1)) and ``bump`` = phi(y) e^(-tau^2 y^2/2), doubled for y > 0. ``lost`` bounds both
    sums over all omitted frequencies. ``noise`` is approximately the error of a sum; it only guides
    the search.
    """

    window: Window
    indices: Integers
    smooth: Discs
    bump: Discs
    lost: float
    noise: float
    log_scale: arb
    log_lifted: arb

    def bounds(self, epsilon: Fraction) -> tuple[arb, arb]:
        r"""Lower and upper bounds on the part E[(1 - e^(epsilon - L))+; L < oo] of delta."""
        phases = self._phases(epsilon)
        smooth, smooth_error = self.smooth.times(phases).real_sum()
        bump, bump_error = self.bump.times(phases).real_sum()
        scale = self._scale(epsilon)
        error = arb(smooth_error) + self.lost
        dip = self._height() * (arb(bump) + bump_error)
        lower = scale * (smooth - error - dip) - self._aliases(epsilon)
        return lower.lower(), (scale * (smooth + error)).upper()

    def at_its_finest(self) -> bool:
        r"""Whether less smoothing would not narrow the bounds, as the errors of phi dominate."""
        bump, bump_error = self.bump.times(self._phases(Fraction(self.window.epsilon))).real_sum()
        height, rounding = float(self._height()), self.noise - self.lost
        return rounding > max(height * max(bump, 0.0) + self.lost, height * bump_error / 2)

    def logarithm(self, epsilon: float, *, upper: bool) -> tuple[float, float]:
        r"""The approximate log of one of the two bounds, and the slope of this log in epsilon.

        The log is -infinity if the sum is below its error. Both numbers only affect speed.
        """
        c, tau, step = self.window.tilt, self.window.smoothing, self.window.grid.step
        weights = self.smooth.centres
        if not upper:
            weights = weights - tau * tau * math.exp(tau * tau / 8) * self.bump.centres
        y = self.indices * step
        terms = weights * np.exp(-1j * y * (epsilon - tau * tau * (c + 0.5)))
        value, slope = float(terms.real.sum()), float((terms * (-c - 1j * y)).real.sum())
        if value <= self.noise:
            return -math.inf, -c
        log = math.log(value * step / math.tau) + float(self.log_scale) - c * epsilon
        return log, slope / value

    def _phases(self, epsilon: Fraction) -> Discs:
        # e^(-iy epsilon) times the phase e^(i tau^2 y(2c+1)/2) of the Gaussian, as one turn.
        c, tau = ball(Fraction(self.window.tilt)), ball(Fraction(self.window.smoothing))
        drift = tau**2 * (c + arb(0.5)) - ball(epsilon)
        turn = drift * ball(Fraction(self.window.grid.step)) * arb(2) ** (TURN_BITS - 1) / arb.pi()
        high, low = fixed_point([turn])
        error = math.tau * (upward(turn.rad()) + 1) * 2.0**-TURN_BITS * float(self.indices[-1])
        values = circle(multiples(high, low, self.indices))
        return Discs(values, np.full(values.shape, (CIRCLE + UNIT + error) * SLACK))

    def _scale(self, epsilon: Fraction) -> arb:
        c, step = ball(Fraction(self.window.tilt)), ball(Fraction(self.window.grid.step))
        return (self.log_scale - c * ball(epsilon)).exp() * step / (2 * arb.pi())

    def _height(self) -> arb:
        square = ball(Fraction(self.window.smoothing)) ** 2
        return square * (square / 8).exp()

    def _aliases(self, epsilon: Fraction) -> arb:
        # sum over n != 0 of e^(cnT) delta(epsilon + nT), delta(x) <= 1 and <= M(c') e^(-c'x). An
        # upper listing may have a total mass of up to 1 + 2^-50 per round.
        c, lift = Fraction(self.window.tilt), self.window.lift
        period = 2 * arb.pi() / ball(Fraction(self.window.grid.step))
        below, above = (-ball(c) * period).exp(), (-ball(lift * c) * period).exp()
        farther = (self.log_lifted - ball((1 + lift) * c) * ball(epsilon)).exp()
        return _MASS * below / (1 - below) + farther * above / (1 - above)


def contour_sum(factors: Sequence[tuple[Factor, int]], window: Window) -> ContourSum | None:
    r"""The contour sum for pairs (factor, exponent); None if the sum has too many terms."""
    blocks, lost = _covered(factors, window)
    if len(blocks) << window.grid.depth > _MOST_FREQUENCIES:
        return None
    indices, frequencies = window.grid.indices(blocks), window.grid.frequencies(blocks)
    bump = _gaussian(window, indices)
    for factor, count in factors:
        bump = bump.times(factor.values(window.grid, blocks).power(count))
    c, tau = ball(Fraction(window.tilt)), ball(Fraction(window.smoothing))
    scales = [count * factor.log_scale for factor, count in factors]
    poles = _pole(window.tilt, frequencies).times(_pole(window.tilt + 1, frequencies))
    smooth = bump.times(poles)
    return ContourSum(
        window=window,
        indices=indices,
        smooth=smooth,
        bump=bump,
        lost=lost,
        noise=smooth.real_sum()[1] + lost,
        log_scale=sum(scales, tau**2 * c * (c + 1) / 2),
        log_lifted=sum(
            (count * factor.log_moment(window.lift) for factor, count in factors), arb(0)
        ),
    )


def _covered(factors: Sequence[tuple[Factor, int]], window: Window) -> tuple[Integers, float]:
    # The blocks to keep, and a bound on the sums of both kernels over all others. A block is
    # dropped as soon as the factors seen so far bound its sum by its share of the budget.
    grid = window.grid
    blocks = np.arange(grid.blocks, dtype=np.int64)
    bounds = _kernels(window, blocks) * (2 << grid.depth)
    peaks = [_powered(np.array([factor.peak]), count).item() for factor, count in factors]
    share, lost = window.budget / grid.blocks, _beyond(window) * math.prod(peaks)
    for seen, (factor, count) in enumerate(factors):
        bounds = bounds * _powered(np.minimum(factor.cover(grid, blocks), factor.peak), count)
        most = bounds * math.prod(peaks[seen + 1 :])
        keep = ~(most <= share)
        keep[0] = True
        lost += math.fsum(most[~keep].tolist())
        blocks, bounds = blocks[keep], bounds[keep]
    return blocks, lost * _LOOSE + TINY


def _powered(bounds: Floats, exponent: int) -> Floats:
    # Upper bounds on x^n by squaring: n - 1 products, each with a relative error of at most u.
    found, base, left = np.ones_like(bounds), bounds, exponent
    with np.errstate(over="ignore"):
        while left > 1:
            if left & 1:
                found = found * base
            base, left = base * base, left >> 1
        return found * base * (1 + 4 * UNIT * exponent) + TINY


def _kernels(window: Window, blocks: Integers) -> Floats:
    # Upper bounds on (1/|z(z+1)| + tau^2 e^(tau^2/8)) e^(-tau^2 y^2/2) at the left end y of each
    # block, with |z(z+1)| >= max(c(c+1), y^2); the exponent is rounded down.
    c, square = window.tilt, window.smoothing * window.smoothing
    y = blocks * window.grid.length
    fall = exp_neg(square * y * y * (0.5 - 2.0**-40))
    height = square * (1 + square)  # e^x <= 1 + 8x for x = tau^2/8 <= 1
    return (1 / np.maximum(c * (c + 1), y * y) + height) * fall * _LOOSE + TINY


def _beyond(window: Window) -> float:
    # The same kernel summed over |y| >= Y, the end of the grid, by a geometric series.
    tau, step = ball(Fraction(window.smoothing)), ball(Fraction(window.grid.step))
    end = ball(window.grid.blocks << window.grid.depth) * step
    first = (1 / end**2 + tau**2 * (tau**2 / 8).exp()) * (-((tau * end) ** 2) / 2).exp()
    return upward(2 * first / (1 - (-(tau**2) * end * step).exp()))


def _gaussian(window: Window, indices: Integers) -> Discs:
    # e^(-tau^2 y^2/2), doubled for y > 0; j^2 < 2^60 is computed exactly, then rounded to a float.
    step = ball(Fraction(window.smoothing)) * ball(Fraction(window.grid.step))
    falls = nearest(step**2 / 2) * (indices * indices).astype(np.float64)
    found = exp_neg(falls)
    found[indices > 0] *= 2
    return Discs.relative(found.astype(np.complex128), 2 * EXP_NEG_ERROR + 2 * _FALL * falls)


def _pole(real: float, frequencies: Floats) -> Discs:
    # 1/(x + iy): there is no cancellation, so each part has at most 4 roundings.
    norm = real * real + frequencies * frequencies
    return Discs.relative(real / norm - 1j * (frequencies / norm), 5 * UNIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedSum:
    r"""A weighted sum of contour sums that omits terms of at most ``rest`` in total."""

    terms: tuple[tuple[int, ContourSum], ...]
    rest: Fraction
    window: Window

    def bounds(self, epsilon: Fraction) -> tuple[arb, arb]:
        r"""Lower and upper bounds on the part of delta at ``epsilon`` due to finite losses."""
        low, high = arb(0), ball(self.rest)
        for weight, term in self.terms:
            least, most = term.bounds(epsilon)
            low, high = low + weight * least.max(arb(0)), high + weight * most
        return low.lower(), high.upper()

    def logarithm(self, epsilon: float, *, upper: bool) -> tuple[float, float]:
        found = [(weight, term.logarithm(epsilon, upper=upper)) for weight, term in self.terms]
        logs = np.array([math.log(weight) + log for weight, (log, _) in found])
        slopes = np.array([slope for _, (_, slope) in found])
        if not np.isfinite(logs).any():
            return -math.inf, -self.window.tilt
        shares = np.exp(logs - logs.max())
        slope = float(shares @ slopes / shares.sum())
        return float(logs.max()) + math.log(float(shares.sum())), slope


CurveSum: TypeAlias = ContourSum | MixedSum


def epsilon_between(total: CurveSum, goal: arb, largest: End) -> Enclosure:
    r"""An enclosure of the epsilon at which the curve of ``total`` equals ``goal`` > 0.

    The curve is E[(1 - e^(epsilon - L))+; L < oo] for epsilon >= 0. If it is below ``goal`` at 0,
    the result is 0. ``largest`` >= 0 is a known upper bound on epsilon. The lower end of the result
    is 0 unless a larger one is certified.
    """
    most = round_down(largest)
    start = min(max(total.window.epsilon, 0.0), most)
    high = _proposed(total, goal, (start, most), upper=True)
    if high * total.window.tilt <= _NUDGE:
        high = 0.0
    # The lower bound dips at every atom, so its last crossing is sought from above.
    low = _proposed(total, goal, (high, most), upper=False)
    scale = 1 / total.window.tilt
    upper = _first(lambda b: total.bounds(b)[1] <= goal, high, scale, largest)
    if upper == 0:
        return Enclosure.exactly(0)
    lower = _first(lambda a: total.bounds(a)[0] >= goal, low, -scale, Fraction(0))
    return Enclosure(lower, upper)


def _proposed(total: CurveSum, goal: arb, place: tuple[float, float], *, upper: bool) -> float:
    # Newton's method on log delta is applied twice, the second time with the error of the bound at
    # the first result.
    target = float(goal.log())
    near = _newton(total, target, place, upper=upper)
    bound, log = total.bounds(Fraction(near))[1 if upper else 0], total.logarithm(near, upper=upper)
    if not (bound > 0 and math.isfinite(log[0])):
        return near
    error = float(bound.log()) - log[0]
    return _newton(total, target - error, (near, place[1]), upper=upper)


def _newton(total: CurveSum, target: float, place: tuple[float, float], *, upper: bool) -> float:
    # Newton's method within a bracket, since a step from a plateau of the curve may lead anywhere.
    near, high = place
    low, leap = 0.0, _LEAP / total.window.tilt
    close = _NUDGE * max(near, 1 / total.window.tilt)
    for _ in range(_STEPS):
        log, slope = total.logarithm(near, upper=upper)
        # Far from the saddle point the sum is mostly error: move towards the saddle point.
        lost = not math.isfinite(log)
        right = near < total.window.epsilon if lost else log > target
        low, high = (near, high) if right else (low, near)
        step = math.nan if lost or slope >= 0 else (target - log) / slope
        if abs(step) <= close:
            return min(max(near + step, low), high)
        # Where the sum is mostly error, its position need not be precise.
        if high - low <= (_BLURRED / total.window.tilt if lost else close):
            break
        near += step
        if not (low < near < high and abs(step) <= leap):
            near = (low + high) / 2 if high < math.inf else low + leap
    return min(high, near + leap) if upper else low


def _first(certified: Callable[[Fraction], bool], start: float, scale: float, last: End) -> End:
    # The first certified point from `start` in the direction of `scale`, by growing steps;
    # otherwise `last`, which needs no certificate.
    point, step = Fraction(start), Fraction(scale * _NUDGE)
    for _ in range(_NUDGES):
        if (last - point) * step <= 0:
            return last
        if certified(point):
            return point
        point += step
        step *= _GROWTH
    return last
