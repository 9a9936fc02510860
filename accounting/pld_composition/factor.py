r"""The factors of the contour integral, one for the loss of each round.

A :class:`LossPart` is the loss L of one round, with the moment generating function M(z) = E[e^(zL);
L < oo]. Its cumulants guide the choice of the tilt c. At this tilt, the loss has the
:class:`Factor` phi(y) = M(c + iy)/S, where S > 0 is a number close to M(c). Proofs:
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
    r"""The loss L of one round, before a tilt is chosen.

    L may be exact, or discretised (:class:`Listing`) from above or from below.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def above(self) -> bool | None:
        r"""True if L is discretised from above, False if from below, None if L is exact."""

    def cut(self, spare: float, width: float = math.inf) -> Self:
        r"""The same loss, where losses of total P-mass ``spare`` may be treated as infinite.

        ``width`` is the requested relative width of the result for the composition.
        """
        del spare, width
        return self

    @property
    def outputs(self) -> float:
        r"""The approximate number of atoms; infinity if it is not known in advance."""
        return math.inf

    def few_atoms(self, least: float, *, coarse: bool = False) -> Listing | None:
        r"""The discretised distribution of L, or None if there is no such distribution.

        Atoms of mass below ``least`` may be treated as infinite losses. A discretisation that could
        be refined is returned only if ``coarse`` is true.
        """
        del least, coarse
        return None

    @property
    @abstractmethod
    def hidden(self) -> arb:
        r"""An enclosure of the mass P(L = oo) if L is exact.

        If L is discretised, a bound on P(L = oo) from above or from below, like L itself.
        """

    @property
    def largest(self) -> arb:
        r"""An upper bound on all finite losses, discretised or not; possibly infinite."""
        found = self.largest_loss().upper
        return arb("inf") if found == math.inf else arb(float(found)) * (1 + 2.0**-40) + _SLACK

    @abstractmethod
    def largest_loss(self) -> Enclosure:
        r"""An enclosure of the largest privacy loss."""

    @abstractmethod
    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        r"""Approximations of K = log M, K' and K'' at ``tilt``, which only affect speed."""

    @abstractmethod
    def factor(
        self, tilt: Fraction, variance: float = math.inf, focus: Focus | None = None
    ) -> Factor:
        r"""The factor of the contour integral at ``tilt`` > 0.

        Discretisation may increase the variance of the loss by about ``variance``. The cells are
        smallest at the losses that ``focus`` weights most: by default, those that matter at this
        tilt.
        """


class Factor(Protocol):
    r"""The factor phi(y) = M(c + iy)/S of the contour integral for one loss.

    M is the moment generating function of the loss, c is the tilt, and S > 0 is close to M(c).
    """

    @property
    def log_scale(self) -> arb:
        r"""An enclosure of log S."""
        ...

    @property
    def deviation(self) -> float:
        r"""The approximate standard deviation of the tilted loss, which only affects speed."""
        ...

    @property
    def peak(self) -> float:
        r"""An upper bound on |phi(y)| over all real y, slightly above 1."""
        ...

    def log_moment(self, lift: Fraction) -> arb:
        r"""An upper bound on log M((1 + ``lift``) c) for 0 < ``lift`` <= 1; possibly infinite."""
        ...

    def cover(self, grid: Grid, blocks: Integers) -> Floats:
        r"""Upper bounds on |phi(y)| over all real y in a block, one for each of ``blocks``."""
        ...

    def values(self, grid: Grid, blocks: Integers) -> Discs:
        r"""Discs that contain phi at all frequencies of ``blocks``, in the order of ``grid``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    r"""The frequencies y_j = j ``step``, j >= 0, divided into blocks of 2^``depth`` frequencies.

    Block b covers the interval from y_j to y_k for j = b 2^depth and k = (b+1) 2^depth, whose
    centre is a frequency. ``step`` must be a float of at most 20 bits, and ``blocks`` 2^depth at
    most 2^30, so that every y_j is an exact float.

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
        r"""The length of the interval of a block."""
        return self.step * (1 << self.depth)

    def indices(self, blocks: Integers) -> Integers:
        r"""The indices j of the frequencies of ``blocks``, block by block."""
        within = np.arange(1 << self.depth, dtype=np.int64)
        found: Integers = (np.asarray(blocks, dtype=np.int64)[:, None] << self.depth) + within
        return found.reshape(-1)

    def frequencies(self, blocks: Integers) -> Floats:
        r"""The exact frequencies y_j of ``blocks``, block by block."""
        return self.indices(blocks).astype(np.float64) * self.step

    def centres(self, blocks: Integers) -> Floats:
        r"""The exact centre of the interval of each block."""
        return (np.asarray(blocks, dtype=np.float64) + 0.5) * self.length
