r"""Losses on a lattice, at any number of rounds: L(m) = b (m - h) for an integer sum S.

S = sum of independent parts, 2h an integer, and S -> 2h - S swaps P and Q. Many rounds of one
discrete Gaussian or of one discrete Laplace are such a pair. With M(z) = E[e^(zS)], c > 0, t > h,
z_j = c + 2 pi i j/N, e_j = e^(-z_j) and g_j = M(z_j) e^(-z_j t)/(1 - e^-b e_j),

    Q(S >= t)              is about  (1/N) sum_j e^-L(t) g_j
    P(S >= t) - Q(S >= t)  is about  (1/N) sum_j (1 - e^-L(t) + (1 - e^-b) e_j/(1 - e_j)) g_j

and each sum is too large, by at most the aliases sum_{n != 0} e^(cnN) P(S >= t + nN). Few of the
frequencies matter. Any c is sound: floats choose it near the saddle, so that every number has the
size of the answer, at delta = 1e-300 as well. All balls are at the ambient precision.
Proofs: docs/proofs/line.md.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, Protocol

from flint import acb, arb, ctx

from accounting.errors import NotDerived
from accounting.pairs.balls import as_ball, middle
from accounting.pairs.monotone import RayPair
from dpcore.numbers.enclosure import ball

# Only time and width rest on these: the line may be anywhere, and each sum says what it leaves out.
_GUARD: Final = 6  # bits beyond those that are asked for
_MOST_FREQUENCIES: Final = 1 << 17  # more are refused, by name
_BEHIND: Final = 2.5  # deviations that the line lies beyond its saddle: fewer points
_NEAREST: Final = 1.5  # deviations from the pole at 0; nearer ones take more points
_LEFT: Final = 4.0  # deviations left of 0, from where the line runs through the saddle
_BELOW_TOP: Final = 0.25  # steps below the largest loss, whose saddle is infinite
_BLOCKS: Final = 4  # lines for each deviation: neighbours share one
_STEPS: Final = 80  # of Newton's method; a saddle that is off costs points
_CLOSE: Final = 1e-9  # deviations from the saddle at which it has been found
_SHORT: Final = 1e-6  # a shift below it, in deviations, is taken for a slope
_FAR: Final = 6.0  # from where Mills' ratio is a continued fraction
_LOWEST: Final = -8.0  # below, e^(x^2/2) grows beyond use
_PEAK: Final = 1 / math.sqrt(2 * math.pi)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    r"""|M(c + i theta)| <= bound(x) M(c) wherever step * theta is x or more away from 2 pi Z.

    ``bound`` falls on [0, pi]. ``angle`` is about the x from which it is negligible; not finite
    where there is none.
    """

    step: int
    angle: arb
    bound: Callable[[arb], arb]


class Summands(Protocol):
    r"""Independent summands of S that are alike. ``c`` > 0 is a real tilt."""

    def log_moment(self, c: arb) -> arb:
        r"""log E[e^(cS)]."""
        ...

    def line(self, c: arb, points: int, kept: Sequence[int]) -> list[acb]:
        r"""M(c + i theta)/M(c) at theta = 2 pi j/N for every j in ``kept``, N = ``points``."""
        ...

    def limits(self, c: arb, need: arb) -> list[Limit]:
        r"""Bounds of the same, with angles from which they are below e^-need."""
        ...

    def cumulants(self, c: float) -> tuple[float, float, float]:
        r"""log E[e^(cS)] and its first two derivatives, for choices only."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LatticePair(RayPair):
    r"""A pair whose loss is b (m - h) on the values m of a sum S, with P and Q mirrored in h."""

    @property
    @abstractmethod
    def rise(self) -> Fraction:
        r"""b > 0, the step of the loss."""

    @property
    @abstractmethod
    def twice_centre(self) -> int:
        r"""2h: the loss of m is that of 2h - m with the other sign."""

    @property
    @abstractmethod
    def top(self) -> int | None:
        r"""The largest value of S, None where there is none."""

    @abstractmethod
    def parts(self) -> tuple[Summands, ...]:
        r"""The independent parts of S."""

    def tails(self, m: int) -> tuple[arb, arb]:
        r"""(A(m) - B(m), B(m)) from one line of frequencies; left of the centre by the mirror."""
        if self.top is not None and m > self.top:
            return arb(0), arb(0)
        mirrored = self.twice_centre + 1 - m
        if mirrored > m:
            gap, rest = self.tails(mirrored)
            return gap, 1 - gap - rest
        return _tails(self, m, ctx.prec)

    def below(self, m: int) -> arb:
        r"""P(S < m) = Q(S >= 2h + 1 - m)."""
        return self.tails(self.twice_centre + 1 - m)[1]

    def guess(self, delta: Fraction) -> int | None:
        r"""From the saddle of the curve in floats; the general search where they overflow."""
        try:
            place = math.floor(_saddle_of_curve(self, _log(delta))) + 1
        except (ArithmeticError, ValueError):
            return RayPair.guess(self, delta)
        return place if self.top is None else min(place, self.top)


def residue(j: int, points: int) -> int:
    r"""j modulo ``points``, as near to 0 as can be.

    >>> residue(7, 10), residue(-13, 10)
    (-3, -3)
    """
    return (j + points // 2) % points - points // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    # One tilt and its frequencies, for every t nearby. `rises` are K(c + a) - K(c) and
    # K(c - a) - K(c), a = `apart`; `pole` is 1 where the line runs left of the pole at 0.
    # `neglected` bounds what is left out of the sums of `rest` and `ahead`, in units of M(c).
    tilt: arb
    base: arb
    apart: arb
    rises: tuple[arb, arb]
    points: int
    pole: int
    kept: list[int]
    rest: list[acb]
    ahead: list[acb]
    neglected: tuple[arb, arb]


@lru_cache(maxsize=256)
def _tails(pair: LatticePair, t: int, bits: int) -> tuple[arb, arb]:
    # `bits` is the ambient precision, part of the key.
    line = _line(pair, _representative(pair, t), bits)
    turn = 2 * arb.pi() / line.points
    rest, ahead = arb(0), arb(0)
    for j, one, two in zip(line.kept, line.rest, line.ahead, strict=True):
        angle = turn * residue(-j * t, line.points)
        phase = acb(angle.cos(), angle.sin())
        # j and N - j are conjugate; 0 and N/2 stand alone.
        weight = 1 if j in (0, line.points - j) else 2
        rest += weight * (one * phase).real
        ahead += weight * (two * phase).real
    rest += arb(0, line.neglected[0].upper())
    ahead += arb(0, line.neglected[1].upper())
    loss, rise = as_ball(pair.loss(t)), ball(pair.rise)
    alias = _aliases(line, t).upper()
    spread = arb(alias / 2, alias / 2)  # from 0 to alias
    size, less = (line.base - line.tilt * t).exp(), (-loss).exp()
    gap = (-(-loss).expm1() * rest - (-rise).expm1() * ahead) / line.points
    gap += 2 * spread if line.pole else -spread
    return line.pole + size * gap, size * less * (rest / line.points - spread)


def _aliases(line: _Line, t: int) -> arb:
    # sum over n != 0 of e^(cnN) P(S >= t + nN), over M(c) e^(-ct): Chernoff's bound at c +- a.
    up, down = line.rises
    decay = (-line.apart * line.points).exp()
    ends = (up - line.apart * t).exp() + (down + line.apart * t).exp()
    return ends * decay / (1 - decay)


@lru_cache(maxsize=4)
def _line(pair: LatticePair, t: int, bits: int) -> _Line:
    # The line that is chosen for t; any line is sound for every t.
    parts, rise = pair.parts(), pair.rise
    tilt, deviation = _tilt(pair, t)
    # gap and rest may be smaller than P(S >= t), by about these two factors.
    ratio = abs(tilt) / rise
    need = (bits + _GUARD) * math.log(2) + max(_log(1 + ratio), _log(1 + 1 / ratio))
    apart = min(abs(tilt), tilt + rise, Fraction(math.sqrt(2 * need) / deviation))
    c, a, b = ball(tilt), ball(apart), ball(rise)
    base, up, down = (_log_moment(parts, x) for x in (c, c + a, ball(tilt - apart)))
    rises = up - base, down - base
    excess = max(_nats(rises[0] - a * t), _nats(rises[1] + a * t), 0.0)
    points = math.ceil(Fraction(need + excess) / apart) + 1
    kept, largest = _kept(pair, parts, c, points, ball(Fraction(need)) + arb(points).log())
    values = [part.line(c, points, kept) for part in parts]
    turn, back = 2 * arb.pi() / points, (-b).exp()
    rest, ahead = [], []
    for place, j in enumerate(kept):
        value = math.prod((each[place] for each in values[1:]), start=values[0][place])
        less = acb(-c, -turn * j).expm1()  # e_j - 1
        one = value / (-(-b).expm1() - back * less)
        rest.append(one)
        ahead.append(-one * (1 + less) / less)
    most = largest * points / -(-c - b).expm1()
    return _Line(
        tilt=c,
        base=base,
        apart=a,
        rises=rises,
        points=points,
        pole=0 if tilt > 0 else 1,
        kept=kept,
        rest=rest,
        ahead=ahead,
        neglected=(most, most * (-c).exp() / abs((-c).expm1())),
    )


def _log_moment(parts: tuple[Summands, ...], c: arb) -> arb:
    return sum((part.log_moment(c) for part in parts), arb(0))


def _kept(
    pair: LatticePair, parts: tuple[Summands, ...], c: arb, points: int, need: arb
) -> tuple[list[int], arb]:
    # The j in 0..N/2 that no limit excludes, and a bound of |M/M(c)| at all others. A limit
    # excludes j when step * j is more than `wide` away from the multiples of N.
    spans, largest = [(0, points // 2)], arb(0)
    limits = [limit for part in parts for limit in part.limits(c, need)]
    for limit in sorted(limits, key=lambda limit: limit.step):
        if not limit.angle.is_finite():
            continue
        wide = math.floor(middle(limit.angle * points / (2 * arb.pi())))
        if wide < 0 or 2 * wide + 1 >= points:
            continue
        spans = _cut(pair, spans, limit.step, wide, points)
        largest = largest.max(limit.bound(2 * arb.pi() * (wide + 1) / points))
    if sum(last - first + 1 for first, last in spans) > _MOST_FREQUENCIES:
        raise _too_many(pair)
    return [j for first, last in spans for j in range(first, last + 1)], largest


def _cut(
    pair: LatticePair, spans: list[tuple[int, int]], step: int, wide: int, points: int
) -> list[tuple[int, int]]:
    # The j in the spans with |step * j - kN| <= wide for some k, in exact integers.
    found: list[tuple[int, int]] = []
    for first, last in spans:
        turns = range(-((wide - step * first) // points), (step * last + wide) // points + 1)
        if len(turns) + len(found) > _MOST_FREQUENCIES:
            raise _too_many(pair)
        for k in turns:
            low = max(first, -((wide - k * points) // step))
            high = min(last, (k * points + wide) // step)
            if low <= high:
                found.append((low, high))
    return found


def _too_many(pair: LatticePair) -> NotDerived:
    return NotDerived(
        f"the exact curve of {pair!r}",
        f"it needs more than {_MOST_FREQUENCIES} frequencies of its lattice; the Renyi "
        "divergences and zcdp() are exact",
    )


# -- choices, in floats: nothing below decides a number ----------------------------------------


def _log(value: Fraction) -> float:
    return math.log(value.numerator) - math.log(value.denominator)


def _nats(value: arb) -> float:
    found = float(value.mid())
    return found if math.isfinite(found) else 0.0


def _cumulants(parts: tuple[Summands, ...], c: float) -> tuple[float, float, float]:
    each = [part.cumulants(c) for part in parts]
    value, mean, variance = (math.fsum(column) for column in zip(*each, strict=True))
    return value, mean, variance


def _representative(pair: LatticePair, t: int) -> int:
    # One t for all in a block of about a quarter of a deviation: they share a line.
    deviation = _saddle(pair, t)[1]
    block = 1 << max(math.frexp(deviation / _BLOCKS)[1] - 1, 0)
    middle_of_block = t // block * block + block // 2
    return middle_of_block if pair.top is None else min(middle_of_block, pair.top)


def _tilt(pair: LatticePair, t: int) -> tuple[Fraction, float]:
    # Beyond the saddle, right of the pole at 0: fewer points, for a few bits of width. Where the
    # saddle is far left of 0, it is as far from -b, and the line runs through it.
    saddle, deviation = _saddle(pair, t)
    scaled = saddle * deviation
    if scaled >= -_LEFT:
        scaled = max(scaled + _BEHIND, _NEAREST)
    return Fraction(scaled / deviation), deviation


def _saddle(pair: LatticePair, t: int) -> tuple[float, float]:
    # (c, root of K''(c), 1 if that is less) with K'(c) = t, by Newton's method in a bracket.
    parts = pair.parts()
    try:
        goal = float(t) if pair.top is None else min(float(t), pair.top - _BELOW_TOP)
        c, low, high = 0.0, -float(pair.rise) / 2, math.inf
        for _ in range(_STEPS):
            _, mean, variance = _cumulants(parts, c)
            if abs(goal - mean) <= _CLOSE * math.sqrt(variance):
                break
            low, high = (c, high) if mean < goal else (low, c)
            c += (goal - mean) / variance if variance > 0 else math.inf
            if not low < c < min(high, _farthest(low)):
                c = _between(low, high)
        if not math.isfinite(c + variance):
            return 1.0, 1.0
        return c, max(math.sqrt(variance), 1.0)
    except (ArithmeticError, ValueError):
        return 1.0, 1.0


def _between(low: float, high: float) -> float:
    return (low + high) / 2 if high < math.inf else _farthest(low) / 2


def _farthest(low: float) -> float:
    # Where little is left of the variance a step of Newton's method leads far beyond the root.
    return 4 * max(low, 0.0) + 4


def _half(x: float) -> float:
    # e^(x^2/2) P(Z > x) for a standard normal Z.
    if x < _FAR:
        x = max(x, _LOWEST)
        return math.exp(x * x / 2) * math.erfc(x / math.sqrt(2)) / 2
    return _PEAK / (x + 1 / (x + 2 / (x + 3 / (x + 4 / (x + 5 / x)))))


def _saddle_of_curve(pair: LatticePair, goal: float) -> float:
    # The t with log delta(L(t)) about the goal. With K'(c) = t, a normal law of variance K'' in
    # place of the tilted one gives e^(K - ct) (H(c s) - H((c + b) s)), H as in `_half`; a step of
    # Newton's method, with K'' held fixed.
    parts, b = pair.parts(), float(pair.rise)
    low, high = -b / 2, math.inf
    c = math.sqrt(-2 * goal / max(_cumulants(parts, 0.0)[2], 1.0))
    for _ in range(_STEPS):
        value, mean, variance = _cumulants(parts, c)
        s = math.sqrt(variance)
        near, far = _half(c * s), _half((c + b) * s)
        short = b * s <= _SHORT
        between = b * s * (_PEAK - c * s * near) if short else near - far
        step = (value - c * mean + math.log(between) - goal) * between / (b * variance * far)
        if abs(step) * s <= _CLOSE:
            break
        low, high = (c, high) if step > 0 else (low, c)
        c += step
        if not low < c < min(high, _farthest(low)):
            c = _between(low, high)
    return mean
