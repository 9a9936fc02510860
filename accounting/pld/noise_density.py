r"""Densities of noise: the masses of cells, the likelihood ratios under shifts, and the tails.

To support another noise law, add a subclass of :class:`Density` here. Proofs: docs/proofs/cells.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Final

import numpy as np
from flint import arb

from accounting.pld.discretise_round import Approximate
from accounting.pld.finite_pld import Floats
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.arrays import EXP_NEG_ERROR, exp_neg
from dpcore.numbers.enclosure import ball, nearest, precision

_FAR: Final = 64
MOST_EXPONENT: Final = 699.0
FLOOR: Final = 2.0**-1008
"""Smaller densities, below e^-699, are known only up to this absolute error."""

_UNIT: Final = 2.0**-53
_UP: Final = 1 + 2.0**-49
_RULES: Final = ((11, 1.0), (6, 8.0), (4, 64.0))
"""(number of Gauss-Legendre nodes, factor by which a cell is shorter than `Density.longest`)."""

_TRUNCATION: Final = 2.0**-54
"""The relative truncation error of these nodes."""

_GRID_BITS: Final = 35
_FARTHEST: Final = 2.0**40
_BITS: Final = 96
_SUMMED: Final = 512.0
"""For a larger standard deviation sums are computed by the Euler-Maclaurin formula."""

_SIXTH: Final = 6.6e-5
"""(|B_6(1/2)| + |B_6|)/6!, rounded up."""

_PEAK: Final = 50.0
"""The largest variation of e^(-x^2/2 sigma^2) on a cell that `Density.longest` allows."""


def upper_tail(x: arb) -> arb:
    r"""The tail 1 - Phi(x) = P(Z > x) of a standard normal Z.

    For x > 64 it is computed as e^(-x^2/2) U(1/2, 1/2, x^2/2)/(2 sqrt(pi)) (DLMF 7.11.5), because
    flint encloses this product tightly for any size of x, but not the function erfc.

    >>> upper_tail(arb(1)).str(8, radius=False)
    '0.15865525'
    """
    if not x > _FAR:
        return (x / arb(2).sqrt()).erfc() / 2
    square, half = x * x / 2, arb(1) / 2
    return (-square).exp() * square.hypgeom_u(half, half) / (2 * arb.pi().sqrt())


class Density(ABC):
    r"""A density proportional to e^-t(x), for a convex and symmetric exponent t with t(0) = 0.

    Lengths are in units of the shift between neighbouring datasets, and u = 2^-53.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def deviation(self) -> float:
        r"""A length of the order of the standard deviation."""

    @property
    @abstractmethod
    def reach(self) -> float:
        r"""A lower bound on the x > 0 with t(x) = 699; infinite if t has a kink."""

    def spacing(self, size: float) -> tuple[float, float]:
        r"""Numbers (a, h): edges up to ``size`` must be of the form a + k h for integers k."""
        return 0.0, _grid(size)

    def masses(self, edges: Floats, shift: int) -> Approximate:
        r"""The masses of the density moved by ``shift``, in the cells between ``edges``.

        The mass below the first edge precedes them, and the mass above the last edge follows them.
        """
        return _with_tails(self, edges, shift, _integrals(self, edges, shift))

    @property
    @abstractmethod
    def kinks(self) -> bool:
        r"""Whether t has a kink at 0, so that every shift of the density must be an edge."""

    @abstractmethod
    def height(self) -> arb:
        r"""The density at 0."""

    @abstractmethod
    def exponent(self, x: Floats) -> Floats:
        r"""The exponent t(x), with a relative error of at most 4 u."""

    def exponent_alone(self) -> Callable[[float], float]:
        r"""The exponent t as a fast function of a single number."""
        return lambda x: float(self.exponent(np.array([x]))[0])

    @abstractmethod
    def slope(self, x: Floats) -> Floats:
        r"""An upper bound on (1 + 2^-40) |t'(x)|."""

    @abstractmethod
    def step(self, j: int, x: Floats) -> Floats:
        r"""The log-likelihood ratio s = t(x) - t(x - j), with error at most 8 u (|s| + t(j))."""

    @abstractmethod
    def step_at(self, j: int, *, right: bool) -> float:
        r"""The limit of :meth:`step` at +infinity if ``right`` is true, else at -infinity."""

    @abstractmethod
    def grown(self, x: arb, j: int) -> arb:
        r"""The likelihood ratio e^(t(x) - t(x - j)), in ball arithmetic."""

    @abstractmethod
    def leading(
        self, terms: tuple[tuple[Fraction, int], ...], *, right: bool
    ) -> tuple[int, Callable[[], arb]]:
        r"""The leading term of sum_j w_j e^(t(x) - t(x - j)) as x tends to +infinity or -infinity.

        x tends to +infinity if ``right`` is true. ``terms`` are the pairs (w_j, j). Returns the
        order of growth, and a function for the coefficient, up to a factor given by the order.
        """

    @abstractmethod
    def longest(self, x: Floats) -> Floats:
        r"""A half-length of cells at distance x from 0 for which few quadrature nodes suffice."""

    @abstractmethod
    def tail(self, x: arb) -> arb:
        r"""The mass above x."""

    def ends(self, first: Fraction, last: Fraction) -> tuple[arb, arb, arb, arb]:
        r"""Lower and upper bounds on the mass below ``first``, then on the mass above ``last``."""
        left, right = self.tail(ball(-first)), self.tail(ball(last))
        return left, left, right, right


@dataclass(frozen=True, slots=True)
class NormalDensity(Density):
    r"""The normal density with mean 0 and this ``variance``."""

    variance: Fraction

    @property
    def deviation(self) -> float:
        return math.sqrt(self.variance)

    @property
    def reach(self) -> float:
        return math.sqrt(2 * MOST_EXPONENT) * self.deviation * 0.9999

    @property
    def kinks(self) -> bool:
        return False

    def height(self) -> arb:
        return 1 / (2 * arb.pi() * ball(self.variance)).sqrt()

    def exponent(self, x: Floats) -> Floats:
        found: Floats = x * x * float(1 / (2 * self.variance))
        return found

    def exponent_alone(self) -> Callable[[float], float]:
        factor = float(1 / (2 * self.variance))
        return lambda x: x * x * factor

    def slope(self, x: Floats) -> Floats:
        found: Floats = np.abs(x) * (float(1 / self.variance) * (1 + 2.0**-30))
        return found

    def step(self, j: int, x: Floats) -> Floats:
        found: Floats = (j * x - j * j / 2) * float(1 / self.variance)
        return found

    def step_at(self, j: int, *, right: bool) -> float:
        return 0.0 if j == 0 else math.inf if right == (j > 0) else -math.inf

    def grown(self, x: arb, j: int) -> arb:
        return ((x - ball(Fraction(j, 2))) * ball(j / self.variance)).exp()

    def leading(
        self, terms: tuple[tuple[Fraction, int], ...], *, right: bool
    ) -> tuple[int, Callable[[], arb]]:
        order, weight = max((j if right else -j, weight) for weight, j in terms)
        return order, lambda: ball(weight)

    def longest(self, x: Floats) -> Floats:
        # This length l satisfies x l/v <= 2 and l^2/2v <= 1/32.
        deviation = self.deviation * 0.999
        found: Floats = np.minimum(0.25, 1.9 / np.maximum(np.abs(x) / deviation, 1.0)) * deviation
        return found

    def tail(self, x: arb) -> arb:
        return upper_tail(x / ball(self.variance).sqrt())

    def grown_tail(self, x: arb, slope: arb) -> arb:
        r"""An upper bound on E[e^(slope (X - x)) 1{X > x}] for a variable X with this density."""
        v = ball(self.variance)
        growth = (slope * (slope * v / 2 - x)).exp()
        return growth * upper_tail((x - slope * v) / v.sqrt())


@dataclass(frozen=True, slots=True)
class LaplaceDensity(Density):
    r"""The density e^(-``spread`` |x|) spread/2."""

    spread: Fraction

    @property
    def deviation(self) -> float:
        return float(1 / self.spread)

    @property
    def reach(self) -> float:
        return math.inf

    @property
    def kinks(self) -> bool:
        return True

    def height(self) -> arb:
        return ball(self.spread) / 2

    def exponent(self, x: Floats) -> Floats:
        found: Floats = np.abs(x) * float(self.spread)
        return found

    def slope(self, x: Floats) -> Floats:
        return np.full_like(x, float(self.spread) * (1 + 2.0**-30))

    def step(self, j: int, x: Floats) -> Floats:
        found: Floats = (np.abs(x) - np.abs(x - j)) * float(self.spread)
        return found

    def step_at(self, j: int, *, right: bool) -> float:
        return float(self.spread) * (j if right else -j)

    def grown(self, x: arb, j: int) -> arb:
        return ((abs(x) - abs(x - j)) * ball(self.spread)).exp()

    def leading(
        self, terms: tuple[tuple[Fraction, int], ...], *, right: bool
    ) -> tuple[int, Callable[[], arb]]:
        rate = self.spread if right else -self.spread
        return 0, lambda: sum((ball(w) * ball(rate * j).exp() for w, j in terms), arb(0))

    def longest(self, x: Floats) -> Floats:
        return np.full_like(x, 1.9 * self.deviation)

    def tail(self, x: arb) -> arb:
        spread = ball(self.spread)
        return (-spread * x).exp() / 2 if x >= 0 else 1 - (spread * x).exp() / 2


@dataclass(frozen=True, slots=True)
class IntegerNormalDensity(NormalDensity):
    r"""The discrete Gaussian law with sigma^2 = ``variance`` >= 2500.

    Lengths are in units of 1, and edges lie halfway between integers. Mixtures of shifts of this
    law have the same likelihood ratios as mixtures of the continuous density.
    """

    def spacing(self, size: float) -> tuple[float, float]:
        del size
        return 0.5, 1.0

    def masses(self, edges: Floats, shift: int) -> Approximate:
        # Sums over integers, term by term, or by the Euler-Maclaurin formula: sum f(k) = int f -
        # [f']/24 + 7 [f^(3)]/5760, within 6.6e-5 int |f^(6)|.
        with precision(_BITS):
            height = nearest(self.height())
        if self.deviation < _SUMMED:
            t = self.exponent(np.arange(edges[0] + 0.5, edges[-1]) - shift)
            each = exp_neg(np.minimum(t, 800.0)) * height
            starts, counts = (edges[:-1] - edges[0]).astype(np.int64), np.diff(edges)
            value = np.add.reduceat(each, starts)
            error = np.add.reduceat(each * (EXP_NEG_ERROR + (6 * t + 8) * _UNIT), starts)
            error = (error + value * counts * 2 * _UNIT) * (1 + 2.0**-30) + counts * height * FLOOR
            return _with_tails(self, edges, shift, Approximate(value, error))
        whole = _integrals(self, edges, shift)
        sigma, z = self.deviation, (edges - shift) / self.deviation
        f = exp_neg(np.minimum(self.exponent(edges - shift), 800.0)) * height
        slopes = (z / (24 * sigma) - 7 * (z**3 - 3 * z) / (5760 * sigma**3)) * f
        far = np.maximum(np.abs(z[1:]), np.abs(z[:-1]))
        sixth = (far**6 + 15 * far**4 + 45 * far**2 + 15) / sigma**6 * np.maximum(f[1:], f[:-1])
        slip = _SIXTH * sixth * np.diff(edges) * _PEAK
        slip += (np.abs(slopes[1:]) + np.abs(slopes[:-1])) * 2.0**-38
        error = whole.error * (1 + 2.0**-30) + slip
        return _with_tails(self, edges, shift, Approximate(whole.value + np.diff(slopes), error))

    def grown_tail(self, x: arb, slope: arb) -> arb:
        # A sum of unimodal terms is at most the integral plus the largest term.
        v = ball(self.variance)
        peak = (slope * v).max(x)
        largest = (slope * (peak - x) - peak**2 / (2 * v)).exp()
        return NormalDensity.grown_tail(self, x, slope) + self.height() * largest

    def ends(self, first: Fraction, last: Fraction) -> tuple[arb, arb, arb, arb]:
        # f decreases away from 0: its sum from a on lies between the integrals from a and a - 1.
        half = Fraction(1, 2)
        inner, outer = ball(-(first + half)), ball(-(first - half))
        return (
            self.tail(outer),
            self.tail(inner),
            self.tail(ball(last + half)),
            self.tail(ball(last - half)),
        )


def _grid(size: float) -> float:
    # The step of the grid for edges up to this size: they have 35 bits, so that sums are exact.
    if size > _FARTHEST:
        raise PrecisionExhausted(
            "a numerical limit was reached: the noise extends beyond 2^40 times its shift; "
            "use less noise"
        )
    return math.ldexp(1.0, math.frexp(size)[1] - _GRID_BITS)


def _integrals(density: Density, edges: Floats, shift: int) -> Approximate:
    # The integral over each cell, with the number of Gauss-Legendre nodes that its length needs.
    middles, halves = (edges[1:] + edges[:-1]) / 2 - shift, (edges[1:] - edges[:-1]) / 2
    longest = density.longest(np.minimum(np.abs(middles) + halves, density.reach))
    with precision(_BITS):
        height = nearest(density.height())
    value, error = np.empty_like(halves), np.empty_like(halves)
    rule = sum((halves * shorter <= longest).astype(np.int64) for _, shorter in _RULES[1:])
    for at, (count, _) in enumerate(_RULES):
        those = np.flatnonzero(rule == at)
        if len(those):
            found = _by_nodes(density, middles[those], halves[those], height, count)
            value[those], error[those] = found.value, found.error
    return Approximate(value, error)


def _by_nodes(
    density: Density, middles: Floats, halves: Floats, height: float, count: int
) -> Approximate:
    nodes, weights = _legendre(count)
    x = middles[:, None] + halves[:, None] * nodes
    t = density.exponent(x)
    inner = (exp_neg(np.minimum(t, 800.0)) @ weights) * (halves * height)
    # The errors: of a node 3 u (|x| + half), of t 4 u t, and the truncation of the quadrature.
    slip = density.slope(x) * (np.abs(x) + halves[:, None]) * 4 * _UNIT + 5 * _UNIT * t
    error = inner * (slip.max(axis=1) + (EXP_NEG_ERROR + _TRUNCATION + 20 * _UNIT)) * _UP
    dark = t.min(axis=1) > MOST_EXPONENT
    inner, error = np.where(dark, 0.0, inner), np.where(dark, 0.0, error)
    return Approximate(inner, error + 2 * halves * height * FLOOR)


def _with_tails(density: Density, edges: Floats, shift: int, inner: Approximate) -> Approximate:
    first, last = (Fraction(float(edge)) - shift for edge in (edges[0], edges[-1]))
    with precision(_BITS):
        bounds = density.ends(first, last)
        below, above = (
            [float(end.lower()) for end in bounds],
            [float(end.upper()) for end in bounds],
        )
    values, errors = [], []
    for low, high in ((below[0], above[1]), (below[2], above[3])):
        middle = (low + high) / 2
        values.append(middle)
        errors.append((high - middle) * _UP + middle * 8 * _UNIT + 5e-324)
    return Approximate(
        np.concatenate((values[:1], inner.value, values[1:])),
        np.concatenate((errors[:1], inner.error, errors[1:])),
    )


@cache
def _legendre(count: int) -> tuple[Floats, Floats]:
    with precision(_BITS):
        found = [arb.legendre_p_root(count, k, weight=True) for k in range(count)]
        return (
            np.array([nearest(root) for root, _ in found]),
            np.array([nearest(weight) for _, weight in found]),
        )
