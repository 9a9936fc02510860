r"""The choice of the tilt, the frequency step and the cutoff of a contour sum.

The tilt is near the saddle point of the integrand. All values are floats that affect only speed and
width, because the sum is a valid bound at any tilt c > 0, with any smoothing tau and on any grid of
frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np

from accounting.pld.discretise_round import Focus
from accounting.pld_composition.contour_sum import Window
from accounting.pld_composition.factor import Factor, Grid, LossPart

LEAST_TILT: Final = 2.0**-20
MOST_TILT: Final = 2.0**27
USUAL_TILT: Final = 8.0
"""Larger tilts are tried only if the saddle point is not below this one."""

_FARTHER: Final = 4.0  # the factor between the largest tilts that are tried
_HALVINGS: Final = 32
_CLOSE: Final = 1.00001
"""The precision of a tilt: if a rare large loss dominates, epsilon depends steeply on the tilt."""

_CALMINGS: Final = 60
_CALM: Final = 1.25
"""The number of frequencies grows with the period, which is at least need/c."""

_LONG: Final = 16384.0
"""The largest value of c times the period."""

_USUAL: Final = 12.0
"""Aliases this many nats below delta are small enough for the usual widths."""

_CANCELLED: Final = 15.0
"""The nats by which terms may exceed their sum: each round adds about 1e-13 to their error."""

_TAIL: Final = 4.0  # delta is about 4/epsilon times smaller than the mass of losses above epsilon

# These constants affect only speed and width: the terms outside the window are bounded.
_CALMER: Final = 0.8  # the factor of each step to a smaller tilt
_LEAST_LOG: Final = -700.0  # the least log delta: floats represent no smaller delta
_INFLATED: Final = 2.0  # the most that a listing may add to the logarithm of a moment
_STEEP: Final = 1e6  # at this tilt the mean is about the largest loss
_LARGE: Final = 300.0  # for smaller c l, e^(2cl) times the least float is below every moment
_SHARE: Final = 64  # aliases and truncation may each have 1/64 of the error
_FEW: Final = 64  # the moment of a composition of more laws is smoother
_NEAR: Final = 0.25  # the largest change of the phase of phi within a block, for few laws
_WIDE: Final = 0.45  # and for many laws; longer blocks have worse bounds
_MOST_DEPTH: Final = 10  # a block has at most 2^10 frequencies
_BLIND_DEPTH: Final = 5  # used if no block is short enough for a useful bound
_MOST_BLOCKS: Final = 1 << 20  # a longer window is not tried, and the result is wider
_LIFTS: Final = tuple(Fraction(1, 1 << j) for j in range(12))


@dataclass(frozen=True, slots=True, kw_only=True)
class Saddle:
    r"""An approximate saddle point: the ``tilt`` that suits ``epsilon``, and log delta(epsilon)."""

    tilt: float
    epsilon: float
    log_delta: float

    @property
    def focus(self) -> Focus:
        r"""The losses near this saddle point, which should be discretised finely."""
        if not self.epsilon > 0:
            return Focus(self.tilt)
        mantissa, exponent = math.frexp(self.epsilon)
        until = math.ldexp(round(mantissa * 16) / 16, exponent)
        rare = -self.log_delta - math.log1p(_TAIL / until)
        return Focus(max(self.tilt, rare / until), until)

    def less(self, delta: float) -> Saddle:
        r"""The same saddle point, where ``log_delta`` is at most the logarithm of ``delta``."""
        log = math.log(delta) if delta > 0 else _LEAST_LOG
        return replace(self, log_delta=max(min(self.log_delta, log), _LEAST_LOG))


def saddle_at_epsilon(
    epsilon: float, parts: Sequence[tuple[LossPart, int]], most: float = MOST_TILT
) -> Saddle:
    r"""The saddle point of the contour integral for ``epsilon``, with a tilt <= ``most``."""
    tilt = _bisected(lambda c: _point(parts, c)[0] < epsilon, most)
    there, log, bend = _point(parts, tilt)
    log += tilt * (there - epsilon) - bend
    return Saddle(tilt=tilt, epsilon=epsilon, log_delta=min(max(log, _LEAST_LOG), 0.0))


def saddle_at_delta(log_delta: float, parts: Sequence[tuple[LossPart, int]]) -> Saddle:
    r"""The saddle point of the contour integral at the epsilon with this ``log_delta``."""

    def above(c: float) -> bool:
        _, log, bend = _point(parts, c)
        return log - bend > log_delta

    tilt = _bisected(above, MOST_TILT)
    return Saddle(tilt=tilt, epsilon=_point(parts, tilt)[0], log_delta=max(log_delta, _LEAST_LOG))


def calm(parts: Sequence[tuple[LossPart, int]], saddle: Saddle) -> Saddle:
    r"""A point with at most the tilt of ``saddle``, at which the sum needs fewer frequencies.

    At the saddle point, a rare large loss may weigh as much as the sum of all small ones. Its
    aliases are small only if the frequencies are dense. A lower tilt reduces the weight of large
    losses. If the tilt is too low, however, the terms of the sum exceed the sum and cancel, so that
    their rounding errors exceed the sum too.
    """
    start, lowest, calmed = saddle.tilt, math.inf, saddle
    cancelled = _CANCELLED - math.log(sum(count for _, count in parts)) + saddle.log_delta
    reach = max(_reach(part) for part, _ in parts)
    for step in range(_CALMINGS):
        c = float(np.float32(start * _CALMER**step))
        log, moment, inflated = _moments(parts, c, sketched=c * reach < _LARGE)
        # The Chernoff bound at this tilt.
        near = max(saddle.epsilon, 0.0)
        bound = min(max((log - saddle.log_delta) / c, 0.0), saddle.epsilon)
        placed, need = replace(saddle, tilt=c, epsilon=near), _USUAL - saddle.log_delta
        period = _period(moment, placed, need)[0]
        if lowest < math.inf and (period > lowest or log - c * near > cancelled):
            break
        calmed = replace(saddle, tilt=c, epsilon=bound) if step else saddle
        if inflated or c * period > _LONG + 2 * need:
            continue
        if c * period <= _CALM * need:
            break
        lowest = period
    return calmed


_LogMoment: TypeAlias = Callable[[Fraction], float]


def _reach(part: LossPart) -> float:
    # Approximately the largest relevant loss. A sketch may omit a single large loss.
    found = part.cumulants(_STEEP)[1]
    return float(part.largest) if part.largest.is_finite() else found if found > 0 else math.inf


def _moments(
    parts: Sequence[tuple[LossPart, int]], c: float, *, sketched: bool
) -> tuple[float, _LogMoment, bool]:
    # The approximate log M(c) and log M((1 + lift) c), and whether masses below all floats, which
    # are listed as the least float, outweigh the law in the tail. If no loss is that large, the
    # sketches suffice.
    def moment(tilt: float) -> float:
        return sum(k * part.cumulants(tilt)[0] for part, k in parts)

    if sketched:
        return moment(c), lambda lift: moment((1 + float(lift)) * c), False
    factors = [(part.factor(Fraction(c), math.inf), count) for part, count in parts]
    pairs = zip(parts, factors, strict=True)
    inflated = any(float(f.log_scale) - p.cumulants(c)[0] > _INFLATED for (p, _), (f, _) in pairs)
    return sum(k * float(f.log_scale) for f, k in factors), _log_moment(factors), inflated


def _log_moment(factors: Sequence[tuple[Factor, int]]) -> _LogMoment:
    return lambda lift: sum(k * float(f.log_moment(lift)) for f, k in factors)


def window(
    factors: Sequence[tuple[Factor, int]], saddle: Saddle, wanted: float, smoothing: float
) -> Window | None:
    r"""The parameters of a contour sum at ``saddle`` for a relative error ``wanted`` in delta.

    The step between frequencies is short enough to make the aliases small, and the terms beyond the
    last frequency are negligible. Frequencies are summed in blocks (:class:`Grid`), which are short
    enough that the factors vary little within a block. Returns None if the sum would have too many
    blocks, or if no step makes the aliases small.
    """
    c, tau, small = saddle.tilt, smoothing, math.log(wanted / _SHARE)
    log_scale = sum(k * float(f.log_scale) for f, k in factors)
    need = -small - saddle.log_delta
    period, lift = _period(_log_moment(factors), saddle, need)
    if not period < math.inf:
        return None
    step = _short(math.tau / period)
    log_budget = small + saddle.log_delta + c * saddle.epsilon - log_scale + math.log(period)
    end = _end(tau, step, log_budget) / tau
    deviation = max(f.deviation for f, _ in factors)
    near = _NEAR if sum(k for _, k in factors) < _FEW else _WIDE
    depth = math.floor(math.log2(max(2 * near / (deviation * step), 1e-9)))
    # If even a block of two frequencies is too long for a useful bound, any length will do.
    depth = _BLIND_DEPTH if depth < 1 else min(depth, _MOST_DEPTH)
    blocks = math.ceil(end / (step * (1 << depth)))
    if blocks > _MOST_BLOCKS:
        return None
    return Window(
        epsilon=saddle.epsilon,
        tilt=c,
        smoothing=tau,
        lift=lift,
        grid=Grid(step=step, depth=depth, blocks=blocks),
        budget=math.exp(min(log_budget, 600.0)),
    )


def _period(moment: _LogMoment, saddle: Saddle, need: float) -> tuple[float, Fraction]:
    # The least period at which both bounds on the aliases are below e^-need, and its lift. The
    # period is a convex function of the lift, so it decreases and then increases.
    c, best = saddle.tilt, (math.inf, Fraction(1))
    for lift in _LIFTS:
        excess = moment(lift) - (1 + float(lift)) * c * saddle.epsilon
        found = max(need, (need + excess) / float(lift)) / c
        if found > best[0]:
            break
        best = (found, lift)
        if found * c <= need:
            break
    return best


def _point(parts: Sequence[tuple[LossPart, int]], c: float) -> tuple[float, float, float]:
    # The epsilon with saddle point c, the log of the integrand there, and the log of 1/width.
    value, slope, bend = 0.0, 0.0, 0.0
    for part, count in parts:
        found = part.cumulants(c)
        value, slope = value + count * found[0], slope + count * found[1]
        bend += count * found[2]
    epsilon = slope - 1 / c - 1 / (1 + c)
    log = value - c * epsilon - math.log(c) - math.log1p(c)
    return epsilon, log, 0.5 * math.log(math.tau * (bend + 1 / c**2 + 1 / (1 + c) ** 2))


def _bisected(below: Callable[[float], bool], most: float) -> float:
    # The approximate point where `below` becomes false, as a float of 24 bits.
    low, high = LEAST_TILT, min(USUAL_TILT, most)
    while high < most and below(high):
        low, high = high, min(_FARTHER * high, most)
    for _ in range(_HALVINGS):
        if high < low * _CLOSE:
            break
        center = math.sqrt(low * high)
        low, high = (center, high) if below(center) else (low, center)
    return float(np.float32(high))


def _end(tau: float, step: float, log_budget: float) -> float:
    # Solve 2 tau^2 (1 + 1/x^2) e^(-x^2/2)/(tau x step) = budget for x = tau Y.
    x = 4.0
    for _ in range(4):
        log = math.log(2 * tau * (1 + 1 / x**2) / (x * step)) - log_budget
        x = math.sqrt(max(2 * log, 1.0))
    return x


def _short(value: float) -> float:
    # The value rounded down to 12 bits.
    mantissa, exponent = math.frexp(value)
    return math.ldexp(math.floor(mantissa * 4096), exponent - 12)
