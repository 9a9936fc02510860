r"""Pairs of integer-valued noise and its shifted copy, divided into cells.

If there are few outputs, each cell is a single integer, and the only error is rounding. Otherwise
each cell is a range of integers. The mass of a range is a sum of masses in floating point, or a
difference of tail probabilities in ball arithmetic. Proofs: docs/proofs/cells.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np
from flint import arb, ctx

from accounting.pairs.enclose_curve import as_ball
from accounting.pairs.finite import FinitePair
from accounting.pairs.pair import Pair, largest_known
from accounting.pld.discretise_round import (
    Approximate,
    Cells,
    FixedTable,
    Integers,
    LossTable,
    Ratios,
    Sketch,
    sketch_of,
)
from accounting.pld.finite_pld import Floats
from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.noise import FLOAT_ERROR, Noise
from dpcore.numbers.enclosure import Enclosure, ball, nearest, precision

_UNIT: Final = 2.0**-53
_UP: Final = 1 + 2.0**-49
_BITS: Final = 160
_MORE_BITS: Final = 640
_LISTED_BITS: Final = 96
_TAIL_BITS: Final = 64
_ROUGH_BITS: Final = 32
_FAINT: Final = 2.0**-72
_SURE: Final = 48
_MOST_SINGLE: Final = 1 << 14
"""A larger number of integers is grouped into ranges."""

_FEW: Final = 64
"""Masses and losses of at most this number of outputs are rounded from balls."""

_MOST_LISTED: Final = 1 << 18
"""For a larger number of integers, only masses of ranges are computed, as differences of tails."""

_POINTS: Final = 257
_DEVIATIONS: Final = 8
_FARTHEST: Final = 256.0
_LEAST_POWER: Final = 0.25
_OUTSIDE: Final = 650
"""The decrease of the masses within the window, in nats; it is less in a truncated table."""

_BEYOND_SPARE: Final = 24
_OUTSIDE_STEP: Final = 32

_SMALLEST: Final = 1e-299
_BEYOND_NATS: Final = 95
"""A bend this many nats further out is part of a tail: floats represent no mass below e^-745."""

_MOST_LOSS: Final = 680


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerPair(LossTable):
    r"""The integer outputs of ``pair``, divided into cells.

    The integers outside a window form one cell on each side. If the loss is constant outside a
    range of integers, this range is the window. If not, the window contains at most the integers
    whose mass exceeds about e^-``outside`` times the largest mass.

    >>> from accounting.law_pairs.skellam_and_polya import SkellamPair
    >>> from accounting.pld.discretise_round import Focus
    >>> from dpcore.laws.skellam import Skellam
    >>> table = IntegerPair(pair=SkellamPair(noise=Skellam(variance=16), shift=1))
    >>> cells = table.cells(table.edges(Focus(1.0), 100))
    >>> bool(abs(cells.p.value.sum() - 1) < 1e-12), table.fixed
    (True, True)

    Its methods raise :class:`NotDerived` if ``pair`` does not define :meth:`Pair.offsets`.
    """

    pair: Pair
    outside: int = _OUTSIDE

    def cut(self, spare: float) -> IntegerPair:
        r"""The same pair, where the window omits masses far below ``spare`` if ``spare`` > 0."""
        if not spare > 0:
            return self
        steps = math.ceil((_BEYOND_SPARE - math.log(spare)) / _OUTSIDE_STEP)
        return replace(self, outside=min(steps * _OUTSIDE_STEP, _OUTSIDE))

    @property
    def fixed(self) -> bool:
        return self._window.single and self._window.listed

    @property
    def outputs(self) -> float:
        return self._window.last - self._window.first if self.fixed else math.inf

    @property
    def _window(self) -> _Window:
        return _window(self.pair, self.outside)

    def largest_loss(self) -> Enclosure:
        return largest_known(self.pair)

    @property
    def infinite_ends(self) -> int:
        with precision(_BITS):
            return len(self._window.unbounded())

    def sketch(self) -> Sketch:
        return _sketch(self._window)

    @property
    def slow(self) -> bool:
        return not self._window.listed

    def allowed(self, edges: Floats) -> Floats:
        # Integers of the window, with its ends and both sides of all turning points of the loss.
        window = self._window
        found = {int(edge) for edge in np.clip(edges, float(window.first), float(window.last))}
        found |= {window.first, window.last}
        found |= {m + k for m in self.pair.bends() for k in (0, 1)}
        kept = sorted(m for m in found if window.first <= m <= window.last)
        return np.array(kept, dtype=np.float64)

    def cells(self, edges: Floats) -> Cells:
        if self.fixed:
            return _single(self._window)
        if self._window.listed:
            return _grouped(self._window, edges)
        return _ranges(self._window, tuple(int(edge) for edge in edges))

    def tail_moment(self, order: Fraction, edges: Floats) -> arb:
        # Hoelder: E_Q[R^a; T]^2 <= E_Q[R^(2a)] Q(T) on a tail T of unbounded loss.
        del edges
        found = arb(0)
        for right in self._window.unbounded():
            _, rest = self._window.tail(right=right)
            moment = as_ball(self.pair.renyi(2 * order)) * ball(2 * order - 1)
            found += (moment.exp() * rest).sqrt()
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPair(FixedTable):
    r"""A pair with finitely many losses, with one cell for each loss."""

    pair: FinitePair

    def largest_loss(self) -> Enclosure:
        return self.pair.largest_loss()

    def all_cells(self) -> Cells:
        return _of_losses(self.pair)


def table_of(pair: Pair) -> LossTable:
    r"""The division of ``pair`` into cells: by loss if there are finitely many, else by output."""
    return ListedPair(pair=pair) if isinstance(pair, FinitePair) else IntegerPair(pair=pair)


@lru_cache(maxsize=64)
def _of_losses(pair: FinitePair) -> Cells:
    with precision(_BITS):
        rows = pair.listed()
        losses = [as_ball(loss) for loss, _, _ in rows]
        return _of_balls([(p, q) for _, p, q in rows], losses, losses)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    # The outputs first <= m < last; the outputs outside are two cells.
    pair: Pair
    first: int
    last: int

    @property
    def single(self) -> bool:
        return self.last - self.first <= _MOST_SINGLE

    @property
    def listed(self) -> bool:
        few = self.last - self.first <= _MOST_LISTED
        return few and _in_floats(self.pair, self.first, self.last)

    def losses_beyond(self, *, right: bool) -> tuple[arb, arb]:
        return self.pair.losses_beyond(self.last if right else self.first - 1, right=right)

    def unbounded(self) -> list[bool]:
        # The tails, left or right, with unbounded losses.
        sides = (False, True)
        return [right for right in sides if self.losses_beyond(right=right)[1] == arb("inf")]

    def tail(self, *, right: bool) -> tuple[arb, arb]:
        return _tails(self.pair, self.last if right else self.first, right=right)


def _tails(pair: Pair, m: int, *, right: bool) -> tuple[arb, arb]:
    # (P, Q) of the set {m, m + 1, ...} if `right`, otherwise of {..., m - 1}.
    at = pair.offsets()
    found = []
    for offset in (at.here, at.there):
        # {k >= m} is {X >= m + offset}, and {X <= offset - m} if the sign is -1.
        edge = at.sign * m + offset - (at.sign > 0)
        above = right == (at.sign > 0)
        if at.noise.symmetric and not above:
            edge, above = -edge - 1, True
        found.append(_tail(at.noise, edge, above, ctx.prec))
    return found[0], found[1]


@lru_cache(maxsize=1 << 12)
def _tail(noise: Noise, edge: int, above: bool, bits: int) -> arb:  # noqa: FBT001  # keys of the cache
    # P(X > edge) if `above`, otherwise P(X <= edge); `bits` is the ambient precision.
    del bits
    return noise.sf_ball(edge) if above else noise.cdf_ball(edge)


@lru_cache(maxsize=256)
def _window(pair: Pair, outside: int) -> _Window:
    flat = pair.constant_beyond()
    first, last = _reach(pair, outside) if flat is None else (flat[0] + 1, flat[1])
    if last - first > _MOST_LISTED and flat is None:
        first, last = _reach(pair, min(outside, _OUTSIDE // 3))
    with precision(_BITS):
        # Losses beyond this count as infinite, so they are left to the tail.
        bounded = largest_known(pair).upper <= _MOST_LOSS
        while not bounded and last - 1 > first:
            bounded = not _MOST_LOSS < as_ball(pair.loss(last - 1)) < math.inf
            last -= 0 if bounded else max((last - first) // 64, 1)
    return _Window(pair=pair, first=first, last=last)


def _reach(pair: Pair, nats: float) -> tuple[int, int]:
    # The range where the masses are above e^-nats: a proposal, since the tails are bounded anyway.
    at = pair.offsets()
    mean = at.noise.mean
    center = round(mean if isinstance(mean, Fraction) else Fraction(mean.lower))
    above = _fallen(at.noise, center, 1, nats)
    ends = [above, -above if at.noise.symmetric else _fallen(at.noise, center, -1, nats)]
    spots = [at.sign * (end - offset) for end in ends for offset in (at.here, at.there)]
    spots += [m + k for m in pair.bends() if _within_reach(pair, m, nats) for k in (0, 1)]
    return min(spots), max(spots) + 1


def _within_reach(pair: Pair, bend: int, nats: float) -> bool:
    # A bend to infinite loss, in a tail of mass below all floats, is left to that tail.
    if as_ball(pair.loss(bend + 1)) != arb("inf"):
        return True
    at = pair.offsets()
    values = (at.sign * m + offset for m in (bend, bend + 1) for offset in (at.here, at.there))
    return any(_log_mass(at.noise, value) > -nats - _BEYOND_NATS for value in values)


def _fallen(noise: Noise, center: int, sign: int, nats: float) -> int:
    # The mass decreases about like e^-(a x^b): a and b follow from two points.
    top = _log_mass(noise, center)

    def fall(distance: int) -> float:
        return top - _log_mass(noise, center + sign * distance)

    variance = noise.variance
    spread = math.sqrt(float(variance if isinstance(variance, Fraction) else variance.upper))
    near = math.ceil(_DEVIATIONS * spread) + 1
    first = fall(near)
    if not 0 < first < nats:
        return center + sign * near
    far = math.ceil(near * min(nats / first, _FARTHEST))
    while (second := fall(far)) == math.inf and far > near + 1:
        far = (near + far) // 2
    power = math.log(second / first) / math.log(far / near) if second > first else 1.0
    distance = near * (nats / first) ** (1 / max(power, _LEAST_POWER))
    return int(center + sign * math.ceil(distance))


@lru_cache(maxsize=256)
def _log_mass(noise: Noise, k: int) -> float:
    # Approximately: it only proposes a range.
    for bits in (_ROUGH_BITS, _BITS):
        with precision(bits):
            mass = noise.pmf_ball(k)
            if mass > 0:
                return float(mass.log().mid())
    return -math.inf


@lru_cache(maxsize=256)
def _in_floats(pair: Pair, first: int, last: int) -> bool:
    try:
        _masses(pair, first, last)
    except (InvalidParameter, PrecisionExhausted):
        return False
    return True


@lru_cache(maxsize=32)
def _masses(pair: Pair, first: int, last: int) -> tuple[Floats, Floats]:
    at, m = pair.offsets(), np.arange(first, last)
    if first == last:
        return np.empty(0), np.empty(0)
    places = at.sign * m + at.here, at.sign * m + at.there
    least, most = (int(f(f(each) for each in places)) for f in (min, max))
    with precision(_LISTED_BITS):
        balls = pair.mass_balls(least, most)
    if balls is None:
        return at.noise.pmf(places[0]), at.noise.pmf(places[1])
    found = np.array([nearest(mass) for mass in balls])
    if not all(mass.rel_accuracy_bits() > _SURE or mass == 0 for mass in balls):
        raise PrecisionExhausted("masses of this noise are not known precisely enough")
    return found[places[0] - least], found[places[1] - least]


@lru_cache(maxsize=64)
def _single(window: _Window) -> Cells:
    if window.last - window.first <= _FEW and window.pair.constant_beyond() is not None:
        return _ranges(window, tuple(range(window.first, window.last + 1)))
    return _with_tails(window, _listed(window))


@lru_cache(maxsize=16)
def _listed(window: _Window) -> Cells:
    here, there = _masses(window.pair, window.first, window.last)
    p, q = (
        Approximate(x, np.where(x > _SMALLEST, x * FLOAT_ERROR * _UP, _SMALLEST))
        for x in (here, there)
    )
    moved = Approximate(p.value - q.value, p.error + q.error + np.abs(p.value - q.value) * _UNIT)
    ratios = Ratios(moved.over(q), p.over(q))
    # A float below `_SMALLEST` is only known to be in [0, _SMALLEST]; the loss is computed exactly.
    faint = np.flatnonzero(np.minimum(here, there) <= _SMALLEST)
    with precision(_TAIL_BITS):
        losses = [as_ball(window.pair.loss(window.first + place)) for place in faint.tolist()]
        for place, loss in zip(faint, losses, strict=True):
            for each, infinite in ((p, "-inf"), (q, "inf")):
                if each.value[place] == 0 and loss == arb(infinite):
                    each.error[place] = 0.0
        ratios.put(faint, _ratios(losses))
    return Cells(p=p, q=q, moved=moved, low=ratios, high=ratios)


def _grouped(window: _Window, edges: Floats) -> Cells:
    single, first = _listed(window), window.first
    starts = edges[:-1].astype(np.int64) - first
    ends = edges[1:].astype(np.int64) - first - 1
    p, q, moved = (_summed(each, starts, ends) for each in (single.p, single.q, single.moved))
    rises = single.low.excess.value[starts] <= single.low.excess.value[ends]
    low, high = np.where(rises, starts, ends), np.where(rises, ends, starts)
    inner = Cells(p=p, q=q, moved=moved, low=single.low[low], high=single.high[high])
    return _with_tails(window, inner)


def _summed(each: Approximate, starts: Integers, ends: Integers) -> Approximate:
    value, error, size = (
        np.add.reduceat(x, starts) for x in (each.value, each.error, np.abs(each.value))
    )
    return Approximate(value, (error + size * (ends - starts + 1) * _UNIT) * _UP)


def _with_tails(window: _Window, inner: Cells) -> Cells:
    left, right = (_tail_cell(window, right=right) for right in (False, True))
    return left.joined(inner, right)


def _tail_cell(window: _Window, *, right: bool) -> Cells:
    # A negligible mass needs few bits.
    with precision(_ROUGH_BITS):
        p, q = window.tail(right=right)
    with precision(_TAIL_BITS):
        if not (p < _FAINT and q < _FAINT):
            p, q = window.tail(right=right)
        low, high = window.losses_beyond(right=right)
        return _of_balls([(p, q)], [low], [high])


def _of_balls(masses: list[tuple[arb, arb]], low: list[arb], high: list[arb]) -> Cells:
    p, q, moved = (
        _approximate(row)
        for row in (
            [here for here, _ in masses],
            [there for _, there in masses],
            [here - there for here, there in masses],
        )
    )
    return Cells(p=p, q=q, moved=moved, low=_ratios(low), high=_ratios(high))


def _ratios(losses: list[arb]) -> Ratios:
    # A loss l is treated as infinite, of either sign, if e^l is outside the range of floats.
    held = [_held(loss) for loss in losses]
    return Ratios(
        _approximate([loss.expm1() if loss.is_finite() else loss.exp() - 1 for loss in held]),
        _approximate([loss.exp() for loss in held]),
    )


def _held(loss: arb) -> arb:
    if loss < -_MOST_LOSS or loss == arb("-inf"):
        return arb("-inf")
    return loss if loss < _MOST_LOSS else arb("inf")


def _approximate(balls: list[arb]) -> Approximate:
    value, error = np.empty(len(balls)), np.empty(len(balls))
    for i, each in enumerate(balls):
        if each.is_finite():
            value[i] = float(each.mid())
            slip = each.rad() + abs(each.mid() - arb(value[i]))
            error[i] = float(slip.upper()) * _UP + (5e-324 if slip > 0 else 0.0)
        else:
            value[i], error[i] = math.inf, 0.0
    return Approximate(value, error)


@lru_cache(maxsize=16)
def _ranges(window: _Window, edges: tuple[int, ...]) -> Cells:
    pair = window.pair
    for bits in (_BITS, _MORE_BITS):
        with precision(bits):
            masses = _range_masses(pair, edges)
            if all(here.rel_accuracy_bits() > _SURE for here, _ in masses):
                break
    with precision(_BITS):
        starts = [as_ball(pair.loss(m)) for m in edges[:-1]]
        stops = [
            starts[i] if after == before + 1 else as_ball(pair.loss(after - 1))
            for i, (before, after) in enumerate(pairwise(edges))
        ]
        pairs = list(zip(starts, stops, strict=True))
        low = [one.min(two) for one, two in pairs]
        high = [one.max(two) for one, two in pairs]
        return _with_tails(window, _of_balls(masses, low, high))


def _range_masses(pair: Pair, edges: tuple[int, ...]) -> list[tuple[arb, arb]]:
    # Differences of the smaller of the two tails, approximately, so that little cancels.
    at = pair.offsets()
    mean = at.noise.mean
    middle = at.sign * (round(mean if isinstance(mean, Fraction) else mean.lower) - at.here)
    center = bisect_left(edges, middle)
    left = [_tails(pair, m, right=False) for m in edges[: center + 1]]
    right = [_tails(pair, m, right=True) for m in edges[center:]]
    return [
        (two[0] - one[0], two[1] - one[1])
        for tails in (left, [(-p, -q) for p, q in right])
        for one, two in pairwise(tails)
    ]


@lru_cache(maxsize=256)
def _sketch(window: _Window) -> Sketch:
    if window.single and window.listed:
        return sketch_of(_single(window))
    spread = np.linspace(float(window.first), float(window.last), _POINTS)
    # Few outputs next to a turning point may have the largest losses.
    steps = [
        sign << j for j in range((window.last - window.first).bit_length()) for sign in (-1, 1)
    ]
    near = [m + 1 + step for m in window.pair.bends() for step in (0, *steps)]
    inner = [float(m) for m in near if window.first < m < window.last]
    edges = np.unique(np.floor(np.append(spread, inner)), return_index=True)[0]
    x = np.concatenate((edges[:1] - 1.0, (edges[1:] + edges[:-1] - 1) / 2, edges[-1:]))
    if window.listed:
        return sketch_of(_grouped(window, edges.astype(np.float64)), x)
    return sketch_of(_ranges(window, tuple(int(edge) for edge in edges)), x)
