r"""Connect the dots: one discrete pair above a whole curve, or above several.

For a pair (P, Q) the curve in x = e^epsilon, h(x) = sup_S P(S) - x Q(S), is convex, falls from
h(0) = 1 and is at least 1 - x. Any such function is the curve of a pair, and a pair with the larger
curve dominates, also under adaptive composition. So upper ends of h at chosen points, joined by
straight lines, give a pair with finitely many losses that may stand for (P, Q); the maximum of
several curves is treated the same way. Doroshenko, Ghazi, Kamath, Kumar and Manurangsi, "Connect
the dots" (2022). Proofs: docs/proofs/sampling.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from typing import Final, TypeAlias

import numpy as np
from flint import arb

from accounting.errors import NotDerived
from accounting.laws.polya import DisclosingPair
from accounting.loss.cells import Approximate, Cells, Ratios, listed_above
from accounting.loss.integer_pair import IntegerPair
from accounting.loss.listing import Floats, Listing
from accounting.loss.table import Focus, LossTable, Sketch, sketch_of
from accounting.pairs.balls import as_ball
from accounting.pairs.enclose import within
from accounting.pairs.monotone import RayPair
from accounting.pairs.pair import Pair
from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import Enclosure, ball, integer_below, precision
from dpcore.numbers.integer_search import least

Dot: TypeAlias = tuple[Fraction, Fraction]
"""(x, u) with u >= h(x), at x = e^epsilon > 0."""

UNSEEN: Final = Fraction(1, 1 << 160)
"""The P-mass that may be left beyond the last dot of a curve: it counts as infinitely lossy."""

_START: Final = (Fraction(0), Fraction(1))
_ROUNDED: Final = 2.0**-52
_MOST: Final = 2000
_FEWEST: Final = 250
_BITS: Final = 256
_CURVE_BITS: Final = 96  # of the size of delta; a chord between two dots is off by far more
_PLACED: Final = 128
_UNIT: Final = 320


@dataclass(frozen=True, slots=True, kw_only=True)
class DottedPair(LossTable):
    r"""The pair whose curve, in x = e^epsilon, has the ``corners`` (x, h(x)) and is flat beyond.

    The corners start at (0, 1); x rises, h falls, the slopes rise strictly, from -1 or above to
    below 0. With q the change of slope at a corner x > 0, the pair has there the masses P = x q and
    Q = q, so the loss log x; the last h is P(L = oo), and what is left of Q has no P-mass.

    >>> half = DottedPair.through([(Fraction(1), Fraction(1, 2)), (Fraction(2), Fraction(1, 4))])
    >>> half.corners[1:]
    ((Fraction(1, 1), Fraction(1, 2)), (Fraction(2, 1), Fraction(1, 4)))
    >>> half.cells(half.edges(Focus(1.0), 100)).p.value.tolist()
    [0.0, 0.25, 0.5, 0.25]

    Raises :class:`InvalidParameter` for corners that are no curve of a pair.
    """

    corners: tuple[Dot, ...]

    def __post_init__(self) -> None:
        if self.corners[:1] != (_START,):
            raise InvalidParameter("corners", self.corners, "must start at (0, 1)")
        if any(here[0] >= there[0] for here, there in pairwise(self.corners)):
            raise InvalidParameter("corners", self.corners, "must have rising places")
        slopes = self.slopes()
        if not all(before < after for before, after in pairwise(slopes)):
            raise InvalidParameter("corners", self.corners, "must be convex, and flat beyond")
        if slopes[0] < -1 or self.corners[-1][1] < 0:
            raise InvalidParameter("corners", self.corners, "must be at least 1 - x, and 0")

    def __hash__(self) -> int:
        # Of thousands of rationals, and asked for often.
        return hash((len(self.corners), self.corners[-1]))

    @classmethod
    def through(cls, dots: Iterable[Dot]) -> DottedPair:
        r"""The pair of the lower convex hull of the dots: above every curve that is below them.

        Raises :class:`InvalidParameter` where a dot lies below 1 - x or 0: no curve does.
        """
        kept, lowest = [_START], Fraction(1)
        for x, u in sorted(dots):
            lowest = min(lowest, u)  # h falls, so what bounds it here bounds it from here on
            if x == kept[-1][0]:
                continue
            while len(kept) > 1 and _slope(kept[-2], kept[-1]) >= _slope(kept[-1], (x, lowest)):
                kept.pop()
            kept.append((x, lowest))
        if len(kept) > 1 and kept[-1][1] == kept[-2][1]:
            kept.pop()
        return cls(corners=tuple(kept))

    @property
    def fixed(self) -> bool:
        r"""True: a cell is one corner."""
        return True

    def largest_loss(self) -> Enclosure:
        r"""At most the last corner; infinite where the curve does not fall to 0."""
        if self.corners[-1][1] > 0:
            return Enclosure.infinite()
        last = max(self.corners[-1][0], Fraction(1))
        with precision(_PLACED):
            return Enclosure(Fraction(0), Enclosure.of(ball(last).log()).upper)

    def sketch(self) -> Sketch:
        r"""The corners."""
        return sketch_of(_corner_cells(self))

    def allowed(self, edges: Floats) -> Floats:
        r"""Nothing to choose."""
        return edges

    def cells(self, edges: Floats) -> Cells:
        r"""The Q-mass that P never shows, each corner, and the P-mass that Q never shows."""
        del edges
        return _corner_cells(self)

    def tail_moment(self, order: Fraction, edges: Floats) -> arb:
        r"""0: every finite loss is bounded."""
        del order, edges
        return arb(0)

    def height(self, x: Fraction) -> Fraction:
        r"""h(x) at a rational x >= 0, exactly."""
        at = bisect_left(self.corners, (x,))
        if x <= 0 or at == len(self.corners):
            return Fraction(1) if x <= 0 else self.corners[-1][1]
        (left, high), (right, low) = self.corners[at - 1 : at + 1]
        return high + (x - left) * (low - high) / (right - left)

    def slopes(self) -> list[Fraction]:
        r"""Between the corners, and 0 for the flat part."""
        return [*(_slope(here, there) for here, there in pairwise(self.corners)), Fraction(0)]


def connected(
    curve: Callable[[Fraction], Enclosure],
    mirrored: Callable[[Fraction], Enclosure],
    losses: Iterable[Fraction],
) -> DottedPair:
    r"""A pair above all (P, Q) whose curve is at most ``curve``, and that of (Q, P) ``mirrored``.

    Both are asked at |epsilon| for epsilon in ``losses`` only, >= 0 for the curve, < 0 for the
    mirrored one; the upper ends count. What lies beyond the largest loss is taken as infinite.

    >>> fair = lambda epsilon: Enclosure.exactly(0)
    >>> connected(fair, fair, [Fraction(0)]).corners
    ((Fraction(0, 1), Fraction(1, 1)), (Fraction(1, 1), Fraction(0, 1)))
    """
    return DottedPair.through(
        _right(curve, epsilon) if epsilon >= 0 else _left(mirrored, -epsilon) for epsilon in losses
    )


def highest(parts: Iterable[DottedPair]) -> DottedPair:
    r"""A pair above all of ``parts``: the maximum of their curves, but for rounding.

    >>> one = DottedPair.through([(Fraction(1), Fraction(1, 2)), (Fraction(2), Fraction(1, 4))])
    >>> two = DottedPair.through([(Fraction(1), Fraction(3, 8))])
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
    return DottedPair.through(
        (x, _rounded_up(max(high))) for x, high in zip([*places, *extra], heights, strict=True)
    )


@lru_cache(maxsize=64)
def dominating(pairs: tuple[Pair, ...], unseen: Fraction = UNSEEN, most: int = _MOST) -> DottedPair:
    r"""A pair above all of ``pairs`` at every epsilon, real: any round may be any one of them.

    The dots of a pair are at the losses that it has, where its curve bends: little is lost. They
    are about ``most`` together, up to where a P-mass of ``unseen`` is left, which counts as hidden.
    A pair with too many outcomes is cut into ranges, whose ends are dots.

    >>> from accounting.laws.laplace import LaplacePair
    >>> response = dominating((LaplacePair(scale=Fraction(1), shift=1),))
    >>> round(response.largest_loss().upper_float, 9), response.infinite(above=True)
    (1.0, 0.0)
    """
    if not pairs:
        raise InvalidParameter("pairs", pairs, "must hold at least one pair")
    share = max(most // len(pairs), min(most, _FEWEST))
    return highest(_above(pair, unseen, share) for pair in pairs)


def _above(pair: Pair, unseen: Fraction, most: int) -> DottedPair:
    if isinstance(pair, DisclosingPair):
        return disclosing(pair, above=True)
    try:
        table = IntegerPair(pair=pair).cut(float(unseen))
        listing = listed_above((1.0, table.cells(table.edges(Focus(1.0), most))))
        return DottedPair.through(_dots(listing, most))
    except NotDerived:
        pass
    mirror = pair.mirror()
    forward = [*_places(pair, unseen, most)]
    backward = forward if mirror is pair else [*_places(mirror, unseen, most)]
    curve = _curve(pair)
    mirrored = curve if mirror is pair else _curve(mirror)
    # In order: neighbouring losses share the work of a curve.
    return connected(curve, mirrored, sorted({*forward, *(-place for place in backward if place)}))


def disclosing(pair: DisclosingPair, *, above: bool) -> DottedPair:
    r"""A bound of the pair, and of its mirror, in which the output shows everything or nothing.

    Above, the total variation distance h decides: all is shown with probability h, else nothing.
    Below, the outputs that Q has are one outcome: post-processing.
    """
    with precision(_CURVE_BITS):
        found = Enclosure.of(pair.hidden())
    if above:
        return DottedPair.through([(Fraction(1), Fraction(min(found.upper, 1)))])
    shown = max(Fraction(found.lower), Fraction(0))
    return DottedPair.through([(1 - shown, shown)])


def _dots(listing: Listing, most: int) -> Iterator[Dot]:
    # h(x) <= hidden + sum (P - x Q)+ for integers P, Q in units of 2^-_UNIT that round the masses
    # up and down: the sum is exact, over the losses whose P/Q exceeds x.
    hidden, atoms = _units(listing)
    if not atoms:
        yield Fraction(1), _rounded_up(Fraction(hidden, 1 << _UNIT))
        return
    atoms.sort(key=lambda atom: Fraction(*atom))
    above, beside = ([*accumulate(part, initial=0)] for part in zip(*reversed(atoms), strict=True))
    for i in _kept(atoms, most):
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
    # Where two curves that lead on either side of a cell meet, if not at its ends.
    i, j = left.index(max(left)), right.index(max(right))
    ahead, behind = left[i] - left[j], right[j] - right[i]
    if not (ahead > 0 and behind > 0):
        return None
    return _rounded_up(places[0] + (places[1] - places[0]) * ahead / (ahead + behind))


def _curve(pair: Pair) -> Callable[[Fraction], Enclosure]:
    @cache
    def curve(epsilon: Fraction) -> Enclosure:
        with precision(_CURVE_BITS):
            return within(Enclosure.of(pair.delta(epsilon)), Fraction(0), Fraction(1))

    return curve


# -- dots ------------------------------------------------------------------------------------------


def _right(curve: Callable[[Fraction], Enclosure], epsilon: Fraction) -> Dot:
    # x is at least e^epsilon, and h falls: the bound at epsilon holds at x.
    with precision(_PLACED):
        x = Fraction(Enclosure.of(ball(epsilon).exp()).upper)
    return x, Fraction(curve(epsilon).upper)


def _left(mirrored: Callable[[Fraction], Enclosure], epsilon: Fraction) -> Dot:
    # h(x) = 1 - x + x H(Q||P) at -log x. x is at most e^-epsilon, so -log x is at least epsilon.
    with precision(_PLACED):
        x = Fraction(Enclosure.of((-ball(epsilon)).exp()).lower)
    return x, 1 - x + x * Fraction(mirrored(epsilon).upper)


def _places(pair: Pair, unseen: Fraction, most: int) -> Iterator[Fraction]:
    # Losses >= 0 at which the curve of the pair bends; any are sound. Only sums of coordinates on a
    # lattice have no table, and their events are rays.
    yield Fraction(0)
    if not isinstance(pair, RayPair):
        raise NotDerived(f"a pair above {pair!r}", "give it coordinates, or events that are rays")
    with precision(_CURVE_BITS):
        first = pair.bottom()
        last = least(lambda m: m >= first and _ends(pair, m, unseen), first)
        losses = [pair.loss(m) for m in range(first, last + 1, 1 + (last - first) // most)]
        for loss in map(as_ball, losses):
            if loss.is_finite() and loss > 0:
                yield Fraction(Enclosure.of(loss).upper)


def _ends(pair: RayPair, m: int, unseen: Fraction) -> bool:
    if as_ball(pair.loss(m)) == arb("inf"):
        return True
    gap, rest = pair.tails(m)
    return bool(gap + rest <= ball(unseen))


@lru_cache(maxsize=32)
def _corner_cells(pair: DottedPair) -> Cells:
    inner, slopes, rest = pair.corners[1:], pair.slopes(), pair.corners[-1][1]
    jumps = [after - before for before, after in pairwise(slopes)]
    there = [1 + slopes[0], *jumps, Fraction(0)]
    here = [Fraction(0), *(x * q for (x, _), q in zip(inner, jumps, strict=True)), rest]
    p, q = _floats(here), _floats(there)
    moved = _floats([a - b for a, b in zip(here, there, strict=True)])
    places = [Fraction(0), *(x for x, _ in inner)]
    ratio, excess = _floats(places), _floats([x - 1 for x in places])
    infinite = Approximate(np.array([np.inf]), np.zeros(1))
    ratios = Ratios(excess.joined(infinite), ratio.joined(infinite))
    return Cells(p=p, q=q, moved=moved, low=ratios, high=ratios)


def _floats(values: list[Fraction]) -> Approximate:
    found = np.array([float(value) for value in values])
    return Approximate(found, np.abs(found) * _ROUNDED + np.where(found == 0, 0.0, 5e-324))


def _rounded_up(value: Fraction) -> Fraction:
    return Fraction(-(-value.numerator * (1 << _UNIT) // value.denominator), 1 << _UNIT)


def _kept(atoms: Sequence[tuple[int, int]], most: int) -> list[int]:
    # Half for the heaviest atoms, half spread evenly over the losses, and the last one; rising.
    if len(atoms) <= most:
        return [*range(len(atoms))]
    chosen = {*sorted(range(len(atoms)), key=lambda i: atoms[i][0])[-(most // 2) :], len(atoms) - 1}
    losses = [math.log(here) - math.log(there) for here, there in atoms]
    cell = (losses[-1] - losses[0]) / (most // 2) or 1.0
    spread = {math.floor((loss - losses[0]) / cell): i for i, loss in enumerate(losses)}
    return sorted(chosen | {*spread.values()})


def _slope(here: Dot, there: Dot) -> Fraction:
    return (there[1] - here[1]) / (there[0] - here[0])
