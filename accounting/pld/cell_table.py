r"""The interface of a round that is divided into cells, and Poisson sampling of a round.

Proofs: docs/proofs/cells.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
from flint import arb

from accounting.pld.discretised_pld import Floats
from accounting.pld.pessimistic_discretisation import Cells
from dpcore.numbers.enclosure import Enclosure, End, ball, narrow

_EVEN: Final = 0.1
_FEWEST: Final = 2
_RANGES: Final = 1 << 10
"""The number of cells of a table whose masses are slow to compute."""

_BITS: Final = 64

_MOST_STEPS: Final = 30

Sketch: TypeAlias = tuple[Floats, Floats, Floats]
"""Outputs, the losses at them, and the logarithms of their P-masses, in floats."""


@dataclass(frozen=True, slots=True)
class Focus:
    r"""The density of cells: P-masses times e^(``tilt`` l), for losses l up to ``until``."""

    tilt: float
    until: float = math.inf

    def growth(self, losses: Floats) -> Floats:
        r"""The logarithm of the factor e^(``tilt`` l)."""
        found: Floats = self.tilt * np.minimum(losses, self.until)
        return found


class LossTable(ABC):
    r"""A dominating pair (P, Q) of one round whose outputs are divided into cells."""

    __slots__ = ()

    @property
    def fixed(self) -> bool:
        r"""Whether the cells do not depend on the requested edges."""
        return False

    @property
    def outputs(self) -> float:
        r"""About the number of cells if they are fixed, otherwise infinity."""
        return math.inf

    @abstractmethod
    def largest_loss(self) -> Enclosure:
        r"""The largest loss, as an enclosure."""

    def cut(self, spare: float) -> LossTable:
        r"""This round with an unbounded tail of P-mass ``spare`` merged into one cell."""
        del spare
        return self

    def infinite(self, *, above: bool) -> float:
        r"""An upper (``above``) or lower bound on the P-mass of infinite losses in the cells."""
        return _infinite(self, above)

    @abstractmethod
    def sketch(self) -> Sketch:
        r"""An approximate law of the loss, for choosing tilts and edges; no bound depends on it."""

    @abstractmethod
    def cells(self, edges: Floats) -> Cells:
        r"""The cells between ``edges``, and both tails."""

    @abstractmethod
    def allowed(self, edges: Floats) -> Floats:
        r"""The valid edges closest to the given ones."""

    @abstractmethod
    def tail_moment(self, order: Fraction, edges: Floats) -> arb:
        r"""An upper bound on E_Q[(dP/dQ)^order] over the cells of unbounded loss."""

    def least_moment(self, order: Fraction) -> arb:
        r"""A lower bound on E_Q[(dP/dQ)^order]; 0 if none is known."""
        del order
        return arb(0)

    @property
    def infinite_ends(self) -> int:
        r"""The number of cells whose losses are finite but unbounded."""
        return 0

    @property
    def slow(self) -> bool:
        r"""Whether masses are slow to compute, so that similar tilts share their cells."""
        return False

    def edges(self, focus: Focus, count: int) -> Floats:
        r"""About ``count`` edges, denser where the tilted loss has its mass.

        A width proportional to (tilted density of the loss)^(-1/3) minimises the variance added by
        rounding losses to cells; a tenth of the edges is spread evenly over the loss.
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
    r"""A round with few cells and bounded finite losses: there are no edges to choose."""

    __slots__ = ()

    @property
    def fixed(self) -> bool:
        return True

    @abstractmethod
    def all_cells(self) -> Cells:
        r"""The cells, in the order of their losses."""

    def sketch(self) -> Sketch:
        return sketch_of(self.all_cells())

    def allowed(self, edges: Floats) -> Floats:
        return edges

    def cells(self, edges: Floats) -> Cells:
        del edges
        return self.all_cells()

    def tail_moment(self, order: Fraction, edges: Floats) -> arb:
        r"""The value 0, since every finite loss is bounded."""
        del order, edges
        return arb(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled(LossTable):
    r"""A round whose secret sample contains one unit with probability ``rate``.

    ``base`` is the pair (P, Q) of a sample with the unit and one without. If ``present``, the pair
    is (1 - rate) Q + rate P against Q; otherwise P against (1 - rate) P + rate Q.
    """

    base: LossTable
    rate: Fraction
    present: bool

    @property
    def fixed(self) -> bool:
        return self.base.fixed

    def largest_loss(self) -> Enclosure:
        r"""log(1 + rate (e^l - 1)), or -log(1 + rate (e^-l - 1)); l is the base's largest."""
        found = self.base.largest_loss()
        return Enclosure(self._loss(found.lower).lower, self._loss(found.upper).upper)

    def cut(self, spare: float) -> Sampled:
        r"""The same sampled round; a tail of its base of P-mass ``spare`` becomes one cell."""
        return replace(self, base=self.base.cut(spare))

    def _loss(self, end: End) -> Enclosure:
        sign = 1 if self.present else -1
        if not isinstance(end, Fraction):
            if self.present:
                return Enclosure.infinite()
            return narrow(lambda: -(-ball(self.rate)).log1p(), _BITS)
        return narrow(lambda: sign * (ball(self.rate) * (sign * ball(end)).expm1()).log1p(), _BITS)

    def sketch(self) -> Sketch:
        r"""The sketch of the base, or of the cells if they are fixed."""
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
        r"""The cells of the base, with masses and ratios of the mixtures."""
        return self.base.cells(edges).sampled(self.rate, present=self.present)

    def allowed(self, edges: Floats) -> Floats:
        return self.base.allowed(edges)

    @property
    def slow(self) -> bool:
        return self.base.slow

    @property
    def infinite_ends(self) -> int:
        r"""The base's infinite ends if the mixture is the pair's first law; otherwise 0."""
        return self.base.infinite_ends if self.present else 0

    def tail_moment(self, order: Fraction, edges: Floats) -> arb:
        r"""The bound of the base also holds: ((1 - r) + r R)^order <= (1 - r) + r R^order."""
        if not self.present:
            return arb(0)
        # R >= 1 where the loss is unbounded, so 1 <= R^order there.
        return self.base.tail_moment(order, edges)


Tables: TypeAlias = tuple[tuple[Fraction, LossTable], ...]
r"""(probability, table) of each kind of round, with sum 1; the outcome reveals the kind."""


def sketch_of(cells: Cells, x: Floats | None = None) -> Sketch:
    r"""One point for each cell, at log(p/q), and optionally its position in ``x``."""
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
