r"""Connect the dots: a discrete pair of laws that dominates one or several pairs.

For a pair (P, Q) and x = e^epsilon, the curve h(x) = sup_S P(S) - x Q(S) over events S is
delta(epsilon). h is convex, decreases from h(0) = 1, and is at least 1 - x. Any such function is
the curve of some pair, and a pair with a larger curve dominates, also under adaptive composition.
So upper bounds on h at chosen points ("dots"), joined by straight lines, are the curve of a pair
with finitely many losses that dominates (P, Q). If the bounds hold for several pairs, it dominates
all of them. See Doroshenko, Ghazi, Kamath, Kumar and Manurangsi, "Connect the dots" (2022). Proofs:
docs/proofs/subsampling.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Final, TypeAlias

import numpy as np
from flint import arb

from accounting.errors import NotDerived
from accounting.law_pairs.registry import Coordinates
from accounting.law_pairs.skellam_and_polya import RevealingPair
from accounting.pld.discretise_round import (
    Approximate,
    Cells,
    FixedTable,
    Focus,
    LossTable,
    Ratios,
    listed_above,
)
from accounting.pld.finite_pld import Listing, thinned
from accounting.pld.integer_cells import table_of
from accounting.pld_composition.cell_refinement import TabledLoss
from accounting.pld_composition.enumerate_outcomes import Enumeration
from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import Enclosure, ball, integer_below, precision

CurvePoint: TypeAlias = tuple[Fraction, Fraction]
"""(x, u) with u >= h(x), at x = e^epsilon > 0."""

UNSEEN: Final = Fraction(1, 1 << 160)
"""The P-mass that may remain beyond the last dot of a curve; it counts as infinite loss."""

_START: Final = (Fraction(0), Fraction(1))
_ROUNDED: Final = 2.0**-52
_MOST: Final = 2000
_FEWEST: Final = 250
_OUTCOMES: Final = 1 << 22
_FINER: Final = 4  # the factor by which there are more dots for several coordinates
_BITS: Final = 256
_CURVE_BITS: Final = 96  # relative to delta; a chord between two dots has a far larger error
_PLACED: Final = 128
_UNIT: Final = 320


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectTheDotsPair(FixedTable):
    r"""The pair (P, Q) whose curve h joins the ``corners`` by lines and is constant after the last.

    The corners are the points (x, h(x)), with x = e^epsilon as in the module docstring. They start
    at (0, 1); x increases, h decreases, and the slopes increase strictly, from at least -1 to below
    0. If the slope changes by q at a corner x > 0, the loss log x has the P-mass x q and the Q-mass
    q. The last value of h is P(L = oo) for the loss L. The remaining Q-mass has no P-mass.

    >>> half = ConnectTheDotsPair.through(
    ...     [(Fraction(1), Fraction(1, 2)), (Fraction(2), Fraction(1, 4))]
    ... )
    >>> half.corners[1:]
    ((Fraction(1, 1), Fraction(1, 2)), (Fraction(2, 1), Fraction(1, 4)))
    >>> half.cells(half.edges(Focus(1.0), 100)).p.value.tolist()
    [0.0, 0.25, 0.5, 0.25]

    Raises :class:`InvalidParameter` if the corners are not the curve of a pair.
    """

    corners: tuple[CurvePoint, ...]

    def __post_init__(self) -> None:
        if self.corners[:1] != (_START,):
            raise InvalidParameter("corners", self.corners, "must start at (0, 1)")
        if any(here[0] >= there[0] for here, there in pairwise(self.corners)):
            raise InvalidParameter("corners", self.corners, "must have increasing x-coordinates")
        slopes = self.slopes()
        if not all(before < after for before, after in pairwise(slopes)):
            raise InvalidParameter(
                "corners",
                self.corners,
                "must be strictly convex, and constant beyond the last corner",
            )
        if slopes[0] < -1 or self.corners[-1][1] < 0:
            raise InvalidParameter("corners", self.corners, "must satisfy h >= max(0, 1 - x)")

    def __hash__(self) -> int:
        # The corners may be thousands of rationals, and the hash is needed often.
        return hash((len(self.corners), self.corners[-1]))

    @classmethod
    def through(cls, dots: Iterable[CurvePoint]) -> ConnectTheDotsPair:
        r"""The pair whose curve is the largest decreasing convex one below the points ``dots``.

        The pair dominates every pair whose curve is below all dots. Raises
        :class:`InvalidParameter` if a dot lies below 1 - x or below 0, where no curve can lie.
        """
        kept, lowest = [_START], Fraction(1)
        for x, u in sorted(dots):
            lowest = min(lowest, u)  # h decreases, so a bound here is a bound for every larger x
            if x == kept[-1][0]:
                continue
            while len(kept) > 1 and _slope(kept[-2], kept[-1]) >= _slope(kept[-1], (x, lowest)):
                kept.pop()
            kept.append((x, lowest))
        if len(kept) > 1 and kept[-1][1] == kept[-2][1]:
            kept.pop()
        return cls(corners=tuple(kept))

    def largest_loss(self) -> Enclosure:
        if self.corners[-1][1] > 0:
            return Enclosure.infinite()
        last = max(self.corners[-1][0], Fraction(1))
        with precision(_PLACED):
            return Enclosure(Fraction(0), Enclosure.of(ball(last).log()).upper)

    def all_cells(self) -> Cells:
        return _corner_cells(self)

    def height(self, x: Fraction) -> Fraction:
        r"""The exact value h(x) of the curve at a rational x = e^epsilon >= 0."""
        at = bisect_left(self.corners, (x,))
        if x <= 0 or at == len(self.corners):
            return Fraction(1) if x <= 0 else self.corners[-1][1]
        (left, high), (right, low) = self.corners[at - 1 : at + 1]
        return high + (x - left) * (low - high) / (right - left)

    def slopes(self) -> list[Fraction]:
        r"""The slopes of the lines between the corners, and 0 after the last corner."""
        return [*(_slope(here, there) for here, there in pairwise(self.corners)), Fraction(0)]


def highest(parts: Iterable[ConnectTheDotsPair]) -> ConnectTheDotsPair:
    r"""A pair whose curve is the maximum of the curves of ``parts``, up to rounding.

    >>> one = ConnectTheDotsPair.through(
    ...     [(Fraction(1), Fraction(1, 2)), (Fraction(2), Fraction(1, 4))]
    ... )
    >>> two = ConnectTheDotsPair.through([(Fraction(1), Fraction(3, 8))])
    >>> both = highest([one, two])
    >>> [both.height(x) for x in (Fraction(1), Fraction(2), Fraction(5))]
    [Fraction(1, 2), Fraction(3, 8), Fraction(3, 8)]
    """
    listed = tuple(parts)
    if len(listed) == 1:
        return listed[0]
    places = sorted({x for part in listed for x, _ in part.corners[1:]})
    heights = [[part.height(x) for part in listed] for x in places]
    crossings = [
        _crossing(places[i : i + 2], heights[i], heights[i + 1]) for i in range(len(places) - 1)
    ]
    extra = {x for x in crossings if x is not None}.difference(places)
    heights += [[part.height(x) for part in listed] for x in extra]
    return ConnectTheDotsPair.through(
        (x, _rounded_up(max(high))) for x, high in zip([*places, *extra], heights, strict=True)
    )


@lru_cache(maxsize=64)
def dominating(products: tuple[Coordinates, ...], most: int = _MOST) -> ConnectTheDotsPair:
    r"""A pair that dominates each of ``products``, and so any adaptive choice among them.

    A product consists of the pairs of independent coordinates, with their counts. The dots of a
    product are at its losses, where its curve bends, so the bound is nearly tight. The number of
    dots is about ``most``. The largest losses, of total P-mass 2^-160, count as infinite.

    >>> from accounting.law_pairs.discrete_laplace import DiscreteLaplace, LaplacePair
    >>> response = dominating((((LaplacePair(noise=DiscreteLaplace(scale=1), shift=1), 1),),))
    >>> round(response.largest_loss().upper_float, 9), response.infinite(above=True)
    (1.0, 0.0)
    """
    if not products:
        raise InvalidParameter("products", products, "must not be empty")
    share = max(most // len(products), min(most, _FEWEST))
    return highest(_above(product, share) for product in products)


def _above(product: Coordinates, most: int) -> ConnectTheDotsPair:
    match product:
        case ((RevealingPair() as pair, 1),):
            return revealing_or_nothing(pair, above=True)
        case ((pair, 1),):
            return above_table(table_of(pair), most)
    # A revealing pair stands for both directions of its coordinate, so its own table does not
    # dominate.
    tables = [
        (
            revealing_or_nothing(pair, above=True)
            if isinstance(pair, RevealingPair)
            else table_of(pair),
            count,
        )
        for pair, count in product
    ]
    if any(table.infinite(above=True) >= 1 for table, _ in tables):
        return ConnectTheDotsPair.through(())  # one coordinate reveals its dataset
    parts = tuple((TabledLoss.of(table, above=True), count) for table, count in tables)
    listing = Enumeration(parts=parts, most=_OUTCOMES, coarse=True).listing(float(UNSEEN))
    if listing is None:
        raise NotDerived(f"a pair that dominates {product!r}", "it has too many coordinates")
    return ConnectTheDotsPair.through(_dots(listing, _FINER * most))


def above_table(table: LossTable, most: int) -> ConnectTheDotsPair:
    r"""A pair that dominates the round ``table``, from the masses of about ``most`` cells."""
    cut = table.cut(float(UNSEEN))
    if cut.infinite(above=True) >= 1:
        return ConnectTheDotsPair.through(())  # every output reveals its dataset
    listing = listed_above((1.0, cut.cells(cut.edges(Focus(1.0), most))))
    return ConnectTheDotsPair.through(_dots(listing, most))


def revealing_or_nothing(pair: RevealingPair, *, above: bool) -> ConnectTheDotsPair:
    r"""A pair with few outputs that bounds the worse direction of ``pair``.

    If ``above`` is true, the result bounds both directions from above: with probability equal to
    the total variation distance, its output reveals the dataset, otherwise nothing. If it is false,
    it bounds the worse direction from below: it merges all outputs of ``pair`` of positive Q-mass.
    """
    with precision(_CURVE_BITS):
        found = Enclosure.of(pair.hidden())
    if above:
        return ConnectTheDotsPair.through([(Fraction(1), Fraction(min(found.upper, 1)))])
    revealed = max(Fraction(found.lower), Fraction(0))
    return ConnectTheDotsPair.through([(1 - revealed, revealed)])


def _dots(listing: Listing, most: int) -> Iterator[CurvePoint]:
    # h(x) <= hidden + sum (P - x Q)+ for integers P, Q in units of 2^-_UNIT, the masses rounded up
    # and down: the sum over the losses with P/Q > x is exact.
    hidden, atoms = _units(listing)
    if not atoms:
        yield Fraction(1), _rounded_up(Fraction(hidden, 1 << _UNIT))
        return
    atoms.sort(key=lambda atom: Fraction(*atom))
    above, beside = ([*accumulate(part, initial=0)] for part in zip(*reversed(atoms), strict=True))
    losses = np.array([math.log(here) - math.log(there) for here, there in atoms])
    masses = np.array([here / (1 << _UNIT) for here, _ in atoms])
    for i in thinned(losses, masses, most).tolist():
        x = _rounded_up(Fraction(*atoms[i]))
        first = i
        while first < len(atoms) and atoms[first][0] <= x * atoms[first][1]:
            first += 1
        left = len(atoms) - first
        yield x, _rounded_up((hidden + above[left] - x * beside[left]) / (1 << _UNIT))


def _units(listing: Listing) -> tuple[int, list[tuple[int, int]]]:
    with precision(_BITS):
        total, atoms = _up(arb(listing.hidden)), []
        for p, loss in zip(listing.masses.tolist(), listing.losses.tolist(), strict=True):
            here, there = _up(arb(p)), _down(arb(p) * (-arb(loss)).exp())
            if there > 0:
                atoms.append((here, there))
            else:
                total += here
        return min(total, 1 << _UNIT), atoms


def _up(mass: arb) -> int:
    return max(-integer_below(-mass * ball(1 << _UNIT)), 0)


def _down(mass: arb) -> int:
    return max(integer_below(mass * ball(1 << _UNIT)), 0)


def _crossing(
    places: list[Fraction], left: list[Fraction], right: list[Fraction]
) -> Fraction | None:
    # The point inside a cell where two curves cross, if different curves are the largest at its
    # ends.
    i, j = left.index(max(left)), right.index(max(right))
    ahead, behind = left[i] - left[j], right[j] - right[i]
    if not (ahead > 0 and behind > 0):
        return None
    return _rounded_up(places[0] + (places[1] - places[0]) * ahead / (ahead + behind))


@lru_cache(maxsize=32)
def _corner_cells(pair: ConnectTheDotsPair) -> Cells:
    inner, slopes, rest = pair.corners[1:], pair.slopes(), pair.corners[-1][1]
    jumps = [after - before for before, after in pairwise(slopes)]
    there = [1 + slopes[0], *jumps, Fraction(0)]
    here = [Fraction(0), *(x * q for (x, _), q in zip(inner, jumps, strict=True)), rest]
    p, q = _floats(here), _floats(there)
    moved = _floats([a - b for a, b in zip(here, there, strict=True)])
    places = [Fraction(0), *(x for x, _ in inner)]
    ratio, excess = _floats(places), _floats([x - 1 for x in places])
    infinite = Approximate(np.array([np.inf]), np.zeros(1))
    ratios = Ratios(excess, ratio).joined(Ratios(infinite, infinite))
    return Cells(p=p, q=q, moved=moved, low=ratios, high=ratios)


def _floats(values: list[Fraction]) -> Approximate:
    found = np.array([float(value) for value in values])
    return Approximate(found, np.abs(found) * _ROUNDED + np.where(found == 0, 0.0, 5e-324))


def _rounded_up(value: Fraction) -> Fraction:
    return Fraction(-(-value.numerator * (1 << _UNIT) // value.denominator), 1 << _UNIT)


def _slope(here: CurvePoint, there: CurvePoint) -> Fraction:
    return (there[1] - here[1]) / (there[0] - here[0])
