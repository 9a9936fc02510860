r"""The division of a round into cells, and two finite laws that bound its privacy loss.

A round is a pair (P, Q) of output laws. Its outputs are divided into cells, in increasing order of
dP/dQ. Each cell stores its P-mass p, its Q-mass q, and the losses lo <= hi, the logarithms of dP/dQ
at its two ends. The two laws of the loss are:

    lower: the mass p at log(p/q) for each cell. It is a lower bound, because merging the outputs of
           a cell is post-processing.
    upper: masses at lo and at hi for each cell, with the sum p under P and q under Q. It is an
           upper bound: among all laws of dP/dQ on [e^lo, e^hi] with the mean p/q under Q, the law
           on the two ends has the largest divergences.

Domination is preserved under composition, so the sums of the upper and of the lower laws enclose a
sum of losses. :class:`accounting.pld.finite_pld.Listing` represents such a law. :class:`LossTable`
is the interface of a round that is divided into cells, and :class:`Sampled` is a round with Poisson
sampling. Proofs: docs/proofs/cells.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from flint import arb

from accounting.pld.finite_pld import Floats, Listing
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.arrays import LOG1P_ERROR, log1p
from dpcore.numbers.enclosure import Enclosure, End, ball, narrow

Integers: TypeAlias = npt.NDArray[np.int64]

_UNIT: Final = 2.0**-53
_UP: Final = 1 + 2.0**-49
"""Covers the rounding of a bound computed with fewer than 8 operations on numbers >= 0."""

_LOG_TWO: Final = 0.6931471805599453
_MOST_RATIO: Final = 2.0**990
_SLACK: Final = 1 + 2.0**-20
"""Covers the second-order terms of relative errors below 2^-22."""

_LEAST_RATE: Final = 2.0**-900
_FAR: Final = -0.5
"""For smaller w, 1 + w is computed from the ratio, without cancellation."""

_EVEN: Final = 0.1
_FEWEST: Final = 2
_RANGES: Final = 1 << 10
"""The number of cells of a table whose masses are slow to compute."""

_BITS: Final = 64
_MOST_STEPS: Final = 30

Sketch: TypeAlias = tuple[Floats, Floats, Floats]
"""Outputs, the losses at them, and the logarithms of their P-masses, in floats."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    r"""A table of columns of equal length; an index selects rows of all columns."""

    def __getitem__(self, places: Integers | slice) -> Self:
        return self._each(lambda columns: columns[0][places])

    def joined(self, *others: Self) -> Self:
        r"""This table followed by the rows of ``others``."""
        return self._each(_concatenated, *others)

    def _each(self, make: Callable[[list[Any]], Any], *others: Self) -> Self:
        # Each column from the columns of the same name.
        parts = (self, *others)
        return type(self)(
            **{f.name: make([getattr(part, f.name) for part in parts]) for f in fields(self)}
        )


def _concatenated(columns: list[Any]) -> Any:
    first, *others = columns
    return np.concatenate(columns) if isinstance(first, np.ndarray) else first.joined(*others)


@dataclass(frozen=True, slots=True, eq=False)
class Approximate(Columns):
    r"""Unknown numbers, each within ``error`` of its approximation ``value``."""

    value: Floats
    error: Floats

    @property
    def upper(self) -> Floats:
        return self.value + self.error + np.abs(self.value) * 2 * _UNIT

    @property
    def lower(self) -> Floats:
        return self.value - self.error - np.abs(self.value) * 2 * _UNIT

    def over(self, other: Approximate) -> Approximate:
        r"""Divide by ``other`` >= 0; a quotient is infinite if large or its divisor may be 0."""
        least = other.value - other.error
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            value = self.value / other.value
            error = self.error / least + np.abs(value) * (other.error / least + 3 * _UNIT)
        error *= _UP
        lost = ~((least > 0) & np.isfinite(value) & np.isfinite(error))
        return Approximate(np.where(lost, np.inf, value), np.where(lost, 0.0, error))


@dataclass(frozen=True, slots=True, eq=False)
class Ratios(Columns):
    r"""The likelihood ratios ``ratio`` = dP/dQ of some outputs, and ``excess`` = dP/dQ - 1."""

    excess: Approximate
    ratio: Approximate

    def put(self, places: Integers, them: Ratios) -> None:
        r"""Overwrite the ratios at the indices ``places`` with the ratios ``them``."""
        for mine, theirs in ((self.excess, them.excess), (self.ratio, them.ratio)):
            mine.value[places], mine.error[places] = theirs.value, theirs.error

    def sampled(self, rate: float, rest: float, *, present: bool) -> Ratios:
        r"""The ratios after the sampling of :meth:`Cells.sampled`; ``rest`` is 1 - ``rate``."""
        w, ratio = self.excess, self.ratio
        if present:
            excess, whole = rate * w.value, rest + rate * ratio.value
            slip = rate * w.error + 3 * _UNIT * np.abs(excess)
            slip_whole = rate * ratio.error + 4 * _UNIT * whole
            infinite = np.isinf(whole)
            return Ratios(
                Approximate(excess, np.where(infinite, 0.0, slip * _UP)),
                Approximate(whole, np.where(infinite, 0.0, slip_whole * _UP)),
            )
        # R/((1 - rate) R + rate), whose slope is rate over the square of the denominator.
        infinite = np.isinf(ratio.value)
        value, error = np.where(infinite, 1.0, ratio.value), np.where(infinite, 0.0, ratio.error)
        moved = np.where(infinite, 1.0, w.value)
        below = rest * value + rate
        with np.errstate(divide="ignore", invalid="ignore"):
            bend = rest * error / np.maximum(below - rest * error, 0.0) + 3 * _UNIT
        share = np.where(infinite, rest, below)
        with np.errstate(divide="ignore", invalid="ignore"):
            excess = rate * moved / share
            whole = value / share
            slip = (rate * w.error / share + np.abs(excess) * (bend + 4 * _UNIT)) * _SLACK
            slip_whole = whole * (bend + 4 * _UNIT) * _SLACK + error / share * _SLACK
        if rest == 0:
            excess, whole = np.where(infinite, np.inf, excess), np.where(infinite, np.inf, whole)
        return Ratios(Approximate(excess, slip), Approximate(whole, slip_whole))

    def log_above(self) -> Floats:
        r"""Upper bounds on log dP/dQ."""
        w = self.excess
        with np.errstate(invalid="ignore", divide="ignore"):
            near = log1p(np.maximum(w.value, _FAR))
            near += w.error / np.maximum(1 + w.value - w.error, 0.0) * _UP
            near += np.abs(near) * 2 * LOG1P_ERROR
        far = log_bound(self.ratio.upper, 1)
        found: Floats = np.where((w.value > _FAR) & np.isfinite(near), near, far)
        return np.where(np.isinf(w.value), np.inf, found)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells(Columns):
    r"""The cells into which the outputs of a round (P, Q) are divided, ordered by dP/dQ.

    The order is increasing. ``p`` and ``q`` are the P-masses and Q-masses of the cells. ``moved``
    is the difference p - q, which may be known more precisely than ``p`` and ``q``. On each cell
    dP/dQ lies between ``low`` and ``high``.
    """

    p: Approximate
    q: Approximate
    moved: Approximate
    low: Ratios
    high: Ratios

    @classmethod
    def rising(
        cls, *, p: Approximate, q: Approximate, moved: Approximate, low: Ratios, high: Ratios
    ) -> Cells:
        r"""Build the cells from arguments that are in increasing or decreasing order of dP/dQ."""
        if low.excess.value[0] <= high.excess.value[-1]:
            return cls(p=p, q=q, moved=moved, low=low, high=high)
        return cls(p=p, q=q, moved=moved, low=high, high=low)[::-1]

    def atoms_above(self) -> tuple[Floats, Floats, float]:
        r"""The atoms of the upper law of the module docstring: losses, masses, mass at infinity.

        The atoms give upper bounds on the divergences. For a cell with masses p and q and end
        losses lo <= hi, let h be the P-mass at hi, and l the P-mass at lo. Then p = h + l and q = h
        e^-hi + l e^-lo. With w_lo = e^lo - 1 and w_hi = e^hi - 1,

            h = (p - q - w_lo q)/(1 - e^(lo - hi)),    1 - e^(lo - hi) = (w_hi - w_lo)/(1 + w_hi).

        The law remains an upper bound if mass moves from lo to hi, so h is rounded up.
        """
        low, high, most = self.low.excess, self.high.excess, self.p.upper
        if not np.isfinite(most).all():
            raise PrecisionExhausted("the masses of a round are outside the range of floats")
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            size = np.abs(low.value)
            numerator = self.moved.value - low.value * self.q.value
            error = self.moved.error + size * self.q.error + low.error * self.q.upper
            error += 4 * _UNIT * (np.abs(self.moved.value) + size * self.q.value)
            gap = high.value - low.value - (high.error + low.error) * _UP
            gap -= 2 * _UNIT * (np.abs(high.value) + size)
            share = np.where(np.isinf(high.value), 1.0, gap / self.high.ratio.upper)
            top = (numerator + error) / share * _UP
        top = np.where((share > 0) & np.isfinite(top), np.clip(top, 0.0, most), most)
        losses = np.concatenate((self.low.log_above(), self.high.log_above()))
        masses = np.concatenate((np.maximum(most - top, 0.0), top)) * _UP
        finite = losses < np.inf
        hidden = float(masses[~finite].sum()) * _UP
        # Atoms of mass 0 have no effect; an atom at -infinity is moved up to the next atom.
        kept = finite & (masses > 0) & (losses > -np.inf)
        return losses[kept], masses[kept], hidden

    def atoms_below(self) -> tuple[Floats, Floats, Floats, float]:
        r"""The atoms of the lower law of the module docstring, with bounds on their masses.

        Returns lower bounds on the losses, lower bounds and upper bounds on the masses, and a lower
        bound on the mass at infinity. Outputs of Q-mass 0 have infinite loss.
        """
        p, q, moved = self.p, self.q, self.moved
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            relative = np.minimum(moved.value / q.value, _MOST_RATIO)
            bend = moved.error / q.value + np.abs(relative) * (q.error / q.value + 4 * _UNIT)
            near = log1p(np.maximum(relative, _FAR))
            near -= (bend / np.maximum(1 + relative - bend, 0.0)) * _UP
            near -= np.abs(near) * 2 * LOG1P_ERROR
            quotient = np.minimum(np.maximum(p.lower, 0.0) / q.upper, _MOST_RATIO) * (1 - 4 * _UNIT)
        # If the masses are imprecise, use the quotient of their bounds.
        far = log_bound(quotient, -1)
        losses = np.where(np.isfinite(near) & (relative > _FAR), np.maximum(near, far), far)
        least = np.maximum(p.lower, 0.0)
        possible = (q.value > 0) | (q.error > 0)
        hidden = float(least[~possible].sum()) * (1 - len(least) * 2 * _UNIT)
        return losses[possible], least[possible], p.upper[possible], hidden

    def sampled(self, rate: Fraction, *, present: bool) -> Cells:
        r"""The cells after Poisson sampling at ``rate`` r.

        The sampled pair is ((1-r) Q + r P, Q) if ``present`` is true, otherwise (P, (1-r) P + r Q).
        """
        r, rest = float(rate), float(1 - rate)
        if not r > _LEAST_RATE:
            raise PrecisionExhausted(
                "the sampling rate is too small for floating-point arithmetic: use a larger rate"
            )
        here, there = (self.q, self.p) if present else (self.p, self.q)
        value = rest * here.value + r * there.value
        error = (rest * here.error + r * there.error + 4 * _UNIT * value) * _UP
        mixed = Approximate(value, error)
        shift = r * self.moved.value
        moved = Approximate(shift, (r * self.moved.error + 3 * _UNIT * np.abs(shift)) * _UP)
        return Cells(
            p=mixed if present else self.p,
            q=self.q if present else mixed,
            moved=moved,
            low=self.low.sampled(r, rest, present=present),
            high=self.high.sampled(r, rest, present=present),
        )


def listed_above(*kinds: tuple[float, Cells]) -> Listing:
    r"""An upper bound on the loss of a mixture of ``kinds`` (probability rounded up, cells)."""
    found = [(chance, *cells.atoms_above()) for chance, cells in kinds]
    return Listing.above(
        np.concatenate([losses for _, losses, _, _ in found]),
        np.concatenate([masses * chance for chance, _, masses, _ in found]) * _UP,
        sum(hidden * chance for chance, _, _, hidden in found) * _UP,
    )


def listed_below(*kinds: tuple[float, Cells]) -> Listing:
    r"""A lower bound on the loss of a mixture of ``kinds`` (probability rounded down, cells)."""
    found = [(chance, *cells.atoms_below()) for chance, cells in kinds]
    return Listing.below(
        np.concatenate([losses for _, losses, *_ in found]),
        np.concatenate([masses * chance for chance, _, masses, *_ in found]) * (1 - 4 * _UNIT),
        np.concatenate([most * chance for chance, _, _, most, _ in found]) * _UP,
        sum(hidden * chance for chance, *_, hidden in found) * (1 - 8 * _UNIT),
    )


def log_bound(x: Floats, sign: int) -> Floats:
    r"""A bound on log x for x >= 0: an upper bound if ``sign`` is 1, a lower bound if it is -1."""
    mantissa, exponent = np.frexp(x)
    positive = np.isfinite(x) & (x > 0)
    found = log1p(np.where(positive, 2 * mantissa - 1, 0.0)) + (exponent - 1) * _LOG_TWO
    found += sign * 2 * LOG1P_ERROR * (np.abs(exponent) + 2)
    return np.where(positive, found, np.where(x > 0, np.inf, -np.inf))


@dataclass(frozen=True, slots=True)
class Focus:
    r"""The losses at which a discretisation should be fine.

    A loss l has the weight e^(``tilt`` min(l, ``until``)), multiplied by its P-mass. Cells are
    short where this weight is large.
    """

    tilt: float
    until: float = math.inf

    def growth(self, losses: Floats) -> Floats:
        r"""The exponent ``tilt`` min(l, ``until``) of the weight of each loss l."""
        found: Floats = self.tilt * np.minimum(losses, self.until)
        return found


class LossTable(ABC):
    r"""A round (P, Q) whose outputs can be divided into cells at chosen edges."""

    __slots__ = ()

    @property
    def fixed(self) -> bool:
        r"""Whether the cells are always the same, whatever edges are requested."""
        return False

    @property
    def outputs(self) -> float:
        r"""The approximate number of cells if they are :attr:`fixed`; otherwise infinity."""
        return math.inf

    @abstractmethod
    def largest_loss(self) -> Enclosure:
        r"""An enclosure of the largest privacy loss."""

    def cut(self, spare: float) -> LossTable:
        r"""The same round, where largest losses of P-mass about ``spare`` may become one cell."""
        del spare
        return self

    def infinite(self, *, above: bool) -> float:
        r"""A bound on the P-mass of infinite losses: upper if ``above`` is true, else lower."""
        return _infinite(self, above)

    @abstractmethod
    def sketch(self) -> Sketch:
        r"""Outputs, their approximate losses and log P-masses; they only choose edges and tilts."""

    @abstractmethod
    def cells(self, edges: Floats) -> Cells:
        r"""The cells between consecutive ``edges``, and the two tails beyond the edges."""

    @abstractmethod
    def allowed(self, edges: Floats) -> Floats:
        r"""The edges at which this round can be divided, close to the requested ``edges``."""

    @abstractmethod
    def tail_moment(self, order: Fraction, edges: Floats) -> arb:
        r"""An upper bound on E_Q[(dP/dQ)^order], restricted to the cells of unbounded loss."""

    def least_moment(self, order: Fraction) -> arb:
        r"""A lower bound on E_Q[(dP/dQ)^order]; 0 if no better bound is known."""
        del order
        return arb(0)

    @property
    def infinite_ends(self) -> int:
        r"""The number of tail cells whose loss has no finite upper bound."""
        return 0

    @property
    def slow(self) -> bool:
        r"""Whether masses take long to compute, so that similar tilts should use the same cells."""
        return False

    def edges(self, focus: Focus, count: int) -> Floats:
        r"""About ``count`` edges, denser at the losses that ``focus`` weights most.

        There are about 2^10 edges if the table is :attr:`slow`, at most a few if it is
        :attr:`fixed`. A cell width proportional to (weighted density of the loss)^(-1/3) adds the
        least variance to the loss. One tenth of the edges is spread evenly over the losses.
        """
        x, losses, logs = self.sketch()
        if self.fixed or len(x) < _FEWEST:
            return self.allowed(x[:1])
        if self.slow:
            focus, count = _shared(focus, count, losses, logs), _RANGES
        steps = np.gradient(x)
        slope = np.abs(np.gradient(losses, x)) + 1e-300
        weight = (logs - np.log(steps) + focus.growth(losses) + 2 * np.log(slope)) / 3
        dense, even = np.exp(weight - weight.max()) * steps, slope * steps
        dense = (1 - _EVEN) * dense / dense.sum() + _EVEN * even / even.sum()
        place = np.concatenate(([0.0], np.cumsum((dense[1:] + dense[:-1]) / 2)))
        return self.allowed(np.interp(np.linspace(0, place[-1], count), place, x))


class FixedTable(LossTable):
    r"""A round with few cells that are always the same, and whose finite losses are bounded."""

    __slots__ = ()

    @property
    def fixed(self) -> bool:
        return True

    @abstractmethod
    def all_cells(self) -> Cells:
        r"""All cells, in increasing order of the loss."""

    def sketch(self) -> Sketch:
        return sketch_of(self.all_cells())

    def allowed(self, edges: Floats) -> Floats:
        return edges

    def cells(self, edges: Floats) -> Cells:
        del edges
        return self.all_cells()

    def tail_moment(self, order: Fraction, edges: Floats) -> arb:
        del order, edges
        return arb(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled(LossTable):
    r"""A round with Poisson sampling: the sample contains one unit with probability ``rate``.

    The sample is secret. ``base`` is the pair (P, Q) without sampling, where P is the law with the
    unit and Q the law without. The sampled pair is ((1 - rate) Q + rate P, Q) if ``present`` is
    true, otherwise (P, (1 - rate) P + rate Q).
    """

    base: LossTable
    rate: Fraction
    present: bool

    @property
    def fixed(self) -> bool:
        return self.base.fixed

    def largest_loss(self) -> Enclosure:
        found = self.base.largest_loss()
        return Enclosure(self._loss(found.lower).lower, self._loss(found.upper).upper)

    def cut(self, spare: float) -> Sampled:
        return replace(self, base=self.base.cut(spare))

    def _loss(self, end: End) -> Enclosure:
        sign = 1 if self.present else -1
        if not isinstance(end, Fraction):
            if self.present:
                return Enclosure.infinite()
            return narrow(lambda: -(-ball(self.rate)).log1p(), _BITS)
        return narrow(lambda: sign * (ball(self.rate) * (sign * ball(end)).expm1()).log1p(), _BITS)

    def sketch(self) -> Sketch:
        x, losses, logs = self.base.sketch()
        if self.fixed:
            return sketch_of(self.cells(x[:1]))
        rate = float(self.rate)
        with np.errstate(over="ignore"):
            if self.present:
                log_rest = math.log1p(-rate) if rate < 1 else -math.inf
                logs = logs + np.logaddexp(math.log(rate), log_rest - losses)
                return x, np.logaddexp(log_rest, math.log(rate) + losses), logs
            return x, -np.log1p(rate * np.expm1(-losses)), logs

    def cells(self, edges: Floats) -> Cells:
        return self.base.cells(edges).sampled(self.rate, present=self.present)

    def allowed(self, edges: Floats) -> Floats:
        return self.base.allowed(edges)

    @property
    def slow(self) -> bool:
        return self.base.slow

    @property
    def infinite_ends(self) -> int:
        return self.base.infinite_ends if self.present else 0

    def tail_moment(self, order: Fraction, edges: Floats) -> arb:
        # ((1 - r) + r R)^order <= (1 - r) + r R^order by convexity.
        if not self.present:
            return arb(0)
        # R >= 1 where the loss is unbounded, so 1 <= R^order there.
        return self.base.tail_moment(order, edges)


Tables: TypeAlias = tuple[tuple[Fraction, LossTable], ...]
r"""Pairs (probability, table), one for each kind of round; the outcome reveals the kind."""


def sketch_of(cells: Cells, x: Floats | None = None) -> Sketch:
    r"""The :data:`Sketch` of the cells with finite log(P-mass/Q-mass), at ``x`` or numbered."""
    p, q = cells.p.value, cells.q.value
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        losses = np.log(p / q)
        logs = np.log(p)
    kept = np.isfinite(losses) & np.isfinite(logs)
    places = np.arange(float(len(p))) if x is None else x
    return places[kept], losses[kept], logs[kept]


def _shared(focus: Focus, count: int, losses: Floats, logs: Floats) -> Focus:
    # The tilt rounded to a multiple of the inverse deviation of the loss; 0 for a coarse table.
    weights = np.exp(logs - logs.max())
    mean = float(weights @ losses / weights.sum())
    deviation = math.sqrt(float(weights @ (losses - mean) ** 2 / weights.sum()))
    steps = round(focus.tilt * deviation) if count > _RANGES else 0
    return Focus(min(steps, _MOST_STEPS) / deviation if steps else 0.0)


@lru_cache(maxsize=256)
def _infinite(table: LossTable, above: bool) -> float:  # noqa: FBT001  # a key of the cache
    # The tail cells do not depend on the edges between them.
    cells = table.cells(table.allowed(table.sketch()[0][:1]))
    found = cells.atoms_above()[2] if above else cells.atoms_below()[3]
    return found * (1 + 2.0**-40) if above else found * (1 - 2.0**-40)
