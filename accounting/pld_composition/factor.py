r"""The factors of the contour integral: one factor of the integrand for each law.

A :class:`LossPart` is the loss of one round. Its cumulants guide the choice of the tilt c; tilted
at c, the loss gives a :class:`Factor` phi(y) = M(c+iy)/S of the integrand. Proofs:
docs/proofs/total_loss.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Protocol, Self

import numpy as np
from flint import arb

from accounting.pld.discretise_round import Focus
from accounting.pld.finite_pld import Listing
from accounting.pld_composition.complex_intervals import Discs, Floats, Integers
from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import Enclosure

_SLACK: Final = 2.0**-40
"""An upper bound on the error of a loss that is the logarithm of a quotient of float masses."""


class LossPart(ABC):
    r"""The loss L of one round before its tilt is chosen; balls have the ambient precision.

    A listing is a discretised distribution of L (:class:`Listing`) that bounds L from above or from
    below.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def above(self) -> bool | None:
        r"""True if listings bound L from above, False if from below, None if L is exact."""

    def cut(self, spare: float, width: float = math.inf) -> Self:
        r"""The same loss, but losses of total P-mass ``spare`` may be counted as infinite.

        ``width`` is the requested relative width of the total.
        """
        del spare, width
        return self

    @property
    def outputs(self) -> float:
        r"""The approximate number of atoms, or infinity if it depends on the requested variance."""
        return math.inf

    def few_atoms(self, least: float, *, coarse: bool = False) -> Listing | None:
        r"""Return all atoms, or None if there are too many.

        Atoms of mass below ``least`` may be counted as infinite losses. If ``coarse``, the listing
        of a table that could still be refined is accepted as well.
        """
        del least, coarse
        return None

    @property
    @abstractmethod
    def hidden(self) -> arb:
        r"""P(L = oo): an upper bound if listings bound L from above, a lower bound if from below.

        If L is exact, the result is an enclosure of P(L = oo).
        """

    @property
    def largest(self) -> arb:
        r"""An upper bound on all finite losses, discretised or not; infinite if unbounded."""
        found = self.largest_loss().upper
        return arb("inf") if found == math.inf else arb(float(found)) * (1 + 2.0**-40) + _SLACK

    @abstractmethod
    def largest_loss(self) -> Enclosure:
        r"""The largest loss, as an enclosure."""

    @abstractmethod
    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        r"""Approximate K, K' and K'' at c = ``tilt``, K = log M: floats that only affect speed."""

    @abstractmethod
    def factor(
        self, tilt: Fraction, variance: float = math.inf, focus: Focus | None = None
    ) -> Factor:
        r"""The factor at c = ``tilt`` > 0; discretisation adds at most about ``variance``.

        ``focus`` selects the losses that are resolved finely; by default all losses at the tilt.
        """


class Factor(Protocol):
    r"""phi(y) = M(c+iy)/S for one law; S > 0 is any number close to M(c), the same for all y."""

    @property
    def log_scale(self) -> arb:
        r"""The logarithm of S, as an enclosure."""
        ...

    @property
    def deviation(self) -> float:
        r"""The approximate deviation of L under the tilt; it affects only block lengths."""
        ...

    @property
    def peak(self) -> float:
        r"""An upper bound on |phi(y)| over all real y, slightly above 1."""
        ...

    def log_moment(self, lift: Fraction) -> arb:
        r"""An upper bound on log M((1 + lift) c), 0 < ``lift`` <= 1, possibly infinite."""
        ...

    def cover(self, grid: Grid, blocks: Integers) -> Floats:
        r"""Upper bounds on |phi(y)| over each whole block, one per entry of ``blocks``."""
        ...

    def values(self, grid: Grid, blocks: Integers) -> Discs:
        r"""The values of phi at ``grid.frequencies(blocks)`` as discs, 2^depth per block."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    r"""The frequencies y_j = j ``step``, j >= 0, in blocks of 2^``depth``.

    Block b is the interval step [b 2^depth, (b+1) 2^depth]; its centre is a frequency. ``step`` is
    a float of at most 20 bits and ``blocks`` 2^depth <= 2^30, so that every y_j is exact.

    >>> grid = Grid(step=0.5, depth=2, blocks=10)
    >>> grid.frequencies(np.array([0, 3])).tolist()
    [0.0, 0.5, 1.0, 1.5, 6.0, 6.5, 7.0, 7.5]
    >>> grid.length, grid.centres(np.array([0, 3])).tolist()
    (2.0, [1.0, 7.0])
    """

    step: float
    depth: int
    blocks: int

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise InvalidParameter(
                "depth", self.depth, "must be >= 1, so that the centre of a block is a frequency"
            )

    @property
    def length(self) -> float:
        r"""The length of a block in y."""
        return self.step * (1 << self.depth)

    def indices(self, blocks: Integers) -> Integers:
        r"""The indices j of these blocks, block by block."""
        within = np.arange(1 << self.depth, dtype=np.int64)
        found: Integers = (np.asarray(blocks, dtype=np.int64)[:, None] << self.depth) + within
        return found.reshape(-1)

    def frequencies(self, blocks: Integers) -> Floats:
        r"""The frequencies y_j of these blocks, block by block; they are exact."""
        return self.indices(blocks).astype(np.float64) * self.step

    def centres(self, blocks: Integers) -> Floats:
        r"""The centre of each block; it is exact."""
        return (np.asarray(blocks, dtype=np.float64) + 0.5) * self.length
