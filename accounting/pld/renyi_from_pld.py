r"""Two-sided bounds on the Renyi divergences D_alpha of one round, at every real order alpha > 1.

For the output laws P and Q of a round let R = dP/dQ and g(r) = r^alpha - 1 - alpha (r - 1). Then
(alpha - 1) D_alpha = log(1 + E_Q[g(R)]), where nothing cancels because g >= 0. As g is convex, the
mean of g(R) on a cell of outputs is at least g at the mean of R, and at most the mean of g under
the law on the two ends of the cell that has the same mean. Proofs: docs/proofs/cells.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import numpy as np
from flint import arb

from accounting.pairs.enclose_curve import largest
from accounting.pld.discretise_round import Approximate, Focus, LossTable, Tables
from dpcore.numbers.enclosure import Enclosure, ball, precision

_BITS: Final = 128
_FIRST: Final = 1 << 10
_LAST: Final = 1 << 15
_FARTHEST: Final = 600.0
_WIDTH: Final = 1e-6


def renyi(kinds: Tables, order: Fraction, relative: float) -> Enclosure:
    r"""An enclosure of the Renyi divergence D_alpha, alpha = ``order`` > 1, of one round.

    The round is a random mixture whose output reveals the component: ``kinds`` lists the components
    as pairs (probability, round divided into cells). The relative width is ``relative``, or more if
    2^14 cells do not suffice. Raises :class:`PrecisionExhausted` if the cells cannot be computed.

    >>> from accounting.pld.noise_density import NormalDensity
    >>> from accounting.pld.real_cells import RealPair
    >>> pair = RealPair.sampled(NormalDensity(Fraction(1)), Fraction(1, 100))
    >>> found = renyi(((Fraction(1), pair),), Fraction(2), 1e-6)
    >>> found.lower_float < 0.000171813422 < found.upper_float  # log(1 + gamma^2 (e - 1))
    True
    """
    count, found = _FIRST, Enclosure.infinite()
    if any(table.infinite(above=False) > 0 for _, table in kinds):
        return found
    with precision(_BITS):
        while count <= _LAST:
            low, high = (
                sum((ball(chance) * part[end] for chance, part in each), arb(0))
                for each in [[(w, _excess(pair, order, count)) for w, pair in kinds]]
                for end in (0, 1)
            )
            least, most = ((x.max(arb(0)).log1p() / ball(order - 1)) for x in (low, high))
            found = Enclosure(Enclosure.of(least).lower, Enclosure.of(most).upper)
            if found.upper < math.inf and found.width <= relative * found.upper:
                break
            count *= 4
    return found


def _excess(pair: LossTable, order: Fraction, count: int) -> tuple[arb, arb]:
    # Lower and upper bounds on E_Q[g(R)].
    tilt = min(float(order - 1), _FARTHEST)
    edges = pair.edges(Focus(tilt), count)
    cells = pair.cells(edges)
    low, high = arb(0), arb(0)
    if np.isinf(cells.high.excess.value).sum() > pair.infinite_ends:
        high = arb("inf")  # a ratio is finite, but outside the range of floats
    for q, moved, bottom, top in zip(
        *map(_balls, (cells.q, cells.moved, cells.low.excess, cells.high.excess)), strict=True
    ):
        if not top.is_finite():
            continue
        below = _growth(bottom, order)
        mean = moved / q
        if mean > -1:
            low += q * _growth(mean, order)
        # The mass of the upper end solves moved = w_lo (q - t) + w_hi t.
        share = (moved - bottom * q) / (top - bottom)
        most = q.upper()
        share = share.max(arb(0)).min(most) if share.is_finite() else arb(0).union(most)
        high += (q * below + share * (_growth(top, order) - below)).max(arb(0))
    tail = pair.tail_moment(order, edges)
    least = pair.least_moment(order) - 1
    return low.lower().max(least.lower()), (high + tail).upper()


def _balls(numbers: Approximate) -> list[arb]:
    pairs = zip(numbers.value.tolist(), numbers.error.tolist(), strict=True)
    return [arb(value, error) if math.isfinite(value) else arb("inf") for value, error in pairs]


def _growth(w: arb, order: Fraction) -> arb:
    # g(1 + w) = (1 + w)^alpha - 1 - alpha w, w >= -1.
    # By the mean value theorem at the midpoint of the ball: g' is small where g is.
    alpha, middle = ball(order), w.mid()
    if not w > -1:
        return arb(0).union(alpha)  # between g(1) and g(0) = alpha - 1
    slope = alpha * ((alpha - 1) * w.log1p()).expm1()
    return (alpha * middle.log1p()).expm1() - alpha * middle + slope * (w - middle)


def largest_renyi(directions: tuple[Tables, ...], order: Fraction, bits: int) -> Enclosure:
    r"""The largest Renyi divergence of this ``order`` over several ``directions``, as an enclosure.

    Each of the ``directions`` is an argument ``kinds`` of :func:`renyi`, whose ``relative`` width
    is 2^-bits, but at least 1e-6.
    """
    return largest(renyi(kinds, order, max(2.0**-bits, _WIDTH)) for kinds in directions)
