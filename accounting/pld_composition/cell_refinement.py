r"""The privacy loss of one round, discretised for a given tilt and a given width of the bounds.

The tilt decides where the cells of the round (:mod:`accounting.pld.discretise_round`) are short,
and the width decides how many cells there are. Proofs: docs/proofs/cells.md.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final, Self

import numpy as np
from flint import arb

from accounting.pairs.enclose_curve import largest
from accounting.pld.allocation_loss import USUAL_ATOMS, Side, allocated, atoms_for
from accounting.pld.discretise_round import (
    Cells,
    Focus,
    LossTable,
    Tables,
    listed_above,
    listed_below,
)
from accounting.pld.finite_pld import Listing
from accounting.pld.noise_density import Density
from accounting.pld_composition.discrete_factor import DiscreteFactor, cumulants, tilted
from accounting.pld_composition.factor import LossPart
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import Enclosure

_FEWEST: Final = 512
_USUAL: Final = Focus(1.0)
_LISTED: Final = 1 << 12
_MOST: Final = 1 << 16
_STEPS: Final = 4  # distinct cell counts for each factor of 2
_UP: Final = 1 + 2.0**-50


@dataclass(frozen=True, slots=True, kw_only=True)
class TabledLoss(LossPart):
    r"""The discretised loss of a round that is a random mixture with a revealed component.

    ``kinds`` lists the components as pairs (probability, round divided into cells). The
    discretisation is pessimistic, for upper bounds, if ``above`` is true; otherwise it is
    optimistic, for lower bounds.

    >>> from accounting.pld.noise_density import NormalDensity
    >>> from accounting.pld.real_cells import RealPair
    >>> pair = RealPair.sampled(NormalDensity(Fraction(1)), Fraction(1, 100))
    >>> law = TabledLoss.of(pair, above=True)
    >>> round(law.cumulants(1.0)[0], 8)  # M(1) = 1 + gamma^2 (e - 1)
    0.00017181
    """

    kinds: Tables
    above: bool

    @classmethod
    def of(cls, table: LossTable, *, above: bool) -> Self:
        r"""The loss of the round ``table``, which is not a mixture."""
        return cls(kinds=((Fraction(1), table),), above=above)

    def cut(self, spare: float, width: float = math.inf) -> TabledLoss:
        del width
        return replace(self, kinds=tuple((w, table.cut(spare)) for w, table in self.kinds))

    @property
    def outputs(self) -> float:
        return max(table.outputs for _, table in self.kinds)

    def few_atoms(self, least: float, *, coarse: bool = False) -> Listing | None:
        # None if the cells could still be refined (unless `coarse`), or if the precision does not
        # suffice.
        cut = self.cut(least)
        if not (coarse or all(table.fixed for _, table in cut.kinds)):
            return None
        try:
            return cut.listing()
        except PrecisionExhausted:
            return None

    def listing(self, focus: Focus = _USUAL, count: int = _LISTED) -> Listing:
        r"""The loss discretised with about ``count`` cells, finest at the losses of ``focus``."""
        return _listing(self, focus, count)

    @property
    def hidden(self) -> arb:
        rounded = _up if self.above else _down
        found = sum(
            rounded(chance) * pair.infinite(above=self.above) for chance, pair in self.kinds
        )
        return arb(found * _UP + 1e-322 * (found > 0) if self.above else found / _UP)

    def largest_loss(self) -> Enclosure:
        return largest(pair.largest_loss() for _, pair in self.kinds)

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        return _cumulants(self.kinds, tilt)

    def factor(
        self, tilt: Fraction, variance: float = math.inf, focus: Focus | None = None
    ) -> DiscreteFactor:
        at = focus or Focus(float(tilt))
        return _factor(self, tilt, at, _count(self, at, variance))


class AllAtoms(LossPart):
    r"""A loss with one discretisation for every tilt, which only :meth:`cut` may change."""

    __slots__ = ()

    @property
    @abstractmethod
    def atoms(self) -> Listing:
        r"""The discretised distribution of the loss."""

    def few_atoms(self, least: float, *, coarse: bool = False) -> Listing | None:
        del least, coarse
        return self.atoms

    @property
    def hidden(self) -> arb:
        return arb(self.atoms.hidden)

    @property
    def largest(self) -> arb:
        return arb(float(self.atoms.losses[-1]))

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        atoms = self.atoms
        return cumulants(np.log(atoms.masses) + tilt * atoms.losses, atoms.losses)

    def factor(
        self, tilt: Fraction, variance: float = math.inf, focus: Focus | None = None
    ) -> DiscreteFactor:
        del variance, focus
        return tilted(self.atoms, tilt)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedLoss(AllAtoms):
    r"""A loss that ``listing`` bounds: from above if ``above`` is true, else from below."""

    listing: Listing
    above: bool

    @property
    def atoms(self) -> Listing:
        return self.listing

    def largest_loss(self) -> Enclosure:
        return Enclosure.exactly(Fraction(float(self.listing.losses[-1])))


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedLoss(AllAtoms):
    r"""A bound on the loss of an epoch of random allocation.

    The fields are the arguments of :func:`accounting.pld.allocation_loss.allocated`, where
    ``count`` is called ``atoms``.
    """

    density: Density
    rounds: int
    side: Side
    count: int = USUAL_ATOMS

    def cut(self, spare: float, width: float = math.inf) -> AllocatedLoss:
        del spare
        return replace(self, count=atoms_for(width))

    @property
    def outputs(self) -> float:
        return self.count

    @property
    def above(self) -> bool:
        return self.side.above

    @property
    def atoms(self) -> Listing:
        return allocated(self.density, self.rounds, self.side, self.count)

    def largest_loss(self) -> Enclosure:
        return Enclosure.infinite()


@lru_cache(maxsize=256)
def _cumulants(kinds: Tables, tilt: float) -> tuple[float, float, float]:
    # A probability below all floats is replaced by the least one: this only proposes a tilt.
    found = [(math.log(max(float(chance), 5e-324)), *pair.sketch()[1:]) for chance, pair in kinds]
    losses = np.concatenate([losses for _, losses, _ in found])
    logs = np.concatenate([logs + chance for chance, _, logs in found])
    return cumulants(logs + tilt * losses, losses)


def _count(law: TabledLoss, focus: Focus, variance: float) -> int:
    # The best cells add (sum (w h^2)^(1/3))^3/(6 n^2) to the variance of a tilted loss.
    most, whole = 0.0, 0.0
    for chance, pair in law.kinds:
        _, losses, logs = pair.sketch()
        if pair.fixed or len(losses) < 2:
            continue
        weights = float(chance) * np.exp(np.minimum(logs + focus.growth(losses), 600.0))
        steps = np.abs(np.gradient(losses))
        most += float(np.cbrt(weights * steps * steps).sum()) ** 3
        whole += float(weights.sum())
    if not whole:
        return _FEWEST
    count = math.sqrt(most / (2.4 * whole * variance)) if variance > 0 else _MOST
    if not count < _MOST:
        return _MOST
    # The count is rounded up to one of a few values, so that similar requests share their cells.
    return max(math.ceil(2 ** (math.ceil(math.log2(max(count, 1.0)) * _STEPS) / _STEPS)), _FEWEST)


def _listing(law: TabledLoss, focus: Focus, count: int) -> Listing:
    tables = [(chance, _cells(pair, focus, count)) for chance, pair in law.kinds]
    if law.above:
        return listed_above(*((_up(chance), cells) for chance, cells in tables))
    return listed_below(*((_down(chance), cells) for chance, cells in tables))


@lru_cache(maxsize=32)
def _cells(pair: LossTable, focus: Focus, count: int) -> Cells:
    return pair.cells(pair.edges(focus, count))


@lru_cache(maxsize=64)
def _factor(law: TabledLoss, tilt: Fraction, focus: Focus, count: int) -> DiscreteFactor:
    listing = _listing(law, focus, count)
    sign = 1 if law.above else -1
    if sign * (law.hidden - listing.hidden) < 0 or law.largest < float(listing.losses[-1]):
        raise PrecisionExhausted("the discretised privacy loss distribution exceeds its bounds")
    return tilted(listing, tilt)


def _up(chance: Fraction) -> float:
    return 1.0 if chance == 1 else float(chance) * _UP


def _down(chance: Fraction) -> float:
    return 1.0 if chance == 1 else float(chance) / _UP
