r"""A loss with a density as a factor of the line integral: its moment is a sum over few nodes.

The law gives nodes with M(c+iy) = sum_j w_j e^(iyl_j), up to a bounded error, for |y| <= ``reach``:
a quadrature of an analytic integrand, which needs more nodes the larger |y| is. Beyond, where no
nodes are wanted, the law bounds |M(c+iy)| by what it is on a line beside the real one.
Proofs: docs/proofs/real_noise.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final, Protocol

import numpy as np
from flint import acb, arb, ctx

from accounting.fourier.discs import Discs, Floats, Integers
from accounting.fourier.factor import Grid
from accounting.fourier.listed_factor import AtomFactor, atom_factor, fading_factor
from dpcore.errors import PrecisionExhausted

__all__ = ["FadingNodes", "Nodes", "SmoothFactor", "SmoothLaw", "SmoothPart", "SmoothSampled"]

# Only speed and width rest on these: bounds of the law stand in where nodes are too few or too far.
_MOST_NODES: Final = 1 << 13  # of a list
_FEWEST_NODES: Final = 1 << 9  # however long the grid is
_MOST_WORK: Final = 1 << 27  # nodes times frequencies: longer grids have fewer nodes
_MOST_WORK_BESIDE: Final = 1 << 29  # the same beside the real line, where one list serves all
_FINE: Final = 40.0  # nats to which the values are found
_MIDDLING: Final = 26.0  # for a moment
_COARSE: Final = 5.0  # for a first look
_NEAREST: Final = 8.0  # a list reaches at least so far, to serve again
_ENOUGH: Final = 0.5  # a bound above this is looked at with nodes
_LADDER: Final = 2.0 ** np.arange(0, 32, 0.25)  # where the law is bounded, once for all
_FIRST: Final = 1  # below the first of them nodes are looked at
_SHORTER: Final = 0.7  # where nodes are too many, fewer blocks have them


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    r"""|M(c+iy) - sum_j ``weights[j]`` e^(iy ``losses[j]``)| <= ``rest`` for |y| <= a reach."""

    weights: tuple[arb, ...]
    losses: tuple[arb, ...]
    rest: arb


@dataclass(frozen=True, slots=True, kw_only=True)
class FadingNodes:
    r"""The same for all y >= 0, with Im ``losses`` >= 0: on a line beside the real one."""

    weights: tuple[acb, ...]
    losses: tuple[acb, ...]
    rest: arb


class SmoothLaw(Protocol):
    r"""A loss L with a density, and perhaps some atoms; a value. Balls at ambient precision."""

    def __hash__(self) -> int: ...

    @property
    def largest(self) -> arb:
        r"""An upper bound of every loss, infinite where there is none."""
        ...

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        r"""About K, K' and K'' at c = ``tilt``, K = log M."""
        ...

    def nodes(self, tilt: Fraction, reach: float, nats: float, most: int) -> Nodes:
        r"""Nodes for |y| <= ``reach`` with an error near e^-``nats`` M(c).

        Raises :class:`PrecisionExhausted` where they are more than ``most``.
        """
        ...

    def fading(self, tilt: Fraction, nats: float, most: int) -> FadingNodes | None:
        r"""Nodes for all y >= 0, with an error as above; None where there are none, or too many."""
        ...

    def far(self, tilt: Fraction, frequencies: Floats) -> Floats:
        r"""Upper bounds of |M(c+iy)| e^-K for all |y| >= each of these frequencies > 0.

        Up to what :meth:`ripple` says.
        """
        ...

    def ripple(self, tilt: Fraction, frequencies: Floats) -> Floats:
        r"""What ``far`` may be short by at all |y| <= each of these frequencies."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothPart:
    r"""A law before a tilt is chosen."""

    law: SmoothLaw

    @property
    def hidden(self) -> arb:
        r"""0: both datasets have the same outputs."""
        return arb(0)

    @property
    def largest(self) -> arb:
        r"""Of the law."""
        return self.law.largest

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        r"""Of the law."""
        return self.law.cumulants(tilt)

    def factor(self, tilt: Fraction, variance: float = math.inf) -> SmoothFactor:
        r"""The factor at c = ``tilt``; nothing is added to the variance."""
        del variance
        return SmoothFactor(law=self.law, tilt=tilt)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothFactor:
    r"""phi(y) = M(c+iy)/S at c = ``tilt`` > 0, with S = e^K for the float K of the law."""

    law: SmoothLaw
    tilt: Fraction

    @property
    def log_scale(self) -> arb:
        r"""K, a float."""
        return arb(_about(self.law, self.tilt)[0])

    @property
    def deviation(self) -> float:
        r"""sqrt(K'')."""
        return math.sqrt(max(_about(self.law, self.tilt)[2], 2.0**-200))

    @property
    def peak(self) -> float:
        r"""phi(0), from above."""
        return _listed(self.law, self.tilt, 0.0, _FINE, _MOST_NODES, ctx.prec).peak

    def log_moment(self, lift: Fraction) -> arb:
        r"""log M((1 + lift) c), from above."""
        return _log_moment(self.law, (1 + lift) * self.tilt, ctx.prec)

    def on(self, grid: Grid) -> SmoothSampled:
        r"""The factor at the frequencies of ``grid``."""
        return SmoothSampled(factor=self, grid=grid)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothSampled:
    r"""phi on one grid: nodes where they are worth their time, and bounds of the law beyond."""

    factor: SmoothFactor
    grid: Grid

    def cover(self, blocks: Integers) -> Floats:
        r"""The bound of the law at the left end, and what few nodes say where that is large."""
        bounds = _far(self.factor.law, self.factor.tilt, ctx.prec)
        # The bound of the last frequency of the ladder that is not above the block.
        left = blocks * self.grid.length
        rung = np.searchsorted(_LADDER, left, side="right")
        short = self.factor.law.ripple(
            self.factor.tilt, (left + self.grid.length).astype(np.float64)
        )
        found: Floats = np.minimum(np.append(np.inf, bounds)[rung] + short, self.factor.peak)
        near = np.asarray((found > _ENOUGH) | (rung < _FIRST))
        if near.any():
            listed = self._nodes(blocks[near], _COARSE, _MOST_NODES)
            if listed is not None:
                few, grid = listed
                found[near] = np.minimum(found[near], few.on(grid).cover(blocks[near]))
        return found

    def values(self, blocks: Integers) -> Discs:
        r"""phi from nodes; within its bounds only, where these would be too many."""
        near = np.ones(len(blocks), np.bool_)
        most = max(min(_MOST_NODES, _MOST_WORK // (len(blocks) << self.grid.depth)), _FEWEST_NODES)
        while near.any():
            listed = self._nodes(blocks[near], _FINE, most)
            if listed is not None:
                fine, grid = listed
                found = fine.on(grid).values(blocks[near])
                break
            near &= blocks < int(blocks[near].max() * _SHORTER)
        if near.all():
            return found
        each = np.repeat(near, 1 << self.grid.depth)
        centres, radii = np.zeros(len(each), np.complex128), np.empty(len(each))
        if near.any():
            centres[each], radii[each] = found.centres, found.radii
        radii[~each] = np.repeat(self.cover(blocks[~near]), 1 << self.grid.depth)
        spent = _MOST_WORK_BESIDE // (len(blocks) << self.grid.depth)
        faded = _fading(self.factor.law, self.factor.tilt, min(_MOST_NODES, spent), ctx.prec)
        if faded is not None:
            grid = replace(self.grid, blocks=int(blocks.max()) + 1)
            beside = faded.on(grid).values(blocks[~near])
            # The nearer of the two: both hold.
            closer = beside.radii < radii[~each]
            centres[~each] = np.where(closer, beside.centres, 0)
            radii[~each] = np.minimum(beside.radii, radii[~each])
        return Discs(centres, radii)

    def _nodes(self, blocks: Integers, nats: float, most: int) -> tuple[AtomFactor, Grid] | None:
        # The listing that reaches the last of the blocks, and the grid up to there.
        grid = replace(self.grid, blocks=int(blocks.max()) + 1)
        reach = grid.length * grid.blocks
        # Half octaves, so that a list serves more than one grid.
        octave = math.ceil(2 * math.log2(max(reach, _NEAREST))) / 2
        try:
            listed = _listed(self.factor.law, self.factor.tilt, 2.0**octave, nats, most, ctx.prec)
        except PrecisionExhausted:
            return None
        return listed, grid


@lru_cache(maxsize=1 << 10)
def _about(law: SmoothLaw, tilt: Fraction) -> tuple[float, float, float]:
    return law.cumulants(float(tilt))


@lru_cache(maxsize=1 << 7)
def _listed(
    law: SmoothLaw, tilt: Fraction, reach: float, nats: float, most: int, bits: int
) -> AtomFactor:
    del bits
    log_scale = arb(_about(law, tilt)[0])
    scale, found = log_scale.exp(), law.nodes(tilt, reach, nats, most)
    return atom_factor(
        [w / scale for w in found.weights],
        found.losses,
        rest=found.rest.upper() / scale,
        log_scale=log_scale,
        twice=arb("inf"),
    )


@lru_cache(maxsize=1 << 7)
def _fading(law: SmoothLaw, tilt: Fraction, most: int, bits: int) -> AtomFactor | None:
    del bits
    found = law.fading(tilt, _FINE, most)
    if found is None:
        return None
    log_scale = arb(_about(law, tilt)[0])
    scale = log_scale.exp()
    return fading_factor(
        [w / scale for w in found.weights],
        found.losses,
        rest=found.rest.upper() / scale,
        log_scale=log_scale,
    )


@lru_cache(maxsize=1 << 10)
def _log_moment(law: SmoothLaw, tilt: Fraction, bits: int) -> arb:
    del bits
    try:
        found = law.nodes(tilt, 0.0, _MIDDLING, _MOST_NODES)
    except PrecisionExhausted:
        return arb("inf")
    return (sum(found.weights, arb(0)) + found.rest).log().upper()


@lru_cache(maxsize=1 << 8)
def _far(law: SmoothLaw, tilt: Fraction, bits: int) -> Floats:
    del bits
    return law.far(tilt, _LADDER)
